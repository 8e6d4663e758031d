"""What lists, watches, reads and writes cost the hub; beside kube-apiserver where it is found.

python -m tests.bench hub        (TMPDIR says on which disk)

All figures come from one run. Rounds take the servers in turn, and the median counts: a neighbour
on the machine slows everybody alike. CPU time is that of the server's processes alone, for
kube-apiserver with its etcd; every server writes to disk with fsync.
"""

import asyncio
import http.client
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tests.bench.api_servers import ApiServer, find_kubernetes, running_hub, running_kubernetes
from tests.component.hub_wire import ADMIN, HubClient, config_map, request_bytes
from tests.component.serving.wire import RawClient

from clusterspace.aio import event_loop

PODS = 5_000
POD_BYTES = 4_000
WATCHERS = 1_000
EVENTS = 10
SECONDS = 1.0
ROUNDS = 3
DECODING = "decoding hub"
PODS_PATH = "/api/v1/namespaces/default/pods"
MAPS_PATH = "/api/v1/namespaces/default/configmaps"


@dataclass
class Figures:
    """Every measurement, by what was measured and whom it was measured on."""

    taken: dict[tuple[str, str], list[float]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], list[float]](list)
    )

    def note(self, what: str, server: ApiServer, value: float) -> None:
        self.taken[what, server.name].append(value)

    def median(self, what: str, server: str) -> float | None:
        found = self.taken.get((what, server))
        return statistics.median(found) if found else None

    def rows(self) -> list[str]:
        return list(dict.fromkeys(what for what, _ in self.taken))


def pod(number: int) -> dict[str, Any]:
    """Return a pod that is answered in about 4 KB, of which metadata is two fifths as in life."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/service:1.2.3",
        "args": ["x" * (POD_BYTES - 3_150)],
        "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(10)],
        "ports": [{"containerPort": 8080}],
    }
    labels = {"app": f"app-{number % 50}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "labels": labels},
        "spec": {"containers": [container]},
    }


# -- what is measured ------------------------------------------------------------------------------


async def fill(server: ApiServer, figures: Figures) -> None:
    """Create the pods, and note what they cost."""
    numbers, before = iter(range(PODS)), server.resident_bytes

    async def create() -> None:
        client = server.client()
        for number in numbers:
            await client.do("POST", PODS_PATH, pod(number))
        client.close()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(create())
    figures.note("pods created/s, 32 clients", server, PODS / (time.perf_counter() - started))
    grown = (server.resident_bytes - before) / PODS / 1024
    figures.note(f"memory per pod of {POD_BYTES // 1000} KB (KiB)", server, grown)


async def list_pods(server: ApiServer, figures: Figures) -> None:
    cpu = server.cpu_seconds
    size, elapsed = await asyncio.to_thread(_read_lists, server)
    cpu = server.cpu_seconds - cpu
    figures.note(f"LIST of {PODS:,} pods, MB/s over TLS", server, size / 1e6 / elapsed)
    figures.note(f"LIST of {PODS:,} pods, MB per CPU second", server, size / 1e6 / max(cpu, 0.01))


def _read_lists(server: ApiServer, rounds: int = 5) -> tuple[int, float]:
    """Return the bytes of some lists and the seconds they took, read with as little as we can."""
    connection = http.client.HTTPSConnection(server.host, server.port, context=server.tls)
    room, size = memoryview(bytearray(2**20)), 0
    started = time.perf_counter()
    for _ in range(rounds):
        connection.request("GET", PODS_PATH, headers={"Authorization": f"Bearer {ADMIN}"})
        answer = connection.getresponse()
        while taken := answer.readinto(room):
            size += taken
    elapsed = time.perf_counter() - started
    connection.close()
    return size, elapsed


async def ask_again_and_again(
    server: ApiServer, clients: int, make_request: Callable[[int], bytes]
) -> tuple[float, float]:
    """Return answers per second and CPU microseconds per answer."""
    connections = [await server.client().connect() for _ in range(clients)]
    cpu, started = server.cpu_seconds, time.perf_counter()
    answered = 0

    async def ask(connection: RawClient) -> None:
        nonlocal answered
        while time.perf_counter() - started < SECONDS:
            answered += 1
            status = await quick_ask(connection, make_request(answered))
            assert status < 300, status

    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(ask(connection))
    elapsed, cpu = time.perf_counter() - started, server.cpu_seconds - cpu
    for connection in connections:
        connection.vanish()
    return answered / elapsed, cpu / answered * 1e6


async def quick_ask(connection: RawClient, raw: bytes) -> int:
    """Ask and skip the answer, by its length or its chunks, so that the client costs little."""
    connection.writer.write(raw)
    head = await connection.reader.readuntil(b"\r\n\r\n")
    place = head.find(b"Content-Length:")
    if place > 0:
        await connection.reader.readexactly(int(head[place + 15 : head.index(b"\r", place)]))
    else:
        while size := int(await connection.reader.readuntil(b"\r\n"), 16):
            await connection.reader.readexactly(size + 2)
        await connection.reader.readexactly(2)
    return int(head[9:12])


async def get_pods(server: ApiServer, figures: Figures) -> None:
    for clients in (1, 32):
        rate, cpu = await ask_again_and_again(
            server, clients, lambda n: request_bytes("GET", f"{PODS_PATH}/pod-{n % PODS:05}")
        )
        figures.note(f"GET/s, {clients} clients", server, rate)
        if clients > 1:
            figures.note("GET, CPU us", server, cpu)


async def create_maps(server: ApiServer, figures: Figures) -> None:
    for clients in (1, 32):
        made = time.monotonic_ns()

        def create(number: int, made: int = made) -> bytes:
            body = config_map(f"m-{made}-{number}", data={"v": "x" * 800})
            return request_bytes("POST", MAPS_PATH, body=msgspec.json.encode(body))

        rate, cpu = await ask_again_and_again(server, clients, create)
        figures.note(f"CREATE/s, {clients} clients", server, rate)
        if clients > 1:
            figures.note("CREATE, CPU us", server, cpu)


class Audience:
    """A thousand watchers of one server."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._client: HubClient = server.client()
        self._heard = 0
        self._all_heard = asyncio.Event()

    async def gather(self, group: asyncio.TaskGroup) -> None:
        path = "/api/v1/namespaces/kube-public/configmaps"
        await self._client.do("POST", path, config_map("stage"))
        listed = await self._client.do("GET", path)
        query = f"resourceVersion={listed['metadata']['resourceVersion']}"
        for _ in range(WATCHERS):
            watch = await self._client.watch(path, query)
            group.create_task(self._listen(watch._connection))

    async def _listen(self, connection: RawClient) -> None:
        """Count events, each of which comes as one chunk, until the connection is cut."""
        try:
            while size := int(await connection.reader.readuntil(b"\r\n"), 16):
                await connection.reader.readexactly(size + 2)
                self._heard += 1
                if self._heard == WATCHERS:
                    self._all_heard.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            return

    async def perform(self, figures: Figures) -> None:
        """Change one object a few times; note what telling everybody costs."""
        path = "/api/v1/namespaces/kube-public/configmaps/stage"
        cpu, started = self._server.cpu_seconds, time.perf_counter()
        for number in range(EVENTS):
            self._heard = 0
            self._all_heard.clear()
            changed = config_map("stage", data={"n": f"{started} {number}", "v": "x" * 800})
            await self._client.do("PUT", path, changed)
            await self._all_heard.wait()
        elapsed, cpu = time.perf_counter() - started, self._server.cpu_seconds - cpu
        told = EVENTS * WATCHERS
        figures.note("watch, CPU us per event and watcher", self._server, cpu / told * 1e6)
        label = f"one change to {WATCHERS:,} watchers, ms until all have it"
        figures.note(label, self._server, elapsed / EVENTS * 1e3)

    def close(self) -> None:
        self._client.close()


