"""Watch one cluster's Works, queue them, and bring the member to each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apis.clusters import WORK_FINALIZER, WORKS, conditions_of, execution_namespace
from clusterspace.apis.works import manifests_of, suspends_dispatching
from clusterspace.client.places import place_of
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.background import report
from clusterspace.controllers.caches import Cache
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import ensure_finalizer, is_being_deleted
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter, request_for
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.execution.guard import DeletionGuard
from clusterspace.fleet.execution.placing import Placed, Placer
from clusterspace.fleet.execution.report import Reporter
from clusterspace.fleet.execution.sightings import Sightings
from clusterspace.fleet.execution.telling import Teller
from clusterspace.fleet.execution.withdrawing import Withdrawer
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, name_of
from clusterspace.kube.timestamps import parse_time

_log = structlog.get_logger(__name__)

WORKERS: Final = 16
LONGEST_RETRY_SECONDS: Final = 120.0
LOOK_ONCE_MORE_SECONDS: Final = 1.0
"""What is in the way may have gone while we turned to listen: one look of our own, then we wait."""

_READY: Final = "Ready"


class _Metadata(msgspec.Struct, gc=False):
    generation: int = 0
    deletionTimestamp: str = ""  # noqa: N815 - the names of the wire


class _Spec(msgspec.Struct, gc=False):
    preserveResourcesOnDeletion: bool = False  # noqa: N815


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_head_decoder: Final = msgspec.json.Decoder(_Head)


@dataclass(frozen=True, slots=True)
class Office:
    """The hub's side of an executor: where orders are read and results are told."""

    hub: Client
    works: Cache
    """Works, of this cluster at least."""
    find_cluster: Callable[[], Object | None]
    """Returns the Cluster as it was last seen."""
    events: EventRecorder
    clock: Clock
    random: Random
    tells_templates: bool = True
    """Whether events go to templates too; agents may write none outside their namespace."""


