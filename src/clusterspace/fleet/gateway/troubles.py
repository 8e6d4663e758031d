"""Which clusters are in trouble, and since when: what one of them costs is bounded here.

    reached ──could not be asked──> in trouble ──answers anything at all──> reached

A cluster in trouble is left out of requests that reach many. It is looked at in the background, so
nobody has to pay a deadline to find out that it is back. A request that names the cluster asks it.

    well ──a list fails──> lapsing ──for longer than the grace──> set aside ──lists well──> well

An informer takes a gap in a list for a deletion. So while a cluster fails, informers that may have
objects of it are told to come back; and once it has failed for longer than any blip lasts they are
served without it: one cluster must not keep all others from them for good.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import (
    AnswerOverrun,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
)

LOOK_SECONDS: Final = 1.0
"""How often a cluster in trouble is looked at."""

_PROBE: Final = "/livez"
_PROBE_SECONDS: Final = 3.0
_PROBE_BYTES: Final = 64 * 1024
_LONGEST_PAUSE: Final = 60.0
_CALM_SECONDS: Final = 120.0
"""Trouble that comes back within this time is the same trouble."""

FindConnection: TypeAlias = Callable[[str], Awaitable[Connection | None]]
"""Returns the connection to a cluster, or None when there can be none."""


@dataclass(slots=True)
class _Trouble:
    why: ClusterError
    until: float
    """Before which nobody looks whether it is over."""
    pause: float


class Troubles:
    """Clusters that could not be asked, or whose answers cost too much, and why."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, _Trouble] = {}
        self._former: dict[str, tuple[float, float]] = {}
        """When a trouble ended that may come back, and how long it was paused for."""
        self._has_some = asyncio.Event()

    def find(self, cluster: str) -> ClusterError | None:
        """Return why a cluster could not be asked, if that is so."""
        held = self._held.get(cluster)
        return None if held is None else held.why

    def note(self, cluster: str, failure: Exception | None) -> None:
        """Take note of how asking a cluster went."""
        if not isinstance(failure, ClusterUnreachable | ClusterTimeout | AnswerOverrun):
            if self._held.get(cluster) is not None:
                self.forget(cluster)
            return
        if cluster not in self._held:
            now = self._clock.monotonic()
            pause = self._next_pause(cluster, failure, now)
            self._held[cluster] = _Trouble(failure, now + pause, pause)
        else:
            self._held[cluster].why = failure
        self._has_some.set()

    def _next_pause(self, cluster: str, failure: ClusterError, now: float) -> float:
        """Return for how long a cluster is not even looked at.

        One that answers the probe and then takes a whole deadline of everybody's time again would
        otherwise cost that every second.
        """
        ended, pause = self._former.pop(cluster, (0.0, 0.0))
        if isinstance(failure, ClusterUnreachable) or not pause or now - ended > _CALM_SECONDS:
            return LOOK_SECONDS
        return min(pause * 2, _LONGEST_PAUSE)

    def forget(self, cluster: str) -> None:
        """Believe that a cluster can be asked."""
        held = self._held.pop(cluster, None)
        if held is not None:
            self._former[cluster] = (self._clock.monotonic(), held.pause)

    def let_go(self, cluster: str) -> None:
        """Know nothing of a cluster any more: it has left, or is to be reached in another way."""
        self._held.pop(cluster, None)
        self._former.pop(cluster, None)

    async def look_after(self, find_connection: FindConnection) -> None:
        """Look at clusters in trouble until cancelled."""
        while True:
            await self._has_some.wait()
            await self._clock.sleep(LOOK_SECONDS)
            now = self._clock.monotonic()
            async with asyncio.TaskGroup() as group:
                for cluster in [name for name, held in self._held.items() if held.until <= now]:
                    group.create_task(self._look(cluster, find_connection), name=f"look {cluster}")
            if not self._held:
                self._has_some.clear()

    async def _look(self, cluster: str, find_connection: FindConnection) -> None:
        connection = await find_connection(cluster)
        if connection is None or await _answers(connection):
            self.forget(cluster)


