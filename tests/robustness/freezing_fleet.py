"""A fleet of processes that are frozen and thawed while placements change; and what must hold then.

    north, south   Push members, in the process of the test
    east           a Pull member with an agent, and now and then with two
    hub            a process; two more are controllers, of which one leads

A round is decided by its seed: templates and policies change in a burst, in the middle of which a
process is stopped with SIGSTOP, as a machine that hangs; others take over; then it goes on where it
was. When all is quiet every member has exactly what the Works of the hub explain.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.identities import CONTROLLERS_LEASE
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import manifests_of
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import AlreadyExists, ApiError, ClusterError
from clusterspace.fleet.execution.prune import APPROVED_UNTIL
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.programs import Program
from clusterspace.testing.stage import Fleet, Side, register, until_ready
from clusterspace.testing.steps import delete, edit, until

ROOT = Path(__file__).parents[2]
CLUSTERS: tuple[str, ...] = ("north", "south", "east")
TEMPLATES = tuple(f"web-{number}" for number in range(12))
QUIET_SECONDS = 1.5
"""How long nothing may change before a round is judged; a thawed process acts at once."""
CONVERGES_SECONDS = 120.0

LEADER, AGENT, HUB = "leader", "agent", "hub"
VICTIMS = (LEADER, LEADER, LEADER, AGENT, AGENT, HUB)

_MANAGED = ListOptions(label_selector=f"{stamps.MANAGED}=true")
_MAPS = ResourcePath(CONFIG_MAPS, "default")
_LEASE = ResourcePath(LEASES, "kube-system", CONTROLLERS_LEASE)
_POLICY = ResourcePath(PROPAGATION_POLICIES, "default", "web")


@dataclass
class FreezingFleet:
    """The fleet, and the processes it is made of."""

    fleet: Fleet
    members: dict[str, Side]
    stack: AsyncExitStack
    hub_process: int
    agents: list[Program] = field(default_factory=list[Program])

    @property
    def hub(self) -> ClusterClient:
        return self.fleet.hub.client

    async def leader(self) -> int:
        """Return the process that holds the lease of the controllers."""
        holder = str(find_at(await self.hub.get(_LEASE), "spec", "holderIdentity") or "")
        return int(holder.split("_")[1]) if "_" in holder else 0

    async def start_agent(self) -> None:
        kubeconfig = self.fleet.directory / "east" / "kubeconfig"
        agent = await self.stack.enter_async_context(part("agent", kubeconfig))
        self.agents.append(agent)

    async def play(self, seed: int) -> str:
        """Play one round; return what no Work explains, and what is missing: nothing, that is."""
        random = Random(seed)
        victim = random.choice(VICTIMS)
        burst = asyncio.create_task(self._change_placements(random))
        await asyncio.sleep(random.uniform(0.05, 0.6))
        if victim == LEADER:
            await self._freeze_leader(random)
        elif victim == AGENT:
            await self._freeze_agent(random)
        else:
            await _frozen(self.hub_process, random.uniform(0.5, 5.0))
        await burst
        return await self._judge(f"seed {seed}, {victim} frozen")

    async def _freeze_leader(self, random: Random) -> None:
        frozen = await until(self.leader)
        os.kill(frozen, signal.SIGSTOP)
        try:

            async def is_replaced() -> bool:
                return await self.leader() not in (0, frozen)

            await until(is_replaced, CONVERGES_SECONDS)
            # The new leader does what the old one had begun, and more than that.
            await self._change_placements(random)
            with suppress(AssertionError):
                await until(self._is_explained, random.uniform(0.5, 4.0))
        finally:
            os.kill(frozen, signal.SIGCONT)

    async def _freeze_agent(self, random: Random) -> None:
        frozen = self.agents[-1]
        is_replaced = random.random() < 0.5
        frozen.send_signal(signal.SIGSTOP)
        try:
            if is_replaced:
                await self.start_agent()
                await self._change_placements(random)
                with suppress(AssertionError):
                    await until(self._is_explained, random.uniform(0.5, 4.0))
            else:
                await asyncio.sleep(random.uniform(0.5, 5.0))
        finally:
            frozen.send_signal(signal.SIGCONT)
        if is_replaced:
            # It waits now for the other to go, and is sent away by whoever replaced it.
            await asyncio.sleep(random.uniform(0.0, 1.0))
            frozen.terminate()
            await asyncio.to_thread(frozen.wait)
            self.agents.remove(frozen)

    async def _change_placements(self, random: Random) -> None:
        for _ in range(random.randint(10, 25)):
            name = random.choice(TEMPLATES)
            with suppress(ApiError, ClusterError):
                if random.random() < 0.3:
                    chosen: list[str] = random.sample(CLUSTERS, random.randint(1, 2))
                    await edit(self.hub, _POLICY, lambda policy, to=chosen: placed_on(policy, to))
                elif random.random() < 0.4:
                    await delete(self.hub, _MAPS.named(name))
                else:
                    data = {"round": str(random.random())}
                    with suppress(AlreadyExists):
                        await self.hub.create(_MAPS, config_map(name, data, labels={"app": "web"}))
            await asyncio.sleep(random.uniform(0.0, 0.06))

    async def explained(self, cluster: str) -> set[str]:
        """Return what the Works of a cluster ask for, unless they are on their way out."""
        works = await self.hub.list_objects(ResourcePath(WORKS, execution_namespace(cluster)))
        return {
            f"{manifest['kind']}/{name_of(manifest)}"
            for work in works
            for manifest in manifests_of(work)
            if manifest["kind"] == "ConfigMap" and name_of(manifest).startswith("web-")
        }

    async def present(self, cluster: str) -> set[str]:
        """Return what a member has that is marked as ours."""
        found = await self.members[cluster].client.list_objects(_MAPS, _MANAGED)
        return {f"ConfigMap/{name_of(each)}" for each in found}

    async def wanted(self, cluster: str) -> set[str]:
        """Return what the templates and the policy of the hub say."""
        policy = await self.hub.get(_POLICY)
        names = find_at(policy, "spec", "placement", "clusterAffinity", "clusterNames") or []
        templates = await self.hub.list_objects(_MAPS, ListOptions(label_selector="app=web"))
        found = {f"ConfigMap/{name_of(each)}" for each in templates}
        return found if cluster in names else set()

    async def differences(self) -> str:
        """Return where members, Works and policy disagree; nothing when they do not."""
        told: list[str] = []
        for cluster in CLUSTERS:
            present, explained = await self.present(cluster), await self.explained(cluster)
            wanted = await self.wanted(cluster)
            for text, these in (
                ("that no Work explains", present - explained),
                ("missing", explained - present),
                ("Works that no policy explains", explained - wanted),
                ("without a Work", wanted - explained),
            ):
                if these:
                    told.append(f"{cluster}: {text}: {', '.join(sorted(these))}")
        return "; ".join(told)

    async def _is_explained(self) -> bool:
        with suppress(ApiError, ClusterError):
            return not await self.differences()
        return False

    async def _judge(self, subject: str) -> str:
        with suppress(AssertionError):
            await until(self._is_explained, CONVERGES_SECONDS)
        await asyncio.sleep(QUIET_SECONDS)
        with suppress(AssertionError):
            await until(self._is_explained, CONVERGES_SECONDS)
        found = await self.differences()
        return f"{subject}: {found}" if found else ""


def placed_on(policy: Object, clusters: list[str]) -> Object:
    return with_value(
        policy, sorted(clusters), "spec", "placement", "clusterAffinity", "clusterNames"
    )


def with_all_deletions_approved(cluster: Object) -> Object:
    approved = {APPROVED_UNTIL: "2100-01-01T00:00:00Z"}
    return with_metadata(cluster, annotations={**annotations_of(cluster), **approved})


async def _frozen(process_id: int, seconds: float) -> None:
    os.kill(process_id, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(process_id, signal.SIGCONT)


@asynccontextmanager
async def part(name: str, path: Path) -> AsyncGenerator[Program]:
    """Run a part of the fleet as a process of its own."""
    log = path.parent / f"{name}.log"
    words = [name, str(path)]
    process = Program("tests.robustness.part_launcher", words, log=log, directory=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)  # a stopped process does not hear that it is to end
            process.terminate()
            await asyncio.to_thread(process.wait)


@asynccontextmanager
async def freezing_fleet(directory: Path) -> AsyncGenerator[FreezingFleet]:
    """Run the fleet, with its members joined and one policy for all templates."""
    hub_directory = directory / "hub"
    hub_directory.mkdir()
    options = ("--port", "0", "--store", "memory", "--allow-member-cidrs", "127.0.0.0/8")
    async with AsyncExitStack() as stack:
        words = ["hub", "--data-dir", str(hub_directory), *options]
        hub = Program("clusterspace", words, log=hub_directory / "hub.log")

        async def stop_hub() -> None:
            hub.send_signal(signal.SIGCONT)
            hub.terminate()
            await asyncio.to_thread(hub.wait)

        stack.push_async_callback(stop_hub)
        kubeconfig = hub_directory / "kubeconfig"
        await until(kubeconfig.exists, CONVERGES_SECONDS)
        settings = read_kubeconfig([kubeconfig]).settings(cluster="hub")
        client = await stack.enter_async_context(client_for_test(settings))
        fleet = Fleet(Side(settings, client), directory, stack)
        members = {name: await fleet.add_member(name) for name in CLUSTERS}
        for _ in range(2):
            await stack.enter_async_context(part("controllers", hub_directory))
        for name in ("north", "south"):
            await fleet.join(name, members[name])
        await register(fleet, "east", members["east"])
        running = FreezingFleet(fleet, members, stack, hub.pid)
        await running.start_agent()
        for name in CLUSTERS:
            await until_ready(fleet, name)
            # The budget of deletions is another matter: a burst of moves would use it up.
            await edit(client, manifests.cluster_path(name), with_all_deletions_approved)
        await client.create(_POLICY.collection, web_policy())
        yield running


def web_policy() -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": _POLICY.name, "namespace": _POLICY.namespace},
        "spec": {
            "resourceSelectors": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ],
            "placement": {"clusterAffinity": {"clusterNames": ["north", "south"]}},
        },
    }
