"""How fast a live cluster is planned, taken in and given back, and what memory that takes.

python -m tests.bench.bench_migration [OBJECTS]

Hub, controllers and the simulated member are processes as users start them; the plan is made and
carried out in this one, as the command does it. No pods run: what a plan asks of a member is the
same without them.
"""

import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.bench.api_servers import ApiServer, running_hub, usage_of
from tests.bench.propagation_fleet import Fleet, Members, controllers_of, joined_fleet, sim_members

from clusterspace.aio import event_loop
from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.migration.apply import Application, ApplyOptions
from clusterspace.fleet.migration.plan import write_plan
from clusterspace.fleet.migration.planning import PlanRequest, make_judge, plan_cluster
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.fleet.migration.undo import Undoing, UndoOptions
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at
from clusterspace.testing.live_cluster import live_cluster
from clusterspace.testing.steps import until

OBJECTS = 5000
AT_ONCE = 50
MEMBER = "member-1"
GOALS = "goals on 2 idle cores: 5,000 objects planned in 60 s and taken in within 600 s"


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Stopwatch:
    """Time and processor seconds of everybody who takes part: the latter on a busy machine, too."""

    def __init__(self, fleet: Fleet) -> None:
        self._processes = tuple(each for group in fleet.processes.values() for each in group)
        self._since, self._cpu = time.perf_counter(), self._used()

    def _used(self) -> float:
        return usage_of(self._processes).cpu_seconds + time.process_time()

    def report(self, what: str, total: int, more: str = "") -> None:
        seconds, cpu = time.perf_counter() - self._since, self._used() - self._cpu
        print(
            f"{what:8} {total} objects in {seconds:.1f} s, {1000 * cpu / max(total, 1):.0f} ms of"
            f" processors each; peak {peak_mib():.0f} MiB; {more}"
        )


async def measure(directory: Path, hub: ApiServer, members: Members, count: int) -> None:
    clock = SystemClock()
    async with joined_fleet(directory, hub, members) as joined:
        with controllers_of(joined, directory) as fleet:
            member = fleet.members[MEMBER]
            await until(lambda: _is_ready(fleet), 120)
            live = live_cluster(count)
            await live.load(member, runs=False)
            print(f"{len(live.objects)} objects; peak memory before {peak_mib():.0f} MiB")

            watch = Stopwatch(fleet)
            request = PlanRequest("bench", MEMBER, at_once=32)
            plan = await plan_cluster(fleet.hub, member, request, clock.now())
            verdicts = dict(Counter(each.verdict.value for each in plan.spec.items))
            watch.report("planned", len(plan.spec.items), f"{verdicts}")
            print(f"         the file has {len(write_plan(plan)) // 1024} KiB")

            watch = Stopwatch(fleet)
            store = MigrationStore(fleet.hub, plan.name)
            await store.begin(plan)
            cluster = await fleet.hub.get(ResourcePath(CLUSTERS, name=MEMBER))
            judge = await make_judge(fleet.hub, member, cluster, plan.name, AT_ONCE)
            options = ApplyOptions(at_once=AT_ONCE, goes_on=True)
            counts = await Application(store, member, judge, options, clock).run()
            watch.report("applied", len(plan.taken), _text(counts))

            watch = Stopwatch(fleet)
            served = await Discovery(fleet.hub.connection).served()
            undoing = UndoOptions(at_once=AT_ONCE)
            counts = await Undoing(store, member, served, undoing, clock).run()
            watch.report("undone", len(plan.taken), _text(counts))


def _text(counts: Counter[State]) -> str:
    return ", ".join(f"{count} {state.value.lower()}" for state, count in counts.items())


async def _is_ready(fleet: Fleet) -> bool:
    cluster = await fleet.hub.get(ResourcePath(CLUSTERS, name=MEMBER))
    return is_true(find_at(cluster, "status", "conditions"), "Ready")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS
    print(GOALS)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        (directory / "hub").mkdir()
        hub = stack.enter_context(running_hub(directory / "hub"))
        members = stack.enter_context(sim_members(directory, 1))
        event_loop.run(measure(directory, hub, members, count))


if __name__ == "__main__":
    main()
