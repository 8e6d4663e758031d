"""What a controller is made of, and what runs it.

    Reconciler          what wakes it (Watch), and what it does for one object (Request, Result)
    Controller          one reconciler with its queue, workers, retries and metrics
    ControllerManager   all reconcilers of a process, with their informers and events

An attempt may be repeated, interrupted or run by another process at any point: nothing here hands
work over, because a new leader reconciles every object once.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.aio.tasks import Supervisor, Tasks, keep_all, report
from clusterspace.client.requests import key_of
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Handler, HubCaches, Update
from clusterspace.errors import ApiError, ClusterError, Conflict, Terminal
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.telemetry import logs
from clusterspace.telemetry.logs import make_request_id, request_id_of
from clusterspace.telemetry.metrics import QueueMetrics, ReconcileMetrics


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """The object to reconcile. What happened to it is not part of it: only what is now counts."""

    name: str
    namespace: str = ""
    cluster: str = ""

    @property
    def key(self) -> str:
        """The key of the object in its cache."""
        return key_of(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.cluster}:{self.key}" if self.cluster else self.key


def request_for(key: str, *, cluster: str = "") -> Request:
    """Return the request for the object with this key."""
    namespace, _, name = key.rpartition("/")
    return Request(name, namespace, cluster)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look again after this time, even if nothing changes."""

    seconds: float


Result: TypeAlias = Done | RequeueAfter

Reconcile: TypeAlias = Callable[[Request], Awaitable[Result]]
"""Returns Done or RequeueAfter, or raises.

`Terminal` means that trying again cannot help before something changes: it is logged and counted.
Everything else is tried again, later and later.
"""


class Source(Protocol):
    """Something that changes and says so: an Informer, or a set of them."""

    def add_handler(self, handler: Handler) -> None:
        """Call a handler for every change from now on, and for what is known already as added."""
        ...

    async def wait_synced(self) -> None:
        """Wait until the first list is in the cache."""
        ...


def itself(update: Update) -> Iterable[Request]:
    """Map a change to the object that changed."""
    return (request_for(update.key),)


def nothing(_: Update) -> Iterable[Request]:
    """Map a change to no object: its source is read, and has to be synced for that."""
    return ()


def more_than_status_changed(update: Update) -> bool:
    """Whether an object came or went, or more than its status and its versions changed."""
    before, after = update.decode_before(), update.decode_after()
    return before is None or after is None or _but_status(before) != _but_status(after)


def _but_status(kube_object: Object) -> Any:
    metadata = metadata_of(kube_object)
    marks = ("labels", "annotations", "finalizers", "deletionTimestamp", "uid")
    return kube_object.get("spec"), [metadata.get(each) for each in marks]


@dataclass(frozen=True, slots=True)
class Watch:
    """Something that wakes a reconciler, and the objects it is woken for."""

    source: Source
    to: Callable[[Update], Iterable[Request]] = itself
    """Maps a change to the objects that it concerns; it must not wait."""
    when: Callable[[Update], bool] | None = None
    """Changes for which this is false are not mapped at all."""
    settle_seconds: float = 0
    """How long to wait for more: a burst of changes becomes one attempt."""


class Reconciler(ABC):
    """One controller: what wakes it, and what it does for one object.

        class Copies(Reconciler):
            name = "copies"
            workers = 2

            def __init__(self, hub: Client, caches: HubCaches) -> None:
                self._hub = hub
                self._maps = caches.informer(CONFIG_MAPS)
                self._secrets = caches.informer(SECRETS)

            def watches(self) -> Iterable[Watch]:
                yield Watch(self._maps)
                yield Watch(self._secrets, to=owner)

            async def reconcile(self, request: Request) -> Result: ...

    A process may be killed between any two writes, and leads no longer when its lease is lost.
    So whatever an attempt leaves half done, the next attempt, of this process or another, must
    find in the API and finish. What an instance remembers may save work, never be needed for it.
    """

    name: ClassVar[str]
    """In logs and metrics; no two controllers of a process share one."""
    workers: int = 4
    """How many objects are reconciled at once; one object is never reconciled twice at once."""
    longest_retry_seconds: float = 300.0
    """The longest time between two attempts for an object that keeps failing."""
    at_start: tuple[Request, ...] = ()
    """Reconciled once all sources have synced, whether anything changed or not."""

    @abstractmethod
    def watches(self) -> Iterable[Watch]:
        """Return the watches that wake it. Attempts begin when the sources of all have synced."""
        ...

    @abstractmethod
    async def reconcile(self, request: Request) -> Result:
        """Bring one object to where it should be."""
        ...

    def priority_of(self, request: Request) -> int:
        """Return how urgent an object is: of those that wait, the highest goes first."""
        return 0

    def tasks(self) -> Tasks:
        """Return the tasks that have to run beside its attempts, by their names in logs."""
        return {}


