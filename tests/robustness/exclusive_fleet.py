"""A fleet whose members are cut off, killed and frozen; and what their own logs say about it.

    west, east, north   Pull members in the process of the test, an agent each as processes
    hub                 in the process of the test; the controllers are a process

Between each agent and the hub is a link that the test cuts, both ways or one. A round is decided
by its seed: something happens to where a workload is, it is told to leave, and when all is well
again everything must be as if nothing had been. Each member's store notes, when it stores them,
which copies run: two of an exclusive workload at one moment are what must never be.
"""

import asyncio
import os
import signal
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from tests.robustness.exclusive_part import BUG, LEASE_SECONDS, MARGIN_SECONDS, QUIET_SECONDS
from tests.robustness.freezing_fleet import with_all_deletions_approved

from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.exclusive import EXCLUSIVE
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS, cluster_of, clusters_of
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership.registration import REGISTRATION_PLACE
from clusterspace.kube.objects import Object, find_at, name_of, with_metadata, with_value
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, config_map, deployment
from clusterspace.testing.programs import Program
from clusterspace.testing.stage import Fleet, Side, register, running_fleet, until_ready
from clusterspace.testing.steps import edit, until

ROOT = Path(__file__).parents[2]
MEMBERS = ("west", "east", "north")
EXCLUSIVES = ("ledger-0", "ledger-1")
AVAILABLE = "web"
CONVERGES_SECONDS = 300.0
MOVES_SECONDS = LEASE_SECONDS + MARGIN_SECONDS
_DAY = 86_400
_TAINT = {"key": "example.com/failed", "effect": "NoExecute"}

CUT, ONE_WAY, FLAPS, KILLED, FROZEN, NEW_LEADER, MOST_CUT = (
    "cut", "one way", "flaps", "killed", "frozen", "new leader", "most cut"
)  # fmt: skip
FAULTS = (CUT, CUT, ONE_WAY, FLAPS, KILLED, FROZEN, NEW_LEADER, MOST_CUT)


@dataclass(frozen=True)
class Moment:
    """That a store has noted whether a copy runs, and when."""

    at: float
    member: str
    workload: str
    replicas: int


