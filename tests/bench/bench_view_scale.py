"""What a fleet of many members takes: lists of one and of all, memory, a restart, and rest.

python -m tests.bench.bench_view_scale --members 1000 --objects 1000

Hub, controllers and fleet API server are processes as users start them. The members are simulated
clusters in two further processes, in a process group of their own, whose memory and processor time
are told apart; each has its objects from the start, so that a million of them are there within a
minute. All share the processors of this machine, so the controllers, who look at each member every
ten seconds, are measured first and ended before lists are.
"""

import argparse
import asyncio
import gc
import hashlib
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from random import Random

from tests.bench.api_servers import ApiServer, free_port, usage_of
from tests.bench.api_servers import running_hub as running_hub_process
from tests.bench.bench_fleet import (
    Lister,
    lister_in,
    running_fleet,
    settings_in,
)
from tests.bench.bench_membership import looks_of
from tests.bench.fleet_processes import in_processes, running_controllers, sim_settings

from clusterspace.aio import event_loop
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apiserver.forms import object_key
from clusterspace.apiserver.store.index import Index
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import CannotJoin, ClusterError
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.fleet.membership.status import ready_status
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import open_client
from clusterspace.roots.membership import join_cluster
from clusterspace.roots.settings import SimSettings
from clusterspace.roots.sim import running_sim
from clusterspace.telemetry.logs import Format, Level, configure

TEMPLATES = GroupVersionResource("", "v1", "podtemplates")
PATH = "/api/v1/namespaces/default/podtemplates"
JOINS_AT_ONCE = 16
JOIN_TRIES = 5
PATIENCE = 300.0
MOST_AT_ONCE = 200_000
"""Of more objects than this nobody reads all in one answer."""


@dataclass(frozen=True)
class Size:
    """How large the fleet is, and how long it is left at rest."""

    members: int
    objects: int
    rounds: int
    rest_seconds: float

    @property
    def idle_seconds(self) -> float:
        """How long the fleet API server is left at rest: connections go after a minute."""
        return self.rest_seconds * 4

    @property
    def total(self) -> int:
        return self.members * self.objects

    @property
    def names(self) -> list[str]:
        return [f"member-{number:04}" for number in range(self.members)]

    @property
    def fleet_options(self) -> tuple[str, ...]:
        """What a fleet of this size is given.

        A kilobyte to keep each object in, a quarter of that for members that are away, and room to
        read all of them once. Many members share a process, and all share this machine: they may
        take their time.
        """
        cache, answers = max(16, self.total // 1024), max(512, self.total // 512)
        room = ("--cache-mib", str(cache), "--answers-mib", str(answers))
        return ("--list-timeout", "30", "--any-state", "300", *room)


def read_size(words: Sequence[str]) -> Size:
    parser = argparse.ArgumentParser(prog="bench_view_scale")
    parser.add_argument("--members", type=int, default=40)
    parser.add_argument("--objects", type=int, default=200, help="of each member")
    parser.add_argument("--rounds", type=int, default=200, help="of what takes milliseconds")
    parser.add_argument("--rest-seconds", type=float, default=20.0)
    return Size(**vars(parser.parse_args(words)))


# -- the members -----------------------------------------------------------------------------------

DIGEST = hashlib.sha256(b"the digest").hexdigest()


def _example() -> Object:
    """Return an object as people have them, some 1.8 KB when it is answered."""
    metadata = {
        "name": "web-00000",
        "labels": {"app.kubernetes.io/name": "web", "team": "team-0", "tier": "backend"},
        "annotations": {"number": "00000", "checksum/config": DIGEST},
    }
    container = {
        "name": "main",
        "image": "registry.example.com/team/service@sha256:" + DIGEST,
        "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(4)],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    inner = {
        "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
        "spec": {"serviceAccountName": "web", "containers": [container]},
    }
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": inner}


async def _stored_example(directory: Path) -> KeyValue:
    """Return an object as a member stores it that was asked to create it."""
    store = MemoryStore()
    async with running_sim(SimSettings("example", directory, nodes=0), store):
        async with open_client(sim_settings(directory.parent, directory.name)) as member:
            await member.create(ResourcePath(TEMPLATES, "default"), _example())
        stored = await store.get(object_key("", "podtemplates", "default", "web-00000"))
        assert stored is not None
        return stored


def _copies(stored: KeyValue, keys: Sequence[str], random: Random) -> Iterator[KeyValue]:
    """Yield as many objects like one, each with a name, a UID and digests of its own."""
    text = stored.value.decode()
    own_uid = text.partition('"uid":"')[2].partition('"')[0]
    for number, key in enumerate(keys):
        written = (
            text.replace("web-00000", key.rpartition("/")[2])
            .replace(own_uid, str(uuid.UUID(int=random.getrandbits(128), version=4)))
            .replace('"team":"team-0"', f'"team":"team-{number % 10}"')
            .replace('"number":"00000"', f'"number":"{number * 7919 % 10007:05}"')
            .replace(DIGEST, f"{random.getrandbits(256):064x}")
        )
        revision = Revision(number + 2)
        yield KeyValue(key, written.encode(), revision, revision)


def run_members(objects: int, directory: Path, members: Sequence[str], pipe: Pipe) -> None:
    """Run members in this process, until the pipe says something."""
    os.setpgid(0, 0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    configure(Format.JSON, Level.ERROR, sys.stderr)
    event_loop.run(_serve_members(objects, directory, members, pipe))


async def _serve_members(objects: int, directory: Path, members: Sequence[str], pipe: Pipe) -> None:
    stored = await _stored_example(directory / f"example-{os.getpid()}")
    keys = [stored.key.replace("web-00000", f"web-{number:05}") for number in range(objects)]
    async with AsyncExitStack() as stack:
        for name in members:
            index = Index(_copies(stored, keys, Random(name)), revision=Revision(objects + 2))
            settings = SimSettings(name, directory / name, nodes=1)
            await stack.enter_async_context(running_sim(settings, MemoryStore(index)))
            # As a member in a process of its own does; and of a hundred members that are there the
            # collector would look at all again for each that is being started.
            gc.freeze()
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)


async def join_all(directory: Path, names: Sequence[str]) -> None:
    hub, waiting = settings_in(directory / "hub", "hub"), iter(names)

    async def join() -> None:
        for name in waiting:
            request = JoinRequest(name, sim_settings(directory, name))
            for _ in range(JOIN_TRIES):
                # Hundreds of members have just begun in its process, and joining again is harmless.
                with suppress(CannotJoin, ClusterError):
                    await join_cluster(request, hub, lambda _: None)
                    break
            else:
                raise AssertionError(f"{name} could not be joined")

    async with asyncio.TaskGroup() as group:
        for _ in range(JOINS_AT_ONCE):
            group.create_task(join())


# -- what is measured ------------------------------------------------------------------------------


@contextmanager
def stage(what: str) -> Generator[None]:
    """Print how long a part of the run took: the whole of it is bounded."""
    started = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - started:.0f} s", flush=True)


