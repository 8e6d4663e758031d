"""Propagation that dies at a chosen write and comes back, and a story that must not notice.

Everything that carries templates to members is one process here, on a hub and two simulated
members: in Push mode the controllers with their executors, in Pull mode controllers that live and
agents that die.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.flows.recordings import Symbols, differences
from tests.flows.stages import (
    MEMBERS,
    PUSH,
    SIM,
    Stage,
    edit,
    kubectl_apply,
    running_members,
)

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.controller import Controller, Reconciler
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.execution.controller import Execution
from clusterspace.kube.objects import Object, find_at, name_of, uid_of
from clusterspace.roots.controllers import propagation_controllers
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.crashes import Fuse, Killed, MortalClient
from clusterspace.testing.stage import (
    Fleet,
    Side,
    as_agent,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import delete, stop, until_equal

STORY, STEADY, FOREIGN = "story", "steady", "foreign"
_ids = itertools.count(1)


@dataclass
class MortalFleet(Stage):
    """A fleet whose members joined once; nobody looks after them since."""

    mode: str
    agents: dict[str, Connection]
    """How the agents of Pull members reach the hub."""
    deaths: int = 0
    uids: dict[str, str] = field(default_factory=dict)
    """What must live through everything."""

    @asynccontextmanager
    async def living(self, fuse: Fuse) -> AsyncGenerator[None]:
        """Run propagation; when the fuse blows it dies, and a new one takes its place."""
        task = asyncio.create_task(self._live_on(fuse))
        try:
            yield
        finally:
            await stop(task)
        if not task.cancelled():
            raise AssertionError("propagation ended") from task.exception()

    async def _live_on(self, fuse: Fuse) -> None:
        while True:
            try:
                await self._live(fuse)
            except BaseExceptionGroup as ended:
                if ended.subgroup(Killed) is None:
                    raise
                self.deaths += 1
                fuse = Fuse()

    async def _live(self, fuse: Fuse) -> None:
        """Live one life."""
        is_push = self.mode == PUSH
        async with asyncio.TaskGroup() as group:
            for each in self._propagation(fuse if is_push else Fuse()):
                group.create_task(_until_killed(each))
            for name, connection in self.agents.items():
                for each in self._agent(name, connection, fuse):
                    group.create_task(_until_killed(each))

    def _propagation(self, fuse: Fuse) -> list[Callable[[], Awaitable[None]]]:
        clock, random = SystemClock(), Random(next(_ids))
        hub = MortalClient(self.hub.connection, fuse)
        caches = HubCaches(hub)
        # Events are for people: when they are written decides nothing.
        events = EventRecorder(self.hub, component="mortal", clock=clock)

        async def reach(cluster: Object) -> ClusterClient:
            return clients[name_of(cluster)]

        clients = {
            name: MortalClient(each.client.connection, fuse) for name, each in self.members.items()
        }
        reconcilers = propagation_controllers(hub, caches, events, clock, random)
        execution = Execution(hub, caches, events, reach)
        return _runs(caches, [*reconcilers, execution], clock, random)

    def _agent(
        self, name: str, connection: Connection, fuse: Fuse
    ) -> list[Callable[[], Awaitable[None]]]:
        clock = SystemClock()
        hub = MortalClient(connection, fuse)
        member = MortalClient(self.members[name].client.connection, fuse)
        events = EventRecorder(self.hub, component="mortal", clock=clock)
        caches = HubCaches(hub)

        async def reach(_cluster: Object) -> ClusterClient:
            return member

        execution = Execution(hub, caches, events, reach, agent_of=name)
        return _runs(caches, [execution], clock, Random(next(_ids)))

    async def held_by(self, member: str) -> dict[str, Object]:
        """Return what a member holds of the story, and of what stands beside it."""
        listed = await self.client_of(member).list_objects(ResourcePath(CONFIG_MAPS, "default"))
        return {name_of(each): each for each in listed if name_of(each) != "kube-root-ca.crt"}

    async def survivors(self) -> dict[str, str]:
        """Return the UIDs of what no story is about."""
        return {
            f"{member} {name}": uid_of(each)
            for member in MEMBERS
            for name, each in (await self.held_by(member)).items()
            if name != STORY
        }


def _runs(
    caches: HubCaches, reconcilers: Sequence[Reconciler], clock: Clock, random: Random
) -> list[Callable[[], Awaitable[None]]]:
    """Return what runs of controllers; nobody starts again what was killed."""
    controllers = [Controller.of(each, clock=clock, random=random) for each in reconcilers]
    beside = [run for each in reconcilers for run in each.tasks().values()]
    return [*beside, *(each.run for each in controllers), *caches.tasks().values()]


async def _until_killed(run: Callable[[], Awaitable[None]]) -> None:
    await run()


@asynccontextmanager
async def mortal_fleet(mode: str, directory: Path) -> AsyncGenerator[MortalFleet]:
    """Run a hub and members, with two objects on each that must outlive all stories."""
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(running_members(SIM, directory))
        fleet = await stack.enter_async_context(running_fleet(directory))
        await _enter(fleet, members, mode)
        agents: dict[str, Connection] = {}
        if mode != PUSH:
            for name, member in members.items():
                agents[name] = (await stack.enter_async_context(as_agent(member))).connection
        mortal = MortalFleet(fleet, members, mode, agents)
        async with mortal.living(Fuse()):
            await _furnish(mortal)
        mortal.uids = await mortal.survivors()
        yield mortal


async def _enter(fleet: Fleet, members: dict[str, Side], mode: str) -> None:
    """Let the members join, and look after them until they are ready, once."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fleet.controllers())
        for name, member in members.items():
            if mode == PUSH:
                await fleet.join(name, member)
            else:
                await register(fleet, name, member)
                await stack.enter_async_context(running_agent(member))
        for name in members:
            await until_ready(fleet, name)
            await until_equal(lambda name=name: fleet.taints(name), set())


