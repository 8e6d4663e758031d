import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random

import pytest

from clusterspace.controllers.controller import (
    AttemptResult,
    Controller,
    ControllerSettings,
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Terminal,
    Watch,
    request_for,
)
from clusterspace.controllers.informers import Handler, Update
from clusterspace.errors import ClusterTimeout, Conflict
from clusterspace.telemetry import metrics
from clusterspace.telemetry.logs import current_request_id
from clusterspace.testing.clocks import ManualClock, settle
from clusterspace.testing.steps import stop

WEB = Request("web", "default")


class Counted:
    """Answers in turn, the last answer for ever; counts what the controller made of it."""

    def __init__(self, *answers: Result | Exception) -> None:
        self._answers = list(answers)
        self.ids: list[str] = []
        self.results: list[AttemptResult] = []

    async def reconcile(self, request: Request) -> Result:
        assert request == WEB
        self.ids.append(current_request_id())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def attempted(self, result: AttemptResult, seconds: float) -> None:
        assert seconds >= 0
        self.results.append(result)


@asynccontextmanager
async def running(
    reconcile: Callable[[Request], Awaitable[Result]], clock: ManualClock, observer: Counted
) -> AsyncGenerator[Controller]:
    settings = ControllerSettings(first_retry_seconds=1, observer=observer)
    controller = Controller("test", reconcile, clock=clock, random=Random(1), settings=settings)
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        await stop(task)


async def test_done_is_done_until_something_changes():
    clock, counted = ManualClock(), Counted(Done())
    async with running(counted.reconcile, clock, counted) as controller:
        controller.add(WEB)
        await clock.advance(3600)
        assert counted.results == [AttemptResult.DONE]
        controller.add(WEB)
        await settle()

    assert counted.results == [AttemptResult.DONE] * 2
    assert len(set(counted.ids)) == 2


async def test_thousands_of_attempts_with_nothing_to_do_do_not_keep_others_waiting():
    reconciled: list[str] = []

    async def reconcile(request: Request) -> Result:
        reconciled.append(request.name)
        return Done()

    async with running(reconcile, ManualClock(), Counted(Done())) as controller:
        for number in range(1000):
            controller.add(Request(f"web-{number}", "default"))
        for _ in range(10):
            await asyncio.sleep(0)
        in_ten_turns = len(reconciled)
        while len(reconciled) < 1000:  # noqa: ASYNC110 - it is turns that are counted
            await asyncio.sleep(0)

    assert 0 < in_ten_turns <= 10 * ControllerSettings().workers


async def test_requeue_after_comes_back_in_time():
    clock, counted = ManualClock(), Counted(RequeueAfter(10))
    async with running(counted.reconcile, clock, counted) as controller:
        controller.add(WEB)
        await clock.advance(35)

    assert counted.results == [AttemptResult.AGAIN_LATER] * 4


@pytest.mark.parametrize(
    "failure", [ClusterTimeout("west", "late"), Conflict("somebody was faster"), KeyError("a bug")]
)
@pytest.mark.usefixtures("logged_errors")
async def test_a_failure_is_tried_again_later_and_later(failure: Exception):
    clock, counted = ManualClock(), Counted(failure)
    async with running(counted.reconcile, clock, counted) as controller:
        controller.add(WEB)
        await clock.advance(1)
        soon = len(counted.results)
        await clock.advance(60)

    assert soon == 2
    assert 4 <= len(counted.results) <= 9
    assert set(counted.results) == {AttemptResult.FAILED}


async def test_success_makes_the_next_retry_a_quick_one_again():
    late = ClusterTimeout("west", "late")
    clock, counted = ManualClock(), Counted(late, late, late, Done(), late, Done())
    async with running(counted.reconcile, clock, counted) as controller:
        controller.add(WEB)
        await clock.advance(60)
        controller.add(WEB)
        await clock.advance(1)

    assert len(counted.results) == 6


@pytest.mark.usefixtures("logged_errors")
async def test_terminal_is_not_tried_again():
    clock, counted = ManualClock(), Counted(Terminal("the name is taken for ever"))
    async with running(counted.reconcile, clock, counted) as controller:
        controller.add(WEB)
        await clock.advance(3600)

    assert counted.results == [AttemptResult.TERMINAL]


def test_a_key_and_its_request_lead_to_each_other():
    assert request_for("default/web") == WEB
    assert request_for("node1") == Request("node1")
    assert WEB.key == "default/web"
    assert str(Request("web", "default", "west")) == "west:default/web"


class Fired:
    """A source that changes when a test says so."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.synced = asyncio.Event()

    def add_handler(self, handler: Handler) -> None:
        self.handlers.append(handler)

    async def wait_synced(self) -> None:
        await self.synced.wait()

    def fire(self, key: str, *, is_deletion: bool = False) -> None:
        for handler in self.handlers:
            handler(Update(key, b"{}", None if is_deletion else b"{}"))


class Noted(Reconciler):
    """Notes what it is asked to reconcile."""

    name = "noted"
    at_start = (Request("first"),)

    def __init__(self, source: Fired) -> None:
        self.source = source
        self.requests: list[Request] = []

    def watches(self) -> Iterable[Watch]:
        yield Watch(self.source, when=lambda update: not update.is_deletion)
        yield Watch(self.source, to=lambda _: (Request("owner"),), settle_seconds=5)

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(request)
        return Done()


@asynccontextmanager
async def reconciling(reconciler: Reconciler, clock: ManualClock) -> AsyncGenerator[None]:
    controller = Controller.of(reconciler, clock=clock, random=Random(1))
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_reconciler_begins_when_what_it_watches_has_synced():
    clock, noted = ManualClock(), Noted(Fired())
    async with reconciling(noted, clock):
        noted.source.fire("default/web")
        await clock.advance(60)
        assert noted.requests == []
        noted.source.synced.set()
        await settle()

    assert set(noted.requests) == {Request("first"), WEB, Request("owner")}


async def test_a_reconciler_that_ends_before_it_began_leaves_no_alarm_behind():
    clock, noted = ManualClock(), Noted(Fired())
    async with reconciling(noted, clock):
        noted.source.fire("default/web")
        await settle()

    await settle()
    noted.source.fire("default/web")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_watch_filters_maps_and_settles():
    clock, noted = ManualClock(), Noted(Fired())
    noted.source.synced.set()
    async with reconciling(noted, clock):
        await settle()
        noted.requests.clear()
        noted.source.fire("default/web", is_deletion=True)
        noted.source.fire("default/web", is_deletion=True)
        await settle()
        assert noted.requests == []
        await clock.advance(5)

    assert noted.requests == [Request("owner")]


async def test_attempts_are_counted_in_the_metrics_of_the_process():
    def counted() -> float:
        labels = {"controller": "noted", "result": "success"}
        return (
            metrics.REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0
        )

    clock, noted, before = ManualClock(), Noted(Fired()), counted()
    noted.source.synced.set()
    async with reconciling(noted, clock):
        await settle()

    assert counted() == before + 1
