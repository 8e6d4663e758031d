"""How fast the store writes, tells and reads, as ratios of figures from one run on one disk.

python -m tests.bench.bench_store [DIRECTORY]
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from clusterspace.aio import event_loop
from clusterspace.apiserver.store.files import StoreFile
from clusterspace.apiserver.store.interface import Event, EventType, KeyValue, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.store.sqlite import SqliteStore

VALUE = b"x" * 2000
SECONDS = 2.0
WATCHERS = 1_000
EVENTS = 200
KEYS = 10_000
POD = b"x" * 4500


@dataclass(frozen=True)
class Figure:
    """One measurement and, where it has one, what it is compared with."""

    name: str
    value: float
    unit: str
    ratio: float | None = None


def commit_one_by_one(directory: Path) -> float:
    """Return commits per second when every write has a transaction and an fsync of its own."""
    file = StoreFile.open(directory / "single.db")
    started = time.perf_counter()
    revision = Revision(1)
    while time.perf_counter() - started < SECONDS:
        revision = Revision(revision + 1)
        item = KeyValue(f"/a/{revision % 200}", VALUE, revision, revision)
        file.append([Event(EventType.PUT, item, previous=None)])
    elapsed = time.perf_counter() - started
    file.close()
    return (revision - 1) / elapsed


async def commit_together(directory: Path, writers: int) -> float:
    """Return writes per second of this many concurrent writers."""
    store = await SqliteStore.open(directory / f"group-{writers}.db")
    started = time.perf_counter()

    async def write(name: int) -> None:
        number = 0
        while time.perf_counter() - started < SECONDS:
            await store.put(f"/{name}/{number % 200}", VALUE)
            number += 1

    async with asyncio.TaskGroup() as group:
        for name in range(writers):
            group.create_task(write(name))
    rate = (store.current_revision - 1) / (time.perf_counter() - started)
    await store.close()
    return rate


async def tell_watchers(count: int) -> float:
    """Return events per second handed to the readers of this many watches."""
    store = MemoryStore()

    async def read(ready: asyncio.Barrier) -> None:
        watch = store.watch("/pods/", after=store.current_revision)
        await ready.wait()
        seen = 0
        while seen < EVENTS:
            seen += len(await anext(watch))

    ready = asyncio.Barrier(count + 1)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(read(ready))
        await ready.wait()
        started = time.perf_counter()
        for number in range(EVENTS):
            await store.put(f"/pods/{number}", VALUE)
            await asyncio.sleep(0)  # let the readers have this one before the next
    return count * EVENTS / (time.perf_counter() - started)


class CountingSink:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.seen = 0

    def receive(self, events: tuple[Event, ...]) -> None:
        self.seen += len(events)

    def end(self, reason: object) -> None:
        del reason


async def tell_sinks(count: int) -> float:
    """Return events per second handed to this many subscriptions."""
    store = MemoryStore()
    sinks = [CountingSink() for _ in range(count)]
    for sink in sinks:
        store.subscribe("/pods/", after=store.current_revision, sink=sink)
    started = time.perf_counter()
    for number in range(EVENTS):
        await store.put(f"/pods/{number}", VALUE)
    elapsed = time.perf_counter() - started
    return sum(sink.seen for sink in sinks) / elapsed


async def read_range(directory: Path) -> tuple[float, float]:
    """Return MB/s of a range of all keys joined into one answer, and the seconds to open."""
    path = directory / "range.db"
    store = await SqliteStore.open(path)
    async with asyncio.TaskGroup() as group:
        for number in range(KEYS):
            group.create_task(store.put(f"/pods/{number:05}", POD))
    await store.close()
    started = time.perf_counter()
    store = await SqliteStore.open(path)
    opened = time.perf_counter() - started
    rounds = 20
    started = time.perf_counter()
    for _ in range(rounds):
        page = await store.range("/pods/")
        b",".join([item.value for item in page.items])
    elapsed = time.perf_counter() - started
    await store.close()
    return rounds * KEYS * len(POD) / 1e6 / elapsed, opened


async def measure(directory: Path) -> list[Figure]:
    """Take every figure, one after the other."""
    single = await asyncio.to_thread(commit_one_by_one, directory)
    figures = [Figure("one fsync per write", single, "commits/s", 1.0)]
    for writers in (1, 8, 64):
        rate = await commit_together(directory, writers)
        figures.append(Figure(f"{writers} concurrent writers", rate, "commits/s", rate / single))
    one_watcher = await tell_watchers(1)
    for name, tell in _fan_outs().items():
        rate = await tell(WATCHERS)
        figures.append(Figure(name, rate, "events/s", rate / one_watcher))
    megabytes, opened = await read_range(directory)
    figures.append(Figure(f"range of {KEYS:,} keys of {len(POD):,} bytes", megabytes, "MB/s"))
    figures.append(Figure(f"open a store of {KEYS:,} keys", opened * 1000, "ms"))
    return figures


def _fan_outs() -> dict[str, Callable[[int], Awaitable[float]]]:
    return {f"{WATCHERS:,} watches": tell_watchers, f"{WATCHERS:,} subscriptions": tell_sinks}


def print_figures(figures: list[Figure]) -> None:
    """Print the table: commits compare with one fsync per write, events with a single watch."""
    print(f"{'store':40}{'figure':>14}  {'unit':10}{'ratio':>8}")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.1f}x"
        print(f"{figure.name:40}{figure.value:>14,.0f}  {figure.unit:10}{ratio:>8}")


def main() -> None:
    """Measure in the given directory, or in a temporary one."""
    given = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=given) as directory:
        print_figures(event_loop.run(measure(Path(directory))))


if __name__ == "__main__":
    main()
