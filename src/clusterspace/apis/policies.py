"""PropagationPolicy and OverridePolicy, and their cluster-wide twins: which objects they mean.

Below, what the hub adds to PropagationPolicies, and what it refuses in them and in anything else
that chooses clusters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems, label_key_problems
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.selectors import LabelSelector, label_selector_of

GROUP: Final = "policy.karmada.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"

PROPAGATION_POLICY: Final = "PropagationPolicy"
CLUSTER_PROPAGATION_POLICY: Final = "ClusterPropagationPolicy"
OVERRIDE_POLICY: Final = "OverridePolicy"
CLUSTER_OVERRIDE_POLICY: Final = "ClusterOverridePolicy"
CLUSTER_TAINT_POLICY: Final = "ClusterTaintPolicy"

PROPAGATION_POLICIES: Final = GroupVersionResource(GROUP, "v1alpha1", "propagationpolicies")
CLUSTER_PROPAGATION_POLICIES: Final = GroupVersionResource(
    GROUP, "v1alpha1", "clusterpropagationpolicies"
)
OVERRIDE_POLICIES: Final = GroupVersionResource(GROUP, "v1alpha1", "overridepolicies")
CLUSTER_OVERRIDE_POLICIES: Final = GroupVersionResource(
    GROUP, "v1alpha1", "clusteroverridepolicies"
)

CLUSTER_TAINT_POLICIES: Final = GroupVersionResource(GROUP, "v1alpha1", "clustertaintpolicies")

ABORT: Final = "Abort"
OVERWRITE: Final = "Overwrite"
FAILBACK: Final = "clusterspace.io/failback-after"
"""Annotation of policies, and of their bindings: seconds for which an earlier group of
clusterAffinities is well before it is gone back to."""
LAZY: Final = "Lazy"


class Precision(IntEnum):
    """How precisely a selector means an object; of two policies the more precise one wins."""

    NOT_MEANT = 0
    EVERYTHING = 1
    BY_LABELS = 2
    BY_NAME = 3


@dataclass(frozen=True, slots=True)
class ResourceSelector:
    """Objects of one kind: one by its name, some by their labels, or all."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    labels: LabelSelector | None = None
    """Not looked at when there is a name."""

    def precision(self, kube_object: Object) -> Precision:
        """Tell whether an object is meant, and how precisely."""
        # The exact text, as users of Karmada expect: no version stands for another.
        kind = kube_object.get("apiVersion"), kube_object.get("kind")
        if kind != (self.api_version, self.kind):
            return Precision.NOT_MEANT
        if self.namespace and self.namespace != namespace_of(kube_object):
            return Precision.NOT_MEANT
        if self.name:
            is_it = self.name == name_of(kube_object)
            return Precision.BY_NAME if is_it else Precision.NOT_MEANT
        if self.labels is None:
            return Precision.EVERYTHING
        is_meant = self.labels.matches(labels_of(kube_object))
        return Precision.BY_LABELS if is_meant else Precision.NOT_MEANT


def selectors_of(policy: Object) -> tuple[ResourceSelector, ...]:
    """Read the resource selectors of a policy of any kind; MalformedSelector names the place.

    Those of a policy in a namespace mean that namespace, whether or not they say so. It is not
    written into them: lists have one owner, so that `kubectl apply` of the same file would put it
    back every time, and server-side apply would conflict with it.
    """
    written: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
    namespace = namespace_of(policy)
    selectors: list[ResourceSelector] = []
    for index, each in enumerate(written):
        labels = each.get("labelSelector")
        try:
            read = None if labels is None else label_selector_of(labels)
        except MalformedSelector as error:
            where = f"spec.resourceSelectors[{index}].labelSelector"
            raise MalformedSelector(f"{where}: {error.message}", place=where) from error
        selector = ResourceSelector(
            api_version=str(each.get("apiVersion") or ""),
            kind=str(each.get("kind") or ""),
            namespace=str(each.get("namespace") or namespace),
            name=str(each.get("name") or ""),
            labels=read,
        )
        selectors.append(selector)
    return tuple(selectors)


def best_precision(selectors: tuple[ResourceSelector, ...], kube_object: Object) -> Precision:
    """Return how precisely the most precise of the selectors means an object."""
    return max(
        (selector.precision(kube_object) for selector in selectors), default=Precision.NOT_MEANT
    )


