"""Evictions: deletes of pods that a PodDisruptionBudget must have room for.

The room is taken before the pod is: the budget's status counts one disruption less and names the
pod, by compare and swap. Two evictions that come at the same moment therefore never share the last
one. A crash in between leaves a pod that is named and still there; whoever keeps the budget gives
the room back when it has not gone after two minutes.
"""

from dataclasses import replace
from typing import Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.apiserver.writing import TRIES, edit_own, remove
from clusterspace.errors import (
    ApiError,
    Cause,
    Conflict,
    Details,
    MalformedSelector,
    TooManyRequests,
)
from clusterspace.kube import statuses
from clusterspace.kube.conditions import Condition, find_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    resource_version_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.selectors import label_selector_of

_BUDGET: Final = GroupResource("policy", "poddisruptionbudget")
_MOST_NAMED: Final = 2000
"""Pods a budget may name whose end nobody has confirmed."""
_WAIT_SECONDS: Final = 10


async def evict(request: ResourceRequest, options: DeleteOptions) -> None:
    """Delete a pod unless its budget has no room; TooManyRequests says which one and why."""
    has_version = bool(options.resource_version)
    for attempt in range(TRIES):
        pod = await _pod(request)
        phase = find_at(pod, "status", "phase")
        is_over = phase in ("Succeeded", "Failed") or is_being_deleted(pod)
        if not is_over and phase != "Pending":
            break
        # Nobody misses it. One that has not started yet must not start in the meantime.
        exact = options if is_over or has_version else _at_version(options, pod)
        try:
            return await _remove(request, exact)
        except Conflict:
            if has_version or attempt == TRIES - 1:
                raise
    else:
        raise AssertionError("unreachable: the last attempt returns or raises")

    budgets = await _budgets_of(request, pod)
    if len(budgets) > 1:
        raise ApiError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    if not budgets:
        return await _remove(request, options)
    (budget,) = budgets
    if not _is_ready(pod) and _lets_unready_go(budget):
        try:
            return await _remove(request, options if has_version else _at_version(options, pod))
        except Conflict:
            if has_version:
                raise
            raise _still_processed(name_of(budget)) from None  # it may have become ready
    await _take_room(request, budget, name_of(pod), is_dry=options.dry_run)
    return await _remove(request, options)


async def _pod(request: ResourceRequest) -> Object:
    entry = await request.hub.store.get(request.key)
    if entry is None:
        raise request.not_found()
    return forms.decode_stored(entry, request.served.form)


def _at_version(options: DeleteOptions, pod: Object) -> DeleteOptions:
    return replace(options, resource_version=resource_version_of(pod))


async def _budgets_of(request: ResourceRequest, pod: Object) -> list[Object]:
    budgets = request.hub.catalog.get_storage("policy", "poddisruptionbudgets")
    page = await request.hub.store.range(budgets.prefix(request.info.namespace))
    found: list[Object] = []
    for entry in page.items:
        budget = forms.decode_stored(entry, budgets.form)
        try:
            selector = label_selector_of(find_at(budget, "spec", "selector"))
        except MalformedSelector:
            continue  # one that cannot be read protects nothing
        if selector.matches(labels_of(pod)):
            found.append(budget)
    return found


def _is_ready(pod: Object) -> bool:
    conditions = cast("list[Object]", find_at(pod, "status", "conditions") or [])
    return any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions)


