"""Exclusive workloads never run twice, whatever happens to links, agents, leaders and clocks."""

import os
from pathlib import Path
from secrets import randbelow

import pytest
from tests.robustness.exclusive_fleet import CUT, FAULTS, MOST_CUT, exclusive_fleet
from tests.robustness.exclusive_part import NO_LEASE, NO_QUORUM, STALE_WORK

SEED = "CLUSTERSPACE_FAILOVER_SEED"
"""Repeats a run: its first round has this seed, and each one after it the next."""
ROUNDS = "CLUSTERSPACE_FAILOVER_ROUNDS"


async def play(directory: Path, rounds: int, first: int, bug: str = "") -> list[str]:
    """Play rounds; return what went wrong in each, and stop at the first when a bug is planted."""
    wrong: list[str] = []
    async with exclusive_fleet(directory, bug) as fleet:
        for seed in range(first, first + rounds):
            found = await fleet.play(seed)
            print(f"round {seed - first + 1} of {rounds}, {SEED}={seed}: {found or 'as it should'}")
            wrong += [found] if found else []
            if found and bug:
                break
        print(f"{fleet.moves} of {rounds} rounds ran elsewhere before all was well again")
    return wrong


async def test_a_workload_that_is_cut_off_runs_elsewhere_and_never_twice(
    tmp_path: Path, logged_errors: list[str]
) -> None:
    async with exclusive_fleet(tmp_path) as fleet:
        assert await fleet.play(FAULTS.index(CUT)) == ""
        assert fleet.moves == 1


@pytest.mark.slow
async def test_no_moment_at_which_an_exclusive_workload_runs_twice(
    tmp_path: Path, logged_errors: list[str]
) -> None:
    first = int(os.environ.get(SEED) or 1000 + randbelow(1_000_000_000))
    assert await play(tmp_path, int(os.environ.get(ROUNDS) or 200), first) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "first", "rounds"),
    [
        (NO_LEASE, FAULTS.index(CUT), 4),
        (NO_QUORUM, FAULTS.index(MOST_CUT), 2),
        (STALE_WORK, FAULTS.index(CUT), 12),
    ],
)
async def test_a_planted_bug_is_found(
    tmp_path: Path, logged_errors: list[str], bug: str, first: int, rounds: int
) -> None:
    assert await play(tmp_path, rounds, first, bug) != []
