"""Leaders, agents and hubs are frozen at work, and thawed when others have done it."""

import os
from pathlib import Path
from secrets import randbelow

import pytest
from tests.robustness.freezing_fleet import freezing_fleet

SEED = "CLUSTERSPACE_FREEZE_SEED"
"""Repeats a run: its first round has this seed, and each one after it the next."""
ROUNDS = "CLUSTERSPACE_FREEZE_ROUNDS"


async def play(directory: Path, rounds: int, first: int) -> None:
    wrong: list[str] = []
    async with freezing_fleet(directory) as fleet:
        for seed in range(first, first + rounds):
            found = await fleet.play(seed)
            print(f"round {seed - first + 1} of {rounds}, {SEED}={seed}: {found or 'explained'}")
            if found:
                wrong.append(found)
    assert wrong == []


async def test_a_leader_frozen_in_a_burst_of_placement_changes_leaves_nothing_behind(
    tmp_path: Path, logged_errors: list[str]
) -> None:
    await play(tmp_path, rounds=2, first=int(os.environ.get(SEED) or 1))


@pytest.mark.slow
async def test_two_hundred_freezes_leave_no_object_that_no_work_explains(
    tmp_path: Path, logged_errors: list[str]
) -> None:
    first = int(os.environ.get(SEED) or randbelow(1_000_000_000))
    await play(tmp_path, rounds=int(os.environ.get(ROUNDS) or 200), first=first)
