"""Volumes, claims and classes of volumes that are in use stay until nobody uses them any more.

Admission gives each of them a finalizer at its creation. One that is deleted is looked at here, and
its finalizer is taken away once nothing that is stored uses it. A kube-controller-manager beside
this server does the same by the same rules, and which of the two is first makes no difference.
"""

from typing import Any, cast

import structlog

from clusterspace.apis import stamps
from clusterspace.apiserver.identity.following import (
    find_object,
    follow,
    list_objects,
)
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own
from clusterspace.builtins.strategies import PROTECTION
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
)

_log = structlog.get_logger(__name__)


def uses_claim(pod: Object, claim: str) -> bool:
    """Whether a pod keeps a claim of its namespace from going.

    A pod that is on no node yet does not: no node starts one whose claim is being deleted. One that
    has ended still does, for its volumes may be mounted until it is gone.
    """
    if not find_at(pod, "spec", "nodeName"):
        return False
    for volume in cast("list[Object]", find_at(pod, "spec", "volumes") or []):
        if find_at(volume, "persistentVolumeClaim", "claimName") == claim:
            return True
        # What a pod asks for in its own spec becomes a claim of this name. A pod that has been shut
        # down and waits for a finalizer lets go of it: perhaps that one waits for the claim.
        metadata = metadata_of(pod)
        is_shut_down = (
            metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds") == 0
        )
        is_own = volume.get("ephemeral") and f"{name_of(pod)}-{volume.get('name')}" == claim
        if is_own and not is_shut_down:
            return True
    return False


def names_class(volume_or_claim: Object, name: str) -> bool:
    """Whether a volume or claim has a class of volume attributes, or is on its way to one."""
    fields: tuple[tuple[str, ...], ...] = (
        ("spec", "volumeAttributesClassName"),
        ("status", "currentVolumeAttributesClassName"),
        ("status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
    )
    return any(find_at(volume_or_claim, *field) == name for field in fields)


def tells_of_members(template: Object) -> bool:
    """Whether the status of an object is that of its copies on members, and not its own.

    What a policy carries bears its mark, and so do the copies; these say besides that a hub has
    placed them.
    """
    labels = labels_of(template)
    is_carried = not labels.keys().isdisjoint((stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID))
    return is_carried and stamps.MANAGED not in labels


class StorageProtection:
    """Follows what is protected and what uses it, and lets go of what nobody uses."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        kinds = {(each.info.group, each.info.kind): each for each in hub.catalog.all()}
        self._protected = {
            kinds[kind].prefix(): (kinds[kind], finalizer) for kind, finalizer in PROTECTION.items()
        }
        self._pods = hub.catalog.get_storage("", "pods").prefix()
        self._claims = hub.catalog.get_storage("", "persistentvolumeclaims").prefix()
        self._in_use: set[str] = set()
        """Keys of what is being deleted and was in use at the last look."""

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._hub, (*self._protected, self._pods), self._look)

    async def _look(self, key: str) -> None:
        """Look at what has changed, and again at what was in use: perhaps by this."""
        # One that is marked for deletion has an event of its own, so `_in_use` lacks nothing that
        # an earlier event could have let go.
        if key.startswith(self._pods):
            namespace = key.removeprefix(self._pods).partition("/")[0]
            again = {
                each for each in self._in_use if each.startswith(f"{self._claims}{namespace}/")
            }
        else:
            again = {key, *self._in_use}
        for each in sorted(again):
            await self._look_at(each)

    async def _look_at(self, key: str) -> None:
        prefix = next(each for each in self._protected if key.startswith(each))
        served, finalizer = self._protected[prefix]
        *within, name = key.removeprefix(prefix).split("/")
        namespace = within[0] if within else ""
        info = served.info
        found = await find_object(self._hub, info.group, info.plural, namespace, name)
        if found is None or not is_being_deleted(found) or finalizer not in _finalizers(found):
            self._in_use.discard(key)
            return
        if await self._is_used(info.kind, found, namespace):
            self._in_use.add(key)
            return

        def released(live: Object) -> Object:
            # Another one may have taken the name; and nobody un-deletes the one that was seen.
            if uid_of(live) != uid_of(found):
                return live
            kept = [each for each in _finalizers(live) if each != finalizer]
            return with_metadata(live, finalizers=kept or None)

        await edit_own(self._hub, served, key, released)
        self._in_use.discard(key)  # not before: a look that fails is repeated
        _log.info("no longer in use, and let go", key=key, uid=uid_of(found))

    async def _is_used(self, kind: str, found: Object, namespace: str) -> bool:
        """Whether anything that is stored now uses the object."""
        hub, name = self._hub, name_of(found)
        match kind:
            case "PersistentVolume":
                return find_at(found, "status", "phase") == "Bound" and not tells_of_members(found)
            case "PersistentVolumeClaim":
                pods = await list_objects(hub, "", "pods", namespace)
                return any(uses_claim(pod, name) for pod in pods)
            case _:
                claims = await list_objects(hub, "", "persistentvolumeclaims")
                volumes = await list_objects(hub, "", "persistentvolumes")
                return any(names_class(each, name) for each in (*claims, *volumes))


def _finalizers(kube_object: Object) -> list[Any]:
    return metadata_of(kube_object).get("finalizers") or []
