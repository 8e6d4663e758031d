"""FederatedResourceQuotas: a ResourceQuota for each cluster they name, and what is taken of them.

    quota ──staticAssignments──> one Work per cluster ──> (members) ──> status.aggregatedStatus
    bindings of its namespace ──what they take──> status.overallUsed

Admission counts what comes (apiserver/admission/federated_quotas.py), and counts it before it is
stored; here is counted what goes, what was there before, and what came to nothing. Works are found
by their labels, since an owner in another namespace would not be one: those of a quota that is gone
are removed after a live look, also when it went while nobody led.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import uuid4

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.quotas import (
    FEDERATED_RESOURCE_QUOTAS,
    KIND,
    NAME_LABEL,
    NAMESPACE_LABEL,
    Amounts,
    amounts_at,
    assignments_of,
    taken_by,
)
from clusterspace.apis.works import (
    RESOURCE_BINDINGS,
    binding_key_of,
    cluster_of,
    is_reserved_namespace,
    manifests_of,
    report_of,
)
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.fleet.propagation.scheduler.filters import KnownClusters, has_new_traits
from clusterspace.fleet.propagation.works.rendering import (
    SYNC_FAILED,
    Change,
    Failure,
    KnownWorks,
    Outline,
    WorkWriter,
    plan_change,
)
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.quantities import ZERO, Quantity

_log = structlog.get_logger(__name__)

SYNCED: Final = "SyncWorkSucceed"
COLLECTED: Final = "AggregateStatusSucceed"
COUNTED: Final = "CollectOverallStatusSucceed"
UNCOUNTED: Final = "CollectOverallStatusFailed"

SETTLE_SECONDS: Final = 2.0
"""How long a quota must have been left alone before less is counted than it says: a binding that
was counted is stored within that time, and seen by our cache, or never."""

_REFUSED_SECONDS: Final = 30.0
_RESOURCE_QUOTA: Final = "ResourceQuota"


def quota_work_of(work: Object) -> tuple[str, str] | None:
    """Return namespace and name of the quota that a Work is of; None for any other Work.

    Labels can be written by whoever writes Works: what a binding has, and what holds anything but
    the ResourceQuota of that name, is not a quota's and never removed as one.
    """
    labels = labels_of(work)
    named = labels.get(NAMESPACE_LABEL, ""), labels.get(NAME_LABEL, "")
    holds = [(each.get("kind"), namespace_of(each), name_of(each)) for each in manifests_of(work)]
    is_one = all(named) and not binding_key_of(work) and holds == [(_RESOURCE_QUOTA, *named)]
    return named if is_one else None


BY_QUOTA: Final = "quota"
_MARK: Final = NAME_LABEL.encode()


def by_quota(work: Object) -> Iterable[str]:
    """Index Works by the key of the quota that they are of."""
    named = quota_work_of(work)
    return () if named is None else (key_of(*named),)


def quota_of(update: Update) -> Iterable[Request]:
    """Map a Work to the quota that it is of."""
    # Works are many and change all the time, those of quotas are few: most are not decoded.
    if _MARK not in (update.after or update.before or b""):
        return ()
    named = quota_work_of(update.decode_after() or update.decode_before() or {})
    return () if named is None else (Request(named[1], named[0]),)


def outline_for_quota(quota: Object, cluster: str, hard: Object) -> Outline:
    """Return the Work that limits a quota's namespace on one cluster."""
    named = {"namespace": namespace_of(quota), "name": name_of(quota)}
    manifest: Object = {
        "apiVersion": "v1",
        "kind": _RESOURCE_QUOTA,
        "metadata": {**named, "uid": uid_of(quota)},
        "spec": {"hard": hard},
    }
    labels = {NAMESPACE_LABEL: named["namespace"], NAME_LABEL: named["name"]}
    return Outline(cluster=cluster, template=manifest, manifest=manifest, labels=labels)


