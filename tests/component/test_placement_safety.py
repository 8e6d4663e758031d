"""Placements under hard conditions: killed at every write, asked again and again, half blind."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from tests.component.placement_site import (
    CONFIG_MAPS,
    PlacementSite,
    namespace_selector,
    placement,
    placement_site,
    running,
)

from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.fleet_overrides import RESOURCE_OVERRIDES
from clusterspace.apis.fleet_overrides import RESOURCE_SNAPSHOTS as OVERRIDE_SNAPSHOTS
from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    PLACEMENTS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
)
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, name_of, resource_version_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.crashes import CrashingClient, CrashPoint
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import stop, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERYTHING_OF_OURS = (
    PLACEMENTS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
    FLEET_BINDINGS,
    RESOURCE_BINDINGS,
    CLUSTER_RESOURCE_BINDINGS,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PlacementSite]:
    async with placement_site(tmp_path_factory.mktemp("site"), "east") as made:
        yield made


@asynccontextmanager
async def living(site: PlacementSite, dying: CrashingClient) -> AsyncGenerator[None]:
    """Run one life that is killed at its crash point, and after it one that is not."""

    async def lives() -> None:
        async with running(site, dying) as tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        async with running(site):
            await asyncio.Event().wait()

    task = asyncio.create_task(lives())
    try:
        yield
    finally:
        await stop(task)


async def story(site: PlacementSite, app: str, dying: CrashingClient) -> None:
    """Place something, change it, take it back."""
    settings = ResourcePath(CONFIG_MAPS, app, "settings")
    await site.app("settings", name=app)
    async with living(site, dying):
        await site.place(placement(app, namespace_selector(app)))
        await site.until_settled(app)
        assert await site.data("east", "settings", app) == {"v": "1"}
        await site.set_data("settings", {"v": "2"}, app)

        async def is_changed() -> bool:
            return await site.data("east", "settings", app) == {"v": "2"}

        await until(is_changed)
        await site.until_settled(app)
        await site.delete(ResourcePath(PLACEMENTS, "", app))

        async def is_gone() -> bool:
            left = [await site.hub.list_objects(ResourcePath(each)) for each in EVERYTHING_OF_OURS]
            return not any(left) and await site.data("east", "settings", app) is None

        await until(is_gone)
    assert await site.hub.find(settings) is not None


@pytest.mark.slow
async def test_a_placement_killed_at_any_write_ends_the_same(site: PlacementSite) -> None:
    counting = CrashingClient(site.hub)
    await story(site, "app-0", counting)
    assert counting.writes > 10

    for write in range(1, counting.writes + 1, 4):
        point = CrashPoint(write, is_after=write % 8 == 1)
        await story(site, f"app-{write}", CrashingClient(site.hub, point))


def resource_override(app: str, value: str) -> Object:
    """Return an override of what the story places, as KubeFleet's first version has it."""
    selector = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
    patch = {"op": "replace", "path": "/data/v", "value": value}
    rule = {"clusterSelector": {"clusterSelectorTerms": []}, "jsonPatchOverrides": [patch]}
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1alpha1",
        "kind": "ResourceOverride",
        "metadata": {"name": "ro", "namespace": app},
        "spec": {"resourceSelectors": [selector], "policy": {"overrideRules": [rule]}},
    }


async def overriding(site: PlacementSite, app: str, dying: CrashingClient) -> None:
    """Place something overridden, override it otherwise, and no longer."""
    first = GroupVersionResource(RESOURCE_OVERRIDES.group, "v1alpha1", "resourceoverrides")
    path = ResourcePath(first, app, "ro")
    await site.app("settings", name=app)
    await site.put(first, resource_override(app, "a"))
    async with living(site, dying):
        await site.place(placement(app, namespace_selector(app)))
        await site.until_data("east", "settings", {"v": "a"}, app)
        spec = resource_override(app, "b")["spec"]
        await site.change(path, lambda held: {**held, "spec": spec})
        await site.until_data("east", "settings", {"v": "b"}, app)
        await site.delete(path)
        await site.until_data("east", "settings", {"v": "1"}, app)

        async def are_gone() -> bool:
            return not await site.hub.list_objects(ResourcePath(OVERRIDE_SNAPSHOTS, app))

        await until(are_gone)
        await site.delete(ResourcePath(PLACEMENTS, "", app))
        await site.until_data("east", "settings", None, app)


async def test_an_override_comes_changes_and_goes(site: PlacementSite) -> None:
    await overriding(site, "over", CrashingClient(site.hub))


@pytest.mark.slow
async def test_an_override_killed_at_any_write_ends_the_same(site: PlacementSite) -> None:
    counting = CrashingClient(site.hub)
    await overriding(site, "over-0", counting)
    for write in range(1, counting.writes + 1, 3):
        point = CrashPoint(write, is_after=write % 2 == 1)
        await overriding(site, f"over-{write}", CrashingClient(site.hub, point))


async def versions(site: PlacementSite) -> dict[str, str]:
    found: dict[str, str] = {}
    for resource in (*EVERYTHING_OF_OURS, WORKS):
        for each in await site.hub.list_objects(ResourcePath(resource)):
            found[f"{resource.resource}/{name_of(each)}"] = resource_version_of(each)
    return found


async def test_a_settled_placement_writes_nothing_when_it_is_looked_at_again(
    site: PlacementSite,
) -> None:
    await site.app("settings", name="calm")
    async with running(site):
        await site.place(placement("calm", namespace_selector("calm")))
        await site.until_settled("calm")
        await settled()
        before = await versions(site)
        east = ResourcePath(CLUSTERS, "", "east")
        await site.change(east, lambda held: with_metadata(held, labels={"moved": "yes"}))
        await settled()
        assert await versions(site) == before
    async with running(site):
        await settled()
        assert await versions(site) == before


async def test_a_snapshot_that_somebody_deletes_takes_nothing_off_a_cluster(
    site: PlacementSite,
) -> None:
    await site.app("settings", name="safe")
    async with running(site):
        await site.place(placement("safe", namespace_selector("safe")))
        await site.until_settled("safe")
        for snapshot in await site.hub.list_objects(ResourcePath(RESOURCE_SNAPSHOTS)):
            await site.delete(ResourcePath(RESOURCE_SNAPSHOTS, "", name_of(snapshot)))
        seen: list[Any] = []

        async def is_back() -> bool:
            seen.append(await site.data("east", "settings", "safe"))
            names = {
                name_of(e) for e in await site.hub.list_objects(ResourcePath(RESOURCE_SNAPSHOTS))
            }
            return "safe-0-snapshot" in names and await site.is_settled("safe")

        await until(is_back)
        assert seen == [{"v": "1"}] * len(seen)
