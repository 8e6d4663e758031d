"""What a placement asked for and what it selected, written down: numbered, and never changed.

The newest one counts, whatever labels say: a crash between writing it and relabelling the one
before it changes nothing. Of a selection that takes several snapshots the master is written last,
so a master stands for all of them.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterspace.apis.fleet_placements import (
    API_VERSION,
    GENERATION,
    IS_LATEST,
    NUMBER_OF_CLUSTERS,
    NUMBER_OF_ENVELOPES,
    NUMBER_OF_SNAPSHOTS,
    PARENT,
    PICK_N,
    POLICY_INDEX,
    POLICY_SNAPSHOT,
    RESOURCE_HASH,
    RESOURCE_INDEX,
    RESOURCE_SNAPSHOT,
    SUBINDEX,
    digest_of,
    generation_of,
    index_of,
    is_latest,
    owner_reference,
    placement_type_of,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    with_metadata,
)

MOST_BYTES: Final = 800 * 1024
"""How much one snapshot holds; an object that is larger by itself has one of its own."""

DEFAULT_HISTORY: Final = 10
_NUMBER: Final = "numberOfClusters"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The snapshot that counts, what has to be written for it, and what may go."""

    latest: Object
    index: int
    new: tuple[Object, ...] = ()
    """To be created in this order."""
    changed: tuple[tuple[Object, Object], ...] = ()
    """To be changed, from what it is into what it is to be."""


def plan_policy_snapshot(placement: Object, present: Sequence[Object]) -> SnapshotPlan:
    """Return the snapshot of a placement's policy; only the number of clusters may change in it."""
    policy: Object | None = find_at(placement, "spec", "policy")
    newest = _newest(present, POLICY_INDEX)
    if newest is not None and find_at(newest, "spec", "policyHash") == _policy_hash(policy):
        latest = with_metadata(
            newest,
            labels={**labels_of(newest), IS_LATEST: "true"},
            annotations={**annotations_of(newest), **_policy_notes(placement, policy)},
        )
        changes = _changes({newest["metadata"]["name"]: latest}, present)
        return SnapshotPlan(latest, index_of(latest, POLICY_INDEX), changed=changes)
    index = -1 if newest is None else index_of(newest, POLICY_INDEX)
    latest = _new_policy_snapshot(placement, policy, index + 1)
    return SnapshotPlan(latest, index + 1, (latest,), _changes({}, present))


def plan_resource_snapshot(
    placement: Object, manifests: Sequence[Object], present: Sequence[Object]
) -> SnapshotPlan:
    """Return the snapshot of what a placement selects; new ones when it is something else."""
    newest = _newest([each for each in present if _is_master(each)], RESOURCE_INDEX)
    digest = digest_of(list(manifests))
    if newest is not None and annotations_of(newest).get(RESOURCE_HASH) == digest:
        latest = with_metadata(newest, labels={**labels_of(newest), IS_LATEST: "true"})
        changes = _changes({name_of(newest): latest}, present)
        return SnapshotPlan(latest, index_of(latest, RESOURCE_INDEX), changed=changes)
    # Beyond those of a life that ended between two of them: such leftovers are of no use.
    index = max((index_of(each, RESOURCE_INDEX) for each in present), default=-1) + 1
    parts = list(_split(manifests))
    master = _master(placement, index, parts, digest)
    more = [_overflow(placement, index, number, part) for number, part in enumerate(parts[1:])]
    return SnapshotPlan(master, index, (*more, master), _changes({}, present))


def outdated(
    present: Iterable[Object], label: str, limit: int, kept: frozenset[int]
) -> list[Object]:
    """Return the snapshots beyond the history a placement keeps, but for those still in use."""
    held = list(present)
    indexes = sorted({index_of(each, label) for each in held}, reverse=True)
    gone = frozenset(indexes[limit:]) - kept
    return [each for each in held if index_of(each, label) in gone]


def history_limit(placement: Object) -> int:
    """Return how many snapshots of each kind a placement keeps."""
    return int(find_at(placement, "spec", "revisionHistoryLimit") or DEFAULT_HISTORY)


