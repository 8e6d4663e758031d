"""Source to queue to workers; retries, metrics, one id per attempt."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, Protocol, TypeAlias

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.reconcile import Reconciler, Request, RequeueAfter, request_for
from clusterspace.errors import ApiError, ClusterError, Conflict, Terminal
from clusterspace.telemetry import logs
from clusterspace.telemetry.metrics import QueueMetrics
from clusterspace.telemetry.request_ids import make_request_id, request_id_of

_log = structlog.get_logger(__name__)

ToRequests: TypeAlias = Callable[[Update], Iterable[Request]]
"""Which objects are to be reconciled because one changed."""

_ATTEMPT_SECONDS: Final = 120.0


class Result(Enum):
    """How an attempt ended."""

    DONE = "success"
    AGAIN_LATER = "requeue_after"
    FAILED = "error"
    TERMINAL = "terminal"


class ControllerObserver(Protocol):
    """Told how attempts end, to count and measure them."""

    def attempted(self, result: Result, seconds: float) -> None:
        """Note how one attempt ended and how long it took."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How hard a controller works."""

    workers: int = 4
    attempt_seconds: float = _ATTEMPT_SECONDS
    first_retry_seconds: float = 0.05
    longest_retry_seconds: float = 300.0
    observer: ControllerObserver | None = None


class Controller:
    """Reconciles what its sources say has changed: each key by one worker at a time.

    works = Controller("works", reconcile_work, clock=clock, random=random)
    works.watch(work_informer)
    works.watch(object_informer, owners_of)
    tasks.keep("works", works.run)
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconciler,
        *,
        clock: Clock,
        random: Random,
        settings: ControllerSettings | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._random = random
        self._settings = settings or ControllerSettings()
        self._informers: list[Informer] = []
        self._queue = WorkQueue[Request](clock, self._delays, QueueMetrics(name))

    def watch(
        self,
        informer: Informer,
        to_requests: ToRequests | None = None,
        *,
        settle_seconds: float = 0,
    ) -> None:
        """Reconcile when an object of this informer changes: that object, unless told others.

        With `settle_seconds` it waits so long for more: a burst of changes is one attempt.
        """
        self._informers.append(informer)
        choose = to_requests or _itself

        def enqueue(update: Update) -> None:
            for request in choose(update):
                self._queue.add_after(request, settle_seconds)

        informer.add_handler(enqueue)

    def add(self, request: Request, *, after_seconds: float = 0) -> None:
        """Reconcile an object now, or after a while."""
        self._queue.add_after(request, after_seconds)

    async def run(self) -> None:
        """Reconcile until cancelled; begins when every informer has synced."""
        for informer in self._informers:
            await informer.wait_synced()
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
            result = await self._run_once(request)
            seconds = self._clock.monotonic() - started
            if self._settings.observer is not None:
                self._settings.observer.attempted(result, seconds)
            _log.debug("reconciled", result=result.value, seconds=seconds)

    async def _run_once(self, request: Request) -> Result:
        try:
            async with asyncio.timeout(self._settings.attempt_seconds):
                outcome = await self._reconcile(request)
        except Terminal as failure:
            self._queue.forget(request)
            _log.error("reconcile cannot succeed", reason=str(failure))
            return Result.TERMINAL
        except (ApiError, ClusterError, TimeoutError) as failure:
            self._retry(request, str(failure) or "the attempt took too long", failure)
            return Result.FAILED
        except Exception as failure:  # noqa: BLE001 - a bug costs one attempt of one object, not all
            _log.error("reconcile failed", exc_info=failure)
            self._queue.retry(request)
            return Result.FAILED
        self._queue.forget(request)
        if isinstance(outcome, RequeueAfter):
            self._queue.add_after(request, outcome.seconds)
            return Result.AGAIN_LATER
        return Result.DONE

    def _retry(self, request: Request, reason: str, failure: Exception) -> None:
        fields = {"reason": reason, "retry_seconds": self._queue.retry(request)}
        if isinstance(failure, Conflict):
            # Somebody was faster. That is how optimistic writing works, and not worth a warning.
            _log.debug("reconcile conflicts", **fields)
        else:
            _log.warning("reconcile failed", **fields)

    def _delays(self) -> Iterator[float]:
        settings = self._settings
        return backoff.jittered(
            settings.first_retry_seconds, settings.longest_retry_seconds, self._random
        )


def _itself(update: Update) -> Iterable[Request]:
    return (request_for(update.key),)
