"""What one user notices of another who floods the hub: lists, watches, writes, and all at once.

python -m tests.bench fairness

The hub is a process on a disk, as a user runs it; the flood is a process of its own, bounded by how
much it has under way. A worker does one thing after the other: get, list, create, update and delete
of its own objects. Each flood is measured between two rounds without it, and what counts is the
worker's p99 beside theirs: on a busy machine all three are slow. Leases and health are looked at
meanwhile. Where a kube-apiserver is found, it is flooded in the same way, and its figures follow.

Two columns say two things. By the clock is what the worker notices, with all that else goes on on
the machine. Of the processor time of the hub's event loop is what the hub did between question and
answer, for whomever: no other program is in it, and no disk.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from tests.bench.api_servers import ApiServer, find_kubernetes, running_hub, running_kubernetes
from tests.component.hub_wire import HubClient, config_map

from clusterspace.aio import event_loop

FLOODS = (("lists",), ("watches",), ("writes",), ("lists", "watches", "writes"))
STOCK = 1_000
ROUNDS = 3
OPERATIONS = 600
"""In a round; the p99 is of all rounds together."""
WORK = "/api/v1/namespaces/work/configmaps"
Took: TypeAlias = tuple[float, float]
"""Seconds from asking to the answer: by the clock, and of the hub's processor time in between. On a
machine that others use as well, only the second is the hub's doing."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Worker:
    """Somebody who works, and how long each answer took."""

    def __init__(self, server: ApiServer) -> None:
        self.client, self.manager, self.prober = (
            HubClient(server.host, server.port, server.tls, f"{user}-token")
            for user in ("worker", "manager", "worker")
        )
        self.refused = 0
        self._number = 0
        self._used = Path(f"/proc/{server.processes[0]}/schedstat")

    async def timed(self, client: HubClient, method: str, path: str, body: Any = None) -> Took:
        started, used = time.perf_counter(), self.hub_seconds()
        answer = await client.ask(method, path, body)
        self.refused += answer.status == 429
        assert answer.status in (200, 201, 429), (method, path, answer.body)
        return time.perf_counter() - started, self.hub_seconds() - used

    def hub_seconds(self) -> float:
        """Return how long the hub's event loop has been on a processor."""
        return int(self._used.read_text().split()[0]) / 1e9

    async def until_idle(self) -> None:
        """Wait until the hub has done what a flood leaves to do: two thousand goodbyes."""
        for _ in range(30):
            used = self.hub_seconds()
            await asyncio.sleep(0.5)
            if self.hub_seconds() - used < 0.05:
                return

    async def work(self) -> dict[str, list[Took]]:
        """Do one thing after the other; meanwhile a lease is renewed, and health asked for."""
        taken: dict[str, list[Took]] = defaultdict(list)
        is_done = asyncio.Event()

        async def renew() -> None:
            lease: dict[str, Any] = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "bench", "namespace": "kube-system"},
                "spec": {"holderIdentity": "me"},
            }
            await self.manager.ask("POST", LEASES, lease)
            while not is_done.is_set():
                lease = await self.manager.do("GET", f"{LEASES}/bench")
                lease["spec"]["leaseDurationSeconds"] = len(taken["lease"]) + 1
                taken["lease"].append(
                    await self.timed(self.manager, "PUT", f"{LEASES}/bench", lease)
                )
                taken["health"].append(await self.timed(self.prober, "GET", "/readyz"))
                await asyncio.sleep(0.02)

        renewing = asyncio.create_task(renew())
        for _ in range(OPERATIONS // 5):
            self._number += 1
            name = f"work-{self._number}"
            body = config_map(name, namespace="work", data={"a": "b" * 500})
            for method, path, sent in (
                ("POST", WORK, body),
                ("GET", f"{WORK}/{name}", None),
                ("PUT", f"{WORK}/{name}", {**body, "data": {"a": "c" * 500}}),
                ("GET", WORK, None),
                ("DELETE", f"{WORK}/{name}", None),
            ):
                taken["all"].append(await self.timed(self.client, method, path, sent))
        is_done.set()
        await renewing
        return taken


def p99(taken: list[Took], which: int) -> float:
    ordered = sorted(each[which] for each in taken)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def prefer(process: int) -> None:
    """Put a process, and all its threads, before those that have nothing to do with this."""
    for thread in os.listdir(f"/proc/{process}/task"):
        with suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread), -10)


