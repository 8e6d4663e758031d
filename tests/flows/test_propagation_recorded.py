"""Every recorded scene of propagation, from the template to the members and back."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.flows.scenes import Player
from tests.flows.stages import KUBERNETES, MIXED, PULL, PUSH, SIM, Stage, staged

from clusterspace.testing.hubs import OURS, SEVERAL

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
STAGES = (
    (SIM, PUSH, OURS),
    (SIM, PULL, OURS),
    (KUBERNETES, MIXED, OURS),
    pytest.param((SIM, PUSH, KUBERNETES), marks=pytest.mark.slow),
    pytest.param((SIM, PULL, KUBERNETES), marks=pytest.mark.slow),
    pytest.param((SIM, PUSH, SEVERAL), marks=pytest.mark.slow),
    pytest.param((SIM, PULL, SEVERAL), marks=pytest.mark.slow),
)
"""What members are, how they belong to the hub, and what that is."""


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def setting(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    setting: tuple[str, str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """All scenes play on one stage: what they leave does not meet."""
    kind, mode, hub_kind = setting
    async with staged(kind, mode, tmp_path_factory.mktemp("stage"), hub_kind=hub_kind) as stage:
        yield stage


@pytest.mark.parametrize(("scene", "least"), SCENES.items(), ids=SCENES)
async def test_a_scene_ends_as_recorded(
    setting: tuple[str, str, str], stage: Stage, scene: str, least: int
) -> None:
    player = Player(stage, setting[0])

    await player.play(scene)

    assert len(player.compared) >= least
