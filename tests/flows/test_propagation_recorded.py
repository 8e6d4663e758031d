"""Every recorded scene of propagation, from the template to the members and back."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.flows.scenes import Player
from tests.flows.stages import KUBERNETES, MIXED, PULL, PUSH, SIM, Stage, staged

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCENES = {
    "duplicated": 16,
    "divided": 6,
    "conflict_matrix": 30,
    "promote": 6,
    "override_and_cluster_scope": 14,
    "taints_and_cordon": 5,
    "unschedulable_and_missing": 4,
}
"""And how many objects each compares, at least."""
STAGES = ((SIM, PUSH), (SIM, PULL), (KUBERNETES, MIXED))


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def setting(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    setting: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """All scenes play on one stage: what they leave does not meet."""
    async with staged(*setting, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.mark.parametrize(("scene", "least"), SCENES.items(), ids=SCENES)
async def test_a_scene_ends_as_recorded(
    setting: tuple[str, str], stage: Stage, scene: str, least: int
) -> None:
    player = Player(stage, setting[0])

    await player.play(scene)

    assert len(player.compared) >= least
