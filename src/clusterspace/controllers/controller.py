"""Changes to queue to workers: runs one reconciler, with retries, metrics and an id per attempt."""

import asyncio
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, Protocol

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import (
    Reconcile,
    Reconciler,
    Request,
    RequeueAfter,
    Source,
    Watch,
)
from clusterspace.errors import ApiError, ClusterError, Conflict, Terminal
from clusterspace.telemetry import logs
from clusterspace.telemetry.metrics import QueueMetrics, ReconcileMetrics
from clusterspace.telemetry.request_ids import make_request_id, request_id_of

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
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._settings = settings or ControllerSettings()
        self._observer = self._settings.observer or ReconcileMetrics(name)
        self._sources: list[Source] = []
        retry = (self._settings.first_retry_seconds, self._settings.longest_retry_seconds)
        self._queue = WorkQueue[Request](
            clock, lambda: backoff.jittered(*retry, random), QueueMetrics(name)
        )

    @classmethod
    def of(cls, reconciler: Reconciler, *, clock: Clock, random: Random) -> "Controller":
        """Return the controller that runs a reconciler, woken by everything that watches."""
        settings = ControllerSettings(
            workers=reconciler.workers, longest_retry_seconds=reconciler.longest_retry_seconds
        )
        controller = cls(
            reconciler.name, reconciler.reconcile, clock=clock, random=random, settings=settings
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
        for source in self._sources:
            await source.wait_synced()
        _log.info("controller started", controller=self.name, workers=self._settings.workers)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.workers):
                    group.create_task(self._work(), name=f"{self.name} worker {number}")
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason
        finally:
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
