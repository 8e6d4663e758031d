"""The process that gets killed: writers with a ledger, watchers with a diary, on one store.

    python -m tests.robustness.crash_writer DIRECTORY ROUND SEED [--compact] [--plant BUG]

Every write is in the ledger twice: before it is asked for (`intent`) and after its answer (`ack`).
Each writer has keys of its own, so after a kill a key is either as last acknowledged or as last
intended. Ledger and diary are written straight to the file; the ledger is fsynced, as a client
that must remember what it was promised would do.
"""

import argparse
import asyncio
import json
import os
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clusterspace.apiserver.store import sqlite
from clusterspace.apiserver.store.commits import GroupCommit, Submission, decide_batch
from clusterspace.apiserver.store.interface import Event, Revision
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.errors import Compacted, WatcherEvicted

WRITERS = 8
KEYS_EACH = 10
KEPT_REVISIONS = 500


class Journal:
    """A file of JSON lines, each with the process's word that it is written."""

    def __init__(self, path: Path, *, synced: bool) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._synced = synced

    def write(self, *fields: Any) -> None:
        os.write(self._descriptor, json.dumps(fields).encode() + b"\n")
        if self._synced:
            os.fdatasync(self._descriptor)


class AnswersBeforeCommit(GroupCommit):
    """A planted bug: the answer leaves before the transaction, which is fifty milliseconds late."""

    def _commit(self, batch: list[Submission]) -> None:
        verdicts = decide_batch(batch, self._heads, self._file.state.revision)
        events = tuple(v.outcome for v in verdicts if isinstance(v.outcome, Event))
        for event in events:
            self._advance(event)
        self._call_loop(self._deliver, events, verdicts)
        time.sleep(0.05)
        self._file.append(events)


class DropsEvents(SqliteStore):
    """A planted bug: one event in a thousand is readable but never delivered."""

    def _publish(self, events: tuple[Event, ...]) -> None:
        self._index.apply(events)
        kept = tuple(event for event in events if event.revision % 1000)
        if kept:
            self._watchers.publish(kept)


async def open_store(path: Path, plant: str | None) -> SqliteStore:
    if plant == "answer-before-commit":
        sqlite.GroupCommit = AnswersBeforeCommit
    kind = DropsEvents if plant == "drop-events" else SqliteStore
    return await kind.open(path)


async def write_for_ever(store: SqliteStore, name: int, ledger: Journal, seed: int) -> None:
    dice = random.Random(f"{seed} writer {name}")
    while True:
        key = f"/writer-{name}/{dice.randrange(KEYS_EACH)}"
        held = await store.get(key)
        if held is not None and dice.random() < 0.2:
            ledger.write("intent", key, None)
            deleted = await store.delete(key, expected=held.mod_revision)
            ledger.write("ack", key, None, deleted.mod_revision)
            continue
        value = dice.randbytes(dice.choice([20, 500, 5000]))
        ledger.write("intent", key, zlib.crc32(value))
        expected = held.mod_revision if held is not None else Revision(0)
        written = await store.put(key, value, expected=expected)
        ledger.write("ack", key, zlib.crc32(value), written.mod_revision)


async def watch_for_ever(
    store: SqliteStore, prefix: str, diary: Journal, choose_start: Callable[[], Revision]
) -> None:
    """Write down everything a watch tells; start again when it ends, or after a while."""
    number = 0
    while True:
        number += 1
        name = f"{prefix} {number}"
        start = choose_start()
        watch = store.watch(prefix, after=start)
        diary.write("start", name, prefix, start)
        try:
            async with asyncio.timeout(0.1 * number):
                async for events in watch:
                    for event in events:
                        digest = None if event.is_delete else zlib.crc32(event.value)
                        diary.write("event", name, event.revision, event.key, digest)
        except TimeoutError:
            diary.write("progress", name, watch.revision)
        except (Compacted, WatcherEvicted):
            continue


async def compact_for_ever(store: SqliteStore) -> None:
    while True:
        await asyncio.sleep(0.02)
        await store.compact(Revision(max(1, store.current_revision - KEPT_REVISIONS)))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("round", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--plant", choices=["answer-before-commit", "drop-events"])
    chosen = parser.parse_args()
    dice = random.Random(chosen.seed)
    store = await open_store(chosen.directory / "store.db", chosen.plant)
    ledger = Journal(chosen.directory / f"ledger-{chosen.round}", synced=True)
    diary = Journal(chosen.directory / f"diary-{chosen.round}", synced=False)
    print("ready", flush=True)

    def somewhere() -> Revision:
        lowest = max(store.oldest_revision, store.current_revision - 300)
        return Revision(dice.randint(lowest, store.current_revision + 50))

    async with asyncio.TaskGroup() as group:
        for name in range(WRITERS):
            group.create_task(write_for_ever(store, name, ledger, chosen.seed))
        group.create_task(watch_for_ever(store, "", diary, lambda: store.current_revision))
        group.create_task(watch_for_ever(store, "/", diary, somewhere))
        group.create_task(watch_for_ever(store, "/writer-3/", diary, somewhere))
        if chosen.compact:
            group.create_task(compact_for_ever(store))


if __name__ == "__main__":
    asyncio.run(main())
