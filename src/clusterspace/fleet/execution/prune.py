"""Delete what a Work no longer asks for: recorded, live-read, by UID.

    look at the object, live ──ours?──> note its UID on the Work ──> delete that UID ──> let go

The look comes last before the delete and never from a cache: an object that was handed to somebody
else a moment ago has the same UID as before. The note comes before the delete, so that whoever
goes on after a crash knows which object was meant, and never takes a new one for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.works import identifier_of, manifests_of
from clusterspace.client.places import Place, place_of
from clusterspace.client.resources import Client
from clusterspace.client.writes import DeleteOptions, Propagation, WriteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import MalformedObject, NotFound
from clusterspace.fleet.execution.apply import FIELD_MANAGER
from clusterspace.fleet.execution.takeover import is_ours
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    uid_of,
    with_metadata,
)

DECIDED: Final = "clusterspace.io/deleting"
"""Annotation of a Work: the UIDs of the objects that were looked at and are to be deleted."""

_LABELS: Final = frozenset(
    {
        stamps.MANAGED,
        stamps.WORK_ID,
        stamps.BINDING_ID,
        stamps.CLUSTER_BINDING_ID,
        stamps.POLICY_ID,
        stamps.CLUSTER_POLICY_ID,
    }
)
_ANNOTATIONS: Final = frozenset(
    {
        stamps.MANAGED_LABELS_LIST,
        stamps.MANAGED_ANNOTATIONS_LIST,
        stamps.POLICY_NAMESPACE,
        stamps.POLICY_NAME,
        stamps.CLUSTER_POLICY_NAME,
        stamps.BINDING_NAMESPACE,
        stamps.BINDING_NAME,
        stamps.CLUSTER_BINDING_NAME,
        stamps.WORK_NAMESPACE,
        stamps.WORK_NAME,
        stamps.CONFLICT_RESOLUTION,
        stamps.TEMPLATE_UID,
        stamps.TEMPLATE_GENERATION,
    }
)


class _Decision(msgspec.Struct, frozen=True):
    """Which objects are to go, by place, since the Work was deleted at this moment, if it was."""

    moment: str
    uids: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Doomed:
    """An object that was just looked at, is ours, and is to go."""

    place: Place
    uid: str


async def find_doomed(
    member: Client, place: Place, manifest: Object, work: Object
) -> Doomed | None:
    """Look at an object, live, and return it if it is ours to delete.

    When another object was decided on earlier, that one is gone and this one is somebody's new one.
    """
    live = await member.find(place)
    if live is None or is_being_deleted(live) or not is_ours(manifest, live):
        return None
    decided = _decision(work).uids.get(str(place)) if is_being_deleted(work) else None
    if decided is not None and decided != uid_of(live):
        return None
    return Doomed(place, uid_of(live))


async def record(hub: Client, work: Object, doomed: list[Doomed]) -> Object:
    """Note on the Work which objects are to go; return the Work as it is stored now."""
    decision = _decision(work)
    decided = _Decision(_moment(work), {**decision.uids, **{str(e.place): e.uid for e in doomed}})
    if decided == decision:
        return work
    text = msgspec.json.encode(decided).decode()
    noted = with_metadata(work, annotations={**annotations_of(work), DECIDED: text})
    return await commit(hub, place_of(WORKS, work), work, noted)


async def delete(member: Client, doomed: Doomed) -> None:
    """Delete exactly the object that was looked at; Conflict when another is there by now."""
    options = DeleteOptions(doomed.uid, propagation=Propagation.BACKGROUND)
    try:
        await member.delete(doomed.place, options)
    except NotFound:
        return


async def hand_over(member: Client, place: Place, manifest: Object) -> bool:
    """Take our stamps off an object that stays; return whether there was one of ours."""
    live = await member.find(place)
    if live is None or not is_ours(manifest, live):
        return False
    await member.update(place, without_stamps(live), WriteOptions(field_manager=FIELD_MANAGER))
    return True


def without_stamps(live: Object) -> Object:
    """Return an object as if no hub had ever looked after it."""
    labels = {key: value for key, value in labels_of(live).items() if key not in _LABELS}
    annotations = {
        key: value for key, value in annotations_of(live).items() if key not in _ANNOTATIONS
    }
    return with_metadata(live, labels=labels or None, annotations=annotations or None)


def dropped_manifests(work: Object) -> list[Object]:
    """Return what a Work once had applied and does not ask for any more, as bare manifests."""
    wanted = [_named(identifier_of(each, 0)) for each in manifests_of(work)]
    told: list[Object] = find_at(work, "status", "manifestStatuses") or []
    reported: list[Object] = [each.get("identifier") or {} for each in told]
    return [_bare_manifest(each, work) for each in reported if _named(each) not in wanted]


def _named(identifier: Mapping[str, Any]) -> Object:
    """Return what an identifier names, wherever it stands in the Work and whatever its version."""
    return {key: identifier.get(key) for key in ("group", "kind", "namespace", "name")}


def _bare_manifest(identifier: Object, work: Object) -> Object:
    group, version = identifier.get("group"), identifier.get("version")
    metadata = {
        "name": identifier.get("name"),
        "namespace": identifier.get("namespace"),
        "labels": dict(labels_of(work)),
    }
    return {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": identifier.get("kind"),
        "metadata": {key: value for key, value in metadata.items() if value},
    }


def _decision(work: Object) -> _Decision:
    """Return what was decided about this end of the Work, not about a manifest it once dropped."""
    text = annotations_of(work).get(DECIDED)
    if not text:
        return _Decision(_moment(work))
    try:
        held = msgspec.json.decode(text, type=_Decision)
    except msgspec.DecodeError as error:
        where = f"metadata.annotations[{DECIDED}]"
        raise MalformedObject(f"{where} does not hold UIDs by place", place=where) from error
    return held if held.moment == _moment(work) else _Decision(_moment(work))


def _moment(work: Object) -> str:
    return str(metadata_of(work).get("deletionTimestamp") or "")