@contextmanager
def flooding(server: ApiServer, kinds: tuple[str, ...]) -> Generator[None]:
    """Have another user flood the server for as long as the block lasts."""
    command = [sys.executable, "-m", "tests.bench.flood"]
    with subprocess.Popen(
        [*command, server.host, str(server.port), *kinds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as flood:
        assert flood.stdin is not None
        assert flood.stdout is not None
        try:
            assert flood.stdout.readline() == "ready\n"
            yield
        finally:
            flood.stdin.close()
            print(f"    the flood: {flood.stdout.readline().strip()}")
            flood.wait(30)


async def prepare(admin: HubClient) -> None:
    for name in ("work", "flood"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await admin.do("POST", "/api/v1/namespaces", namespace)
    subjects = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        for user in ("worker", "flood", "system:kube-controller-manager")
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await admin.do(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "bench"},
            "roleRef": role,
            "subjects": subjects,
        },
    )
    for number in range(STOCK):
        body = config_map(f"stock-{number:04}", namespace="flood", data={"k": "v" * 800})
        await admin.do("POST", "/api/v1/namespaces/flood/configmaps", body)
    for number in range(20):
        body = config_map(f"kept-{number:04}", namespace="work", data={"k": "v" * 800})
        await admin.do("POST", WORK, body)


async def measure(server: ApiServer, rounds: int) -> None:
    admin = server.client()
    await prepare(admin)
    worker = Worker(server)
    await worker.work()  # what is loaded once is loaded
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{server.name}: {cores} cores, load {load:.1f} before it begins;")
    print(f"p99 in ms of {OPERATIONS * rounds} requests, alone twice as many: by the clock, and of")
    print("the processor time of the event loop between question and answer")
    print(
        f"{'':30} {'clock: alone':>12} {'beside':>9} {'ratio':>6}"
        f"   {'loop: alone':>11} {'beside':>9} {'ratio':>6}"
    )
    for kinds in FLOODS:
        alone: dict[str, list[Took]] = defaultdict(list)
        beside: dict[str, list[Took]] = defaultdict(list)
        worker.refused = 0
        for _ in range(rounds):
            before = await worker.work()
            with flooding(server, kinds):
                during = await worker.work()
            await worker.until_idle()
            after = await worker.work()
            for what in during:
                alone[what] += before[what] + after[what]
                beside[what] += during[what]
        print(f"  {' + '.join(kinds)}: {worker.refused} refused")
        for what, label in (("all", "requests"), ("lease", "leases"), ("health", "health")):
            line = f"    {label:26}"
            # What a program in Go does is in many threads, and no one of them is its loop.
            for which in (0, 1) if server.name == "hub" else (0,):
                quiet, flooded = p99(alone[what], which), p99(beside[what], which)
                line += f" {quiet * 1e3:12.2f} {flooded * 1e3:9.2f} {flooded / quiet:6.2f}  "
            print(line.rstrip(), flush=True)
    for client in (admin, worker.client, worker.manager, worker.prober):
        client.close()


def main() -> None:
    # Who asks must see the answer when it comes: what the hub does for others while this process
    # waits for a processor would be counted as well. The flood is behind all three of them.
    prefer(os.getpid())
    with (
        tempfile.TemporaryDirectory() as made,
        running_hub(Path(made), "hub", *sys.argv[1:]) as server,
    ):
        prefer(server.processes[0])
        event_loop.run(measure(server, ROUNDS))
    assets = find_kubernetes()
    if assets is None:
        return
    with tempfile.TemporaryDirectory() as made, running_kubernetes(Path(made), assets) as server:
        for process in server.processes:
            prefer(process)
        event_loop.run(measure(server, 1))


if __name__ == "__main__":
    main()
