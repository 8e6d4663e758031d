"""The execution controller: one member's Works, carried out; and one such for each Push member.

Pull clusters have an agent, which runs the one executor they need. An executor ends when its
Cluster is gone, and not when it is leaving: what was placed has to be withdrawn first.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apis.clusters import (
    EXECUTION_PREFIX,
    WORK_FINALIZER,
    WORKS,
    conditions_of,
    execution_namespace,
    is_pull,
)
from clusterspace.apis.works import manifests_of, suspends_dispatching
from clusterspace.client.requests import resource_path_of
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.background import report
from clusterspace.controllers.caches import Cache
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import ensure_finalizer, is_being_deleted
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.reconcile import (
    Done,
    Request,
    RequeueAfter,
    Result,
    Watch,
    request_for,
)
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.execution.apply import Applier
from clusterspace.fleet.execution.deletion_budget import DeletionBudget
from clusterspace.fleet.execution.member_informers import MemberInformers
from clusterspace.fleet.execution.prune import Pruner
from clusterspace.fleet.execution.report import WorkReporter
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

    One runs for a member at a time: the leader's, which gives up its lease before another may take
    it, or the one agent of its Deployment, which is recreated and never rolled. A second one with
    an older view of the Works would put older manifests back. It could do no worse: every write
    is at a version that was seen, every deletion of a UID that was just looked at.
    """

    def __init__(self, cluster_name: str, member: ClusterClient, office: Office) -> None:
        hub, events, clock = office.hub, office.events, office.clock
        self.cluster_name = cluster_name
        self._namespace = execution_namespace(cluster_name)
        self._office = office
        self._controller = Controller(
            f"execution-{cluster_name}",
            self.reconcile,
            clock=clock,
            random=office.random,
            settings=ControllerSettings(
                workers=WORKERS, longest_retry_seconds=LONGEST_RETRY_SECONDS
            ),
        )
        self._informers = MemberInformers(
            member, cluster_name, lambda name: self._controller.add(Request(name, self._namespace))
        )
        self._reporter = WorkReporter(
            hub, events, clock, cluster_name, records_on_templates=office.tells_templates
        )
        self._applier = Applier(member, self._informers, self._reporter, clock)
        self._budget = DeletionBudget(hub, office.find_cluster, events, clock)
        self._pruner = Pruner(hub, member, self._informers, self._budget)
        # Both are lost with the process, and need not outlive it: after a start every Work is
        # reconciled once, and joins its set again if it must.
        self._failed: set[Request] = set()
        self._paused: set[Request] = set()

    async def run(self) -> None:
        """Reconcile until cancelled. Works are enqueued by `work_changed`, before and meanwhile."""
        async with Supervisor(self._office.clock, report) as tasks:
            tasks.keep(f"{self.cluster_name} objects", self._informers.run)
            await self._controller.run()

    def work_changed(self, update: Update) -> None:
        """Take in a change of a Work; those of other clusters, and mere statuses, are skipped."""
        request = request_for(update.key)
        if request.namespace != self._namespace:
            return
        if update.after is None:
            self._budget.forget_work(request.name)
            self._controller.add(request)
            return
        # Counted here and not when its turn comes: the budget must see a wave before its first.
        head = _head_decoder.decode(update.after)
        goes = head.metadata.deletionTimestamp and not head.spec.preserveResourcesOnDeletion
        goes_since = parse_time(head.metadata.deletionTimestamp) if goes else None
        self._budget.note_work(request.name, goes_since)
        if update.before is None or _head_decoder.decode(update.before) != head:
            self._controller.add(request)

    def cluster_changed(self, before: Object | None, after: Object) -> None:
        """Take in a change of the Cluster: it may be reachable again, or deletions may go on."""
        if _is_ready(after) and (before is None or not _is_ready(before)):
            for request in tuple(self._failed):
                self._controller.add(request)
        may_go_on = self._budget.cluster_changed(before, after)
        if may_go_on or before is None or is_being_deleted(after):
            for request in tuple(self._paused):
                self._controller.add(request)

    async def reconcile(self, request: Request) -> Result:
        """Bring the member to one Work."""
        work = self._office.works.find(request.key)
        if work is None:
            self._failed.discard(request)
            self._paused.discard(request)
            self._reporter.forget(request.name)
            self._applier.forget(request.name)
            self._informers.wait_for(request.name, ())
            return Done()
        try:
            if is_being_deleted(work):
                self._note_pruned(request, is_pruned=await self._pruner.finalize(work))
                outcome = Done()
            else:
                # Before the first object is made: a Work without it could be deleted, and nobody
                # would know what it placed.
                place = resource_path_of(WORKS, work)
                work = await ensure_finalizer(self._office.hub, place, work, WORK_FINALIZER)
                outcome = await self._dispatch(request, work)
        except (ApiError, ClusterError):
            self._failed.add(request)
            raise
        self._failed.discard(request)
        return outcome

    async def _dispatch(self, request: Request, work: Object) -> Result:
        """Apply the manifests of a Work, prune what it dropped, write its status; in this order.

        Of what it dropped only its status knows. So the status is written last, when all that had
        to go is gone: until then every attempt, and every process, finds the old entries again.
        """
        manifests = manifests_of(work)
        if suspends_dispatching(work):
            # Nothing is touched, but people see how the objects are.
            results = [await self._applier.observe(work, each) for each in manifests]
            return _requeue(await self._reporter.write_status(work, results))

        results = [
            await self._applier.apply(work, manifest, ordinal)
            for ordinal, manifest in enumerate(manifests)
        ]
        is_pruned = await self._pruner.prune(work)
        self._note_pruned(request, is_pruned=is_pruned)
        blockers = [each.blocker for each in results if each.blocker is not None]
        is_new = self._informers.wait_for(name_of(work), blockers)
        self._reporter.record_results(work, results)
        if not is_pruned:
            return Done()
        wait = await self._reporter.write_status(work, results)
        for each in results:
            if each.refusal is not None:
                raise each.refusal  # said in the status; tried again, later and later
        waits = [wait, *(each.retry_seconds for each in results)]
        return _requeue(*waits, LOOK_ONCE_MORE_SECONDS if is_new else 0.0)

    def _note_pruned(self, request: Request, *, is_pruned: bool) -> None:
        """Remember Works whose objects may not be deleted yet, for when deletions go on."""
        if is_pruned:
            self._paused.discard(request)
        else:
            self._paused.add(request)


