"""ClusterResourcePlacement, its snapshots and bindings: names, labels, states and how to read them.

All of it is KubeFleet's, letter for letter; what is ours alone begins with `clusterspace.io/`.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

from clusterspace.apis.bindings import controller_uid_of
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

GROUP: Final = "placement.kubernetes-fleet.io"
API_VERSION: Final = f"{GROUP}/v1beta1"
KIND: Final = "ClusterResourcePlacement"
POLICY_SNAPSHOT: Final = "ClusterSchedulingPolicySnapshot"
RESOURCE_SNAPSHOT: Final = "ClusterResourceSnapshot"
BINDING: Final = "ClusterResourceBinding"

PLACEMENTS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourceplacements")
POLICY_SNAPSHOTS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterschedulingpolicysnapshots")
RESOURCE_SNAPSHOTS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourcesnapshots")
FLEET_BINDINGS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourcebindings")

PARENT: Final = "kubernetes-fleet.io/parent-CRP"
IS_LATEST: Final = "kubernetes-fleet.io/is-latest-snapshot"
POLICY_INDEX: Final = "kubernetes-fleet.io/policy-index"
RESOURCE_INDEX: Final = "kubernetes-fleet.io/resource-index"
GENERATION: Final = "kubernetes-fleet.io/CRP-generation"
NUMBER_OF_CLUSTERS: Final = "kubernetes-fleet.io/number-of-clusters"
RESOURCE_HASH: Final = "kubernetes-fleet.io/resource-hash"
NUMBER_OF_SNAPSHOTS: Final = "kubernetes-fleet.io/number-of-resource-snapshots"
NUMBER_OF_ENVELOPES: Final = "kubernetes-fleet.io/number-of-enveloped-object"
SUBINDEX: Final = "kubernetes-fleet.io/subindex-of-resource-snapshot"
PREVIOUS_STATE: Final = "kubernetes-fleet.io/previous-binding-state"

PLACEMENT_FINALIZER: Final = "kubernetes-fleet.io/crp-cleanup"
SCHEDULER_FINALIZER: Final = "kubernetes-fleet.io/scheduler-cleanup"

MANIFEST_HASHES: Final = "clusterspace.io/manifest-hashes"
"""Annotation of a binding of the engine: which state of its object each cluster is to have."""
MANIFEST_HASH: Final = "clusterspace.io/manifest-hash"
"""Annotation of a Work: which state of the object its manifest was made of."""
TAKE_OVER: Final = "clusterspace.io/when-to-take-over"
"""Annotation of a binding, a Work and its manifest: `IfNoDiff` adopts only what says the same."""

PICK_ALL: Final = "PickAll"
PICK_N: Final = "PickN"
PICK_FIXED: Final = "PickFixed"
EXTERNAL: Final = "External"

ALWAYS: Final = "Always"
IF_NO_DIFF: Final = "IfNoDiff"
NEVER: Final = "Never"
ABANDON: Final = "Abandon"

SCHEDULED: Final = "Scheduled"
BOUND: Final = "Bound"
UNSCHEDULED: Final = "Unscheduled"

NAMESPACE_ONLY: Final = "NamespaceOnly"
NAMESPACE_WITH_RESOURCES: Final = "NamespaceWithResources"
NAMESPACE_WITH_SELECTORS: Final = "NamespaceWithResourceSelectors"

LONGEST_NAME: Final = 63
"""The name is the value of a label on everything that comes of a placement."""

_HASH_LENGTH: Final = 16
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Which object: its kind, at the version it was selected by, and its name."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """The kind of the object."""
        return GroupVersionKind(self.group, self.version, self.kind)

    def to_object(self) -> Object:
        """Return the object as a status names it; what is empty is left out."""
        named = {
            "group": self.group,
            "version": self.version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in named.items() if value}

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


def identity_of(kube_object: Object) -> Identity:
    """Return which object this is."""
    kind = GroupVersionKind.of(str(kube_object.get("apiVersion")), str(kube_object.get("kind")))
    return Identity(
        kind.group, kind.version, kind.kind, namespace_of(kube_object), name_of(kube_object)
    )


def manifest_hash(manifest: Object) -> str:
    """Return a text that changes with everything a manifest says."""
    return sha256(_encode(manifest)).hexdigest()[:_HASH_LENGTH]


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's JSON, in hexadecimal."""
    return sha256(_encode(value)).hexdigest()


def parent_of(kube_object: Object) -> str:
    """Return the placement an object comes of, or an empty text."""
    return labels_of(kube_object).get(PARENT, "")


def is_placed(binding: Object) -> bool:
    """Whether a binding of the engine is a placement's, and not a policy's."""
    return bool(parent_of(binding))


def is_of(kube_object: Object, placement: Object) -> bool:
    """Whether an object comes of this placement, and not of an earlier one of its name."""
    is_named = parent_of(kube_object) == name_of(placement)
    return is_named and controller_uid_of(kube_object) == uid_of(placement)


def owner_reference(placement: Object) -> Object:
    """Return the reference by which things go with their placement."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name_of(placement),
        "uid": uid_of(placement),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def hashes_of(binding: Object) -> dict[str, str]:
    """Return which state of its object each cluster of an engine's binding is to have."""
    text = annotations_of(binding).get(MANIFEST_HASHES)
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


def hashes_text(hashes: dict[str, str]) -> str:
    """Return what `hashes_of` reads."""
    return _encode(hashes).decode()


def manifests_in(snapshot: Object) -> list[Object]:
    """Return the objects a resource snapshot holds."""
    return list(find_at(snapshot, "spec", "selectedResources") or ())


def index_of(snapshot: Object, label: str) -> int:
    """Return the number of a snapshot; one that cannot be read comes before all others."""
    text = labels_of(snapshot).get(label, "")
    return int(text) if text.isdigit() else -1


def is_latest(snapshot: Object) -> bool:
    """Whether a snapshot says that no other came after it."""
    return labels_of(snapshot).get(IS_LATEST) == "true"


def generation_of(kube_object: Object) -> int:
    """Return `metadata.generation`, or 0."""
    return int(metadata_of(kube_object).get("generation") or 0)


def placement_type_of(policy: Object | None) -> str:
    """Return how clusters are picked; without a policy, all of them are."""
    return str((policy or {}).get("placementType") or PICK_ALL)


def apply_strategy_of(placement: Object) -> Object:
    """Return how objects are to be applied."""
    return find_at(placement, "spec", "strategy", "applyStrategy") or {}


def take_over_of(strategy: Object) -> str:
    """Return what becomes of objects that are on a cluster already; taken over, unless told."""
    return str(strategy.get("whenToTakeOver") or ALWAYS)


def is_external(placement: Object) -> bool:
    """Whether somebody else rolls out what is selected."""
    return find_at(placement, "spec", "strategy", "type") == EXTERNAL


def abandons(placement: Object) -> bool:
    """Whether members keep their objects when the placement is deleted."""
    return find_at(placement, "spec", "strategy", "deleteStrategy", "propagationPolicy") == ABANDON
