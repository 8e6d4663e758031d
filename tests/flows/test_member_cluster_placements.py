"""One cluster, joined by MemberCluster, in a policy and in a placement; one object, one owner."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.component.invited_members import Invited
from tests.component.placement_site import (
    CONFIG_MAPS,
    PlacementSite,
    namespace_selector,
    of_cluster,
    placement,
)
from tests.flows.members import SIM_FIRST, running_member

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import DELETIONS_PAUSED, WORKS, execution_namespace
from clusterspace.apis.fleet_placements import PARENT, PLACEMENTS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.roots.workloads import resume
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.stage import running_fleet
from clusterspace.testing.steps import until, until_equal

FIRST, SECOND = {"v": "1"}, {"v": "2"}
AT_ONCE = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}


@dataclass
class Joined:
    """A fleet with one cluster, which joined by MemberCluster and whose agent runs."""

    invited: Invited
    site: PlacementSite


@pytest.fixture(params=SIM_FIRST)
async def joined(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Joined]:
    directory = tmp_path / "member"
    directory.mkdir()
    async with (
        running_fleet(tmp_path) as fleet,
        running_member(request.param, directory) as member,
        AsyncExitStack() as stack,
    ):
        invited = Invited(fleet)
        await invited.invite()
        async with invited.controllers(), invited.agent(member):
            await invited.until_joined()
            members = {"west": member.client}
            yield Joined(invited, PlacementSite(invited.hub, tmp_path, stack, members))


def policy_for(name: str) -> Object:
    return {
        "apiVersion": PROPAGATION_POLICIES.api_version,
        "kind": "PropagationPolicy",
        "metadata": {"name": "pp", "namespace": "app"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name}],
            "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
        },
    }


async def refusals(site: PlacementSite, name: str) -> dict[str, str]:
    """Return what a placement may not have, and why, by name."""
    failed = of_cluster(await site.status(name), "west").get("failedPlacements") or []
    return {each["name"]: each["condition"]["message"] for each in failed}


async def orders_for(site: PlacementSite, name: str) -> int:
    """Return how many Works order an object."""
    works = await site.hub.list_objects(ResourcePath(WORKS, execution_namespace("west")))
    ordered = [name_of(manifest) for work in works for manifest in manifests_of(work)]
    return ordered.count(name)


async def test_an_invited_cluster_takes_part_in_a_policy_and_in_a_placement_until_it_leaves(
    joined: Joined,
) -> None:
    site = joined.site
    await site.app("by-placement")
    await site.put(NAMESPACES, namespace("other"))
    await site.put(CONFIG_MAPS, config_map("by-policy", FIRST, namespace="other"))
    policy = policy_for("by-policy")
    await site.put(
        PROPAGATION_POLICIES, {**policy, "metadata": {"name": "pp", "namespace": "other"}}
    )
    # By what its agent says of it, which no Cluster of another door tells.
    total = {
        "name": "resources.kubernetes-fleet.io/total-cpu", "operator": "Ge", "values": ["0"],
    }  # fmt: skip
    terms = [{"propertySelector": {"matchExpressions": [total]}}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": terms}}
    by_cpu = {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}
    await site.place(placement(policy=by_cpu, rollingUpdate=AT_ONCE))
    await site.until_settled()
    await site.until_data("west", "by-policy", FIRST, "other")
    assert await site.data("west", "by-placement") == FIRST
    assert find_at(await joined.invited.fleet.cluster("west"), "spec", "syncMode") == "Pull"

    await site.set_data("by-placement", SECOND)
    await site.set_data("by-policy", SECOND, "other")
    await site.until_data("west", "by-placement", SECOND)
    await site.until_data("west", "by-policy", SECOND, "other")

    await joined.invited.let_go()
    await joined.invited.until_gone()
    assert await site.data("west", "by-placement") is None
    assert await site.data("west", "by-policy", "other") is None
    assert await site.hub.find(ResourcePath(CONFIG_MAPS, "app", "by-placement"))
    assert await site.hub.find(ResourcePath(CONFIG_MAPS, "other", "by-policy"))


async def test_policy_and_placements_that_want_one_object_leave_it_to_one_owner(
    joined: Joined,
) -> None:
    site = joined.site
    await site.app("claimed", "free")
    await site.put(PROPAGATION_POLICIES, policy_for("claimed"))
    await site.until_data("west", "claimed", FIRST)
    await site.place(placement("first", namespace_selector("app")))
    await site.until_data("west", "free", FIRST)

    async def look_first() -> Any:
        return await refusals(site, "first")

    claim = "ConfigMap app/claimed is left alone: PropagationPolicy app/pp places it"
    await until_equal(look_first, {"claimed": claim})
    await site.place(placement("second", namespace_selector("app")))

    async def look_second() -> Any:
        return await refusals(site, "second")

    theirs = "is left alone: ClusterResourcePlacement first places it"
    wanted = {
        "app": f"Namespace app {theirs}",
        "claimed": claim,
        "free": f"ConfigMap app/free {theirs}",
    }
    await until_equal(look_second, wanted)
    assert (await orders_for(site, "claimed"), await orders_for(site, "free")) == (1, 1)
    member = site.members["west"]
    free = await member.get(ResourcePath(CONFIG_MAPS, "app", "free"))
    claimed = await member.get(ResourcePath(CONFIG_MAPS, "app", "claimed"))
    assert (labels_of(free)[PARENT], PARENT in labels_of(claimed)) == ("first", False)

    await site.delete(ResourcePath(PLACEMENTS, "", "first"))

    async def has_new_owner() -> bool:
        held = await member.find(ResourcePath(CONFIG_MAPS, "app", "free"))
        return held is not None and labels_of(held).get(PARENT) == "second"

    await until(has_new_owner)
    assert await orders_for(site, "free") == 1
    assert labels_of(await member.get(ResourcePath(CONFIG_MAPS, "app", "claimed")))[stamps.MANAGED]


async def test_deletions_that_pause_are_told_of_where_members_and_placements_are_looked_at(
    joined: Joined,
) -> None:
    site, west = joined.site, joined.invited
    await site.app(*(f"c{number}" for number in range(14)))
    await site.place(placement(rollingUpdate=AT_ONCE))
    await site.until_settled()

    await site.delete(ResourcePath(PLACEMENTS, "", "crp"))
    await west.until_condition(DELETIONS_PAUSED, "True")

    async def is_told() -> bool:
        return DELETIONS_PAUSED in await west.event_reasons()

    await until(is_told)
    await site.place(placement("next", namespace_selector("app")))

    async def look() -> Any:
        conditions = of_cluster(await site.status("next"), "west").get("conditions")
        return (find_condition(conditions, "WorkSynchronized") or {}).get("message")

    waits = (
        "west: an earlier copy is still to be withdrawn, and deletions are paused there"
        " until `clusterspace resume west`"
    )
    await until_equal(look, waits)

    await resume(west.hub, "west", SystemClock())
    await west.until_condition(DELETIONS_PAUSED, "False")
    await site.until_settled("next")
    assert await site.data("west", "c3") == FIRST
