"""The execution controller: one member's Works, carried out; and one such for each Push member.

Works are carried out beside each other, each by one worker at a time:

    finalizer on the Work ──> manifests applied ──> dropped ones pruned ──> status written
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog

from clusterspace.aio import clocks
from clusterspace.aio.tasks import Supervisor, Tasks, report
from clusterspace.apis.clusters import (
    CLUSTERS,
    EXECUTION_PREFIX,
    WORK_FINALIZER,
    WORKS,
    conditions_of,
    execution_namespace,
    is_pull,
)
from clusterspace.apis.exclusive import LEASED, exclusiveness_of_work
from clusterspace.apis.fleet_placements import APPLY_TYPE, REPORT_DIFF
from clusterspace.apis.member_clusters import FLEET_WORKS, NAMESPACE_PREFIX, has_kubefleet_agent
from clusterspace.apis.works import (
    DELETION_ASKED,
    MULTI_CLUSTER_SERVICE,
    is_export,
    manifests_of,
    suspends_dispatching,
)
from clusterspace.client.requests import resource_path_of
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.controllers.commit import ensure_finalizer
from clusterspace.controllers.controller import (
    Controller,
    ControllerSettings,
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Cache, HubCaches, Update
from clusterspace.errors import (
    ApiError,
    ClusterError,
    ClusterUnreachable,
    Malformed,
    NotLeading,
    NotServed,
)
from clusterspace.fleet.execution.apply import Applier
from clusterspace.fleet.execution.contents import KeptNamespaces
from clusterspace.fleet.execution.exclusive import ExclusiveCopies, leased_writes
from clusterspace.fleet.execution.exports import ExportedEndpoints
from clusterspace.fleet.execution.member_informers import MemberInformers
from clusterspace.fleet.execution.prune import (
    WAVE_SETTLE_SECONDS,
    DeletionBudget,
    DeletionLimits,
    Pruner,
)
from clusterspace.fleet.execution.report import ManifestResult, WorkReporter
from clusterspace.fleet.execution.unschedulable import (
    NOTHING_STUCK,
    UNSCHEDULABLE_SECONDS,
    UnschedulableReplicas,
)
from clusterspace.fleet.execution.withdrawn import LateWrites, WithdrawnObjects
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.times import parse_time

_log = structlog.get_logger(__name__)

WORKERS: Final = 16
LONGEST_RETRY_SECONDS: Final = 120.0
LOOK_ONCE_MORE_SECONDS: Final = 1.0
"""What is in the way may have gone while we turned to listen: one look of our own, then we wait."""

LEASE_LOOK_SECONDS: Final = 2.0
"""When to look again whether an exclusive copy may be started."""

DOUBT_SECONDS: Final = 60.0
"""For how long a write without an answer may yet be carried out: an API server gives up on a
request after a minute, and the operating system on one that it could not deliver before that."""

_READY: Final = "Ready"


# What of a Work decides whether it is reconciled. Statuses are not in it: we write them ourselves,
# and a Work that was reconciled because of its status would be so for ever. Nor are labels and
# annotations: what counts of these is in the manifests. `generation` grows with every change of
# the spec.
# But for one annotation: whether its end was asked for.
class _Annotations(msgspec.Struct, gc=False):
    asked: str = msgspec.field(default="", name=DELETION_ASKED)


class _Metadata(msgspec.Struct, gc=False):
    generation: int = 0
    deletionTimestamp: str = ""  # noqa: N815 - the names of the wire
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)


class _Spec(msgspec.Struct, gc=False):
    preserveResourcesOnDeletion: bool = False  # noqa: N815


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_head_decoder: Final = msgspec.json.Decoder(_Head)


class WorkQueue:
    """The Works of one cluster, to be carried out: what changed, what waits, how much may go."""

    # One runs for a cluster at a time. What it is told comes from the handlers of the informers,
    # and none of that awaits.

    def __init__(
        self,
        cluster_name: str,
        hub: ClusterClient,
        events: EventRecorder,
        *,
        clusters: Cache,
        limits: DeletionLimits | None,
    ) -> None:
        clock = hub.connection.clock
        self.cluster_name = cluster_name
        self._namespace = execution_namespace(cluster_name)
        self._clock = clock
        self._controller = Controller(
            f"execution-{cluster_name}",
            self.reconcile,
            clock=clock,
            random=hub.connection.random,
            settings=ControllerSettings(
                workers=WORKERS, longest_retry_seconds=LONGEST_RETRY_SECONDS
            ),
        )
        self._budget = DeletionBudget(
            hub,
            lambda: clusters.find(cluster_name),
            events,
            clock,
            limits,
            settle_seconds=WAVE_SETTLE_SECONDS,
        )
        # Works that wait for something the queue does not know of: `_failed` for the member to be
        # reachable again, so that nobody sits out a long backoff then; `_paused` for deletions to
        # be resumed. Both are lost with the process, and need not outlive it: after a start every
        # Work is reconciled once, and joins its set again if it must.
        self._failed: set[Request] = set()
        self._paused: set[Request] = set()

    async def run(self) -> None:
        """Reconcile until cancelled. Works are enqueued by `work_changed`, before and meanwhile."""
        await self._controller.run()

    async def reconcile(self, request: Request) -> Result:
        """Carry out one Work."""
        raise NotImplementedError

    def work_changed(self, update: Update) -> None:
        """Take in a change of a Work; those of other clusters, and mere statuses, are skipped."""
        request = request_for(update.key)
        if request.namespace != self._namespace:
            return
        if update.after is None:
            self._budget.forget_work(request.name)
            self._controller.add(request)  # to forget what we remember of it
            return
        # Counted here, in the handler of the informer, and not when its turn in the queue comes:
        # of a thousand Works that are deleted at once the first worker must already see all.
        head = _head_decoder.decode(update.after)
        goes = head.metadata.deletionTimestamp and not head.spec.preserveResourcesOnDeletion
        goes_since = parse_time(head.metadata.deletionTimestamp) if goes else None
        is_asked = head.metadata.annotations.asked == "true"
        self._budget.note_work(request.name, goes_since, is_asked=is_asked)
        if update.before is None or _head_decoder.decode(update.before) != head:
            self._controller.add(request)

    def look_again(self, work_name: str) -> None:
        """Reconcile a Work although it did not change: what is made of its objects did."""
        self._controller.add(Request(work_name, self._namespace))

    def cluster_changed(self, before: Object | None, after: Object) -> None:
        """Take in a change of the Cluster: it may be reachable again, or deletions may go on."""
        if _is_ready(after) and (before is None or not _is_ready(before)):
            for request in tuple(self._failed):
                self._controller.add(request)
        may_go_on = self._budget.cluster_changed(before, after)
        # The first sight of the Cluster counts as a change: without it no deletion was permitted.
        # One that leaves takes everything along, however much that is.
        if may_go_on or before is None or is_being_deleted(after):
            for request in tuple(self._paused):
                self._controller.add(request)

    def _note_pruned(self, request: Request, *, is_pruned: bool) -> None:
        """Remember Works whose objects may not be deleted yet, for when deletions go on."""
        if is_pruned:
            self._paused.discard(request)
        else:
            self._paused.add(request)


class MemberExecution(WorkQueue):
    """Keeps one member as its Works say: a controller of its own, which comes and goes."""

    # One runs for a member at a time: the leader's, which gives up its lease before another may
    # take it, or the one agent of its Deployment, which is recreated and never rolled. A second one
    # with an older view of the Works would put older manifests back. It could do no worse: every
    # write is at a version that was seen, every deletion of a UID that was just looked at, and the
    # two slow each other down, since either takes the other's writes for drift.

    def __init__(  # noqa: PLR0913 - both ends, what is known of them, and how much may go
        self,
        cluster_name: str,
        member: ClusterClient,
        hub: ClusterClient,
        events: EventRecorder,
        *,
        works: Cache,
        clusters: Cache,
        interpreter: Interpreter,
        records_on_templates: bool = True,
        limits: DeletionLimits | None = None,
        exclusive: ExclusiveCopies | None = None,
        unschedulable_seconds: float = UNSCHEDULABLE_SECONDS,
    ) -> None:
        super().__init__(cluster_name, hub, events, clusters=clusters, limits=limits)
        clock, enqueue = self._clock, self.look_again
        self._exclusive = exclusive
        self._in_doubt: dict[Request, float] = {}
        """When an exclusive Work was last carried out without our knowing what came of it."""
        self._hub = hub
        self._works = works
        self._member_name = member.cluster
        self._notes = WithdrawnObjects(member, cluster_name, clock)
        self._late_writes = LateWrites(hub, member, cluster_name, self._notes, events, enqueue)
        self._informers = MemberInformers(
            member, cluster_name, enqueue, self._late_writes.object_seen
        )
        self._reporter = WorkReporter(
            hub,
            events,
            clock,
            cluster_name,
            interpreter,
            records_on_templates=records_on_templates,
        )
        self._unschedulable = UnschedulableReplicas(member, clock, unschedulable_seconds)
        self._exports = ExportedEndpoints(member, enqueue)
        self._applier = Applier(member, self._informers, self._reporter, interpreter, clock)
        kept = KeptNamespaces(hub, cluster_name, events, clock)
        self._pruner = Pruner(hub, member, self._informers, self._budget, self._notes, works, kept)

    async def run(self) -> None:
        """Reconcile until cancelled. Works are enqueued by `work_changed`, before and meanwhile."""
        async with Supervisor(self._clock, report) as tasks:
            tasks.keep(f"{self.cluster_name} objects", self._informers.run)
            tasks.keep(f"{self.cluster_name} endpoints", self._exports.run)
            tasks.spawn(f"{self.cluster_name} late writes", self._find_late_writes)
            await self._controller.run()

    async def _find_late_writes(self) -> None:
        """Look for what came too late for those before us: of kinds, too, that no Work has now."""
        for delay in clocks.exponential(1.0, 60.0):
            try:
                self._informers.follow(await self._notes.read())
            except (ApiError, ClusterError) as error:
                _log.debug("withdrawals not read", cluster=self.cluster_name, reason=str(error))
                await self._clock.sleep(delay)
            else:
                return

    async def reconcile(self, request: Request) -> Result:
        """Bring the member to one Work."""
        # The cache may be behind the hub. An older generation is applied then, and the newer one
        # when its event comes: the member goes through the states the Work went through. What
        # cannot be undone, a deletion, is never begun on the word of this cache; and every write
        # to the Work carries the version that was read here, so that a stale one is refused.
        work = self._works.find(request.key)
        await self._late_writes.remove(request.name, work)
        if work is None:
            self._failed.discard(request)
            self._paused.discard(request)
            self._in_doubt.pop(request, None)
            self._reporter.forget(request.name)
            self._applier.forget(request.name)
            self._informers.wait_for(request.name, ())
            self._exports.forget(request.name)
            return Done()
        exclusive = self._exclusive if exclusiveness_of_work(work) == LEASED else None
        try:
            if is_being_deleted(work):
                # A copy that is made after we looked, by a request of ours that was given up, would
                # run beside the one that starts elsewhere as soon as this Work is gone.
                if (left := self._doubt_left(request)) > 0:
                    return RequeueAfter(left)
                self._exports.forget(request.name)
                self._note_pruned(request, is_pruned=await self._pruner.finalize(work))
                outcome = Done()
            elif exclusive is not None and not await exclusive.admits(work):
                # Nothing of it is touched, not even to repair it: whether it may run is not known.
                outcome = RequeueAfter(LEASE_LOOK_SECONDS)
            else:
                # Before the first object is made: a Work without it could be deleted between two
                # of our writes, and nobody would know any more what it placed. A crash right
                # after this leaves a finalizer on a Work that placed nothing, which costs whoever
                # deletes it one look at the member.
                path = resource_path_of(WORKS, work)
                work = await ensure_finalizer(self._hub, path, work, WORK_FINALIZER)
                try:
                    with leased_writes() if exclusive is not None else nullcontext():
                        outcome = await self._dispatch(request, work)
                except (ApiError, ClusterError) as error:
                    if exclusiveness_of_work(work) and self._may_be_carried_out(error):
                        self._in_doubt[request] = self._clock.monotonic()
                    raise
        except (ApiError, ClusterError) as error:
            if isinstance(error, NotServed):
                # A kind that we know has gone from the member. The next attempt asks what is served
                # before it looks for the object again, and a Work on its way out need not wait for
                # one that went with its kind.
                self._informers.forget_resources()
            self._failed.add(request)
            raise
        self._failed.discard(request)
        return outcome

    def _doubt_left(self, request: Request) -> float:
        """Return for how much longer something that we gave up may be carried out."""
        since = self._in_doubt.get(request)
        return 0.0 if since is None else since + DOUBT_SECONDS - self._clock.monotonic()

    def _may_be_carried_out(self, error: ApiError | ClusterError) -> bool:
        """Whether what failed may have an effect on the member, now or later."""
        if isinstance(error, ApiError):
            return error.code >= 500
        is_unsent = isinstance(error, NotLeading) or (
            isinstance(error, ClusterUnreachable) and not error.was_sent
        )
        return error.cluster == self._member_name and not is_unsent

    async def _dispatch(self, request: Request, work: Object) -> Result:
        """Apply the manifests of a Work, prune what it dropped, write its status; in this order."""
        # What was applied once is known by nothing but the status: a manifest that is dropped from
        # the spec is found there, and nowhere else. So the status is written last, when all that
        # had to go is gone; until then every attempt, and every process, finds the old entries:
        #
        #     spec [a, b]  status [a, b]     as it should be
        #     spec [a]     status [a, b]     b is dropped: looked at, recorded, deleted
        #     killed here                    the next one finds the same: b is gone, or goes now
        #     spec [a]     status [a]        done
        #
        # A crash between the writes to the member and this last one to the hub leaves a status
        # that is behind the member. Nothing is decided by it but the above: after a start objects
        # are compared, those that are as they should be are left alone, and the status is written.
        manifests = manifests_of(work)
        if suspends_dispatching(work):
            # Nothing is touched, but people see how the objects are.
            if annotations_of(work).get(APPLY_TYPE) == REPORT_DIFF:
                compared = [await self._applier.compare(work, each) for each in manifests]
                places = [each.blocker for each in compared if each.blocker is not None]
                is_new = self._informers.wait_for(name_of(work), places)
                wait = await self._reporter.write_status(work, compared)
                waits = [wait, *(each.retry_seconds for each in compared)]
                return _requeue(*waits, LOOK_ONCE_MORE_SECONDS if is_new else 0.0)
            results = [await self._applier.observe(work, each) for each in manifests]
            results = [await self._with_endpoints(work, each) for each in results]
            return _requeue(await self._reporter.write_status(work, results))

        if self._exclusive is not None and exclusiveness_of_work(work) == LEASED:
            for manifest in manifests:
                with suppress(NotServed, Malformed):  # told below, as of any manifest
                    path = await self._informers.resource_path_of(manifest)
                    await self._exclusive.restart(path)
        results = [
            await self._applier.apply(work, manifest, ordinal)
            for ordinal, manifest in enumerate(manifests)
        ]
        # After the applying: what replaces a dropped object is there before that one goes. When
        # something was deleted, its record is on the Work by now, and the status below is refused
        # as a conflict: the next attempt finds nothing more to delete, and writes it.
        is_pruned = await self._pruner.prune(work)
        self._note_pruned(request, is_pruned=is_pruned)
        blockers = [each.blocker for each in results if each.blocker is not None]
        is_new = self._informers.wait_for(name_of(work), blockers)
        self._reporter.record_results(work, results)
        if not is_pruned:
            return Done()  # woken when deletions go on; until then the status keeps what must go
        stuck = [
            await self._unschedulable.count(each.live)
            if each.live is not None and _lacks_replicas(each.live)
            else NOTHING_STUCK
            for each in results
        ]
        results = [
            replace(each, unschedulable=found.replicas) if found.replicas else each
            for each, found in zip(results, stuck, strict=True)
        ]
        results = [await self._with_endpoints(work, each) for each in results]
        wait = await self._reporter.write_status(work, results)
        for each in results:
            if each.refusal is not None:
                raise each.refusal  # said in the status; tried again, later and later
        waits = [wait, *(each.retry_seconds for each in results)]
        waits += [each.look_again_seconds for each in stuck]
        return _requeue(*waits, LOOK_ONCE_MORE_SECONDS if is_new else 0.0)

    async def _with_endpoints(self, work: Object, result: ManifestResult) -> ManifestResult:
        """Return the result with the endpoints of the Service that its manifest exports."""
        manifest = result.manifest
        # A MultiClusterService is never put on a member; a ServiceExport has to be there.
        is_in_force = result.live is not None or manifest.get("kind") == MULTI_CLUSTER_SERVICE
        if not is_export(manifest) or not is_in_force:
            return result
        endpoints = await self._exports.read(name_of(work), manifest)
        if endpoints is not None and endpoints.left_out:
            self._reporter.record_left_out(work, endpoints.left_out)
        return replace(result, endpoints=endpoints)


def _is_ready(cluster: Object) -> bool:
    return is_true(conditions_of(cluster), _READY)


def _lacks_replicas(live: Object) -> bool:
    there_are, ready = (find_at(live, "status", key) or 0 for key in ("replicas", "readyReplicas"))
    return isinstance(there_are, int) and isinstance(ready, int) and there_are > ready


def _requeue(*waits: float) -> Result:
    """Return when to look again: at the earliest of these times, or when something happens."""
    due = [each for each in waits if each > 0]
    return RequeueAfter(min(due)) if due else Done()


CHECK_SECONDS: Final = 30.0
"""How often to ask for a member's client: it is another one once address or credentials change."""

