"""Services between clusters: exported here, imported there, gone when their exporter is gone."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from clusterspace.apis.policies import GROUP as POLICIES
from clusterspace.apis.services import (
    ENDPOINT_SLICES,
    MANAGED_BY,
    MULTI_CLUSTER_SERVICES,
    SERVICE_IMPORTS,
    SERVICE_NAME,
    SERVICES,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions
from clusterspace.controllers.events import EVENTS
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import deployment
from clusterspace.testing.stage import (
    Fleet,
    Side,
    move_cluster,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import delete, edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXPORTS: Final = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "serviceexports")
DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
PROPAGATION: Final = GroupVersionResource(POLICIES, "v1alpha1", "propagationpolicies")
EVERYWHERE: Final = GroupVersionResource(POLICIES, "v1alpha1", "clusterpropagationpolicies")
PORTS: Final = [{"name": "http", "port": 80, "protocol": "TCP"}]


@dataclass
class Site:
    fleet: Fleet
    members: dict[str, Side]

    async def create(self, resource: GroupVersionResource, body: Object) -> Object:
        place = ResourcePath(resource, namespace_of(body))
        return await self.fleet.hub.client.create(place, body)

    async def serve(self, member: str, name: str, replicas: int = 1) -> None:
        """Run a Service with its pods on a member, by that member's own hands."""
        client = self.members[member].client
        await client.create(
            ResourcePath(DEPLOYMENTS, "default"), deployment(name, replicas=replicas)
        )
        await client.create(ResourcePath(SERVICES, "default"), service(name))

    async def addresses(self, side: Side, service_name: str) -> set[str]:
        """Return the addresses of all slices of a Service that came from another cluster."""
        selection = ListOptions(label_selector=f"{SERVICE_NAME}={service_name}")
        listed = await side.client.list_objects(ResourcePath(ENDPOINT_SLICES, "default"), selection)
        return {
            address
            for each in listed
            if "karmada.io" in labels_of(each).get(MANAGED_BY, "")
            for endpoint in each.get("endpoints") or ()
            for address in endpoint["addresses"]
        }

    async def own_addresses(self, member: str, name: str) -> set[str]:
        """Return the addresses of the pods of a Service on its own cluster."""
        selection = ListOptions(label_selector=f"{SERVICE_NAME}={name}")
        place = ResourcePath(ENDPOINT_SLICES, "default")
        listed = await self.members[member].client.list_objects(place, selection)
        return {
            address
            for each in listed
            if "karmada.io" not in labels_of(each).get(MANAGED_BY, "")
            for endpoint in each.get("endpoints") or ()
            for address in endpoint["addresses"]
        }

    async def export(self, name: str, *clusters: str) -> None:
        await self.create(EXPORTS, export(name))
        await self.create(PROPAGATION, policy(f"export-{name}", "ServiceExport", name, *clusters))

    async def import_to(self, name: str, *clusters: str) -> None:
        await self.create(SERVICE_IMPORTS, service_import(name))
        await self.create(PROPAGATION, policy(f"import-{name}", "ServiceImport", name, *clusters))

    async def events(self, name: str) -> set[str]:
        listed = await self.fleet.hub.client.list_objects(ResourcePath(EVENTS, "default"))
        return {
            str(each["reason"])
            for each in listed
            if find_at(each, "involvedObject", "name") == name
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("services")
    async with running_fleet(directory) as fleet, fleet.controllers():
        names = ("west", "east", "south")
        members = {name: await fleet.add_sim(name, nodes=1) for name in names}
        for name in ("west", "east"):
            await fleet.join(name, members[name])
        await register(fleet, "south", members["south"])
        async with running_agent(members["south"]):
            for name in names:
                await until_ready(fleet, name)
            await fleet.hub.client.create(ResourcePath(EVERYWHERE), definitions())
            for member in members.values():
                await until(lambda member=member: _serves_exports(member))
            yield Site(fleet, members)


async def _serves_exports(member: Side) -> bool:
    crds = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    wanted = {f"service{each}s.multicluster.x-k8s.io" for each in ("export", "import")}
    return wanted <= await member.names_of(ResourcePath(crds))


def definitions() -> Object:
    selectors = [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "name": f"service{each}s.multicluster.x-k8s.io",
        }
        for each in ("export", "import")
    ]
    return {
        "apiVersion": f"{POLICIES}/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": {"name": "services"},
        "spec": {"resourceSelectors": selectors, "placement": {}},
    }


def policy(name: str, kind: str, object_name: str, *clusters: str) -> Object:
    selector = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": kind,
        "name": object_name,
    }
    return {
        "apiVersion": f"{POLICIES}/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [selector],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters)}},
        },
    }


def service(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": PORTS},
    }


def export(name: str) -> Object:
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceExport",
        "metadata": {"name": name, "namespace": "default"},
    }


def service_import(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceImport",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "ClusterSetIP", "ports": PORTS, **spec},
    }


