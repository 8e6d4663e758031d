"""Room that was given away is nobody else's until a report has it, or it came to nothing."""

import sys
from collections.abc import Callable, Mapping

from clusterspace.apis.affinities import Traits
from clusterspace.apis.estimates import Claim
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.scheduler.demands import read_amounts
from clusterspace.fleet.propagation.scheduler.filters import (
    Candidate,
    Room,
    candidate_of,
    most_replicas,
)
from clusterspace.fleet.propagation.scheduler.reservations import (
    COMPONENTS_SECONDS,
    RESERVED_SECONDS,
    Reservations,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.times import format_time
from clusterspace.testing.clocks import ManualClock

FIRST, SECOND = Request("first", "default"), Request("second", "default")
CPU = Claim(read_amounts({"cpu": "1"}))


def west(pods: int, cpu: int = 100) -> dict[str, Candidate]:
    free = read_amounts({"pods": str(pods), "cpu": str(cpu)})
    return {"west": Candidate(Traits("west", {}), room=Room(free))}


def left(reservations: Reservations, reported: dict[str, Candidate], request: Request) -> int:
    found = reservations.apply(reported, request)["west"]
    return most_replicas(found.room, CPU.each)


def test_room_is_taken_off_for_others_until_it_is_reported() -> None:
    reservations = Reservations(ManualClock())
    reservations.take(FIRST, {"west": 3}, CPU, west(10))

    assert left(reservations, west(10), SECOND) == 7
    assert left(reservations, west(10), FIRST) == 10
    assert left(reservations, west(10, cpu=5), SECOND) == 2
    assert left(reservations, west(8, cpu=98), SECOND) == 5  # two of the three: not all yet
    assert left(reservations, west(7, cpu=97), SECOND) == 7
    assert not reservations


def test_the_oldest_are_reported_first() -> None:
    reservations = Reservations(ManualClock())
    reservations.take(FIRST, {"west": 2}, CPU, west(10))
    reservations.take(SECOND, {"west": 4}, CPU, west(10))
    third = Request("third", "default")

    assert left(reservations, west(10), third) == 4
    assert left(reservations, west(8, cpu=98), third) == 4
    assert left(reservations, west(4, cpu=94), third) == 4


def test_pods_that_ask_for_less_are_not_those_that_were_placed() -> None:
    reservations = Reservations(ManualClock())
    reservations.take(FIRST, {"west": 3}, CPU, west(50, cpu=10))

    assert left(reservations, west(40, cpu=10), SECOND) == 7
    assert left(reservations, west(40, cpu=8), SECOND) == 5
    assert left(reservations, west(37, cpu=7), SECOND) == 7


def test_what_an_operator_makes_is_not_taken_for_reported_when_others_are() -> None:
    reservations = Reservations(ManualClock())
    cpu = {"replicaRequirements": {"resourceRequest": {"cpu": "1"}}}
    components = [{"name": each, "replicas": 1, **cpu} for each in ("head", "tail")]
    job = {"spec": {"components": components}}
    reservations.reserve(FIRST, job, {"west": 0}, west(50, cpu=10))
    reservations.take(SECOND, {"west": 3}, CPU, west(50, cpu=10))
    third = Request("third", "default")

    assert left(reservations, west(50, cpu=10), third) == 5
    # The three of the second are there, and nobody has made the first's.
    assert left(reservations, west(47, cpu=7), third) == 5
    assert left(reservations, west(45, cpu=5), third) == 5
    assert not reservations


def calls_in(work: Callable[[], object]) -> int:
    calls = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_the_thousandth_is_placed_with_no_more_work_than_the_second() -> None:
    reservations, reported = Reservations(ManualClock()), west(5000, cpu=5000)
    requests = [Request(f"app-{number}", "default") for number in range(1000)]

    def place(request: Request) -> None:
        reservations.apply(reported, request)
        reservations.take(request, {"west": 2}, CPU, reported)
        reservations.apply(reported, request)  # its own write comes back

    place(requests[0])
    second = calls_in(lambda: place(requests[1]))
    for request in requests[2:-1]:
        place(request)
    assert calls_in(lambda: place(requests[-1])) == second
    assert left(reservations, reported, FIRST) == 3000


def test_what_came_to_nothing_is_free_again() -> None:
    clock = ManualClock()
    reservations = Reservations(clock)
    reservations.take(FIRST, {"west": 3, "gone": 2}, CPU, west(10))
    reservations.release(FIRST)
    assert left(reservations, west(10), SECOND) == 10

    reservations.take(FIRST, {"west": 3, "east": -1}, CPU, west(10))
    clock.freeze(RESERVED_SECONDS)
    assert left(reservations, west(10), SECOND) == 10
    assert not reservations


def test_what_was_placed_within_a_second_is_over_together() -> None:
    clock = ManualClock()
    reservations = Reservations(clock)
    for request in (FIRST, SECOND):
        clock.freeze(0.25)
        reservations.take(request, {"west": 3}, CPU, west(10))
    third = Request("third", "default")

    clock.freeze(RESERVED_SECONDS)
    assert left(reservations, west(10), third) == 4
    clock.freeze(0.5)
    assert left(reservations, west(10), third) == 10


def test_a_cluster_that_is_gone_is_forgotten() -> None:
    reservations = Reservations(ManualClock())
    reservations.take(FIRST, {"west": 3}, CPU, west(10))

    assert reservations.apply({}, SECOND) == {}
    assert not reservations


def test_what_another_process_placed_and_nobody_reports_is_reserved_too() -> None:
    reservations = Reservations(ManualClock())
    spec = {"clusters": [{"name": "west", "replicas": 3}]}
    reported = {"clusterName": "west", "status": {"replicas": 3}}

    reservations.inherit(FIRST, {"spec": spec}, west(10))
    assert left(reservations, west(10), SECOND) == 7
    reservations.release(FIRST)
    reservations.inherit(
        FIRST, {"spec": spec, "status": {"aggregatedStatus": [reported]}}, west(10)
    )
    assert left(reservations, west(10), SECOND) == 10


def by_nodes(*cpu: str, **status: object) -> dict[str, Candidate]:
    rooms = [{"count": 1, "free": {"cpu": each, "pods": "110"}} for each in cpu]
    told = {"estimate": {"nodes": [{"rooms": rooms}], **status}}
    return {"west": candidate_of({"metadata": {"name": "west"}, "spec": {}, "status": told})}


def fitting(found: Mapping[str, Candidate], claim: Claim = CPU) -> int:
    estimate = found["west"].room.estimate
    known = estimate.read() if estimate else None
    assert known is not None
    return known.fits(claim)


def test_room_is_taken_off_nodes_too() -> None:
    reservations, reported = Reservations(ManualClock()), by_nodes("3", "3")
    three = Claim(read_amounts({"cpu": "3"}))

    reservations.take(FIRST, {"west": 1}, CPU, reported)
    assert fitting(reservations.apply(reported, SECOND)) == 5
    assert fitting(reservations.apply(reported, SECOND), three) == 1
    assert fitting(reservations.apply(reported, FIRST)) == 6
    reservations.take(SECOND, {"west": 2}, CPU, reported)
    third = Request("third", "default")
    assert fitting(reservations.apply(reported, third)) == 3
    assert fitting(reservations.apply(by_nodes("4", "4"), third)) == 5
    reservations.release(SECOND)
    assert fitting(reservations.apply(reported, third)) == 5


def test_room_given_away_on_a_cluster_that_is_not_heard_of_stays_given_away() -> None:
    clock = ManualClock()
    reservations, silent = Reservations(clock), by_nodes("3", staleSince="2026-01-01T00:00:00Z")
    reservations.take(FIRST, {"west": 1}, CPU, silent)
    clock.freeze(RESERVED_SECONDS * 10)

    assert fitting(reservations.apply(silent, SECOND)) == 2
    assert fitting(reservations.apply(by_nodes("3"), SECOND)) == 3


def test_the_components_of_a_workload_are_reserved_where_it_is_new() -> None:
    clock = ManualClock()
    reservations, reported = Reservations(clock), by_nodes("3", "3")
    cpu = {"replicaRequirements": {"resourceRequest": {"cpu": "1"}}}
    components = [{"name": "head", "replicas": 1, **cpu}, {"name": "tail", "replicas": 2, **cpu}]
    job = {"spec": {"components": components}}

    reservations.reserve(FIRST, job, {"west": 0}, reported)
    assert fitting(reservations.apply(reported, SECOND)) == 3
    placed = {"spec": {"components": components, "clusters": [{"name": "west"}]}}
    reservations.release(FIRST)
    reservations.reserve(FIRST, placed, {"west": 0}, reported)
    assert fitting(reservations.apply(reported, SECOND)) == 6
    reservations.inherit(FIRST, placed, reported)
    assert fitting(reservations.apply(reported, SECOND)) == 3
    # An operator on the member makes their pods, if it has been started itself.
    clock.freeze(RESERVED_SECONDS)
    assert fitting(reservations.apply(reported, SECOND)) == 3
    clock.freeze(COMPONENTS_SECONDS - RESERVED_SECONDS)
    assert fitting(reservations.apply(reported, SECOND)) == 6


def test_components_that_are_applied_and_report_nothing_keep_their_room_after_a_new_leader() -> (
    None
):
    clock = ManualClock()
    reservations, reported = Reservations(clock), by_nodes("3", "3")
    cpu = {"replicaRequirements": {"resourceRequest": {"cpu": "1"}}}
    components = [{"name": "head", "replicas": 1, **cpu}, {"name": "tail", "replicas": 2, **cpu}]
    spec = {"clusters": [{"name": "west"}], "components": components}

    def left_with(report: Object, scheduled: float) -> int:
        reservations.release(FIRST)
        status = {
            "aggregatedStatus": [{"clusterName": "west", "applied": True, **report}],
            "lastScheduledTime": format_time(scheduled),
        }
        reservations.inherit(FIRST, {"spec": spec, "status": status}, reported)
        return fitting(reservations.apply(reported, SECOND))

    now = clock.now()
    assert left_with({}, now) == 3
    assert left_with({"health": "Unknown"}, now - COMPONENTS_SECONDS / 2) == 3
    # Its operator has said something, or has had its time.
    assert left_with({"status": {"state": "RUNNING"}}, now) == 6
    assert left_with({"health": "Healthy"}, now) == 6
    assert left_with({}, now - COMPONENTS_SECONDS) == 6
    # What was placed half its time ago is counted for the other half; a clock that was wrong, never
    # for longer than all of it.
    assert left_with({}, now - COMPONENTS_SECONDS / 2) == 3
    clock.freeze(COMPONENTS_SECONDS / 2 + 1)
    assert fitting(reservations.apply(reported, SECOND)) == 6
    assert left_with({}, clock.now() + 86_400) == 3
    clock.freeze(COMPONENTS_SECONDS + 1)
    assert fitting(reservations.apply(reported, SECOND)) == 6
