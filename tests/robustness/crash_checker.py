"""Compares what clients were told with what the store still knows after a kill; pure."""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from clusterspace.apiserver.store.records import Record

Held = tuple[int, int] | None
"""A key's mod revision and the checksum of its value, or None when it is not there."""


@dataclass(frozen=True)
class Aftermath:
    """What the store holds after a kill, read from its file."""

    revision: int
    oldest: int
    log: dict[int, Record]
    present: dict[str, Held]


@dataclass
class CrashChecker:
    """What is known to be promised, round after round; `problems` must stay empty."""

    revision: int = 1
    present: dict[str, Held] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0

    def check_round(
        self, ledger: list[list[Any]], diary: list[list[Any]], after: Aftermath
    ) -> None:
        self._check_ledger(ledger, after)
        self._check_diary(diary, after)
        if after.revision < self.revision:
            self._blame(f"the revision went back from {self.revision} to {after.revision}")
        self.revision, self.present = after.revision, after.present

    def _check_ledger(self, ledger: list[list[Any]], after: Aftermath) -> None:
        promised = dict(self.present)
        intended: dict[str, int | None] = {}
        revisions: set[int] = set()
        for kind, key, digest, *revision in ledger:
            if kind == "intent":
                intended[key] = digest
                continue
            del intended[key]
            self.acknowledged += 1
            if revision[0] in revisions or revision[0] <= self.revision:
                self._blame(f"revision {revision[0]} was given out twice")
            revisions.add(revision[0])
            promised[key] = None if digest is None else (revision[0], digest)
        for key in promised.keys() | after.present.keys() | intended.keys():
            self._check_key(key, promised.get(key), intended, after)
        if revisions and max(revisions) > after.revision:
            self._blame(f"revision {max(revisions)} was acknowledged, {after.revision} is there")

    def _check_key(
        self, key: str, promised: Held, intended: dict[str, int | None], after: Aftermath
    ) -> None:
        held = after.present.get(key)
        if held == promised:
            return
        if key in intended and (held[1] if held else None) == intended[key]:
            return  # asked for, never answered, happened: allowed
        self._blame(f"{key}: {promised} was acknowledged, {held} is there")

    def _check_diary(self, diary: list[list[Any]], after: Aftermath) -> None:
        places: dict[str, int] = {}
        prefixes: dict[str, str] = {}
        for kind, name, *rest in diary:
            if kind == "start":
                prefixes[name], places[name] = rest
                continue
            reached = rest[0]
            missed = reached if kind == "progress" else reached - 1
            self._check_gap(name, prefixes[name], range(places[name] + 1, missed + 1), after)
            if kind == "event":
                self._check_event(name, places[name], rest, after)
            places[name] = max(places[name], reached)

    def _check_gap(self, name: str, prefix: str, skipped: range, after: Aftermath) -> None:
        """Nothing that happened between two events of a watch may match its prefix.

        Where compaction has erased the record, we still know that something happened.
        """
        for revision in skipped:
            record = after.log.get(revision)
            key = record.key if record is not None else "/"  # what every key starts with
            if key.startswith(prefix):
                self._blame(f"watch {name!r} was never told of revision {revision}")

    def _check_event(self, name: str, place: int, event: list[Any], after: Aftermath) -> None:
        revision, key, digest = event
        self.delivered += 1
        if revision <= place:
            self._blame(f"watch {name!r} got revision {revision} after {place}")
        if revision > after.revision:
            self._blame(f"watch {name!r} was told of revision {revision}, which is lost")
        record = after.log.get(revision)
        if record is None and revision > after.oldest:
            self._blame(f"watch {name!r} was told of revision {revision}, which is not in the log")
        if record is not None and (record.key, digest_of(record)) != (key, digest):
            self._blame(f"watch {name!r} was told something else than the log about {revision}")

    def _blame(self, problem: str) -> None:
        self.problems.append(problem)


def digest_of(record: Record) -> int | None:
    return None if record.value is None else zlib.crc32(record.value)


def read_aftermath(records: Iterable[Record], revision: int, oldest: int) -> Aftermath:
    log = {int(record.revision): record for record in records}
    present: dict[str, Held] = {}
    for record in log.values():
        digest = digest_of(record)
        present[record.key] = None if digest is None else (record.revision, digest)
    held: dict[str, Held] = {key: value for key, value in present.items() if value is not None}
    return Aftermath(revision, oldest, log, held)


def read_journal(text: bytes) -> Iterator[list[Any]]:
    """Read the lines of a journal; the last may be cut by the kill."""
    for line in text.split(b"\n")[:-1]:
        yield json.loads(line)