async def _answers(connection: Connection) -> bool:
    """Whether a cluster answers, to the end: whatever it says, it can be asked."""
    try:
        async with (
            asyncio.timeout(_PROBE_SECONDS),
            connection.stream(ApiRequest("GET", _PROBE, seconds=_PROBE_SECONDS)) as answer,
        ):
            await answer.read(_PROBE_BYTES)
            return True
    except (AnswerOverrun, TimeoutError):
        return False
    except ClusterMisbehaved:
        return True
    except ClusterError:
        return False


@dataclass(slots=True)
class _Lapse:
    since: float
    last: float


@dataclass(slots=True)
class _Versions:
    """What a cluster said of the versions of one resource."""

    given: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float])
    """The versions of its latest lists, and when it gave them."""
    expired_at: float | None = None
    """When it last said that a version is too old, and was believed."""
    was_watched: bool = False
    """Whether a watch has gone well since."""


_Key: TypeAlias = tuple[str, str]
_MOST_KEYS: Final = 8192
_MOST_VERSIONS: Final = 32
_FRESH_SECONDS: Final = 60.0
_STUBBORN_SECONDS: Final = 600.0


class Lapses:
    """Since when clusters fail to list a resource, and what their word about versions is worth."""

    def __init__(self, clock: Clock, *, grace_seconds: float, lost_seconds: float) -> None:
        self._clock = clock
        self._grace = grace_seconds
        self._lost = lost_seconds
        self._held: OrderedDict[_Key, _Lapse] = OrderedDict()
        self._versions: OrderedDict[_Key, _Versions] = OrderedDict()

    def note(self, cluster: str, resource: str, failure: Exception | None) -> None:
        """Take note of how a list went; None is for one that came to its end."""
        key, now = (cluster, resource), self._clock.monotonic()
        if failure is None:
            self._held.pop(key, None)
            return
        held = self._held.get(key)
        # Two blips with an hour between them are not an hour of trouble.
        calm = max(_FRESH_SECONDS, 2 * self._grace)
        if held is None or now - held.last > calm:
            self._held[key] = _Lapse(now, now)
        else:
            held.last = now
        self._held.move_to_end(key)
        if len(self._held) > _MOST_KEYS:
            self._held.popitem(last=False)

    def is_set_aside(self, cluster: str, resource: str, failure: Exception) -> bool:
        """Whether a cluster has failed for so long that informers are served without it.

        Who answers, and answers wrongly, is given less time than who cannot be reached: a control
        plane that is replaced is away for minutes, and comes back with all it had.
        """
        held = self._held.get((cluster, resource))
        if held is None:
            return False
        is_lost = isinstance(failure, ClusterTimeout | CredentialsUnusable) or (
            isinstance(failure, ClusterUnreachable) and not failure.was_sent
        )
        grace = self._lost if is_lost else self._grace
        return self._clock.monotonic() - held.since >= grace

    def note_version(self, cluster: str, resource: str, version: str) -> None:
        """Remember that a cluster gave this version, just now."""
        given = self._about(cluster, resource).given
        given[version] = self._clock.monotonic()
        given.move_to_end(version)
        if len(given) > _MOST_VERSIONS:
            given.popitem(last=False)

    def note_watch(self, cluster: str, resource: str) -> None:
        """Remember that a watch of a cluster goes well."""
        about = self._about(cluster, resource)
        about.was_watched, about.expired_at = True, None

    def believes_expiry(self, cluster: str, resource: str, version: str) -> bool:
        """Whether a cluster may have forgotten a version, as it says; if so that is remembered.

        Clients that are told so list everything again. No server forgets what it has just given:
        one that does so to the first watch of a resource, or right behind a list that was made
        because it had forgotten, is not heard, and counts as silent. Not for ever: whoever is
        wronged by this learns it after ten minutes.
        """
        about, now = self._about(cluster, resource), self._clock.monotonic()
        given = about.given.get(version)
        if given is not None:
            if about.expired_at is None:
                is_absurd = not about.was_watched and now - given < _FRESH_SECONDS
            else:
                is_absurd = given > about.expired_at and now - given < _STUBBORN_SECONDS
            if is_absurd:
                return False
        about.expired_at, about.was_watched = now, False
        return True

    def _about(self, cluster: str, resource: str) -> _Versions:
        key = (cluster, resource)
        about = self._versions.setdefault(key, _Versions())
        self._versions.move_to_end(key)
        if len(self._versions) > _MOST_KEYS:
            self._versions.popitem(last=False)
        return about