Reach: TypeAlias = Callable[[Object], Awaitable[ClusterClient]]
"""Returns the client of a Cluster; a ClusterError says why there is none."""

ExclusiveCopiesOf: TypeAlias = Callable[[str, ClusterClient], ExclusiveCopies | None]
"""Returns by what the exclusive copies of a member run, if by anything."""


class Deliver(Protocol):
    """Makes what hands the Works of one cluster to KubeFleet's agent."""

    def __call__(
        self,
        cluster_name: str,
        hub: ClusterClient,
        events: EventRecorder,
        *,
        works: Cache,
        clusters: Cache,
        limits: DeletionLimits | None,
    ) -> WorkQueue:
        """Return it, not running yet."""
        ...


@dataclass(frozen=True, slots=True)
class _Running:
    member: ClusterClient | None
    """None where an agent reaches it, and nobody else."""
    execution: WorkQueue
    task: asyncio.Task[None]


class Execution(Reconciler):
    """Runs a MemberExecution for each Push cluster; in an agent, for its own cluster alone.

    And for each cluster whose agent is KubeFleet's, what hands its Works to that.
    """

    # It begins when the Cluster is there and ends when the Cluster is gone, and not when it is
    # leaving: what was placed has to be withdrawn first, and the Cluster's finalizer waits for it.

    name = "execution"

    def __init__(  # noqa: PLR0913 - both ends, and what the operator says of each
        self,
        hub: ClusterClient,
        caches: HubCaches,
        events: EventRecorder,
        reach: Reach,
        agent_of: str = "",
        limits: DeletionLimits | None = None,
        exclusive: ExclusiveCopiesOf | None = None,
        *,
        unschedulable_seconds: float = UNSCHEDULABLE_SECONDS,
        deliver: Deliver | None = None,
    ) -> None:
        self._hub = hub
        self._deliver = deliver
        self._unschedulable_seconds = unschedulable_seconds
        self._limits = limits
        self._exclusive = exclusive
        self._events = events
        self._reach = reach
        self._agent_of = agent_of
        # An agent may see nothing on the hub but its own Cluster and its own Works.
        own = ListOptions(field_selector=f"metadata.name={agent_of}") if agent_of else None
        namespace = execution_namespace(agent_of) if agent_of else ""
        self._clusters = caches.informer(CLUSTERS, selection=own)
        self._works = caches.informer(WORKS, namespace)
        self._interpreter = caches.shared(Interpreter)
        for each in self._interpreter.informers:
            each.add_handler(self._interpreter_changed)
        self._clusters.add_handler(self._cluster_changed)
        self._works.add_handler(self._work_changed)
        self._fleet_works = caches.informer(FLEET_WORKS) if deliver is not None else None
        if self._fleet_works is not None:
            self._fleet_works.add_handler(self._fleet_work_changed)
        # Invariant: whatever is in `_running` hears of every change of its Works and its Cluster,
        # through the two handlers above, from the moment it is put in. Handlers of informers
        # cannot be taken off, so a MemberExecution has none of its own.
        self._running: dict[str, _Running] = {}
        self._group: asyncio.TaskGroup | None = None
        self._has_group = asyncio.Event()

    def watches(self) -> Iterable[Watch]:
        """Return Clusters; their Works are only to have synced, each goes to its own execution."""
        yield Watch(self._clusters)
        yield Watch(self._works, to=nothing)
        if self._fleet_works is not None:
            yield Watch(self._fleet_works, to=nothing)
        for interpreters in self._interpreter.informers:
            yield Watch(interpreters, to=nothing)

    def tasks(self) -> Tasks:
        """Return the task that the members' executions run in."""
        return {"member executions": self._run_members}

    async def _run_members(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._has_group.set()
                await asyncio.Event().wait()
        finally:
            # Cancelled with all members' tasks in it. Started again, it begins with none, and the
            # next check of each cluster starts its execution anew.
            self._has_group.clear()
            self._group = None
            self._running.clear()

    async def reconcile(self, request: Request) -> Result:
        """Start, replace or stop the execution of one cluster."""
        cluster = self._clusters.cache.find(request.name)
        is_delivered = cluster is not None and has_kubefleet_agent(cluster)
        if is_delivered:
            is_served = self._deliver is not None
        else:
            is_served = cluster is not None and is_pull(cluster) == bool(self._agent_of)
        if cluster is None or not is_served:
            await self._stop(request.name)
            return Done()
        member = None if is_delivered else await self._reach(cluster)
        running = self._running.get(request.name)
        if running is None or running.member is not member or running.task.done():
            # The old one ends before the new one begins: it may still write to the address that
            # the cluster had before.
            await self._stop(request.name)
            await self._has_group.wait()
            self._start(request.name, member)
        return RequeueAfter(CHECK_SECONDS)

    def _start(self, name: str, member: ClusterClient | None) -> None:
        if self._group is None:
            return
        works, clusters, limits = self._works.cache, self._clusters.cache, self._limits
        if member is not None:
            execution = MemberExecution(
                name,
                member,
                self._hub,
                self._events,
                works=works,
                clusters=clusters,
                interpreter=self._interpreter,
                records_on_templates=not self._agent_of,
                limits=limits,
                exclusive=None if self._exclusive is None else self._exclusive(name, member),
                unschedulable_seconds=self._unschedulable_seconds,
            )
        elif self._deliver is not None:
            execution = self._deliver(
                name, self._hub, self._events, works=works, clusters=clusters, limits=limits
            )
        else:
            return
        # No await between reading the cache and being in `_running`: a Work that changes in
        # between would reach neither.
        inside = execution_namespace(name) + "/"
        cache = self._works.cache
        for key in [each for each in cache if each.startswith(inside)]:
            execution.work_changed(Update(key, None, cache.find_raw(key)))

        # Each in a task of its own, with queue, workers and informers: a member that hangs uses up
        # its own workers, and no others wait for it.
        async def run() -> None:
            try:
                await execution.run()
            except Exception as failure:  # noqa: BLE001 - one member's trouble is not the others'
                # It is replaced at the next check, and the others go on.
                _log.error("execution failed", cluster=name, exc_info=failure)

        task = self._group.create_task(run(), name=f"execution {name}")
        self._running[name] = _Running(member, execution, task)
        _log.info("execution started", cluster=name)

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is None:
            return
        # Cancelled wherever it is, as by a crash; awaited, since a request to the member may still
        # be on its way until the task has ended.
        running.task.cancel()
        await asyncio.wait([running.task])
        _log.info("execution stopped", cluster=name)

    def _cluster_changed(self, update: Update) -> None:
        running = self._running.get(update.key)
        after = update.decode_after()
        if running is not None and after is not None:
            running.execution.cluster_changed(update.decode_before(), after)

    def _interpreter_changed(self, update: Update) -> None:
        """Look once more at the objects of the kinds that a customization or webhook speaks of."""
        concerned: dict[tuple[str, str], bool] = {}

        def is_concerned(manifest: Object) -> bool:
            kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
            if kind not in concerned:
                named = GroupVersionKind.of(*kind)
                concerned[kind] = self._interpreter.concerns(update, named)
            return concerned[kind]

        for work in self._works.cache.objects() if self._running else ():
            running = self._running.get(namespace_of(work).removeprefix(EXECUTION_PREFIX))
            if running is not None and any(is_concerned(each) for each in manifests_of(work)):
                running.execution.look_again(name_of(work))

    def _work_changed(self, update: Update) -> None:
        namespace = request_for(update.key).namespace
        running = self._running.get(namespace.removeprefix(EXECUTION_PREFIX))
        if running is not None:
            running.execution.work_changed(update)

    def _fleet_work_changed(self, update: Update) -> None:
        """Look at the Work that KubeFleet's agent reports on, or has let go of."""
        request = request_for(update.key)
        running = self._running.get(request.namespace.removeprefix(NAMESPACE_PREFIX))
        if running is not None and running.member is None:
            running.execution.look_again(request.name)