DIVIDED: Final = "Divided"
WEIGHTED: Final = "Weighted"
_AGGREGATED: Final = "Aggregated"

_CLUSTER_FIELDS: Final = ("provider", "region", "zone")
_FIELD_OPERATORS: Final = ("In", "NotIn")
_TOLERATION_OPERATORS: Final = ("", "Equal", "Exists")
_BY_CLUSTER: Final = "cluster"
_CHOOSING: Final = ("labelSelector", "fieldSelector", "clusterNames", "exclude")

_NEEDS_BY_CLUSTER: Final = "spreading by a field needs one constraint that spreads by cluster"


def placement_causes(placement: Object, field: str) -> Iterator[Cause]:
    """Yield every reason why a policy cannot place like this."""
    if "clusterAffinity" in placement and "clusterAffinities" in placement:
        yield causes.invalid(field, placement, "clusterAffinities excludes clusterAffinity")
    yield from affinity_causes(placement.get("clusterAffinity"), f"{field}.clusterAffinity")
    yield from _affinities_causes(placement, f"{field}.clusterAffinities")
    spread: list[Object] = placement.get("spreadConstraints") or []
    yield from _spread_causes(spread, f"{field}.spreadConstraints")
    for index, toleration in enumerate(placement.get("clusterTolerations") or ()):
        operator = str(toleration.get("operator") or "")
        if operator not in _TOLERATION_OPERATORS:
            place = f"{field}.clusterTolerations[{index}].operator"
            yield causes.not_supported(place, operator, _TOLERATION_OPERATORS)
    affinity: Object = placement.get("workloadAffinity") or {}
    keys: list[str] = []
    for kind in ("affinity", "antiAffinity"):
        if kind in affinity:
            key = str(affinity[kind].get("groupByLabelKey") or "")
            keys.append(key)
            for why in label_key_problems(key):
                place = f"{field}.workloadAffinity.{kind}.groupByLabelKey"
                yield causes.invalid(place, key, why)
    if len(keys) != len(set(keys)):
        why = "affinity and antiAffinity group by the same label"
        yield causes.invalid(f"{field}.workloadAffinity", affinity, why)


def affinity_causes(affinity: Object | None, field: str) -> Iterator[Cause]:
    """Yield every reason why clusters cannot be chosen like this; nothing chooses all of them."""
    chosen = affinity or {}
    try:
        label_selector_of(chosen.get("labelSelector") or {})
    except MalformedSelector as error:
        yield causes.invalid(f"{field}.labelSelector", chosen["labelSelector"], error.message)
    selector: Object = chosen.get("fieldSelector") or {}
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        place = f"{field}.fieldSelector.matchExpressions[{index}]"
        for key, allowed in (("key", _CLUSTER_FIELDS), ("operator", _FIELD_OPERATORS)):
            if expression.get(key) not in allowed:
                yield causes.not_supported(f"{place}.{key}", expression.get(key), allowed)