def snapshot_name(placement_name: str, index: int) -> str:
    """Return what the master of a resource snapshot is called."""
    return f"{placement_name}-{index}-snapshot"


def index_in(name: str) -> int | None:
    """Return the number in the name of a master snapshot; None when there is none."""
    _, _, rest = name.removesuffix("-snapshot").rpartition("-")
    return int(rest) if name.endswith("-snapshot") and rest.isdigit() else None


def _newest(present: Iterable[Object], label: str) -> Object | None:
    return max(present, key=lambda each: index_of(each, label), default=None)


def _changes(
    wanted: Mapping[str, Object], present: Iterable[Object]
) -> tuple[tuple[Object, Object], ...]:
    """Return what has to change: the latest as it is to be, and no other called the latest."""
    pairs = [
        (each, wanted.get(name_of(each)) or _demoted(each))
        for each in present
        if name_of(each) in wanted or is_latest(each)
    ]
    return tuple((before, after) for before, after in pairs if before != after)


def _demoted(snapshot: Object) -> Object:
    return with_metadata(snapshot, labels={**labels_of(snapshot), IS_LATEST: "false"})


def _is_master(snapshot: Object) -> bool:
    return RESOURCE_HASH in annotations_of(snapshot)


def _policy_hash(policy: Object | None) -> str:
    """Return the hash of a policy but for its number, as the API has it: bytes, so base64."""
    asked = {key: held for key, held in (policy or {}).items() if key != _NUMBER}
    return base64.b64encode(digest_of(asked).encode()).decode()


def _policy_notes(placement: Object, policy: Object | None) -> Mapping[str, str]:
    notes = {GENERATION: str(generation_of(placement))}
    if placement_type_of(policy) == PICK_N:
        notes[NUMBER_OF_CLUSTERS] = str((policy or {}).get(_NUMBER) or 0)
    return notes


def _new_policy_snapshot(placement: Object, policy: Object | None, index: int) -> Object:
    asked = {key: held for key, held in (policy or {}).items() if key != _NUMBER}
    spec: Object = {"policyHash": _policy_hash(policy)}
    if policy is not None:
        spec["policy"] = asked
    labels = {POLICY_INDEX: str(index), IS_LATEST: "true"}
    name = f"{name_of(placement)}-{index}"
    return _snapshot(
        POLICY_SNAPSHOT, placement, name, labels, _policy_notes(placement, policy), spec
    )


def _master(placement: Object, index: int, parts: Sequence[list[Object]], digest: str) -> Object:
    notes = {
        RESOURCE_HASH: digest,
        NUMBER_OF_SNAPSHOTS: str(len(parts)),
        NUMBER_OF_ENVELOPES: "0",
    }
    labels = {RESOURCE_INDEX: str(index), IS_LATEST: "true"}
    name = snapshot_name(name_of(placement), index)
    spec = {"selectedResources": parts[0]}
    return _snapshot(RESOURCE_SNAPSHOT, placement, name, labels, notes, spec)


def _overflow(placement: Object, index: int, number: int, part: list[Object]) -> Object:
    name = f"{name_of(placement)}-{index}-{number}"
    spec = {"selectedResources": part}
    labels, notes = {RESOURCE_INDEX: str(index)}, {SUBINDEX: str(number)}
    return _snapshot(RESOURCE_SNAPSHOT, placement, name, labels, notes, spec)


def _snapshot(  # noqa: PLR0913 - the parts every snapshot has
    kind: str,
    placement: Object,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
) -> Object:
    metadata = {
        "name": name,
        "labels": {PARENT: name_of(placement), **labels},
        "annotations": dict(annotations),
        "ownerReferences": [owner_reference(placement)],
    }
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _split(manifests: Iterable[Object]) -> Iterator[list[Object]]:
    """Yield parts that each fit into a snapshot; one that is empty when there is nothing."""
    part: list[Object] = []
    size = 0
    for manifest in manifests:
        length = len(msgspec.json.encode(manifest))
        if part and size + length > MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(manifest)
        size += length
    yield part
