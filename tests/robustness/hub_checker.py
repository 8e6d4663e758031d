"""Compares what clients of a hub were told with the store's own log; pure.

The log is the truth: every change with its revision. Against it are held, line by line, what
writers were promised, what readers saw, and what watchers were told, across any number of kills.
"""

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.robustness.hub_load import MARKER, SHARED, SPACE

from clusterspace.apiserver.store.records import Record

PREFIX = f"/registry/core/configmaps/{SPACE}/"
OF_THE_HUB = "/kube-root-ca.crt"
"""What the hub itself puts into every namespace."""


@dataclass(frozen=True)
class Change:
    """One change of one object; `op` is the write that made it, None for a delete."""

    revision: int
    key: str
    op: str | None
    side: str | None
    before: "Change | None"


@dataclass
class Truth:
    """The log of a store, put together from looks at it: compaction forgets, we do not."""

    records: dict[int, Record] = field(default_factory=dict)
    revision: int = 1
    missing: int = 0
    changes: list[Change] = field(default_factory=list)
    last_deleted: dict[str, int] = field(default_factory=dict)

    def add(self, records: Iterable[Record], revision: int) -> None:
        self.records |= {int(record.revision): record for record in records}
        self.revision = revision
        self.missing = revision - 1 - sum(1 for each in self.records if each > 1)
        self.changes = _changes(self.records)
        self.last_deleted = {each.key: each.revision for each in self.changes if each.op is None}

    def changes_by_op(self) -> dict[str, list[Change]]:
        made: defaultdict[str, list[Change]] = defaultdict(list)
        for change in self.changes:
            if change.op is not None:
                made[change.op].append(change)
        return made

    def deletions(self) -> set[tuple[str, int]]:
        """Return which version of which key was deleted."""
        return {
            (each.key, each.before.revision)
            for each in self.changes
            if each.op is None and each.before is not None
        }

    def at(self, revision: int) -> dict[str, int]:
        """Return every object there was at a revision, with its version."""
        present: dict[str, int] = {}
        for change in self.changes:
            if change.revision > revision:
                break
            if change.op is None:
                present.pop(change.key, None)
            else:
                present[change.key] = change.revision
        return present


def _changes(records: dict[int, Record]) -> list[Change]:
    found: list[Change] = []
    latest: dict[str, Change] = {}
    for revision in sorted(records):
        record = records[revision]
        if not record.key.startswith(PREFIX) or record.key.endswith(OF_THE_HUB):
            continue
        key = record.key.removeprefix(PREFIX)
        held: Any = None if record.value is None else msgspec.json.decode(record.value)
        op = None if held is None else held["data"]["op"]
        side = None if held is None else held["metadata"]["labels"]["side"]
        before = latest.get(key)
        if before is not None and before.op is None:
            before = None
        change = latest[key] = Change(revision, key, op, side, before)
        found.append(change)
    return found


def told_as(view: str, change: Change) -> str | None:
    """Return what a change is to a view: the type of its event, or None when it is no concern."""
    is_in = change.op is not None and _selects(view, change)
    was_in = change.before is not None and _selects(view, change.before)
    if is_in:
        return "MODIFIED" if was_in else "ADDED"
    return "DELETED" if was_in else None


def _selects(view: str, change: Change) -> bool:
    kind = view.split()[0]
    if kind == "left":
        return change.side == "left"
    return kind != "one" or change.key == SHARED[0]


@dataclass(frozen=True)
class Concerns:
    """The changes a view must be told of."""

    changes: dict[int, Change]
    revisions: list[int]

    @classmethod
    def of(cls, view: str, changes: Iterable[Change]) -> "Concerns":
        found = {each.revision: each for each in changes if told_as(view, each)}
        return cls(found, sorted(found))

    def between(self, after: int, before: int) -> list[int]:
        first, last = bisect_right(self.revisions, after), bisect_left(self.revisions, before)
        return self.revisions[first:last]


