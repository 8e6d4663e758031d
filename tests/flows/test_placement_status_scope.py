"""Where the status of a placement is told: on it, and to users of the namespace that is placed."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    PlacementSite,
    namespace_selector,
    path_of,
    placement,
    placement_site,
    resource_placement,
    role_selector,
    running,
)

from clusterspace.apis.fleet_placements import PLACEMENT_STATUSES
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, with_value
from clusterspace.testing.steps import until, until_equal

SYNCED = "ClusterResourcePlacementStatusSynced"
PLACE = ResourcePath(PLACEMENT_STATUSES, "app", "crp")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east") as made, running(made):
        yield made


def accessible(made: Object) -> Object:
    return with_value(made, "NamespaceAccessible", "spec", "statusReportingScope")


async def is_told(site: PlacementSite) -> bool:
    """Whether the namespace has the status that the placement has, and that is settled."""
    copy = await site.hub.find(PLACE)
    return copy is not None and copy.get("sourceStatus") == await site.status()


async def test_users_of_a_namespace_read_the_status_of_what_is_placed_with_it(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.place(accessible(placement()))
    await site.until_settled()
    await until(lambda: is_told(site))
    copy = await site.hub.get(PLACE)
    assert copy["lastUpdatedTime"]
    synced = [e for e in copy["sourceStatus"]["conditions"] if e["type"] == SYNCED]
    assert [(e["status"], e["reason"]) for e in synced] == [("True", "StatusSyncSucceeded")]

    # It follows, comes back, and goes with the placement.
    await site.set_data("settings", {"v": "2"})
    await site.until_data("east", "settings", {"v": "2"})
    await site.until_settled()
    await until(lambda: is_told(site))
    assert (await site.hub.get(PLACE))["sourceStatus"]["observedResourceIndex"] == "1"
    await site.delete(PLACE)
    await until(lambda: is_told(site))
    await site.delete(path_of("crp"))

    async def look() -> Any:
        return await site.hub.find(PLACE)

    await until_equal(look, None)


async def test_a_status_that_cannot_be_told_in_a_namespace_says_so_and_holds_up_nothing(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    somebodys: Object = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementStatus",
        "metadata": {"name": "crp", "namespace": "app"},
        "sourceStatus": {"observedResourceIndex": "7"},
        "lastUpdatedTime": "2026-01-01T00:00:00Z",
    }
    await site.put(PLACEMENT_STATUSES, somebodys)
    await site.place(accessible(placement()))
    await site.until_settled()

    conditions = {each["type"]: each for each in (await site.status())["conditions"]}
    assert conditions[SYNCED]["reason"] == "StatusSyncFailed"
    assert "somebody else's" in conditions[SYNCED]["message"]
    assert (await site.hub.get(PLACE))["sourceStatus"] == somebodys["sourceStatus"]


async def test_a_scope_that_cannot_be_meant_is_refused(site: PlacementSite) -> None:
    await site.app("settings")
    two = placement("two", namespace_selector("app"), namespace_selector("other"))
    for made in (accessible(placement("none", role_selector())), accessible(two)):
        with pytest.raises(Invalid, match="exactly one selector of a Namespace"):
            await site.place(made)
    with pytest.raises(Invalid, match="in its namespace already"):
        await site.place(accessible(resource_placement()))
    await site.place(placement())
    with pytest.raises(Invalid, match="immutable"):
        await site.edit_placement("crp", "NamespaceAccessible", "statusReportingScope")
