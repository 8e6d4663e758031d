import pytest

from clusterspace.fleet.execution.prune import (
    APPROVED_UNTIL,
    WINDOW_SECONDS,
    DeletionCounts,
    DeletionWindow,
    approved_until,
    is_paused,
    paused_condition,
    resumed_condition,
)
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import Object
from clusterspace.testing.clocks import ManualClock


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
