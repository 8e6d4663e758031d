"""Kubernetes Events, aggregated and rate-limited: what people read in `kubectl describe`.

Recording never waits and never fails: events are for people, and no work stops for want of them.
The same thing happening again adds to a count instead of making another object.
"""

import asyncio
import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, PatchType
from clusterspace.errors import AlreadyExists, ApiError, ClusterError, Conflict
from clusterspace.kube.objects import (
    Object,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time

_log = structlog.get_logger(__name__)

EVENTS: Final = GroupVersionResource("", "v1", "events")

MOST_WAITING: Final = 1000
"""Different events that may wait to be written; more are dropped and counted."""

BURST: Final = 25
REFILL_SECONDS: Final = 300.0
"""An object may have 25 different events at once, then one every five minutes."""

MOST_ROUTINE: Final = 100
"""Events that wait before those about steps that went well are dropped: a thousand objects that
are placed at once must not be held up by telling of each."""

ROUTINE_BURST: Final = 500
ROUTINE_SECONDS: Final = 0.1
"""Of all objects together: 500 steps that went well are told at once, then ten in a second. When a
whole cluster is taken in, telling of each step would be every third request to the hub."""

KEPT_FOR_TROUBLE: Final = 10
"""Of the events an object may have at once, how many are left to what is not routine."""

FLUSH_SECONDS: Final = 1.0
_LONGEST_MESSAGE: Final = 1024
_LONGEST_NAME: Final = 180


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to an object, in the words people will read."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something happened since it was last written down."""

    count: int
    first_at: float
    last_at: float


class TokenBucket:
    """Lets through a burst, then one at a time."""

    def __init__(
        self, now: float, burst: int = BURST, refill_seconds: float = REFILL_SECONDS
    ) -> None:
        self._burst = float(burst)
        self._refill_seconds = refill_seconds
        self._tokens = self._burst
        self._at = now

    def take(self, now: float, *, reserve: int = 0) -> bool:
        """Take a token if there is one besides those in reserve."""
        self._tokens, self._at = self._tokens_at(now), now
        if self._tokens < 1 + reserve:
            return False
        self._tokens -= 1
        return True

    def is_full(self, now: float) -> bool:
        """Whether forgetting this bucket changes nothing."""
        return self._tokens_at(now) >= self._burst - 1

    def _tokens_at(self, now: float) -> float:
        return min(self._tokens + (now - self._at) / self._refill_seconds, self._burst)


class Buckets:
    """A bucket for every object that had events lately."""

    def __init__(self) -> None:
        self._by_uid: dict[str, TokenBucket] = {}
        self._many = MOST_WAITING

    def __len__(self) -> int:
        return len(self._by_uid)

    def take(self, uid: str, now: float, *, reserve: int = 0) -> bool:
        """Take a token of one object if it has one besides those in reserve."""
        if len(self._by_uid) >= self._many:
            # Buckets that are full again are dropped. All have to be looked at for that, so it is
            # not done again before they have doubled.
            self._by_uid = {uid: e for uid, e in self._by_uid.items() if not e.is_full(now)}
            self._many = max(MOST_WAITING, 2 * len(self._by_uid))
        return self._by_uid.setdefault(uid, TokenBucket(now)).take(now, reserve=reserve)


class EventRecorder:
    """Collects events, and writes them while `run` runs."""

    def __init__(self, hub_client: Client, *, component: str, clock: Clock) -> None:
        self._hub_client = hub_client
        self._component = component
        self._clock = clock
        self._waiting: dict[Occurrence, Tally] = {}
        self._buckets = Buckets()
        self._routine = TokenBucket(clock.monotonic(), ROUTINE_BURST, ROUTINE_SECONDS)
        self._has_waiting = asyncio.Event()
        self.dropped = 0
        """Events nobody will read: the object had too many, or too many waited."""

    def record(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        is_warning: bool = False,
        is_routine: bool = False,
    ) -> None:
        """Note that something happened to an object.

        What is routine, a step that went well, gives way to everything else: when much is going
        on it is dropped first, and it leaves room for the object's troubles.
        """
        occurrence = Occurrence(
            api_version=str(about.get("apiVersion") or ""),
            kind=str(about.get("kind") or ""),
            namespace=namespace_of(about),
            name=name_of(about),
            uid=uid_of(about),
            reason=reason,
            message=message[:_LONGEST_MESSAGE],
            is_warning=is_warning,
        )
        now, monotonic = self._clock.now(), self._clock.monotonic()
        tally = self._waiting.get(occurrence)
        is_room = len(self._waiting) < (MOST_ROUTINE if is_routine else MOST_WAITING)
        reserve = KEPT_FOR_TROUBLE if is_routine else 0
        if tally is not None:
            self._waiting[occurrence] = replace(tally, count=tally.count + 1, last_at=now)
        elif (
            is_room
            and self._buckets.take(occurrence.uid, monotonic, reserve=reserve)
            and (not is_routine or self._routine.take(monotonic))
        ):
            self._waiting[occurrence] = Tally(1, now, now)
            self._has_waiting.set()
        else:
            self.dropped += 1

    @contextmanager
    def reporting_failure(self, about: Object, reason: str) -> Generator[None]:
        """Warn of what the hub refuses in the block, or does not answer; it is raised all the same.

        A Conflict is no trouble: the next attempt begins with what somebody else wrote.
        """
        try:
            yield
        except Conflict:
            raise
        except (ApiError, ClusterError) as error:
            self.record(about, reason, str(error), is_warning=True)
            raise

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            await self.flush()
            # What happens over and over is written once a second, with its count.
            await self._clock.sleep(FLUSH_SECONDS)

    async def flush(self) -> None:
        """Write everything that waits, once; what cannot be written is dropped."""
        # Swapped before the first await: what is recorded while we write waits for the next turn.
        waiting, self._waiting = self._waiting, {}
        for occurrence, tally in waiting.items():
            event = event_of(occurrence, tally, self._component)
            path = ResourcePath(EVENTS, namespace_of(event))
            try:
                try:
                    await self._hub_client.create(path, event)
                except AlreadyExists:
                    path = path.named(name_of(event))
                    existing = await self._hub_client.get(path)
                    patch = {
                        # Another process may count the same thing: then this is a Conflict, and
                        # the count is lost rather than written over.
                        "metadata": {"resourceVersion": resource_version_of(existing)},
                        "count": int(existing.get("count") or 1) + tally.count,
                        "lastTimestamp": format_time(tally.last_at),
                    }
                    await self._hub_client.patch(path, PatchType.MERGE, patch)
            except (ApiError, ClusterError) as error:
                self.dropped += 1
                _log.debug("event not written", reason=str(error), about=occurrence.name)


def event_of(occurrence: Occurrence, tally: Tally, component: str) -> Object:
    """Return the Event; the same occurrence has the same name, before and after a restart."""
    identity = (occurrence.uid, occurrence.reason, occurrence.message, component)
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            # Whoever may see its own events alone is known by the middle of the name.
            "name": f"{occurrence.name[:_LONGEST_NAME]}.{component}.{digest}",
            # Objects without a namespace have their events in this one.
            "namespace": occurrence.namespace or "default",
        },
        "involvedObject": {
            "apiVersion": occurrence.api_version,
            "kind": occurrence.kind,
            "namespace": occurrence.namespace,
            "name": occurrence.name,
            "uid": occurrence.uid,
        },
        "reason": occurrence.reason,
        "message": occurrence.message,
        "type": "Warning" if occurrence.is_warning else "Normal",
        "count": tally.count,
        "firstTimestamp": format_time(tally.first_at),
        "lastTimestamp": format_time(tally.last_at),
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
    }