async def _furnish(fleet: MortalFleet) -> None:
    await kubectl_apply(fleet.hub, config_map(STEADY, {"a": "1"}))
    await kubectl_apply(fleet.hub, policy_for(STEADY, *MEMBERS))
    for member in MEMBERS:
        await kubectl_apply(fleet.client_of(member), config_map(FOREIGN, {"a": "1"}))

        async def names(member: str = member) -> set[str]:
            return set(await fleet.held_by(member))

        await until_equal(names, {STEADY, FOREIGN})


def policy_for(name: str, *clusters: str) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name}],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters)}},
        },
    }


TEMPLATE = ResourcePath(CONFIG_MAPS, "default", STORY)
POLICY = ResourcePath(PROPAGATION_POLICIES, "default", STORY)
BINDING = ResourcePath(RESOURCE_BINDINGS, "default", f"{STORY}-configmap")


class Story:
    """Deploy, change, move, delete: what is done, and what is to be seen after each."""

    def __init__(self, fleet: MortalFleet) -> None:
        self._fleet = fleet
        self.seen: dict[str, list[Object]] = {}
        """What was there after each step: binding, Works, member objects."""

    async def tell(self) -> None:
        hub = self._fleet.hub
        await kubectl_apply(hub, config_map(STORY, {"a": "1"}))
        await kubectl_apply(hub, policy_for(STORY, "member1"))
        await self._until("deployed", {"a": "1"}, on="member1")

        await edit(hub, TEMPLATE, lambda held: {**held, "data": {"a": "2"}})
        await self._until("changed", {"a": "2"}, on="member1")

        moved = policy_for(STORY, "member2")["spec"]
        await edit(hub, POLICY, lambda held: {**held, "spec": {**held["spec"], **moved}})
        await self._until("moved", {"a": "2"}, on="member2")

        await delete(hub, TEMPLATE)
        await delete(hub, POLICY)
        await until_equal(self._left, [])

    async def _until(self, step: str, data: Object, *, on: str) -> None:
        async def has_come_true() -> tuple[dict[str, Any], bool]:
            held = {member: await self._fleet.held_by(member) for member in MEMBERS}
            said = {member: each[STORY]["data"] for member, each in held.items() if STORY in each}
            return said, await self._is_told(on)

        await until_equal(has_come_true, ({on: data}, True))
        live = await self._fleet.client_of(on).get(TEMPLATE)
        self.seen[step] = [await self._fleet.hub.get(BINDING), *await self._works(), live]

    async def _is_told(self, on: str) -> bool:
        """Whether the binding says that the object is there, and nowhere else."""
        binding = await self._fleet.hub.find(BINDING) or {}
        told = find_at(binding, "status", "aggregatedStatus") or []
        names = [(each["clusterName"], each.get("applied")) for each in told]
        is_gone = len(await self._works()) == 1
        return is_gone and names == [(on, True)]

    async def _works(self) -> list[Object]:
        works = await self._fleet.hub.list_objects(ResourcePath(WORKS))
        return [each for each in works if name_of(each).startswith(f"{STORY}-")]

    async def _left(self) -> list[str]:
        """Return what is left of the story."""
        places = [await self._fleet.hub.find(each) for each in (TEMPLATE, BINDING, POLICY)]
        on_members = [
            each
            for member in MEMBERS
            for name, each in (await self._fleet.held_by(member)).items()
            if name == STORY
        ]
        left = [*(each for each in places if each), *await self._works(), *on_members]
        return [f"{each['kind']} {name_of(each)}" for each in left]


def strange(usual: Story, story: Story) -> list[str]:
    """Return what one telling of the story left differently from another, name for name."""
    found: list[str] = []
    for step, objects in usual.seen.items():
        symbols = Symbols()
        for one, other in zip(objects, story.seen[step], strict=True):
            where = f"{step}, {one['kind']}: "
            found += [
                where + each for each in differences(_timeless(one), _timeless(other), symbols)
            ]
    return found


def _timeless(kube_object: Any) -> Any:
    """Return an object with symbols for versions and times."""
    if isinstance(kube_object, list):
        return [_timeless(each) for each in kube_object]
    if not isinstance(kube_object, dict):
        return kube_object
    return {key: _symbol(key) or _timeless(value) for key, value in kube_object.items()}


def _symbol(key: str) -> str:
    if key == "resourceVersion":
        return "<rv:1>"
    return "<time>" if key.endswith(("Time", "Timestamp")) else ""
