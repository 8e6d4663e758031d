"""A cluster leaves with what a policy placed on it: all of it goes, or all of it stays."""

import pytest

from clusterspace.apis import stamps
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, labels_of
from clusterspace.testing.builders import CONFIG_MAPS
from clusterspace.testing.stage import Fleet, Side, running_fleet
from clusterspace.testing.steps import until

SHARED = ResourcePath(CONFIG_MAPS, "default", "shared")

POLICY: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "shared", "namespace": "default"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "shared"}],
        "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
    },
}


async def placed(fleet: Fleet, west: Side) -> None:
    """Place an object on a member, by policy."""
    hub = fleet.hub.client
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}}
    await hub.create(ResourcePath(CONFIG_MAPS, "default"), {**template, "data": {"kept": "yes"}})
    await hub.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)

    async def is_there() -> bool:
        return await west.client.find(SHARED) is not None

    await until(is_there)


@pytest.mark.parametrize("keeps", [True, False])
async def test_what_a_policy_placed_stays_or_goes_as_was_said(tmp_path, keeps):
    async with running_fleet(tmp_path) as fleet, fleet.controllers():
        west = await fleet.add_member("west")
        await fleet.join("west", west)
        await placed(fleet, west)

        await fleet.unjoin("west", keeps_resources=keeps)

        held = await west.client.find(SHARED)
        assert (held is not None) is keeps
        if held is not None:
            assert held["data"] == {"kept": "yes"}
            assert stamps.MANAGED not in labels_of(held)