def _lets_unready_go(budget: Object) -> bool:
    """Whether a pod that is not ready may go without taking room: it does not count as healthy."""
    if find_at(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = cast("Object", budget.get("status") or {})
    desired = int(status.get("desiredHealthy") or 0)
    return int(status.get("currentHealthy") or 0) >= desired > 0


async def _take_room(request: ResourceRequest, budget: Object, pod: str, *, is_dry: bool) -> None:
    """Count one disruption in the budget; raise when it allows none."""
    hub = request.hub
    served = hub.catalog.get_storage("policy", "poddisruptionbudgets")

    def taken(live: Object) -> Object:
        if uid_of(live) != uid_of(budget):
            return live  # it is another one by now, made after we looked
        problem = _problem_with(live)
        if problem is not None:
            raise problem
        status = cast("Object", live["status"])
        left = int(status["disruptionsAllowed"]) - 1
        named = cast("dict[str, str]", status.get("disruptedPods") or {})
        counted: Object = {
            **status,
            "disruptionsAllowed": left,
            "disruptedPods": {**named, pod: hub.timestamp()},
        }
        if not left:
            generation = metadata_of(live).get("generation")
            spent = Condition(
                "DisruptionAllowed", "False", "InsufficientPods", observed_generation=generation
            )
            conditions = cast("list[Object]", status.get("conditions") or [])
            counted["conditions"] = set_condition(conditions, spent, hub.clock.now()).conditions
        return {**live, "status": counted}

    if is_dry:
        taken(budget)
        return
    await edit_own(hub, served, served.key(request.info.namespace, name_of(budget)), taken)


def _problem_with(budget: Object) -> ApiError | None:
    """Return why a budget allows no disruption now."""
    name, status = name_of(budget), cast("Object", budget.get("status") or {})
    if int(status.get("observedGeneration") or 0) < int(metadata_of(budget).get("generation") or 0):
        return _still_processed(name)
    allowed = int(status.get("disruptionsAllowed") or 0)
    if allowed < 0:
        return statuses.forbidden(_BUDGET, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MOST_NAMED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return statuses.forbidden(_BUDGET, name, why)
    if allowed:
        return None
    conditions = cast("list[Object]", status.get("conditions") or [])
    said: Object = find_condition(conditions, "DisruptionAllowed") or {}
    message = str(said.get("message") or "") if said.get("status") == "False" else ""
    current, desired = (
        int(status.get("currentHealthy") or 0),
        int(status.get("desiredHealthy") or 0),
    )
    subject = f"The disruption budget {name}"
    if message and said.get("reason") == "SyncFailed":
        why = f"does not allow evicting pods currently because it failed sync: {message}"
    elif current <= desired:
        why = f"needs {desired} healthy pods and has {current} currently"
    elif message:
        why = f"does not allow evicting pods currently ({said.get('reason')}): {message}"
    else:
        why = "does not allow evicting pods currently"
    return _refusal(f"{subject} {why}", 0)


def _still_processed(name: str) -> TooManyRequests:
    why = f"The disruption budget {name} is still being processed by the server."
    return _refusal(why, _WAIT_SECONDS)


def _refusal(why: str, seconds: int) -> TooManyRequests:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    causes = (Cause("DisruptionBudget", why),)
    return TooManyRequests(message, Details(causes=causes, retry_after_seconds=seconds))


async def _remove(request: ResourceRequest, options: DeleteOptions) -> None:
    """Say in the pod why it goes, and delete it."""
    hub, served = request.hub, request.served
    if not options.dry_run:
        kind = served.info.group_kind

        def marked(pod: Object) -> Object:
            name, version = name_of(pod), resource_version_of(pod)
            if options.uid and options.uid != uid_of(pod):
                raise statuses.uid_conflict(kind, name, wanted=options.uid, actual=uid_of(pod))
            if options.resource_version and options.resource_version != version:
                raise statuses.version_conflict(
                    kind, name, wanted=options.resource_version, actual=version
                )
            why = Condition(
                "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting"
            )
            conditions = cast("list[Object]", find_at(pod, "status", "conditions") or [])
            updated = set_condition(conditions, why, hub.clock.now()).conditions
            # Kubernetes writes this field of a pod's conditions also when it is empty.
            full = [{"lastProbeTime": None, **each} for each in updated]
            return with_value(pod, full, "status", "conditions")

        entry = await edit_own(hub, served, request.key, marked)
        if entry is None:
            raise request.not_found()
        if options.resource_version:
            options = replace(options, resource_version=str(entry.mod_revision))
    await remove(hub, served, request.key, options, request.author)
