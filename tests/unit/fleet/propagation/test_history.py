"""The story of a move, as events tell it."""

from clusterspace.fleet.propagation.history import story_of
from clusterspace.kube.objects import Object


def event(second: int, reason: str, message: str, count: int = 1) -> Object:
    time = f"2026-03-01T10:00:{second:02}Z"
    return {"reason": reason, "message": message, "lastTimestamp": time, "count": count}


PLACED = event(0, "ScheduleBindingSucceed", "Result: {west:2}")


def test_what_was_placed_once_and_never_moved_has_no_story() -> None:
    assert story_of([PLACED, event(1, "SyncWorkSucceed", "Works are written for west.")]) == ()


def test_a_move_is_told_in_the_order_in_which_it_happened() -> None:
    told = story_of(
        [
            event(9, "EvictWorkloadFromClusterSucceed", "Evict from cluster west succeed."),
            event(5, "ScheduleBindingSucceed", "Result: {east:2}"),
            event(5, "EvictWorkloadFromClusterStarted", "Evicting from cluster west: why."),
            event(3, "EvictWorkloadFromClusterSuspended", "3 of 4 are not ready", count=2),
            PLACED,
        ]
    )

    assert told == (
        "2026-03-01T10:00:00Z Result: {west:2}",
        "2026-03-01T10:00:03Z nobody was evicted: 3 of 4 are not ready (2 times)",
        "2026-03-01T10:00:05Z Evicting from cluster west: why.",
        "2026-03-01T10:00:05Z Result: {east:2}",
        "2026-03-01T10:00:09Z Evict from cluster west succeed.",
    )


def test_what_an_exclusive_workload_waited_for_is_part_of_its_story() -> None:
    waits = "east: west has not stopped it; if its agent stays silent it has by its lease"
    told = story_of(
        [
            PLACED,
            event(1, "SyncWorkSucceed", "Works are written for west."),
            event(5, "ScheduleBindingSucceed", "Result: {east:2}"),
            event(8, "ExclusiveCopyNotStopped", waits, count=40),
            event(8, "SyncWorkSucceed", "Works are written for east."),
        ]
    )

    assert told[-2:] == (
        f"2026-03-01T10:00:08Z {waits} (40 times)",
        "2026-03-01T10:00:08Z Works are written for east.",
    )
