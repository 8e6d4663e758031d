"""A cluster that the controllers alone do not reach, with every part a process of its own.

Members are behind a proxy that knows whose connections it carries: it looks up which process holds
the other end, and cuts those of the ones it is told to cut.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.flows.test_moves import POLICY, ready_on

from clusterspace.apis.policies import CLUSTER_TAINT_POLICIES, PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.propagation.explanation import explain, gather
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.roots.installation import Installation
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.programs import Program
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import Fleet, Side, move_cluster, running_fleet, until_ready
from clusterspace.testing.steps import until, until_equal

WEB = ResourcePath(DEPLOYMENTS, "default", "web")
BINDING = ResourcePath(RESOURCE_BINDINGS, "default", "web-deployment")
PATIENCE = 90.0
NEAR = ("--allow-member-cidrs", "127.0.0.0/8")
CONTROLLERS = (
    "--enable-no-execute-taint-eviction",
    *("--cluster-status-update-frequency", "0.5"),
    *("--cluster-failure-threshold", "1"),
    *("--cluster-success-threshold", "0.5"),
    *("--eviction-settle-time", "1"),
    *("--resource-eviction-rate", "50"),
)
DOWN: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "ClusterTaintPolicy",
    "metadata": {"name": "down"},
    "spec": {
        "targetClusters": {},
        "addOnConditions": [
            {"conditionType": "Ready", "operator": "In", "statusValues": ["False"]}
        ],
        "removeOnConditions": [
            {"conditionType": "Ready", "operator": "In", "statusValues": ["True"]}
        ],
        "taints": [{"key": "down", "effect": "NoExecute"}],
    },
}


def holds_port(pid: int, port: int) -> bool:
    """Whether a process holds the socket that is bound to a local port."""
    rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    cells = [row.split() for row in rows]
    inodes = {f"socket:[{each[9]}]" for each in cells if int(each[1].split(":")[1], 16) == port}
    with suppress(FileNotFoundError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if str(each.readlink()) in inodes:
                    return True
    return False


@dataclass
class Cable:
    """The way to one member, which can be cut for the connections of some processes."""

    host: str
    port: int
    cut: set[int] = field(default_factory=set[int])
    _open: set[tuple[int, asyncio.StreamWriter]] = field(default_factory=set)

    def cut_off(self, pid: int) -> None:
        """Have a process not reach the member any more."""
        self.cut.add(pid)
        for port, writer in list(self._open):
            if holds_port(pid, port):
                writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end, or drop it."""
        port = writer.get_extra_info("peername")[1]
        entry = (port, writer)
        self._open.add(entry)
        try:
            if any(holds_port(pid, port) for pid in self.cut):
                writer.transport.abort()
                return
            there_reader, there = await asyncio.open_connection(self.host, self.port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(pump(reader, there))
                    group.create_task(pump(there_reader, writer))
            finally:
                there.close()
        except OSError:
            pass
        finally:
            self._open.discard(entry)
            writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.close()


@asynccontextmanager
async def cable_to(member: Side) -> AsyncGenerator[tuple[Cable, str]]:
    """Lay a cable to a member; return it and the address at its near end."""
    where = urlsplit(member.settings.server)
    cable = Cable(str(where.hostname), int(where.port or 443))
    server = await asyncio.start_server(cable.carry, "127.0.0.1", 0)
    try:
        yield cable, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for _, writer in list(cable._open):
            writer.transport.abort()
        await until(lambda: not cable._open)


@contextmanager
def part(fleet: Fleet, name: str, *words: str) -> Any:
    """Run a part of the fleet as a process of its own."""
    hub = Installation(fleet.directory / "hub").component_kubeconfig(name)
    process = Program(
        "clusterspace",
        [name, "--hub-kubeconfig", str(hub), *NEAR, *words],
        log=fleet.directory / f"{name}.log",
        environment={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def placed_on(fleet: Fleet) -> list[str]:
    binding = await fleet.hub.client.find(BINDING)
    return [each["name"] for each in find_at(binding or {}, "spec", "clusters") or ()]


async def confirmed(fleet: Fleet, name: str) -> str:
    conditions = find_at(await fleet.cluster(name), "status", "conditions")
    found = find_condition(conditions, "UnreachableConfirmed")
    return "" if found is None else f"{found['status']} {found['reason']}"


@dataclass
class Story:
    """Three members behind cables, whoever looks after them, and what is placed on one of them."""

    fleet: Fleet
    members: dict[str, Side] = field(default_factory=dict[str, Side])
    cables: dict[str, Cable] = field(default_factory=dict[str, Cable])
    old: str = ""

    async def join(self, stack: AsyncExitStack) -> None:
        """Have three members join, each reached by a cable."""
        hub = self.fleet.hub.client
        for name in ("east", "west", "north"):
            self.members[name] = await self.fleet.add_sim(name, nodes=1)
            await self.fleet.join(name, self.members[name])
            laid = cable_to(self.members[name])
            self.cables[name], near = await stack.enter_async_context(laid)
            await move_cluster(hub, name, near)
        await hub.create(ResourcePath(CLUSTER_TAINT_POLICIES), DOWN)

    async def place(self) -> None:
        """Have a workload run on one of them."""
        hub = self.fleet.hub.client
        for name in self.members:
            await until_ready(self.fleet, name)
        await hub.create(ResourcePath(DEPLOYMENTS, "default"), deployment("web", replicas=2))
        await hub.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)
        (self.old,) = await until(lambda: placed_on(self.fleet), PATIENCE)
        await until_equal(lambda: ready_on(self.members[self.old]), 2)

    async def until_confirmed(self, said: str) -> None:
        await until_equal(lambda: confirmed(self.fleet, self.old), said, PATIENCE)

    async def stays(self) -> None:
        """Show that nothing leaves."""
        await settled()
        assert await placed_on(self.fleet) == [self.old]
        assert "down:NoExecute" not in await self.fleet.taints(self.old)
        assert await ready_on(self.members[self.old]) == 2

    async def moves(self) -> None:
        """Wait until it runs elsewhere."""

        async def is_elsewhere() -> bool:
            return await placed_on(self.fleet) not in ([self.old], [])

        await until(is_elsewhere, PATIENCE)
        (new,) = await placed_on(self.fleet)
        await until_equal(lambda: ready_on(self.members[new]), 2, PATIENCE)


async def test_nobody_leaves_a_cluster_before_a_second_place_does_not_reach_it_either(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack, running_fleet(tmp_path) as fleet:
        story = Story(fleet)
        await story.join(stack)
        controllers = stack.enter_context(part(fleet, "controllers", *CONTROLLERS))
        await story.place()
        old = story.old

        # The leader loses its way to the cluster, and nobody else is there to look.
        story.cables[old].cut_off(controllers.pid)
        await story.until_confirmed("Unknown NoWitness")
        await story.stays()

        # Somebody is, and reaches it.
        words = ("--port", "0", "--data-dir", str(tmp_path / "fleet"))
        gateway = stack.enter_context(part(fleet, "fleet", *words))
        await story.until_confirmed("False ReachedFromElsewhere")
        await story.stays()
        explained = explain(await gather(fleet.hub.client, WEB))
        notes = {each.name: each for each in explained.clusters}
        assert "nobody is evicted: fleet API server on" in notes[old].why

        # Neither does: it is dead, as far as anybody can tell.
        story.cables[old].cut_off(gateway.pid)
        await story.until_confirmed("True NotReachedFromElsewhere")
        await story.moves()

        # What runs there is left alone until it is reached again, and then goes.
        assert await ready_on(story.members[old]) == 2
        story.cables[old].cut.clear()

        async def is_gone() -> bool:
            return await story.members[old].client.find(WEB) is None

        await until(is_gone, PATIENCE)
        await story.until_confirmed("")


async def test_controllers_that_stand_by_are_a_second_place_too(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, running_fleet(tmp_path) as fleet:
        story = Story(fleet)
        await story.join(stack)

        def start(name: str) -> Program:
            words = [str(each) for each in ("controllers", tmp_path / "hub")]
            started = Program(
                "tests.robustness.exclusive_part", words, log=tmp_path / f"{name}.log"
            )
            stack.callback(started.wait)
            stack.callback(started.terminate)
            return started

        leader = start("leader")
        for name in story.members:
            await until_ready(fleet, name)  # it leads before the other one is there
        standby = start("standby")
        await story.place()

        story.cables[story.old].cut_off(leader.pid)
        await story.until_confirmed("False ReachedFromElsewhere")
        await story.stays()

        story.cables[story.old].cut_off(standby.pid)
        await story.until_confirmed("True NotReachedFromElsewhere")
        await story.moves()
