"""Failover decided a thousand times: the product's own decisions, on clocks that the test turns."""

import os
import time
from collections.abc import Iterable
from secrets import randbelow

import pytest
from tests.robustness.stepped_fleet import CUT, FAULTS, MOST_CUT, SteppedFleet

from clusterspace.apis.witnesses import CONFIRMED
from clusterspace.fleet.execution.exclusive import CopyStops, ExclusiveCopies
from clusterspace.fleet.propagation.eviction import controller as eviction
from clusterspace.fleet.propagation.eviction.decisions import ClusterState
from clusterspace.fleet.propagation.eviction.witnesses import Witnesses
from clusterspace.fleet.propagation.scheduler.reservations import Reservations
from clusterspace.fleet.propagation.works.exclusive import StopProofs
from clusterspace.kube.conditions import TRUE, Condition

SEED = "CLUSTERSPACE_STEPPED_SEED"
"""Repeats a run of many: the first has this seed, and each one after it the next."""
ROUNDS = "CLUSTERSPACE_STEPPED_ROUNDS"


async def play(seeds: Iterable[int]) -> list[str]:
    wrong: list[str] = []
    for seed in seeds:
        if found := await SteppedFleet(seed).play():
            wrong.append(found)
            print(found)
    return wrong


async def test_each_fault_ends_as_if_nothing_had_been(logged_errors: list[str]) -> None:
    # Once with agents everywhere, and once with a Push cluster and its watchdog among them.
    assert await play(range(2 * len(FAULTS))) == []


async def test_a_new_leader_does_not_give_away_room_that_the_last_one_gave_away(
    logged_errors: list[str],
) -> None:
    assert await play((100545,)) == []


async def test_push_clusters_that_fail_together_with_others_count_before_they_are_noticed(
    logged_errors: list[str],
) -> None:
    assert await play((9300058,)) == []


async def test_nothing_leaves_a_push_cluster_that_the_leader_alone_does_not_reach(
    logged_errors: list[str],
) -> None:
    rounds = range(3 * len(FAULTS), 32 * len(FAULTS), 4 * len(FAULTS))
    assert await play(FAULTS.index(CUT) + each for each in rounds) == []


@pytest.mark.slow
async def test_two_thousand_runs_in_which_nothing_runs_twice_or_is_lost(
    logged_errors: list[str],
) -> None:
    first = int(os.environ.get(SEED) or 1000 + randbelow(1_000_000_000))
    rounds = int(os.environ.get(ROUNDS) or 2000)
    began = time.process_time()
    wrong = await play(range(first, first + rounds))
    print(f"{rounds} runs from seed {first}: {time.process_time() - began:.0f} s of a processor")
    assert wrong == []


async def never(self: CopyStops) -> int:
    return 0


async def always(self: ExclusiveCopies, work: object) -> bool:
    return True


def trusted(self: StopProofs) -> str:
    return ""


def well(clusters: Iterable[ClusterState]) -> str:
    return ""


def unreserved(self: Reservations, candidates: object, request: object) -> object:
    return candidates


def agreed(self: Witnesses, uid: str, needed: int) -> Condition:
    return Condition(CONFIRMED, TRUE, "Planted", "nobody else is asked")


PLANTED = {
    "no lease": (CUT, 12, [(ExclusiveCopies, "stop_all", never)]),
    "no watchdog": (CUT, 24, [(CopyStops, "stop_all", never)]),
    "no quorum": (
        MOST_CUT,
        4,
        [(StopProofs, "_why_not_trusted", trusted), (eviction, "look_dead", well)],
    ),
    "stale work": (CUT, 40, [(ExclusiveCopies, "admits", always)]),
    "no second witness": (CUT, 8, [(Witnesses, "judge", agreed)]),
    "reservation dropped": (CUT, 12, [(Reservations, "apply", unreserved)]),
}


@pytest.mark.parametrize("bug", PLANTED)
async def test_a_planted_bug_is_found(
    bug: str, monkeypatch: pytest.MonkeyPatch, logged_errors: list[str]
) -> None:
    fault, tries, changes = PLANTED[bug]
    for owner, name, replacement in changes:
        monkeypatch.setattr(owner, name, replacement)
    for number in range(tries):
        if await SteppedFleet(FAULTS.index(fault) + number * len(FAULTS)).play():
            return
    pytest.fail(f"{tries} runs did not show it")
