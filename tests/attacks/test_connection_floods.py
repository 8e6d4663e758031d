"""Nobody connects, thousands of times: it costs a little memory, which comes back, and no user."""

import asyncio
import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from tests.component.serving.wire import (
    Counter,
    RawClient,
    Running,
    chunked,
    get,
    quick,
    request,
    running,
)

from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.kube import statuses
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
HALF = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer " + b"x" * 60_000
START_SECONDS = 60.0


@dataclass(frozen=True)
class HubProcess:
    """A hub as users start it, and what the system says of it."""

    pid: int
    port: int
    authority: Path

    def resident(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    async def client(self) -> RawClient:
        streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls())
        return RawClient(*streams)


@asynccontextmanager
async def hub_process(directory: Path) -> AsyncGenerator[HubProcess]:
    tokens = directory / "tokens.csv"
    tokens.write_text('root-token,root,0,"system:masters"\n')
    options = ("--port", "0", "--store", "memory", "--token-auth-file", str(tokens))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clusterspace", "hub", "--data-dir", str(directory), *options),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        kubeconfig = directory / "kubeconfig"
        async with asyncio.timeout(START_SECONDS):
            while not kubeconfig.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        found = re.search(r"https://127\.0\.0\.1:(\d+)", kubeconfig.read_text())
        assert found is not None
        yield HubProcess(process.pid, int(found[1]), directory / "pki" / "ca.crt")
    finally:
        process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[HubProcess]:
    async with hub_process(tmp_path_factory.mktemp("hub")) as running:
        yield running


