from clusterspace.fleet.execution.apply import (
    BURST,
    LONGEST_REPAIR_SECONDS,
    PER_SECOND,
    REPAIRED_AFTER_SECONDS,
    RepairPace,
)
from clusterspace.testing.clocks import ManualClock


def test_the_first_repair_is_made_at_once() -> None:
    assert RepairPace(ManualClock()).wait_seconds("a") == 0


async def test_who_keeps_changing_an_object_back_is_answered_ever_more_slowly() -> None:
    clock = ManualClock()
    pace = RepairPace(clock)
    waits: list[float] = []
    for _ in range(12):
        waits.append(pace.wait_seconds("a"))
        await clock.advance(waits[-1])
        if waits[-1]:
            assert pace.wait_seconds("a") == 0

    assert [each for each in waits if each][:4] == [1, 2, 4, 8]
    assert max(waits) == LONGEST_REPAIR_SECONDS


async def test_an_object_left_in_peace_is_repaired_at_once_again() -> None:
    clock = ManualClock()
    pace = RepairPace(clock)
    pace.wait_seconds("a")

    await clock.advance(REPAIRED_AFTER_SECONDS)

    assert pace.wait_seconds("a") == 0
    assert pace.wait_seconds("a") == 1, "and is counted from the beginning"


async def test_a_member_takes_so_many_repairs_a_second() -> None:
    clock = ManualClock()
    pace = RepairPace(clock)
    assert all(pace.wait_seconds(number) == 0 for number in range(BURST))

    wait = pace.wait_seconds("one more")

    assert wait == 1 / PER_SECOND
    await clock.advance(wait)
    assert pace.wait_seconds("one more") == 0


def test_an_object_made_anew_has_no_past() -> None:
    pace = RepairPace(ManualClock())
    pace.wait_seconds("a")

    pace.forget("a")

    assert pace.wait_seconds("a") == 0
