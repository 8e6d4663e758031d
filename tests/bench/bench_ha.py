"""What a hub on etcd costs, beside kube-apiserver on the same etcd, and beside a hub on SQLite.

python -m tests.bench ha        (TMPDIR says on which disk)

One etcd with every fsync, two servers on it under prefixes of their own, all figures from one run:
rounds take the servers in turn, and the median counts. A client that is alone waits for nothing but
the disk, whose fsyncs take one millisecond now and ten the next second: it asks the servers in
turn, one request each. The churn is k0smotron's shape: writers
create, update and delete as fast as they can while watchers follow all of it.
"""

import asyncio
import re
import ssl
import statistics
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec
from tests.bench import bench_hub
from tests.bench.api_servers import (
    ApiServer,
    apiserver_flags,
    find_kubernetes,
    free_port,
    running_hub,
    running_program,
    wait_ready,
)
from tests.bench.bench_hub import Figures, ask_again_and_again, get_pods, list_pods
from tests.component.hub_wire import config_map, request_bytes
from tests.component.serving.wire import RawClient

from clusterspace.aio import event_loop

ROUNDS = 3
CLIENTS = (32, 64)
IN_TURN = 300
WATCHERS = 200
MAPS_PATH = "/api/v1/namespaces/default/configmaps"

_MARK = re.compile(rb'"mark":"([^"]+)"')

CHURN_WRITERS = 20
CHURN_WATCHERS = 20
CHURN_SECONDS = 10.0


def create_map(made: int, number: int) -> bytes:
    body = config_map(f"m-{made}-{number}", data={"v": "x" * 800})
    return request_bytes("POST", MAPS_PATH, body=msgspec.json.encode(body))


async def write_in_turn(servers: list[ApiServer], figures: Figures) -> None:
    connections = [await server.client().connect() for server in servers]
    took, made = [0.0] * len(servers), time.monotonic_ns()
    for number in range(IN_TURN):
        for place, connection in enumerate(connections):
            started = time.perf_counter()
            status = await bench_hub.quick_ask(connection, create_map(made, number))
            took[place] += time.perf_counter() - started
            assert status < 300, status
    for server, connection, seconds in zip(servers, connections, took, strict=True):
        figures.note("CREATE/s, 1 client", server, IN_TURN / seconds)
        connection.vanish()


async def write_maps(server: ApiServer, figures: Figures) -> None:
    for clients in CLIENTS:
        create = partial(create_map, time.monotonic_ns())
        rate, cpu = await ask_again_and_again(server, clients, create)
        figures.note(f"CREATE/s, {clients} clients", server, rate)
        figures.note(f"CREATE, CPU us, {clients} clients", server, cpu)


class Churn:
    """Writers that change everything, and watchers that follow all of it."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._sent: dict[str, float] = {}
        self._lags: list[float] = []
        self._delivered = [0] * CHURN_WATCHERS
        self._all_heard = asyncio.Event()
        self.errors = 0
        self.written = 0

    async def run(self, figures: Figures) -> None:
        client = self._server.client()
        path = "/api/v1/namespaces/kube-public/configmaps"
        listed = await client.do("GET", path)
        query = f"resourceVersion={listed['metadata']['resourceVersion']}"
        end = time.perf_counter() + CHURN_SECONDS
        try:
            async with asyncio.TaskGroup() as group:
                listeners = [
                    group.create_task(
                        self._listen(place, (await client.watch(path, query))._connection)
                    )
                    for place in range(CHURN_WATCHERS)
                ]
                writers = [
                    group.create_task(self._write(number, path, end))
                    for number in range(CHURN_WRITERS)
                ]
                await asyncio.wait(writers)
                self._all_heard.clear()
                if min(self._delivered) < self.written:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(30):
                            await self._all_heard.wait()
                client.close()
                for each in listeners:
                    each.cancel()
        finally:
            client.close()
        figures.note("churn, writes/s", self._server, self.written / CHURN_SECONDS)
        figures.note("churn, write errors", self._server, self.errors)
        told = sum(self._delivered) / (self.written * CHURN_WATCHERS) * 100
        figures.note("churn, % of events delivered", self._server, told)
        p99 = statistics.quantiles(self._lags, n=100)[98] if len(self._lags) > 100 else 0.0
        figures.note("churn, p99 lag ms", self._server, p99 * 1e3)

    async def _write(self, number: int, path: str, end: float) -> None:
        connection = await self._server.client().connect()
        step = 0
        try:
            while time.perf_counter() < end:
                step += 1
                name = f"c-{number}-{time.monotonic_ns()}"
                for verb in ("POST", "PUT", "DELETE"):
                    mark = f"{name}-{verb}"
                    body = config_map(name, data={"mark": mark, "v": "x" * 900})
                    target = path if verb == "POST" else f"{path}/{name}"
                    content = b"" if verb == "DELETE" else msgspec.json.encode(body)
                    if verb != "DELETE":
                        self._sent[mark] = time.perf_counter()
                    status = await bench_hub.quick_ask(
                        connection, request_bytes(verb, target, body=content)
                    )
                    if status >= 300:
                        self.errors += 1
                        break
                    self.written += 1
        finally:
            connection.vanish()

    async def _listen(self, place: int, connection: RawClient) -> None:
        rest = b""
        try:
            while size := int(await connection.reader.readuntil(b"\r\n"), 16):
                chunk = await connection.reader.readexactly(size + 2)
                *lines, rest = (rest + chunk[:-2]).split(b"\n")
                self._delivered[place] += len(lines)
                for line in lines if place == 0 else ():
                    found = _MARK.search(line)
                    if found and b'"DELETED"' not in line[:20]:
                        sent = self._sent[found[1].decode()]
                        self._lags.append(time.perf_counter() - sent)
                if min(self._delivered) >= self.written:
                    self._all_heard.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            return


async def measure(servers: list[ApiServer]) -> Figures:
    figures = Figures()
    for server in servers:
        await bench_hub.fill(server, figures)
    for _ in range(ROUNDS):
        for server in servers:
            await list_pods(server, figures)
            await get_pods(server, figures)
            await write_maps(server, figures)
        await write_in_turn(servers, figures)
    await bench_hub.measure_watches(servers, figures)
    for _ in range(ROUNDS):
        for server in servers:
            await Churn(server).run(figures)
    return figures


def main() -> None:
    bench_hub.PODS, bench_hub.WATCHERS = 1_000, WATCHERS
    assets = find_kubernetes()
    if assets is None:
        raise SystemExit("kube-apiserver and etcd not found: set KUBEBUILDER_ASSETS")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = [
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]
        stack.enter_context(running_program(assets / "etcd", etcd, directory))
        flags = ("clusterspace", "hub", "--etcd-servers", url, "--etcd-prefix", "/clusterspace")
        ours = stack.enter_context(running_hub(directory / "hub", "hub on etcd", *flags))
        port = free_port()
        beside = directory / "kubernetes"
        beside.mkdir()
        server = stack.enter_context(
            running_program(assets / "kube-apiserver", apiserver_flags(beside, url, port), beside)
        )
        tls = ssl._create_unverified_context()  # its certificate is its own
        wait_ready(port, tls)
        theirs = ApiServer("kube-apiserver", "127.0.0.1", port, tls, (server.pid,))
        alone = stack.enter_context(running_hub(directory / "alone", "hub on SQLite"))
        servers = [ours, theirs, alone]
        bench_hub.print_figures(event_loop.run(measure(servers)), servers)


if __name__ == "__main__":
    main()
