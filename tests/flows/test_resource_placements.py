"""ResourcePlacements: what they select in their namespace goes to members, and nothing else."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    cluster_role,
    of_cluster,
    path_of,
    pick_fixed,
    pick_n,
    placement,
    placement_site,
    resource_placement,
    role_selector,
    running,
)

from clusterspace.apis.fleet_overrides import RESOURCE_OVERRIDES
from clusterspace.apis.fleet_placements import NAMESPACED, PARENT, PARENT_NAMESPACE
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.testing.builders import config_map
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

SETTINGS: Object = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east", "west") as made, running(made):
        yield made


async def test_it_places_what_it_selects_in_its_namespace(site: PlacementSite) -> None:
    await site.app("settings", "other")
    await site.app("settings", name="elsewhere")
    await site.place(resource_placement("rp", SETTINGS))
    await site.until_settled("app/rp")

    assert await site.data("east", "settings") == {"v": "1"}
    assert await site.data("west", "settings") == {"v": "1"}
    assert await site.data("east", "other") is None
    assert await site.data("east", "settings", "elsewhere") is None
    status = await site.status("app/rp")
    named = {"version": "v1", "kind": "ConfigMap", "namespace": "app", "name": "settings"}
    assert status["selectedResources"] == [named]
    assert [each["type"] for each in status["conditions"]] == [
        f"ResourcePlacement{each}"
        for each in (
            "Scheduled",
            "RolloutStarted",
            "Overridden",
            "WorkSynchronized",
            "Applied",
            "Available",
        )
    ]
    assert [each["clusterName"] for each in status["placementStatuses"]] == ["east", "west"]


async def test_its_snapshots_and_bindings_are_in_its_namespace(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(resource_placement(policy=pick_fixed("west")))
    await site.until_settled("app/rp")

    (policy,) = await site.hub.list_objects(ResourcePath(NAMESPACED.policy_snapshots, "app"))
    (resources,) = await site.hub.list_objects(ResourcePath(NAMESPACED.resource_snapshots, "app"))
    (binding,) = await site.hub.list_objects(ResourcePath(NAMESPACED.bindings, "app"))
    assert (name_of(policy), name_of(resources)) == ("rp-0", "rp-0-snapshot")
    assert find_at(binding, "spec", "targetCluster") == "west"
    for each in (policy, resources, binding):
        assert labels_of(each)[PARENT] == "rp"
    live = await site.members["west"].get(ResourcePath(CONFIG_MAPS, "app", "settings"))
    assert labels_of(live)[PARENT_NAMESPACE] == "app"


async def test_changes_roll_out_and_what_it_placed_goes_with_it(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(resource_placement(policy=pick_n(1)))
    await site.until_data("west", "settings", {"v": "1"})
    await site.set_data("settings", {"v": "2"})
    await site.until_data("west", "settings", {"v": "2"})
    await site.put(CONFIG_MAPS, config_map("late", {"v": "1"}, namespace="app"))
    await site.until_data("west", "late", {"v": "1"})
    await site.delete(path_of("app/rp"))
    await site.until_data("west", "settings", None)
    await site.until_data("west", "late", None)

    async def is_gone() -> bool:
        return await site.hub.find(path_of("app/rp")) is None

    await until(is_gone)
    for resource in (
        NAMESPACED.policy_snapshots,
        NAMESPACED.resource_snapshots,
        NAMESPACED.bindings,
    ):
        assert not await site.hub.list_objects(ResourcePath(resource))
    assert await site.hub.find(ResourcePath(CONFIG_MAPS, "app", "settings")) is not None


async def test_two_of_one_name_in_two_namespaces_and_a_cluster_wide_one_keep_apart(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.app("settings", name="elsewhere")
    mine, theirs = resource_placement("same", SETTINGS), resource_placement("same", SETTINGS)
    theirs["metadata"] = {"name": "same", "namespace": "elsewhere"}
    await site.put(CLUSTER_ROLES, cluster_role("reader"))
    await site.place(mine)
    await site.place(theirs)
    await site.place(placement("same", role_selector(name="reader")))
    for each in ("app/same", "elsewhere/same", "same"):
        await site.until_settled(each)
    await site.delete(path_of("app/same"))
    await site.until_data("east", "settings", None)
    await settled()

    assert await site.data("east", "settings", "elsewhere") == {"v": "1"}
    assert await site.is_settled("elsewhere/same")
    assert await site.is_settled("same")


async def test_an_object_has_one_owner_among_placements_of_both_kinds(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement())
    await site.until_settled()
    await site.place(resource_placement("rp", SETTINGS))

    async def is_told() -> bool:
        return await site.condition("Applied", "app/rp") == ("False", "ApplyFailed")

    await until(is_told)
    told = of_cluster(await site.status("app/rp"), "east")
    (failed,) = told["failedPlacements"]
    assert "ClusterResourcePlacement crp places it" in failed["condition"]["message"]
    await site.delete(path_of("crp"))
    await site.until_settled("app/rp")
    assert await site.data("east", "settings") == {"v": "1"}


async def test_an_override_for_it_leaves_other_placements_alone(site: PlacementSite) -> None:
    await site.app("settings", "other")
    patch = {"op": "replace", "path": "/data/v", "value": "${MEMBER-CLUSTER-NAME}"}
    rule = {"clusterSelector": {"clusterSelectorTerms": []}, "jsonPatchOverrides": [patch]}
    override: Object = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ResourceOverride",
        "metadata": {"name": "ro", "namespace": "app"},
        "spec": {
            "placement": {"name": "rp", "scope": "Namespaced"},
            "resourceSelectors": [SETTINGS, {**SETTINGS, "name": "other"}],
            "policy": {"overrideRules": [rule]},
        },
    }
    await site.put(RESOURCE_OVERRIDES, override)
    await site.place(resource_placement("rp", SETTINGS))
    await site.place(resource_placement("second", {**SETTINGS, "name": "other"}))

    await site.until_data("east", "settings", {"v": "east"})
    await site.until_data("east", "other", {"v": "1"})
    await site.until_settled("app/rp")
    assert await site.condition("Overridden", "app/rp") == ("True", "OverriddenSucceeded")


async def test_what_has_no_namespace_is_refused(site: PlacementSite) -> None:
    await site.app("settings")
    with pytest.raises(Invalid, match="a ClusterResourcePlacement places it"):
        await site.place(resource_placement("rp", role_selector(name="reader")))
