"""A hub with members and what is put on them, for measuring how things get there."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from tests.bench.api_servers import ApiServer, free_port, running_kubernetes, usage_of
from tests.bench.fleet_processes import running_controllers, running_sims, sim_settings
from tests.component.hub_wire import ADMIN

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Trust
from clusterspace.client.watch import EventType, WatchOptions, watch
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.fleet.membership.status import ready_status
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import open_client
from clusterspace.roots.membership import join_cluster
from clusterspace.testing.steps import until

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SPACE = "bench"
"""The namespace that all templates are in."""

WRITERS = 16
"""Templates that are created at once."""
PATIENCE = 120.0
WATCH_SECONDS = 3600
QUIET_SECONDS = 1.5
QUIET_SHARE = 0.05
"""Of one core: whoever takes less than this for a while has nothing left to do."""


class NotInTime(Exception):
    """Something that was waited for did not happen."""


# -- the fleet -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fleet:
    """Everybody who takes part, and what they are called in the figures."""

    hub: ClusterClient
    members: Mapping[str, ClusterClient]
    processes: Mapping[str, tuple[int, ...]]
    metrics_port: int = 0
    """Of the controllers, while they run."""


Members = tuple[Mapping[str, ConnectionSettings], Mapping[str, tuple[int, ...]]]
"""How to reach the members, and the processes they are."""


@contextmanager
def real_members(directory: Path, assets: Path) -> Generator[Members]:
    """Run two real API servers, each with a database that waits for the disk."""
    settings: dict[str, ConnectionSettings] = {}
    processes: dict[str, tuple[int, ...]] = {}
    with ExitStack() as stack:
        for name in ("member-1", "member-2"):
            (directory / name).mkdir()
            server = stack.enter_context(running_kubernetes(directory / name, assets))
            settings[name] = _settings_for(name, server)
            processes[name] = server.processes
        yield settings, processes


def _settings_for(name: str, server: ApiServer) -> ConnectionSettings:
    return ConnectionSettings(
        cluster=name,
        server=f"https://{server.host}:{server.port}",
        trust=Trust(skips_verification=True),
        identity=AuthInfo(token=ADMIN),
    )


@contextmanager
def sim_members(directory: Path, number: int) -> Generator[Members]:
    """Run simulated members."""
    member_names = [f"member-{each}" for each in range(1, number + 1)]
    with running_sims(directory, member_names) as processes:
        settings = {name: sim_settings(directory, name) for name in member_names}
        yield settings, {f"{number} members": processes}


@asynccontextmanager
async def joined_fleet(directory: Path, hub: ApiServer, members: Members) -> AsyncGenerator[Fleet]:
    """Join the members; no controllers run yet."""
    hub_settings = read_kubeconfig([directory / "hub" / "kubeconfig"]).settings(cluster="hub")
    settings, processes = members
    async with AsyncExitStack() as stack:
        for name, each in settings.items():
            await join_cluster(JoinRequest(name, each), hub_settings, lambda _: None)
        hub_client = await stack.enter_async_context(open_client(hub_settings))
        clients = {
            name: await stack.enter_async_context(open_client(each))
            for name, each in settings.items()
        }
        yield Fleet(hub_client, clients, {"hub": hub.processes, **processes})


@contextmanager
def controllers_of(fleet: Fleet, directory: Path) -> Generator[Fleet]:
    """Run the controllers for as long as the block lasts."""
    port = free_port()
    with running_controllers(directory / "hub" / "kubeconfig", port) as process:
        processes = {**fleet.processes, "controllers": (process,)}
        yield replace(fleet, processes=processes, metrics_port=port)


async def settled(fleet: Fleet) -> None:
    """Wait until all members are ready and have the namespace that templates are in."""

    async def is_ready() -> bool:
        clusters = await fleet.hub.list_objects(ResourcePath(CLUSTERS))
        return all(ready_status(each) == "True" for each in clusters)

    async def has_space() -> bool:
        space = ResourcePath(manifests.NAMESPACES, name=SPACE)
        return all([await member.find(space) for member in fleet.members.values()])

    await until(is_ready)
    await until(has_space)
    await until_quiet(fleet)


# -- what is written -------------------------------------------------------------------------------


def config_map(name: str, text: str = "") -> Object:
    """Return a small ConfigMap, as people have them."""
    data = {
        "application.yaml": "server:\n  port: 8080\nlogging:\n  level: info\n" * 3,
        "region": "central",
        "text": text,
    }
    metadata = {"name": name, "namespace": SPACE, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def policy(policy_name: str, members: Iterable[str], **selector: str) -> Object:
    """Return a policy that sends ConfigMaps to members."""
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": policy_name, "namespace": SPACE},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", **selector}],
            "placement": {"clusterAffinity": {"clusterNames": list(members)}},
        },
    }


async def create_space(fleet: Fleet) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    await fleet.hub.create(ResourcePath(manifests.NAMESPACES), space)


async def create_templates(fleet: Fleet, prefix: str, number: int) -> None:
    """Create templates, several at once."""
    numbers = iter(range(number))

    async def write() -> None:
        for each in numbers:
            name = f"{prefix}-{each:04}"
            await fleet.hub.create(ResourcePath(CONFIG_MAPS, SPACE), config_map(name))

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(write())


# -- what is waited for ----------------------------------------------------------------------------


async def until_quiet(fleet: Fleet, patience: float = PATIENCE) -> float:
    """Wait until the hub and the controllers rest; return when they began to."""
    ours = (*fleet.processes["hub"], *fleet.processes["controllers"])
    deadline = time.perf_counter() + patience
    used, since = usage_of(ours).cpu_seconds, time.perf_counter()
    while time.perf_counter() - since < QUIET_SECONDS:
        await asyncio.sleep(QUIET_SECONDS / 5)
        now = usage_of(ours).cpu_seconds
        if now - used > QUIET_SHARE * QUIET_SECONDS:
            used, since = now, time.perf_counter()
        if since > deadline:
            raise NotInTime(f"still busy after {patience:g} s")
    return since


@dataclass
class Sighting:
    """What a watch on one member shows of the ConfigMaps in our namespace."""

    member: ClusterClient
    seen: set[str] = field(default_factory=set[str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    news: asyncio.Event = field(default_factory=asyncio.Event)
    is_watching: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, *, reads: bool) -> None:
        """Take in what is new; with `reads` also what is in it."""
        place = ResourcePath(CONFIG_MAPS, SPACE)
        page = await anext(self.member.pages(place))
        self.is_watching.set()  # from this version on nothing is missed
        options = WatchOptions(page.head.resource_version, timeout_seconds=WATCH_SECONDS)
        async with aclosing(watch(self.member.connection, place, options)) as batches:
            async for events in batches:
                for event in events:
                    if event.type is EventType.BOOKMARK:
                        continue
                    self.seen.add(event.item.key)
                    if reads:
                        data = msgspec.json.decode(event.item.raw)["data"]
                        self.texts[event.item.key] = data.get("text", "")
                self.news.set()

    async def until(self, is_so: Callable[[], bool], patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                while not is_so():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError as late:
            why = f"after {patience:g} s {self.member.cluster} has {len(self.seen)} new objects"
            raise NotInTime(why) from late

    async def until_seen(self, number: int, patience: float) -> None:
        await self.until(lambda: len(self.seen) >= number, patience)


@asynccontextmanager
async def watching(
    members: Iterable[ClusterClient], *, reads: bool = False
) -> AsyncGenerator[list[Sighting]]:
    """Watch members for as long as the block lasts."""
    sightings = [Sighting(each) for each in members]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run(reads=reads)) for each in sightings]
            for each in sightings:
                await each.is_watching.wait()
            yield sightings
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first is the reason
