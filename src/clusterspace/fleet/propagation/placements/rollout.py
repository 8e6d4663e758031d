"""A placement's bindings, one for each cluster: picked, rolled out, let go.

(none) ──picked──> Scheduled ──rolled out──> Bound ──no longer picked──> Unscheduled ──> (gone)
                                               ^────── picked again ─────────┘
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Final

from clusterspace.apis import kinds, stamps
from clusterspace.apis.fleet_placements import (
    ALWAYS,
    API_VERSION,
    APPLY_TYPE,
    BOUND,
    MANIFEST_HASHES,
    PREVIOUS_STATE,
    SCHEDULED,
    STEERING,
    UNSCHEDULED,
    ResourceIdentifier,
    apply_strategy_of,
    carried_bindings_of,
    hashes_text,
    is_of,
    key_of_placement,
    owner_reference,
    parent_labels,
    parent_of,
    placement_text,
    reports_only,
    scope_of,
    steering_of,
    take_over_of,
)
from clusterspace.apis.policies import ABORT, OVERWRITE
from clusterspace.apis.works import (
    BINDING_API_VERSION,
    CLUSTER_RESOURCE_BINDING,
    RESOURCE_BINDING,
    controller_uid_of,
    requirers_of,
    resource_for,
    template_of,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.fleet.propagation.bindings import claim_of
from clusterspace.fleet.propagation.placements.overrides import NO_OVERRIDES, ClusterOverrides
from clusterspace.fleet.propagation.placements.picking import PickedCluster, Picking, Score
from clusterspace.fleet.propagation.templates import Contents
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)

_PLACEMENT_PART: Final = 26
_CLUSTER_PART: Final = 27
_SUFFIX: Final = 8


@dataclass(frozen=True, slots=True)
class BindingChange:
    """A binding as it is to be; `before` is None for one that is not there yet."""

    cluster: str
    after: Object
    before: Object | None = None


def binding_name(placement: Object, cluster: str) -> str:
    """Return the name of a placement's binding to a cluster.

    The end of it looks random and is not: whoever makes the binding twice finds the first.
    """
    if carried := carried_bindings_of(placement).get(cluster):
        return carried
    seed = f"{uid_of(placement)}/{cluster}".encode()
    suffix = sha256(seed).hexdigest()[:_SUFFIX]
    name = f"{name_of(placement)[:_PLACEMENT_PART]}-{cluster[:_CLUSTER_PART]}-{suffix}"
    return name.replace(".", "-")


def cluster_of(binding: Object) -> str:
    """Return which cluster a binding is to."""
    return str(find_at(binding, "spec", "targetCluster") or "")


def state_of(binding: Object) -> str:
    """Return how far a binding is."""
    return str(find_at(binding, "spec", "state") or "")


def snapshot_of(binding: Object) -> str:
    """Return which resource snapshot a cluster is to have; empty before it is rolled out."""
    return str(find_at(binding, "spec", "resourceSnapshotName") or "")


def was_bound(binding: Object) -> bool:
    """Whether a binding has brought anything to its cluster."""
    state = state_of(binding)
    previous = annotations_of(binding).get(PREVIOUS_STATE)
    return state == BOUND or (state == UNSCHEDULED and previous == BOUND)


def picked_by(binding: Object, policy_snapshot: str) -> PickedCluster:
    """Return the picked cluster that a binding stands for, as picking sees it."""
    score: Object = find_at(binding, "spec", "clusterDecision", "clusterScore") or {}
    return PickedCluster(
        cluster=cluster_of(binding),
        state=state_of(binding),
        is_current=find_at(binding, "spec", "schedulingPolicySnapshotName") == policy_snapshot,
        score=Score(int(score.get("priorityScore") or 0), int(score.get("affinityScore") or 0)),
    )


def current_picks(
    placement: Object, policy_snapshot: str, bindings: Mapping[str, Object]
) -> list[PickedCluster]:
    """Return what is picked at present, by the bindings, which are by cluster.

    Clusters that the placement comes from another hub with are picked already, also before they
    have a binding here: nothing moves because the hub is another one.
    """
    current = [picked_by(each, policy_snapshot) for each in bindings.values()]
    carried = carried_bindings_of(placement).keys() - bindings.keys()
    return [*current, *(PickedCluster(each, BOUND, is_current=True) for each in sorted(carried))]


def plan_bindings(
    placement: Object,
    picking: Picking,
    policy_snapshot: str,
    existing: Mapping[str, Object],
) -> tuple[BindingChange, ...]:
    """Return the bindings to write so that they say what was picked; `existing` is by cluster."""
    changes: list[BindingChange] = []
    strategy: Object = find_at(placement, "spec", "strategy", "applyStrategy") or {}
    namespace = namespace_of(placement)
    for cluster, decision in sorted(picking.picked.items()):
        before = existing.get(cluster)
        picked = {
            "schedulingPolicySnapshotName": policy_snapshot,
            "clusterDecision": decision.to_object(),
        }
        if before is None:
            after = {
                "apiVersion": API_VERSION,
                "kind": scope_of(placement).binding,
                "metadata": {
                    "name": binding_name(placement, cluster),
                    **({"namespace": namespace} if namespace else {}),
                    "labels": parent_labels(key_of_placement(placement)),
                    "ownerReferences": [owner_reference(placement)],
                },
                "spec": {
                    "state": SCHEDULED,
                    "resourceSnapshotName": "",
                    "targetCluster": cluster,
                    **picked,
                    "applyStrategy": strategy,
                },
            }
        else:
            after = picked_again(before, picked, strategy)
        changes.append(BindingChange(cluster, after, before))
    for cluster, before in sorted(existing.items()):
        if cluster in picking.picked or state_of(before) == UNSCHEDULED:
            continue
        # No longer picked; it stays until the rollout gets to it.
        annotations = {**annotations_of(before), PREVIOUS_STATE: state_of(before)}
        left = with_value(before, UNSCHEDULED, "spec", "state")
        changes.append(BindingChange(cluster, with_metadata(left, annotations=annotations), before))
    return tuple(each for each in changes if each.after != each.before)


def rolled_out(
    binding: Object, snapshot_name: str, overrides: ClusterOverrides = NO_OVERRIDES
) -> Object:
    """Return a binding by which its cluster is to have this resource snapshot, overridden so."""
    named = ("clusterResourceOverrideSnapshots", "resourceOverrideSnapshots")
    before: Object = binding.get("spec") or {}
    spec = {key: each for key, each in before.items() if key not in named}
    lists = (list(overrides.cluster_wide), overrides.resource_references)
    given = {key: each for key, each in zip(named, lists, strict=True) if each}
    rolled = {"state": BOUND, "resourceSnapshotName": snapshot_name, **given}
    return {**binding, "spec": {**spec, **rolled}}


def picked_again(binding: Object, picked: Mapping[str, Any], strategy: Object) -> Object:
    """Return a binding that is picked: by the newest policy, in the state it was in."""
    spec: Object = binding.get("spec") or {}
    is_current = spec.get("schedulingPolicySnapshotName") == picked["schedulingPolicySnapshotName"]
    if state_of(binding) == UNSCHEDULED:
        was = annotations_of(binding).get(PREVIOUS_STATE) or SCHEDULED
        notes = {k: v for k, v in annotations_of(binding).items() if k != PREVIOUS_STATE}
        binding = with_metadata(binding, annotations=notes or None)
        spec = {**spec, "state": was}
    elif is_current:
        picked = {}
    return {**binding, "spec": {**spec, **picked, "applyStrategy": strategy}}


# -- which clusters get the newest state now ---------------------------------------------------

# Within what the strategy allows at once:
#
#     ready clusters that may be touched = ready - (desired - maxUnavailable)
#     clusters that may be added = (desired + maxSurge) - those that are or may become ready
#
# One that has failed already is no loss, and waits for nobody.


_DEFAULT_SHARE: Final = "25%"
_DEFAULT_PERIOD: Final = 60


@dataclass(frozen=True, slots=True)
class ClusterProgress:
    """How far one cluster is."""

    cluster: str
    state: str
    is_latest: bool = False
    """Whether it is to have the newest state already."""
    is_ready: bool = False
    has_failed: bool = False
    is_gone: bool = False
    """Whether its cluster left, or is leaving: nothing there has to be spared."""
    was_bound: bool = True


@dataclass(frozen=True, slots=True)
class Pace:
    """How much may be changed at once."""

    desired: int
    """How many clusters the placement is to have."""
    max_unavailable: int
    max_surge: int


@dataclass(frozen=True, slots=True)
class Steps:
    """The clusters to advance or remove now; those that are blocked wait for others."""

    forward: tuple[str, ...] = ()
    """Get the newest state: for the first time, or in the place of an older one."""
    removed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


def read_pace(placement: Object, desired: int) -> Pace:
    """Read the strategy of a placement; parts of the clusters are rounded up."""
    rolling: Object = find_at(placement, "spec", "strategy", "rollingUpdate") or {}
    return Pace(
        desired,
        max_unavailable=_share(rolling.get("maxUnavailable"), desired),
        max_surge=_share(rolling.get("maxSurge"), desired),
    )


def read_period(placement: Object) -> float:
    """Return how long after its change an object counts as ready that cannot say so itself."""
    period = find_at(
        placement, "spec", "strategy", "rollingUpdate", "unavailablePeriodSeconds"
    )  # fmt: skip
    return float(_DEFAULT_PERIOD if period is None else period)


def plan_rollout(clusters: Sequence[ClusterProgress], pace: Pace) -> Steps:
    """Decide which clusters are changed now, and which have to wait."""
    removed: list[str] = []
    rest: list[ClusterProgress] = []
    for each in clusters:
        is_idle = not each.was_bound or each.has_failed or each.is_gone
        if each.state == UNSCHEDULED and is_idle:
            removed.append(each.cluster)
        else:
            rest.append(each)

    # Clusters that work are touched only as far as enough others work. Four clusters, all ready
    # and all behind, with 25% each way: 4 - (4 - 1) may be touched, so one goes forward and three
    # are blocked. While that one is not ready yet, 3 - (4 - 1) may be touched: none. One that has
    # failed is not ready either, and goes forward besides: a fix must not wait for what it mends.
    ready = sum(each.is_ready for each in rest)
    may_touch = ready - (pace.desired - pace.max_unavailable)
    leaving = [each for each in rest if each.state == UNSCHEDULED]
    behind = [each for each in rest if each.state == BOUND and not each.is_latest]
    forward = [each.cluster for each in behind if each.has_failed]
    blocked: list[str] = []
    for each in (*leaving, *(each for each in behind if not each.has_failed)):
        if may_touch <= 0:
            blocked.append(each.cluster)
            continue
        may_touch -= 1
        (removed if each.state == UNSCHEDULED else forward).append(each.cluster)

    waiting = [each.cluster for each in rest if each.state == SCHEDULED]
    hopeful = sum(each.was_bound and not each.has_failed for each in rest)
    may_add = max(0, pace.desired + pace.max_surge - hopeful)
    added, late = waiting[:may_add], waiting[may_add:]
    return Steps((*forward, *added), tuple(removed), (*blocked, *late))


def _share(value: object, desired: int) -> int:
    text = str(_DEFAULT_SHARE if value is None else value)
    if text.endswith("%"):
        return ceil(desired * int(text.removesuffix("%")) / 100)
    return int(text)


# -- the hand-over to the engine: one binding of work.karmada.io for every object placed -----------
#
#     cluster: snapshot ──> object: cluster, state ──> binding ──> (the engine's Works)
#
# There is one binding for each object on the hub, by its name, whoever makes it. So it is also the
# lock that keeps an object to one owner: a placement whose object has another's binding leaves it
# alone, and says whose it is.


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """Where one object is to be, and in which state there."""

    identity: ResourceIdentifier
    states: Mapping[str, str]
    """Hashes by cluster."""
    uid: str = ""
    """Of the object on the hub; empty when it is gone."""
    keeps: bool = False
    """Whether clusters keep the object when it is no longer to be there."""

    @property
    def path(self) -> ResourcePath:
        """Where the binding of the object is."""
        identity = self.identity
        name = stamps.binding_name(identity.kind, identity.name)
        return ResourcePath(resource_for(identity.namespace), identity.namespace, name)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An object that this placement may not have, and why."""

    identity: ResourceIdentifier
    message: str