class Executor:
    """Keeps one member as its Works say.

        executor = Executor("west", member, office)
        works.add_handler(executor.work_changed)
        tasks.keep("west", executor.run)

    `member` is followed; what is read and written one by one goes through `hands`, which is the
    same client unless told otherwise.
    """

    def __init__(
        self,
        cluster_name: str,
        member: ClusterClient,
        office: Office,
        *,
        hands: Client | None = None,
        workers: int = WORKERS,
    ) -> None:
        self.cluster_name = cluster_name
        self._namespace = execution_namespace(cluster_name)
        self._member = member
        self._hands = hands or member
        self._office = office
        self._sightings = Sightings(member, cluster_name, self._look_at)
        self._teller = Teller(office.events, cluster_name, tells_templates=office.tells_templates)
        self._placer = Placer(self._hands, self._sightings, self._teller, office.clock)
        self._guard = DeletionGuard(office.hub, office.find_cluster, office.events, office.clock)
        self._withdrawer = Withdrawer(office.hub, self._hands, self._sightings, self._guard)
        self._reporter = Reporter(office.hub, office.clock)
        self._controller = Controller(
            f"execution-{cluster_name}",
            self.reconcile,
            clock=office.clock,
            random=office.random,
            settings=ControllerSettings(
                workers=workers, longest_retry_seconds=LONGEST_RETRY_SECONDS
            ),
        )
        self._failed: set[Request] = set()
        self._held_back: set[Request] = set()

    async def run(self) -> None:
        """Work until cancelled. Works are told of by `work_changed`, before and during this."""
        async with Supervisor(self._office.clock, report) as tasks:
            tasks.keep(f"{self.cluster_name} objects", self._sightings.run)
            await self._controller.run()

    def work_changed(self, update: Update) -> None:
        """Take in a change of a Work; those of other clusters, and mere statuses, are skipped."""
        request = request_for(update.key)
        if request.namespace != self._namespace:
            return
        if update.after is None:
            self._guard.forget_work(request.name)
            self._controller.add(request)
            return
        head = _head_decoder.decode(update.after)
        goes = head.metadata.deletionTimestamp and not head.spec.preserveResourcesOnDeletion
        goes_since = parse_time(head.metadata.deletionTimestamp) if goes else None
        self._guard.note_work(request.name, goes_since)
        if update.before is None or _head_decoder.decode(update.before) != head:
            self._controller.add(request)

    def cluster_changed(self, before: Object | None, after: Object) -> None:
        """Take in a change of the Cluster: it may be reachable again, or deletions may go on."""
        if _is_ready(after) and (before is None or not _is_ready(before)):
            self._take_up(self._failed)
        may_go_on = self._guard.cluster_changed(before, after)
        if may_go_on or before is None or is_being_deleted(after):
            self._take_up(self._held_back)

    async def reconcile(self, request: Request) -> Outcome:
        """Bring the member to one Work."""
        work = self._office.works.find(request.key)
        if work is None:
            self._forget(request)
            return Done()
        try:
            outcome = await self._carry_out(request, work)
        except (ApiError, ClusterError):
            self._failed.add(request)
            raise
        self._failed.discard(request)
        return outcome

    async def _carry_out(self, request: Request, work: Object) -> Outcome:
        if is_being_deleted(work):
            is_done = await self._withdrawer.withdraw(work)
            self._hold_back(request, is_held=not is_done)
            return Done()
        place = place_of(WORKS, work)
        held = await ensure_finalizer(self._office.hub, place, work, WORK_FINALIZER)
        if suspends_dispatching(held):
            return await self._observe(held)
        return await self._dispatch(request, held)

    async def _observe(self, work: Object) -> Outcome:
        """Tell how the objects of a suspended Work are; touch none."""
        findings = [await self._placer.observe(work, each) for each in manifests_of(work)]
        return _later(await self._reporter.write(work, findings))

    async def _dispatch(self, request: Request, work: Object) -> Outcome:
        placed = [
            await self._placer.place(work, manifest, ordinal)
            for ordinal, manifest in enumerate(manifests_of(work))
        ]
        is_all_pruned = await self._withdrawer.drop_unlisted(work)
        self._hold_back(request, is_held=not is_all_pruned)
        awaited = [each.awaited for each in placed if each.awaited is not None]
        is_new = self._sightings.await_only(name_of(work), awaited)
        findings = [each.finding for each in placed]
        self._teller.tell_findings(work, findings)
        if not is_all_pruned:
            # What could not go yet is known only by the status: it is not written over.
            return Done()
        wait = await self._reporter.write(work, findings)
        _raise_refusal(placed)
        waits = [wait, *(each.retry_seconds for each in placed)]
        return _later(*waits, LOOK_ONCE_MORE_SECONDS if is_new else 0.0)

    def _look_at(self, work_name: str) -> None:
        self._controller.add(Request(work_name, self._namespace))

    def _hold_back(self, request: Request, *, is_held: bool) -> None:
        if is_held:
            self._held_back.add(request)
        else:
            self._held_back.discard(request)

    def _take_up(self, requests: set[Request]) -> None:
        for request in tuple(requests):
            self._controller.add(request)

    def _forget(self, request: Request) -> None:
        self._failed.discard(request)
        self._held_back.discard(request)
        self._reporter.forget(request.name)
        self._placer.forget(request.name)
        self._sightings.await_only(request.name, ())


def _is_ready(cluster: Object) -> bool:
    return is_true(conditions_of(cluster), _READY)


def _raise_refusal(placed: Sequence[Placed]) -> None:
    """Raise what a member refused, so that it is tried again, later and later."""
    refused = next((each.refusal for each in placed if each.refusal is not None), None)
    if refused is not None:
        raise refused


def _later(*waits: float) -> Outcome:
    """Return when to look again: at the earliest of these times, or when something happens."""
    due = [each for each in waits if each > 0]
    return RequeueAfter(min(due)) if due else Done()