@asynccontextmanager
async def flood(count: int, attack: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Have an attack go on in this many tasks for as long as the block lasts."""
    async with asyncio.TaskGroup() as group:
        attackers = [group.create_task(_swallow(attack)) for _ in range(count)]
        try:
            yield
        finally:
            for each in attackers:
                each.cancel()


async def _swallow(attack: Callable[[], Awaitable[None]]) -> None:
    try:
        await attack()
    except (OSError, asyncio.IncompleteReadError):
        return


def as_root(path: str = "/api/v1/namespaces") -> bytes:
    return get(path, "Authorization: Bearer root-token")


async def send_half(hub: HubProcess, tls: ssl.SSLContext) -> None:
    """Send half of a request's headers, and wait for whatever comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port, ssl=tls)
    try:
        writer.write(HALF)
        await reader.read()
    finally:
        writer.transport.abort()


async def settled(hub: HubProcess) -> int:
    """Return the memory of a hub once it has stopped growing."""
    before = 0
    while (now := hub.resident()) > before + MIB:
        before = now
        await asyncio.sleep(0.7)
    return now


async def test_bare_connections_cost_a_socket_each(hub: HubProcess) -> None:
    at_first = hub.resident()
    connected = [socket.create_connection(("127.0.0.1", hub.port)) for _ in range(1_500)]
    try:
        at_most = await settled(hub)
        another = await hub.client()
        answer = await another.ask(as_root())
        another.vanish()
    finally:
        for each in connected:
            each.close()

    assert at_most - at_first < 40 * MIB
    assert answer.status == 200


async def test_half_sent_requests_take_little_memory_and_leave_users_alone(
    hub: HubProcess,
) -> None:
    async with AsyncExitStack() as stack:
        user = await hub.client()
        stack.callback(user.vanish)
        assert (await user.ask(as_root())).status == 200
        at_first, tls = hub.resident(), hub.tls()
        await stack.enter_async_context(flood(400, lambda: send_half(hub, tls)))
        at_most = await settled(hub)

        assert at_most - at_first < 60 * MIB
        assert (await user.ask(as_root())).status == 200


@pytest.mark.slow
async def test_what_a_day_of_floods_took_comes_back(tmp_path: Path) -> None:
    async with hub_process(tmp_path) as hub:
        at_first, tls = hub.resident(), hub.tls()
        async with flood(2_000, lambda: send_half(hub, tls)):
            at_most = await settled(hub)
        for _ in range(50):
            connected = [socket.create_connection(("127.0.0.1", hub.port)) for _ in range(2_000)]
            at_most = max(at_most, hub.resident())
            for each in connected:
                each.close()
            await asyncio.sleep(0)
        print(f"\nat first {at_first // MIB} MiB, at most {at_most // MIB} MiB")
        async with asyncio.timeout(120):
            while hub.resident() > at_first * 1.2:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(1)
        print(f"afterwards {hub.resident() // MIB} MiB")

    assert at_most - at_first < 120 * MIB


# The same rules, one at a time, on a server with room for two strangers.


async def guarded(asked: Request) -> Response:
    """Trust who says `root`, as the hub's chain does; read what it sends after that only."""
    if asked.headers.get("authorization") != "Bearer root-token":
        raise statuses.unauthorized()
    asked.trust_connection()
    return Response(200, (), await asked.read_body(1024 * MIB))


@asynccontextmanager
async def small_server(counter: Counter) -> AsyncGenerator[Running]:
    limits = quick(newcomers=3, newcomers_per_address=2, newcomer_seconds=0.3)
    async with running(guarded, limits=limits, observer=counter) as run:
        yield run


async def test_who_logs_in_makes_room_for_the_next() -> None:
    async with small_server(Counter()) as run:
        clients = [await run.client() for _ in range(20)]
        answers = [await each.ask(as_root()) for each in clients]
        again = [await each.ask(as_root()) for each in clients]

    assert {each.status for each in answers + again} == {200}


async def test_strangers_who_dawdle_are_cut_when_others_wait() -> None:
    counter = Counter()
    async with small_server(counter) as run:
        known = await run.client()
        assert (await known.ask(as_root())).status == 200
        dawdlers = [await run.client() for _ in range(2)]
        for each in dawdlers:
            await each.send(HALF)
        late = await run.client()
        answer = await late.ask(as_root())

        assert answer.status == 200
        assert await dawdlers[0].rest() == b""
        assert (await known.ask(as_root())).status == 200
    assert counter.evicted == 1


async def test_strangers_stay_as_long_as_nobody_waits() -> None:
    counter = Counter()
    async with small_server(counter) as run:
        slow = await run.client()
        await slow.send(as_root()[:20])
        await asyncio.sleep(0.5)  # longer than a newcomer keeps its room when others wait
        await slow.send(as_root()[20:])
        answer = await slow.answer()

    assert (answer.status, counter.evicted) == (200, 0)


async def test_a_flood_from_one_address_does_not_reach_another() -> None:
    async with small_server(Counter()) as run:
        for _ in range(10):
            attacker = await run.client(address="127.0.0.2")
            await attacker.send(HALF)
        user = await run.client(address="127.0.0.3")
        answer = await user.ask(as_root())

    assert answer.status == 200


async def test_one_address_cannot_take_every_connection() -> None:
    counter = Counter()
    limits = quick(connections=10, connections_per_address=4)
    async with running(guarded, limits=limits, observer=counter) as run:
        for _ in range(4):
            client = await run.client(address="127.0.0.2")
            assert (await client.ask(as_root())).status == 200
        fifth = await run.client(address="127.0.0.2")
        refused = await fifth.rest()
        other = await run.client(address="127.0.0.3")
        answer = await other.ask(as_root())

    assert (refused, counter.rejected, answer.status) == (b"", 1, 200)


async def test_the_body_of_a_stranger_is_not_read() -> None:
    seen: list[int] = []

    async def refuse(asked: Request) -> Response:
        await asyncio.sleep(0.3)  # as long as it takes to ask somebody else who this is
        seen.append(asked._body.arrived)
        raise statuses.unauthorized()

    async with running(refuse, limits=quick()) as run:
        client = await run.client()
        client.writer.write(request("POST", "/", body=b"x" * (2 * MIB)))
        answer = await client.answer()
        streaming = await run.client()
        streaming.writer.write(chunked("/", *[b"x" * 65536] * 32))
        second = await streaming.answer()

    assert (answer.status, second.status) == (401, 401)
    assert max(seen) <= 256 * 1024  # what one read of the socket brought along with the headers


async def test_refused_strangers_get_their_answer_even_when_not_read_out() -> None:
    async def refuse(_asked: Request) -> Response:
        raise statuses.unauthorized()

    async with running(refuse, limits=quick(lingering_newcomers=1)) as run:
        clients = [await run.client() for _ in range(5)]
        for each in clients:
            each.writer.write(request("POST", "/", body=b"x" * MIB))
        answers = [await each.answer() for each in clients]
        await until(lambda: run.server.connection_count == 0)

    assert [each.status for each in answers] == [401] * 5
