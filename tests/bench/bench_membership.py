"""What watching over a hundred clusters costs, and whether all are seen within one period.

python -m tests.bench membership

The hub and the controllers are processes as users start them, with the product's timings. The
members are simulated clusters, each a TLS server of its own, in two further processes. The run
fails when a member is not looked at in every period, when a change on a member is not in its
Cluster one period later, or when a Cluster is written though nothing changed.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.api_servers import ApiServer, Usage, free_port, running_hub, usage_of
from tests.bench.fleet_processes import (
    running_controllers,
    running_sims,
    series_of,
    sim_settings,
)

from clusterspace.aio import event_loop
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.fleet.membership.status import FREQUENCY_SECONDS, ready_status
from clusterspace.kube.objects import Object, find_at, name_of, resource_version_of
from clusterspace.roots.clients import open_client
from clusterspace.roots.membership import join_cluster

MEMBERS = 100
JOINS_AT_ONCE = 8
PERIODS = 3
ROUNDS = 3
LOOK_SECONDS = 1.0
"""A period is counted from look to look; the look itself and its write come on top."""
PATIENCE = 120.0


class NotInTime(Exception):
    """Not every cluster was renewed within one period, or one was written without need."""


# -- the fleet -------------------------------------------------------------------------------------


def looks_of(metrics_port: int) -> dict[str, int]:
    """Return how often the controllers have looked at each member."""
    looks = series_of(metrics_port, "cluster_sync_status_duration_seconds_count")
    return {labels.split('"')[1]: int(count) for labels, count in looks.items()}


@dataclass(frozen=True)
class Fleet:
    """Everybody who takes part, and what they are called in the figures."""

    hub: ClusterClient
    members: dict[str, ConnectionSettings]
    metrics_port: int
    processes: dict[str, tuple[int, ...]]

    async def clusters(self) -> list[Object]:
        return await self.hub.list_objects(ResourcePath(CLUSTERS))


async def at_once(
    members: dict[str, ConnectionSettings],
    work: Callable[[str, ConnectionSettings], Awaitable[None]],
) -> None:
    """Do something with every member, a few at a time."""
    gate = asyncio.Semaphore(JOINS_AT_ONCE)

    async def guarded(name: str, settings: ConnectionSettings) -> None:
        async with gate:
            await work(name, settings)

    async with asyncio.TaskGroup() as group:
        for name, settings in members.items():
            group.create_task(guarded(name, settings))


# -- what is measured ------------------------------------------------------------------------------


async def measure_join(hub: ConnectionSettings, members: dict[str, ConnectionSettings]) -> None:
    async def join(name: str, settings: ConnectionSettings) -> None:
        await join_cluster(JoinRequest(name, settings), hub, lambda _: None)

    started = time.perf_counter()
    await at_once(members, join)
    elapsed = time.perf_counter() - started
    print(f"joined {len(members)} clusters in {elapsed:.1f} s ({JOINS_AT_ONCE} at once)")


async def measure_first_look(fleet: Fleet) -> None:
    started = time.perf_counter()
    async with asyncio.timeout(PATIENCE):
        while not all(  # noqa: ASYNC110 - the hub gives no event to wait for
            ready_status(each) == "True" for each in await fleet.clusters()
        ):
            await asyncio.sleep(0.25)
    elapsed = time.perf_counter() - started
    print(f"all ready {elapsed:.1f} s after the controllers were started")


async def measure_steady(fleet: Fleet) -> None:
    """Let the fleet be for some periods: everybody is looked at, and nothing is written."""
    versions = {name_of(each): resource_version_of(each) for each in await fleet.clusters()}
    looks, before = looks_of(fleet.metrics_port), costs_of(fleet)
    await asyncio.sleep(PERIODS * FREQUENCY_SECONDS + LOOK_SECONDS)
    after, looks_after = costs_of(fleet), looks_of(fleet.metrics_port)
    missed = [name for name in fleet.members if looks_after[name] - looks[name] < PERIODS]
    if missed:
        raise NotInTime(f"not looked at {PERIODS} times in {PERIODS} periods: {missed}")
    held = {name_of(each): resource_version_of(each) for each in await fleet.clusters()}
    written = [name for name in fleet.members if held[name] != versions[name]]
    if written:
        raise NotInTime(f"written though nothing changed: {written}")
    total = sum(looks_after.values()) - sum(looks.values())
    print(f"{total} looks in {PERIODS} periods of {FREQUENCY_SECONDS:g} s, no write")
    print_costs(before, after, total)


async def measure_change(fleet: Fleet) -> None:
    """Change every member, and see how long it takes until every Cluster tells so."""
    for number in range(ROUNDS):
        counts = {name_of(each): node_count(each) for each in await fleet.clusters()}

        async def add_node(name: str, settings: ConnectionSettings, number: int = number) -> None:
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"{name}-late-{number}"},
            }
            async with open_client(settings) as member:
                await member.create(ResourcePath(manifests.NODES), node)

        await at_once(fleet.members, add_node)
        seconds = await until_told(fleet, counts)
        print(f"a change on every member is in every Cluster {seconds:.1f} s after the last one")


async def until_told(fleet: Fleet, counts: dict[str, int]) -> float:
    started = time.perf_counter()
    while True:
        elapsed = time.perf_counter() - started
        clusters = await fleet.clusters()
        late = [name_of(each) for each in clusters if node_count(each) == counts[name_of(each)]]
        if not late:
            return elapsed
        if elapsed > FREQUENCY_SECONDS + LOOK_SECONDS:
            raise NotInTime(f"{len(late)} Clusters are older than a period: {late}")
        await asyncio.sleep(0.25)


def node_count(cluster: Object) -> int:
    return int(find_at(cluster, "status", "nodeSummary", "totalNum") or 0)


@dataclass(frozen=True)
class Costs:
    """What everybody has cost up to a moment."""

    at: float
    used: dict[str, Usage]


def costs_of(fleet: Fleet) -> Costs:
    used = {name: usage_of(processes) for name, processes in fleet.processes.items()}
    return Costs(time.perf_counter(), used)


def print_costs(before: Costs, after: Costs, looks: int) -> None:
    elapsed = after.at - before.at
    for name, used in after.used.items():
        cpu = used.cpu_seconds - before.used[name].cpu_seconds
        print(
            f"  {name:12} {cpu / elapsed:6.1%} of one core  {cpu / looks * 1e3:6.2f} ms a look  "
            f"{used.resident_bytes / 1e6:7.0f} MB resident"
        )


# -- how it is run ---------------------------------------------------------------------------------


@asynccontextmanager
async def gathered_fleet(directory: Path, hub: ApiServer) -> AsyncGenerator[Fleet]:
    """Start the members, join them, start the controllers."""
    kubeconfig = directory / "hub" / "kubeconfig"
    hub_settings = read_kubeconfig([kubeconfig]).settings(cluster="hub")
    members = [f"member-{number:03}" for number in range(MEMBERS)]
    async with AsyncExitStack() as stack:
        processes = stack.enter_context(running_sims(directory, members))
        settings = {name: sim_settings(directory, name) for name in members}
        await measure_join(hub_settings, settings)
        client = await stack.enter_async_context(open_client(hub_settings))
        port = free_port()
        controllers = stack.enter_context(running_controllers(kubeconfig, port))
        taking_part = {
            "hub": hub.processes,
            "controllers": (controllers,),
            f"{MEMBERS} members": processes,
        }
        yield Fleet(client, settings, port, taking_part)


async def measure(directory: Path, hub: ApiServer) -> None:
    async with gathered_fleet(directory, hub) as fleet:
        await measure_first_look(fleet)
        # Taints go and tokens settle: what comes with joining is not what comes with watching.
        await asyncio.sleep(FREQUENCY_SECONDS)
        await measure_steady(fleet)
        await measure_change(fleet)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        hub = stack.enter_context(running_hub(directory / "hub"))
        try:
            event_loop.run(measure(directory, hub))
        except NotInTime as late:
            sys.exit(f"membership: {late}")


if __name__ == "__main__":
    main()
