"""Works back to binding back to template: what clusters report, where people look for it.

    Works ──settle──> reports ──> template status ──> binding aggregatedStatus, FullyApplied

The binding is written last: what it says has been shown on the template, so a crash between the
two is noticed and made good, and a binding that is up to date costs nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, EXECUTION_PREFIX, WORKS, is_pull
from clusterspace.apis.interpreter.reports import Reports
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    Report,
    binding_key_of,
    report_of,
    template_of,
)
from clusterspace.client.requests import resource_path_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
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
from clusterspace.errors import InterpretationFailed
from clusterspace.fleet.interpretation.interpreter import RETRY_SECONDS, Interpreter
from clusterspace.fleet.propagation.bindings import kept_clusters, targets_of
from clusterspace.fleet.propagation.templates import (
    TemplateInformers,
    find_live_template,
    why_not_carried_here,
)
from clusterspace.fleet.propagation.works.rendering import BY_BINDING, WORK_INDEXES
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import Object, find_at, is_being_deleted

SETTLE_SECONDS: Final = 0.2
"""How long to wait for the other clusters: they answer at about the same time, mostly."""

PATIENCE_SECONDS: Final = 1.0
"""How long to wait for clusters that have said nothing at all yet: a hundred are one write then."""

FULLY_APPLIED: Final = "FullyApplied"
SYNC_FAILED: Final = "SyncFailed"
SYNC_SUCCEED: Final = "SyncSucceed"
AGGREGATED: Final = "AggregateStatusSucceed"
NOT_AGGREGATED: Final = "AggregateStatusFailed"
_ALL_APPLIED: Final = Condition(
    FULLY_APPLIED, TRUE, "FullyAppliedSuccess", "All works have been successfully applied"
)
_NOT_ALL_APPLIED: Final = Condition(
    FULLY_APPLIED,
    FALSE,
    "FullyAppliedFailed",
    "Failed to apply all works, see status.aggregatedStatus for details",
)
"""Karmada's words: its tools show them, and its users search for them."""


class _Metadata(msgspec.Struct, gc=False):
    namespace: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: list[msgspec.Raw] | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata
    status: _Status | None = None


_head_decoder: Final = msgspec.json.Decoder(_Head)


