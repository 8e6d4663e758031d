"""How fast a live cluster is planned, taken in, proved and given back, and what memory that takes.

python -m tests.bench.bench_migration [OBJECTS…]

Hub, controllers, the simulated member and the commands are processes as users start them. No pods
run: what a plan asks of a member is the same without them. Each count of objects gets a fleet of
its own, so that what the commands need for few and for many can be compared.
"""

import asyncio
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench.api_servers import running_hub, usage_of
from tests.bench.propagation_fleet import Fleet, controllers_of, joined_fleet, sim_members

from clusterspace.aio import event_loop
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at
from clusterspace.testing.live_cluster import live_cluster
from clusterspace.testing.steps import until

COUNTS = (500, 5000)
MEMBER = "member-1"
NAME = "bench"
GOALS = "goals on 2 idle cores: 5,000 objects planned in 60 s and taken in within 600 s"


@dataclass(frozen=True)
class Ran:
    """What one command took."""

    seconds: float
    processor_seconds: float
    peak_mib: float
    said: str


def run_command(directory: Path, *arguments: str) -> Ran:
    """Run `clusterspace migrate …` to its end; a failure is the end of the benchmark."""
    began, log = time.perf_counter(), directory / "command.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "clusterspace", "migrate", *arguments]
        command += ["--kubeconfig", str(directory / "hub" / "kubeconfig")]
        files = [(os.POSIX_SPAWN_DUP2, output.fileno(), number) for number in (1, 2)]
        process = os.posix_spawn(sys.executable, command, os.environ, file_actions=files)
    # Only whoever waits for a process itself is told what it took at most.
    _, status, usage = os.wait4(process, 0)
    said = log.read_text().strip()
    if status:
        raise SystemExit(f"migrate {arguments[0]} failed: {said}")
    cpu = usage.ru_utime + usage.ru_stime
    return Ran(time.perf_counter() - began, cpu, usage.ru_maxrss / 1024, said.splitlines()[-1])


async def measure(directory: Path, fleet: Fleet, count: int) -> None:
    """Load a cluster, and have all commands of a migration run on it."""
    member = fleet.members[MEMBER]
    live = live_cluster(count)
    await live.load(member, runs=False)
    await until(lambda: _is_ready(fleet), 120)
    print(f"\n{len(live.objects)} objects")
    plan = directory / "plan.yaml"
    reach = ("--allow-member-cidrs", "127.0.0.0/8")
    for what, arguments in {
        "plan": ("plan", "-C", MEMBER, "--name", NAME, "-f", str(plan), *reach),
        "apply": ("apply", str(plan), *reach),
        "prove": ("prove", NAME, *reach),
        "undo": ("undo", NAME, *reach),
    }.items():
        before = _used(fleet)
        ran = await asyncio.to_thread(run_command, directory, *arguments)
        after = _used(fleet)
        shares = {"command": ran.processor_seconds}
        shares |= {who: after[who] - before[who] for who in after}
        each = ", ".join(f"{who} {1000 * used / count:.1f}" for who, used in shares.items())
        print(
            f"{what:6} {ran.seconds:6.1f} s, peak {ran.peak_mib:4.0f} MiB;"
            f" {1000 * sum(shares.values()) / count:.1f} ms of processors for an object ({each})\n"
            f"       {ran.said}",
            flush=True,
        )


def _used(fleet: Fleet) -> dict[str, float]:
    """Return processor seconds of everybody: on a busy machine they say more than the clock."""
    return {who: usage_of(group).cpu_seconds for who, group in fleet.processes.items()}


async def _is_ready(fleet: Fleet) -> bool:
    cluster = await fleet.hub.get(ResourcePath(CLUSTERS, name=MEMBER))
    return is_true(find_at(cluster, "status", "conditions"), "Ready")


def main() -> None:
    counts = tuple(map(int, sys.argv[1:])) or COUNTS
    print(GOALS)
    for count in counts:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            directory = Path(name)
            (directory / "hub").mkdir()
            hub = stack.enter_context(running_hub(directory / "hub"))
            members = stack.enter_context(sim_members(directory, 1))

            async def session() -> None:
                async with joined_fleet(directory, hub, members) as joined:  # noqa: B023
                    with controllers_of(joined, directory) as fleet:  # noqa: B023
                        await measure(directory, fleet, count)  # noqa: B023

            event_loop.run(session())


if __name__ == "__main__":
    main()
