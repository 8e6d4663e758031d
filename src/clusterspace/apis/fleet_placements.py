"""Placements, their snapshots and bindings: names, labels, states and how to read them.

    ClusterResourcePlacement   objects without a namespace, and whole namespaces
    ResourcePlacement          objects of its own namespace; what comes of it is there, too

All of it is KubeFleet's, letter for letter; what is ours alone begins with `clusterspace.io/`.

Below, what the hub adds to placements, and what it refuses. What a placement asks for and this
fleet cannot do is refused, not passed over: a placement that says it only reports differences must
not apply them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

from clusterspace.apis.cluster_properties import property_causes
from clusterspace.apis.works import controller_uid_of
from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
)
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
from clusterspace.kube.selectors import label_selector_of

GROUP: Final = "placement.kubernetes-fleet.io"
API_VERSION: Final = f"{GROUP}/v1beta1"
KIND: Final = "ClusterResourcePlacement"
NAMESPACED_KIND: Final = "ResourcePlacement"

PLACEMENTS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourceplacements")
POLICY_SNAPSHOTS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterschedulingpolicysnapshots")
RESOURCE_SNAPSHOTS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourcesnapshots")
PLACEMENT_STATUSES: Final = GroupVersionResource(
    GROUP, "v1beta1", "clusterresourceplacementstatuses"
)
STATUS_KIND: Final = "ClusterResourcePlacementStatus"
FLEET_BINDINGS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourcebindings")


@dataclass(frozen=True, slots=True)
class PlacementScope:
    """One kind of placement, and the kinds of what comes of it."""

    kind: str
    policy_snapshot: str
    resource_snapshot: str
    binding: str
    placements: GroupVersionResource
    policy_snapshots: GroupVersionResource
    resource_snapshots: GroupVersionResource
    bindings: GroupVersionResource


CLUSTER_WIDE: Final = PlacementScope(
    KIND,
    "ClusterSchedulingPolicySnapshot",
    "ClusterResourceSnapshot",
    "ClusterResourceBinding",
    PLACEMENTS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
    FLEET_BINDINGS,
)
NAMESPACED: Final = PlacementScope(
    NAMESPACED_KIND,
    "SchedulingPolicySnapshot",
    "ResourceSnapshot",
    "ResourceBinding",
    GroupVersionResource(GROUP, "v1beta1", "resourceplacements"),
    GroupVersionResource(GROUP, "v1beta1", "schedulingpolicysnapshots"),
    GroupVersionResource(GROUP, "v1beta1", "resourcesnapshots"),
    GroupVersionResource(GROUP, "v1beta1", "resourcebindings"),
)
SCOPES: Final = (CLUSTER_WIDE, NAMESPACED)

PARENT: Final = "kubernetes-fleet.io/parent-CRP"
PARENT_NAMESPACE: Final = "kubernetes-fleet.io/parent-placement-namespace"
IS_LATEST: Final = "kubernetes-fleet.io/is-latest-snapshot"
POLICY_INDEX: Final = "kubernetes-fleet.io/policy-index"
CONTENTS: Final = "contents"
"""`update` on `clusterresourcesnapshots/contents`: the right to write snapshots; no URL."""

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

APPLY_TYPE: Final = "clusterspace.io/apply-type"
"""Annotation of a binding, a Work and its manifest: `ReportDiff` compares, and applies nothing."""
WHEN_TO_APPLY: Final = "clusterspace.io/when-to-apply"
"""Annotation of the same: `IfNotDrifted` leaves alone what somebody changed on the member."""
COMPARISON: Final = "clusterspace.io/comparison"
"""Annotation of the same: `FullComparison` counts what the manifest does not mention, too."""
CO_OWNERSHIP: Final = "clusterspace.io/allow-co-ownership"
"""Annotation of the same: `true` takes over what has owners on the member."""
STEERING: Final = (TAKE_OVER, APPLY_TYPE, WHEN_TO_APPLY, COMPARISON, CO_OWNERSHIP)
"""How a placement wants its objects applied, as far as that is not the default."""

APPLIED_HASH: Final = "clusterspace.io/applied-hash"
"""Annotation of a manifest, and so of the member's object: which manifest was applied last. An
object that has the same and says something else has drifted; with another it is to be updated."""

CARRIED_BINDINGS: Final = "migration.clusterspace.io/carried-bindings"
"""Annotation of a placement that another hub had before: its bindings there, by cluster. While it
is there these clusters count as picked, and their bindings get these names."""

PICK_ALL: Final = "PickAll"
PICK_N: Final = "PickN"
PICK_FIXED: Final = "PickFixed"
EXTERNAL: Final = "External"

ALWAYS: Final = "Always"
IF_NO_DIFF: Final = "IfNoDiff"
NEVER: Final = "Never"
IF_NOT_DRIFTED: Final = "IfNotDrifted"
FULL_COMPARISON: Final = "FullComparison"
ABANDON: Final = "Abandon"
REPORT_DIFF: Final = "ReportDiff"

SCHEDULED: Final = "Scheduled"
BOUND: Final = "Bound"
UNSCHEDULED: Final = "Unscheduled"

CLUSTER_SCOPE_ONLY: Final = "ClusterScopeOnly"
NAMESPACE_ACCESSIBLE: Final = "NamespaceAccessible"

NAMESPACE_ONLY: Final = "NamespaceOnly"
NAMESPACE_WITH_RESOURCES: Final = "NamespaceWithResources"
NAMESPACE_WITH_SELECTORS: Final = "NamespaceWithResourceSelectors"

LONGEST_NAME: Final = 63
"""The name is the value of a label on everything that comes of a placement."""

_HASH_LENGTH: Final = 16
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True, order=True)
class ResourceIdentifier:
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


def identity_of(kube_object: Object) -> ResourceIdentifier:
    """Return which object this is."""
    kind = GroupVersionKind.of(str(kube_object.get("apiVersion")), str(kube_object.get("kind")))
    return ResourceIdentifier(
        kind.group, kind.version, kind.kind, namespace_of(kube_object), name_of(kube_object)
    )


def manifest_hash(manifest: Object) -> str:
    """Return a text that changes with everything a manifest says."""
    return sha256(_encode(manifest)).hexdigest()[:_HASH_LENGTH]


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's JSON, in hexadecimal."""
    return sha256(_encode(value)).hexdigest()


