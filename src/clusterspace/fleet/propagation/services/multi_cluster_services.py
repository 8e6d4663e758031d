"""MultiClusterService: a Service on its providers and consumers, the endpoints of the first there.

    finalizer ──> orders to providers ──> Service claimed, its binding ──> endpoints to consumers
                                                                      ──> conditions, last

Works are removed only by a record that the hub itself confirms: the MultiClusterService that no
longer names a cluster, a provider's report that lacks a slice, a Cluster that is gone.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final
from uuid import uuid4

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.fleet_placements import is_placed, parent_of, placement_text
from clusterspace.apis.policies import OVERWRITE
from clusterspace.apis.services import (
    ENDPOINT_SLICE,
    MCS_FINALIZER,
    MCS_ID,
    MCS_NAME,
    MCS_NAMESPACE,
    MULTI_CLUSTER_SERVICES,
    SERVICES,
    SLICE_API_VERSION,
    Endpoints,
    consumers_of,
    exposed_ports,
    find_report,
    is_cross_cluster,
    providers_of,
)
from clusterspace.apis.works import (
    MULTI_CLUSTER_SERVICE,
    RESOURCE_BINDINGS,
    cluster_of,
    reference_to,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client, ListOptions
from clusterspace.controllers.commit import commit, ensure_finalizer, release
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import AlreadyExists
from clusterspace.fleet.propagation.bindings import (
    binding_path,
    is_own,
    new_binding,
    permanent_id,
    with_owner,
    without_claim,
)
from clusterspace.fleet.propagation.scheduler.filters import KnownClusters, has_new_traits
from clusterspace.fleet.propagation.services.dispatch import (
    BY_SERVICE,
    SERVICE_INDEXES,
    is_reported,
    marks_of,
    order_for,
    order_name,
    plan_dispatch,
    provider_of,
)
from clusterspace.fleet.propagation.works.rendering import (
    Change,
    KnownWorks,
    Outline,
    WorkWriter,
    plan_change,
)
from clusterspace.kube.conditions import FALSE, TRUE, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)

SERVICE_APPLIED: Final = "ServiceApplied"
DISPATCHED: Final = "EndpointSliceDispatched"
ALL_DISPATCHED: Final = "EndpointSliceDispatchedSucceed"
NOT_ALL_DISPATCHED: Final = "EndpointSliceDispatchedFailed"

SERVICE_SYNCED: Final = "SyncServiceSucceed"
SERVICE_NOT_SYNCED: Final = "SyncServiceFailed"
SLICES_DISPATCHED: Final = "DispatchEndpointSliceSucceed"
SLICES_NOT_DISPATCHED: Final = "DispatchEndpointSliceFailed"
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"
API_INCOMPATIBLE: Final = "APIIncompatible"

SETTLE_SECONDS: Final = 0.2
BEHIND_SECONDS: Final = 1.0
REFUSED_SECONDS: Final = 30.0

_BOUND: Final = "The Service is bound to the clusters that provide and consume it."
_SLICES: Final = (SLICE_API_VERSION, ENDPOINT_SLICE)


class MultiClusterServices(Reconciler):
    """Keeps Services and their endpoints where MultiClusterServices want them."""

    name = "multi-cluster-services"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        *,
        random: Random,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._random = random
        self._new_id = new_id
        self._wanted = caches.informer(MULTI_CLUSTER_SERVICES)
        self._services = caches.informer(SERVICES)
        self._clusters = caches.informer(CLUSTERS)
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._works = caches.informer(WORKS, indexes=SERVICE_INDEXES)
        self._candidates = caches.shared(KnownClusters)
        self._known = caches.shared(KnownWorks)
        self._writer = WorkWriter(hub, self._known)

    def watches(self) -> Iterable[Watch]:
        """Return the MultiClusterServices, and all that decides about their Works."""
        yield Watch(self._wanted, when=more_than_status_changed)
        yield Watch(self._services, to=self.itself_if_wanted)
        yield Watch(self._clusters, to=self.every_one, when=comes_or_goes)
        yield Watch(self._clusters, to=self.every_one, when=has_new_traits)
        yield Watch(self._bindings, to=service_of_binding, when=more_than_status_changed)
        yield Watch(self._works, to=service_of_work, settle_seconds=SETTLE_SECONDS)

    async def reconcile(self, request: Request) -> Result:
        """Bring one MultiClusterService, its Service and its Works to where they should be."""
        wanted = self._wanted.cache.find(request.key)
        if wanted is None:
            return Done()
        path = ResourcePath(MULTI_CLUSTER_SERVICES, request.namespace, request.name)
        if is_being_deleted(wanted):
            await self._withdraw(wanted)
            # Last: as long as any Work is there to be withdrawn, the MultiClusterService stays.
            await release(self._hub, path, wanted, MCS_FINALIZER)
            return Done()
        template = self._services.cache.find(request.key)
        if not is_cross_cluster(wanted):
            await self._write_status(path, wanted, template, ())
            return Done()

        wanted = await ensure_finalizer(self._hub, path, wanted, MCS_FINALIZER)
        present = {
            key for key, each in self._candidates.candidates().items() if not each.is_leaving
        }
        providers, consumers = providers_of(wanted, present), consumers_of(wanted, present)
        self._warn_of_clusters(wanted, "Provider", providers, present)
        self._warn_of_clusters(wanted, "Consumer", consumers - providers, present)

        reports = await self._ask(wanted, providers & present)
        conditions: list[Condition] = []
        is_refused = False
        if why := await self._place(wanted, template, providers | consumers):
            self._events.record(wanted, SERVICE_NOT_SYNCED, why, is_warning=True)
            conditions.append(Condition(SERVICE_APPLIED, FALSE, "ServiceAppliedFailed", why))
        else:
            message = "The Service goes to the clusters that provide and consume it."
            conditions.append(Condition(SERVICE_APPLIED, TRUE, "ServiceAppliedSucceed", message))
            ports = exposed_ports(wanted, template or {})
            plan = plan_dispatch(wanted, reports, consumers & present, ports, self._known.find)
            problems = [f"the name of {each} is taken" for each in plan.refused]
            problems += await self._write(plan.outlines)
            is_refused = bool(problems)
            if problems:
                why = "; ".join(problems)
                self._events.record(wanted, SLICES_NOT_DISPATCHED, why, is_warning=True)
                conditions.append(Condition(DISPATCHED, FALSE, NOT_ALL_DISPATCHED, why[:8192]))
            elif any(each is not None for each in reports.values()):
                message = "What providers report is with the consumers."
                conditions.append(Condition(DISPATCHED, TRUE, ALL_DISPATCHED, message))
            kept = {each.key for each in plan.outlines}
            if not await self._remove_stale(wanted, reports, consumers & present, kept):
                return RequeueAfter(BEHIND_SECONDS)
        await self._write_status(path, wanted, template, conditions)
        return RequeueAfter(REFUSED_SECONDS) if is_refused else Done()

    async def _ask(
        self, wanted: Object, providers: Iterable[str]
    ) -> Mapping[str, Endpoints | None]:
        """Have an order with every provider; return what each reported, None for nothing yet."""
        orders = {each: order_for(wanted, each) for each in sorted(providers)}
        await self._write(orders.values())
        works = {each: self._known.find(order.key) for each, order in orders.items()}
        return {
            each: None if work is None or is_being_deleted(work) else find_report(work)
            for each, work in works.items()
        }

    async def _write(self, outlines: Iterable[Outline]) -> list[str]:
        """Write the Works of outlines; return why some are not there."""
        changes: list[Change] = []
        for outline in outlines:
            existing = self._known.find(outline.key)
            if existing is not None and is_being_deleted(existing):
                continue  # waited for, and made anew when it is gone
            change = plan_change(outline, existing, self._new_id)
            changes += [change] if change.is_needed else []
        written = await self._writer.write(changes)
        return [f"{each.cluster}: {each.message}" for each in written.failures]

    async def _place(self, wanted: Object, template: Object | None, clusters: Iterable[str]) -> str:
        """Claim the Service and bind it to the clusters; return why that cannot be."""
        if template is None or is_being_deleted(template):
            return f'services "{name_of(wanted)}" not found'
        path = binding_path(template)
        binding = self._bindings.cache.find(path.key)
        if binding is not None and is_placed(binding):
            return f"{placement_text(parent_of(binding))} places the Service"
        # The claim first: from then on no policy writes to the binding. Killed in between, a
        # Service has our marks and an old binding, and the next attempt goes on from here.
        place = resource_path_of(SERVICES, template)
        template = await commit(self._hub, place, template, claimed(template, wanted))
        if binding is None:
            empty = new_binding(template, permanent_id(self._random))
            desired = bound(empty, template, wanted, clusters)
            try:
                await self._hub.create(path.collection, desired)
            except AlreadyExists:
                binding = await self._hub.get(path)  # our cache did not know of it yet
            else:
                self._events.record(wanted, SERVICE_SYNCED, _BOUND, is_routine=True)
                return ""
        if is_being_deleted(binding) or not is_own(binding, template):
            return f"{path} is of an earlier Service, which must go first"
        desired = bound(binding, template, wanted, clusters)
        if await commit(self._hub, path, binding, desired) is not desired:
            self._events.record(wanted, SERVICE_SYNCED, _BOUND, is_routine=True)
        return ""

    async def _remove_stale(
        self,
        wanted: Object,
        reports: Mapping[str, Endpoints | None],
        consumers: frozenset[str],
        kept: set[str],
    ) -> bool:
        """Remove Works that are no longer called for; False when our caches are behind."""
        key = key_of(namespace_of(wanted), name_of(wanted))
        stale: list[Object] = []
        for work in self._known.objects_at(BY_SERVICE, key):
            provider, cluster = provider_of(work), cluster_of(work)
            if is_being_deleted(work) or key_of(namespace_of(work), name_of(work)) in kept:
                continue
            if not provider:
                is_stale = cluster not in reports
            else:
                # Of a provider that has said nothing since it was asked, all stays as it was.
                is_silent = provider in reports and reports[provider] is None
                is_stale = not (is_silent and cluster in consumers)
            stale += [work] if is_stale else []
        if not stale:
            return True
        live = await self._hub.find(resource_path_of(MULTI_CLUSTER_SERVICES, wanted))
        if live is None or uid_of(live) != uid_of(wanted) or live.get("spec") != wanted.get("spec"):
            return False
        is_up_to_date = True
        for work in stale:
            if await self._is_needed(work, reports, consumers):
                is_up_to_date = False
                continue
            await self._writer.remove(work, is_preserved=False, is_asked=True)
        return is_up_to_date

    async def _is_needed(
        self, work: Object, reports: Mapping[str, Endpoints | None], consumers: frozenset[str]
    ) -> bool:
        """Whether the hub, asked now, knows why a Work is there that our caches call stale."""
        provider, cluster = provider_of(work), cluster_of(work)
        for name, known in ((cluster, consumers if provider else reports), (provider, reports)):
            if not name or name in known or self._clusters.cache.find(name) is not None:
                continue
            # Not named, or not there? A Cluster that a cache lacks may be there all the same.
            found = await self._hub.find(ResourcePath(CLUSTERS, "", name))
            if found is not None and not is_being_deleted(found):
                return True
        if not provider or provider not in reports or cluster not in consumers:
            return False
        labels = labels_of(work)
        order = order_name(labels[MCS_NAMESPACE], labels[MCS_NAME])
        asked = await self._writer.find(provider, order)
        if asked is None or is_being_deleted(asked):
            return False
        report = find_report(asked)
        return report is None or is_reported(work, provider, report)

    async def _withdraw(self, wanted: Object) -> None:
        """Remove the Works of a MultiClusterService that goes, and give its Service back.

        The Service stays where it is, as it does when a policy goes.
        """
        pairs = (f"{key}={value}" for key, value in sorted(marks_of(wanted).items()))
        selection = ListOptions(label_selector=",".join(pairs))
        for work in await self._hub.list_objects(ResourcePath(WORKS), selection):
            if not is_being_deleted(work):
                await self._writer.remove(work, is_preserved=False, is_asked=True)
        place = ResourcePath(SERVICES, namespace_of(wanted), name_of(wanted))
        template = await self._hub.find(place)
        if template is None:
            return
        path = binding_path(template)
        binding = await self._hub.find(path)
        if binding is not None and labels_of(binding).get(stamps.BINDING_MANAGED_BY) == (
            MULTI_CLUSTER_SERVICE
        ):
            await commit(self._hub, path, binding, unmarked(binding))
        if labels_of(template).get(stamps.TEMPLATE_CLAIMED_BY) == MULTI_CLUSTER_SERVICE:
            await commit(self._hub, place, template, unmarked(template))

    def _warn_of_clusters(
        self, wanted: Object, role: str, named: Iterable[str], present: Iterable[str]
    ) -> None:
        candidates = self._candidates.candidates()
        for name in sorted(named):
            if name not in present:
                message = f"{role} cluster {name} is not there"
                self._events.record(wanted, CLUSTER_NOT_FOUND, message, is_warning=True)
            elif candidates[name].served and _SLICES not in candidates[name].served:
                message = f"{role} cluster {name} serves no EndpointSlices"
                self._events.record(wanted, API_INCOMPATIBLE, message, is_warning=True)

    async def _write_status(
        self,
        path: ResourcePath,
        wanted: Object,
        template: Object | None,
        conditions: Iterable[Condition],
    ) -> None:
        status: Object = {**(wanted.get("status") or {})}
        listed: list[Object] = list(status.get("conditions") or [])
        before = listed
        for each in conditions:
            listed = set_condition(listed, each, self._clock.now()).conditions
        if listed:
            status["conditions"] = listed
        ingress = find_at(template, "status", "loadBalancer", "ingress")
        if ingress:
            # Summed up over the clusters already, on the Service. Of a Service without any, the
            # status is left to whoever makes load balancers for several clusters.
            status["loadBalancer"] = {"ingress": ingress}
        await commit(self._hub, path, wanted, {**wanted, "status": status})
        if listed != before and any(
            each.type == DISPATCHED and each.status == TRUE for each in conditions
        ):
            message = "Endpoints of the providers are with the consumers."
            self._events.record(wanted, SLICES_DISPATCHED, message, is_routine=True)

    def itself_if_wanted(self, update: Update) -> Iterable[Request]:
        """Map a Service to the MultiClusterService of its name, if there is one."""
        return (request_for(update.key),) if update.key in self._wanted.cache else ()

    def every_one(self, _: Update) -> Iterable[Request]:
        """Map a change to all MultiClusterServices."""
        return [request_for(key) for key in self._wanted.cache]


# -- what is written on the Service and its binding -----------------------------------------------

_MARKS: Final = frozenset({MCS_ID, stamps.TEMPLATE_CLAIMED_BY, stamps.BINDING_MANAGED_BY})
_NAMES: Final = frozenset({MCS_NAME, MCS_NAMESPACE})


def claimed(template: Object, wanted: Object) -> Object:
    """Return a Service that follows a MultiClusterService, and no policy."""
    free = without_claim(template)
    labels = {**labels_of(free), stamps.TEMPLATE_CLAIMED_BY: MULTI_CLUSTER_SERVICE}
    return _marked(with_metadata(free, labels=labels), wanted)


def bound(binding: Object, template: Object, wanted: Object, clusters: Iterable[str]) -> Object:
    """Return the binding of a Service, on these clusters; what is there is taken over."""
    free = with_owner(without_claim(binding), template)
    labels = {**labels_of(free), stamps.BINDING_MANAGED_BY: MULTI_CLUSTER_SERVICE}
    current: Object = binding.get("spec") or {}
    spec: Object = {
        **current,
        "resource": reference_to(template),
        "placement": {"clusterAffinity": {"clusterNames": sorted(clusters)}},
        "conflictResolution": OVERWRITE,
    }
    return {**_marked(with_metadata(free, labels=labels), wanted), "spec": spec}


def _marked(kube_object: Object, wanted: Object) -> Object:
    labels = {**labels_of(kube_object), MCS_ID: labels_of(wanted).get(MCS_ID, "")}
    annotations = {**annotations_of(kube_object), **marks_of(wanted)}
    return with_metadata(kube_object, labels=labels, annotations=annotations)


def unmarked(kube_object: Object) -> Object:
    """Return a Service or binding that follows no MultiClusterService."""
    labels = {key: each for key, each in labels_of(kube_object).items() if key not in _MARKS}
    kept = {key: each for key, each in annotations_of(kube_object).items() if key not in _NAMES}
    return with_metadata(kube_object, labels=labels or None, annotations=kept or None)


# -- what concerns which --------------------------------------------------------------------------


def comes_or_goes(update: Update) -> bool:
    """Whether a Cluster is new, is leaving, or is gone."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return True
    return is_being_deleted(before) != is_being_deleted(after)


def service_of_binding(update: Update) -> Iterable[Request]:
    """Map a binding that is gone, or was changed by others, to its MultiClusterService."""
    before = update.decode_before()
    if before is None or labels_of(before).get(stamps.BINDING_MANAGED_BY) != MULTI_CLUSTER_SERVICE:
        return ()
    annotations = annotations_of(before)
    return (Request(annotations.get(MCS_NAME, ""), annotations.get(MCS_NAMESPACE, "")),)


def service_of_work(update: Update) -> Iterable[Request]:
    """Map a Work to the MultiClusterService it is of; how dispatching goes does not matter."""
    before, after = update.decode_before() or {}, update.decode_after() or {}
    is_same = before.get("spec") == after.get("spec")
    if is_same and before.get("status") != after.get("status") and provider_of(after):
        return ()
    labels = labels_of(after) or labels_of(before)
    name, namespace = labels.get(MCS_NAME), labels.get(MCS_NAMESPACE)
    return (Request(name, namespace),) if name and namespace else ()
