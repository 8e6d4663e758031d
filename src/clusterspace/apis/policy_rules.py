"""What the hub adds to PropagationPolicies of both kinds, and what it refuses."""

from collections.abc import Iterator
from typing import Final

from clusterspace.apis.placement_rules import DIVIDED, WEIGHTED, placement_causes
from clusterspace.apis.policies import selectors_of
from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import label_key_problems
from clusterspace.kube.objects import Object, find_at, namespace_of, with_value

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
    return _with_placement_defaults(_with_grace(with_selector_namespaces(policy)))


def with_selector_namespaces(policy: Object) -> Object:
    """Return a policy of a namespace with selectors that name that namespace."""
    namespace = namespace_of(policy)
    selectors: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
    if not namespace or all(each.get("namespace") for each in selectors):
        return policy
    named = [
        each if each.get("namespace") else {**each, "namespace": namespace} for each in selectors
    ]
    return with_value(policy, named, "spec", "resourceSelectors")


def policy_causes(policy: Object, old: Object | None) -> tuple[Cause, ...]:
    """Return every reason why a policy cannot be as it is."""
    spec: Object = policy.get("spec") or {}
    return (
        *_scheduler_causes(policy, old),
        *selector_causes(policy),
        *_preemption_causes(spec),
        *placement_causes(spec.get("placement") or {}, "spec.placement"),
        *_failover_causes(spec),
        *_suspension_causes(spec.get("suspension") or {}),
    )


def selector_causes(policy: Object) -> Iterator[Cause]:
    """Yield what is wrong with the resource selectors of a policy of any kind."""
    namespace = namespace_of(policy)
    selectors: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
    for index, each in enumerate(selectors):
        if namespace and each.get("namespace") != namespace:
            why = f"must be the policy's own namespace {namespace}"
            field = f"{_SELECTORS}[{index}].namespace"
            yield causes.invalid(field, each.get("namespace"), why)
    try:
        selectors_of(policy)
    except MalformedSelector as error:
        yield causes.invalid(error.place, error.message, "is not a label selector")


def _scheduler_causes(policy: Object, old: Object | None) -> Iterator[Cause]:
    if old is None:
        return
    before, after = (find_at(each, "spec", "schedulerName") for each in (old, policy))
    if before != after:
        yield causes.invalid("spec.schedulerName", after, "field is immutable")


def _preemption_causes(spec: Object) -> Iterator[Cause]:
    if spec.get("preemption") != "Always":
        return
    for index, each in enumerate(spec.get("resourceSelectors") or ()):
        if not each.get("name"):
            why = "a policy that preempts others must name each object it means"
            yield causes.required(f"{_SELECTORS}[{index}].name", why)


def _suspension_causes(suspension: Object) -> Iterator[Cause]:
    clusters = find_at(suspension, "dispatchingOnClusters", "clusterNames")
    if suspension.get("dispatching") and clusters:
        why = "dispatching is suspended everywhere, so it cannot be on some clusters alone"
        yield causes.invalid("spec.suspension", suspension, why)


def _failover_causes(spec: Object) -> Iterator[Cause]:
    failover: Object = spec.get("failover") or {}
    for part in ("application", "cluster"):
        rules: list[Object] = find_at(failover, part, "statePreservation", "rules") or []
        for index, rule in enumerate(rules):
            label = str(rule.get("aliasLabelName") or "")
            field = f"spec.failover.{part}.statePreservation.rules[{index}].aliasLabelName"
            for why in label_key_problems(label):
                yield causes.invalid(field, label, why)
    application = failover.get("application")
    if application is None:
        return
    if not spec.get("propagateDeps"):
        yield causes.invalid("spec.propagateDeps", False, "application failover needs it")
    yield from _application_causes(application, "spec.failover.application")


def _application_causes(application: Object, field: str) -> Iterator[Cause]:
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


def _with_grace(policy: Object) -> Object:
    path = ("spec", "failover", "application")
    application: Object = find_at(policy, *path) or {}
    is_graceful = application.get("purgeMode") == _GRACEFULLY
    if not is_graceful or application.get("gracePeriodSeconds") is not None:
        return policy
    return with_value(policy, _GRACE_SECONDS, *path, "gracePeriodSeconds")


def _with_placement_defaults(policy: Object) -> Object:
    placement: Object = find_at(policy, "spec", "placement") or {}
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
