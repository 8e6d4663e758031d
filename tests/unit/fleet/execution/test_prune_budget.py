import asyncio
from typing import Any

import pytest

from clusterspace.client.requests import GroupVersionResource, ResourcePath
from clusterspace.fleet.execution.prune import (
    APPROVED_UNTIL,
    FREE_DELETIONS,
    LONGEST_WAVE_SECONDS,
    NEW_SECONDS,
    WINDOW_SECONDS,
    DeletionBudget,
    DeletionCounts,
    DeletionWave,
    DeletionWindow,
    Doomed,
    approved_until,
    is_paused,
    paused_condition,
    resumed_condition,
)
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import Object
from clusterspace.kube.times import format_time
from clusterspace.testing.clocks import ManualClock

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")


@pytest.mark.parametrize(
    ("staying", "pending", "recent", "is_too_much"),
    [
        (0, 10, 0, False),  # ten are always free
        (0, 11, 0, True),
        (0, 1, 10, True),  # what is gone counts as what is to go
        (39, 11, 0, True),  # 11 of 50 are more than a fifth
        (44, 11, 0, False),  # 11 of 55 are a fifth
        (400, 80, 20, False),
        (400, 80, 21, True),
    ],
)
def test_more_than_ten_and_more_than_a_fifth_is_too_much(
    staying: int, pending: int, recent: int, *, is_too_much: bool
) -> None:
    assert DeletionCounts(staying, pending, recent).is_too_much is is_too_much


async def test_a_deletion_counts_for_ten_minutes() -> None:
    clock = ManualClock()
    window = DeletionWindow(clock)
    window.note()
    await clock.advance(WINDOW_SECONDS / 2)
    window.note()

    await clock.advance(WINDOW_SECONDS / 2 - 1)
    assert window.count() == 2
    await clock.advance(1)
    assert window.count() == 1
    await clock.advance(WINDOW_SECONDS)
    assert window.count() == 0


def work(created: float, deleted: float | None) -> Object:
    metadata = {"creationTimestamp": format_time(created)}
    if deleted is not None:
        metadata["deletionTimestamp"] = format_time(deleted)
    return {"metadata": metadata}


@pytest.mark.parametrize(
    ("created", "deleted", "object_created", "is_new"),
    [
        (1000, 1300, 1001, True),
        (1000, 1300, 950, True),  # clocks differ
        (1000, 1300, 100, False),  # it was there before, and was taken over
        (1000, 1600, 1001, False),  # ten minutes are long enough to be relied on
        (1000, None, 1001, False),  # a Work that stays and drops it
        (1000, 1300, 0, False),  # nobody knows since when it is there
    ],
)
def test_what_came_with_a_work_of_minutes_ago_is_new(
    created: float, deleted: float | None, object_created: float, *, is_new: bool
) -> None:
    doomed = Doomed(ResourcePath(CONFIG_MAPS, "default", "web"), "uid", object_created)

    assert doomed.is_new_in(work(created, deleted)) is is_new


async def test_the_deletion_of_something_new_counts_for_seconds() -> None:
    clock = ManualClock()
    nobody: Any = None  # nothing is written: the budget is not asked, only looked at
    budget = DeletionBudget(nobody, cluster, nobody, clock)
    for _ in range(FREE_DELETIONS):
        budget.note_deletion(clock.now(), is_new=True)
    budget.note_work("web", clock.now())
    assert budget.counts.is_too_much

    await clock.advance(NEW_SECONDS)

    assert not budget.counts.is_too_much


def test_what_went_with_a_leave_does_not_count_when_the_cluster_is_back() -> None:
    clock = ManualClock()
    nobody: Any = None
    held: Object = {"metadata": {"deletionTimestamp": format_time(clock.now())}}
    budget = DeletionBudget(nobody, lambda: held, nobody, clock)
    for _ in range(FREE_DELETIONS):
        budget.note_deletion(clock.now())

    held = cluster()
    budget.note_work("web", clock.now())

    assert not budget.counts.is_too_much


def test_a_person_who_resumes_begins_a_new_window() -> None:
    window = DeletionWindow(ManualClock())
    window.note()

    window.clear()

    assert window.count() == 0


def cluster(*conditions: Condition, **annotations: str) -> Object:
    held: list[Object] = []
    for each in conditions:
        held = set_condition(held, each, 1000).conditions
    return {"metadata": {"annotations": annotations}, "status": {"conditions": held}}


def test_the_pause_is_written_on_the_cluster_and_so_is_its_end() -> None:
    paused = paused_condition(DeletionCounts(10, 20, 3))

    assert not is_paused(cluster())
    assert is_paused(cluster(paused))
    assert not is_paused(cluster(paused, resumed_condition()))
    assert "23 of 33 objects" in paused.message
    assert "3 of them are" in paused.message


def test_what_a_person_approved_of_is_known_by_its_time() -> None:
    assert approved_until(cluster()) == 0
    assert approved_until(cluster(**{APPROVED_UNTIL: "1970-01-01T00:01:00Z"})) == 60


def never() -> bool:
    return False


async def test_the_first_of_a_slow_wave_waits_for_the_last() -> None:
    clock = ManualClock()
    wave = DeletionWave(clock, 0.4)
    wave.heard()
    first = asyncio.create_task(wave.wait(never))

    for _ in range(20):  # seven seconds
        await clock.advance(0.35)
        wave.heard()
        assert not first.done()

    await clock.advance(0.4)
    assert first.done()


async def test_a_wave_that_needs_a_person_anyway_is_not_waited_for() -> None:
    wave = DeletionWave(ManualClock(), 0.4)
    wave.heard()
    await wave.wait(lambda: True)


async def test_a_wave_without_end_is_waited_for_once() -> None:
    clock = ManualClock()
    wave = DeletionWave(clock, 0.4)
    wave.heard()
    first = asyncio.create_task(wave.wait(never))
    for _ in range(int(LONGEST_WAVE_SECONDS / 0.25)):
        await clock.advance(0.25)
        wave.heard()
    await clock.advance(0.25)
    assert first.done()
    wave.heard()

    await wave.wait(never)  # in the same wave nobody waits any more


async def test_time_in_which_nobody_could_be_heard_is_no_silence() -> None:
    clock = ManualClock()
    wave = DeletionWave(clock, 0.4)
    wave.heard()
    await clock.advance(0.39)
    first = asyncio.create_task(wave.wait(never))  # it took its time to ask
    await clock.advance(0.1)
    assert not first.done()

    clock.freeze(2)  # the whole process stands still
    await clock.advance(0)
    assert not first.done()

    await clock.advance(0.4)
    assert first.done()