def merge_states(by_cluster: Mapping[str, Contents]) -> dict[ResourceIdentifier, dict[str, str]]:
    """Turn what each cluster is to have into where each object is to be."""
    found: dict[ResourceIdentifier, dict[str, str]] = {}
    for cluster, contents in sorted(by_cluster.items()):
        for identity, state in contents.items():
            found.setdefault(identity, {})[cluster] = state
    return dict(sorted(found.items()))


def obstacle_to(
    placed: PlacedObject, placement: Object, existing: Object | None, template: Object | None
) -> Obstacle | None:
    """Tell whether somebody else has the object: another placement, or a policy.

    Whoever made its binding has it, which is said by the owner and never changes. The label, by
    which bindings are found, may have been written over by another placement; then it comes back.
    """
    if existing is not None and controller_uid_of(existing) == uid_of(placement):
        about, desired = template_of(existing), placed.identity
        if about.subject[:2] != (desired.group, desired.kind):
            return Obstacle(desired, f"{about.api_version} {about.kind} has the same name")
        if about.subject[2:] != (desired.namespace, desired.name):
            return Obstacle(desired, f"the binding of its name is of {about.kind} {about.key}")
        return None
    if existing is not None:
        return Obstacle(placed.identity, owner_text(existing, placement))
    claim = None if template is None else claim_of(template)
    if claim is None:
        return None
    kind = "PropagationPolicy" if claim.namespace else "ClusterPropagationPolicy"
    return Obstacle(placed.identity, f"it is claimed by {kind} {claim.key}")


