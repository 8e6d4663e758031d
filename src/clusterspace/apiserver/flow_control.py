"""Whether a FlowSchema leads anywhere: its condition `Dangling`.

Requests are not sorted by FlowSchemas here, and whoever writes one is told so. But controllers and
people wait until theirs is seen, and whether the level it names exists can be said all the same.
"""

from typing import Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.following import find_object, follow, list_objects
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own, write_of
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, with_value

_GROUP: Final = "flowcontrol.apiserver.k8s.io"
_LEVELS: Final = "prioritylevelconfigurations"
_SCHEMAS: Final = "flowschemas"
_MANAGER: Final = "api-priority-and-fairness-config-consumer-v1"
_DANGLING: Final = "Dangling"


class FlowSchemaStatus:
    """Follows FlowSchemas and priority levels, and says of each schema whether it has a level."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._schemas = hub.catalog.get_storage(_GROUP, _SCHEMAS)
        self._levels = hub.catalog.get_storage(_GROUP, _LEVELS)

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._hub, (self._schemas.prefix(), self._levels.prefix()), self._look)

    async def _look(self, key: str) -> None:
        name = forms.name_in(key)
        if key.startswith(self._schemas.prefix()):
            await self._look_at(name)
            return
        for schema in await list_objects(self._hub, _GROUP, _SCHEMAS):
            if level_of(schema) == name:
                await self._look_at(name_of(schema))

    async def _look_at(self, name: str) -> None:
        schema = await find_object(self._hub, _GROUP, _SCHEMAS, "", name)
        if schema is None:
            return
        level = level_of(schema)
        is_there = await find_object(self._hub, _GROUP, _LEVELS, "", level) is not None

        def judged(live: Object) -> Object:
            # Another level may be named by now: then its own event brings us back.
            if level_of(live) != level:
                return live
            return with_judgement(live, is_there=is_there, now=self._hub.timestamp())

        write = write_of(self._hub, self._schemas, manager=_MANAGER, subresource="status")
        key = self._schemas.key("", name)
        await edit_own(self._hub, self._schemas, key, judged, write=write)


def level_of(schema: Object) -> str:
    """Return the name of the priority level a schema sends requests to."""
    return str(find_at(schema, "spec", "priorityLevelConfiguration", "name") or "")


def with_judgement(schema: Object, *, is_there: bool, now: str) -> Object:
    """Return the schema with its condition; the same object when it says so already."""
    conditions = cast("list[Object]", find_at(schema, "status", "conditions") or [])
    status, reason = ("False", "Found") if is_there else ("True", "NotFound")
    verb = "exists" if is_there else "does not exist"
    message = f'PriorityLevelConfiguration "{level_of(schema)}" {verb}'
    existing = find_condition(conditions, _DANGLING)
    if existing and (existing.get("status"), existing.get("message")) == (status, message):
        return schema
    condition: Object = {
        "type": _DANGLING,
        "status": status,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    if existing and existing.get("status") == status:
        condition["lastTransitionTime"] = existing.get("lastTransitionTime") or now
    kept = [each for each in conditions if each.get("type") != _DANGLING]
    return with_value(schema, [*kept, condition], "status", "conditions")
