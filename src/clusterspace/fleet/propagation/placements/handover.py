"""The hand-over to the engine: one binding of work.karmada.io for every object placed.

    cluster: snapshot ──> object: cluster, state ──> binding ──> (the engine's Works)

There is one binding for each object on the hub, by its name, whoever makes it. So it is also the
lock that keeps an object to one owner: a placement whose object has another's binding leaves it
alone, and says whose it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import (
    ALWAYS,
    IF_NO_DIFF,
    MANIFEST_HASHES,
    PARENT,
    TAKE_OVER,
    ResourceIdentifier,
    apply_strategy_of,
    hashes_text,
    is_of,
    owner_reference,
    parent_of,
    take_over_of,
)
from clusterspace.apis.policies import ABORT, OVERWRITE
from clusterspace.apis.works import (
    BINDING_API_VERSION,
    CLUSTER_RESOURCE_BINDING,
    RESOURCE_BINDING,
    requirers_of,
    resource_for,
    template_of,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.fleet.propagation.bindings import claim_of
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
)

_MANAGED_BY: Final = "clusterresourceplacement"


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
    """Tell whether somebody else has the object: another placement, or a policy."""
    if existing is not None and is_of(existing, placement):
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
    annotations = {key: each for key, each in annotations_of(base).items() if key != TAKE_OVER}
    annotations[MANIFEST_HASHES] = hashes_text(dict(placed.states))
    if strategy == IF_NO_DIFF:
        annotations[TAKE_OVER] = IF_NO_DIFF
    marks = {PARENT: name_of(placement), stamps.BINDING_MANAGED_BY: _MANAGED_BY}
    marked = with_metadata(base, labels={**labels_of(base), **marks}, annotations=annotations)

    current: Object = base.get("spec") or {}
    reference = {
        "apiVersion": identity.group_version_kind.api_version,
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        # Of an object that is gone, as it was known last.
        "uid": placed.uid or find_at(current, "resource", "uid"),
    }
    spec = {
        "resource": {key: value for key, value in reference.items() if value},
        "clusters": [{"name": cluster} for cluster in sorted(placed.states)],
        "conflictResolution": OVERWRITE if strategy == ALWAYS else ABORT,
        "preserveResourcesOnDeletion": placed.keeps,
    }
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
    if parent and parent != name_of(placement):
        return f"ClusterResourcePlacement {parent} places it"
    if parent:
        return f"an earlier ClusterResourcePlacement {parent} is still withdrawing it"
    claim = claim_of(binding)
    if claim is not None:
        kind = "PropagationPolicy" if claim.namespace else "ClusterPropagationPolicy"
        return f"{kind} {claim.key} places it"
    needed = next((each.name for each in requirers_of(binding)), "")
    if needed:
        return f"{needed}, which a policy places, needs it and brings it along"
    return f"binding {name_of(binding)} ({uid_of(binding)}) places it, and follows no policy"
