"""The objects of API priority and fairness: kept, obeyed, and told whether they lead anywhere.

What is mandatory and what is suggested (builtins/flow_control.py, and ours below) is made when it
is missing, and has its spec put back while its annotation leaves it to the server. Deleting one
does not last; whoever wants one of the suggested otherwise sets the annotation to `false` first.
Whatever is written takes effect at once, and each FlowSchema is told whether its level is there.
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#defaults
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, cast

import structlog

from clusterspace.apis.identities import AGENTS, COMPONENTS
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.fairness.controller import FlowController
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.identity.following import find_object, follow, list_objects
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.builtins.flow_control import (
    AUTOUPDATE,
    BY_USER,
    EXEMPT,
    GROUP,
    LEVELS,
    MANDATORY_LEVELS,
    MANDATORY_SCHEMAS,
    SCHEMAS,
    SUGGESTED_LEVELS,
    SUGGESTED_SCHEMAS,
    flow_schema,
    groups,
    resource_rule,
    rules_for,
    users,
)
from clusterspace.errors import AlreadyExists, ApiError, StoreError
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)

_log = structlog.get_logger(__name__)

_PRODUCER: Final = "api-priority-and-fairness-config-producer-v1"
_CONSUMER: Final = "api-priority-and-fairness-config-consumer-v1"
_KEEP_SECONDS: Final = 60.0
"""How often what is kept is looked at, as in Kubernetes."""
_DANGLING: Final = "Dangling"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})

_LEASES: Final = resource_rule(
    api_groups=("coordination.k8s.io",), resources=("leases",), is_cluster_scoped=False
)
_HEARTBEATS: Final = resource_rule(
    ("get", "update", "patch"),
    ("cluster.karmada.io",),
    ("clusters", "clusters/status"),
)

OWN_SCHEMAS: Final = (
    flow_schema(
        "clusterspace-leader-election",
        "leader-election",
        150,
        BY_USER,
        rules_for(users(*COMPONENTS.values()), (_LEASES,), ()),
    ),
    flow_schema(
        "clusterspace-heartbeats",
        "node-high",
        450,
        BY_USER,
        rules_for(groups(AGENTS), (_LEASES, _HEARTBEATS), ()),
    ),
    flow_schema("clusterspace-agents", "system", 550, BY_USER, rules_for(groups(AGENTS))),
    flow_schema(
        "clusterspace-components",
        "workload-high",
        850,
        BY_USER,
        rules_for(users(*COMPONENTS.values())),
    ),
)
"""What a fleet has besides: agents are to it what nodes are to a cluster, and the components what
kube-controller-manager is. Whatever users do, leases are renewed and members report."""

_KEPT: Final = (
    *((LEVELS, True, each) for each in MANDATORY_LEVELS),
    *((SCHEMAS, True, each) for each in MANDATORY_SCHEMAS),
    *((LEVELS, False, each) for each in SUGGESTED_LEVELS),
    *((SCHEMAS, False, each) for each in SUGGESTED_SCHEMAS),
    *((SCHEMAS, False, each) for each in OWN_SCHEMAS),
)


class FlowControlObjects:
    """Keeps the default objects, configures the levels, and writes the condition `Dangling`."""

    def __init__(self, hub: HubState, controller: FlowController | None) -> None:
        self._hub = hub
        self._controller = controller
        """None in a server that does not obey the objects: there they only have their condition."""
        self._schemas = hub.catalog.get_storage(GROUP, SCHEMAS)
        self._levels = hub.catalog.get_storage(GROUP, LEVELS)
        self._obeyed: dict[tuple[str, str], Object] = {}
        """By plural and name: most events are conditions, which change nothing for requests."""

    async def install(self) -> None:
        """Make or mend what every server has, and obey what there is; harmless when repeated."""
        for plural, is_mandatory, desired in _KEPT:
            served = self._hub.catalog.get_storage(GROUP, plural)
            write = write_of(self._hub, served, manager=_PRODUCER)

            def mended(
                existing: Object, desired: Object = desired, *, always: bool = is_mandatory
            ) -> Object:
                return with_kept_spec(existing, desired, always=always)

            key = served.key("", name_of(desired))
            if await edit_own(self._hub, served, key, mended, write=write) is None:
                # Another hub on the same store may be quicker, with the same object.
                with suppress(AlreadyExists):
                    await create_own(self._hub, served, desired, _PRODUCER)
        await self.configure()

    async def keep(self) -> None:
        """Make what was deleted and mend what was changed, until cancelled."""
        while True:
            await self._hub.clock.sleep(_KEEP_SECONDS)
            try:
                await self.install()
            except (ApiError, StoreError) as error:
                _log.warning("default flow schemas are not kept for now", reason=str(error))

    async def configure(self) -> None:
        """Obey what there is now."""
        self._obeyed = {
            (plural, name_of(each)): each
            for plural in (SCHEMAS, LEVELS)
            for each in await list_objects(self._hub, GROUP, plural)
        }
        self._obey()

    def _obey(self) -> None:
        if self._controller is not None:
            kinds = {plural: list[Object]() for plural in (SCHEMAS, LEVELS)}
            for (plural, _), each in self._obeyed.items():
                kinds[plural].append(each)
            self._controller.configure(kinds[SCHEMAS], kinds[LEVELS])

    async def run(self) -> None:
        """Obey every change, and say of each schema whether it has a level, until cancelled."""
        await follow(self._hub, (self._schemas.prefix(), self._levels.prefix()), self._look)

    async def _look(self, key: str) -> None:
        plural = SCHEMAS if key.startswith(self._schemas.prefix()) else LEVELS
        name = forms.name_in(key)
        live = await find_object(self._hub, GROUP, plural, "", name)
        known = self._obeyed.pop((plural, name), None)
        if live is not None:
            self._obeyed[plural, name] = live
        if _identity(live) != _identity(known):
            self._obey()
        if plural == SCHEMAS:
            await self._judge(name)
            return
        for schema in [each for (kind, _), each in self._obeyed.items() if kind == SCHEMAS]:
            if level_of(schema) == name:
                await self._judge(name_of(schema))

    async def _judge(self, name: str) -> None:
        schema = await find_object(self._hub, GROUP, SCHEMAS, "", name)
        if schema is None:
            return
        level = level_of(schema)
        is_there = await find_object(self._hub, GROUP, LEVELS, "", level) is not None

        def judged(live: Object) -> Object:
            # Another level may be named by now: then its own event brings us back.
            if level_of(live) != level:
                return live
            return with_judgement(live, is_there=is_there, now=self._hub.timestamp())

        write = write_of(self._hub, self._schemas, manager=_CONSUMER, subresource="status")
        key = self._schemas.key("", name)
        await edit_own(self._hub, self._schemas, key, judged, write=write)

    async def count_objects(self, info: RequestInfo) -> int | None:
        """Return how many objects a list is about; None for what is not stored."""
        served = self._hub.catalog.find(info.group, info.version, info.resource)
        if served is None or info.subresource:
            return None
        return await self._hub.store.count(served.prefix(info.namespace))


def _identity(kube_object: Object | None) -> object:
    """Return what of an object matters to requests."""
    return None if kube_object is None else (uid_of(kube_object), kube_object.get("spec"))


def with_kept_spec(existing: Object, desired: Object, *, always: bool) -> Object:
    """Return an object as the server keeps it; the same when it is as it should be.

    Whose the spec is, its annotation says; without one, the server's as long as nobody has changed
    it. Of the level `exempt` only what is said about seats is the operator's.
    """
    said = annotations_of(existing).get(AUTOUPDATE, "")
    is_ours = always or said in _TRUE
    if not always and said not in _TRUE | _FALSE:
        is_ours = metadata_of(existing).get("generation") == 1
    mended, wanted = existing, str(is_ours).lower()
    spec: Any = desired["spec"]
    if desired["kind"] == "PriorityLevelConfiguration" and name_of(desired) == EXEMPT:
        spec = {**spec, "exempt": find_at(existing, "spec", "exempt") or spec["exempt"]}
    if is_ours and existing.get("spec") != spec:
        mended = {**mended, "spec": spec}
    if said not in (_TRUE if is_ours else _FALSE):
        annotations = {**annotations_of(existing), AUTOUPDATE: wanted}
        mended = with_metadata(mended, annotations=annotations)
    return mended


def level_of(schema: Object) -> str:
    """Return the name of the priority level a schema sends requests to."""
    return str(find_at(schema, "spec", "priorityLevelConfiguration", "name") or "")


def with_judgement(schema: Object, *, is_there: bool, now: str) -> Object:
    """Return the schema with its condition; the same object when it says so already."""
    conditions = cast("list[Object]", find_at(schema, "status", "conditions") or [])
    status, reason = ("False", "Found") if is_there else ("True", "NotFound")
    found = "and it exists" if is_there else "but there is no such object"
    message = (
        "This FlowSchema references the PriorityLevelConfiguration object named "
        f'"{level_of(schema)}" {found}'
    )
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


def default_objects() -> tuple[Iterable[Object], Iterable[Object]]:
    """Return the schemas and levels that are obeyed where no others can be read."""
    schemas = (*MANDATORY_SCHEMAS, *SUGGESTED_SCHEMAS, *OWN_SCHEMAS)
    return schemas, (*MANDATORY_LEVELS, *SUGGESTED_LEVELS)
