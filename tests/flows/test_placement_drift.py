"""What somebody changes on a member, and what was there before: told field by field, or kept."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    CONFIG_MAPS,
    PlacementSite,
    of_cluster,
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
SERVICES = GroupVersionResource("", "v1", "services")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
FAILED = ("False", "ApplyFailed")
APPLIED = ("True", "ApplySucceeded")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east") as made, running(made):
        yield made


def secret(password: str) -> Object:
    data = {"password": base64.b64encode(password.encode()).decode()}
    metadata = {"name": "login", "namespace": "app"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def told(site: PlacementSite, what: str) -> Object:
    """Return the paths that a list of the status tells of, by object, with both values."""
    listed = of_cluster(await site.status(), "east").get(f"{what}edPlacements") or []
    return {
        f"{each['kind']} {each['name']}": [
            (one["path"], one.get("valueInMember"), one.get("valueInHub"))
            for one in each[f"observed{what.capitalize()}s"]
        ]
        for each in listed
    }


async def until_told(site: PlacementSite, what: str, wanted: Object) -> None:
    async def look() -> Any:
        return await told(site, what)

    await until_equal(look, wanted)


async def until_applied(site: PlacementSite, wanted: tuple[str, str]) -> None:
    async def look() -> Any:
        return await site.condition("Applied")

    await until_equal(look, wanted)


async def change_on_member(site: PlacementSite, path: ResourcePath, **changed: Any) -> Object:
    east = site.members["east"]
    return await east.update(path, {**await east.get(path), **changed})


async def test_what_somebody_changed_is_kept_told_field_by_field_and_given_up_for_a_new_state(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.put(SECRETS, secret("ours"))
    await site.place(placement(applyStrategy={"whenToApply": "IfNotDrifted"}))
    await site.until_settled()
    place = ResourcePath(CONFIG_MAPS, "app", "settings")
    await change_on_member(site, place, data={"v": "9"})
    login = ResourcePath(SECRETS, "app", "login")
    await change_on_member(site, login, data=secret("theirs")["data"])

    await until_applied(site, FAILED)
    drifts: Object = {
        "ConfigMap settings": [("/data/v", "9", "1")],
        "Secret login": [("/data/password", "(redacted)", "(redacted)")],
    }
    await until_told(site, "drift", drifts)
    entry = of_cluster(await site.status(), "east")
    assert {each["condition"]["reason"] for each in entry["failedPlacements"]} == {"FoundDrifts"}
    assert "theirs" not in str(entry)
    first = entry["driftedPlacements"][0]
    assert first["firstDriftedObservedTime"]
    assert first["observationTime"] >= first["firstDriftedObservedTime"]
    assert isinstance(first["targetClusterObservedGeneration"], int)
    assert await site.data("east", "settings") == {"v": "9"}

    # Changed once more: since when it has drifted stays said.
    await change_on_member(site, place, data={"v": "8"})
    await until_told(site, "drift", {**drifts, "ConfigMap settings": [("/data/v", "8", "1")]})
    later = of_cluster(await site.status(), "east")["driftedPlacements"][0]
    assert later["firstDriftedObservedTime"] == first["firstDriftedObservedTime"]

    # A new state of the object is applied whatever is there; the Secret has none, and stays.
    await site.set_data("settings", {"v": "2"})
    await site.until_data("east", "settings", {"v": "2"})
    await until_told(site, "drift", {"Secret login": drifts["Secret login"]})
    await change_on_member(site, login, data=secret("ours")["data"])
    await until_told(site, "drift", {})
    await until_applied(site, APPLIED)


async def test_drift_is_kept_by_those_who_come_after_a_restart(tmp_path: Path) -> None:
    async with placement_site(tmp_path, "east") as site:
        async with running(site):
            await site.app("settings")
            await site.place(placement(applyStrategy={"whenToApply": "IfNotDrifted"}))
            await site.until_settled()
        place = ResourcePath(CONFIG_MAPS, "app", "settings")
        await change_on_member(site, place, data={"v": "9"})
        async with running(site):
            await until_applied(site, FAILED)
            assert await site.data("east", "settings") == {"v": "9"}
            # Deleted, it is made again: there is nothing of anybody's to keep.
            await site.delete(place, "east")
            await site.until_data("east", "settings", {"v": "1"})
            await until_applied(site, APPLIED)
            # Who wants drift repaired after all says so.
            await change_on_member(site, place, data={"v": "9"})
            await until_applied(site, FAILED)
            await site.edit_placement("crp", "Always", "strategy", "applyStrategy", "whenToApply")
            await site.until_data("east", "settings", {"v": "1"})
            await until_applied(site, APPLIED)
            await until_told(site, "drift", {})


async def test_a_full_comparison_tells_what_others_added_and_applies_all_the_same(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await site.put(
        DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "app"},
            "spec": {"selector": {"matchLabels": labels}, "template": pod, "replicas": 0},
        },
    )
    await site.put(
        SERVICES,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "app"},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        },
    )
    await site.place(placement(applyStrategy={"comparisonOption": "FullComparison"}))
    await until_applied(site, APPLIED)
    assert await told(site, "drift") == {}, "defaults and addresses are no drift"

    place = ResourcePath(CONFIG_MAPS, "app", "settings")
    east = site.members["east"]
    held = await east.get(place)
    labelled = with_metadata(held, labels={**held["metadata"]["labels"], "team": "b"})
    await east.update(place, {**labelled, "data": {"v": "1", "own": "x"}})
    added = [("/data/own", "x", None), ("/metadata/labels/team", "b", None)]
    await until_told(site, "drift", {"ConfigMap settings": added})
    await settled()
    assert await site.condition("Applied") == APPLIED
    assert await site.data("east", "settings") == {"v": "1", "own": "x"}

    # Together with IfNotDrifted what others added holds up applying, and nothing else does.
    await site.edit_placement("crp", "IfNotDrifted", "strategy", "applyStrategy", "whenToApply")
    await until_applied(site, FAILED)
    await change_on_member(site, place, data={"v": "1"})
    await until_told(site, "drift", {"ConfigMap settings": [added[1]]})


async def test_what_is_not_taken_over_is_told_field_by_field(site: PlacementSite) -> None:
    east = site.members["east"]
    await east.create(ResourcePath(NAMESPACES), namespace("app"))
    theirs = config_map("settings", {"v": "9"}, namespace="app")
    await east.create(ResourcePath(CONFIG_MAPS, "app"), theirs)
    more = config_map("more", {"v": "1"}, namespace="app")
    await east.create(ResourcePath(CONFIG_MAPS, "app"), more)
    await site.app("settings", "more")
    await site.place(placement(applyStrategy={"whenToTakeOver": "IfNoDiff"}))

    await until_applied(site, FAILED)
    await until_told(site, "diff", {"ConfigMap settings": [("/data/v", "9", "1")]})
    entry = of_cluster(await site.status(), "east")
    assert [each["condition"]["reason"] for each in entry["failedPlacements"]] == [
        "FailedToTakeOver"
    ]
    assert entry["diffedPlacements"][0]["firstDiffedObservedTime"]
    assert await site.data("east", "settings") == {"v": "9"}
    place = ResourcePath(CONFIG_MAPS, "app", "settings")
    await change_on_member(site, place, data={"v": "1"})
    await until_applied(site, APPLIED)
    await until_told(site, "diff", {})


async def test_a_full_comparison_takes_over_only_what_says_nothing_more(
    site: PlacementSite,
) -> None:
    east = site.members["east"]
    await east.create(ResourcePath(NAMESPACES), namespace("app"))
    more = config_map("settings", {"v": "1", "own": "x"}, namespace="app")
    await east.create(ResourcePath(CONFIG_MAPS, "app"), more)
    await site.app("settings")
    strategy = {"whenToTakeOver": "IfNoDiff", "comparisonOption": "FullComparison"}
    await site.place(placement(applyStrategy=strategy))

    await until_applied(site, FAILED)
    await until_told(site, "diff", {"ConfigMap settings": [("/data/own", "x", None)]})


@pytest.mark.parametrize("is_shared", [False, True])
async def test_what_has_owners_on_the_member_is_taken_over_only_where_it_may_be_shared(
    site: PlacementSite, is_shared: bool
) -> None:
    east = site.members["east"]
    await east.create(ResourcePath(NAMESPACES), namespace("app"))
    owner = await east.create(
        ResourcePath(CONFIG_MAPS, "app"), config_map("owner", {}, namespace="app")
    )
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    owned = config_map("settings", {"v": "9"}, namespace="app")
    owned = with_metadata(owned, ownerReferences=[reference])
    await east.create(ResourcePath(CONFIG_MAPS, "app"), owned)
    await site.app("settings")
    await site.place(placement(applyStrategy={"allowCoOwnership": is_shared}))

    if is_shared:
        await site.until_data("east", "settings", {"v": "1"})
        await until_applied(site, APPLIED)
        held = await east.get(ResourcePath(CONFIG_MAPS, "app", "settings"))
        assert held["metadata"]["ownerReferences"] == [reference]
        return
    await until_applied(site, FAILED)
    assert await site.data("east", "settings") == {"v": "9"}
    failed = of_cluster(await site.status(), "east")["failedPlacements"]
    assert [each["condition"]["reason"] for each in failed] == ["FailedToTakeOver"]
    assert "ConfigMap owner" in failed[0]["condition"]["message"]
    # One that nobody owns any more may be had.
    place = ResourcePath(CONFIG_MAPS, "app", "settings")
    held = await east.get(place)
    await east.update(place, with_metadata(held, ownerReferences=[]))
    await site.until_data("east", "settings", {"v": "1"})
