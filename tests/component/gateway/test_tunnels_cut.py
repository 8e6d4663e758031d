"""Tunnels that are cut under a shell, a log that is followed and a watch, and that heal."""

import asyncio
import gc
import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.component.gateway.fleet_site import (
    PULL,
    ROOT,
    Site,
    fleet_site,
    pulled,
    until_reached,
)
from tests.component.gateway.stream_clients import V5, WEB_SOCKET, ask
from tests.component.gateway.watch_streams import watching
from tests.component.sim_clients import WebSocketClient
from tests.conformance.simulated_nodes import simulated_nodes
from tests.flows.members import KUBERNETES, SIM

from clusterspace.aio.multiplexer import StreamTransport
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.errors import ClusterError
from clusterspace.kube.objects import find_at
from clusterspace.testing.builders import CONFIG_MAPS, PODS, config_map, pod
from clusterspace.testing.hubs import client_for_test, real_server_for_test
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import until

POD = "/api/v1/namespaces/default/pods/web.clusterspace.west"
MAPS = "/api/v1/namespaces/default/configmaps"
INITIAL = (
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
)
PATIENCE = 60.0


def cut(site: Site, cluster: str) -> None:
    """Cut the connection of a cluster's agent, as if a cable were."""
    tunnel = site.running.fleet.directory.tunnels._open[cluster]
    tunnel._carrier._connection.abort()  # pyright: ignore[reportAttributeAccessIssue]


async def end_of_log(site: Site, is_open: asyncio.Event) -> str:
    """Follow a log, and say how it ended."""
    request = ApiRequest("GET", f"{POD}/log?follow=true")
    while True:
        try:
            async with site.connection(ROOT).stream(request) as answer:
                if answer.status == 200:
                    is_open.set()
                async for _ in answer.chunks():
                    pass
        except ClusterError:
            return "cut"
        if is_open.is_set():
            return "ended"
        assert answer.status in (503, 504)
        await asyncio.sleep(0.2)


async def open_shell(site: Site) -> WebSocketClient:
    """Run `cat`, as soon as the member is taken to be well again: somebody looks in a second."""
    target = f"{POD}/exec?stdin=true&stdout=true&stderr=true&command=cat"
    async with asyncio.timeout(PATIENCE):
        while True:
            protocol = f"Sec-WebSocket-Protocol: {V5}"
            status, connection = await ask(site, "GET", target, *WEB_SOCKET, protocol)
            if status == 101:
                return WebSocketClient(connection)
            assert status in (503, 504), await connection.reader.read(10_000)
            connection.writer.close()
            await asyncio.sleep(0.2)


def count_open() -> tuple[int, int, int]:
    """Return how many tasks, file descriptors and streams there are."""
    gc.collect()
    streams = sum(isinstance(each, StreamTransport) for each in gc.get_objects())
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), streams


@asynccontextmanager
async def fleet_of(kind: str, directory: Path) -> AsyncGenerator[Site]:
    """Run a fleet of `west`, behind its agent: a simulated member, or a kube-apiserver."""
    async with AsyncExitStack() as stack:
        if kind == SIM:
            sims = fleet_site(directory, members=(), sims=("west",), mode=PULL)
            yield await stack.enter_async_context(sims)
            return
        (directory / "west").mkdir()
        flag = "--kubelet-preferred-address-types=InternalIP"
        server = real_server_for_test(directory / "west", flag, name="west")
        real = await stack.enter_async_context(server)
        client = await stack.enter_async_context(client_for_test(real.settings))
        await stack.enter_async_context(simulated_nodes(client, "west", 1))
        site = await stack.enter_async_context(fleet_site(directory, members=(), mode=PULL))
        site.members["west"] = member = Side(real.settings, client)
        await stack.enter_async_context(pulled(site, "west", member))
        yield site


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        (SIM, 3),
        pytest.param(SIM, 100, marks=pytest.mark.slow),
        pytest.param(KUBERNETES, 100, marks=pytest.mark.slow),
    ],
)
async def test_what_a_cut_tunnel_carried_ends_clearly_and_watches_go_on(
    tmp_path: Path, kind: str, rounds: int
):
    async with fleet_of(kind, tmp_path) as site:
        west = site.members["west"].client
        await west.create(ResourcePath(PODS, "default"), pod("web"))

        async def is_running() -> bool:
            found = await west.get(ResourcePath(PODS, "default", "web"))
            return find_at(found, "status", "phase") == "Running"

        await until(is_running)
        connection = site.connection(ROOT)
        first: tuple[int, int, int] | None = None
        async with watching(connection, f"{MAPS}?{INITIAL}") as found:
            await found.until(lambda each: bool(each.ends))
            for number in range(rounds):
                shell = await open_shell(site)
                await shell.send(b"\x00hello")
                while (heard := await shell.receive()) == b"\x01":
                    pass  # kube-apiserver opens each channel with a message of nothing
                assert heard == b"\x01hello"
                is_open = asyncio.Event()
                log = asyncio.create_task(end_of_log(site, is_open))
                async with asyncio.timeout(PATIENCE):
                    await is_open.wait()

                cut(site, "west")

                async with asyncio.timeout(PATIENCE):
                    assert await log == "cut"
                    said: dict[int, bytes] = {}
                    with suppress(ConnectionError, asyncio.IncompleteReadError):
                        said = await shell.rest()
                if 3 in said:
                    assert json.loads(said[3])["status"] == "Failure"
                with suppress(OSError):
                    await shell.close()
                await until_reached(site, "west")
                name = f"round-{number}"
                await west.create(ResourcePath(CONFIG_MAPS, "default"), config_map(name, {}))
                await found.until_told(("ADDED", f"{name}.clusterspace.west"))
                if number == rounds // 2:
                    first = count_open()
            assert not found.is_over
            told = [each for each in found.told if each[1].startswith("round-")]
            # Each once, in order, and nothing was taken for deleted while nobody could look.
            assert told == [("ADDED", f"round-{each}.clusterspace.west") for each in range(rounds)]
            assert first is not None
            tasks, files, streams = count_open()
            assert tasks <= first[0] + 10
            assert files <= first[1] + 10
            assert streams <= first[2] + 10
