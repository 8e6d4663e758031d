"""What ClusterResourcePlacements select, and what is written down of it."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    cluster_role,
    namespace_selector,
    pick_fixed,
    pick_n,
    placement,
    placement_site,
    role_selector,
    running,
)

from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import (
    annotations_of,
    find_at,
    labels_of,
    name_of,
    with_metadata,
)
from clusterspace.testing.builders import NAMESPACES, config_map
from clusterspace.testing.steps import until, until_equal

SETTINGS = ResourcePath(CONFIG_MAPS, "app", "settings")
EVERYTHING = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east", "west") as made, running(made):
        yield made


async def snapshots(site: PlacementSite, resource: Any = RESOURCE_SNAPSHOTS) -> list[str]:
    return sorted(name_of(each) for each in await site.hub.list_objects(ResourcePath(resource)))


async def test_a_selected_namespace_takes_its_content_to_every_cluster(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement())
    await site.until_settled()

    for cluster in ("east", "west"):
        assert await site.data(cluster, "settings") == {"v": "1"}
    status = await site.status()
    assert [each["kind"] for each in status["selectedResources"]] == ["Namespace", "ConfigMap"]
    assert status["observedResourceIndex"] == "0"
    assert [each["clusterName"] for each in status["placementStatuses"]] == ["east", "west"]
    kinds = [each["type"].removeprefix("ClusterResourcePlacement") for each in status["conditions"]]
    assert kinds == [
        "Scheduled", "RolloutStarted", "Overridden", "WorkSynchronized", "Applied", "Available",
    ]  # fmt: skip


async def test_a_namespace_alone_goes_without_its_content(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement("crp", namespace_selector("app", selectionScope="NamespaceOnly")))
    await site.until_settled()

    assert await site.data("east", "settings") is None
    assert await site.members["east"].find(ResourcePath(NAMESPACES, "", "app"))


async def test_part_of_a_namespace_is_selected_by_kind_and_name(site: PlacementSite) -> None:
    await site.app("settings", "more")
    part = namespace_selector("app", selectionScope="NamespaceWithResourceSelectors")
    one = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
    await site.place(placement("crp", part, one))
    await site.until_settled()

    assert await site.data("east", "settings") == {"v": "1"}
    assert await site.data("east", "more") is None


async def test_cluster_wide_objects_are_selected_by_labels_and_let_go_without_them(
    site: PlacementSite,
) -> None:
    await site.put(CLUSTER_ROLES, cluster_role("reader", team="a"))
    await site.put(CLUSTER_ROLES, cluster_role("other", team="b"))
    chosen = role_selector(labelSelector={"matchLabels": {"team": "a"}})
    await site.place(placement("crp", chosen, rollingUpdate=EVERYTHING))
    await site.until_settled()
    role, other = (ResourcePath(CLUSTER_ROLES, "", each) for each in ("reader", "other"))
    assert await site.members["east"].find(role)
    assert await site.members["east"].find(other) is None

    await site.change(role, lambda held: with_metadata(held, labels={"team": "c"}))

    async def is_gone() -> bool:
        return await site.members["east"].find(role) is None

    await until(is_gone)


async def test_what_is_gone_and_made_anew_comes_back(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(rollingUpdate=EVERYTHING))
    await site.until_settled()
    await site.delete(SETTINGS)
    await site.until_data("east", "settings", None)
    await site.put(CONFIG_MAPS, config_map("settings", {"v": "2"}, namespace="app"))

    await site.until_data("east", "settings", {"v": "2"})
    await site.until_settled()


async def test_a_namespace_of_the_hub_is_refused_with_a_reason(site: PlacementSite) -> None:
    await site.place(placement("crp", namespace_selector("kube-system")))

    async def look() -> Any:
        return await site.condition("Scheduled")

    await until_equal(look, ("False", "InvalidResourceSelectors"))
    assert "kube-system belongs to the hub" in await site.message("Scheduled")


async def test_an_object_selected_twice_is_said_and_nothing_is_placed(site: PlacementSite) -> None:
    await site.put(CLUSTER_ROLES, cluster_role("reader", team="a"))
    labels = role_selector(labelSelector={"matchLabels": {"team": "a"}})
    await site.place(placement("crp", role_selector(name="reader"), labels))

    async def look() -> Any:
        return await site.message("Scheduled")

    await until_equal(look, "nothing new is placed: ClusterRole reader is selected more than once")


async def test_objects_a_cluster_makes_by_itself_are_not_selected(site: PlacementSite) -> None:
    await site.app("settings")
    await until(lambda: site.hub.find(ResourcePath(CONFIG_MAPS, "app", "kube-root-ca.crt")))
    await site.place(placement())
    await site.until_settled()

    names = [each["name"] for each in (await site.status())["selectedResources"]]
    assert names == ["app", "settings"]


async def test_what_was_asked_and_selected_is_written_down(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_n(1)))
    await site.until_settled()

    policy = await site.hub.get(ResourcePath(POLICY_SNAPSHOTS, "", "crp-0"))
    assert annotations_of(policy)["kubernetes-fleet.io/number-of-clusters"] == "1"
    assert labels_of(policy)["kubernetes-fleet.io/is-latest-snapshot"] == "true"
    decided = find_at(policy, "status", "targetClusters")
    assert [(each["clusterName"], each["selected"]) for each in decided] == [
        ("west", True),
        ("east", False),
    ]
    resources = await site.hub.get(ResourcePath(RESOURCE_SNAPSHOTS, "", "crp-0-snapshot"))
    kinds = [each["kind"] for each in resources["spec"]["selectedResources"]]
    assert kinds == ["Namespace", "ConfigMap"]
    (binding,) = await site.hub.list_objects(ResourcePath(FLEET_BINDINGS))
    assert name_of(binding).startswith("crp-west-")
    assert binding["spec"]["state"] == "Bound"
    assert binding["spec"]["resourceSnapshotName"] == "crp-0-snapshot"


async def test_a_change_makes_a_new_snapshot_and_old_ones_go(site: PlacementSite) -> None:
    await site.app("settings")
    made = placement(rollingUpdate=EVERYTHING)
    await site.place({**made, "spec": {**made["spec"], "revisionHistoryLimit": 1}})
    await site.until_settled()
    await site.set_data("settings", {"v": "2"})
    await site.until_data("west", "settings", {"v": "2"})
    await site.until_data("east", "settings", {"v": "2"})

    async def look() -> Any:
        return await snapshots(site)

    await until_equal(look, ["crp-1-snapshot"])
    await site.until_settled()
    assert (await site.status())["observedResourceIndex"] == "1"


async def test_another_number_keeps_the_policy_snapshot(site: PlacementSite) -> None:
    await site.app()
    await site.place(placement(policy=pick_n(1)))
    await site.until_clusters("west")
    await site.edit_placement("crp", 2, "policy", "numberOfClusters")
    await site.until_clusters("east", "west")

    assert await snapshots(site, POLICY_SNAPSHOTS) == ["crp-0"]


async def test_another_policy_makes_a_new_policy_snapshot(site: PlacementSite) -> None:
    await site.app()
    await site.place(placement(policy=pick_fixed("east")))
    await site.until_clusters("east")
    await site.edit_placement("crp", ["west"], "policy", "clusterNames")
    await site.until_clusters("west")

    assert await snapshots(site, POLICY_SNAPSHOTS) == ["crp-0", "crp-1"]