def desired_binding(
    placed: PlacedObject, placement: Object, existing: Object | None, new_id: str
) -> Object:
    """Return the binding an object is to have."""
    identity = placed.identity
    base: Object | None = existing
    if base is None:
        is_namespaced = bool(identity.namespace)
        id_label = stamps.BINDING_ID if is_namespaced else stamps.CLUSTER_BINDING_ID
        finalizer = stamps.BINDING_FINALIZER if is_namespaced else stamps.CLUSTER_BINDING_FINALIZER
        metadata = {
            "name": placed.path.name,
            "namespace": identity.namespace,
            "labels": {id_label: new_id},
            "finalizers": [finalizer],
            "ownerReferences": [owner_reference(placement)],
        }
        base = {
            "apiVersion": BINDING_API_VERSION,
            "kind": RESOURCE_BINDING if is_namespaced else CLUSTER_RESOURCE_BINDING,
            "metadata": {key: value for key, value in metadata.items() if value},
        }

    strategy = take_over_of(apply_strategy_of(placement))
    annotations = {key: each for key, each in annotations_of(base).items() if key not in STEERING}
    annotations[MANIFEST_HASHES] = hashes_text(dict(placed.states))
    annotations |= steering_of(placement)
    parent = key_of_placement(placement)
    marks = {**parent_labels(parent), stamps.BINDING_MANAGED_BY: scope_of(placement).kind.lower()}
    marked = with_metadata(base, labels={**labels_of(base), **marks}, annotations=annotations)

    current: Object = base.get("spec") or {}
    if APPLY_TYPE in annotations_of(base):
        current = {key: value for key, value in current.items() if key != "suspension"}
    if reports_only(placement):
        # Works that are not dispatched: an agent that knows nothing of comparing changes nothing.
        current = {**current, "suspension": {"dispatching": True}}
    reference = {
        "apiVersion": identity.group_version_kind.api_version,
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        # Of an object that is gone, as it was known last.
        "uid": placed.uid or find_at(current, "resource", "uid"),
    }
    spec: Object = {
        "resource": {key: value for key, value in reference.items() if value},
        "clusters": [{"name": cluster} for cluster in sorted(placed.states)],
        "conflictResolution": OVERWRITE if strategy == ALWAYS else ABORT,
        "preserveResourcesOnDeletion": placed.keeps,
    }
    if identity.group_version_kind.group_kind == kinds.SERVICE_IMPORT:
        # Endpoints of other clusters are no state that is rolled out: they come by themselves.
        spec["propagateDeps"] = True
    return {**marked, "spec": {**current, **spec}}