def multi_cluster_service(name: str, providers: list[str], consumers: list[str]) -> Object:
    return {
        "apiVersion": "networking.karmada.io/v1alpha1",
        "kind": "MultiClusterService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "types": ["CrossCluster"],
            "providerClusters": [{"name": each} for each in providers],
            "consumerClusters": [{"name": each} for each in consumers],
        },
    }


@pytest.mark.parametrize(("exporter", "importer"), [("west", "east"), ("south", "west")])
async def test_an_exported_service_is_reached_from_a_cluster_that_imports_it(
    site: Site, exporter: str, importer: str
) -> None:
    name = f"web-from-{exporter}"
    await site.serve(exporter, name, replicas=2)
    await until(lambda: _has(site.own_addresses(exporter, name), 2))

    await site.export(name, exporter)
    own = await site.own_addresses(exporter, name)
    await until_equal(lambda: site.addresses(site.fleet.hub, f"derived-{name}"), own)
    await site.import_to(name, importer)

    member = site.members[importer]
    await until_equal(lambda: site.addresses(member, f"derived-{name}"), own)
    derived = ResourcePath(SERVICES, "default", f"derived-{name}")
    found = await until(lambda: member.client.find(derived))
    assert [each["port"] for each in found["spec"]["ports"]] == [80]
    assert "selector" not in found["spec"]
    slices = await site.fleet.hub.client.list_objects(ResourcePath(ENDPOINT_SLICES, "default"))
    assert any(name_of(each).startswith(f"imported-{exporter}-{name}-") for each in slices)
    await until(lambda: _contains(site.events(name), "SyncDerivedServiceSucceed"))
    where = ResourcePath(SERVICE_IMPORTS, "default", name)
    await until_equal(lambda: _clusters(site, where), [{"cluster": exporter}])


async def _has(found: Any, count: int) -> bool:
    return len(await found) == count


async def _contains(found: Any, word: str) -> bool:
    return word in await found


async def _clusters(site: Site, path: ResourcePath) -> Any:
    return find_at(await site.fleet.hub.client.get(path), "status", "clusters")


async def test_importers_follow_the_exporters_pods(site: Site) -> None:
    await site.serve("west", "scaled")
    await site.export("scaled", "west")
    await site.import_to("scaled", "east")
    east = site.members["east"]
    await until(lambda: _has(site.addresses(east, "derived-scaled"), 1))

    place = ResourcePath(DEPLOYMENTS, "default", "scaled")
    await edit(
        site.members["west"].client, place, lambda each: with_value(each, 3, "spec", "replicas")
    )

    await until(lambda: _has(site.addresses(east, "derived-scaled"), 3))
    assert await site.addresses(east, "derived-scaled") == await site.own_addresses(
        "west", "scaled"
    )


async def test_endpoints_of_a_silent_exporter_stay(site: Site, logged_errors: Any) -> None:
    await site.serve("west", "silent")
    await site.export("silent", "west")
    await site.import_to("silent", "south")
    south = site.members["south"]
    await until(lambda: _has(site.addresses(south, "derived-silent"), 1))
    known = await site.addresses(south, "derived-silent")

    address = site.members["west"].settings.server
    await move_cluster(site.fleet.hub.client, "west", "https://127.0.0.1:1")
    await until_ready(site.fleet, "west", "False")
    # Somebody empties the slice: whoever puts it right has looked at the silent exporter's report.
    listed = await site.fleet.hub.client.list_objects(ResourcePath(ENDPOINT_SLICES, "default"))
    imported = next(each for each in listed if name_of(each).startswith("imported-west-silent-"))
    place = ResourcePath(ENDPOINT_SLICES, "default", name_of(imported))
    await edit(site.fleet.hub.client, place, lambda each: {**each, "endpoints": []})

    await until_equal(lambda: site.addresses(site.fleet.hub, "derived-silent"), known)
    await until_equal(lambda: site.addresses(south, "derived-silent"), known)
    await move_cluster(site.fleet.hub.client, "west", address)
    await until_ready(site.fleet, "west")


async def test_endpoints_go_with_the_order_to_export_them(site: Site) -> None:
    for exporter in ("west", "east"):
        await site.serve(exporter, "moved")
    await site.export("moved", "west", "east")
    await site.import_to("moved", "south")
    south = site.members["south"]
    both = await _union(site, "moved", "west", "east")
    await until_equal(lambda: site.addresses(south, "derived-moved"), both)

    path = ResourcePath(PROPAGATION, "default", "export-moved")
    clusters = ("spec", "placement", "clusterAffinity", "clusterNames")
    await edit(site.fleet.hub.client, path, lambda each: with_value(each, ["east"], *clusters))

    left = await site.own_addresses("east", "moved")
    await until_equal(lambda: site.addresses(south, "derived-moved"), left)
    await delete(site.fleet.hub.client, ResourcePath(EXPORTS, "default", "moved"))
    await until_equal(lambda: site.addresses(south, "derived-moved"), set[str]())
    await until_equal(lambda: site.addresses(site.fleet.hub, "derived-moved"), set[str]())


async def _union(site: Site, name: str, *members: str) -> set[str]:
    found: set[str] = set()
    for member in members:
        await until(lambda member=member: site.own_addresses(member, name))
        found |= await site.own_addresses(member, name)
    return found


