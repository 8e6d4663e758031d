"""Which clusters ClusterResourcePlacements pick, as clusters and policies change."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    PlacementSite,
    of_cluster,
    pick_fixed,
    pick_n,
    placement,
    placement_site,
    running,
)

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import (
    Object,
    with_metadata,
    with_value,
)
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until_equal

TAINT: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east", "west") as made, running(made):
        yield made


async def test_pick_fixed_reports_a_cluster_that_is_not_there_and_picks_it_once_it_is(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_fixed("west", "late")))

    async def look() -> Any:
        return await site.condition("Scheduled")

    await until_equal(look, ("False", "SchedulingPolicyUnfulfilled"))
    missing = of_cluster(await site.status(), "late")
    (scheduled,) = missing["conditions"]
    assert scheduled["reason"] == "ScheduleFailed"
    assert scheduled["message"] == "late: there is no such cluster"
    await site.join("late")

    await site.until_data("late", "settings", {"v": "1"})
    await until_equal(look, ("True", "SchedulingPolicyFulfilled"))


async def test_a_cluster_that_joins_gets_what_is_placed_everywhere(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement())
    await site.until_settled()
    await site.join("north")

    await site.until_data("north", "settings", {"v": "1"})


async def test_a_cluster_that_left_is_no_longer_told_of(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement())
    await site.until_settled()
    await site.leave("east")
    await site.until_clusters("west")

    async def look() -> Any:
        return [each["clusterName"] for each in (await site.status())["placementStatuses"]]

    await until_equal(look, ["west"])


async def test_pick_n_replaces_a_cluster_that_left(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_n(1)))
    await site.until_data("west", "settings", {"v": "1"})
    await site.leave("west")

    await site.until_data("east", "settings", {"v": "1"})
    await site.until_clusters("east")


async def test_pick_n_with_too_few_clusters_places_what_it_can_and_says_so(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_n(3)))
    await site.until_settled()

    assert await site.condition("Scheduled") == ("False", "SchedulingPolicyUnfulfilled")
    assert await site.data("east", "settings") == {"v": "1"}
    unfilled = (await site.status())["placementStatuses"][2]
    assert "clusterName" not in unfilled
    await site.join("north")
    await site.until_data("north", "settings", {"v": "1"})


async def test_pick_n_shrinks_and_grows_with_its_number(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_n(2)))
    await site.until_data("east", "settings", {"v": "1"})
    await site.edit_placement("crp", 0, "policy", "numberOfClusters")
    await site.until_data("east", "settings", None)
    await site.until_data("west", "settings", None)
    await site.edit_placement("crp", 1, "policy", "numberOfClusters")

    await site.until_data("west", "settings", {"v": "1"})


async def test_a_placement_without_clusters_says_only_that(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_n(0)))

    async def look() -> Any:
        return [each["type"] for each in (await site.status()).get("conditions") or ()]

    await until_equal(look, ["ClusterResourcePlacementScheduled"])


async def test_a_cluster_that_loses_its_label_keeps_what_it_has(site: PlacementSite) -> None:
    await site.app("settings")
    terms = [{"labelSelector": {"matchLabels": {"zone": "a"}}}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": terms}}
    policy = {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}
    place = ResourcePath(CLUSTERS, "", "east")
    await site.change(place, lambda held: with_metadata(held, labels={"zone": "a"}))
    await site.place(placement(policy=policy))
    await site.until_data("east", "settings", {"v": "1"})
    await site.change(place, lambda held: with_metadata(held, labels={}))
    await settled()

    assert await site.clusters() == ["east"]
    assert await site.data("east", "settings") == {"v": "1"}
    await site.change(
        ResourcePath(CLUSTERS, "", "west"), lambda held: with_metadata(held, labels={"zone": "a"})
    )
    await site.until_data("west", "settings", {"v": "1"})


async def test_an_unhealthy_cluster_is_not_picked_until_it_is_healthy_again(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.set_ready("east", "False", for_seconds=600)
    await site.place(placement())
    await site.until_clusters("west")
    await site.set_ready("east", "True")

    await site.until_data("east", "settings", {"v": "1"})


async def test_a_toleration_added_later_lets_a_placement_onto_a_tainted_cluster(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.taint("east", TAINT)
    await site.place(placement())
    await site.until_clusters("west")
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    await site.edit_placement(
        "crp", {"placementType": "PickAll", "tolerations": tolerations}, "policy"
    )

    await site.until_data("east", "settings", {"v": "1"})
    await site.until_clusters("east", "west")


async def test_a_cluster_that_grows_is_picked_by_its_nodes(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    nodes = {"name": "kubernetes-fleet.io/node-count", "operator": "Ge", "values": ["5"]}
    terms = [{"propertySelector": {"matchExpressions": [nodes]}}]
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"clusterAffinity": {key: {"clusterSelectorTerms": terms}}}
    await site.place(placement(policy=pick_n(1, affinity=affinity)))

    async def look() -> Any:
        return await site.condition("Scheduled")

    await until_equal(look, ("False", "SchedulingPolicyUnfulfilled"))
    assert "it reports no kubernetes-fleet.io/node-count" in await site.message("Scheduled")
    names = sorted(site.members)
    await site.change(
        ResourcePath(CLUSTERS, "", names[0]),
        lambda held: with_value(held, {"totalNum": 6, "readyNum": 6}, "status", "nodeSummary"),
    )
    await site.until_clusters(names[0])
    await site.change(
        ResourcePath(CLUSTERS, "", names[0]),
        lambda held: with_value(held, {"totalNum": 1, "readyNum": 1}, "status", "nodeSummary"),
    )
    await settled()
    assert await site.clusters() == [names[0]], "what was picked stays"