def measure(what: str, fleet: int, work: Callable[[], int], rounds: int) -> None:
    """Print how long something takes, and what it costs the fleet API server."""
    before = usage_of([fleet]).cpu_seconds
    seconds: list[float] = []
    size = 0
    for _ in range(rounds):
        started = time.perf_counter()
        size = work()
        seconds.append(time.perf_counter() - started)
    cpu = (usage_of([fleet]).cpu_seconds - before) / rounds
    worst = sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))]
    print(
        f"  {what:44} p50 {statistics.median(seconds) * 1e3:7.0f} ms  p99 {worst * 1e3:7.0f} ms  "
        f"{cpu * 1e3:7.0f} ms of a core  {size / 1e6:7.2f} MB",
        flush=True,
    )


def measure_rest(seconds: float, parties: Mapping[str, Sequence[int]]) -> None:
    before = {name: usage_of(ids).cpu_seconds for name, ids in parties.items()}
    started = time.perf_counter()
    time.sleep(seconds)
    for name, ids in parties.items():
        now, elapsed = usage_of(ids), time.perf_counter() - started
        share = (now.cpu_seconds - before[name]) / elapsed
        print(f"  {name} at rest: {share:.1%} of a core, {now.resident_bytes / 1e6:.0f} MB")


def measure_controllers(size: Size, hub: ApiServer, kubeconfig: Path) -> None:
    """See what watching over all members takes, once all of them are known."""
    port = free_port()
    with running_controllers(kubeconfig, port) as controllers:
        with stage("all members ready"):
            asyncio.run(_until_ready(kubeconfig))
        time.sleep(20)  # taints go and tokens settle: what comes with joining is not rest
        before = sum(looks_of(port).values())
        measure_rest(size.rest_seconds, {"hub": hub.processes, "controllers": (controllers,)})
        looks = sum(looks_of(port).values()) - before
        print(f"  each member was looked at every {size.rest_seconds * size.members / looks:.1f} s")


async def _until_ready(kubeconfig: Path) -> None:
    settings = settings_in(kubeconfig.parent, "hub")
    async with asyncio.timeout(PATIENCE), open_client(settings) as hub:
        while not all(  # noqa: ASYNC110 - the hub gives no event to wait for
            ready_status(each) == "True" for each in await hub.list_objects(ResourcePath(CLUSTERS))
        ):
            await asyncio.sleep(1)


