"""Clients of several hubs on one etcd, what they were told, and what happened around them.

Clients read, create, replace and delete a few keys at whichever hub they like, and note every call
with its times and its answer. Watchers follow all keys, each going on at another hub when its own
breaks. Faults hit one process at a time, by a seed. Afterwards the history must be linearizable,
and every watcher must have seen what etcd's own log has.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Protocol

from tests.robustness.linearizability import Kind, Operation, Outcome, violations

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient, EtcdSettings
from clusterspace.apiserver.store.etcd.store import EtcdStore, compact_etcd
from clusterspace.apiserver.store.interface import ABSENT, Event, Revision
from clusterspace.errors import (
    Compacted,
    OutcomeUnknown,
    RevisionMismatch,
    StoreError,
    StoreUnavailable,
    WatcherEvicted,
)
from clusterspace.testing.etcd import EtcdCluster
from clusterspace.testing.steps import until


class NotDoneError(Exception):
    """It certainly had no effect."""


class RefusedError(Exception):
    """It was compared, and the key was not as expected."""


class UnknownError(Exception):
    """Nobody said what became of it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a read showed: the value, and the version to replace it by."""

    value: str | None
    version: int


class Hub(Protocol):
    """A hub as these clients use it."""

    async def read(self, key: str) -> Seen: ...

    async def create(self, key: str, value: str) -> int: ...

    async def update(self, key: str, value: str, version: int) -> int: ...

    async def delete(self, key: str, version: int) -> None: ...


class StoreHub:
    """A hub that is nothing but its store, in this process."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store

    async def read(self, key: str) -> Seen:
        try:
            await self.store.sync()
            item = await self.store.get(key)
        except StoreError as error:
            raise NotDoneError from error
        return Seen(None, 0) if item is None else Seen(item.value.decode(), item.mod_revision)

    async def create(self, key: str, value: str) -> int:
        return await self._write(self.store.put(key, value.encode(), expected=ABSENT))

    async def update(self, key: str, value: str, version: int) -> int:
        return await self._write(self.store.put(key, value.encode(), expected=Revision(version)))

    async def delete(self, key: str, version: int) -> None:
        await self._write(self.store.delete(key, expected=Revision(version)))

    async def _write(self, write: Awaitable[object]) -> int:
        try:
            return int(getattr(await write, "mod_revision", 0))
        except RevisionMismatch as error:
            raise RefusedError from error
        except OutcomeUnknown as error:
            raise UnknownError from error
        except StoreUnavailable as error:
            raise NotDoneError from error


@dataclass(slots=True)
class History:
    """All calls of all clients, in one clock."""

    operations: list[Operation] = field(default_factory=list[Operation])

    @property
    def done(self) -> int:
        return sum(each.outcome is Outcome.DONE for each in self.operations)

    @property
    def longest_pause(self) -> float:
        """The longest time in which no write was answered as done."""
        times = sorted(
            each.answered
            for each in self.operations
            if each.outcome is Outcome.DONE and each.kind is not Kind.READ
        )
        return max((b - a for a, b in pairwise(times)), default=0.0)

    @property
    def unknown(self) -> int:
        return sum(each.outcome is Outcome.UNKNOWN for each in self.operations)


async def run_client(
    name: int, hubs: Sequence[Hub], history: History, seed: int, end: float
) -> None:
    """Call what the seed says until the time has come."""
    random = Random(f"{seed} {name}")
    known: dict[str, Seen] = {}
    count = 0
    while time.monotonic() < end:
        count += 1
        key, hub = f"/key-{random.randrange(4)}", random.choice(hubs)
        seen = known.get(key)
        value = f"{name}-{count}"
        kind = Kind.READ
        if seen is not None and random.random() < 0.6:
            kind = Kind.CREATE if seen.value is None else Kind.UPDATE
            if kind is Kind.UPDATE and random.random() < 0.2:
                kind = Kind.DELETE
        called = time.monotonic()

        def note(
            outcome: Outcome,
            value: str | None,
            kind: Kind = kind,
            key: str = key,
            called: float = called,
            expected: str | None = None if seen is None else seen.value,
        ) -> None:
            history.operations.append(
                Operation(key, kind, called, time.monotonic(), outcome, value, expected)
            )

        written = None if kind is Kind.DELETE else value
        try:
            if kind is Kind.READ or seen is None:
                known[key] = await hub.read(key)
                note(Outcome.DONE, known[key].value)
                continue
            if kind is Kind.CREATE:
                known[key] = Seen(value, await hub.create(key, value))
            elif kind is Kind.UPDATE:
                known[key] = Seen(value, await hub.update(key, value, seen.version))
            else:
                await hub.delete(key, seen.version)
                known[key] = Seen(None, 0)
            note(Outcome.DONE, written)
        except RefusedError:
            note(Outcome.REFUSED, written)
            known.pop(key, None)
        except UnknownError:
            note(Outcome.UNKNOWN, written)
            known.pop(key, None)
        except NotDoneError:
            known.pop(key, None)
            await asyncio.sleep(0.05)
        await asyncio.sleep(random.random() * 0.01)


# -- watchers ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Diary:
    """What one watcher was told, in pieces: each begins where a list or a piece before it ended."""

    pieces: list[tuple[int, int, list[Event]]] = field(
        default_factory=list[tuple[int, int, list[Event]]]
    )
    listed_again: int = 0


