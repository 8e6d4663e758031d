"""A whole fleet as its users run it: a hub, members, and the fleet API server.

Members are simulated, or a kube-apiserver and its controllers where they are found, whose nodes
alone are simulated then.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec
from tests.conformance.controller_stage import CONTROLLERS
from tests.conformance.hubs import (
    ADMIN_TOKEN,
    ALLOW_LOOPBACK,
    PATIENCE,
    Connections,
    RunningHub,
    running_hub,
    running_server,
    tokens_in,
)
from tests.conformance.simulated_nodes import simulated_nodes

from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import ConnectionSettings
from clusterspace.fleet.membership.pull_join import RegisterRequest
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.clients import open_client
from clusterspace.roots.kubeconfigs import merged_kubeconfig
from clusterspace.roots.membership import join_cluster, register_cluster
from clusterspace.roots.tokens import create_token
from clusterspace.testing.hubs import (
    client_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.programs import Program

MEMBERS = ("east", "west")
_NODES = 4
_RUNNING = (*CONTROLLERS, "serviceaccount-controller")
T = TypeVar("T")


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
    directory: Path, *options: str, pull: tuple[str, ...] = (), real: tuple[str, ...] = ()
) -> Generator[RunningFleet]:
    """Run a fleet of processes for as long as the block lasts.

    `pull` names the members with agents, `real` those that are a kube-apiserver; where there is
    none, the asking test is skipped.
    """
    with ExitStack() as stack:
        starting = [running_hub(_made(directory / "hub"))]
        starting += [
            _running_sim(_made(directory / name), name) for name in MEMBERS if name not in real
        ]
        with (
            ThreadPoolExecutor() as pool
        ):  # each takes seconds to start, and none waits for another
            hub, *sims = pool.map(lambda each: stack.enter_context(each), starting)
        simulated = [name for name in MEMBERS if name not in real]
        found: dict[str, RunningHub] = dict(zip(simulated, sims, strict=True))
        for name in real:
            found[name] = stack.enter_context(_running_kubernetes(_made(directory / name), name))
        members = {name: found[name] for name in MEMBERS}
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
        directory, "sim", name, "--nodes", str(_NODES), "--node-pods", "250", *tokens_in(directory)
    )


@contextmanager
def _running_kubernetes(directory: Path, name: str) -> Generator[RunningHub]:
    """Run a kube-apiserver with its controllers, and with nodes that are simulated."""
    with in_background(lambda: _kubernetes(directory, name)) as url:
        kubeconfig = directory / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {"name": name, "cluster": {"server": url, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        }
        kubeconfig.write_bytes(msgspec.yaml.encode(config))
        # Its certificate is its own; both ends are on this machine.
        connections = Connections(url, ssl._create_unverified_context())
        log = directory / "kube-apiserver.log"
        try:
            yield RunningHub(url, kubeconfig, directory / "no-authority", log, connections)
        finally:
            connections.close()


@asynccontextmanager
async def _kubernetes(directory: Path, name: str) -> AsyncGenerator[str]:
    flags = ("--kubelet-preferred-address-types=InternalIP",)
    async with (
        real_server_for_test(directory, *flags, name=name) as real,
        real_controllers_for_test(real, directory, *_RUNNING),
        client_for_test(real.settings) as client,
        simulated_nodes(client, name, _NODES),
    ):
        yield real.settings.server


@contextmanager
def in_background(make: Callable[[], AbstractAsyncContextManager[T]]) -> Generator[T]:
    """Have something that needs an event loop in one of its own, for as long as the block lasts."""
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        loop = runner.get_loop()
        running = thread.submit(loop.run_forever)
        # One task from its beginning to its end: contexts may hold task groups and timeouts.
        entered: Future[T] = Future()
        leave = asyncio.Event()

        async def live() -> None:
            try:
                async with make() as made:
                    entered.set_result(made)
                    await leave.wait()
            except BaseException as error:
                if entered.done():
                    raise
                entered.set_exception(error)

        life = asyncio.run_coroutine_threadsafe(live(), loop)
        try:
            yield entered.result(4 * PATIENCE)
        finally:
            loop.call_soon_threadsafe(leave.set)
            life.result(PATIENCE)
            loop.call_soon_threadsafe(loop.stop)
            running.result(PATIENCE)


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
