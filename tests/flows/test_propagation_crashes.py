"""Killed before or after a write, propagation comes back and ends where it would have ended.

A few points of the story; `tests/robustness` has them all.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.flows.mortal_fleets import MortalFleet, Story, mortal_fleet, strange
from tests.flows.stages import PULL, PUSH

from clusterspace.testing.crashes import CrashPoint, Fuse

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHARES = (0.15, 0.5, 0.85)
"""How far into the story it is killed."""
POINTS = tuple(
    pytest.param(
        share,
        is_after,
        id=f"{share}-{'after' if is_after else 'before'}",
        # Every share, before and after, by Push and by Pull; but not all of them with all.
        marks=[pytest.mark.slow] if is_after != (index % 2 == 1) else [],
    )
    for index, share in enumerate(SHARES)
    for is_after in (False, True)
)


@dataclass
class Told:
    """A fleet, and the story as it goes when nobody dies."""

    fleet: MortalFleet
    usual: Story
    writes: int


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[PUSH, PULL])
async def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Told]:
    async with mortal_fleet(request.param, tmp_path_factory.mktemp("fleet")) as fleet:
        fuse, usual = Fuse(), Story(fleet)
        async with fleet.living(fuse):
            await usual.tell()
        yield Told(fleet, usual, fuse.writes)


@pytest.mark.parametrize(("share", "is_after"), POINTS)
async def test_killed_at_a_write_it_ends_where_it_would_have(
    told: Told, share: float, *, is_after: bool
) -> None:
    write = 1 + int(share * told.writes)
    fuse, story = Fuse(CrashPoint(write, is_after=is_after)), Story(told.fleet)

    async with told.fleet.living(fuse):
        await story.tell()

    assert fuse.is_blown
    assert strange(told.usual, story) == []
    assert await told.fleet.survivors() == told.fleet.uids
