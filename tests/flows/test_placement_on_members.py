"""Placements from end to end: the product's controllers, on simulated and on real clusters."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    cluster_role,
    namespace_selector,
    of_cluster,
    pick_fixed,
    pick_n,
    placement,
    role_selector,
)
from tests.flows.members import SIM_FIRST
from tests.flows.placing_fleets import placing_fleet

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import PLACEMENTS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, is_being_deleted, labels_of, uid_of, with_metadata
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.steps import edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST, SECOND = {"v": "1"}, {"v": "2"}
AT_ONCE = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}
ONE_BY_ONE = {"maxUnavailable": 1, "maxSurge": 1, "unavailablePeriodSeconds": 0}


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=SIM_FIRST,
)
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PlacementSite]:
    directory = tmp_path_factory.mktemp("fleet")
    async with placing_fleet(directory, request.param, "east", "west") as made:
        yield made


async def place(
    site: PlacementSite, app: str, policy: Object | None = None, **strategy: Any
) -> None:
    """Make a namespace with settings in it, and a placement of the same name."""
    await site.app("settings", name=app)
    strategy = {"rollingUpdate": AT_ONCE, **strategy}
    await site.place(placement(app, namespace_selector(app), policy=policy, **strategy))


async def occupy(site: PlacementSite, app: str, data: Object) -> str:
    """Let a member have settings of its own where some are to be placed; return their UID."""
    east = site.members["east"]
    await east.create(ResourcePath(NAMESPACES), namespace(app))
    theirs = config_map("settings", data, namespace=app)
    return uid_of(await east.create(ResourcePath(CONFIG_MAPS, app), theirs))


async def settings_of(site: PlacementSite, app: str) -> Object:
    return await site.members["east"].get(ResourcePath(CONFIG_MAPS, app, "settings"))


async def until_refused(site: PlacementSite, name: str, **wanted: str) -> None:
    """Wait until just these objects, by name, are told as not placed, for these reasons."""

    async def look() -> Any:
        failed = of_cluster(await site.status(name), "east").get("failedPlacements") or []
        return {each["name"]: each["condition"]["reason"] for each in failed}

    await until_equal(look, wanted)


async def test_pick_all_places_on_every_cluster(site: PlacementSite) -> None:
    await place(site, "pick-all")
    await site.until_settled("pick-all")

    for cluster in ("east", "west"):
        assert await site.data(cluster, "settings", "pick-all") == FIRST
    assert await site.clusters("pick-all") == ["east", "west"]


async def test_pick_n_takes_the_larger_name_and_grows_with_its_number(site: PlacementSite) -> None:
    await place(site, "pick-n", pick_n(1))
    await site.until_settled("pick-n")
    assert await site.data("west", "settings", "pick-n") == FIRST
    assert await site.data("east", "settings", "pick-n") is None
    await site.edit_placement("pick-n", 2, "policy", "numberOfClusters")

    await site.until_data("east", "settings", FIRST, "pick-n")


async def test_pick_fixed_moves_with_its_names(site: PlacementSite) -> None:
    await place(site, "pick-fixed", pick_fixed("east"))
    await site.until_data("east", "settings", FIRST, "pick-fixed")
    assert await site.data("west", "settings", "pick-fixed") is None
    await site.edit_placement("pick-fixed", ["west"], "policy", "clusterNames")

    await site.until_data("west", "settings", FIRST, "pick-fixed")
    await site.until_data("east", "settings", None, "pick-fixed")


async def test_a_whole_namespace_follows_what_comes_and_goes_in_it(site: PlacementSite) -> None:
    await place(site, "whole")
    await site.until_settled("whole")
    await site.put(CONFIG_MAPS, config_map("late", FIRST, namespace="whole"))
    await site.until_data("east", "late", FIRST, "whole")
    await site.delete(ResourcePath(CONFIG_MAPS, "whole", "settings"))

    await site.until_data("east", "settings", None, "whole")
    assert await site.data("east", "late", "whole") == FIRST


async def test_a_cluster_wide_object_is_placed_by_its_name(site: PlacementSite) -> None:
    await site.put(CLUSTER_ROLES, cluster_role("reader"))
    await site.place(placement("roles", role_selector(name="reader")))
    await site.until_settled("roles")

    for cluster in ("east", "west"):
        assert await site.members[cluster].find(ResourcePath(CLUSTER_ROLES, "", "reader"))


async def test_an_update_goes_to_one_cluster_after_another(site: PlacementSite) -> None:
    await place(site, "rollout", rollingUpdate=ONE_BY_ONE)
    await site.until_settled("rollout")
    seen: list[tuple[Any, Any]] = []
    await site.set_data("settings", SECOND, "rollout")

    async def is_done() -> bool:
        # The one that goes first is read last: else a change between two reads looks like disorder.
        west = await site.data("west", "settings", "rollout")
        seen.append((await site.data("east", "settings", "rollout"), west))
        return await site.is_settled("rollout") and seen[-1] == (SECOND, SECOND)

    await until(is_done)
    assert (FIRST, SECOND) not in seen


async def test_what_somebody_changes_on_a_cluster_is_put_back(site: PlacementSite) -> None:
    await place(site, "drift")
    await site.until_settled("drift")
    live = await settings_of(site, "drift")
    here = ResourcePath(CONFIG_MAPS, "drift", "settings")
    await site.members["east"].update(here, {**live, "data": {"v": "drift"}})
    await site.until_data("east", "settings", FIRST, "drift")
    await site.delete(here, "east")

    await site.until_data("east", "settings", FIRST, "drift")


async def test_always_takes_over_what_is_there(site: PlacementSite) -> None:
    theirs = await occupy(site, "always", {"v": "theirs"})
    await place(site, "always")
    await site.until_settled("always")

    live = await settings_of(site, "always")
    assert (uid_of(live), live["data"]) == (theirs, FIRST)


async def test_if_no_diff_takes_over_only_what_says_the_same(site: PlacementSite) -> None:
    for app, data in (("same", FIRST), ("other", {"v": "theirs"})):
        await occupy(site, app, data)
        await place(site, app, applyStrategy={"whenToTakeOver": "IfNoDiff"})
    await site.until_settled("same")
    await until_refused(site, "other", settings="FailedToTakeOver")

    assert labels_of(await settings_of(site, "same"))[stamps.MANAGED] == "true"
    left_alone = await settings_of(site, "other")
    assert left_alone["data"] == {"v": "theirs"}
    assert stamps.MANAGED not in labels_of(left_alone)


async def test_never_leaves_what_is_there_alone(site: PlacementSite) -> None:
    await occupy(site, "never", FIRST)
    await place(site, "never", applyStrategy={"whenToTakeOver": "Never"})
    await until_refused(site, "never", never="NotTakenOver", settings="NotTakenOver")

    assert stamps.MANAGED not in labels_of(await settings_of(site, "never"))
    await site.until_data("west", "settings", FIRST, "never")


async def test_two_placements_never_own_one_object(site: PlacementSite) -> None:
    await place(site, "shared", pick_fixed("east"))
    await site.until_settled("shared")
    second = placement("second", namespace_selector("shared"), policy=pick_fixed("east"))
    await site.place(second)
    await until_refused(site, "second", shared="FailedToTakeOver", settings="FailedToTakeOver")

    live = await settings_of(site, "shared")
    assert labels_of(live)["kubernetes-fleet.io/parent-CRP"] == "shared"


async def test_a_deleted_placement_takes_back_what_it_placed_and_no_more(
    site: PlacementSite,
) -> None:
    await place(site, "removal")
    await site.until_settled("removal")
    theirs = config_map("theirs", FIRST, namespace="removal")
    await site.members["east"].create(ResourcePath(CONFIG_MAPS, "removal"), theirs)
    await site.delete(ResourcePath(PLACEMENTS, "", "removal"))

    await site.until_data("east", "settings", None, "removal")
    await site.until_data("west", "settings", None, "removal")
    assert await site.data("east", "theirs", "removal") == FIRST
    assert await site.hub.find(ResourcePath(CONFIG_MAPS, "removal", "settings"))


async def test_a_namespace_that_is_deleted_on_the_hub_goes_from_its_clusters(
    site: PlacementSite,
) -> None:
    """Unless a cluster has something in it that nobody placed; then it says so and stays."""
    await place(site, "ended")
    await site.until_settled("ended")
    theirs = config_map("theirs", FIRST, namespace="ended")
    await site.members["west"].create(ResourcePath(CONFIG_MAPS, "ended"), theirs)
    await site.delete(ResourcePath(NAMESPACES, "", "ended"))

    await until(lambda: is_gone(site, "east", "ended"))
    await site.until_data("west", "settings", None, "ended")
    assert await site.data("west", "theirs", "ended") == FIRST
    await until_equal(lambda: site.condition("RolloutStarted", "ended"), ("True", "RolloutStarted"))


async def is_gone(site: PlacementSite, cluster: str, name: str) -> bool:
    """Whether a namespace is gone, or going where nobody runs a namespace controller."""
    live = await site.members[cluster].find(ResourcePath(NAMESPACES, "", name))
    return live is None or is_being_deleted(live)


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
async def test_a_placement_that_abandons_leaves_what_it_placed(
    site: PlacementSite, version: str
) -> None:
    """Whichever version it is written and deleted by: `kubectl delete crp` takes v1."""
    name = f"abandon-{version}"
    await place(site, name, deleteStrategy={"propagationPolicy": "Abandon"})
    await site.until_settled(name)
    placement = ResourcePath(replace(PLACEMENTS, version=version), "", name)
    await edit(site.hub, placement, lambda each: with_metadata(each, labels={"touched": "yes"}))
    await site.delete(placement)

    async def is_let_go() -> bool:
        live = await settings_of(site, name)
        gone = await site.hub.find(ResourcePath(PLACEMENTS, "", name)) is None
        return gone and stamps.MANAGED not in labels_of(live)

    await until(is_let_go)
    assert await site.data("east", "settings", name) == FIRST