_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def taint_policy_causes(policy: Object) -> list[Cause]:
    """Return every reason why a ClusterTaintPolicy cannot be meant."""
    spec: Object = policy.get("spec") or {}
    found = [*affinity_causes(spec.get("targetClusters"), "spec.targetClusters")]
    for field in ("addOnConditions", "removeOnConditions"):
        for index, each in enumerate(spec.get(field) or ()):
            if each.get("operator") not in _FIELD_OPERATORS:
                place = f"spec.{field}[{index}].operator"
                found.append(causes.not_supported(place, each.get("operator"), _FIELD_OPERATORS))
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec.get("taints") or ()):
        place, effect = f"spec.taints[{index}]", str(taint.get("effect") or "")
        key = str(taint.get("key") or "")
        found += [causes.invalid(f"{place}.key", key, why) for why in label_key_problems(key)]
        if effect not in _EFFECTS:
            found.append(causes.not_supported(f"{place}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            found.append(causes.duplicate(place, f"{key}:{effect}"))
        seen.add((key, effect))
    return found


def is_divided_by_room(placement: Object) -> bool:
    """Whether replicas are shared out by how many each cluster can take."""
    scheduling: Object = placement.get("replicaScheduling") or {}
    is_dynamic = scheduling.get("replicaDivisionPreference") == _AGGREGATED or find_at(
        scheduling, "weightPreference", "dynamicWeight"
    )
    return scheduling.get("replicaSchedulingType") == DIVIDED and bool(is_dynamic)


def _affinities_causes(placement: Object, field: str) -> Iterator[Cause]:
    may_overflow = is_divided_by_room(placement)
    seen: set[str] = set()
    terms: list[Object] = placement.get("clusterAffinities") or []
    for index, term in enumerate(terms):
        place = f"{field}[{index}]"
        yield from _name_causes(term, seen, place)
        yield from affinity_causes(term, place)
        overflow: list[Object] = term.get("overflowAffinities") or []
        if overflow and not may_overflow:
            why = "needs replicas that are divided, aggregated or by dynamic weight"
            yield causes.invalid(f"{place}.overflowAffinities", overflow, why)
        if overflow and not any(term.get(key) for key in _CHOOSING):
            why = "needs an affinity of its own to overflow from"
            yield causes.invalid(f"{place}.overflowAffinities", overflow, why)
        seen_within = {str(term.get("affinityName"))}
        for number, each in enumerate(overflow):
            here = f"{place}.overflowAffinities[{number}]"
            yield from _name_causes(each, seen_within, here)
            yield from affinity_causes(each, here)


def _name_causes(term: Object, seen: set[str], place: str) -> Iterator[Cause]:
    """Yield what is wrong with the name of a term, and add it to those seen."""
    name, field = str(term.get("affinityName") or ""), f"{place}.affinityName"
    for why in label_key_problems(name):
        yield causes.invalid(field, name, why)
    if name in seen:
        yield causes.duplicate(field, name)
    seen.add(name)


def _spread_causes(constraints: list[Object], field: str) -> Iterator[Cause]:
    spread_by: list[str] = []
    for index, constraint in enumerate(constraints):
        place = f"{field}[{index}]"
        by_field = str(constraint.get("spreadByField") or "")
        if by_field and constraint.get("spreadByLabel"):
            yield causes.invalid(place, constraint, "spreadByLabel excludes spreadByField")
        if by_field in spread_by:
            yield causes.duplicate(f"{place}.spreadByField", by_field)
        spread_by.extend([by_field] if by_field else [])
        least, most = (int(constraint.get(key) or 0) for key in ("minGroups", "maxGroups"))
        for key, number in (("minGroups", least), ("maxGroups", most)):
            if number < 0:
                yield causes.invalid(f"{place}.{key}", number, "must not be negative")
        if 0 < most < least:
            why = f"must not be less than minGroups {least}"
            yield causes.invalid(f"{place}.maxGroups", most, why)
    if spread_by and _BY_CLUSTER not in spread_by:
        yield causes.invalid(field, constraints, _NEEDS_BY_CLUSTER)


_SELECTORS: Final = "spec.resourceSelectors"
_GRACEFULLY: Final = "Gracefully"
_GRACE_SECONDS: Final = 600
_SERVICE_IMPORT: Final = ("multicluster.x-k8s.io/v1alpha1", "ServiceImport")


def completed_policy(policy: Object) -> Object:
    """Return a policy with what its author left out."""
    spec: Object = policy.get("spec") or {}
    selectors: list[Object] = spec.get("resourceSelectors") or []
    if any((each.get("apiVersion"), each.get("kind")) == _SERVICE_IMPORT for each in selectors):
        policy = with_value(policy, True, "spec", "propagateDeps")
    path = ("spec", "failover", "application")
    application: Object = find_at(policy, *path) or {}
    is_graceful = application.get("purgeMode") == _GRACEFULLY
    if is_graceful and application.get("gracePeriodSeconds") is None:
        policy = with_value(policy, _GRACE_SECONDS, *path, "gracePeriodSeconds")
    placement: Object = spec.get("placement") or {}
    scheduling: Object = placement.get("replicaScheduling") or {}
    is_divided = scheduling.get("replicaSchedulingType") == DIVIDED
    if is_divided and not scheduling.get("replicaDivisionPreference"):
        path = ("spec", "placement", "replicaScheduling", "replicaDivisionPreference")
        policy = with_value(policy, WEIGHTED, *path)
    constraints: list[Object] = placement.get("spreadConstraints") or []
    completed = [_completed_constraint(each) for each in constraints]
    if completed == constraints:
        return policy
    return with_value(policy, completed, "spec", "placement", "spreadConstraints")


def _completed_constraint(constraint: Object) -> Object:
    named = constraint.get("spreadByField") or constraint.get("spreadByLabel")
    by_cluster = {} if named else {"spreadByField": "cluster"}
    at_least_one = {} if constraint.get("minGroups") else {"minGroups": 1}
    return {**constraint, **by_cluster, **at_least_one}


def policy_causes(policy: Object, old: Object | None) -> tuple[Cause, ...]:
    """Return every reason why a policy cannot be as it is."""
    spec: Object = policy.get("spec") or {}
    found: list[Cause] = []
    scheduler = spec.get("schedulerName")
    if old is not None and find_at(old, "spec", "schedulerName") != scheduler:
        found.append(causes.invalid("spec.schedulerName", scheduler, "field is immutable"))
    found += selector_causes(policy)
    if spec.get("preemption") == "Always":
        why = "a policy that preempts others must name each object it means"
        found += [
            causes.required(f"{_SELECTORS}[{index}].name", why)
            for index, each in enumerate(spec.get("resourceSelectors") or ())
            if not each.get("name")
        ]
    found += placement_causes(spec.get("placement") or {}, "spec.placement")
    found += _failover_causes(spec)
    found += _rollout_causes(spec)
    back = annotations_of(policy).get(FAILBACK)
    if back is not None and not back.isdecimal():
        why = "must be whole seconds, such as 600"
        found.append(causes.invalid(f"metadata.annotations[{FAILBACK}]", back, why))
    elif back is not None and not find_at(spec, "placement", "clusterAffinities"):
        why = "only spec.placement.clusterAffinities have a group to go back to"
        found.append(causes.invalid(f"metadata.annotations[{FAILBACK}]", back, why))
    suspension: Object = spec.get("suspension") or {}
    clusters = find_at(suspension, "dispatchingOnClusters", "clusterNames")
    if suspension.get("dispatching") and clusters:
        why = "dispatching is suspended everywhere, so it cannot be on some clusters alone"
        found.append(causes.invalid("spec.suspension", suspension, why))
    return tuple(found)


def selector_causes(policy: Object) -> Iterator[Cause]:
    """Yield what is wrong with the resource selectors of a policy of any kind."""
    namespace = namespace_of(policy)
    selectors: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
    for index, each in enumerate(selectors):
        if namespace and each.get("namespace") not in (None, "", namespace):
            why = f"must be the policy's own namespace {namespace}"
            field = f"{_SELECTORS}[{index}].namespace"
            yield causes.invalid(field, each.get("namespace"), why)
    try:
        selectors_of(policy)
    except MalformedSelector as error:
        yield causes.invalid(error.place, error.message, "is not a label selector")


def _rollout_causes(spec: Object) -> Iterator[Cause]:
    """Yield what is wrong with a rollout; the strategy that it names may still be to come."""
    rollout: Object = spec.get("rollout") or {}
    name = str(rollout.get("strategyName") or "")
    if "rollout" in spec and not name:
        yield causes.required("spec.rollout.strategyName", "it says which stages there are")
    for why in dns1123_subdomain_problems(name) if name else ():
        yield causes.invalid("spec.rollout.strategyName", name, why)


def _failover_causes(spec: Object) -> Iterator[Cause]:
    failover: Object = spec.get("failover") or {}
    for kind in ("application", "cluster"):
        rules: list[Object] = find_at(failover, kind, "statePreservation", "rules") or []
        for index, rule in enumerate(rules):
            label = str(rule.get("aliasLabelName") or "")
            field = f"spec.failover.{kind}.statePreservation.rules[{index}].aliasLabelName"
            for why in label_key_problems(label):
                yield causes.invalid(field, label, why)
    application = failover.get("application")
    if application is None:
        return
    if not spec.get("propagateDeps"):
        yield causes.invalid("spec.propagateDeps", False, "application failover needs it")
    field = "spec.failover.application"
    tolerated = find_at(application, "decisionConditions", "tolerationSeconds") or 0
    if tolerated < 0:
        place = f"{field}.decisionConditions.tolerationSeconds"
        yield causes.invalid(place, tolerated, "must not be negative")
    grace = application.get("gracePeriodSeconds")
    if grace is None:
        return
    if application.get("purgeMode") != _GRACEFULLY:
        why = f"is only for the purge mode {_GRACEFULLY}"
        yield causes.invalid(f"{field}.gracePeriodSeconds", grace, why)
    if grace <= 0:
        yield causes.invalid(f"{field}.gracePeriodSeconds", grace, "must be greater than 0")
