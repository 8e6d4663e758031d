"""Holds what a client of a unified watch was told against the logs of the clusters; pure.

One rule says it all: whoever has read everything up to an event has, of each cluster, exactly what
the cluster's own log has at the version which the event's vector tells. From that it follows that
the client may go on from any vector it was ever given. Beside it stand the rules for single events:
in order, once, none left out, of the right type, with the object's own version in reach of a write.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.merge import versions

State: TypeAlias = Mapping[str, tuple[str, str]]
"""The objects of one cluster: UID and version of each, by `namespace/name`."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One change in the log of a cluster; `labels` is None for a deletion."""

    revision: int
    key: str
    uid: str
    labels: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a change is to a client that sees only what it selects."""

    revision: int
    key: str
    uid: str
    type: str


class ClusterLog:
    """What happened in one cluster, as a client with a selector is to be told of it."""

    def __init__(
        self,
        changes: Iterable[Logged],
        selects: Callable[[Mapping[str, str]], bool] = lambda _labels: True,
        *,
        forgotten: int = 0,
    ) -> None:
        self.shown = tuple(_shown(sorted(changes, key=lambda each: each.revision), selects))
        self.forgotten = forgotten
        """Up to this revision the cluster may have been listed instead: only the sum counts."""
        self._revisions = [each.revision for each in self.shown]

    def between(self, after: int, upto: int) -> tuple[Shown, ...]:
        """Return the events after one revision and up to another."""
        return self.shown[
            bisect_right(self._revisions, after) : bisect_right(self._revisions, upto)
        ]

    def at(self, revision: int) -> dict[str, tuple[str, str]]:
        """Return all there was at a revision."""
        state: dict[str, tuple[str, str]] = {}
        for each in self.between(0, revision):
            _apply(state, each.type, each.key, each.uid, str(each.revision))
        return state


def _shown(
    changes: Iterable[Logged], selects: Callable[[Mapping[str, str]], bool]
) -> Iterable[Shown]:
    seen: dict[str, str] = {}
    for change in changes:
        is_in = change.labels is not None and selects(change.labels)
        if is_in:
            kind = "MODIFIED" if change.key in seen else "ADDED"
            seen[change.key] = change.uid
            yield Shown(change.revision, change.key, change.uid, kind)
        elif change.key in seen:
            yield Shown(change.revision, change.key, seen.pop(change.key), "DELETED")


@dataclass(frozen=True, slots=True)
class Event:
    """One event as a client got it."""

    type: str
    vector: str
    cluster: str = ""
    key: str = ""
    uid: str = ""
    ends_initial: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """One stream of a client: what it had when it began, and what it was told since."""

    events: Sequence[Event]
    vector: str = ""
    """Where it went on from; empty when it began with everything there is."""
    wants_bookmarks: bool = False
    wants_initial_end: bool = False
    is_whole: bool = False
    """Whether the stream was read until its initial events were complete."""


def read_event(line: bytes, hub: str = "karmada") -> Event:
    """Read one line of a unified watch of objects; an ERROR has no object to speak of."""
    event: Any = msgspec.json.decode(line)
    shown = event["object"]
    if shown["kind"] == "Table":
        shown = shown["rows"][0]["object"]
    if event["type"] == "ERROR":
        return Event("ERROR", "")
    metadata = shown["metadata"]
    vector = str(metadata["resourceVersion"])
    if event["type"] == "BOOKMARK":
        is_end = metadata.get("annotations", {}).get("k8s.io/initial-events-end") == "true"
        return Event("BOOKMARK", vector, ends_initial=is_end)
    parts = routes.split(str(metadata["name"]))
    key = f"{metadata.get('namespace', '')}/{parts.name}"
    return Event(event["type"], vector, parts.cluster or hub, key, str(metadata.get("uid", "")))


def problems_of(
    segment: Segment, logs: Mapping[str, ClusterLog], *, unjudged: Collection[str] = ()
) -> list[str]:
    """Return every rule the stream broke; none is as it should be.

    Of clusters that are `unjudged` the client may be told anything, and only their names count.
    """
    checker = _Checker(logs, segment, unjudged)
    for event in segment.events:
        checker.check(event)
    checker.finish()
    return checker.problems


def state_at(vector: str, logs: Mapping[str, ClusterLog]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return what a client has that may go on from a vector."""
    positions = versions.decode(vector, list(logs))
    return {cluster: logs[cluster].at(int(each)) for cluster, each in positions.items()}


