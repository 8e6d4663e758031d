"""Clusters that joined by MemberCluster export Services to each other by KubeFleet's placements."""

from pathlib import Path
from typing import Final

from tests.component.invited_members import Invited
from tests.flows.test_services_between_clusters import PORTS, definitions

from clusterspace.apis.services import ENDPOINT_SLICES, SERVICE_IMPORTS, SERVICE_NAME, SERVICES
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.kube.objects import Object, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.stage import Side, running_fleet
from clusterspace.testing.steps import edit, until, until_equal

EXPORTS: Final = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "serviceexports")
PLACEMENTS: Final = GroupVersionResource(
    "placement.kubernetes-fleet.io", "v1beta1", "resourceplacements"
)
POLICIES: Final = GroupVersionResource(
    "policy.karmada.io", "v1alpha1", "clusterpropagationpolicies"
)


def placement(name: str, kind: str, cluster: str) -> Object:
    return {
        "apiVersion": PLACEMENTS.api_version,
        "kind": "ResourcePlacement",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "resourceSelectors": [
                {
                    "group": "multicluster.x-k8s.io",
                    "version": "v1alpha1",
                    "kind": kind,
                    "name": "web",
                }
            ],
            "policy": {"placementType": "PickFixed", "clusterNames": [cluster]},
        },
    }


async def addresses(side: Side, service: str) -> set[str]:
    selection = ListOptions(label_selector=f"{SERVICE_NAME}={service}")
    listed = await side.client.list_objects(ResourcePath(ENDPOINT_SLICES, "shop"), selection)
    endpoints = (each for one in listed for each in one.get("endpoints") or ())
    return {address for each in endpoints for address in each["addresses"]}


async def test_a_service_is_exported_and_imported_by_placements(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as running:
        invited = Invited(running)
        members = {name: await running.add_sim(name, nodes=1) for name in ("west", "east")}
        for name in members:
            await invited.invite(name)
        async with (
            invited.controllers(),
            invited.agent(members["west"], "west"),
            invited.agent(members["east"], "east"),
        ):
            for name in members:
                await invited.until_joined(name)
            await export_and_import(invited.hub, members["west"], members["east"])


async def export_and_import(hub: ClusterClient, west: Side, east: Side) -> None:
    """Export a Service of one cluster, import it in another, and see its endpoints followed."""
    await hub.create(ResourcePath(POLICIES), definitions())
    await hub.create(ResourcePath(NAMESPACES), namespace("shop"))
    await until(lambda: west.client.find(ResourcePath(NAMESPACES, "", "shop")))
    web = deployment("web", namespace="shop")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "web"}, "ports": PORTS},
    }
    await west.client.create(ResourcePath(DEPLOYMENTS, "shop"), web)
    await west.client.create(ResourcePath(SERVICES, "shop"), service)
    body = {"apiVersion": "multicluster.x-k8s.io/v1alpha1", "metadata": {"name": "web"}}
    await hub.create(ResourcePath(EXPORTS, "shop"), {**body, "kind": "ServiceExport"})
    spec = {"type": "ClusterSetIP", "ports": PORTS}
    wanted = {**body, "kind": "ServiceImport", "spec": spec}
    await hub.create(ResourcePath(SERVICE_IMPORTS, "shop"), wanted)
    for kind, cluster in (("ServiceExport", "west"), ("ServiceImport", "east")):
        placed = placement(kind.lower(), kind, cluster)
        await hub.create(ResourcePath(PLACEMENTS, "shop"), placed)

    await until(lambda: addresses(east, "derived-web"))
    assert await addresses(east, "derived-web") == await addresses(west, "web")

    place = ResourcePath(DEPLOYMENTS, "shop", "web")
    await edit(west.client, place, lambda each: with_value(each, 2, "spec", "replicas"))

    async def has_followed() -> bool:
        return len(await addresses(east, "derived-web")) == 2

    await until(has_followed)
    await until_equal(lambda: addresses(west, "web"), await addresses(east, "derived-web"))
