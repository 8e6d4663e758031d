import asyncio

import pytest
from structlog.testing import capture_logs

from clusterspace.aio import clocks
from clusterspace.aio.tasks import Report, Supervisor, Work, report
from clusterspace.errors import LeadershipLost, TaskFailed
from clusterspace.testing.clocks import ManualClock, settle


class Boom(Exception):
    pass


async def explode() -> None:
    raise Boom("bad luck")


async def end_quietly() -> None:
    return


async def run_for_ever() -> None:
    await asyncio.Event().wait()


def fail_the_test(failed: TaskFailed) -> None:
    pytest.fail(f"unexpected: {failed}")


def ignore(_: TaskFailed) -> None:
    return


async def supervise(report: Report, **kept: Work) -> None:
    async with Supervisor(ManualClock(), report) as tasks:
        for name, work in kept.items():
            tasks.keep(name, work)
        await run_for_ever()


async def test_leaving_the_block_ends_every_task():
    ended: list[str] = []

    async def note_the_end() -> None:
        try:
            await run_for_ever()
        finally:
            ended.append("ended")

    async with Supervisor(ManualClock(), report=fail_the_test) as tasks:
        tasks.keep("one", note_the_end)
        tasks.spawn("two", note_the_end)
        await settle()
        assert len(tasks) == 2
    assert ended == ["ended", "ended"]


async def test_a_kept_task_that_fails_ends_the_group_with_its_name():
    reports: list[TaskFailed] = []

    with pytest.raises(TaskFailed, match="task 'compactor' failed: bad luck") as failure:
        await supervise(reports.append, compactor=explode)

    assert failure.value.name == "compactor"
    assert isinstance(failure.value.__cause__, Boom)
    assert reports == [failure.value]


async def test_a_kept_task_that_ends_quietly_is_a_failure_too():
    with pytest.raises(TaskFailed, match="task 'compactor' ended") as failure:
        await supervise(ignore, compactor=end_quietly)

    assert failure.value.__cause__ is None


async def test_the_failure_of_one_task_cancels_the_others():
    was_cancelled = asyncio.Event()

    async def neighbour() -> None:
        try:
            await run_for_ever()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    with pytest.raises(TaskFailed, match="bad"):
        await supervise(ignore, neighbour=neighbour, bad=explode)

    assert was_cancelled.is_set()


async def test_a_spawned_task_may_end_and_its_failure_is_reported_and_hurts_nobody():
    reports: list[TaskFailed] = []

    async with Supervisor(ManualClock(), reports.append) as tasks:
        tasks.spawn("fine", end_quietly)
        tasks.spawn("broken", explode)
        await settle()
        assert len(tasks) == 0

    assert [failed.name for failed in reports] == ["broken"]


async def test_a_restarted_task_runs_again_after_each_delay():
    clock = ManualClock()
    runs: list[float] = []
    reports: list[TaskFailed] = []

    async def fail() -> None:
        runs.append(clock.monotonic())
        raise Boom

    async with Supervisor(clock, reports.append) as tasks:
        tasks.keep("informer", fail, restart=lambda: clocks.exponential(1, 4))
        await clock.advance(11)

    assert runs == [0, 1, 3, 7, 11]
    assert len(reports) == 5


async def test_a_task_that_ran_well_for_long_restarts_with_the_shortest_delay():
    clock = ManualClock()
    runs: list[float] = []

    async def run_well_the_third_time() -> None:
        runs.append(clock.monotonic())
        await clock.sleep(100 if len(runs) == 3 else 0)
        raise Boom

    async with Supervisor(clock, ignore) as tasks:
        tasks.keep("informer", run_well_the_third_time, restart=lambda: clocks.exponential(1, 60))
        await clock.advance(105)

    assert runs == [0, 1, 3, 104]


async def test_a_task_whose_delays_run_out_ends_the_group():
    clock = ManualClock()

    async def supervise_for_a_while() -> None:
        async with Supervisor(clock, ignore) as tasks:
            tasks.keep("informer", explode, restart=lambda: iter([1.0, 1.0]))
            await clock.advance(1.5)
            assert len(tasks) == 1
            await clock.advance(5)
            await run_for_ever()

    with pytest.raises(TaskFailed, match="informer"):
        await supervise_for_a_while()


async def test_an_error_of_the_block_itself_comes_out_as_it_is():
    async def fail_beside_a_task() -> None:
        async with Supervisor(ManualClock(), fail_the_test) as tasks:
            tasks.keep("one", run_for_ever)
            raise Boom

    with pytest.raises(Boom):
        await fail_beside_a_task()


async def test_cancelling_the_block_cancels_the_tasks_and_passes_through():
    async with asyncio.TaskGroup() as group:
        supervising = group.create_task(supervise(fail_the_test, one=run_for_ever))
        await settle()
        supervising.cancel()
    assert supervising.cancelled()


async def test_tasks_have_the_names_they_were_given():
    names: list[str] = []

    async def note_name() -> None:
        task = asyncio.current_task()
        names.append(task.get_name() if task else "")

    async with Supervisor(ManualClock(), fail_the_test) as tasks:
        tasks.spawn("listener", note_name)
        await settle()
    assert names == ["listener"]


@pytest.mark.parametrize(
    ("failure", "has_trace"), [(LeadershipLost("taken over"), False), (Boom("a bug"), True)]
)
def test_a_lost_leadership_is_a_sentence_in_the_log_and_a_bug_a_traceback(
    failure: Exception, has_trace: bool, logged_errors: list[str]
):
    with capture_logs() as logs:
        report(TaskFailed("controllers", failure))

    (line,) = logs
    assert str(failure) in line["reason"]
    assert bool(line["exc_info"]) is has_trace
