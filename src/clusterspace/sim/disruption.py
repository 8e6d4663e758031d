"""How many pods may be evicted: the status of PodDisruptionBudgets."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from clusterspace.errors import MalformedSelector
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.selectors import NOTHING, LabelSelector, label_selector_of
from clusterspace.kube.times import parse_time
from clusterspace.sim.api import (
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Change,
    Key,
    Mirror,
    controller_of,
    key_of,
)
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import is_ending, is_finished, ready_since
from clusterspace.sim.workloads.plans import amount

_BATCH_SECONDS: Final = 0.05
_DELETION_SECONDS: Final = 120.0
"""How long an eviction may take to become a deletion before it counts as one that never was."""

_SCALED: Final = {
    kind.name: kind for kind in (REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, DEPLOYMENT)
}


def budget_selector(budget: Object) -> LabelSelector:
    """Return which pods a budget protects; one that cannot be read protects none."""
    try:
        return label_selector_of(find_at(budget, "spec", "selector"))
    except MalformedSelector:
        return NOTHING


class DisruptionController:
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption budgets"
    batch_seconds = _BATCH_SECONDS

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the budgets that changed, or that a changed pod or workload counts for."""
        if change.kind == DISRUPTION_BUDGET.name and change.after is not None:
            yield key_of(change.after)
        budgets = self._mirror.in_namespace(DISRUPTION_BUDGET, namespace_of(change.latest))
        if change.kind == POD.name:
            for budget in budgets:
                selector = budget_selector(budget)
                if any(selector.matches(labels_of(each)) for each in change.versions):
                    yield key_of(budget)
        elif change.kind in _SCALED:
            before, after = (find_at(each, "spec", "replicas") for each in change)
            if before != after:
                yield from map(key_of, budgets)

    def plan(self, key: Key, now: float) -> Plan:
        """Count the healthy pods of a budget, and how many of them are needed."""
        budget = self._mirror.find(key)
        if budget is None or is_ending(budget):
            return Plan()
        selector = budget_selector(budget)
        pods = [
            pod
            for pod in self._mirror.in_namespace(POD, key.namespace)
            if selector.matches(labels_of(pod)) and not is_finished(pod)
        ]
        expected, desired = self._expected(budget, pods)
        disrupted, again_after = _still_disrupted(budget, pods, now)
        healthy = sum(
            ready_since(pod) is not None and not is_ending(pod) and name_of(pod) not in disrupted
            for pod in pods
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        condition = Condition(
            "DisruptionAllowed",
            "True" if allowed else "False",
            "SufficientPods" if allowed else "InsufficientPods",
            observed_generation=metadata_of(budget).get("generation"),
        )
        present: list[Object] = find_at(budget, "status", "conditions") or []
        conditions = set_condition(present, condition, now).conditions
        status: Object = {
            # These are there even when they are zero: clients read them, and zero has a meaning.
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": metadata_of(budget).get("generation"),
            "conditions": conditions,
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        return Plan(status=with_status(budget, status), again_after=again_after)

    def _expected(self, budget: Object, pods: Sequence[Object]) -> tuple[int, int]:
        """Return how many pods there should be, and how many of them must be healthy."""
        most: Any = find_at(budget, "spec", "maxUnavailable")
        least: Any = find_at(budget, "spec", "minAvailable")
        if most is not None:
            expected = self._scale_of(pods)
            return expected, max(0, expected - amount(most, expected, round_up=True))
        if isinstance(least, str):
            expected = self._scale_of(pods)
            return expected, amount(least, expected, round_up=True)
        return len(pods), int(least or 0)

    def _scale_of(self, pods: Sequence[Object]) -> int:
        """Return how many pods the workloads of these pods ask for, each counted once."""
        workloads: dict[str, Object] = {}
        for pod in pods:
            owner = self._controller(pod)
            while owner is not None and owner["kind"] in _SCALED:
                above = self._controller(owner)
                if above is None:
                    workloads[uid_of(owner)] = owner
                owner = above
        return sum(int(find_at(each, "spec", "replicas") or 0) for each in workloads.values())

    def _controller(self, kube_object: Object) -> Object | None:
        reference = controller_of(kube_object)
        if reference is None or reference["kind"] not in _SCALED:
            return None
        key = Key(str(reference["kind"]), namespace_of(kube_object), str(reference["name"]))
        found = self._mirror.find(key)
        return found if found is not None and uid_of(found) == reference["uid"] else None


def _still_disrupted(
    budget: Object, pods: Sequence[Object], now: float
) -> tuple[dict[str, str], float | None]:
    """Return the pods whose eviction was granted and is not seen yet, and until when."""
    there = {name_of(pod) for pod in pods if not is_ending(pod)}
    noted: dict[str, str] = find_at(budget, "status", "disruptedPods") or {}
    ends = {
        name: parse_time(str(stamp)) + _DELETION_SECONDS
        for name, stamp in noted.items()
        if name in there
    }
    kept = {name: noted[name] for name, end in ends.items() if end > now}
    return kept, min((ends[name] - now for name in kept), default=None)
