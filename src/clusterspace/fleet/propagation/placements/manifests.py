"""What is placed of an object, and which objects never are."""

from typing import Final

from clusterspace.apis.confinement import is_reserved_namespace
from clusterspace.apis.fleet_placements import Identity, identity_of
from clusterspace.apis.interpreter.manifests import pruned
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.propagation.claims import without_claim
from clusterspace.fleet.propagation.templates import is_template
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    with_metadata,
    with_value,
    without_value,
)

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SLICE_MANAGER: Final = "endpointslice.kubernetes.io/managed-by"
_NEVER: Final = frozenset({("", "Pod"), ("", "Node"), ("metrics.k8s.io", "PodMetrics")})
_DERIVED: Final = frozenset({"ReplicaSet", "ControllerRevision"})
_RESERVED_PREFIX: Final = "fleet-"
_DEFAULT: Final = "default"


def is_kept_home(namespace: str) -> bool:
    """Whether a namespace is never placed, with all that is in it."""
    own = namespace == _DEFAULT or namespace.startswith(_RESERVED_PREFIX)
    return own or is_reserved_namespace(namespace)


def may_be_placed(template: Object) -> bool:
    """Whether an object may be placed at all; what a cluster makes by itself may not."""
    identity = identity_of(template)
    if (identity.group, identity.kind) in _NEVER or is_being_deleted(template):
        return False
    return is_template(template) and not _is_made_by_others(template, identity)


def manifest_of(template: Object) -> Object:
    """Return what is placed of an object: what its author wrote, and nothing of the hub's."""
    bare = pruned(without_claim(template))
    noted = {key: held for key, held in annotations_of(bare).items() if key != _LAST_APPLIED}
    plain = with_metadata(bare, annotations=noted or None)
    return _without_node_ports(plain) if plain.get("kind") == "Service" else plain


def _is_made_by_others(template: Object, identity: Identity) -> bool:
    match identity.kind:
        case kind if kind in _DERIVED:
            return bool(metadata_of(template).get("ownerReferences"))
        case "EndpointSlice":
            return _SLICE_MANAGER in labels_of(template)
        case _:
            return False


def _without_node_ports(service: Object) -> Object:
    """Return a Service without the ports that the hub gave it: each cluster gives its own."""
    ports: list[Object] = find_at(service, "spec", "ports") or []
    bare = without_value(service, "spec", "healthCheckNodePort")
    if not any("nodePort" in each for each in ports):
        return bare
    plain = [{key: held for key, held in each.items() if key != "nodePort"} for each in ports]
    return with_value(bare, plain, "spec", "ports")