async def run_watcher(stores: Sequence[EtcdStore], diary: Diary, seed: int) -> None:
    """Follow all keys, now at one store and now at another, until cancelled."""
    random = Random(f"watcher {seed}")
    after = stores[0].current_revision
    while True:
        store = random.choice(stores)
        events: list[Event] = []
        reached = after
        try:
            watch = store.watch("/key-", after=after)
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(random.random() * 2):
                        async for batch in watch:
                            events.extend(batch)
            finally:
                # How far it is complete is what a client would resume from; for what it was told
                # last that is at least its revision.
                reached = max(after, *(each.revision for each in events[-1:]), after)
                diary.pieces.append((after, reached, events))
                watch.close()
                after = Revision(reached)
        except (Compacted, WatcherEvicted):
            diary.listed_again += 1
            with suppress(StoreError):
                await store.sync()
            after = store.current_revision
        await asyncio.sleep(0.01)


async def follow_log(settings: EtcdSettings, start: int, log: list[messages.Change]) -> None:
    """Note every change of the prefix from etcd itself, until cancelled."""
    client = await EtcdClient.open(settings)
    first, end = f"{settings.prefix}/key-".encode(), f"{settings.prefix}/key.".encode()
    after = start
    try:
        while True:
            with suppress(StoreUnavailable):
                async with client.watch() as stream:
                    await stream.write(messages.watch_request(first, end, after + 1))
                    while (data := await stream.read()) is not None:
                        answer = messages.read_watch(data)
                        for change in answer.changes:
                            log.append(change)
                            after = change.stored.mod_revision
            await asyncio.sleep(0.05)
    finally:
        await client.close()


def watch_violations(diary: Diary, log: Sequence[messages.Change], prefix: str) -> list[str]:
    """Compare every piece of a diary with the log: the same changes, in order, none left out."""
    found: list[str] = []
    for after, reached, events in diary.pieces:
        told = [(f"{prefix}{each.key}".encode(), int(each.revision)) for each in events]
        happened = [
            (each.stored.key, each.stored.mod_revision)
            for each in log
            if after < each.stored.mod_revision <= reached
        ]
        if told != happened:
            found.append(f"between {after} and {reached} was told {told}, and happened {happened}")
    return found


# -- faults --------------------------------------------------------------------------------------


async def make_trouble(
    cluster: EtcdCluster,
    seed: int,
    end: float,
    others: Sequence[Callable[[Random], Awaitable[None]]] = (),
    log: Sequence[messages.Change] | None = None,
) -> list[str]:
    """Hit one process after the other until the time has come; return what was done.

    What a `log` has not noted yet is not compacted: who judges by it would wait for ever for
    changes that etcd no longer has.
    """
    random = Random(f"faults {seed}")
    done: list[str] = []

    async def kill() -> None:
        member = random.choice(cluster.members)
        await member.kill()
        await asyncio.sleep(random.uniform(0.2, 1.0))
        await member.start()

    async def freeze() -> None:
        member = random.choice(cluster.members)
        member.freeze()
        await asyncio.sleep(random.uniform(0.5, 3.0))
        member.thaw()

    async def compact() -> None:
        with suppress(StoreError):
            client = await EtcdClient.open(cluster.settings)
            try:
                answer = await client.read(messages.RANGE, messages.range_request(b"/"))
                revision = messages.read_range(answer).revision
                if log is not None:
                    revision = min(revision, log[-1].stored.mod_revision if log else 0)
                await compact_etcd(client, revision)
            finally:
                await client.close()

    own = {"kill": kill, "freeze": freeze, "compact": compact}
    while time.monotonic() < end:
        name = random.choice([*own, *(f"other {place}" for place in range(len(others)))])
        done.append(name)
        if name in own:
            await own[name]()
        else:
            await others[int(name.split()[1])](random)
        await asyncio.sleep(random.uniform(0.1, 0.8))
    return done


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one run came to."""

    history: History
    faults: list[str]
    problems: list[str]

    def __str__(self) -> str:
        return (
            f"{len(self.history.operations)} calls, {self.history.done} done,"
            f" {self.history.unknown} without an answer; faults: {', '.join(self.faults) or 'none'}"
        )


async def judge(
    cluster: EtcdCluster,
    settings: EtcdSettings,
    stores: Sequence[EtcdStore],
    *,
    seed: int,
    seconds: float,
    has_faults: bool = True,
) -> Verdict:
    """Run clients, watchers and faults for a while, and judge what was seen."""
    history, log = History(), list[messages.Change]()
    diaries = [Diary() for _ in range(3)]
    end = time.monotonic() + seconds
    hubs = [StoreHub(each) for each in stores]
    start = max([await store.sync() for store in stores])
    faults: list[str] = []
    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(follow_log(settings, start, log))]
        followers += [
            group.create_task(run_watcher(stores, diary, seed * 10 + place))
            for place, diary in enumerate(diaries)
        ]
        clients = [
            group.create_task(run_client(name, hubs, history, seed, end)) for name in range(6)
        ]
        if has_faults:
            faults = await make_trouble(cluster, seed, end, log=log)
        await asyncio.wait(clients)
        # A last write behind everything: when the log has it, the log has all.
        last = await _last_write(stores[0])
        await until(lambda: bool(log) and log[-1].stored.mod_revision >= last)
        for each in followers:
            each.cancel()
    problems = violations(history.operations)
    for diary in diaries:
        problems += watch_violations(diary, log, settings.prefix)
    return Verdict(history, faults, problems)


async def _last_write(store: EtcdStore) -> int:
    while True:
        try:
            return (await store.put("/key-last", str(time.monotonic()).encode())).mod_revision
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(0.2)