# -- how it is run ---------------------------------------------------------------------------------


async def measure(servers: list[ApiServer], directory: Path) -> Figures:
    figures = Figures()
    for server in servers:
        await fill(server, figures)
    measures: list[Callable[[ApiServer, Figures], Awaitable[None]]] = [get_pods, create_maps]
    with ExitStack() as stack:
        copy = directory / DECODING
        copy.mkdir()
        for path in (directory / "hub").glob("store.db*"):
            shutil.copy(path, copy / path.name)
        command = ("tests.bench.decoding_hub", "hub")
        decoding = stack.enter_context(running_hub(copy, DECODING, *command))
        for _ in range(ROUNDS):
            for server in [*servers, decoding]:
                await list_pods(server, figures)
    for _ in range(ROUNDS):
        for take in measures:
            for server in servers:
                await take(server, figures)
    await measure_watches(servers, figures)
    return figures


async def measure_watches(servers: list[ApiServer], figures: Figures) -> None:
    audiences = [Audience(server) for server in servers]
    async with asyncio.TaskGroup() as group:
        for audience in audiences:
            await audience.gather(group)
        for _ in range(ROUNDS):
            for audience in audiences:
                await audience.perform(figures)
        for audience in audiences:
            audience.close()


def print_figures(figures: Figures, servers: list[ApiServer]) -> None:
    names = [*[server.name for server in servers], DECODING]
    head = "".join(f"{name:>17}" for name in names)
    print(f"{'median of ' + str(ROUNDS) + ' rounds':52}{head}   hub against the others")
    for what in figures.rows():
        values = [figures.median(what, name) for name in names]
        cells = "".join(f"{'' if each is None else f'{each:,.1f}':>17}" for each in values)
        ours, *others = values
        ratios = [f"{ours / each:.2f}x" for each in others if ours is not None and each]
        print(f"{what:52}{cells}   {', '.join(ratios)}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        servers = [stack.enter_context(running_hub(directory / "hub"))]
        assets = find_kubernetes()
        if assets is None:
            print("kube-apiserver and etcd not found: set KUBEBUILDER_ASSETS to compare")
        else:
            beside = directory / "kubernetes"
            beside.mkdir()
            servers.append(stack.enter_context(running_kubernetes(beside, assets)))
        print_figures(event_loop.run(measure(servers, directory)), servers)


if __name__ == "__main__":
    main()
