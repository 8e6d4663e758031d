"""What a fleet of many members takes: lists of one and of all, memory, a restart, and rest.

python -m tests.bench view-scale

Hub and fleet API server are processes as users start them; the members are hubs in two further
processes, whose memory is told apart. `CLUSTERSPACE_BENCH_MEMBERS` and `CLUSTERSPACE_BENCH_OBJECTS`
say how many there are (100 x 1,000). All of them share the processors of this machine. To make an
object takes some 3 ms of a core, so 1,000 x 1,000 takes half an hour before anything is measured,
on two cores that have nothing else to do; it says how far it has come.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path

from tests.bench.api_servers import running_hub as running_hub_process
from tests.bench.api_servers import usage_of
from tests.bench.bench_fleet import (
    join_all,
    lister_in,
    run_members,
    running_fleet,
)
from tests.bench.fleet_processes import in_processes

from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import ConnectionSettings
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import open_client

MEMBERS = int(os.environ.get("CLUSTERSPACE_BENCH_MEMBERS", "100"))
OBJECTS = int(os.environ.get("CLUSTERSPACE_BENCH_OBJECTS", "1000"))
CREATES_AT_ONCE = 16
PADDING = 500
PATIENCE = 600.0
REST_SECONDS = 10.0
ANY_ROUNDS = 100
MOST_AT_ONCE = 200_000
"""Of more objects than this nobody reads all in one answer."""
CACHE_MIB = max(16, MEMBERS * OBJECTS * 2 // 1024)
"""Two kilobytes for each object: what a fleet of this size is to be given."""
SETTINGS = ("--list-timeout", "30", "--cache-mib", str(CACHE_MIB), "--any-state", "300")
"""Many members share a process, and all share this machine: they may take their time."""
TEMPLATES = GroupVersionResource("", "v1", "podtemplates")
PATH = "/api/v1/namespaces/default/podtemplates"


# -- the members -----------------------------------------------------------------------------------


async def _fill(settings: ConnectionSettings) -> None:
    number = int(settings.cluster.rpartition("-")[2])
    if number and not number % (MEMBERS // 10 or 1):
        print(f"  {number:,} members filled", flush=True)
    place, numbers = ResourcePath(TEMPLATES, "default"), iter(range(OBJECTS))
    async with open_client(settings) as member:

        async def create() -> None:
            for number in numbers:
                await member.create(place, _template(number))

        async with asyncio.TaskGroup() as group:
            for _ in range(CREATES_AT_ONCE):
                group.create_task(create())


def _template(number: int) -> Object:
    metadata = {
        "name": f"template-{number:05}",
        "labels": {"team": f"team-{number % 10}"},
        "annotations": {"number": str(number * 7919 % 10007)},
    }
    inner = {
        "metadata": {"annotations": {"padding": "x" * PADDING}},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    }
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": inner}


# -- what is measured ------------------------------------------------------------------------------


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
        f"{cpu * 1e3:7.0f} ms of a core  {size / 1e6:7.2f} MB"
    )


def measure_lists(directory: Path, fleet: int, members: Sequence[str]) -> None:
    lister = lister_in(directory / "fleet")
    deadline = time.monotonic() + PATIENCE
    while lister.read(f"{PATH}?limit=1") and lister.warning:
        assert time.monotonic() < deadline, lister.warning
        time.sleep(0.2)
    if len(members) * OBJECTS <= MOST_AT_ONCE:
        measure("all objects of all members", fleet, lambda: lister.read(PATH), 3)
    names = cycle(members)

    def of_one(more: str = "") -> int:
        return lister.read(f"{PATH}?labelSelector=clusterspace.io/cluster%3D{next(names)}{more}")

    measure("one cluster, by its label", fleet, of_one, min(len(members), 100))
    measure("  and a label of its objects", fleet, lambda: of_one(",team%3Dteam-1"), 50)
    measure("the first hundred", fleet, lambda: lister.read(f"{PATH}?limit=100"), 5)
    selected = "fieldSelector=metadata.annotations.number%3D42"
    ordered = "sortBy=.metadata.annotations.number&limit=100"
    for what, more, rounds in (("", "", 3), (", any state", "&resourceVersion=0", ANY_ROUNDS)):

        def selects(more: str = more) -> int:
            return lister.read(f"{PATH}?{selected}{more}")

        def sorts(more: str = more) -> int:
            return lister.read(f"{PATH}?{ordered}{more}")

        def does_both(more: str = more) -> int:
            return lister.read(f"{PATH}?fieldSelector=template.spec!%3Dx&{ordered}{more}")

        for name, work in (("one field of all", selects), ("a hundred, sorted by one", sorts)):
            measure(f"{name}{what}, first", fleet, work, 1)
            measure(f"{name}{what}", fleet, work, rounds)
        measure(f"both{what}", fleet, does_both, rounds)


def main() -> None:
    names = [f"member-{number:04}" for number in range(MEMBERS)]
    objects = MEMBERS * OBJECTS
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        directory = Path(home)
        hub = stack.enter_context(running_hub_process(directory / "hub"))
        started = time.perf_counter()
        members = stack.enter_context(in_processes(partial(run_members, _fill), directory, names))
        resident = usage_of(members).resident_bytes
        print(f"{MEMBERS:,} members x {OBJECTS:,} objects", end="")
        print(f" made in {time.perf_counter() - started:.0f} s; ", end="")
        print(f"members have {resident / 1e6:.0f} MB, {resident / objects / 1e3:.1f} KB an object")
        asyncio.run(join_all(directory, directory / "hub", names))
        kubeconfig = directory / "hub" / "kubeconfig"
        with running_fleet(directory / "fleet", kubeconfig, *SETTINGS) as fleet:
            empty = usage_of([fleet]).resident_bytes
            measure_lists(directory, fleet, names)
            parties = {"hub": hub.processes, "fleet API server": (fleet,), "members": members}
            before = {name: usage_of(ids).cpu_seconds for name, ids in parties.items()}
            time.sleep(REST_SECONDS)
            for name, ids in parties.items():
                share = (usage_of(ids).cpu_seconds - before[name]) / REST_SECONDS
                print(f"  {name} at rest: {share:.1%} of a core")
            full = usage_of([fleet]).resident_bytes
            print(f"  fleet API server: {empty / 1e6:.0f} MB before", end="")
            print(f", {full / 1e6:.0f} MB behind it, ", end="")
            print(f"{(full - empty) / objects / 1e3:.2f} KB for each object of the members")
        written = sum(each.stat().st_size for each in (directory / "fleet" / "cache").iterdir())
        print(f"written for the next start: {written / 1e6:.0f} MB")
        for what in ("warm", "cold"):
            if what == "cold":
                shutil.rmtree(directory / "fleet" / "cache")
            started = time.perf_counter()
            with running_fleet(directory / "fleet", kubeconfig, *SETTINGS) as fleet:
                print(f"{what} start: ready after {time.perf_counter() - started:.1f} s")
                lister = lister_in(directory / "fleet")
                asked = usage_of(members).cpu_seconds
                path = f"{PATH}?sortBy=.metadata.annotations.number&limit=100"
                path = PATH if objects <= MOST_AT_ONCE else path
                measure("the first list of all", fleet, partial(lister.read, path), 1)
                print(f"  {lister.warning}" if lister.warning else "  of every member")
                asked = usage_of(members).cpu_seconds - asked
                print(f"  members took {asked * 1e3:.0f} ms of a core for it")


if __name__ == "__main__":
    main()