def stale_bindings(
    placed_objects: Sequence[PlacedObject], placement: Object, existing: Sequence[Object]
) -> list[Object]:
    """Return the bindings of this placement whose objects it no longer places anywhere."""
    kept = {(placed.path.resource, placed.path.key) for placed in placed_objects}
    stale: list[Object] = []
    for each in existing:
        path = resource_path_of(resource_for(namespace_of(each)), each)
        is_ours = is_of(each, placement) and not is_being_deleted(each)
        if is_ours and (path.resource, path.key) not in kept:
            stale.append(each)
    return stale


def owner_text(binding: Object, placement: Object) -> str:
    """Return who has the object of a binding, when that is not this placement."""
    parent = parent_of(binding)
    if parent and parent != key_of_placement(placement):
        return f"{placement_text(parent)} places it"
    if parent:
        return f"an earlier {placement_text(parent)} is still withdrawing it"
    claim = claim_of(binding)
    if claim is not None:
        kind = "PropagationPolicy" if claim.namespace else "ClusterPropagationPolicy"
        return f"{kind} {claim.key} places it"
    needed = next((each.name for each in requirers_of(binding)), "")
    if needed:
        return f"{needed}, which a policy places, needs it and brings it along"
    return f"binding {name_of(binding)} ({uid_of(binding)}) places it, and follows no policy"