def measure_lists(size: Size, lister: Lister, fleet: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while lister.read(f"{PATH}?limit=1") and lister.warning:
        assert time.monotonic() < deadline, lister.warning
        time.sleep(0.2)
    if size.total <= MOST_AT_ONCE:
        measure("all objects of all members", fleet, lambda: lister.read(PATH), 3)
    names = cycle(size.names)

    def of_one(more: str = "") -> int:
        return lister.read(f"{PATH}?labelSelector=clusterspace.io/cluster%3D{next(names)}{more}")

    measure("one cluster, by its label", fleet, of_one, size.rounds)
    measure("  and a label of its objects", fleet, lambda: of_one(",team%3Dteam-1"), size.rounds)
    measure("the first hundred", fleet, lambda: lister.read(f"{PATH}?limit=100"), 3)
    selected = "fieldSelector=metadata.annotations.number%3D00042"
    ordered = "sortBy=.metadata.annotations.number&limit=100"
    both = f"fieldSelector=template.spec.serviceAccountName%3Dweb&{ordered}"
    for what, more, rounds in (("", "", 2), (", any state", "&resourceVersion=0", size.rounds)):
        for name, asked in (
            ("one field of all", selected),
            ("a hundred, sorted by one", ordered),
            ("both", both),
        ):
            work = partial(lister.read, f"{PATH}?{asked}{more}")
            measure(f"{name}{what}, first", fleet, partial(_until_answered, work), 1)
            measure(f"{name}{what}", fleet, work, rounds)


def _until_answered(work: Callable[[], int]) -> int:
    """Ask until there is an answer within a request's minute: what was read by then is kept."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except AssertionError as refused:
            print(f"  {refused}", flush=True)
            if time.monotonic() > deadline:
                raise


def measure_starts(size: Size, directory: Path, members: Sequence[int], kubeconfig: Path) -> None:
    path = f"{PATH}?sortBy=.metadata.annotations.number&limit=100"
    for what in ("warm", "cold"):
        if what == "cold":
            shutil.rmtree(directory / "fleet" / "cache")
        started = time.perf_counter()
        with running_fleet(directory / "fleet", kubeconfig, *size.fleet_options) as fleet:
            print(f"{what} start: ready after {time.perf_counter() - started:.1f} s", flush=True)
            lister = lister_in(directory / "fleet")
            asked = usage_of(members).cpu_seconds
            measure(
                "the first list of all",
                fleet,
                partial(_until_answered, partial(lister.read, path)),
                1,
            )
            print(f"  {lister.warning}" if lister.warning else "  of every member")
            asked = usage_of(members).cpu_seconds - asked
            print(f"  members took {asked:.1f} s of a core for it")


def main() -> None:
    size = read_size(sys.argv[1:])
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        directory = Path(home)
        kubeconfig = directory / "hub" / "kubeconfig"
        hub = stack.enter_context(running_hub_process(directory / "hub"))
        with stage(f"{size.members:,} members x {size.objects:,} objects started"):
            run = partial(run_members, size.objects)
            members = stack.enter_context(in_processes(run, directory, size.names))
        resident = usage_of(members).resident_bytes
        each = resident / size.total / 1e3
        print(f"  they have {resident / 1e6:.0f} MB, {each:.1f} KB an object")
        with stage("joined"):
            asyncio.run(join_all(directory, size.names))
        measure_controllers(size, hub, kubeconfig)
        with running_fleet(directory / "fleet", kubeconfig, *size.fleet_options) as fleet:
            empty = usage_of([fleet]).resident_bytes
            lister = lister_in(directory / "fleet")
            with stage("lists"):
                measure_lists(size, lister, fleet)
            full = usage_of([fleet]).resident_bytes
            parties = {"hub": hub.processes, "fleet API server": (fleet,), "members": members}
            measure_rest(size.idle_seconds, parties)
            rested = usage_of([fleet]).resident_bytes
            print(f"  fleet API server: {empty / 1e6:.0f} MB before", end="")
            for when, resident in (("right behind it", full), ("after a rest", rested)):
                each = (resident - empty) / size.total / 1e3
                print(f"; {resident / 1e6:.0f} MB {when}, {each:.2f} KB an object", end="")
            print(flush=True)
            stopping = time.perf_counter()
        stopping = time.perf_counter() - stopping
        written = sum(each.stat().st_size for each in (directory / "fleet" / "cache").iterdir())
        print(f"stopped in {stopping:.1f} s; {written / 1e6:.0f} MB written for the next start")
        measure_starts(size, directory, members, kubeconfig)
    print(f"in all {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
