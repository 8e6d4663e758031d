"""Envelopes: members get what is in them, and on the hub nothing of it acts."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    cluster_role,
    of_cluster,
    placement,
    placement_site,
    resource_placement,
    running,
)

from clusterspace.apis.fleet_placements import API_VERSION, RESOURCE_SNAPSHOTS
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until_equal

GROUP = "placement.kubernetes-fleet.io"
RESOURCE_ENVELOPES = GroupVersionResource(GROUP, "v1beta1", "resourceenvelopes")
CLUSTER_ENVELOPES = GroupVersionResource(GROUP, "v1beta1", "clusterresourceenvelopes")
QUOTAS = GroupVersionResource("", "v1", "resourcequotas")
OVERRIDES = GroupVersionResource(GROUP, "v1beta1", "resourceoverrides")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east") as made, running(made):
        yield made


def envelope(name: str = "wrapped", **data: Object) -> Object:
    metadata = {"name": name, "namespace": "app"}
    written = {f"{key}.yaml": each for key, each in data.items()}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceEnvelope",
        "metadata": metadata,
        "data": written,
    }


def wide_envelope(name: str = "wide", **data: Object) -> Object:
    made = envelope(name, **data)
    return {**made, "kind": "ClusterResourceEnvelope", "metadata": {"name": name}}


def selecting(kind: str, name: str) -> Object:
    return {"group": GROUP, "version": "v1beta1", "kind": kind, "name": name}


def bare(kube_object: Object) -> Object:
    """Return an object that leaves its namespace to the envelope."""
    metadata = {key: v for key, v in kube_object["metadata"].items() if key != "namespace"}
    return {**kube_object, "metadata": metadata}


QUOTA: Object = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": "app"},
    "spec": {"hard": {"configmaps": "90"}},
}


async def test_members_get_what_is_in_an_envelope_and_the_hub_has_none_of_it(
    site: PlacementSite,
) -> None:
    east = site.members["east"]
    await site.app("settings")
    config = bare(config_map("wrapped", {"v": "1"}))
    await site.put(RESOURCE_ENVELOPES, envelope(config=config, quota=QUOTA))
    await site.place(placement())
    await site.until_settled()

    assert await site.data("east", "wrapped") == {"v": "1"}
    assert (await east.get(ResourcePath(QUOTAS, "app", "few")))["spec"] == QUOTA["spec"]
    assert await site.hub.find(ResourcePath(QUOTAS, "app", "few")) is None
    selected = [(e["kind"], e["name"]) for e in (await site.status())["selectedResources"]]
    assert ("ResourceEnvelope", "wrapped") in selected
    assert ("ResourceQuota", "few") not in selected
    snapshot = await site.hub.get(ResourcePath(RESOURCE_SNAPSHOTS, "", "crp-0-snapshot"))
    annotations = snapshot["metadata"]["annotations"]
    assert annotations["kubernetes-fleet.io/number-of-enveloped-object"] == "1"

    # Changed, drifted, dropped, gone: as of any object that is placed.
    place = ResourcePath(RESOURCE_ENVELOPES, "app", "wrapped")
    newer = envelope(config=bare(config_map("wrapped", {"v": "2"})), quota=QUOTA)
    await site.change(place, lambda held: {**held, "data": newer["data"]})
    await site.until_data("east", "wrapped", {"v": "2"})
    await site.until_settled()
    held = await east.get(ResourcePath(CONFIG_MAPS, "app", "wrapped"))
    await east.update(ResourcePath(CONFIG_MAPS, "app", "wrapped"), {**held, "data": {"v": "9"}})
    await site.until_data("east", "wrapped", {"v": "2"})
    await site.change(place, lambda held: {**held, "data": envelope(quota=QUOTA)["data"]})
    await site.until_data("east", "wrapped", None)
    await site.delete(place)

    async def quota() -> Any:
        return await east.find(ResourcePath(QUOTAS, "app", "few"))

    await until_equal(quota, None)
    assert await site.data("east", "settings") == {"v": "1"}


async def test_a_cluster_wide_envelope_is_selected_by_its_name_and_goes_with_its_placement(
    site: PlacementSite,
) -> None:
    east = site.members["east"]
    await site.put(CLUSTER_ENVELOPES, wide_envelope(role=cluster_role("wrapped-role")))
    await site.place(placement("crp", selecting("ClusterResourceEnvelope", "wide")))
    await site.until_settled()
    place = ResourcePath(CLUSTER_ROLES, "", "wrapped-role")
    assert await east.find(place) is not None
    assert await site.hub.find(place) is None
    await site.delete(
        ResourcePath(GroupVersionResource(GROUP, "v1beta1", "clusterresourceplacements"), "", "crp")
    )

    async def look() -> Any:
        return await east.find(place)

    await until_equal(look, None)


async def test_overrides_reach_into_envelopes_and_what_fails_names_its_envelope(
    site: PlacementSite,
) -> None:
    east = site.members["east"]
    await east.create(ResourcePath(NAMESPACES), namespace("app"))
    await site.app()
    await east.create(ResourcePath(CONFIG_MAPS, "app"), config_map("theirs", {}, namespace="app"))
    wrapped = envelope(
        config=bare(config_map("wrapped", {"v": "1"})),
        theirs=bare(config_map("theirs", {"v": "1"})),
    )
    await site.put(RESOURCE_ENVELOPES, wrapped)
    replaced = {"op": "replace", "path": "/data/v", "value": "${MEMBER-CLUSTER-NAME}"}
    rule = {"clusterSelector": {"clusterSelectorTerms": []}, "jsonPatchOverrides": [replaced]}
    chosen = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "wrapped"}
    await site.put(
        OVERRIDES,
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceOverride",
            "metadata": {"name": "named", "namespace": "app"},
            "spec": {"resourceSelectors": [chosen], "policy": {"overrideRules": [rule]}},
        },
    )
    selector = selecting("ResourceEnvelope", "wrapped")
    await site.place(resource_placement("rp", selector, applyStrategy={"whenToTakeOver": "Never"}))
    await site.until_data("east", "wrapped", {"v": "east"})

    async def failed() -> Any:
        entries = of_cluster(await site.status("app/rp"), "east").get("failedPlacements") or []
        return [(each["name"], each.get("envelope")) for each in entries]

    about = {"name": "wrapped", "namespace": "app", "type": "ResourceEnvelope"}
    await until_equal(failed, [("theirs", about)])


async def test_an_object_that_is_selected_itself_cannot_come_in_an_envelope_as_well(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.put(RESOURCE_ENVELOPES, envelope(config=bare(config_map("settings", {"v": "2"}))))
    await site.place(placement())

    async def look() -> Any:
        return await site.condition("Scheduled")

    await until_equal(look, ("False", "InvalidResourceSelectors"))
    assert "is selected more than once" in await site.message("Scheduled")
    await settled()
    assert await site.data("east", "settings") is None


async def test_what_cannot_be_made_on_a_member_is_refused_with_its_place(
    site: PlacementSite,
) -> None:
    await site.app()
    with pytest.raises(Invalid, match=r"data\[a.yaml\].metadata.namespace"):
        await site.put(RESOURCE_ENVELOPES, envelope(a=config_map("a", namespace="other")))
