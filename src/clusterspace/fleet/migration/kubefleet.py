"""What the objects of a KubeFleet say: what is placed where, who owns it there, who stands still.

    placement ──> its Works in fleet-member-NAME ──agent──> AppliedWork on the member, of that name
                  manifests of what is placed               owner of what was placed

An owner that goes takes along what it owns: the reference to the AppliedWork comes off an object
before anything else is done, and is put back when it is handed back. An agent that is told to
report differences and to take nothing over (`ReportDiff`, `Never`) writes to no object, deletes
none, and sets no reference again: that is how a placement lets go.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.envelopes import CLUSTER_KIND as WIDE_ENVELOPE
from clusterspace.apis.envelopes import NAMESPACED_KIND as NAMESPACED_ENVELOPE
from clusterspace.apis.fleet_overrides import CLUSTER_OVERRIDES, RESOURCE_OVERRIDES
from clusterspace.apis.fleet_placements import (
    ABANDON,
    ALWAYS,
    CARRIED_BINDINGS,
    GROUP,
    NEVER,
    PARENT,
    PARENT_NAMESPACE,
    REPORT_DIFF,
    SCOPES,
    ResourceIdentifier,
    generation_of,
    hashes_text,
    identity_of,
    parent_labels,
    scope_of,
)
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.apis.member_clusters import FLEET_WORKS, NAMESPACE_PREFIX
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions, Reader
from clusterspace.fleet.execution.takeover import without_stamps
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupVersionResource

APPLIED_WORKS: Final = GroupVersionResource(GROUP, "v1beta1", "appliedworks")
_APPLIED_WORK: Final = "AppliedWork"
_FLEET: Final = "kubernetes-fleet.io/"
_ENVELOPE: Final = f"{_FLEET}envelope-work"
_ENVELOPES: Final = GroupVersionResource(GROUP, "v1beta1", "resourceenvelopes")
_WIDE_ENVELOPES: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourceenvelopes")
_OWNER_GROUPS: Final = (GROUP, "multicluster.x-k8s.io")
_STRATEGY: Final = ("spec", "strategy", "applyStrategy")
_OVERRIDES: Final = (CLUSTER_OVERRIDES, RESOURCE_OVERRIDES)
NOT_CARRIED: Final[Mapping[str, str]] = {
    "clusterstagedupdateruns": "update runs are of the hub they were begun on",
    "stagedupdateruns": "update runs are of the hub they were begun on",
    "clusterstagedupdatestrategies": "create it on this hub, too",
    "stagedupdatestrategies": "create it on this hub, too",
    "clusterresourceplacementdisruptionbudgets": "create it on this hub, too",
    "clusterresourceplacementevictions": "it is over, or begins anew when it is made here",
}
"""Kinds of its group that users write, and that stay there; by what to do about it."""


# -- what is placed --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """What a placement has on its clusters."""

    works: Mapping[str, tuple[Object, ...]]
    """By cluster."""

    def objects(self) -> dict[ResourceIdentifier, tuple[str, ...]]:
        """Return what is placed, with the clusters each object is on."""
        found: dict[ResourceIdentifier, list[str]] = {}
        for cluster, works in sorted(self.works.items()):
            for work in works:
                for manifest in manifests_of(work):
                    clusters = found.setdefault(identity_of(manifest), [])
                    if cluster not in clusters:
                        clusters.append(cluster)
        return {identity: tuple(clusters) for identity, clusters in found.items()}

    def plain(self) -> dict[ResourceIdentifier, tuple[str, ...]]:
        """Return what is placed as the hub has it, and not out of an envelope."""
        unwrapped = {
            cluster: tuple(each for each in works if envelope_path(each) is None)
            for cluster, works in self.works.items()
        }
        return Placed(unwrapped).objects()

    def envelopes(self) -> dict[ResourcePath, tuple[str, ...]]:
        """Return the envelopes that are placed, with the clusters each is on."""
        found: dict[ResourcePath, list[str]] = {}
        for cluster, works in sorted(self.works.items()):
            for path in filter(None, map(envelope_path, works)):
                found.setdefault(path, []).append(cluster)
        return {path: tuple(dict.fromkeys(clusters)) for path, clusters in found.items()}

    def owners(self, cluster: str, identity: ResourceIdentifier) -> tuple[str, ...]:
        """Return the names of the AppliedWorks that own an object on a cluster."""
        return tuple(
            name_of(work)
            for work in self.works.get(cluster, ())
            if identity in map(identity_of, manifests_of(work))
        )


def key_of_works_placement(work: Object) -> str:
    """Return the key of the placement a Work is of; empty when it is of none."""
    labels = labels_of(work)
    name, namespace = labels.get(PARENT, ""), labels.get(PARENT_NAMESPACE, "")
    return f"{namespace}/{name}" if name and namespace else name


def envelope_path(work: Object) -> ResourcePath | None:
    """Return where the envelope is that a Work is of; None when it is of none."""
    labels = labels_of(work)
    if _ENVELOPE not in labels:
        return None
    name, namespace = labels.get(f"{_FLEET}envelope-name", ""), ""
    resource = _WIDE_ENVELOPES
    if labels[_ENVELOPE] == NAMESPACED_ENVELOPE:
        namespace, resource = labels.get(f"{_FLEET}envelope-namespace", ""), _ENVELOPES
    return ResourcePath(resource, namespace, name)


def envelope_kind(path: ResourcePath) -> str:
    """Return the kind of the envelope at a path."""
    return NAMESPACED_ENVELOPE if path.namespace else WIDE_ENVELOPE


def cluster_of_work(work: Object) -> str:
    """Return the cluster a Work is for: it is in that one's namespace."""
    return namespace_of(work).removeprefix(NAMESPACE_PREFIX)


