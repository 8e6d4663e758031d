"""Placements of type ReportDiff: members say how they differ, and nothing is touched there."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    CONFIG_MAPS,
    PlacementSite,
    of_cluster,
    path_of,
    placement,
    placement_site,
    running,
)

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until_equal

SECRETS = GroupVersionResource("", "v1", "secrets")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east") as made, running(made):
        yield made


def secret(password: str) -> Object:
    data = {"password": base64.b64encode(password.encode()).decode()}
    metadata = {"name": "login", "namespace": "app"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def diffs(site: PlacementSite) -> Object:
    """Return the paths that differ, by object, with both values."""
    told = of_cluster(await site.status(), "east").get("diffedPlacements") or []
    return {
        f"{each['kind']} {each['name']}": [
            (one["path"], one.get("valueInMember"), one.get("valueInHub"))
            for one in each["observedDiffs"]
        ]
        for each in told
    }


async def test_differences_are_told_and_nothing_is_touched(site: PlacementSite) -> None:
    east = site.members["east"]
    await east.create(ResourcePath(NAMESPACES), namespace("app"))
    theirs = config_map("settings", {"v": "9", "own": "x"}, namespace="app")
    theirs = with_metadata(theirs, labels={"team": "b"})
    await east.create(ResourcePath(CONFIG_MAPS, "app"), theirs)
    await east.create(ResourcePath(SECRETS, "app"), secret("theirs"))
    before = await east.get(ResourcePath(CONFIG_MAPS, "app", "settings"))
    await site.app()
    ours = with_metadata(config_map("settings", {"v": "1"}, namespace="app"), labels={"team": "a"})
    await site.put(CONFIG_MAPS, ours)
    await site.put(CONFIG_MAPS, config_map("absent", {"v": "1"}, namespace="app"))
    await site.put(SECRETS, secret("ours"))
    await site.place(placement(applyStrategy={"type": "ReportDiff"}))

    async def look() -> Any:
        return await site.condition("DiffReported")

    await until_equal(look, ("True", "DiffReportingCompleted"))
    found = await diffs(site)
    assert found.pop("Secret login") == [("/data/password", "(redacted)", "(redacted)")]
    assert found.pop("ConfigMap absent") == [("/", None, "(the whole object)")]
    assert ("/data/v", "9", "1") in found["ConfigMap settings"]
    assert ("/metadata/labels/team", "b", "a") in found["ConfigMap settings"]
    conditions = [each["type"] for each in (await site.status())["conditions"]]
    assert "ClusterResourcePlacementApplied" not in conditions
    assert await east.get(ResourcePath(CONFIG_MAPS, "app", "settings")) == before
    assert await site.data("east", "absent") is None

    # A difference that is gone on the member is told of as gone.
    place = ResourcePath(CONFIG_MAPS, "app", "settings")
    held = await east.get(place)
    await east.update(place, {**with_metadata(held, labels={"team": "a"}), "data": {"v": "1"}})

    async def paths() -> Any:
        return sorted(await diffs(site))

    await until_equal(paths, ["ConfigMap absent", "Secret login"])
    await site.delete(path_of("crp"))
    await settled()
    assert await site.data("east", "settings") == {"v": "1"}, "what is not ours stays"


async def test_a_placement_that_applied_before_keeps_what_it_placed_and_applies_again(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.place(placement())
    await site.until_settled()
    await site.edit_placement("crp", "ReportDiff", "strategy", "applyStrategy", "type")

    async def look() -> Any:
        return await site.condition("DiffReported")

    await until_equal(look, ("True", "DiffReportingCompleted"))
    await site.set_data("settings", {"v": "2"})

    async def found() -> Any:
        return (await diffs(site)).get("ConfigMap settings")

    await until_equal(found, [("/data/v", "1", "2")])
    assert await site.data("east", "settings") == {"v": "1"}
    await site.edit_placement("crp", "ClientSideApply", "strategy", "applyStrategy", "type")
    await site.until_data("east", "settings", {"v": "2"})
    await site.until_settled()