_log = structlog.get_logger(__name__)

_ATTEMPT_SECONDS: Final = 120.0


class AttemptResult(Enum):
    """How an attempt ended."""

    DONE = "success"
    AGAIN_LATER = "requeue_after"
    FAILED = "error"
    TERMINAL = "terminal"


class AttemptObserver(Protocol):
    """Counts and measures attempts."""

    def attempted(self, result: AttemptResult, seconds: float) -> None:
        """Count one attempt by how it ended and how long it took."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How hard a controller works."""

    workers: int = 4
    attempt_seconds: float = _ATTEMPT_SECONDS
    first_retry_seconds: float = 0.05
    longest_retry_seconds: float = 300.0
    observer: AttemptObserver | None = None
    """Instead of the metrics of the process."""


# From a change to an attempt, with one object that changes while it is being worked on:
#
#     informer   web@5 ........ web@6 ..............................
#     handler    add(web) ..... add(web): in work, so it is kept for later
#     queue      web ........................... web (after `done`) ..
#     worker     ..... take web, reads web@5 ... done   take web, reads web@6 or newer
#
# What must hold: after the last change of an object there is an attempt that begins with a cache
# that has this change. The handler is called after the cache has moved, and a key that is added
# during an attempt is worked on once more; so it does. The queue has keys and no objects: an
# attempt looks at what is there when it begins, and ten changes of a busy object may be one.
class Controller:
    """Reconciles what its watches say has changed: each key by one worker at a time.

    A ControllerManager makes one for each Reconciler. Made by hand it is

        works = Controller("works", reconcile_work, clock=clock, random=random)
        works.watch(Watch(work_informer))
        tasks.keep("works", works.run)
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        random: Random,
        settings: ControllerSettings | None = None,
        priority_of: Callable[[Request], int] | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._settings = settings or ControllerSettings()
        self._observer = self._settings.observer or ReconcileMetrics(name)
        self._sources: list[Source] = []
        retry = (self._settings.first_retry_seconds, self._settings.longest_retry_seconds)
        self._queue = WorkQueue[Request](
            clock, lambda: clocks.jittered(*retry, random), QueueMetrics(name), priority_of
        )

    @classmethod
    def of(cls, reconciler: Reconciler, *, clock: Clock, random: Random) -> "Controller":
        """Return the controller that runs a reconciler, woken by everything that watches."""
        settings = ControllerSettings(
            workers=reconciler.workers, longest_retry_seconds=reconciler.longest_retry_seconds
        )
        has_priorities = type(reconciler).priority_of is not Reconciler.priority_of
        controller = cls(
            reconciler.name,
            reconciler.reconcile,
            clock=clock,
            random=random,
            settings=settings,
            priority_of=reconciler.priority_of if has_priorities else None,
        )
        for watch in reconciler.watches():
            controller.watch(watch)
        for request in reconciler.at_start:
            controller.add(request)
        return controller

    def watch(self, watch: Watch) -> None:
        """Reconcile the objects that a change of this source concerns."""
        # What is in the cache already, and all of the first list, counts as added. So after a start
        # every object is reconciled once, and whatever changed while nobody led is found.
        self._sources.append(watch.source)

        def enqueue(update: Update) -> None:
            if watch.when is not None and not watch.when(update):
                return
            for request in watch.to(update):
                self._queue.add_after(request, watch.settle_seconds)

        watch.source.add_handler(enqueue)

    def add(self, request: Request, *, after_seconds: float = 0) -> None:
        """Reconcile an object now, or after a while."""
        self._queue.add_after(request, after_seconds)

    async def run(self) -> None:
        """Reconcile until cancelled; begins when every source has synced.

        Before that a cache lacks objects, and an object that is missing would look deleted.
        """
        # Meanwhile the handlers fill the queue, and nobody takes anything out of it. One after the
        # other is as good as all at once: what has synced stays so.
        try:
            for source in self._sources:
                await source.wait_synced()
        except asyncio.CancelledError:
            # Keys that are to come later would otherwise still ring, for nobody.
            self._queue.shut_down(drain=False)
            raise
        _log.info("controller started", controller=self.name, workers=self._settings.workers)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.workers):
                    group.create_task(self._work(), name=f"{self.name} worker {number}")
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason
        finally:
            # Nothing that waits is worked off: whoever cancelled us leads no longer. The next
            # leader lists everything and so finds again whatever the queue had.
            self._queue.shut_down(drain=False)

    async def _work(self) -> None:
        async for request in self._queue:
            try:
                await self._attempt(request)
            finally:
                # Until `done` nobody else gets this key, whatever changes meanwhile; a change
                # that came during the attempt is in the queue again after it.
                self._queue.done(request)
            # Most attempts after a start find nothing to do, and wait for nobody. Thousands of
            # them in a row would leave no turn to others, such as who renews the lease.
            await self._clock.sleep(0)

    async def _attempt(self, request: Request) -> None:
        """Reconcile once, under an id that every log line and every request of ours repeats."""
        attempt_id = make_request_id()
        fields = {"controller": self.name, "reconcile_id": attempt_id, "object": str(request)}
        with request_id_of(attempt_id), logs.context(**fields):
            started = self._clock.monotonic()
            # Each way out leaves the key with exactly one future: none (done, or waiting for a
            # change), a retry, or a time at which to look again. A lost lease is none of them:
            # cancellation passes through, and the key is forgotten with the queue.
            try:
                async with asyncio.timeout(self._settings.attempt_seconds):
                    outcome = await self._reconcile(request)
            except Terminal as failure:
                self._queue.forget(request)
                _log.error("reconcile cannot succeed", reason=str(failure))
                result = AttemptResult.TERMINAL
            except Conflict as failure:
                # Somebody was faster. That is how optimistic writing works, and no warning.
                seconds = self._queue.retry(request)
                _log.debug("reconcile conflicts", reason=str(failure), retry_seconds=seconds)
                result = AttemptResult.FAILED
            except (ApiError, ClusterError, TimeoutError) as failure:
                reason, seconds = str(failure), self._queue.retry(request)
                reason = reason or "the attempt took too long"
                _log.warning("reconcile failed", reason=reason, retry_seconds=seconds)
                result = AttemptResult.FAILED
            except Exception as failure:  # noqa: BLE001 - a bug costs one attempt of one object
                _log.error("reconcile failed", exc_info=failure)
                self._queue.retry(request)
                result = AttemptResult.FAILED
            else:
                self._queue.forget(request)
                result = AttemptResult.DONE
                if isinstance(outcome, RequeueAfter):
                    self._queue.add_after(request, outcome.seconds)
                    result = AttemptResult.AGAIN_LATER
            seconds = self._clock.monotonic() - started
            self._observer.attempted(result, seconds)
            _log.debug("reconciled", result=result.value, seconds=seconds)


class ControllerManager:
    """Runs reconcilers over one set of caches.

        caches = HubCaches(hub)
        reconcilers = (Detector(hub, caches, events), Scheduler(hub, caches, events, clock))
        manager = ControllerManager(caches, events, reconcilers, clock=clock, random=random)
        await election.lead(lambda epoch: manager.run())

    It is made for one leadership and run once. When the lease is lost, `run` is cancelled in the
    middle of whatever is being done; the next leader begins with empty caches and reconciles
    everything once, so nothing that was queued here has to be handed over.
    """

    def __init__(
        self,
        caches: HubCaches,
        events: EventRecorder,
        reconcilers: Iterable[Reconciler],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._caches = caches
        self._events = events
        self._clock = clock
        self._reconcilers = tuple(reconcilers)
        self._controllers: dict[str, Controller] = {}
        for each in self._reconcilers:
            if each.name in self._controllers:
                raise ValueError(f"two controllers are called {each.name}")
            self._controllers[each.name] = Controller.of(each, clock=clock, random=random)

    def tasks(self) -> Tasks:
        """Return everything that is to run, by the names it has in logs."""
        controllers = {name: each.run for name, each in self._controllers.items()}
        beside = {name: run for each in self._reconcilers for name, run in each.tasks().items()}
        return {"events": self._events.run, **self._caches.tasks(), **beside, **controllers}

    async def run(self) -> None:
        """Run until cancelled; what fails is reported and started again."""
        async with Supervisor(self._clock, report) as tasks:
            keep_all(tasks, self.tasks())
            await asyncio.Event().wait()
