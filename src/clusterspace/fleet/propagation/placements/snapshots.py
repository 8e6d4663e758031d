"""What a placement asked for and what it selected, written down: numbered, and never changed.

The newest one counts, whatever labels say: a crash between writing it and relabelling the one
before it changes nothing. Of a selection that takes several snapshots the master is written last,
so a master stands for all of them.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
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


def plan_policy_snapshot(placement: Object, existing: Sequence[Object]) -> SnapshotPlan:
    """Return the snapshot of a placement's policy; only the number of clusters may change in it."""
    policy: Object | None = find_at(placement, "spec", "policy")
    asked = {key: value for key, value in (policy or {}).items() if key != _NUMBER}
    # The hash of a policy but for its number, as the API has it: bytes, so base64.
    policy_hash = base64.b64encode(digest_of(asked).encode()).decode()
    annotations = {GENERATION: str(generation_of(placement))}
    if placement_type_of(policy) == PICK_N:
        annotations[NUMBER_OF_CLUSTERS] = str((policy or {}).get(_NUMBER) or 0)

    newest = max(existing, key=lambda each: index_of(each, POLICY_INDEX), default=None)
    if newest is not None and find_at(newest, "spec", "policyHash") == policy_hash:
        latest = with_metadata(
            newest,
            labels={**labels_of(newest), IS_LATEST: "true"},
            annotations={**annotations_of(newest), **annotations},
        )
        changed = _relabelled({name_of(newest): latest}, existing)
        return SnapshotPlan(latest, index_of(latest, POLICY_INDEX), changed=changed)
    index = 0 if newest is None else index_of(newest, POLICY_INDEX) + 1
    latest = _snapshot(
        POLICY_SNAPSHOT,
        placement,
        f"{name_of(placement)}-{index}",
        labels={POLICY_INDEX: str(index), IS_LATEST: "true"},
        annotations=annotations,
        spec={"policyHash": policy_hash, **({} if policy is None else {"policy": asked})},
    )
    return SnapshotPlan(latest, index, (latest,), _relabelled({}, existing))


def plan_resource_snapshot(
    placement: Object, manifests: Sequence[Object], existing: Sequence[Object]
) -> SnapshotPlan:
    """Return the snapshot of what a placement selects; new ones when it is something else."""
    masters = [each for each in existing if RESOURCE_HASH in annotations_of(each)]
    newest = max(masters, key=lambda each: index_of(each, RESOURCE_INDEX), default=None)
    digest = digest_of(list(manifests))
    if newest is not None and annotations_of(newest).get(RESOURCE_HASH) == digest:
        latest = with_metadata(newest, labels={**labels_of(newest), IS_LATEST: "true"})
        changed = _relabelled({name_of(newest): latest}, existing)
        return SnapshotPlan(latest, index_of(latest, RESOURCE_INDEX), changed=changed)

    # Beyond those of a process that was killed between two of them: such leftovers are no use.
    index = max((index_of(each, RESOURCE_INDEX) for each in existing), default=-1) + 1
    pages: list[list[Object]] = [[]]
    size = 0
    for manifest in manifests:
        length = len(msgspec.json.encode(manifest))
        if pages[-1] and size + length > MOST_BYTES:
            pages.append([])
            size = 0
        pages[-1].append(manifest)
        size += length
    overflow = [
        _snapshot(
            RESOURCE_SNAPSHOT,
            placement,
            f"{name_of(placement)}-{index}-{number}",
            labels={RESOURCE_INDEX: str(index)},
            annotations={SUBINDEX: str(number)},
            spec={"selectedResources": page},
        )
        for number, page in enumerate(pages[1:])
    ]
    master = _snapshot(
        RESOURCE_SNAPSHOT,
        placement,
        snapshot_name(name_of(placement), index),
        labels={RESOURCE_INDEX: str(index), IS_LATEST: "true"},
        annotations={
            RESOURCE_HASH: digest,
            NUMBER_OF_SNAPSHOTS: str(len(pages)),
            NUMBER_OF_ENVELOPES: "0",
        },
        spec={"selectedResources": pages[0]},
    )
    return SnapshotPlan(master, index, (*overflow, master), _relabelled({}, existing))


def outdated(
    existing: Iterable[Object], label: str, limit: int, kept: frozenset[int]
) -> list[Object]:
    """Return the snapshots beyond the history a placement keeps, but for those still in use."""
    snapshots = list(existing)
    indexes = sorted({index_of(each, label) for each in snapshots}, reverse=True)
    gone = frozenset(indexes[limit:]) - kept
    return [each for each in snapshots if index_of(each, label) in gone]


def history_limit(placement: Object) -> int:
    """Return how many snapshots of each kind a placement keeps."""
    return int(find_at(placement, "spec", "revisionHistoryLimit") or DEFAULT_HISTORY)


def snapshot_name(placement_name: str, index: int) -> str:
    """Return the name of the master of a resource snapshot."""
    return f"{placement_name}-{index}-snapshot"


def index_in(name: str) -> int | None:
    """Return the number in the name of a master snapshot; None when there is none."""
    _, _, rest = name.removesuffix("-snapshot").rpartition("-")
    return int(rest) if name.endswith("-snapshot") and rest.isdigit() else None


def _relabelled(
    latest: Mapping[str, Object], existing: Iterable[Object]
) -> tuple[tuple[Object, Object], ...]:
    """Return the snapshots to change, before and after, so that only the latest is so labelled."""
    changed: list[tuple[Object, Object]] = []
    for each in existing:
        after = latest.get(name_of(each))
        if after is None and is_latest(each):
            after = with_metadata(each, labels={**labels_of(each), IS_LATEST: "false"})
        if after is not None and after != each:
            changed.append((each, after))
    return tuple(changed)


def _snapshot(
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
