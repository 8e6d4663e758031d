"""A whole fleet as its users run it: a hub, simulated members, and the fleet API server."""

import asyncio
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.conformance.hubs import (
    ALLOW_LOOPBACK,
    PATIENCE,
    RunningHub,
    running_hub,
    running_server,
    tokens_in,
)

from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import ConnectionSettings
from clusterspace.fleet.membership.pull_join import RegisterRequest
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.clients import open_client
from clusterspace.roots.kubeconfigs import merged_kubeconfig
from clusterspace.roots.membership import join_cluster, register_cluster
from clusterspace.roots.tokens import create_token
from clusterspace.testing.programs import Program

MEMBERS = ("east", "west")


@dataclass(frozen=True)
class RunningFleet:
    """The way in to all clusters, and the way to each alone."""

    server: RunningHub
    hub: RunningHub
    members: dict[str, RunningHub]

    def cluster(self, name: str) -> RunningHub:
        """Return the way to one cluster that does not lead through the fleet API server."""
        return self.members.get(name, self.hub)


@contextmanager
def running_fleet(
    directory: Path, *options: str, pull: tuple[str, ...] = ()
) -> Generator[RunningFleet]:
    """Run a fleet of processes for as long as the block lasts; `pull` names those with agents."""
    with ExitStack() as stack:
        starting = [running_hub(_made(directory / "hub"))]
        starting += [_running_sim(_made(directory / name), name) for name in MEMBERS]
        with (
            ThreadPoolExecutor() as pool
        ):  # each takes seconds to start, and none waits for another
            hub, *sims = pool.map(lambda each: stack.enter_context(each), starting)
        members: dict[str, RunningHub] = dict(zip(MEMBERS, sims, strict=True))
        for name, member in members.items():
            if name in pull:
                stack.enter_context(_registered(hub, member, name))
            else:
                join(hub, member, name)
        identity = ("--hub-kubeconfig", str(hub.kubeconfig.parent / "parts/fleet/kubeconfig"))
        given = (*identity, *ALLOW_LOOPBACK, "--impersonate-masters", "--port", "0")
        arguments = ("fleet", *given, *options)
        server = stack.enter_context(running_server(_made(directory / "fleet"), *arguments))
        people = directory / "kubeconfig"
        parts = [each.kubeconfig.read_bytes() for each in (server, hub)]
        people.write_bytes(merged_kubeconfig(parts))
        running = RunningFleet(replace(server, kubeconfig=people), hub, members)
        for name in pull:
            wait_until_reached(running, name)
        yield running


@contextmanager
def _registered(hub: RunningHub, member: RunningHub, name: str) -> Generator[None]:
    """Register a member, and run its agent for as long as the block lasts."""
    token = asyncio.run(create_token(name, settings_of(hub, "hub")))
    request = RegisterRequest(name, token.server, token.pin, token.token)
    asyncio.run(register_cluster(request, settings_of(member, name), lambda _: None))
    words = ["agent", "--cluster-kubeconfig", str(member.kubeconfig), "--log-format", "json"]
    agent = Program("clusterspace", words, log=member.log.with_name("agent.log"))
    try:
        yield
    finally:
        agent.terminate()
        agent.wait()


def wait_until_reached(fleet: RunningFleet, name: str) -> None:
    """Wait until the fleet API server can ask a member."""
    deadline = time.monotonic() + PATIENCE
    settings = read_kubeconfig([fleet.server.kubeconfig]).settings(cluster="fleet")
    while asyncio.run(_status_of(settings, f"/clusterspaces/{name}/version")) != 200:
        assert time.monotonic() < deadline, f"{name} has no tunnel: {fleet.server.log.read_text()}"
        time.sleep(0.2)


async def _status_of(settings: ConnectionSettings, path: str) -> int:
    async with open_client(settings) as client:
        answer = await client.connection.exchange(ApiRequest("GET", path, is_repeated=False))
        return answer.status


def _running_sim(directory: Path, name: str) -> AbstractContextManager[RunningHub]:
    return running_server(
        directory, "sim", name, "--nodes", "4", "--node-pods", "250", *tokens_in(directory)
    )


def join(hub: RunningHub, member: RunningHub, name: str) -> None:
    """Make a cluster a member, as an administrator does."""
    request = JoinRequest(name, settings_of(member, name))
    asyncio.run(join_cluster(request, settings_of(hub, "hub"), lambda _: None))


def settings_of(server: RunningHub, name: str) -> ConnectionSettings:
    """Return how the administrator of a cluster reaches it."""
    return read_kubeconfig([server.kubeconfig]).settings(cluster=name)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