def aggregated(works: Iterable[Object]) -> list[Object]:
    """Return what each cluster says of its part, in the order of their names."""
    reports = (report_of(each) for each in works)
    return [
        {"clusterName": each.cluster, **{k: each.status[k] for k in _REPORTED if k in each.status}}
        for each in sorted(reports, key=lambda report: report.cluster)
        if each.is_applied and each.status is not None
    ]


_REPORTED: Final = ("hard", "used")


def plan_used(used: Amounts, counted: Amounts, *, may_shrink: bool) -> dict[str, Quantity]:
    """Return what a quota is to say is taken: never less than is stored or on its way there."""
    if may_shrink:
        return dict(counted)
    return {
        name: max(used.get(name, ZERO), counted.get(name, ZERO)) for name in {**used, **counted}
    }


class FederatedQuotas(Reconciler):
    """Keeps the Works and the status of FederatedResourceQuotas."""

    name = "federated-resource-quotas"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        *,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._new_id = new_id
        self._quotas = caches.informer(FEDERATED_RESOURCE_QUOTAS)
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._works = caches.informer(WORKS, indexes={BY_QUOTA: by_quota})
        self._clusters = caches.informer(CLUSTERS)
        self._candidates = caches.shared(KnownClusters)
        self._known = caches.shared(KnownWorks)
        self._writer = WorkWriter(hub, self._known)
        self._unchanged: dict[Request, tuple[str, float]] = {}
        """At which version a quota says too much, and since when it has been at it."""

    def watches(self) -> Iterable[Watch]:
        """Return quotas, their Works, the clusters they name, and the bindings they count."""
        yield Watch(self._quotas)
        yield Watch(self._works, to=quota_of)
        yield Watch(self._clusters, to=self.all_quotas, when=has_new_traits)
        yield Watch(self._bindings, to=self.quotas_counting, settle_seconds=0.1)

    async def reconcile(self, request: Request) -> Result:
        """Bring the Works of one quota to where they should be, then count and collect."""
        path = ResourcePath(FEDERATED_RESOURCE_QUOTAS, request.namespace, request.name)
        # Live: what is assigned to nobody any more is removed, and admission writes the status.
        quota = await self._hub.find(path)
        if quota is not None and is_being_deleted(quota):
            return Done()
        if quota is None:
            self._unchanged.pop(request, None)
        written = await self._sync(request, quota)
        if quota is None:
            return Done()
        for failure in written:
            message = f"{failure.cluster}: {failure.message}"
            self._events.record(quota, failure.reason, message, is_warning=True)
        counting = await self._count(path, request, quota)
        return RequeueAfter(_REFUSED_SECONDS) if written and counting == Done() else counting

    async def _sync(self, request: Request, quota: Object | None) -> tuple[Failure, ...]:
        assigned = {} if quota is None else assignments_of(quota)
        if quota is not None and assigned and is_reserved_namespace(request.namespace):
            why = f"namespace {request.namespace} belongs to the control plane"
            return tuple(Failure(cluster, SYNC_FAILED, why) for cluster in assigned)
        changes: list[Change] = []
        failures: list[Failure] = []
        for cluster in self._candidates.candidates().values():
            if quota is None or cluster.is_leaving or cluster.name not in assigned:
                continue
            outline = outline_for_quota(quota, cluster.name, assigned[cluster.name])
            existing = self._known.find(outline.key)
            if existing is not None and is_being_deleted(existing):
                continue  # made anew when it is gone: its end wakes us
            if existing is not None and quota_work_of(existing) is None:
                why = f"Work {outline.key} is of {binding_key_of(existing) or 'somebody else'}"
                failures.append(Failure(cluster.name, SYNC_FAILED, why))
                continue
            change = plan_change(outline, existing, self._new_id)
            if change.is_needed:
                changes.append(change)
        written = await self._writer.write(changes)
        for work in self._works_of(request):
            if cluster_of(work) not in assigned and not is_being_deleted(work):
                # Somebody deleted the quota, or took the cluster out of it: it is asked for.
                await self._writer.remove(work, is_preserved=False, is_asked=True)
        if quota is not None and written.clusters:
            message = f"Sync works for {KIND}({request.key}) succeed."
            self._events.record(quota, SYNCED, message)
        return (*failures, *written.failures)

    async def _count(self, path: ResourcePath, request: Request, quota: Object) -> Result:
        overall: Mapping[str, Any] = find_at(quota, "spec", "overall") or {}
        counted: dict[str, Quantity] = {}
        inside = f"{request.namespace}/"
        for key in self._bindings.cache:
            binding = self._bindings.cache.find(key) if key.startswith(inside) else None
            for name, amount in taken_by(binding or {}, overall).items():
                counted[name] = counted.get(name, ZERO) + amount
        said = find_at(quota, "status", "overallUsed") is not None
        used = {k: v for k, v in amounts_at(quota, "status", "overallUsed").items() if k in overall}
        # What admission counted may not be stored yet, and what is stored may not be in our cache.
        # Every such write has changed the quota a moment ago. So less is written only when nobody
        # has changed it for a while, by the version that was seen then; who keeps writing to it
        # finds room, and needs none given back.
        is_less = any(amount > counted.get(name, ZERO) for name, amount in used.items())
        version, now = resource_version_of(quota), self._clock.monotonic()
        seen, since = self._unchanged.get(request, ("", now))
        if seen != version:
            since = now
        is_settled = is_less and now - since >= SETTLE_SECONDS and not self._bindings.is_stale
        planned = plan_used(used, counted, may_shrink=is_settled or not said)
        before: Object = quota.get("status") or {}
        status: Object = {
            **before,
            "overall": overall,
            "overallUsed": {name: str(amount) for name, amount in sorted(planned.items())},
        }
        if planned == used and said:
            status["overallUsed"] = before["overallUsed"]  # the same amounts, however written
        works = self._works_of(request)
        if reported := aggregated(each for each in works if not is_being_deleted(each)):
            status["aggregatedStatus"] = reported
        else:
            status.pop("aggregatedStatus", None)
        with self._events.reporting_failure(quota, UNCOUNTED):
            stored = await commit(self._hub, path, quota, {**quota, "status": status})
        if status.get("aggregatedStatus") != before.get("aggregatedStatus"):
            message = f"Collect status of {KIND}({request.key}) succeed."
            self._events.record(stored, COLLECTED, message)
        if any(status[key] != before.get(key) for key in ("overall", "overallUsed")):
            message = f"Collect status of {KIND}({request.key}) succeed."
            self._events.record(stored, COUNTED, message)
        if not is_less or is_settled:
            self._unchanged.pop(request, None)
            return Done()
        if resource_version_of(stored) != version:
            since = now
        self._unchanged[request] = resource_version_of(stored), since
        return RequeueAfter(max(SETTLE_SECONDS - (now - since), 0.1))

    def _works_of(self, request: Request) -> list[Object]:
        return self._known.objects_at(BY_QUOTA, request.key)

    def all_quotas(self, _: Update) -> Iterable[Request]:
        """Map a cluster that is new to all quotas: one of them may name it."""
        return [request_for(key) for key in self._quotas.cache]

    def quotas_counting(self, update: Update) -> Iterable[Request]:
        """Map a binding that takes more or less than before to the quotas of its namespace."""
        inside = f"{update.key.partition('/')[0]}/"
        counting = [key for key in self._quotas.cache if key.startswith(inside)]
        if not counting:
            return ()
        before, after = update.decode_before() or {}, update.decode_after() or {}
        is_same = find_at(before, "spec", "clusters") == find_at(after, "spec", "clusters") and (
            find_at(before, "spec", "replicaRequirements")
            == find_at(after, "spec", "replicaRequirements")
        )
        return () if is_same and before and after else [request_for(key) for key in counting]
