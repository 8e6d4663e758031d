"""Which clusters could not be reached a moment ago: a dead one costs one deadline, not many.

    reached ──could not be asked──> in trouble ──answers anything at all──> reached

A cluster in trouble is left out of requests that reach many. It is looked at in the background, so
nobody has to pay a deadline to find out that it is back. A request that names the cluster asks it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import Ask
from clusterspace.errors import ClusterError, ClusterMisbehaved, ClusterTimeout, ClusterUnreachable

LOOK_SECONDS: Final = 1.0
"""How often a cluster in trouble is looked at."""

_PROBE: Final = "/livez"
_PROBE_SECONDS: Final = 3.0

FindConnection: TypeAlias = Callable[[str], Awaitable[Connection | None]]
"""Returns the connection to a cluster, or None when there can be none."""


class Troubles:
    """Clusters that could not be asked, and why."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, ClusterError] = {}
        self._has_some = asyncio.Event()

    def find(self, cluster: str) -> ClusterError | None:
        """Return why a cluster could not be asked, if that is so."""
        return self._held.get(cluster)

    def note(self, cluster: str, failure: Exception | None) -> None:
        """Take note of how asking a cluster went."""
        if isinstance(failure, ClusterUnreachable | ClusterTimeout):
            self._held[cluster] = failure
            self._has_some.set()
        else:
            self.forget(cluster)

    def forget(self, cluster: str) -> None:
        """Believe that a cluster can be asked."""
        self._held.pop(cluster, None)

    async def look_after(self, find_connection: FindConnection) -> None:
        """Look at clusters in trouble until cancelled."""
        while True:
            await self._has_some.wait()
            await self._clock.sleep(LOOK_SECONDS)
            async with asyncio.TaskGroup() as group:
                for cluster in list(self._held):
                    group.create_task(self._look(cluster, find_connection), name=f"look {cluster}")
            if not self._held:
                self._has_some.clear()

    async def _look(self, cluster: str, find_connection: FindConnection) -> None:
        connection = await find_connection(cluster)
        if connection is None or await _answers(connection):
            self.forget(cluster)


async def _answers(connection: Connection) -> bool:
    try:
        async with connection.stream(Ask("GET", _PROBE, seconds=_PROBE_SECONDS)):
            return True
    except ClusterMisbehaved:
        return True  # whatever it said, it can be asked
    except ClusterError:
        return False