def placed_by(works: Iterable[Object]) -> dict[str, Placed]:
    """Return what placements have on clusters, by their keys."""
    found: dict[str, dict[str, list[Object]]] = {}
    for work in works:
        if (key := key_of_works_placement(work)) and namespace_of(work) != cluster_of_work(work):
            found.setdefault(key, {}).setdefault(cluster_of_work(work), []).append(work)
    return {
        key: Placed({cluster: tuple(each) for cluster, each in by_cluster.items()})
        for key, by_cluster in found.items()
    }


async def read_all_placed(other: Reader) -> dict[str, Placed]:
    """Read what all placements of a hub have on clusters."""
    return placed_by(await other.list_objects(ResourcePath(FLEET_WORKS)))


async def read_placed(other: Reader, key: str) -> Placed:
    """Read what one placement of a hub has on clusters."""
    labels = ",".join(f"{label}={value}" for label, value in parent_labels(key).items())
    works = await other.list_objects(ResourcePath(FLEET_WORKS), ListOptions(label_selector=labels))
    return placed_by(works).get(key, Placed({}))


async def read_placements(other: Reader) -> list[Object]:
    """Read the placements of both kinds."""
    return [
        each
        for scope in SCOPES
        for each in await other.list_objects(ResourcePath(scope.placements))
    ]


async def read_bindings(other: Reader) -> list[Object]:
    """Read the bindings of placements of both kinds."""
    return [
        each for scope in SCOPES for each in await other.list_objects(ResourcePath(scope.bindings))
    ]


async def read_overrides(other: Reader) -> list[Object]:
    """Read the overrides of both kinds, those that apply first before the others."""
    return [each for kind in _OVERRIDES for each in await other.list_objects(ResourcePath(kind))]


async def clusters_in_use(other: Reader) -> list[str]:
    """Return the names of the clusters that placements have anything on."""
    works = await other.list_objects(ResourcePath(FLEET_WORKS))
    return sorted({cluster_of_work(each) for each in works if key_of_works_placement(each)})


def override_path(override: Object) -> ResourcePath:
    """Return where an override of either kind is."""
    kind = RESOURCE_OVERRIDES if namespace_of(override) else CLUSTER_OVERRIDES
    return ResourcePath(kind, namespace_of(override), name_of(override))


def placement_path(placement: Object) -> ResourcePath:
    """Return where a placement of either kind is."""
    kind = scope_of(placement).placements
    return ResourcePath(kind, namespace_of(placement), name_of(placement))


def labels_gone_by(spec: Any) -> Iterator[str]:
    """Yield the labels of clusters that the spec of a placement or an override goes by."""
    if isinstance(spec, list):
        for each in cast("list[Any]", spec):
            yield from labels_gone_by(each)
    elif isinstance(spec, dict):
        part = cast("Object", spec)
        # Selectors of clusters are in terms and preferences; those of objects name their kind.
        if "kind" not in part:
            selector: Object = part.get("labelSelector") or {}
            yield from selector.get("matchLabels") or ()
            required: list[Object] = selector.get("matchExpressions") or []
            yield from (str(each.get("key")) for each in required)
        if key := part.get("topologyKey"):
            yield str(key)
        for each in part.values():
            yield from labels_gone_by(each)


# -- who writes, and who owns ----------------------------------------------------------------------


def is_at_rest(placement: Object) -> bool:
    """Whether a placement writes to no member, and takes nothing over."""
    strategy: Object = find_at(placement, *_STRATEGY) or {}
    return strategy.get("type") == REPORT_DIFF and strategy.get("whenToTakeOver") == NEVER


def resting(placement: Object) -> Object:
    """Return a placement by which agents write to no object; its users' other wishes stay."""
    strategy: Object = find_at(placement, *_STRATEGY) or {}
    kept = {k: v for k, v in strategy.items() if k != "serverSideApplyConfig"}
    return with_value(placement, {**kept, "type": REPORT_DIFF, "whenToTakeOver": NEVER}, *_STRATEGY)