def scope_at(key: str) -> PlacementScope:
    """Return the kind of the placement with this key: a ResourcePlacement's has a namespace."""
    return NAMESPACED if "/" in key else CLUSTER_WIDE


def scope_of(placement: Object) -> PlacementScope:
    """Return which kind of placement this is."""
    return NAMESPACED if namespace_of(placement) else CLUSTER_WIDE


def key_of_placement(placement: Object) -> str:
    """Return what names a placement among those of both kinds."""
    namespace = namespace_of(placement)
    return f"{namespace}/{name_of(placement)}" if namespace else name_of(placement)


def placement_text(key: str) -> str:
    """Return kind and key of a placement, for people."""
    return f"{scope_at(key).kind} {key}"


def parent_of(kube_object: Object) -> str:
    """Return the key of the placement an object comes of, or an empty text.

    Snapshots and bindings of a ResourcePlacement are in its namespace, whatever labels say: who may
    write some there has no say about the placements of others.
    """
    labels = labels_of(kube_object)
    parent = labels.get(PARENT, "")
    namespace = labels.get(PARENT_NAMESPACE, "")
    if str(kube_object.get("apiVersion")).startswith(f"{GROUP}/"):
        namespace = namespace_of(kube_object)
    return f"{namespace}/{parent}" if parent and namespace else parent


def parent_labels(key: str) -> dict[str, str]:
    """Return the labels of what comes of a placement."""
    namespace, _, name = key.rpartition("/")
    return {PARENT: name, **({PARENT_NAMESPACE: namespace} if namespace else {})}


def is_placed(binding: Object) -> bool:
    """Whether a binding of the engine is a placement's, and not a policy's."""
    return bool(parent_of(binding))


