"""Whose an object is: on a member, between placements, between a placement and a policy."""

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
    of_cluster,
    pick_fixed,
    placement,
    placement_site,
    role_selector,
    running,
)

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    PARENT,
    PLACEMENTS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
)
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    controller_uid_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import (
    Object,
    labels_of,
    uid_of,
)
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until, until_equal

SHARED = {"matchLabels": {"shared": "yes"}}
SETTINGS = ResourcePath(CONFIG_MAPS, "app", "settings")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east", "west") as made, running(made):
        yield made


async def occupied(site: PlacementSite, data: Object) -> None:
    """Let a member have an object of its own where one is to be placed."""
    await site.members["east"].create(ResourcePath(NAMESPACES), namespace("app"))
    await site.members["east"].create(
        SETTINGS.collection, config_map("settings", data, namespace="app")
    )


async def until_failed(site: PlacementSite, reason: str) -> Object:
    """Wait until a ConfigMap is told as not placed; its namespace may be told with it."""

    async def find() -> Object:
        failed = of_cluster(await site.status(), "east").get("failedPlacements") or []
        return next((each for each in failed if each["kind"] == "ConfigMap"), {})

    async def look() -> Any:
        failed = await find()
        return failed.get("name"), (failed.get("condition") or {}).get("reason")

    await until_equal(look, ("settings", reason))
    assert await site.condition("Applied") == ("False", "ApplyFailed")
    return await find()


async def test_never_leaves_what_is_there_alone_and_says_so(site: PlacementSite) -> None:
    await occupied(site, {"v": "theirs"})
    await site.app("settings")
    await site.place(placement(applyStrategy={"whenToTakeOver": "Never"}))
    failed = await until_failed(site, "NotTakenOver")

    assert "already exists in the cluster east" in failed["condition"]["message"]
    assert await site.data("east", "settings") == {"v": "theirs"}
    assert await site.data("west", "settings") == {"v": "1"}


async def test_if_no_diff_leaves_alone_what_says_something_else(site: PlacementSite) -> None:
    await occupied(site, {"v": "theirs"})
    await site.app("settings")
    await site.place(placement(applyStrategy={"whenToTakeOver": "IfNoDiff"}))
    await until_failed(site, "FailedToTakeOver")

    assert await site.data("east", "settings") == {"v": "theirs"}
    member = site.members["east"]
    live = await member.get(SETTINGS)
    assert stamps.MANAGED not in labels_of(live)
    await member.update(SETTINGS, {**live, "data": {"v": "1"}})
    await site.until_settled()


async def test_another_take_over_strategy_counts_at_once(site: PlacementSite) -> None:
    await occupied(site, {"v": "theirs"})
    await site.app("settings")
    await site.place(placement(applyStrategy={"whenToTakeOver": "Never"}))
    await until_failed(site, "NotTakenOver")
    await site.edit_placement("crp", "Always", "strategy", "applyStrategy", "whenToTakeOver")

    await site.until_data("east", "settings", {"v": "1"})
    await site.until_settled()


async def test_an_object_that_many_placements_wait_for_is_one_placements(
    site: PlacementSite,
) -> None:
    """All of them find it free at the same moment; whoever comes second must see who was first."""
    names = [f"p{number}" for number in range(5)]
    for name in names:
        await site.place(placement(name, role_selector(labelSelector=SHARED)))
    uids = {name: uid_of(await site.hub.get(ResourcePath(PLACEMENTS, "", name))) for name in names}
    roles = [f"shared-{number}" for number in range(6)]
    for role in roles:
        await site.put(CLUSTER_ROLES, cluster_role(role, shared="yes"))
        await until(lambda role=role: bindings_of(site, role))
    for name in names:
        await until_equal(lambda name=name: told_roles(site, name), set(roles))

    for role in roles:
        (binding,) = await bindings_of(site, role)
        assert controller_uid_of(binding) == uids[labels_of(binding)[PARENT]]


async def bindings_of(site: PlacementSite, role: str) -> list[Object]:
    name = stamps.binding_name("ClusterRole", role)
    found = await site.hub.find(ResourcePath(CLUSTER_RESOURCE_BINDINGS, "", name))
    return [] if found is None else [found]


async def told_roles(site: PlacementSite, name: str) -> set[str]:
    """Return the roles that a placement says something of: it has them, or why not."""
    status = await site.status(name)
    return {each["name"] for each in status.get("selectedResources") or []}


async def test_two_placements_never_own_one_object(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement("first", policy=pick_fixed("east")))
    await site.until_settled("first")
    await site.place(placement("second", policy=pick_fixed("west")))

    async def look() -> Any:
        return await site.condition("Applied", "second")

    await until_equal(look, ("False", "ApplyFailed"))
    failed = of_cluster(await site.status("second"), "west")["failedPlacements"]
    texts = {each["condition"]["message"] for each in failed}
    assert "ConfigMap app/settings is left alone: ClusterResourcePlacement first places it" in texts
    assert await site.data("west", "settings") is None
    await site.delete(ResourcePath(PLACEMENTS, "", "first"))

    await site.until_data("west", "settings", {"v": "1"})
    await site.until_data("east", "settings", None)
    await site.until_settled("second")


async def test_an_object_that_a_policy_claims_is_not_placed_by_a_placement(
    site: PlacementSite,
) -> None:
    await site.app("settings", "free")
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "pp", "namespace": "app"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}],
            "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
        },
    }
    await site.put(PROPAGATION_POLICIES, policy)
    await site.until_data("west", "settings", {"v": "1"})
    await site.place(placement(policy=pick_fixed("east")))
    await site.until_data("east", "free", {"v": "1"})

    async def look() -> Any:
        failed = of_cluster(await site.status(), "east").get("failedPlacements") or [{}]
        return (failed[0].get("condition") or {}).get("message")

    why = "ConfigMap app/settings is left alone: PropagationPolicy app/pp places it"
    await until_equal(look, why)
    assert await site.data("east", "settings") is None
    assert await site.data("west", "settings") == {"v": "1"}


async def test_a_policy_does_not_take_what_a_placement_has(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_fixed("east")))
    await site.until_settled()
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "pp", "namespace": "app"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}],
            "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
        },
    }
    await site.put(PROPAGATION_POLICIES, policy)
    await settled()

    assert await site.data("west", "settings") is None
    assert await site.data("east", "settings") == {"v": "1"}
    binding = await site.hub.get(ResourcePath(RESOURCE_BINDINGS, "app", "settings-configmap"))
    assert "placement" not in binding["spec"]


async def test_a_deleted_placement_takes_back_what_it_placed(site: PlacementSite) -> None:
    await site.app("settings")
    await site.put(CLUSTER_ROLES, cluster_role("reader"))
    await site.place(placement("crp", namespace_selector("app"), role_selector(name="reader")))
    await site.until_settled()
    await site.delete(ResourcePath(PLACEMENTS, "", "crp"))

    await site.until_data("east", "settings", None)
    await site.until_data("west", "settings", None)

    async def is_gone() -> bool:
        return await site.hub.find(ResourcePath(PLACEMENTS, "", "crp")) is None

    await until(is_gone)
    for resource in (FLEET_BINDINGS, RESOURCE_SNAPSHOTS, POLICY_SNAPSHOTS, RESOURCE_BINDINGS):
        assert await site.hub.list_objects(ResourcePath(resource)) == []
    assert await site.hub.find(SETTINGS) is not None
    assert await site.members["east"].find(ResourcePath(CLUSTER_ROLES, "", "reader")) is None
