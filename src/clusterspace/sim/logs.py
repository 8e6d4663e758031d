"""The log of a simulated container: text that grows with time, and is never stored.

Line 7 of a container is the same whenever somebody asks: it is made from the container's name and
the number 7. So a log needs no memory, and a thousand followers see the same text.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest, Malformed
from clusterspace.kube.objects import Object, find_at, name_of, uid_of
from clusterspace.kube.timestamps import format_micro_time, parse_time
from clusterspace.sim.pod_states import containers_of

LINE_SECONDS: Final = 1.0
KEPT_LINES: Final = 10_000
"""As if older lines had been rotated away."""

_SAYINGS: Final = (
    "request served",
    "cache refreshed",
    "connection opened",
    "connection closed",
    "health checked",
    "queue drained",
    "configuration read",
    "nothing to do",
)


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What a client wants to see of a log."""

    follow: bool = False
    timestamps: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: float | None = None

    @classmethod
    def read(cls, query: Query) -> "LogRequest":
        """Read the parameters of `pods/log`; BadRequest for what makes no sense."""
        since = query.get("sinceTime")
        try:
            since_time = parse_time(since) if since else None
        except Malformed as error:
            raise BadRequest(f"sinceTime: {error}") from error
        return cls(
            follow=query.is_true("follow"),
            timestamps=query.is_true("timestamps"),
            previous=query.is_true("previous"),
            tail_lines=_number(query, "tailLines", least=0),
            limit_bytes=_number(query, "limitBytes", least=1),
            since_seconds=_number(query, "sinceSeconds", least=1),
            since_time=since_time,
        )

    def since(self, now: float) -> float:
        """Return the time before which lines are left out."""
        if self.since_seconds is not None:
            return now - self.since_seconds
        return self.since_time or 0.0


def _number(query: Query, name: str, *, least: int) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not text.lstrip("-").isdigit() or not text.isascii() or int(text) < least:
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be at least {least}")
    return int(text)


def choose_container(pod: Object, asked: str) -> str:
    """Return the container that is meant, or refuse in Kubernetes' words."""
    initial: list[Object] = find_at(pod, "spec", "initContainers") or []
    names = [str(each["name"]) for each in containers_of(pod)]
    if asked:
        if asked not in (*names, *(str(each["name"]) for each in initial)):
            raise BadRequest(f"container {asked} is not valid for pod {name_of(pod)}")
        return asked
    if len(names) != 1:
        raise BadRequest(
            f"a container name must be specified for pod {name_of(pod)}, "
            f"choose one of: [{' '.join(names)}]"
        )
    return names[0]


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """The log of one container, from its start to its end or to now."""

    source: str
    started: float
    ended: float | None

    @classmethod
    def of(cls, pod: Object, container: str) -> "ContainerLog":
        """Find when a container ran; BadRequest when it has not started."""
        statuses: list[Object] = [
            *(find_at(pod, "status", "initContainerStatuses") or []),
            *(find_at(pod, "status", "containerStatuses") or []),
        ]
        held = next((each for each in statuses if each.get("name") == container), None)
        started = find_at(held, "state", "running", "startedAt")
        ended = find_at(held, "state", "terminated", "finishedAt")
        started = started or find_at(held, "state", "terminated", "startedAt")
        if not started:
            raise BadRequest(
                f'container "{container}" in pod "{name_of(pod)}" is waiting to start: '
                "ContainerCreating"
            )
        until = parse_time(str(ended)) if ended else None
        return cls(f"{uid_of(pod)}/{container}", parse_time(str(started)), until)

    def count(self, now: float) -> int:
        """Return how many lines there are by a time; the first comes at once."""
        until = now if self.ended is None else min(self.ended, now)
        return max(0, int((until - self.started) / LINE_SECONDS) + 1)

    def time_of(self, number: int) -> float:
        """Return when a line was written."""
        return self.started + number * LINE_SECONDS

    def line(self, number: int, *, with_time: bool = False) -> bytes:
        """Return one line of the log."""
        digest = hashlib.sha256(f"{self.source}/{number}".encode()).digest()
        saying = _SAYINGS[digest[0] % len(_SAYINGS)]
        text = f"{number:06d} {saying} ({digest[1:4].hex()})\n"
        stamp = f"{format_micro_time(self.time_of(number))} " if with_time else ""
        return f"{stamp}{text}".encode()

    def first_line(self, request: LogRequest, now: float) -> int:
        """Return the number of the first line a request is about."""
        count = self.count(now)
        first = max(0, count - KEPT_LINES)
        since = request.since(now)
        if since > self.started:
            first = max(first, int((since - self.started) / LINE_SECONDS))
        if request.tail_lines is not None:
            first = max(first, count - request.tail_lines)
        return min(first, count)

    def lines(self, first: int, last: int, *, with_time: bool) -> Iterator[bytes]:
        """Return the lines from one number up to another, which is left out."""
        return (self.line(number, with_time=with_time) for number in range(first, last))
