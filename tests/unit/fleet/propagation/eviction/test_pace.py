"""How many evictions begin, in the fleet and in each failure domain."""

from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.fleet.propagation.eviction.pace import FEWEST, WINDOW_SECONDS, Pace
from clusterspace.telemetry import metrics
from clusterspace.testing.clocks import ManualClock


def turns(count: int) -> list[tuple[Request, str]]:
    return [(Request(f"app-{number}", "default"), "west") for number in range(count)]


def test_a_region_is_left_slowly_and_holds_up_no_other() -> None:
    pace = Pace(ManualClock(), EvictionSettings(each_second=1, domain_each_second=0.25))

    in_eu = [pace.wait(each, "eu") for each in turns(3)]
    elsewhere = pace.wait((Request("other", "default"), "east"), "us")

    assert in_eu == [0.0, 4.0, 8.0]
    assert elsewhere == 3.0


def test_clusters_without_a_region_have_the_rate_of_the_fleet() -> None:
    pace = Pace(ManualClock(), EvictionSettings(each_second=2, domain_each_second=0.001))

    assert [pace.wait(each, "") for each in turns(3)] == [0.0, 0.5, 1.0]


def test_no_rate_begins_nothing() -> None:
    (turn,) = turns(1)

    assert Pace(ManualClock(), EvictionSettings(each_second=0)).wait(turn, "eu") > 0
    assert Pace(ManualClock(), EvictionSettings(domain_each_second=0)).wait(turn, "eu") > 0


def test_when_half_of_a_region_has_left_the_others_wait_for_ten_minutes() -> None:
    clock = ManualClock()
    pace = Pace(clock, EvictionSettings(domain_percent=50))
    left = 0
    for each in turns(100):
        if pace.braked("eu", lambda there=100 - left: there):
            break
        pace.begun(each, "eu")
        left += 1
    name, labels = "clusterspace_evictions_braked", {"domain": "eu"}

    assert left == 50
    assert pace.braked("eu", lambda: 50) == WINDOW_SECONDS
    assert metrics.REGISTRY.get_sample_value(name, labels) == 1
    assert pace.braked("us", lambda: 100) == 0
    clock.freeze(WINDOW_SECONDS)
    assert pace.braked("eu", lambda: 50) == 0
    assert metrics.REGISTRY.get_sample_value(name, labels) == 0


def test_a_few_workloads_may_leave_in_any_case() -> None:
    pace = Pace(ManualClock(), EvictionSettings(domain_percent=0))
    for each in turns(FEWEST):
        assert pace.braked("eu", lambda: FEWEST) == 0
        pace.begun(each, "eu")

    assert pace.braked("eu", lambda: FEWEST) > 0
