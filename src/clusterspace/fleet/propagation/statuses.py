"""Works back to binding back to template: what clusters report, where people look for it.

    Works ──settle──> reports ──> template status ──> binding aggregatedStatus, FullyApplied

The binding is written last: what it says has been shown on the template, so a crash between the
two is noticed and made good, and a binding that is up to date costs nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apis.bindings import resource_for, template_of
from clusterspace.apis.clusters import EXECUTION_PREFIX, is_pull
from clusterspace.apis.interpreter.aggregation import Reports, aggregated_status, is_aggregated
from clusterspace.apis.works import Report, report_of
from clusterspace.client.places import Place, place_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.controllers.informers import Informer
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter
from clusterspace.fleet.propagation.targets import kept_clusters, targets_of
from clusterspace.fleet.propagation.works.known_works import BY_BINDING
from clusterspace.fleet.propagation.works.sources import (
    Templates,
    find_live_template,
    why_not_carried_here,
)
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import Object, find_at

SETTLE_SECONDS: Final = 0.2
"""How long to wait for the other clusters: they answer at about the same time, mostly."""

PATIENCE_SECONDS: Final = 1.0
"""How long to wait for clusters that have said nothing at all yet: a hundred are one write then."""

FULLY_APPLIED: Final = "FullyApplied"
SYNC_FAILED: Final = "SyncFailed"
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


@dataclass(frozen=True, slots=True)
class StatusSources:
    """The caches that say what clusters report, and of what."""

    bindings: Informer
    cluster_bindings: Informer
    works: Informer
    clusters: Informer
    templates: Templates


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
        """Return for how many seconds to wait, counted from when this was first asked."""
        now = self._clock.monotonic()
        return self._waits_since.setdefault(request, now) + PATIENCE_SECONDS - now

    def end(self, request: Request) -> None:
        """Wait no longer; the next wait is a whole one."""
        self._waits_since.pop(request, None)


class BindingStatuses:
    """Shows on bindings and templates what their Works report."""

    def __init__(
        self, hub_client: Client, sources: StatusSources, events: EventRecorder, *, clock: Clock
    ) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._events = events
        self._clock = clock
        self._patience = Patience(clock)

    async def reconcile(self, request: Request) -> Outcome:
        """Bring the status of one binding, and of its template, to what is reported."""
        sources = self._sources
        informer = sources.bindings if request.namespace else sources.cluster_bindings
        binding = informer.cache.find(request.key)
        if binding is None or is_being_deleted(binding):
            self._patience.end(request)
            return Done()
        wait = self._patience.left(request) if self._some_are_silent(request, binding) else 0.0
        if wait > 0:
            return RequeueAfter(wait)
        self._patience.end(request)
        reports = reports_in(sources.works.cache.objects_at(BY_BINDING, request.key))
        summed = with_reports(binding, reports, self._clock.now())
        if summed != binding:
            await self._show_on_template(binding, reports)
            place = Place(resource_for(request.namespace), request.namespace, request.name)
            await commit(self._hub_client, place, binding, summed)
            self._tell(binding, new_problems(binding, reports))
        return Done()

    def _some_are_silent(self, request: Request, binding: Object) -> bool:
        """Whether a cluster that is to have the object has not said anything of it yet."""
        works = self._sources.works.cache
        raw = (works.find_raw(key) for key in works.keys_at(BY_BINDING, request.key))
        return not kept_clusters(binding) <= told_clusters(each for each in raw if each)

    async def _show_on_template(self, binding: Object, reports: Sequence[Report]) -> None:
        """Write the summed up status of the template, read live: others write to it as well."""
        wanted, templates = template_of(binding), self._sources.templates
        if not is_aggregated(wanted.group_version_kind.group_kind):
            return
        if why_not_carried_here(templates, binding):
            return  # who writes a binding by hand could write statuses everywhere
        live = await find_live_template(self._hub_client, templates, wanted)
        info = templates.find_info(wanted.group_version_kind)
        if live is None or info is None:
            return
        due = Reports(tuple(reports), due=len(targets_of(binding)))
        shown = {**live, "status": aggregated_status(live, due)}
        place = place_of(info.group_version_resource, live)
        await commit(self._hub_client, place, live, shown)

    def _tell(self, binding: Object, problems: Sequence[Report]) -> None:
        """Tell of what clusters would not have, also on the template when their agents cannot."""
        is_own = not why_not_carried_here(self._sources.templates, binding)
        for each in problems:
            message = f"cluster({each.cluster}): {each.message}"
            self._events.record(binding, SYNC_FAILED, message, is_warning=True)
            cluster = self._sources.clusters.cache.find(each.cluster)
            if is_own and cluster is not None and is_pull(cluster):
                template = template_of(binding).outline
                self._events.record(template, SYNC_FAILED, message, is_warning=True)


def told_clusters(works: Iterable[bytes]) -> frozenset[str]:
    """Return the clusters that have said something, be it a refusal; Works are not decoded whole.

    This is asked over and over while clusters answer one after the other.
    """
    heads = map(_head_decoder.decode, works)
    return frozenset(
        head.metadata.namespace.removeprefix(EXECUTION_PREFIX)
        for head in heads
        if head.status is not None and head.status.conditions
    )


def reports_in(works: Sequence[Object]) -> tuple[Report, ...]:
    """Return what is reported, in the order of clusters; Works on their way out have no say."""
    reports = (report_of(work) for work in works if not is_being_deleted(work))
    return tuple(sorted(reports, key=lambda report: report.cluster))


def with_reports(binding: Object, reports: Sequence[Report], now: float) -> Object:
    """Return the binding with the reports in its status; the same one when they say nothing new."""
    status: Object = binding.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    if not reports and find_condition(conditions, FULLY_APPLIED) is None:
        # Nothing was ever sent anywhere: there is nothing to be told about it.
        return binding
    judged = set_condition(conditions, _judgement(binding, reports), now)
    items = [item_of(report) for report in reports]
    if not judged.is_changed and items == (status.get("aggregatedStatus") or []):
        return binding
    kept = {key: held for key, held in status.items() if key != "aggregatedStatus"}
    told = {"aggregatedStatus": items} if items else {}
    return {**binding, "status": {**kept, **told, "conditions": judged.conditions}}


def new_problems(binding: Object, reports: Sequence[Report]) -> list[Report]:
    """Return the reports of trouble that the binding does not show yet."""
    shown: list[Object] = find_at(binding, "status", "aggregatedStatus") or []
    known = {(each.get("clusterName"), each.get("appliedMessage")) for each in shown}
    return [each for each in reports if each.message and (each.cluster, each.message) not in known]


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
    wanted = kept_clusters(binding)
    return bool(wanted) and wanted == applied and len(reports) == len(applied)


def _judgement(binding: Object, reports: Sequence[Report]) -> Condition:
    return _ALL_APPLIED if is_fully_applied(binding, reports) else _NOT_ALL_APPLIED
