"""Protobuf against JSON, for what a typed client of client-go does: LIST, LIST again, WATCH.

python -m tests.bench.bench_protobuf

The same pods in our hub and, where it is found, in a kube-apiserver; each is asked in both forms,
one after the other in one run. What counts is the ratio between the rows of one server, and the
processor time beside the clock: a list is waited for once, its cost is paid by all.
"""

import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench.api_servers import ApiServer, find_kubernetes, running_hub, running_kubernetes
from tests.bench.bench_hub import PODS_PATH, pod
from tests.component.hub_wire import JSON, MERGE_PATCH, HubClient, request_bytes

PODS = 2_000
ROUNDS = 5
WATCHERS = 20
CHANGES = 400
FORMS = {"JSON": JSON, "protobuf": f"application/vnd.kubernetes.protobuf,{JSON}"}


@dataclass(frozen=True)
class Row:
    """What one server needs for one thing, in one form."""

    server: str
    form: str
    what: str
    megabytes: float
    milliseconds: float
    cpu_milliseconds: float

    def __str__(self) -> str:
        return (
            f"{self.server:15} {self.what:28} {self.form:9} {self.megabytes:8.2f} MB "
            f"{self.milliseconds:9.1f} ms {self.cpu_milliseconds:9.1f} ms CPU"
        )


async def fill(client: HubClient) -> None:
    for number in range(PODS):
        await client.do("POST", PODS_PATH, pod(number))


async def list_pods(server: ApiServer, form: str, rounds: int, what: str) -> Row:
    client = server.client()
    cpu, started, size = server.cpu_seconds, time.perf_counter(), 0
    for _ in range(rounds):
        answer = await client.ask("GET", PODS_PATH, accept=FORMS[form])
        assert answer.status == 200, answer.body[:300]
        size = len(answer.body)
    elapsed, used = time.perf_counter() - started, server.cpu_seconds - cpu
    client.close()
    return Row(server.name, form, what, size / 1e6, elapsed * 1e3 / rounds, used * 1e3 / rounds)


async def watch_pods(server: ApiServer, form: str) -> Row:
    """Change pods one by one while many watch; every watcher must see every change."""
    client = server.client()
    listed = await client.do("GET", f"{PODS_PATH}?limit=1")
    since = listed["metadata"]["resourceVersion"]
    read = 0

    async def follow() -> None:
        nonlocal read
        connection = await client.connect()
        path = f"{PODS_PATH}?watch=1&resourceVersion={since}"
        await connection.send(
            request_bytes("GET", path, f"Accept: {FORMS[form]}", token=client.token)
        )
        status, _ = await connection.head()
        assert status == 200
        opened.release()
        seen = 0
        while seen < CHANGES:
            chunk = await connection.chunk()
            assert chunk, "the watch ended too early"
            read += len(chunk)
            # A server may put several events into one chunk.
            seen += chunk.count(b"MODIFIED")
        connection.vanish()

    opened = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for _ in range(WATCHERS):
            group.create_task(follow())
        for _ in range(WATCHERS):
            await opened.acquire()
        cpu, started = server.cpu_seconds, time.perf_counter()
        for number in range(CHANGES):
            change = {"metadata": {"annotations": {"changed": f"{form} {number}"}}}
            path = f"{PODS_PATH}/pod-{number % PODS:05}"
            await client.do("PATCH", path, change, content_type=MERGE_PATCH)
    elapsed, used = time.perf_counter() - started, server.cpu_seconds - cpu
    client.close()
    what = f"{CHANGES} changes, {WATCHERS} watchers"
    return Row(server.name, form, what, read / 1e6, elapsed * 1e3, used * 1e3)


async def measure(server: ApiServer) -> list[Row]:
    client = server.client()
    await fill(client)
    client.close()
    rows: list[Row] = []
    for form in FORMS:
        rows.append(await list_pods(server, form, 1, f"LIST of {PODS:,}, first"))
        rows.append(await list_pods(server, form, ROUNDS, f"LIST of {PODS:,}, again"))
    rows += [await watch_pods(server, form) for form in FORMS]
    return rows


def main() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (directory / "hub").mkdir()
        servers = [stack.enter_context(running_hub(directory / "hub"))]
        assets = find_kubernetes()
        if assets is None:
            print("no kube-apiserver and etcd found: our hub alone")
        else:
            (directory / "kubernetes").mkdir()
            servers.append(
                stack.enter_context(running_kubernetes(directory / "kubernetes", assets))
            )
        for server in servers:
            for row in asyncio.run(measure(server)):
                print(row)


if __name__ == "__main__":
    main()