def _is_ready(cluster: Object) -> bool:
    return is_true(conditions_of(cluster), _READY)


def _requeue(*waits: float) -> Result:
    """Return when to look again: at the earliest of these times, or when something happens."""
    due = [each for each in waits if each > 0]
    return RequeueAfter(min(due)) if due else Done()


CHECK_SECONDS: Final = 30.0
"""How often to ask for a member's client: it is another one once address or credentials change."""

Reach: TypeAlias = Callable[[Object], Awaitable[ClusterClient]]
"""Returns the client of a Cluster; a ClusterError says why there is none."""


@dataclass(frozen=True, slots=True)
class HubView:
    """What executors need of the hub: a client, the two collections they follow, the rest."""

    hub: Client
    clusters: Informer
    works: Informer
    events: EventRecorder
    clock: Clock
    random: Random


@dataclass(frozen=True, slots=True)
class _Running:
    member: ClusterClient
    executor: Executor
    task: asyncio.Task[None]


class Executors:
    """Runs one executor for each Push cluster.

        executors = Executors(HubView(hub, clusters, works, events, clock, random), members.reach)
        tasks.keep("execution", executors.run)

    Both informers are run by whoever made them; they may serve others too.
    """

    def __init__(self, view: HubView, reach: Reach) -> None:
        self._view = view
        self._reach = reach
        self._running: dict[str, _Running] = {}
        self._group: asyncio.TaskGroup | None = None
        self._controller = Controller(
            "executors", self.reconcile, clock=view.clock, random=view.random
        )
        self._controller.watch(Watch(view.clusters))
        view.clusters.add_handler(self._cluster_changed)
        view.works.add_handler(self._work_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._view.works.wait_synced()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._controller.run()
        finally:
            self._group = None
            self._running.clear()

    async def reconcile(self, request: Request) -> Result:
        """Start, replace or stop the executor of one cluster."""
        cluster = self._view.clusters.cache.find(request.name)
        if cluster is None or is_pull(cluster):
            await self._stop(request.name)
            return Done()
        member = await self._reach(cluster)
        running = self._running.get(request.name)
        if running is None or running.member is not member or running.task.done():
            # The old one ends before the new one begins: it may still write to the address that
            # the cluster had before.
            await self._stop(request.name)
            self._start(request.name, member)
        return RequeueAfter(CHECK_SECONDS)

    def _start(self, name: str, member: ClusterClient) -> None:
        if self._group is None:
            return
        view = self._view
        office = Office(
            hub=view.hub,
            works=view.works.cache,
            find_cluster=lambda: view.clusters.cache.find(name),
            events=view.events,
            clock=view.clock,
            random=view.random,
        )
        executor = Executor(name, member, office)
        # No await between reading the cache and being in `_running`: a Work that changes in
        # between would reach neither.
        inside = execution_namespace(name) + "/"
        cache = view.works.cache
        for key in [each for each in cache if each.startswith(inside)]:
            executor.work_changed(Update(key, None, cache.find_raw(key)))

        async def run() -> None:
            try:
                await executor.run()
            except Exception as failure:  # noqa: BLE001 - one member's trouble is not the others'
                # It is replaced at the next check, and the others go on.
                _log.error("executor failed", cluster=name, exc_info=failure)

        task = self._group.create_task(run(), name=f"executor {name}")
        self._running[name] = _Running(member, executor, task)
        _log.info("executor started", cluster=name)

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is None:
            return
        running.task.cancel()
        await asyncio.wait([running.task])
        _log.info("executor stopped", cluster=name)

    def _cluster_changed(self, update: Update) -> None:
        running = self._running.get(update.key)
        after = update.decode_after()
        if running is not None and after is not None:
            running.executor.cluster_changed(update.decode_before(), after)

    def _work_changed(self, update: Update) -> None:
        namespace = request_for(update.key).namespace
        running = self._running.get(namespace.removeprefix(EXECUTION_PREFIX))
        if running is not None:
            running.executor.work_changed(update)
