"""One address before several servers: clients get to one that is ready, whatever the others do."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.listener import HttpServer, server_context
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.roots.installation import write_pair, write_private
from clusterspace.roots.local.load_balancer import LoadBalancer
from clusterspace.testing.hubs import free_port
from clusterspace.testing.steps import stop, until


class Server:
    """An API server as far as it matters: it says who it is, and whether it is ready."""

    def __init__(self, name: str, tls: ssl.SSLContext) -> None:
        self.name = name
        self.is_ready = True
        self.is_hung = False
        self.http = HttpServer(self._answer, tls=tls)
        self.port = free_port()

    async def _answer(self, request: Request) -> Response:
        if self.is_hung or request.path == "/slow":
            await asyncio.Event().wait()
        if request.path == "/readyz":
            return Response(200 if self.is_ready else 503, (), b"")
        return Response(200, (), self.name.encode())

    async def start(self) -> None:
        await self.http.listen("127.0.0.1", self.port)


class Site:
    """Servers, a load balancer before them, and clients that trust them."""

    def __init__(self, directory: Path) -> None:
        now = SystemClock().now()
        authority = Authority.create("site", now)
        certificate, key = directory / "server.crt", directory / "server.key"
        write_pair(authority.issue_server(("127.0.0.1",), now), certificate, key)
        write_private(directory / "ca.crt", authority.pair.certificate)
        self._server_tls = server_context(certificate, key)
        self._client_tls = ssl.create_default_context(cafile=directory / "ca.crt")
        self.port = free_port()
        self.servers: list[Server] = []

    def server(self, name: str) -> Server:
        self.servers.append(Server(name, self._server_tls))
        return self.servers[-1]

    @asynccontextmanager
    async def balanced(self, **ports: int) -> AsyncGenerator[LoadBalancer]:
        balancer = LoadBalancer(self.port, ports, SystemClock(), patience=0.5)
        running = asyncio.create_task(balancer.run())
        try:
            yield balancer
        finally:
            await stop(running)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self._client_tls)

    async def listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    async def who(self) -> str:
        """Ask who answers, on a connection of its own."""
        reader, writer = await self.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.transport.abort()
        return answer.partition(b"\r\n\r\n")[2].decode()


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found = Site(tmp_path)
    yield found
    for each in found.servers:
        await each.http.drain(0.0)


async def test_clients_get_to_servers_that_are_ready_in_turn(site: Site) -> None:
    one, two = site.server("one"), site.server("two")
    await one.start()
    await two.start()
    async with site.balanced(one=one.port, two=two.port) as balancer:
        await until(lambda: len(balancer.ready) == 2)
        assert {await site.who() for _ in range(4)} == {"one", "two"}

        two.is_ready = False
        await until(lambda: balancer.ready == ("one",))
        assert {await site.who() for _ in range(4)} == {"one"}


async def test_a_server_that_died_a_moment_ago_costs_nobody_a_request(site: Site) -> None:
    one, two = site.server("one"), site.server("two")
    await one.start()
    await two.start()
    async with site.balanced(one=one.port, two=two.port) as balancer:
        await until(lambda: len(balancer.ready) == 2)
        await two.http.drain(0.1)
        assert {await site.who() for _ in range(6)} == {"one"}


async def test_a_frozen_server_is_passed_over(site: Site) -> None:
    """It takes connections, for the system does that, and says nothing on any of them."""
    one = site.server("one")
    two = site.server("two")
    await one.start()
    await two.start()
    async with site.balanced(one=one.port, two=two.port) as balancer:
        await until(lambda: len(balancer.ready) == 2)
        await two.http.drain(0.1)
        with socket.create_server(("127.0.0.1", two.port), backlog=100):
            assert {await site.who() for _ in range(4)} == {"one"}


async def test_connections_of_a_server_that_has_stopped_answering_are_cut(site: Site) -> None:
    one, two = site.server("one"), site.server("two")
    await two.start()
    async with site.balanced(one=one.port, two=two.port) as balancer:
        await until(lambda: balancer.ready == ("two",))
        reader, writer = await site.connect()
        writer.write(b"GET /slow HTTP/1.1\r\nHost: site\r\n\r\n")
        await one.start()
        await until(lambda: "one" in balancer.ready)
        two.is_hung = True
        # The client is told, and would ask again: that goes to the other one.
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        assert await site.who() == "one"
        writer.transport.abort()


async def test_who_comes_while_no_server_is_there_waits_for_the_first(site: Site) -> None:
    one = site.server("one")
    async with site.balanced(one=one.port) as balancer:
        await until(site.listens)
        asking = asyncio.create_task(site.who())
        await asyncio.sleep(0)
        assert balancer.ready == ()
        await one.start()
        async with asyncio.timeout(30):
            assert await asking == "one"
