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
from clusterspace.apis.bindings import (
    API_VERSION,
    CLUSTER_RESOURCE_BINDING,
    RESOURCE_BINDING,
    requirers_of,
    resource_for,
    template_of,
)
from clusterspace.apis.fleet_placements import (
    ALWAYS,
    IF_NO_DIFF,
    MANIFEST_HASHES,
    PARENT,
    TAKE_OVER,
    Identity,
    apply_strategy_of,
    hashes_text,
    is_of,
    owner_reference,
    parent_of,
    take_over_of,
)
from clusterspace.apis.policies import ABORT, OVERWRITE
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.propagation.claims import claim_of
from clusterspace.fleet.propagation.works.revisions import Contents
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
)

_MANAGED_BY: Final = "clusterresourceplacement"


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """Where one object is to be, and in which state there."""

    identity: Identity
    states: Mapping[str, str]
    """Hashes by cluster."""
    uid: str = ""
    """Of the object on the hub; empty when it is gone."""
    keeps: bool = False
    """Whether clusters keep the object when it is no longer to be there."""

    @property
    def place(self) -> ResourcePath:
        """Where the binding of the object is."""
        identity = self.identity
        name = stamps.binding_name(identity.kind, identity.name)
        return ResourcePath(resource_for(identity.namespace), identity.namespace, name)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An object that this placement may not have, and why."""

    identity: Identity
    message: str


def merge_states(by_cluster: Mapping[str, Contents]) -> dict[Identity, dict[str, str]]:
    """Turn what each cluster is to have into where each object is to be."""
    found: dict[Identity, dict[str, str]] = {}
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
        return Obstacle(placed.identity, _owner_text(existing, placement))
    claim = None if template is None else claim_of(template)
    if claim is None:
        return None
    kind = "PropagationPolicy" if claim.namespace else "ClusterPropagationPolicy"
    return Obstacle(placed.identity, f"it is claimed by {kind} {claim.key}")


def desired_binding(
    placed: PlacedObject, placement: Object, existing: Object | None, new_id: str
) -> Object:
    """Return the binding an object is to have."""
    base = _new_binding(placed, placement, new_id) if existing is None else existing
    strategy = take_over_of(apply_strategy_of(placement))
    notes = {k: v for k, v in annotations_of(base).items() if k != TAKE_OVER}
    notes[MANIFEST_HASHES] = hashes_text(dict(placed.states))
    if strategy == IF_NO_DIFF:
        notes[TAKE_OVER] = IF_NO_DIFF
    spec = {
        "resource": _reference(placed, existing),
        "clusters": [{"name": cluster} for cluster in sorted(placed.states)],
        "conflictResolution": OVERWRITE if strategy == ALWAYS else ABORT,
        "preserveResourcesOnDeletion": placed.keeps,
    }
    current: Object = base.get("spec") or {}
    labelled = with_metadata(base, labels={**labels_of(base), **_marks(placement)})
    return {**with_metadata(labelled, annotations=notes), "spec": {**current, **spec}}


def stale_bindings(
    placed_objects: Sequence[PlacedObject], placement: Object, existing: Sequence[Object]
) -> list[Object]:
    """Return the bindings of this placement whose objects it no longer places anywhere."""
    kept = {(placed.place.resource, placed.place.key) for placed in placed_objects}
    ours = [each for each in existing if is_of(each, placement) and not is_being_deleted(each)]
    return [each for each in ours if _place_of(each) not in kept]


def _place_of(binding: Object) -> tuple[object, str]:
    namespace = str(find_at(binding, "metadata", "namespace") or "")
    place = ResourcePath(resource_for(namespace), namespace, name_of(binding))
    return place.resource, place.key


def _new_binding(placed: PlacedObject, placement: Object, binding_id: str) -> Object:
    is_namespaced = bool(placed.identity.namespace)
    metadata = {
        "name": placed.place.name,
        "namespace": placed.identity.namespace,
        "labels": {
            stamps.BINDING_ID if is_namespaced else stamps.CLUSTER_BINDING_ID: binding_id,
        },
        "finalizers": [
            stamps.BINDING_FINALIZER if is_namespaced else stamps.CLUSTER_BINDING_FINALIZER
        ],
        "ownerReferences": [owner_reference(placement)],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": RESOURCE_BINDING if is_namespaced else CLUSTER_RESOURCE_BINDING,
        "metadata": {key: value for key, value in metadata.items() if value},
    }


def _marks(placement: Object) -> Mapping[str, str]:
    return {PARENT: name_of(placement), stamps.BINDING_MANAGED_BY: _MANAGED_BY}


def _reference(placed: PlacedObject, existing: Object | None) -> Object:
    """Return which object a binding is about; of one that is gone, as it was known last."""
    current: Object = find_at(existing or {}, "spec", "resource") or {}
    identity = placed.identity
    named = {
        "apiVersion": identity.group_version_kind.api_version,
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        "uid": placed.uid or current.get("uid"),
    }
    return {key: value for key, value in named.items() if value}


def _owner_text(binding: Object, placement: Object) -> str:
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