class Patience:
    """How much longer each binding waits for clusters that are silent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits_since: dict[Request, float] = {}

    def left(self, request: Request) -> float:
        """Return for how many seconds to wait, counted from the first call for this request."""
        now = self._clock.monotonic()
        return self._waits_since.setdefault(request, now) + PATIENCE_SECONDS - now

    def end(self, request: Request) -> None:
        """Wait no longer; the next wait is a whole one."""
        self._waits_since.pop(request, None)


class BindingStatuses(Reconciler):
    """Shows on bindings and templates what their Works report."""

    name = "statuses"
    workers = 16

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._cluster_bindings = caches.informer(CLUSTER_RESOURCE_BINDINGS)
        self._works = caches.informer(WORKS, indexes=WORK_INDEXES)
        self._clusters = caches.informer(CLUSTERS)
        self._templates = caches.shared(TemplateInformers)
        self._interpreter = caches.shared(Interpreter)
        self._patience = Patience(clock)
        self._withdrawn: dict[Request, Object] = {}
        """Bindings that went, until their templates have been told."""
        self._unshown: set[Request] = set()
        """Bindings that are up to date, and their templates may not be.

        Whoever sums up their kind failed, or has changed. To a new process every customization is
        new, so what one that was killed had in here is in here again.
        """

    def watches(self) -> Iterable[Watch]:
        """Return bindings and their Works; a burst of reports is one attempt."""
        for bindings in (self._bindings, self._cluster_bindings):
            yield Watch(
                bindings,
                to=self.itself_also_when_gone,
                when=more_than_status_changed,
                settle_seconds=SETTLE_SECONDS,
            )
        yield Watch(self._works, to=binding_of_reporting, settle_seconds=SETTLE_SECONDS)
        for interpreters in self._interpreter.informers:
            yield Watch(interpreters, to=self.bindings_interpreted)

    async def reconcile(self, request: Request) -> Result:
        """Bring the status of one binding, and of its template, to what is reported."""
        informer = self._bindings if request.namespace else self._cluster_bindings
        binding = informer.cache.find(request.key)
        works = self._works.cache
        gone = self._withdrawn.pop(request, None)
        if binding is None or is_being_deleted(binding):
            await self._show_withdrawn(request, gone if binding is None else binding)
            return Done()
        raw = (works.find_raw(key) for key in works.keys_at(BY_BINDING, request.key))
        # Clusters answer one after the other. Written at the first answer, a binding to a hundred
        # clusters would be written a hundred times, and its template as well.
        if not kept_clusters(binding) <= reporting_clusters(each for each in raw if each):
            left = self._patience.left(request)
            if left > 0:
                return RequeueAfter(left)
        self._patience.end(request)

        reports = reports_in(works.objects_at(BY_BINDING, request.key))
        desired = with_reports(binding, reports, self._clock.now())
        is_unshown = request in self._unshown
        self._unshown.discard(request)
        if desired == binding and not is_unshown:
            return Done()
        # The template first. Killed between the two writes, the binding still differs from the
        # reports, and the next attempt writes both; the other way round nobody would come back
        # to the template, because a binding that is up to date is not looked at any further.
        result: Result = Done()
        try:
            await self._show_on_template(binding, reports)
        except InterpretationFailed as failure:
            # The template keeps what it shows. What clusters report is on the binding in any case.
            self._unshown.add(request)
            result = RequeueAfter(RETRY_SECONDS)
            for about in (binding, template_of(binding).outline):
                self._events.record(about, NOT_AGGREGATED, str(failure), is_warning=True)
        except BaseException:
            if is_unshown:
                self._unshown.add(request)
            raise
        if desired == binding:
            return result
        await commit(self._hub, informer.path.at(request.key), binding, desired)
        self._record_changes(binding, reports)
        return result

    def _record_changes(self, binding: Object, reports: Sequence[Report]) -> None:
        """Record Events about what a binding did not show before."""
        message = "Update the aggregated status of the binding successfully."
        self._events.record(binding, AGGREGATED, message, is_routine=True)
        template = template_of(binding).outline
        is_own = not why_not_carried_here(self._templates, binding)

        def records_for_agent(cluster_name: str) -> bool:
            # Agents may write no events about templates, so it is done for them. Looked up for
            # what is new alone: a status is written often, and of many clusters.
            cluster = self._clusters.cache.find(cluster_name) if is_own else None
            return cluster is not None and is_pull(cluster)

        for each in new_problems(binding, reports):
            message = f"cluster({each.cluster}): {each.message}"
            self._events.record(binding, SYNC_FAILED, message, is_warning=True)
            if records_for_agent(each.cluster):
                self._events.record(template, SYNC_FAILED, message, is_warning=True)
        for each in newly_applied(binding, reports):
            if records_for_agent(each.cluster):
                message = f"cluster({each.cluster}): successfully applied"
                self._events.record(template, SYNC_SUCCEED, message, is_routine=True)

    async def _show_withdrawn(self, request: Request, binding: Object | None) -> None:
        # A template that is placed no longer must not go on telling of copies that went. Works
        # go one by one with a binding, and the last of them may go just before it: whoever is
        # killed in between leaves the template with what was told before.
        self._patience.end(request)
        self._unshown.discard(request)
        if binding is None:
            return
        reports = reports_in(self._works.cache.objects_at(BY_BINDING, request.key))
        try:
            await self._show_on_template(binding, reports, is_withdrawn=True)
        except InterpretationFailed as failure:
            about = template_of(binding).outline
            self._events.record(about, NOT_AGGREGATED, str(failure), is_warning=True)

    def bindings_interpreted(self, update: Update) -> Iterable[Request]:
        """Map a customization or a webhook to the bindings of the kinds it speaks of."""
        concerned = self._templates.bindings_of_kinds(
            lambda kind: self._interpreter.concerns(update, kind)
        )
        self._unshown.update(concerned)
        return concerned

    def itself_also_when_gone(self, update: Update) -> Iterable[Request]:
        """Map a binding to itself, and remember one that went."""
        request = request_for(update.key)
        if update.is_deletion and (before := update.decode_before()) is not None:
            self._withdrawn[request] = before
        return (request,)

    async def _show_on_template(
        self, binding: Object, reports: Sequence[Report], *, is_withdrawn: bool = False
    ) -> None:
        """Write the aggregated status of the template, read live: others write to it as well."""
        reference = template_of(binding)
        if not self._interpreter.aggregates(reference.group_version_kind):
            return
        if why_not_carried_here(self._templates, binding):
            return  # who writes a binding by hand could write statuses everywhere
        # Users, autoscalers and the controllers of other clusters write templates all day, and
        # the cache lags: planned on the live version, hardly any write conflicts.
        live = await find_live_template(self._hub, self._templates, reference)
        info = self._templates.find_info(reference.group_version_kind)
        if live is None or info is None:
            return
        targets = [each.name for each in targets_of(binding)] if not is_withdrawn else []
        missing = sorted({*targets} - {each.cluster for each in reports})
        received = Reports(tuple(reports), due=len(targets), missing=tuple(missing))
        items = map(item_of, reports)
        shown = {**live, "status": await self._interpreter.aggregated(live, received, items)}
        path = resource_path_of(info.group_version_resource, live)
        if await commit(self._hub, path, live, shown) is not shown:
            message = "Update the status of the template from its clusters successfully."
            self._events.record(live, AGGREGATED, message, is_routine=True)


def binding_of_reporting(update: Update) -> Iterable[Request]:
    """Map a Work of which something new is known to its binding."""
    before, after = update.decode_before(), update.decode_after()
    if before is not None and after is not None:
        is_same_status = before.get("status") == after.get("status")
        if is_same_status and is_being_deleted(before) == is_being_deleted(after):
            return ()
    key = binding_key_of(after or before or {})
    return (request_for(key),) if key else ()


def reporting_clusters(works: Iterable[bytes]) -> frozenset[str]:
    """Return the clusters that have reported something, be it a refusal.

    Works are not decoded whole: this runs over and over while clusters report one by one.
    """
    heads = map(_head_decoder.decode, works)
    return frozenset(
        head.metadata.namespace.removeprefix(EXECUTION_PREFIX)
        for head in heads
        if head.status is not None and head.status.conditions
    )


def reports_in(works: Sequence[Object]) -> tuple[Report, ...]:
    """Return the reports of Works, in the order of clusters; Works being deleted are left out."""
    reports = (report_of(work) for work in works if not is_being_deleted(work))
    return tuple(sorted(reports, key=lambda report: report.cluster))


def with_reports(binding: Object, reports: Sequence[Report], now: float) -> Object:
    """Return the binding with the reports in its status; the same one when they say nothing new."""
    status: Object = binding.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    if not reports and find_condition(conditions, FULLY_APPLIED) is None:
        # Nothing was ever sent anywhere: there is nothing to be told about it.
        return binding
    condition = _ALL_APPLIED if is_fully_applied(binding, reports) else _NOT_ALL_APPLIED
    changed = set_condition(conditions, condition, now)
    items = [item_of(report) for report in reports]
    if not changed.is_changed and items == (status.get("aggregatedStatus") or []):
        return binding
    kept = {key: value for key, value in status.items() if key != "aggregatedStatus"}
    aggregated = {"aggregatedStatus": items} if items else {}
    return {**binding, "status": {**kept, **aggregated, "conditions": changed.conditions}}


def new_problems(binding: Object, reports: Sequence[Report]) -> list[Report]:
    """Return the reports of trouble that the binding does not show yet."""
    shown: list[Object] = find_at(binding, "status", "aggregatedStatus") or []
    known = {(each.get("clusterName"), each.get("appliedMessage")) for each in shown}
    return [each for each in reports if each.message and (each.cluster, each.message) not in known]


def newly_applied(binding: Object, reports: Sequence[Report]) -> list[Report]:
    """Return the reports of success that the binding does not show yet."""
    shown: list[Object] = find_at(binding, "status", "aggregatedStatus") or []
    known = {each.get("clusterName") for each in shown if each.get("applied")}
    return [each for each in reports if each.is_applied and each.cluster not in known]


def item_of(report: Report) -> Object:
    """Return one cluster's entry of `aggregatedStatus`; what is empty is left out."""
    item: Object = {"clusterName": report.cluster, "health": report.health}
    if report.is_applied:
        item["applied"] = True
    if report.message:
        item["appliedMessage"] = report.message
    if report.status is not None:
        item["status"] = report.status
    return item


def is_fully_applied(binding: Object, reports: Sequence[Report]) -> bool:
    """Whether every cluster that is to have the object has it."""
    applied = frozenset(report.cluster for report in reports if report.is_applied)
    due = kept_clusters(binding)
    return bool(due) and due == applied and len(reports) == len(applied)