class History:
    """What the members' stores were given to store, in the order of time."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.stores: dict[int, str] = {}

    @asynccontextmanager
    async def recording(self) -> AsyncGenerator[None]:
        """Have every store of this process note what it stores, at the moment it does."""
        history = self
        store_it: Callable[[MemoryStore, Any], Any] = MemoryStore._write

        def noted(self: MemoryStore, write: Any) -> Any:
            answer = store_it(self, write)
            head, _, name = write.key.rpartition("/")
            if head.endswith("/configmaps/default") and name in MEMBERS:
                history.stores[id(self)] = name  # a member says who it is
            if head.endswith("/deployments/default") and id(self) in history.stores:
                value = getattr(write, "value", None)
                spec = {} if value is None else msgspec.json.decode(value).get("spec", {})
                replicas = int(spec.get("replicas") or 0)
                member = history.stores[id(self)]
                history.moments.append(Moment(time.monotonic(), member, name, replicas))
            return answer

        MemoryStore._write = noted
        try:
            yield
        finally:
            MemoryStore._write = store_it

    def at_once(self, workload: str, since: float = 0.0) -> list[frozenset[str]]:
        """Return on which members a workload ran, at each moment at which that changed."""
        running: set[str] = set()
        found: list[frozenset[str]] = []
        for each in self.moments:
            if each.workload != workload:
                continue
            (running.add if each.replicas else running.discard)(each.member)
            if each.at >= since:
                found.append(frozenset(running))
        return found


class Link:
    """The way from an agent to the hub: bytes are passed on, in each direction that is open."""

    def __init__(self, host: str, port: int) -> None:
        self._hub = host, port
        self.is_open = self.answers = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Link"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self, *, one_way: bool = False) -> None:
        """Let nothing pass any more; or, one way, no answer."""
        self.answers = False
        self.is_open = one_way
        if not one_way:
            for each in tuple(self._writers):
                each.transport.abort()

    def heal(self) -> None:
        """Let everything pass; what was held back is lost, with its connection."""
        if not (self.is_open and self.answers):
            for each in tuple(self._writers):
                each.transport.abort()
        self.is_open = self.answers = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        with suppress(OSError):
            there, back = await asyncio.open_connection(*self._hub)
            self._writers |= {writer, back}
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass_on(reader, back, lambda: self.is_open))
                    group.create_task(self._pass_on(there, writer, lambda: self.answers))
            finally:
                self._writers -= {writer, back}
                for each in (writer, back):
                    each.transport.abort()

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        passes: Callable[[], bool],
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if not passes():
                    continue  # lost on its way
                target.write(data)
                await target.drain()
        target.transport.abort()


@dataclass
class ExclusiveFleet:
    """The fleet, its links and its processes."""

    fleet: Fleet
    members: dict[str, Side]
    links: dict[str, Link]
    history: History
    environment: dict[str, str]
    agents: dict[str, list[Program]] = field(default_factory=dict[str, list[Program]])
    controllers: list[Program] = field(default_factory=list[Program])
    moves: int = 0
    """How often all that was on a cluster that failed came to run elsewhere before it was back."""

    @property
    def hub(self) -> ClusterClient:
        return self.fleet.hub.client

    def start(self, part: str, path: Path) -> Program:
        words, log = [part, str(path)], path.parent / f"{part}.log"
        module = "tests.robustness.exclusive_part"
        return Program(module, words, log=log, directory=ROOT, environment=self.environment)

    def start_agent(self, name: str) -> None:
        kubeconfig = self.fleet.directory / name / "kubeconfig"
        self.agents.setdefault(name, []).append(self.start("agent", kubeconfig))

    def start_controllers(self) -> None:
        self.controllers.append(self.start("controllers", self.fleet.directory / "hub"))

    async def end(self, program: Program) -> None:
        program.kill()
        await asyncio.to_thread(program.wait)

    async def places(self, workload: str) -> set[str]:
        """Return the clusters that the hub has chosen."""
        binding = await self.hub.get(
            ResourcePath(RESOURCE_BINDINGS, "default", f"{workload}-deployment")
        )
        return {each.name for each in clusters_of(binding)}

    async def running(self, workload: str) -> set[str]:
        """Return the members that run a workload now."""
        found: set[str] = set()
        for name, member in self.members.items():
            copy = await member.client.find(ResourcePath(DEPLOYMENTS, "default", workload))
            if copy is not None and find_at(copy, "spec", "replicas"):
                found.add(name)
        return found

    async def is_settled(self) -> bool:
        """Whether every workload runs where the hub has it, and there is no Work elsewhere."""
        with suppress(ApiError, ClusterError):
            works = await self.hub.list_objects(ResourcePath(WORKS))
            for workload in (*EXCLUSIVES, AVAILABLE):
                places = await self.places(workload)
                of = {cluster_of(each) for each in works if name_of(each).startswith(workload)}
                if len(places) != 1 or places != of or await self.running(workload) != places:
                    return False
            return True
        return False

    async def play(self, seed: int) -> str:
        """Play one round; return what went wrong: nothing, that is."""
        random, began = Random(seed), time.monotonic()
        await until(self.is_settled, CONVERGES_SECONDS)
        fault = FAULTS[seed % len(FAULTS)] if seed < len(FAULTS) else random.choice(FAULTS)
        (victim,) = await self.places(EXCLUSIVES[0])
        before = {each: await self.places(each) for each in EXCLUSIVES}
        other = random.choice([each for each in MEMBERS if each != victim])
        self._set_clock(victim, random.choice((0, 0, _DAY, -_DAY, 3)))
        cut = [victim, other] if fault == MOST_CUT else [victim]
        await self._strike(fault, victim, cut, random)
        if fault == MOST_CUT:
            await asyncio.sleep(QUIET_SECONDS + 1)
        await edit(self.hub, ResourcePath(CLUSTERS, name=victim), tainted)
        moved = [each for each in EXCLUSIVES if victim in before[each]]
        if fault in (CUT, FLAPS, KILLED, FROZEN, NEW_LEADER) and random.random() < 0.7:
            with suppress(AssertionError):
                await until(lambda: self._run_elsewhere(moved, victim), 4 * MOVES_SECONDS)
                self.moves += 1
        else:
            await asyncio.sleep(random.uniform(0.5, MOVES_SECONDS + 2))
        untouched = fault != MOST_CUT or all(
            [await self.places(each) == before[each] for each in EXCLUSIVES]
        )
        await self._heal()
        await edit(self.hub, ResourcePath(CLUSTERS, name=victim), untainted)
        wrong = [] if untouched else ["something left while most of the fleet looked dead"]
        try:
            await until(self.is_settled, CONVERGES_SECONDS)
        except AssertionError:
            places = {each: await self.places(each) for each in (*EXCLUSIVES, AVAILABLE)}
            runs = {each: await self.running(each) for each in (*EXCLUSIVES, AVAILABLE)}
            wrong.append(f"not settled: chosen {places}, running {runs}")
        for each in EXCLUSIVES:
            twice = [set(some) for some in self.history.at_once(each, began) if len(some) > 1]
            wrong += [f"{each} ran on {some} at once" for some in twice[:1]]
        if frozenset() in self.history.at_once(AVAILABLE, began):
            wrong.append(f"{AVAILABLE} ran nowhere")
        return f"seed {seed}, {victim} {fault}: {'; '.join(wrong)}" if wrong else ""

    async def _strike(self, fault: str, victim: str, cut: list[str], random: Random) -> None:
        if fault in (CUT, MOST_CUT, FROZEN, KILLED):
            for each in cut:
                self.links[each].cut()
        elif fault == ONE_WAY:
            self.links[victim].cut(one_way=True)
        elif fault == FLAPS:
            for _ in range(random.randint(2, 5)):
                self.links[victim].cut(one_way=random.random() < 0.5)
                await asyncio.sleep(random.uniform(0.1, 1.5))
                self.links[victim].heal()
                await asyncio.sleep(random.uniform(0.05, 0.5))
            self.links[victim].cut()
        elif fault == NEW_LEADER:
            self.links[victim].cut()
            await asyncio.sleep(random.uniform(0.0, 3.0))
            await self.end(self.controllers.pop())
            self.start_controllers()
        if fault == KILLED:
            # And started again at once, as whoever runs it on the member does.
            await asyncio.sleep(random.uniform(0.0, 2.0))
            await self.end(self.agents[victim].pop())
            self.start_agent(victim)
        elif fault == FROZEN:
            # One of two: the newer one leads, hangs, and the other takes its place.
            self.links[victim].heal()
            self.start_agent(victim)
            await asyncio.sleep(random.uniform(1.5, 3.0))
            self.links[victim].cut()
            self.agents[victim][-1].send_signal(signal.SIGSTOP)

    async def _run_elsewhere(self, workloads: list[str], victim: str) -> bool:
        return all([(await self.running(each)) - {victim} for each in workloads])

    async def _heal(self) -> None:
        for link in self.links.values():
            link.heal()
        for name, programs in self.agents.items():
            self._set_clock(name, 0)
            while len(programs) > 1:
                await self.end(programs.pop())

    def _set_clock(self, member: str, offset: float) -> None:
        (self.fleet.directory / member / "clock").write_text(str(offset))


def tainted(cluster: Object) -> Object:
    return with_value(cluster, [*_other_taints(cluster), _TAINT], "spec", "taints")


def untainted(cluster: Object) -> Object:
    return with_value(cluster, _other_taints(cluster), "spec", "taints")


def _other_taints(cluster: Object) -> list[Object]:
    found: list[Object] = find_at(cluster, "spec", "taints") or []
    return [each for each in found if each["key"] != _TAINT["key"]]


def template(name: str) -> Object:
    made = deployment(name, replicas=1)
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    labels = {"app": name, "story": "failover"}
    marks = {} if name == AVAILABLE else {EXCLUSIVE: "true"}
    return with_metadata(made, labels=labels, annotations=marks)


POLICY: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "failover", "namespace": "default"},
    "spec": {
        "resourceSelectors": [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "labelSelector": {"matchLabels": {"story": "failover"}},
            }
        ],
        "placement": {
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            "clusterTolerations": [
                {"key": "cluster.karmada.io/not-ready", "operator": "Exists"},
                {"key": "cluster.karmada.io/unreachable", "operator": "Exists"},
            ],
        },
    },
}


@asynccontextmanager
async def exclusive_fleet(directory: Path, bug: str = "") -> AsyncGenerator[ExclusiveFleet]:
    """Run the fleet, with its workloads placed; a bug may be planted in its processes."""
    history = History()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(history.recording())
        fleet = await stack.enter_async_context(running_fleet(directory))
        host, port = fleet.hub.settings.server.removeprefix("https://").split(":")
        links: dict[str, Link] = {}
        members: dict[str, Side] = {}
        for name in MEMBERS:
            members[name] = await fleet.add_member(name)
            place = ResourcePath(CONFIG_MAPS, "default")
            await members[name].client.create(place, config_map(name))
        environment = {**os.environ, BUG: bug}
        running = ExclusiveFleet(fleet, members, links, history, environment)
        stack.push_async_callback(_end_all, running)
        running.start_controllers()
        for name, member in members.items():
            links[name] = await stack.enter_async_context(Link(host, int(port)).running())
            await register(fleet, name, member)
            way = f":{port}".encode(), f":{links[name].port}".encode()
            await edit(member.client, REGISTRATION_PLACE, lambda held, way=way: led(held, *way))
            running.start_agent(name)
        for name in MEMBERS:
            await until_ready(fleet, name)
            # The budget of deletions is another matter: so many moves would use it up.
            place = ResourcePath(CLUSTERS, name=name)
            await edit(fleet.hub.client, place, with_all_deletions_approved)
        await fleet.hub.client.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)
        for name in (*EXCLUSIVES, AVAILABLE):
            await fleet.hub.client.create(ResourcePath(DEPLOYMENTS, "default"), template(name))
        yield running


def led(registration: Object, before: bytes, after: bytes) -> Object:
    """Return a registration that leads the agent to the hub through a link."""
    data = {
        key: b64encode(b64decode(each).replace(before, after)).decode()
        for key, each in registration["data"].items()
    }
    return {**registration, "data": data}


async def _end_all(running: ExclusiveFleet) -> None:
    programs = [*running.controllers, *(each for some in running.agents.values() for each in some)]
    for each in programs:
        await running.end(each)
