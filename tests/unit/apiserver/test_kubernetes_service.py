"""Where the API server says it is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.unit.apiserver.identity.subjects import MemoryHub

from clusterspace.apiserver.kubernetes_service import KubernetesService


@asynccontextmanager
async def published(hub: MemoryHub, address: str, port: int) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(KubernetesService(hub.state, address, port).run())
        await hub.clock.advance(0)
        yield
        running.cancel()


async def addresses(hub: MemoryHub) -> tuple[list[object], list[object]]:
    """Return address and port by Endpoints and by EndpointSlice."""
    endpoints = await hub.get("", "endpoints", "default", "kubernetes")
    piece = await hub.get("discovery.k8s.io", "endpointslices", "default", "kubernetes")
    subset = endpoints["subsets"][0]
    return (
        [subset["addresses"][0]["ip"], subset["ports"][0]["port"]],
        [piece["endpoints"][0]["addresses"][0], piece["ports"][0]["port"]],
    )


async def test_endpoints_and_their_slice_lead_to_the_server():
    hub = MemoryHub()
    async with published(hub, "192.0.2.7", 6443):
        assert await addresses(hub) == (["192.0.2.7", 6443], ["192.0.2.7", 6443])
        piece = await hub.get("discovery.k8s.io", "endpointslices", "default", "kubernetes")
        assert piece["addressType"] == "IPv4"
        assert piece["metadata"]["labels"] == {"kubernetes.io/service-name": "kubernetes"}


async def test_a_server_that_has_moved_says_so_when_it_starts():
    hub = MemoryHub()
    async with published(hub, "192.0.2.7", 6443):
        pass
    async with published(hub, "192.0.2.8", 7443):
        assert await addresses(hub) == (["192.0.2.8", 7443], ["192.0.2.8", 7443])
        service = await hub.get("", "services", "default", "kubernetes")
        assert service["spec"]["ports"][0]["targetPort"] == 7443


async def test_a_server_that_no_machine_reaches_has_a_service_with_nothing_behind_it():
    hub = MemoryHub()
    async with published(hub, "", 6443):
        assert await hub.find("", "services", "default", "kubernetes")
        assert await hub.find("", "endpoints", "default", "kubernetes") is None


async def test_what_somebody_deletes_or_changes_is_put_right():
    hub = MemoryHub()
    async with published(hub, "192.0.2.7", 6443):
        await hub.delete("discovery.k8s.io", "endpointslices", "default", "kubernetes")
        endpoints = await hub.get("", "endpoints", "default", "kubernetes")
        await hub.edit("", "endpoints", endpoints, subsets=[])
        await hub.clock.advance(0)

        assert await addresses(hub) == (["192.0.2.7", 6443], ["192.0.2.7", 6443])