async def test_an_import_that_goes_takes_its_service_along(site: Site) -> None:
    await site.serve("west", "short")
    await site.export("short", "west")
    await site.import_to("short", "east")
    derived = ResourcePath(SERVICES, "default", "derived-short")
    east = site.members["east"]
    await until(lambda: east.client.find(derived))

    await delete(site.fleet.hub.client, ResourcePath(SERVICE_IMPORTS, "default", "short"))

    await until_equal(lambda: east.client.find(derived), None)
    await until_equal(lambda: site.addresses(east, "derived-short"), set[str]())
    assert await site.fleet.hub.client.find(derived) is None


async def test_a_service_that_somebody_called_derived_is_left_alone(site: Site) -> None:
    mine = {**service("derived-mine"), "spec": {"ports": [{"port": 99}]}}
    await site.create(SERVICES, mine)

    await site.create(SERVICE_IMPORTS, service_import("mine"))

    await until(lambda: _contains(site.events("mine"), "SyncDerivedServiceFailed"))
    found = await site.fleet.hub.client.get(ResourcePath(SERVICES, "default", "derived-mine"))
    assert find_at(found, "spec", "ports")[0]["port"] == 99


async def test_a_headless_import_has_no_address(site: Site) -> None:
    await site.create(SERVICE_IMPORTS, service_import("direct", type="Headless"))

    path = ResourcePath(SERVICES, "default", "derived-direct")
    found = await until(lambda: site.fleet.hub.client.find(path))

    assert find_at(found, "spec", "clusterIP") == "None"


async def test_a_multi_cluster_service_brings_endpoints_to_its_consumers(site: Site) -> None:
    for provider in ("west", "south"):
        client = site.members[provider].client
        await client.create(ResourcePath(DEPLOYMENTS, "default"), deployment("shop"))
    await site.create(SERVICES, service("shop"))
    wanted = multi_cluster_service("shop", ["west", "south"], ["east"])
    await site.create(MULTI_CLUSTER_SERVICES, wanted)

    path = ResourcePath(MULTI_CLUSTER_SERVICES, "default", "shop")
    east = site.members["east"]
    await until(lambda: _has(site.addresses(east, "shop"), 2))
    own = await _union(site, "shop", "west", "south")
    assert await site.addresses(east, "shop") == own
    for condition in ("ServiceApplied", "EndpointSliceDispatched"):
        await until(lambda condition=condition: _holds(site, path, condition))
    for reason in ("SyncServiceSucceed", "DispatchEndpointSliceSucceed"):
        await until(lambda reason=reason: _contains(site.events("shop"), reason))
    listed = await east.client.list_objects(ResourcePath(ENDPOINT_SLICES, "default"))
    sources = {
        annotations_of(each)["endpointslice.karmada.io/provision-cluster"]: name_of(each)
        for each in listed
        if labels_of(each).get(SERVICE_NAME) == "shop"
        and "karmada.io" in labels_of(each).get(MANAGED_BY, "")
    }
    assert sources.keys() == {"west", "south"}
    assert all(name.startswith(f"{cluster}-shop-") for cluster, name in sources.items())
    # Where it is provided nobody sends its own endpoints back.
    assert await site.addresses(site.members["west"], "shop") == set()

    spec = multi_cluster_service("shop", ["south", "nowhere"], ["west"])["spec"]
    await edit(site.fleet.hub.client, path, lambda each: {**each, "spec": spec})

    await until_equal(lambda: site.addresses(east, "shop"), set[str]())
    left = await site.own_addresses("south", "shop")
    await until_equal(lambda: site.addresses(site.members["west"], "shop"), left)
    await until(lambda: _contains(site.events("shop"), "ClusterNotFound"))

    await delete(site.fleet.hub.client, path)
    await until_equal(lambda: site.addresses(site.members["west"], "shop"), set[str]())
    place = ResourcePath(SERVICES, "default", "shop")
    template = await site.fleet.hub.client.get(place)
    assert not [key for key in labels_of(template) if "multiclusterservice" in key]
    assert await site.members["south"].client.find(place) is not None  # as when a policy goes


async def _holds(site: Site, path: ResourcePath, condition: str) -> bool:
    found = await site.fleet.hub.client.get(path)
    return is_true(find_at(found, "status", "conditions"), condition)


async def test_a_multi_cluster_service_without_its_service_says_so(site: Site) -> None:
    await site.create(MULTI_CLUSTER_SERVICES, multi_cluster_service("absent", [], []))

    path = ResourcePath(MULTI_CLUSTER_SERVICES, "default", "absent")
    await until(lambda: _contains(site.events("absent"), "SyncServiceFailed"))
    found = await until(lambda: _conditions(site, path))
    assert found[0]["reason"] == "ServiceAppliedFailed"
    assert 'services "absent" not found' in found[0]["message"]
    await delete(site.fleet.hub.client, path)


async def _conditions(site: Site, path: ResourcePath) -> Any:
    return find_at(await site.fleet.hub.client.get(path), "status", "conditions")
