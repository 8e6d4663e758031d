"""How far a reader walks who follows `kubectl get configmaps -A` through the fleet API server.

The hub, the members and the client run in threads of their own. What is counted is the server's
own way from the request's first byte to the answer's last: HTTP, the chain, routing, the fan-out
and the client of each cluster, merging, and HTTP again.
"""

import asyncio
import http.client
import ssl
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.component.gateway.fleet_site import (
    MASTERS_TRAVEL,
    ROOT,
    TABLE,
    running_hub_of_fleet,
)
from tests.walks import Walk

from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.roots.fleet import FleetSettings, RunningFleet, running_fleet
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.hubs import part_of_hub

LIST = "/api/v1/configmaps?limit=500"
MOST_MODULES = 39
MOST_JUMPS = 108
"""Where the way is now, 38 and 107, and one for what only a slow machine sees. Whoever makes it
longer reads it first, and has a reason. The last ones: every request waits for its turn in the
queue of its flow, four files, and is held against an audit policy, two; a list is taken apart into
what selects clusters and what selects objects, and looked for among what is known; Karmada's search
has paths of its own, which are told apart first; what a member answers is kept for when it is away,
by who asked and which cluster it was; how a Table went before says whether what stands beside its
rows is worth keeping, of which a file may be read first."""


@contextmanager
def clusters_elsewhere(directory: Path) -> Generator[None]:
    """Run a hub with two members in another thread for as long as the block lasts."""
    is_up, loops = threading.Event(), list[asyncio.AbstractEventLoop]()
    is_over = asyncio.Event()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            fleet = await running_hub_of_fleet(directory, stack, MASTERS_TRAVEL)
            for name in ("east", "west"):
                side = await fleet.add_member(name)
                await fleet.join(name, side)
                await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("same"))
            loops.append(asyncio.get_running_loop())
            is_up.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert is_up.wait(60)
        yield
    finally:
        for loop in loops:
            loop.call_soon_threadsafe(is_over.set)
        thread.join()


@asynccontextmanager
async def gateway(directory: Path) -> AsyncGenerator[RunningFleet]:
    settings = FleetSettings(
        hub=part_of_hub(directory / "hub", "fleet"),
        data_dir=directory / "fleet",
        port=0,
        member_cidrs=LOOPBACK,
        identities=MASTERS_TRAVEL,
    )
    async with running_fleet(settings) as running:
        yield running


class Client:
    """kubectl, as far as one list goes, in a thread of its own."""

    def __init__(self, url: str, authority: Path) -> None:
        address = urlsplit(url)
        context = ssl.create_default_context(cafile=str(authority))
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context
        )

    def list(self) -> bytes:
        headers = {"Authorization": f"Bearer {ROOT}", "Accept": TABLE, "Kubectl-Command": "get"}
        self._connection.request("GET", LIST, headers=headers)
        answer = self._connection.getresponse()
        assert answer.status == 200
        return answer.read()

    def close(self) -> None:
        self._connection.close()


@pytest.mark.asyncio
async def test_a_fleet_list_is_followed_in_few_files_and_jumps(tmp_path: Path):
    walks: list[Walk] = []
    with clusters_elsewhere(tmp_path):
        async with gateway(tmp_path) as running:
            client = Client(running.url, tmp_path / "fleet" / "pki" / "ca.crt")
            for _ in range(4):
                with Walk(beside="measure_stalls") as walk:
                    listed = await asyncio.to_thread(client.list)
                assert b"same.clusterspace.east" in listed
                walks.append(walk)
            client.close()

    # The first has to ask who it is that asks; and now and then something of the background, which
    # is not on the way, has its turn.
    shortest = min(walks[1:], key=lambda walk: (len(walk.calls), len(walk.jumps)))
    print(shortest)
    assert len(shortest.calls) <= MOST_MODULES
    assert len(shortest.jumps) <= MOST_JUMPS
