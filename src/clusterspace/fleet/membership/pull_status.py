"""The status of the agent's own cluster, told to the hub: the same look as for Push clusters."""

import asyncio
from typing import Final

import structlog

from clusterspace.client.discovery import Discovery
from clusterspace.client.resources import ClusterClient, Reader
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.status import StatusKeeper, collect
from clusterspace.kube.objects import Object

_log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 2.0
"""How soon to try again when the hub was not there: it is to hear from us within ten seconds."""


ANSWER_SECONDS: Final = 5.0
"""How long the hub may take: a request that hangs in a cut network must not outlast the cut."""


class PullStatus:
    """Looks at the cluster we run for, and tells the hub what changed, again and again."""

    def __init__(
        self,
        hub: Reader,
        cluster_name: str,
        member: ClusterClient,
        keeper: StatusKeeper,
        *,
        frequency_seconds: float,
    ) -> None:
        self._hub = hub
        self._name = cluster_name
        self._member = member
        self._discovery = Discovery(member.connection)
        self._keeper = keeper
        self._clock = member.connection.clock
        self._frequency_seconds = frequency_seconds
        self._trouble = ""

    async def run(self) -> None:
        """Tell the hub how the cluster is, until cancelled."""
        while True:
            next_look = self._clock.monotonic() + self._frequency_seconds
            try:
                await self.look()
                self._trouble = ""
            except (ApiError, ClusterError, TimeoutError) as error:
                self._warn(repr(error))
                next_look = self._clock.monotonic() + min(RETRY_SECONDS, self._frequency_seconds)
            await self._clock.sleep(max(next_look - self._clock.monotonic(), 0.0))

    def _warn(self, trouble: str) -> None:
        """Say what is wrong once: an agent may wait for days until its hub knows it."""
        if trouble != self._trouble:
            _log.warning("status not told", cluster=self._name, reason=trouble)
        self._trouble = trouble

    async def look(self) -> Object:
        """Look once; return the Cluster as the hub holds it afterwards."""
        if is_being_deleted(cluster := await self._cluster()):
            return cluster
        report = await collect(self._member, self._discovery)
        # Looking takes a while, and meanwhile the hub's controllers write too.
        cluster = await self._cluster()
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._keeper.write(cluster, report)

    async def _cluster(self) -> Object:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._hub.get(names.cluster_place(self._name))
