"""What a thousand watches of every cluster cost, beside one client straight on one member.

python -m tests.bench watches

Hub, two members and the fleet API server are processes as users start them; the clients are in one
further process. All of them share the processors of this machine, so each time to the client comes
with that of a client which watches the member itself, in the same run: what is on top is ours.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.bench.api_servers import ApiServer, running_hub, usage_of
from tests.bench.bench_fleet import join_all, running_fleet, settings_in
from tests.bench.bench_hub import pod
from tests.component.hub_wire import HubClient, WatchStream, config_map, tls_of

from clusterspace.aio import event_loop
from clusterspace.fleet.gateway.merge.events import PlainStyle
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.fleet.gateway.routes import Naming, Subject

MEMBERS = ("east", "west")
CLIENTS = 1_000
OPENED_AT_ONCE = 16
ALONE_EVENTS = 200
EVENTS = 40
ROUNDS = 5
FLEETS = (1, 10, 100, 500)
MERGED = 2_000
PATH = "/api/v1/namespaces/default/configmaps"
PATIENCE = 120.0


@dataclass
class Audience:
    """Clients that watch, and when each of them heard of the last change."""

    name: str
    client: HubClient
    streams: list[WatchStream] = field(default_factory=list[WatchStream])
    heard: list[float] = field(default_factory=list[float])
    _all_heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def gather(self, count: int, group: asyncio.TaskGroup) -> None:
        """Open this many watches from the present on."""
        listed = await self.client.do("GET", PATH)
        query = f"resourceVersion={listed['metadata']['resourceVersion']}"
        gate = asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_one() -> None:
            async with gate:
                stream = await self.client.watch(PATH, query)
            self.streams.append(stream)
            group.create_task(self._listen(stream))

        async with asyncio.TaskGroup() as opening:
            for _ in range(count):
                opening.create_task(open_one())

    async def _listen(self, stream: WatchStream) -> None:
        reader = stream._connection.reader
        try:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
                self.heard.append(time.perf_counter())
                if len(self.heard) == len(self.streams):
                    self._all_heard.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            return

    def attend(self) -> None:
        self.heard.clear()
        self._all_heard.clear()

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._all_heard.wait()

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self.client.close()


@dataclass(frozen=True)
class Scene:
    """Everybody who takes part."""

    directory: Path
    members: dict[str, ApiServer]
    fleet: int

    def fleet_client(self) -> HubClient:
        home = self.directory / "fleet"
        host, _, port = settings_in(home, "fleet").server.removeprefix("https://").rpartition(":")
        return HubClient(host, int(port), tls_of(home))


async def change(writer: HubClient, number: int, audiences: Iterable[Audience]) -> float:
    """Change one object; return when that was asked for, once everybody has heard of it."""
    told = list(audiences)
    for audience in told:
        audience.attend()
    started = time.perf_counter()
    body = config_map("stage", data={"n": f"{started} {number}", "v": "x" * 800})
    await writer.do("PUT", f"{PATH}/stage", body)
    for audience in told:
        await audience.wait()
    return started


def show(what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    median = statistics.median(ordered)
    print(f"  {what:52} p50 {median * 1e3:8.2f} ms   p99 {p99 * 1e3:8.2f} ms")


async def measure_alone(scene: Scene, writer: HubClient) -> None:
    """Compare one client of the fleet with one client straight on the member."""
    straight = Audience("straight", scene.members["east"].client())
    through = Audience("through the fleet", scene.fleet_client())
    seconds: dict[str, list[float]] = {straight.name: [], through.name: []}
    async with asyncio.TaskGroup() as group:
        for audience in (straight, through):
            await audience.gather(1, group)
        cpu = usage_of([scene.fleet]).cpu_seconds
        for number in range(ALONE_EVENTS):
            started = await change(writer, number, (straight, through))
            for audience in (straight, through):
                seconds[audience.name].append(audience.heard[0] - started)
        cpu = usage_of([scene.fleet]).cpu_seconds - cpu
        straight.close()
        through.close()
    print(f"one client, {ALONE_EVENTS} changes, from asking for the change to hearing of it:")
    for name, taken in seconds.items():
        show(name, taken)
    print(f"  {'processor time of the fleet':52} {cpu / ALONE_EVENTS * 1e6:6.0f} us per event")


@dataclass(frozen=True)
class Cost:
    """What the server of a crowd pays for it."""

    idle_bytes: float
    """For each client that watches and hears nothing."""
    event_seconds: float
    """Processor time for each event and client."""


async def measure_crowd(scene: Scene, writer: HubClient) -> None:
    """Let a thousand clients watch; see what they hold, and what each event costs."""
    east = scene.members["east"]
    print(f"{CLIENTS:,} clients straight on one member:")
    straight = await _crowd_cost(scene, writer, east.client(), east.processes)
    print(f"{CLIENTS:,} clients, each of whom sees the hub and {len(MEMBERS)} members:")
    through = await _crowd_cost(scene, writer, scene.fleet_client(), (scene.fleet,))
    times = through.event_seconds / straight.event_seconds
    print(f"  {'processor time, against the member itself':52} {times:6.1f} x")


async def _crowd_cost(
    scene: Scene, writer: HubClient, client: HubClient, processes: Sequence[int]
) -> Cost:
    alone = Audience("straight", scene.members["east"].client())
    crowd = Audience("crowd", client)
    before = usage_of(processes)
    async with asyncio.TaskGroup() as group:
        await alone.gather(1, group)
        started = time.perf_counter()
        await crowd.gather(CLIENTS, group)
        opened = time.perf_counter() - started
        await asyncio.sleep(2)
        idle = usage_of(processes)
        grown = (idle.resident_bytes - before.resident_bytes) / CLIENTS
        opening = (idle.cpu_seconds - before.cpu_seconds) / CLIENTS
        print(f"  {'opened':52} {opened:6.1f} s, {opening * 1e3:.1f} ms of the server's each")
        print(f"  {'memory of the server per idle client':52} {grown / 1024:6.0f} KiB")
        await change(writer, -1, (alone, crowd))
        cpu = usage_of(processes).cpu_seconds
        one: list[float] = []
        all_of_them: list[float] = []
        for number in range(EVENTS):
            started = await change(writer, number, (alone, crowd))
            one.append(alone.heard[0] - started)
            all_of_them += [each - started for each in crowd.heard]
        each = (usage_of(processes).cpu_seconds - cpu) / EVENTS / CLIENTS
        show("straight on the member, one client beside them", one)
        show("each client and event", all_of_them)
        print(f"  {'processor time of the server':52} {each * 1e6:6.0f} us per event and client")
        alone.close()
        crowd.close()
    return Cost(grown, each)


def measure_vectors() -> None:
    """Merge events of fleets of every size: what the vector weighs, and what stamping costs."""
    line = msgspec.json.encode({"type": "MODIFIED", "object": _watched_pod()})
    print(
        f"the vector, and what reading, renaming, stamping and writing {len(line):,} bytes costs:"
    )
    for count in FLEETS:
        merger = WatchMerger(PlainStyle(Subject("", "v1", "pods")))
        for number in range(count):
            cluster = Naming(f"member-{number}", qualifies_names=True)
            merger.follow(cluster, str(10**9 + number))
        taken: list[float] = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(MERGED):
                merger.feed("member-0", line)
            taken.append((time.perf_counter() - started) / MERGED)
        (event,) = merger.feed("member-0", line)
        vector = msgspec.json.decode(event)["object"]["metadata"]["resourceVersion"]
        print(
            f"  {count:4} clusters: {len(vector):5} bytes, {statistics.median(taken) * 1e6:6.1f} us"
            f" per event, {len(event):,} bytes"
        )


def _watched_pod() -> dict[str, object]:
    made = pod(1)
    metadata = {
        **made["metadata"],
        "namespace": "shop",
        "uid": "1",
        "resourceVersion": "1000009999",
    }
    return {**made, "metadata": metadata}


async def measure(scene: Scene) -> None:
    writer = scene.members["east"].client()
    await writer.do("POST", PATH, config_map("stage"))
    await measure_alone(scene, writer)
    await measure_crowd(scene, writer)
    writer.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        stack.enter_context(running_hub(directory / "hub"))
        members = {each: stack.enter_context(running_hub(directory / each)) for each in MEMBERS}
        asyncio.run(join_all(directory, directory / "hub", MEMBERS))
        kubeconfig = directory / "hub" / "kubeconfig"
        fleet = stack.enter_context(running_fleet(directory / "fleet", kubeconfig))
        event_loop.run(measure(Scene(directory, members, fleet)))
    measure_vectors()


if __name__ == "__main__":
    main()
