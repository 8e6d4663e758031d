"""A member that exports a Service means harm: what it reports reaches others as endpoints only."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from clusterspace.apis.clusters import WORKS
from clusterspace.apis.services import (
    ENDPOINT_SLICES,
    MANAGED_BY,
    MOST_SLICES,
    SERVICE_IMPORTS,
    SERVICE_NAME,
    SERVICES,
)
from clusterspace.apis.works import identifier_of, manifests_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient, DeleteOptions, PatchType
from clusterspace.controllers.commit import commit
from clusterspace.errors import Forbidden
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import Fleet, as_agent, register, running_fleet
from clusterspace.testing.steps import until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXPORTS: Final = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "serviceexports")
QUOTAS: Final = GroupVersionResource("", "v1", "resourcequotas")
IMPORTER: Final = "endpointslice-controller.karmada.io"


@dataclass
class Site:
    fleet: Fleet
    agents: dict[str, ClusterClient]

    async def report(self, cluster: str, slices: Any) -> None:
        """Say, as the agent of a cluster, that a Service has these slices there."""
        agent, place = self.agents[cluster], ResourcePath(WORKS, f"karmada-es-{cluster}")
        works = await until(lambda: agent.list_objects(place))
        work = next(each for each in works if manifests_of(each)[0]["kind"] == "ServiceExport")
        manifest = manifests_of(work)[0]
        entry = {
            "identifier": identifier_of(manifest, 0),
            "health": "Healthy",
            "status": {"endpointSlices": slices},
        }
        status = {"manifestStatuses": [entry]}
        await commit(agent, resource_path_of(WORKS, work), work, {**work, "status": status})

    async def slices(self) -> list[Object]:
        """Return every slice that was made of reports, in every namespace."""
        listed = await self.fleet.hub.client.list_objects(ResourcePath(ENDPOINT_SLICES))
        return [each for each in listed if labels_of(each).get(MANAGED_BY) == IMPORTER]

    async def addresses(self) -> set[str]:
        return {
            address
            for each in await self.slices()
            for endpoint in each.get("endpoints") or ()
            for address in endpoint["addresses"]
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with running_fleet(tmp_path_factory.mktemp("exports")) as fleet, fleet.controllers():
        agents: dict[str, ClusterClient] = {}
        names = ("a", "a-b")
        for name in names:
            member = await fleet.add_member(name)
            await register(fleet, name, member)
            agents[name] = await fleet.stack.enter_async_context(as_agent(member))
        hub = fleet.hub.client
        body = {"apiVersion": EXPORTS.api_version, "kind": "ServiceExport"}
        metadata = {"name": "web", "namespace": "default"}
        # Their agents do not run, so nothing is scheduled there: the orders are written by hand.
        for name in names:
            place = ResourcePath(WORKS, f"karmada-es-{name}")
            work = {
                "apiVersion": "work.karmada.io/v1alpha1",
                "kind": "Work",
                "metadata": {"name": "web-export"},
                "spec": {"workload": {"manifests": [{**body, "metadata": metadata}]}},
            }
            await until(lambda place=place, work=work: _created(hub, place, work))
        yield Site(fleet, agents)


async def _created(hub: ClusterClient, place: ResourcePath, work: Object) -> bool:
    namespaces = GroupVersionResource("", "v1", "namespaces")
    if await hub.find(ResourcePath(namespaces, "", place.namespace)) is None:
        return False
    await hub.create(place, work)
    return True


def a_slice(name: str, *addresses: str, **more: Any) -> Object:
    endpoints = [{"addresses": [each]} for each in addresses]
    ports = [{"name": "", "port": 80, "protocol": "TCP"}]
    return {"name": name, "addressType": "IPv4", "endpoints": endpoints, "ports": ports, **more}


async def test_addresses_of_the_importers_own_machines_reach_nobody(site: Site) -> None:
    bad = ("127.0.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0")
    await site.report("a", [a_slice("web", *bad, "10.7.0.1")])

    await until_equal(site.addresses, {"10.7.0.1"})


async def test_whose_a_slice_is_is_not_said_by_who_reports_it(site: Site) -> None:
    claims = {
        "metadata": {
            "name": "web",
            "namespace": "kube-system",
            "labels": {SERVICE_NAME: "kubernetes", MANAGED_BY: "endpointslice-controller.k8s.io"},
            "annotations": {"work.karmada.io/namespace": "karmada-es-a-b"},
        },
        "labels": {SERVICE_NAME: "kubernetes"},
        "namespace": "kube-system",
    }
    await site.report("a", [a_slice("web", "10.7.0.2", **claims)])

    await until_equal(site.addresses, {"10.7.0.2"})
    (found,) = await site.slices()
    assert (namespace_of(found), name_of(found)) == ("default", "imported-a-web")
    assert labels_of(found)[SERVICE_NAME] == "derived-web"
    assert annotations_of(found)["work.karmada.io/namespace"] == "karmada-es-a"


async def test_a_cluster_cannot_take_the_name_of_anothers_slice(site: Site) -> None:
    await site.report("a-b", [a_slice("x", "10.8.0.1")])
    await until(lambda: _has(site, "imported-a-b-x"))

    await site.report("a", [a_slice("b-x", "10.7.0.3")])

    await until_equal(site.addresses, {"10.8.0.1", "10.7.0.3"})
    place = ResourcePath(ENDPOINT_SLICES, "default", "imported-a-b-x")
    kept = await site.fleet.hub.client.get(place)
    assert kept["endpoints"][0]["addresses"] == ["10.8.0.1"]
    await site.report("a-b", [])


async def _has(site: Site, name: str) -> bool:
    return name in {name_of(each) for each in await site.slices()}


async def test_thousands_of_slices_are_a_hundred(site: Site) -> None:
    await site.report("a", [a_slice(f"web-{number}", "10.7.0.4") for number in range(2000)])

    await until_equal(lambda: _count(site), MOST_SLICES)
    await site.report("a", [])
    await until_equal(lambda: _count(site), 0)


async def _count(site: Site) -> int:
    return len(await site.slices())


@pytest.mark.parametrize("nonsense", ["text", {"a": 1}, [None, 7, [], {"name": []}], 3, None])
async def test_a_report_of_any_shape_stops_nobody(site: Site, nonsense: Any) -> None:
    await site.report("a", nonsense)
    await site.report("a-b", [a_slice("after", "10.8.0.9")])

    await until(lambda: _has(site, "imported-a-b-after"))
    assert await site.addresses() <= {"10.8.0.9"}
    await site.report("a", [])
    await site.report("a-b", [])
    await until_equal(lambda: _count(site), 0)


UNFIT: Final = {
    "a name that is none": [{"name": "", "port": 80, "appProtocol": "a/b/c"}],
    "a name twice": [{"name": "http", "port": 80}, {"name": "http", "port": 81}],
    "no name twice": [{"port": 80}, {"port": 81}],
}


@pytest.mark.parametrize("ports", UNFIT.values(), ids=UNFIT)
async def test_what_no_api_server_would_store_holds_up_nobody_elses_endpoints(
    site: Site, ports: Any
) -> None:
    await site.report("a", [a_slice("unfit", "10.7.0.5", ports=ports)])
    await site.report("a-b", [a_slice("after", "10.8.0.8")])

    await until_equal(site.addresses, {"10.7.0.5", "10.8.0.8"})
    (found,) = [each for each in await site.slices() if name_of(each) == "imported-a-unfit"]
    assert [each.get("name", "") for each in found["ports"]] == [ports[0].get("name", "")]
    assert not any(each.get("appProtocol") for each in found["ports"])
    await site.report("a", [])
    await site.report("a-b", [])
    await until_equal(lambda: _count(site), 0)


async def test_what_the_hub_refuses_of_one_cluster_holds_up_nobody_elses_endpoints(
    site: Site,
) -> None:
    hub = site.fleet.hub.client
    only_few = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"count/endpointslices.discovery.k8s.io": "2"}},
    }
    # The first is the API server's own, and stays.
    quota = await hub.create(ResourcePath(QUOTAS, "default"), only_few)
    await site.report("a-b", [a_slice("before", "10.8.0.6")])
    await until_equal(site.addresses, {"10.8.0.6"})

    await site.report("a", [a_slice(f"web-{number}", "10.7.0.6") for number in range(5)])
    await site.report("a-b", [a_slice("before", "10.8.0.7")])

    await until_equal(site.addresses, {"10.8.0.7"})
    await hub.delete(resource_path_of(QUOTAS, quota), DeleteOptions(uid_of(quota)))
    await until_equal(site.addresses, {"10.8.0.7", "10.7.0.6"})
    await site.report("a", [])
    await site.report("a-b", [])
    await until_equal(lambda: _count(site), 0)


async def test_a_slice_of_somebodys_own_is_left_alone_and_said_to_be_in_the_way(
    site: Site,
) -> None:
    hub = site.fleet.hub.client
    place = ResourcePath(ENDPOINT_SLICES, "default", "imported-a-web")
    body = {"apiVersion": ENDPOINT_SLICES.api_version, "kind": "EndpointSlice"}
    own = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.9.0.1"]}]}
    made = await hub.create(place.collection, {**body, "metadata": {"name": place.name}, **own})
    await site.report("a", [a_slice("web", "10.7.0.7"), a_slice("web-2", "10.7.0.8")])

    await until(lambda: _is_told_of(hub, "EndpointSlice imported-a-web is not imported"))

    assert await site.addresses() == {"10.7.0.8"}
    assert await hub.get(place) == made
    await hub.delete(place, DeleteOptions(uid_of(made)))
    await site.report("a", [a_slice("web", "10.7.0.9")])
    await until_equal(site.addresses, {"10.7.0.9"})
    await site.report("a", [])
    await until_equal(lambda: _count(site), 0)


async def _is_told_of(hub: ClusterClient, what: str) -> bool:
    events = GroupVersionResource("", "v1", "events")
    listed = await hub.list_objects(ResourcePath(events, "karmada-es-a"))
    return any(what in each["message"] for each in listed)


async def test_controllers_touch_no_service_but_those_they_derived(site: Site) -> None:
    hub = site.fleet.hub.client
    settings = part_of_hub(site.fleet.directory / "hub", "controllers")
    ports = {"spec": {"ports": [{"port": 80}]}}
    own = {"apiVersion": "v1", "kind": "Service", **ports}
    for name in ("shop", "derived-by-hand"):
        body = {**own, "metadata": {"name": name, "namespace": "default"}}
        await hub.create(ResourcePath(SERVICES, "default"), body)
    async with client_for_test(settings) as controllers:
        for name in ("other", "derived-new"):
            body = {**own, "metadata": {"name": name, "namespace": "default"}}
            with pytest.raises(Forbidden):
                await controllers.create(ResourcePath(SERVICES, "default"), body)
        for name in ("shop", "derived-by-hand"):
            place = ResourcePath(SERVICES, "default", name)
            present = await hub.get(place)
            patch = {
                "metadata": {"resourceVersion": find_at(present, "metadata", "resourceVersion")},
                "spec": {"ports": [{"port": 81}]},
            }
            with pytest.raises(Forbidden):
                await controllers.patch(place, PatchType.MERGE, patch)
        place = ResourcePath(SERVICES, "default", "shop")
        with pytest.raises(Forbidden):
            await controllers.delete(place, DeleteOptions(uid=uid_of(await hub.get(place))))


async def test_an_agent_still_gives_no_orders(site: Site) -> None:
    agent = site.agents["a"]
    place = ResourcePath(WORKS, "karmada-es-a")
    work = next(iter(await agent.list_objects(place)))
    with pytest.raises(Forbidden):
        await agent.create(
            place,
            {
                "apiVersion": "work.karmada.io/v1alpha1",
                "kind": "Work",
                "metadata": {"name": "more"},
                "spec": find_at(work, "spec"),
            },
        )
    with pytest.raises(Forbidden):
        await agent.list_objects(ResourcePath(SERVICE_IMPORTS, "default"))