def resumed(placement: Object, original: Object) -> Object:
    """Return a placement that applies as its users had it; what they changed meanwhile stays."""
    strategy = find_at(original, *_STRATEGY)
    if strategy is None:
        return without_value(placement, *_STRATEGY)
    return with_value(placement, strategy, *_STRATEGY)


def stands_still(work: Object) -> bool:
    """Whether the agent of a Work has said that it only looks, since it was asked to."""
    strategy: Object = find_at(work, "spec", "applyStrategy") or {}
    is_asked = strategy.get("type") == REPORT_DIFF and strategy.get("whenToTakeOver") == NEVER
    condition = find_condition(find_at(work, "status", "conditions"), "DiffReported") or {}
    return is_asked and condition.get("observedGeneration") == generation_of(work)


def _is_applied_work(reference: Object) -> bool:
    group = str(reference.get("apiVersion")).partition("/")[0]
    return reference.get("kind") == _APPLIED_WORK and group in _OWNER_GROUPS


def owners_of(live: Object) -> list[Object]:
    """Return the references to the owners of an object."""
    owners: list[Object] = metadata_of(live).get("ownerReferences") or []
    return owners


def is_owned_by(live: Object, works: Iterable[str]) -> bool:
    """Whether one of these AppliedWorks owns an object."""
    names = set(works)
    return any(_is_applied_work(each) and each.get("name") in names for each in owners_of(live))


def other_owners(live: Object, works: Iterable[str]) -> tuple[str, ...]:
    """Return who owns an object besides these AppliedWorks, as people call them."""
    names = set(works)
    return tuple(
        f"{each.get('kind')} {each.get('name')}"
        for each in owners_of(live)
        if not (_is_applied_work(each) and each.get("name") in names)
    )


def without_owners(live: Object, works: Iterable[str]) -> Object:
    """Return an object that does not go when one of these AppliedWorks does."""
    names = set(works)
    kept = [
        each
        for each in owners_of(live)
        if not (_is_applied_work(each) and each.get("name") in names)
    ]
    return live if kept == owners_of(live) else with_metadata(live, ownerReferences=kept or None)


def with_owner(live: Object, applied_work: Object) -> Object:
    """Return an object that an AppliedWork owns again, as agents note it."""
    reference = {
        "apiVersion": applied_work.get("apiVersion"),
        "kind": _APPLIED_WORK,
        "name": name_of(applied_work),
        "uid": metadata_of(applied_work).get("uid"),
        "blockOwnerDeletion": True,
    }
    if any(each.get("uid") == reference["uid"] for each in owners_of(live)):
        return live
    return with_metadata(live, ownerReferences=[*owners_of(live), reference])


# -- as this hub is to have it ---------------------------------------------------------------------


def carried_object(theirs: Object, migration: str) -> Object:
    """Return the template, envelope or override that is made of another hub's."""
    plain = pruned(without_stamps(theirs))
    marks = {**annotations_of(plain), stamps.MIGRATION: migration}
    return with_metadata(plain, annotations=marks)


def carried_placement(theirs: Object, original: Object, migration: str) -> Object:
    """Return the placement that is made of another hub's, as it was before that one let go.

    Its clusters keep their objects whatever becomes of it: that way nothing is lost by a mistake,
    and it can be given back.
    """
    bare = carried_object(resumed(theirs, original), migration)
    bare = {key: value for key, value in bare.items() if key != "status"}
    metadata = {k: v for k, v in metadata_of(bare).items() if k != "finalizers"}
    strategy = ("spec", "strategy", "deleteStrategy")
    return with_value({**bare, "metadata": metadata}, {"propagationPolicy": ABANDON}, *strategy)


def comparing(placement: Object, bindings: Mapping[str, str]) -> Object:
    """Return a placement of ours that picks these clusters and does nothing but compare."""
    strategy: Object = find_at(placement, *_STRATEGY) or {}
    marks = {**annotations_of(placement), CARRIED_BINDINGS: hashes_text(dict(bindings))}
    compared = with_value(placement, {**strategy, "type": REPORT_DIFF}, *_STRATEGY)
    return with_metadata(compared, annotations=marks)


def taking(placement: Object, carried: Object) -> Object:
    """Return a placement of ours that applies, and takes over what is there."""
    strategy: Object = find_at(carried, *_STRATEGY) or {}
    return with_value(placement, {**strategy, "whenToTakeOver": ALWAYS}, *_STRATEGY)


def settled(placement: Object, carried: Object) -> Object:
    """Return a placement of ours as its users wrote it: all it places is ours by now."""
    marks = {k: v for k, v in annotations_of(placement).items() if k != CARRIED_BINDINGS}
    return resumed(with_metadata(placement, annotations=marks), carried)
