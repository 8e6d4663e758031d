"""Propagation killed before and after every write of a story; nobody reading the end can tell.

The story is deploy, change, move, delete: `tests/flows/mortal_fleets.py`. In Push mode the
controllers with their executors die, in Pull mode the agents.
"""

from itertools import product
from pathlib import Path

import pytest
from tests.flows.mortal_fleets import MortalFleet, Story, mortal_fleet, strange
from tests.flows.stages import PULL, PUSH

from clusterspace.testing.crashes import CrashPoint, Fuse

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", [PUSH, PULL])
async def test_killed_at_every_write_it_ends_where_it_would_have(mode: str, tmp_path: Path) -> None:
    async with mortal_fleet(mode, tmp_path) as fleet:
        counting, usual = Fuse(), Story(fleet)
        async with fleet.living(counting):
            await usual.tell()
        points = [
            CrashPoint(*each) for each in product(range(1, counting.writes + 1), (False, True))
        ]
        odd = {point: found for point in points if (found := await odd_at(fleet, usual, point))}

        print(f"{mode}: {len(points)} points, killed at {fleet.deaths}")
        assert odd == {}
        # Now and then two writes become one, and the story ends before the last point.
        assert fleet.deaths >= 0.9 * len(points)


async def odd_at(fleet: MortalFleet, usual: Story, point: CrashPoint) -> list[str]:
    """Tell the story with a death in it; return what is odd about how it went."""
    story = Story(fleet)
    try:
        async with fleet.living(Fuse(point)):
            await story.tell()
    except AssertionError as stuck:
        return [str(stuck)]
    lost = fleet.uids.items() - (await fleet.survivors()).items()
    return [*strange(usual, story), *(f"{each} is lost" for each, _ in lost)]