@dataclass
class HubChecker:
    """What is known so far; `problems` must stay empty."""

    truth: Truth = field(default_factory=Truth)
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0
    expired: int = 0
    _intents: dict[str, list[Any]] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    def check_round(
        self,
        ledger: Iterable[list[Any]],
        diary: Iterable[list[Any]],
        records: Iterable[Record],
        revision: int,
    ) -> None:
        """Hold the lines that are new against the log as it is after a kill."""
        if revision < self.truth.revision:
            self._blame(f"the revision went back from {self.truth.revision} to {revision}")
        self.truth.add(records, revision)
        self._check_ledger(ledger)
        self._check_diary(diary)

    def unfinished(self, views: Iterable[str]) -> list[str]:
        """Return the watches that never saw the last write."""
        return [view for view in views if view not in self._finished]

    # -- writers -------------------------------------------------------------------------------

    def _check_ledger(self, ledger: Iterable[list[Any]]) -> None:
        by_revision = {change.revision: change for change in self.truth.changes}
        made = self.truth.changes_by_op()
        deleted = self.truth.deletions()
        for kind, *rest in ledger:
            match kind:
                case "intent":
                    self._intents[rest[0]] = rest
                case "ack":
                    self._check_ack(rest[0], rest[1], by_revision, deleted)
                case "refused":
                    if rest[0] in made:
                        self._blame(f"{rest[0]} was refused and happened all the same")
                case "read":
                    self._check_read(*rest, by_revision=by_revision)
                case _:
                    self._check_list("a writer's list", *rest)
        self._check_made(made)

    def _check_made(self, made: dict[str, list[Change]]) -> None:
        """Every write in the log was asked for, and happened once."""
        for op, changes in made.items():
            if len(changes) > 1:
                self._blame(f"{op} happened {len(changes)} times")
            if op not in self._intents:
                self._blame(f"{op} happened and nobody asked for it")

    def _check_ack(
        self,
        op: str,
        revision: int | None,
        by_revision: dict[int, Change],
        deleted: set[tuple[str, int]],
    ) -> None:
        self.acknowledged += 1
        _, verb, key, expected = self._intents[op]
        if verb == "delete":
            if (key, expected) not in deleted:
                self._blame(f"the delete of {key} at {expected} was acknowledged and is lost")
            return
        change = by_revision.get(revision or 0)
        if change is None or (change.key, change.op) != (key, op):
            self._blame(f"{op} of {key} was acknowledged at {revision}; {change} is there")
        elif expected is not None and (change.before is None or change.before.revision != expected):
            self._blame(f"{op} of {key} expected {expected} and replaced {change.before}")

    def _check_read(
        self,
        key: str,
        floor: int,
        revision: int | None,
        op: str | None,
        *,
        by_revision: dict[int, Change],
    ) -> None:
        if revision is None:
            if floor and self.truth.last_deleted.get(key, 0) < floor:
                self._blame(f"{key} was promised at {floor} and a read did not find it")
            return
        change = by_revision.get(revision)
        if change is None or (change.key, change.op) != (key, op):
            self._blame(f"a read saw {key} with {op} at {revision}; the log has {change}")
        if revision < floor:
            self._blame(f"a read saw {key} at {revision} after {floor} was promised")

    def _check_list(self, who: str, floor: int, revision: int, shown: dict[str, int]) -> None:
        if revision < floor:
            self._blame(f"{who} is of revision {revision}, after {floor} was promised")
        there = self.truth.at(revision)
        if shown != there:
            wrong = sorted(set(shown.items()) ^ set(there.items()))
            self._blame(f"{who} at {revision} differs from the log: {wrong[:5]}")

    # -- watchers ------------------------------------------------------------------------------

    def _check_diary(self, diary: Iterable[list[Any]]) -> None:
        concerns: dict[str, Concerns] = {}
        for kind, view, *rest in diary:
            if view not in concerns:
                concerns[view] = Concerns.of(view, self.truth.changes)
            match kind:
                case "jump":
                    self._places[view] = rest[0]
                case "list":
                    self._check_listing(view, rest[0], rest[1])
                case "over":
                    self._finished.add(view)
                case "expired":
                    self.expired += 1
                case "bookmark":
                    self._check_gap(view, concerns[view], rest[0] + 1)
                    self._places[view] = max(self._places[view], rest[0])
                case _:
                    self._check_event(view, concerns[view], *rest)

    def _check_listing(self, view: str, revision: int, shown: dict[str, int]) -> None:
        floor = 0 if "jumping" in view else self._places.get(view, 0)
        self._places[view] = revision
        present = self.truth.at(revision)
        there = {
            change.key: change.revision
            for change in self.truth.changes
            if present.get(change.key) == change.revision and _selects(view, change)
        }
        if revision < floor:
            self._blame(f"the list of {view!r} is of {revision}, after {floor} was seen")
        if shown != there:
            wrong = sorted(set(shown.items()) ^ set(there.items()))
            self._blame(f"the list of {view!r} at {revision} differs from the log: {wrong[:5]}")

    def _check_gap(self, view: str, concerns: "Concerns", upto: int) -> None:
        for revision in concerns.between(self._places[view], upto):
            self._blame(f"watch {view!r} was never told of revision {revision}")

    def _check_event(
        self,
        view: str,
        concerns: "Concerns",
        kind: str,
        key: str,
        revision: int,
        op: str,
    ) -> None:
        self.delivered += 1
        place = self._places[view]
        if revision <= place:
            self._blame(f"watch {view!r} got revision {revision} after {place}")
            return
        self._check_gap(view, concerns, revision)
        self._places[view] = revision
        change = concerns.changes.get(revision)
        if change is None:
            self._blame(f"watch {view!r} was told of {revision} ({kind} {key}), which is lost")
            return
        expected = told_as(view, change)
        shown = change.op
        if expected == "DELETED":
            shown = change.before.op if change.before else None
        if (kind, key, op) != (expected, change.key, shown):
            told, true = (kind, key, op), (expected, change.key, shown)
            self._blame(f"watch {view!r} was told {told} at {revision}; the log says {true}")
        if op == MARKER:
            self._finished.add(view)

    def _blame(self, problem: str) -> None:
        self.problems.append(problem)


def read_lines(text: bytes) -> tuple[list[list[Any]], int]:
    """Return the whole lines of a journal and how many bytes they take."""
    end = text.rfind(b"\n") + 1
    return [json.loads(line) for line in text[:end].splitlines()], end
