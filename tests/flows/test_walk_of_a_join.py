"""How far a reader walks who follows `clusterspace join` and `clusterspace unjoin`.

The hub, its controllers and the member run in a thread of their own. What is counted is the way of
the two commands: their root, the steps of membership, and the client down to the socket.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.walks import Walk

from clusterspace.client.settings import ConnectionSettings
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.membership import UnjoinRequest, join_cluster, unjoin_cluster
from clusterspace.testing.stage import running_fleet

MOST_MODULES = 25
MOST_OF_MEMBERSHIP = 6
"""Where the way is now, and two for what only a slow machine sees, such as a request that is tried
again. Whoever makes it longer reads it first, and has a reason."""


@dataclass(frozen=True)
class Clusters:
    """How to reach the two sides of a join."""

    hub: ConnectionSettings
    member: ConnectionSettings


@contextmanager
def clusters_elsewhere(directory: Path, *, has_controllers: bool = True) -> Generator[Clusters]:
    """Run a hub, its controllers and a cluster in another thread for as long as the block lasts."""
    is_up, running = threading.Event(), list[tuple[asyncio.AbstractEventLoop, Clusters]]()
    is_over = asyncio.Event()

    async def run() -> None:
        async with running_fleet(directory) as fleet:
            side = await fleet.add_member("west")
            async with fleet.controllers() if has_controllers else nullcontext():
                found = Clusters(fleet.hub.settings, side.settings)
                running.append((asyncio.get_running_loop(), found))
                is_up.set()
                await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert is_up.wait(60)
        yield running[0][1]
    finally:
        for loop, _ in running:
            loop.call_soon_threadsafe(is_over.set)
        thread.join()


@pytest.mark.asyncio
async def test_a_join_and_a_leave_are_followed_in_few_files(tmp_path: Path) -> None:
    said: list[str] = []
    with clusters_elsewhere(tmp_path) as clusters, Walk() as walk:
        request = JoinRequest("west", clusters.member)
        await join_cluster(request, clusters.hub, said.append)
        leaving = UnjoinRequest("west", member=clusters.member)
        await unjoin_cluster(leaving, clusters.hub, said.append)

    assert said[-1] == "cluster west has left"
    print(walk)
    inside = [each for each in walk.modules if each.startswith("clusterspace.fleet.membership.")]
    assert len(inside) <= MOST_OF_MEMBERSHIP
    assert len(walk.modules) <= MOST_MODULES
