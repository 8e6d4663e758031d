"""A cluster that joined by MemberCluster takes part in PropagationPolicies, with its taints."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.component.invited_members import Invited, placed

from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import running_fleet
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

GPU: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Invited]:
    async with running_fleet(tmp_path_factory.mktemp("fleet")) as running:
        invited = Invited(running)
        member = await running.add_member("west")
        await invited.invite()
        async with invited.controllers(), invited.agent(member):
            await invited.until_joined()
            yield invited


@pytest_asyncio.fixture(loop_scope="module")
async def joined(fleet: Invited) -> Invited:
    """Return a fleet whose cluster has no taints, whatever the test before left on it."""
    await taint(fleet)
    return fleet


async def place(joined: Invited, name: str, *tolerations: Object) -> None:
    config_map: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"said": "yes"},
    }
    policy: Object = {
        "apiVersion": PROPAGATION_POLICIES.api_version,
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name}],
            "placement": {
                "clusterAffinity": {"clusterNames": ["west"]},
                "clusterTolerations": list(tolerations),
            },
        },
    }
    await joined.hub.create(ResourcePath(manifests.CONFIG_MAPS, "default"), config_map)
    await joined.hub.create(ResourcePath(PROPAGATION_POLICIES, "default"), policy)


async def taint(joined: Invited, *taints: Object) -> None:
    await joined.change(lambda held: with_value(held, list(taints), "spec", "taints"))

    async def is_carried_over() -> bool:
        cluster = await joined.fleet.cluster("west")
        return (find_at(cluster, "spec", "taints") or []) == list(taints)

    await until(is_carried_over)


async def test_what_a_policy_places_is_carried_out_by_the_invited_agent(joined: Invited) -> None:
    await place(joined, "settings")
    await joined.until_placed("settings")


async def test_a_taint_keeps_new_work_away_until_it_is_tolerated_or_gone(joined: Invited) -> None:
    await taint(joined, GPU)
    await place(joined, "repelled")
    await place(joined, "tolerated", {"key": "gpu", "operator": "Exists"})
    await joined.until_placed("tolerated")
    await settled()
    assert "repelled" not in await placed(joined, "west")

    await taint(joined)
    await joined.until_placed("repelled")


async def test_a_taint_added_later_takes_nothing_away(joined: Invited) -> None:
    await place(joined, "early")
    await joined.until_placed("early")
    await taint(joined, GPU)
    await settled()
    assert "early" in await placed(joined, "west")