@dataclass(slots=True)
class _Member:
    """What the client has of one cluster, and what the log says it should have."""

    log: ClusterLog
    position: int | None = None
    state: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    truth: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    since: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Revision and type of each event since the position was last known."""
    was_in_part: bool = False

    def advance(self, position: int) -> None:
        for each in self.log.between(self.position or 0, position):
            _apply(self.truth, each.type, each.key, each.uid, str(each.revision))
        self.position = position


class _Checker:
    def __init__(
        self, logs: Mapping[str, ClusterLog], segment: Segment, unjudged: Collection[str]
    ) -> None:
        self.problems: list[str] = []
        self._segment = segment
        self._names = list(logs)
        self._members = {
            cluster: _Member(log) for cluster, log in logs.items() if cluster not in unjudged
        }
        self._ends = 0
        self._seen: set[tuple[str, str, str, str, str]] = set()
        # Believed at first: the client has all that the vector promises.
        for cluster, position in self._positions(segment.vector).items() if segment.vector else ():
            if position:
                member = self._members[cluster]
                member.advance(int(position))
                member.state = dict(member.truth)
            elif segment.events:
                self._say(f"went on from {segment.vector}, where {cluster} had been told in part")

    def check(self, event: Event) -> None:
        if event.type == "ERROR":
            return
        positions = self._positions(event.vector)
        if event.type != "BOOKMARK":
            if event.cluster in self._members:
                self._check_event(event)
        else:
            self._ends += event.ends_initial
            if not self._segment.wants_bookmarks:
                self._say("a bookmark nobody asked for")
            if any(not position for position in positions.values()):
                self._say(f"a bookmark nobody can go on from: {event.vector}")
        for cluster, member in self._members.items():
            position = positions.get(cluster)
            if position is None:
                if member.state or member.position is not None:
                    self._say(f"{event} does not speak of {cluster}, of which the client has some")
            elif position == "":
                member.was_in_part = True
            else:
                self._check_position(event, cluster, int(position))

    def finish(self) -> None:
        most = int(self._segment.wants_initial_end)
        least = most if self._segment.is_whole else 0
        if not least <= self._ends <= most:
            self._say(f"{self._ends} initial-events-end bookmarks, where {most} belongs")

    def _check_event(self, event: Event) -> None:
        member = self._members[event.cluster]
        own = versions.version_in(event.vector, event.cluster, self._names) or ""
        mark = (event.cluster, event.type, event.key, event.uid, own)
        if mark in self._seen:
            self._say(f"told twice: {mark}")
        self._seen.add(mark)
        is_known = event.key in member.state
        if is_known is (event.type == "ADDED"):
            self._say(f"{mark} when the client has {'it' if is_known else 'no such object'}")
        if is_known and event.type != "ADDED" and member.state[event.key][0] != event.uid:
            self._say(f"{mark}, but the client has {member.state[event.key]}")
        _apply(member.state, event.type, event.key, event.uid, own)
        member.since.append((int(own), event.type))
        if self._positions(event.vector)[event.cluster] != own:
            member.was_in_part = True

    def _check_position(self, event: Event, cluster: str, position: int) -> None:
        member = self._members[cluster]
        if position == member.position and not member.since:
            return
        if member.position is not None and position < member.position:
            self._say(f"{event} goes back in {cluster} from {member.position}")
            return
        before, is_first = member.position or 0, member.position is None
        remembered = member.log.between(max(before, member.log.forgotten), position)
        expected = [(each.revision, each.type) for each in remembered]
        got = [each for each in member.since if each[0] > member.log.forgotten]
        member.advance(position)
        if not member.was_in_part and not is_first and got != expected:
            self._say(f"{event}: of {cluster} were told {got}, its log has {expected}")
        if member.state != member.truth:
            difference = member.state.items() ^ member.truth.items()
            self._say(f"{event} promises {cluster} up to {position}, but not so: {difference}")
        member.since, member.was_in_part = [], False

    def _positions(self, vector: str) -> dict[str, str]:
        decoded = versions.decode(vector, self._names)
        return {cluster: each for cluster, each in decoded.items() if cluster in self._members}

    def _say(self, problem: str) -> None:
        self.problems.append(problem)


def _apply(
    state: dict[str, tuple[str, str]], change: str, key: str, uid: str, version: str
) -> None:
    if change == "DELETED":
        state.pop(key, None)
    else:
        state[key] = (uid, version)
