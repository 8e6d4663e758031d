"""What an informer costs: memory per object against its JSON, events per second to the queue.

python -m tests.bench.bench_informers

The server is a process of its own that writes prepared bytes; the informer, its cache, the queue
and the workers run in this one, over a loopback connection.
"""

import asyncio
import gc
import multiprocessing
import sys
import time
import tracemalloc
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from random import Random
from typing import Any

import msgspec

from clusterspace.aio import event_loop
from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, read_page
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.controller import Controller, Done, Request, Result, Watch
from clusterspace.controllers.informers import Cache, Informer, by_label, by_owner_uid
from clusterspace.telemetry.logs import Format, Level, configure
from clusterspace.testing.builders import PODS

OBJECTS = 10_000
EVENTS = 50_000
PAGE = 500
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


def pod_of(number: int, version: int, padding: int) -> dict[str, Any]:
    """Return a pod with about the metadata real ones have, and some more bytes."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"web-{number:06}",
            "namespace": f"team-{number % 50}",
            "uid": f"{number:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(version),
            "labels": {"app": f"app-{number % 200}", "tier": "front"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": f"o{number % 3000}"}],
        },
        "spec": {"containers": [{"name": "main", "image": "web:1", "args": ["x" * padding]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


def pages_of(padding: int) -> list[bytes]:
    """Return the list in pages, as a server sends them."""
    pods = [pod_of(number, number + 1, padding) for number in range(OBJECTS)]
    return [
        msgspec.json.encode(
            {
                "kind": "PodList",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"},
                "items": pods[start : start + PAGE],
            }
        )
        for start in range(0, OBJECTS, PAGE)
    ]


def grown_by(fill: Callable[[], object]) -> float:
    """Return the bytes that live on after filling something."""
    gc.collect()
    tracemalloc.start()
    held = fill()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del held
    return grown


def filled_cache(pages: list[bytes], **indexes: Any) -> Cache:
    cache = Cache(indexes)
    for body in pages:
        for item in read_page("bench", body).items:
            cache.put(item)
    return cache


def measure_memory(padding: int) -> None:
    pages = pages_of(padding)
    size = len(msgspec.json.encode(pod_of(1, 1, padding)))
    kinds: dict[str, Callable[[], object]] = {
        "informer": lambda: filled_cache(pages),
        "informer, two indexes": lambda: filled_cache(
            pages, owner=by_owner_uid, app=by_label("app")
        ),
        "decoded objects": lambda: [msgspec.json.decode(body) for body in pages],
    }
    for name, fill in kinds.items():
        each = grown_by(fill) / OBJECTS
        print(f"memory, {name:24} {size:6} B of JSON  {each:8.0f} B held  {each / size:5.2f}x")


async def serve(pipe: Pipe) -> None:
    initial = b"".join(
        msgspec.json.encode({"type": "ADDED", "object": pod_of(number, number + 1, 1500)}) + b"\n"
        for number in range(1000)
    )
    metadata = {"resourceVersion": "5000", "annotations": {"k8s.io/initial-events-end": "true"}}
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": metadata}}
    batches = [
        b"".join(
            msgspec.json.encode(
                {"type": "MODIFIED", "object": pod_of(number % 1000, 10_000 + number, 1500)}
            )
            + b"\n"
            for number in range(start, start + 50)
        )
        for start in range(0, EVENTS, 50)
    ]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + initial + msgspec.json.encode(bookmark) + b"\n")
        await asyncio.to_thread(pipe.recv)
        for batch in batches:
            writer.write(batch)
            await writer.drain()
        await asyncio.to_thread(pipe.recv)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def run_server(pipe: Pipe) -> None:
    event_loop.run(serve(pipe))


async def follow(port: int, begin: Callable[[], None], *, reconciles: bool) -> None:
    connection = Connection(
        ConnectionSettings("bench", f"http://127.0.0.1:{port}"),
        clock=SystemClock(),
        random=Random(1),
    )
    informer = Informer(
        ClusterClient(connection), ResourcePath(PODS), indexes={"owner": by_owner_uid}
    )
    seen = 0
    reconciled = 0
    all_seen = asyncio.Event()

    def count(_update: object) -> None:
        nonlocal seen
        seen += 1
        if seen == EVENTS:
            all_seen.set()

    async def reconcile(_request: Request) -> Result:
        nonlocal reconciled
        reconciled += 1
        return Done()

    tasks = [asyncio.create_task(informer.run())]
    if reconciles:
        controller = Controller("bench", reconcile, clock=SystemClock(), random=Random(1))
        controller.watch(Watch(informer))
        tasks.append(asyncio.create_task(controller.run()))
    await informer.wait_synced()
    informer.add_handler(count)
    seen = 0
    begin()
    started, cpu = time.perf_counter(), time.process_time()
    await all_seen.wait()
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    what = "cache, index, queue, reconcile" if reconciles else "cache and index"
    print(
        f"events to {what:32} {EVENTS / elapsed:8.0f}/s  "
        f"{used / EVENTS * 1e6:5.1f} us CPU each  {reconciled} reconciles"
    )
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await connection.close()


def main() -> None:
    for padding in (100, 1500, 4000):
        measure_memory(padding)
    configure(Format.JSON, Level.WARNING, sys.stderr)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_server, args=(theirs,))
    process.start()
    port = ours.recv()
    for reconciles in (False, True):
        event_loop.run(follow(port, lambda: ours.send(None), reconciles=reconciles))
        ours.send(None)
    process.terminate()
    process.join()


if __name__ == "__main__":
    main()