def is_of(kube_object: Object, placement: Object) -> bool:
    """Whether an object comes of this placement, and not of an earlier one of its name."""
    is_named = parent_of(kube_object) == key_of_placement(placement)
    return is_named and controller_uid_of(kube_object) == uid_of(placement)


def owner_reference(placement: Object) -> Object:
    """Return the reference by which things go with their placement."""
    return {
        "apiVersion": API_VERSION,
        "kind": scope_of(placement).kind,
        "name": name_of(placement),
        "uid": uid_of(placement),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def hashes_of(binding: Object) -> dict[str, str]:
    """Return which state of its object each cluster of an engine's binding is to have."""
    text = annotations_of(binding).get(MANIFEST_HASHES)
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


@dataclass(frozen=True, slots=True)
class ObjectState:
    """Which state of an object a cluster is to have: its manifest's hash, and its overrides."""

    hash: str
    overrides: tuple[str, ...] = ()
    """The keys of override snapshots, in the order in which they apply."""


def state_text(manifest_state: str, overrides: Iterable[str]) -> str:
    """Return the text of a state; without overrides it is the hash of the manifest."""
    return " ".join((manifest_state, *overrides))


def read_state(text: str) -> ObjectState:
    """Read what `state_text` wrote."""
    manifest_state, *overrides = text.split(" ")
    return ObjectState(manifest_state, tuple(overrides))


def carried_bindings_of(placement: Object) -> dict[str, str]:
    """Return the names of the bindings a placement had on another hub, by cluster.

    Anybody may have written the annotation: what cannot be read, or be a name, is not there.
    """
    text = annotations_of(placement).get(CARRIED_BINDINGS)
    try:
        carried = msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.DecodeError:
        return {}
    return {
        cluster: name
        for cluster, name in carried.items()
        if not dns1123_subdomain_problems(name) and not dns1123_subdomain_problems(cluster)
    }


def hashes_text(hashes: dict[str, str]) -> str:
    """Return the text of the annotation that `hashes_of` reads."""
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
    """Return `whenToTakeOver`, for objects that are on a cluster already; Always by default."""
    return str(strategy.get("whenToTakeOver") or ALWAYS)


def reports_only(placement: Object) -> bool:
    """Whether members only report how they differ, and nothing is applied."""
    return apply_strategy_of(placement).get("type") == REPORT_DIFF


def steering_of(placement: Object) -> dict[str, str]:
    """Return the annotations that say how a placement's objects are applied; defaults are not."""
    strategy = apply_strategy_of(placement)
    asked = {
        TAKE_OVER: IF_NO_DIFF if take_over_of(strategy) == IF_NO_DIFF else "",
        APPLY_TYPE: REPORT_DIFF if strategy.get("type") == REPORT_DIFF else "",
        WHEN_TO_APPLY: IF_NOT_DRIFTED if strategy.get("whenToApply") == IF_NOT_DRIFTED else "",
        COMPARISON: FULL_COMPARISON if strategy.get("comparisonOption") == FULL_COMPARISON else "",
        CO_OWNERSHIP: "true" if strategy.get("allowCoOwnership") is True else "",
    }
    return {key: value for key, value in asked.items() if value}


def status_namespace_of(placement: Object) -> str:
    """Return the namespace whose users may read the status of a placement; empty if it has none."""
    if find_at(placement, "spec", "statusReportingScope") != NAMESPACE_ACCESSIBLE:
        return ""
    selectors: list[Object] = find_at(placement, "spec", "resourceSelectors") or []
    names = [str(each.get("name") or "") for each in selectors if _is_namespace(each)]
    return names[0] if len(names) == 1 and not namespace_of(placement) else ""


def is_external(placement: Object) -> bool:
    """Whether somebody else rolls out what is selected."""
    return find_at(placement, "spec", "strategy", "type") == EXTERNAL


def abandons(placement: Object) -> bool:
    """Whether members keep their objects when the placement is deleted."""
    return find_at(placement, "spec", "strategy", "deleteStrategy", "propagationPolicy") == ABANDON


_POLICY: Final = "spec.policy"
_STRATEGY: Final = "spec.strategy.applyStrategy"
_AFFINITY: Final = f"{_POLICY}.affinity.clusterAffinity"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_EQUAL: Final = "Equal"

_ROLLING: Final = {"maxUnavailable": "25%", "maxSurge": "25%", "unavailablePeriodSeconds": 60}
_APPLYING: Final = {
    "type": "ClientSideApply",
    "comparisonOption": "PartialComparison",
    "whenToApply": "Always",
    "whenToTakeOver": "Always",
}


def completed_placement(placement: Object) -> Object:
    """Return a placement with what its author left out."""
    spec: Object = placement.get("spec") or {}
    strategy: Object = spec.get("strategy") or {}
    is_external = strategy.get("type") == "External"
    applying: Object = strategy.get("applyStrategy") or {}
    rolling: Object = strategy.get("rollingUpdate") or {}
    completed: Object = {
        "type": "RollingUpdate",
        **strategy,
        "applyStrategy": {**_APPLYING, **applying},
    }
    if not is_external:
        completed["rollingUpdate"] = {**_ROLLING, **rolling}
    policy = spec.get("policy") or {"placementType": PICK_ALL}
    history = {"revisionHistoryLimit": 10, "statusReportingScope": "ClusterScopeOnly"}
    return {**placement, "spec": {**history, **spec, "policy": policy, "strategy": completed}}


def placement_causes(placement: Object, old: Object | None) -> tuple[Cause, ...]:
    """Return every reason why a placement cannot be as it is."""
    policy: Object = find_at(placement, "spec", "policy") or {}
    former: Object | None = None if old is None else find_at(old, "spec", "policy") or {}
    found: list[Cause] = []
    if len(name_of(placement)) > LONGEST_NAME:
        found.append(causes.too_long("metadata.name", LONGEST_NAME))
    selectors: list[Object] = find_at(placement, "spec", "resourceSelectors") or []
    for index, each in enumerate(selectors):
        field = f"spec.resourceSelectors[{index}]"
        if each.get("name") and each.get("labelSelector") is not None:
            why = "names an object, so labels cannot select it as well"
            found.append(causes.invalid(f"{field}.labelSelector", each["labelSelector"], why))
        found += _labels_causes(each, field)
    found += _type_causes(policy, former)
    found += _affinity_causes(policy)
    spread: list[Object] = policy.get("topologySpreadConstraints") or []
    for index, each in enumerate(spread):
        key = str(each.get("topologyKey") or "")
        field = f"{_POLICY}.topologySpreadConstraints[{index}].topologyKey"
        found += [causes.invalid(field, key, why) for why in qualified_name_problems(key)]
    found += _toleration_causes(policy, former)
    found += _apply_causes(apply_strategy_of(placement))
    found += _scope_causes(placement, old)
    return tuple(found)


def _scope_causes(placement: Object, old: Object | None) -> Iterator[Cause]:
    """Yield what is wrong with where the status of a placement is told."""
    field = "spec.statusReportingScope"
    scope = find_at(placement, "spec", "statusReportingScope") or CLUSTER_SCOPE_ONLY
    if old is not None:
        before = find_at(old, "spec", "statusReportingScope") or CLUSTER_SCOPE_ONLY
        if before != scope:
            yield causes.invalid(field, scope, "field is immutable")
    if scope != NAMESPACE_ACCESSIBLE:
        return
    if placement.get("kind") == NAMESPACED_KIND:
        why = "the status of a ResourcePlacement is in its namespace already"
        yield causes.invalid(field, scope, why)
    elif not status_namespace_of(placement):
        why = "needs exactly one selector of a Namespace, by its name: the status is told there"
        yield causes.invalid(field, scope, why)


def _is_namespace(selector: Object) -> bool:
    return not selector.get("group") and selector.get("kind") == "Namespace"


def _labels_causes(holder: Object, field: str) -> Iterator[Cause]:
    selector = holder.get("labelSelector")
    if selector is None:
        return
    try:
        label_selector_of(selector)
    except MalformedSelector as error:
        yield causes.invalid(f"{field}.labelSelector", selector, error.message)


def _type_causes(policy: Object, former: Object | None) -> Iterator[Cause]:
    kind = placement_type_of(policy)
    if former is not None and placement_type_of(former) != kind:
        yield causes.invalid(f"{_POLICY}.placementType", kind, "field is immutable")
    if kind == PICK_N and policy.get("numberOfClusters") is None:
        yield causes.required(f"{_POLICY}.numberOfClusters", f"{PICK_N} needs a number")
    if kind != PICK_FIXED:
        return
    names: list[str] = policy.get("clusterNames") or []
    field = f"{_POLICY}.clusterNames"
    if not names:
        yield causes.required(field, f"{PICK_FIXED} needs the names of clusters")
    for index, name in enumerate(names):
        where = f"{field}[{index}]"
        yield from (causes.invalid(where, name, why) for why in dns1123_subdomain_problems(name))
        if len(name) > LONGEST_NAME:
            yield causes.too_long(where, LONGEST_NAME)
        if name in names[:index]:
            yield causes.duplicate(where, name)


def _affinity_causes(policy: Object) -> Iterator[Cause]:
    affinity: Object = find_at(policy, "affinity", "clusterAffinity") or {}
    terms: list[Object] = find_at(affinity, _REQUIRED, "clusterSelectorTerms") or []
    for index, term in enumerate(terms):
        where = f"{_AFFINITY}.{_REQUIRED}.clusterSelectorTerms[{index}]"
        yield from _labels_causes(term, where)
        yield from property_causes(term, where, is_required=True)
    liked: list[Object] = affinity.get(_PREFERRED) or []
    if liked and placement_type_of(policy) == PICK_ALL:
        why = f"{PICK_ALL} picks every cluster that fits, so none can be preferred"
        yield causes.forbidden(f"{_AFFINITY}.{_PREFERRED}", why)
    for index, each in enumerate(liked):
        term: Object = each.get("preference") or {}
        where = f"{_AFFINITY}.{_PREFERRED}[{index}].preference"
        yield from _labels_causes(term, where)
        yield from property_causes(term, where, is_required=False)


def _toleration_causes(policy: Object, former: Object | None) -> Iterator[Cause]:
    tolerations: list[Object] = policy.get("tolerations") or []
    field = f"{_POLICY}.tolerations"
    seen: list[Object] = []
    for index, each in enumerate(map(_completed_toleration, tolerations)):
        where = f"{field}[{index}]"
        key, value = str(each.get("key") or ""), str(each.get("value") or "")
        is_equal = each["operator"] == _EQUAL
        if key:
            problems = qualified_name_problems(key)
            yield from (causes.invalid(f"{where}.key", key, why) for why in problems)
        elif is_equal:
            yield causes.required(f"{where}.key", "only Exists can do without a key")
        if value and not is_equal:
            yield causes.invalid(f"{where}.value", value, "must be empty for the operator Exists")
        problems = label_value_problems(value)
        yield from (causes.invalid(f"{where}.value", value, why) for why in problems)
        if each in seen:
            yield causes.duplicate(where, _toleration_text(each))
        seen.append(each)
    kept: list[Object] = (former or {}).get("tolerations") or []
    for each in map(_completed_toleration, kept):
        if each not in seen:
            why = f"{_toleration_text(each)} was there before: tolerations can only be added"
            yield causes.forbidden(field, why)


def _completed_toleration(toleration: Object) -> Object:
    given = {key: value for key, value in toleration.items() if value}
    return {"operator": _EQUAL, **given}


def _toleration_text(toleration: Object) -> str:
    words = [str(toleration.get(each) or "") for each in ("key", "operator", "value", "effect")]
    return " ".join(filter(None, words))


def _apply_causes(strategy: Object) -> Iterator[Cause]:
    """Yield what a placement asks of the members that this fleet cannot do."""
    kind = strategy.get("type")
    if kind == "ServerSideApply" and not find_at(strategy, "serverSideApplyConfig", "force"):
        why = "is only supported with serverSideApplyConfig.force, which is what members get"
        yield causes.invalid(f"{_STRATEGY}.type", kind, why)
