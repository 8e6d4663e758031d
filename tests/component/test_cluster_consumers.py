"""Credentials of ClusterConsumers are renewed before they end, and by nobody who is suspended."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import jwt
from tests.component.placement_site import PlacementSite, placement_site

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.consumers import (
    CLUSTER_CONSUMERS,
    CLUSTER_PROFILES,
    EXPIRES,
    RENEWS,
    Address,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.controller import ControllerManager
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.membership.consumers import ClusterConsumers
from clusterspace.fleet.membership.manifests import SERVICE_ACCOUNTS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.kube.times import parse_time
from clusterspace.testing.builders import NAMESPACES, SECRETS, namespace
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import stop, until, until_equal

ADDRESS = Address("https://fleet.example.com:6443", b"an authority")
WEST = ResourcePath(SECRETS, "tools", "west")


async def token_in(site: PlacementSite) -> str:
    held = await site.hub.find(WEST) or {}
    return str((held.get("data") or {}).get("token", ""))


@asynccontextmanager
async def consumers_running(
    site: PlacementSite, address: Address | None
) -> AsyncGenerator[ManualClock]:
    """Run the controller for a consumer `tools` and a Cluster `west`, on a clock turned by hand."""
    await site.declare("west")
    await site.put(NAMESPACES, namespace("tools"))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    await site.hub.create(ResourcePath(SERVICE_ACCOUNTS, "tools"), account)
    made: Object = {
        "apiVersion": CLUSTER_CONSUMERS.api_version,
        "kind": "ClusterConsumer",
        "metadata": {"name": "tools"},
        "spec": {
            "serviceAccount": {"namespace": "tools", "name": "reader"},
            "clusterAffinity": {},
            "outputs": ["TokenSecret"],
        },
    }
    await site.hub.create(ResourcePath(CLUSTER_CONSUMERS), made)
    clock = ManualClock(SystemClock().now())
    events = EventRecorder(site.hub, component="test", clock=clock)
    caches = HubCaches(site.hub)
    consumers = ClusterConsumers(site.hub, caches, events, clock, address)
    manager = ControllerManager(caches, events, (consumers,), clock=clock, random=Random(1))
    task = asyncio.create_task(manager.run())
    try:
        yield clock
    finally:
        await stop(task)


async def test_a_token_is_replaced_when_two_thirds_of_its_time_are_over(tmp_path: Path) -> None:
    async with placement_site(tmp_path) as site, consumers_running(site, ADDRESS) as clock:
        first = await until(lambda: token_in(site))
        marks = annotations_of(await site.hub.get(WEST))
        left = parse_time(marks[EXPIRES]) - clock.now()
        assert 0 < left <= 3600
        assert parse_time(marks[RENEWS]) - clock.now() <= left * 2 / 3 + 1

        # Looked at again and again until then, and left as it is.
        for _ in range(7):
            await clock.advance(300)
        assert await token_in(site) == first

        async def is_replaced() -> bool:
            await clock.advance(300)
            return await token_in(site) != first

        await until(is_replaced)
        second = await token_in(site)
        claims: Any = jwt.decode(b64decode(second), options={"verify_signature": False})
        assert claims["sub"] == "system:serviceaccount:tools:reader"


async def test_unless_it_is_turned_on_nothing_is_written_and_a_consumer_says_so(
    tmp_path: Path,
) -> None:
    async with placement_site(tmp_path) as site, consumers_running(site, None):
        path = ResourcePath(CLUSTER_CONSUMERS, "", "tools")

        async def reason() -> str:
            held = await site.hub.get(path)
            found = find_condition(find_at(held, "status", "conditions"), "Published") or {}
            return str(found.get("reason"))

        await until_equal(reason, "TurnedOff")
        assert await site.hub.find(WEST) is None
        assert await site.hub.list_objects(ResourcePath(CLUSTER_PROFILES)) == []
