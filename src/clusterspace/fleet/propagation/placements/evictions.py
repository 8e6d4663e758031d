"""Every ClusterResourcePlacementEviction: one cluster lets go of a placement, once.

    eviction ──valid?──> noted which binding is meant ──budget──> binding gone ──> Executed
                                                         └──────> not executed, and never again

What is picked afterwards is the placement's policy: without a taint that keeps it away, the cluster
may be picked again. A ClusterResourcePlacementDisruptionBudget of the placement's name says how
many clusters must, or need not, be available.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    GROUP,
    PICK_FIXED,
    PICK_N,
    PLACEMENTS,
    generation_of,
    placement_type_of,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    Result,
    Watch,
    more_than_status_changed,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.propagation.placements.rollout import was_bound
from clusterspace.fleet.propagation.placements.status import AVAILABLE, NOT_SYNCED_YET
from clusterspace.fleet.propagation.placements.steps import KnownFleetBindings, PlacementWriter
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource

EVICTIONS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourceplacementevictions")
BUDGETS: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourceplacementdisruptionbudgets")

EVICTED: Final = "clusterspace.io/evicted-binding"
"""Annotation of an eviction: the UID of the binding that goes, written before it goes."""

_VALID: Final = "Valid"
_EXECUTED: Final = "Executed"
_FAILING: Final = ("Overridden", "WorkSynchronized", "Applied", AVAILABLE)
_ON_ITS_WAY: Final = frozenset({NOT_SYNCED_YET, "NotAllWorkAreAvailable"})


class PlacementEvictions(Reconciler):
    """Carries out evictions, one after the other: each counts what those before it took."""

    name = "placement-evictions"
    workers = 1

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._evictions = caches.informer(EVICTIONS)
        self._writer = PlacementWriter(hub, caches.shared(KnownFleetBindings))

    def watches(self) -> Iterable[Watch]:
        """Return evictions alone: each is looked at once, and what changes later is no matter."""
        yield Watch(self._evictions, when=more_than_status_changed)

    async def reconcile(self, request: Request) -> Result:
        """Carry out one eviction, or say why not; both are for good."""
        eviction = self._evictions.cache.find(request.key)
        if eviction is None or is_being_deleted(eviction) or is_decided(eviction):
            return Done()
        name = str(find_at(eviction, "spec", "placementName") or "")
        cluster = str(find_at(eviction, "spec", "clusterName") or "")
        placement = await self._hub.find(ResourcePath(PLACEMENTS, "", name))
        noted = annotations_of(eviction).get(EVICTED)
        bindings = {} if placement is None else self._writer.fleet_bindings.of(placement)
        binding = bindings.get(cluster)
        if noted and (binding is None or uid_of(binding) != noted):
            # Killed after the binding went: the cluster may have been picked again since.
            return await self._decide(eviction, _EXECUTED, True, "the binding is gone")
        problem = why_invalid(placement, binding, cluster)
        if placement is None or binding is None or problem:
            return await self._decide(eviction, _VALID, False, problem)
        budget = await self._hub.find(ResourcePath(BUDGETS, "", name))
        refusal = why_refused(placement, bindings, binding, budget)
        if refusal:
            return await self._decide(eviction, _EXECUTED, False, refusal)
        path = resource_path_of(EVICTIONS, eviction)
        marked = with_metadata(
            eviction, annotations={**annotations_of(eviction), EVICTED: uid_of(binding)}
        )
        eviction = await commit(self._hub, path, eviction, marked)
        await self._writer.remove(FLEET_BINDINGS, binding)
        return await self._decide(eviction, _EXECUTED, True, f"{cluster} lets go of {name}")

    async def _decide(self, eviction: Object, kind: str, holds: bool, message: str) -> Result:
        """Write down what became of an eviction, and tell of it."""
        generation, now = generation_of(eviction), self._clock.now()
        is_valid = holds or kind != _VALID
        valid = "ClusterResourcePlacementEvictionValid"
        invalid = "ClusterResourcePlacementEvictionInvalid"
        text = "the placement is on the cluster" if is_valid else message
        first = Condition(
            _VALID, TRUE if is_valid else FALSE, valid if is_valid else invalid, text, generation
        )
        reason = first.reason
        conditions = set_condition(find_at(eviction, "status", "conditions"), first, now).conditions
        if kind == _EXECUTED:
            reason = "ClusterResourcePlacementEvictionNotExecuted"
            if holds:
                reason = "ClusterResourcePlacementEvictionExecuted"
            second = Condition(_EXECUTED, TRUE if holds else FALSE, reason, message, generation)
            conditions = set_condition(conditions, second, now).conditions
        path = resource_path_of(EVICTIONS, eviction)
        await commit(self._hub, path, eviction, {**eviction, "status": {"conditions": conditions}})
        self._events.record(eviction, reason, message, is_warning=not holds)
        return Done()


def is_decided(eviction: Object) -> bool:
    """Whether an eviction was carried out, or refused."""
    conditions = find_at(eviction, "status", "conditions")
    valid = find_condition(conditions, _VALID) or {}
    return valid.get("status") == FALSE or find_condition(conditions, _EXECUTED) is not None


def why_invalid(placement: Object | None, binding: Object | None, cluster: str) -> str:
    """Return why an eviction means nothing; an empty text when it does."""
    if placement is None:
        return "there is no such ClusterResourcePlacement"
    if is_being_deleted(placement):
        return f"ClusterResourcePlacement {name_of(placement)} is being deleted"
    if placement_type_of(find_at(placement, "spec", "policy")) == PICK_FIXED:
        return "the placement names its clusters (PickFixed): take the name out of it instead"
    return f"the placement is not on {cluster}" if binding is None else ""


def why_refused(
    placement: Object, bindings: Mapping[str, Object], binding: Object, budget: Object | None
) -> str:
    """Return why a cluster may not let go of a placement now; an empty text when it may."""
    if not was_bound(binding):
        return "nothing of the placement is on the cluster yet"
    if budget is None or is_being_deleted(binding) or _has_failed(binding):
        return ""  # a cluster on which it has failed is no loss
    policy: Object = find_at(placement, "spec", "policy") or {}
    available = sum(_is_available(each) for each in bindings.values())
    spec: Object = budget.get("spec") or {}
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if placement_type_of(policy) != PICK_N and (most is not None or isinstance(least, str)):
        kind = "ClusterResourcePlacementDisruptionBudget"
        return f"its {kind} must have a number as minAvailable: PickAll asks for no number"
    desired = int(policy.get("numberOfClusters") or 0)
    if most is not None:
        # Of those asked for, and not only of those there are: one that was evicted a moment ago
        # has no binding, and is missing all the same.
        missing = max(desired, len(bindings)) - available
        allowed = _share(most, desired) - missing
    else:
        allowed = available - (0 if least is None else _share(least, desired))
    if allowed > 0:
        return ""
    return f"its disruption budget allows none: {available} of {len(bindings)} are available"


def _share(value: object, desired: int) -> int:
    text = str(value)
    if text.endswith("%"):
        return ceil(desired * int(text.removesuffix("%")) / 100)
    return int(text)


def _condition(binding: Object, kind: str) -> Object:
    """Return a condition of a binding, if it is about the binding as it is now."""
    found = find_condition(find_at(binding, "status", "conditions"), kind) or {}
    return found if found.get("observedGeneration") == generation_of(binding) else {}


def _is_available(binding: Object) -> bool:
    return _condition(binding, AVAILABLE).get("status") == TRUE


def _has_failed(binding: Object) -> bool:
    return any(
        found.get("status") == FALSE and found.get("reason") not in _ON_ITS_WAY
        for found in (_condition(binding, each) for each in _FAILING)
    )
