"""A second place that looks at Push clusters which the hub holds for not ready.

    Cluster: not ready ──> looked at from here, too ──> Lease: away, or answering ──> (evictions)

Run by every fleet API server, which reaches members anyway, and by controllers that wait to lead.
What it says evicts nobody: it agrees with the leader, or does not. A fleet whose clusters are all
ready has nothing to be said about, and nothing is written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import is_pull
from clusterspace.apis.witnesses import WitnessReport, lease_of
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.controllers.leases import LeaseClient, put_lease
from clusterspace.errors import (
    AddressNotAllowed,
    AlreadyExists,
    ApiError,
    ClusterError,
    Conflict,
    CredentialsUnusable,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership.health import PROBES
from clusterspace.fleet.membership.status import ready_status
from clusterspace.kube.conditions import TRUE
from clusterspace.kube.objects import Object, is_being_deleted, name_of, uid_of

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often clusters that are not ready are looked at, until it is known whether they answer."""
STEADY_SECONDS: Final = 5.0
"""How often after that."""
RENEW_SECONDS: Final = 10.0
"""How often the same is said again; at once, when it has changed."""
LOOKS: Final = 2
"""How many looks in a row have to fail before a cluster is away; one that answers, does."""
MOST_OTHERS: Final = 10
"""How many of the clusters that are well are asked, to see whether anybody is heard here."""

_PROBE_SECONDS: Final = 3.0

Reach: TypeAlias = Callable[[Object], Awaitable[Connection | None]]
"""Returns the connection to a cluster; None, or ClusterError, when there is no way to ask it."""


class Witness:
    """Looks at Push clusters that are not ready, and says on the hub what it sees.

    `clusters` returns the Clusters as they are known here, `place` is who we are for people.
    """

    def __init__(
        self,
        hub: LeaseClient,
        identity: str,
        place: str,
        clusters: Callable[[], Iterable[Object]],
        reach: Reach,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._hub = hub
        self._nothing = WitnessReport(identity, place)
        self._clusters = clusters
        self._reach = reach
        self._clock = clock
        self._random = random
        self._failed: dict[str, int] = {}
        """How many looks in a row at each cluster that is not ready have failed."""
        self._is_steady = False
        self._is_heard = True
        """Whether the hub took what was last said."""
        self._said: WitnessReport | None = None
        self._said_at = 0.0

    async def run(self, while_: Callable[[], bool] = lambda: True) -> None:
        """Look until cancelled, or as long as asked; a hub that does not answer is told later."""
        while while_():
            try:
                await self.look()
                self._is_heard = True
            except (ApiError, ClusterError) as error:
                if self._is_heard:
                    _log.warning("what is seen of clusters is not told", reason=str(error))
                self._is_heard = False
            await self._clock.sleep(STEADY_SECONDS if self._is_steady else LOOK_SECONDS)

    async def look(self) -> None:
        """Look once at every cluster that needs it, and say what was seen if that is news."""
        clusters = [each for each in self._clusters() if not is_being_deleted(each)]
        pushed = [each for each in clusters if not is_pull(each)]
        # One that never reported has nothing placed on it that could be evicted.
        doubted = [each for each in pushed if ready_status(each) not in (TRUE, "")]
        seen = self._nothing
        if doubted:
            well = [each for each in clusters if ready_status(each) == TRUE]
            others = self._random.sample(well, min(len(well), MOST_OTHERS))
            seen = await self._ask(doubted, others)
            self._is_steady = all(count >= LOOKS for count in self._failed.values())
        else:
            self._failed, self._is_steady = {}, False
        # Once at the start, too: it is known then that there is a second place.
        is_changed = seen != self._said and bool(pushed or self._said)
        is_due = bool(doubted) and self._clock.monotonic() - self._said_at >= RENEW_SECONDS
        if is_changed or is_due:
            # Counted from before the write, and said as it was seen before it: if the answer is
            # lost it is said again, and what hangs in the network is never newer than it claims.
            self._said_at = self._clock.monotonic()
            with suppress(AlreadyExists, Conflict):
                # Ours alone, but a write of ours may have come late: then the next look says it.
                await self._say(seen)
                self._said = seen

    async def _ask(self, doubted: Sequence[Object], others: Sequence[Object]) -> WitnessReport:
        asked = (*doubted, *others)
        async with asyncio.TaskGroup() as group:
            looks = {
                uid_of(each): group.create_task(self._answers(each), name=f"look {name_of(each)}")
                for each in asked
            }
        by_uid = {uid: look.result() for uid, look in looks.items()}
        # Rebuilt with every look: a cluster that is ready again begins anew.
        self._failed = {
            uid: self._failed.get(uid, 0) + 1
            for uid in map(uid_of, doubted)
            if by_uid[uid] is False
        }
        heard = [by_uid[uid_of(each)] for each in others]
        return replace(
            self._nothing,
            away=frozenset(uid for uid, count in self._failed.items() if count >= LOOKS),
            answering=frozenset(uid for uid in map(uid_of, doubted) if by_uid[uid]),
            others_asked=sum(each is not None for each in heard),
            others_heard=sum(each is True for each in heard),
        )

    async def _answers(self, cluster: Object) -> bool | None:
        """Whether a cluster answers, and not that it is unwell; None when it cannot be asked."""
        try:
            connection = await self._reach(cluster)
        except (ApiError, ClusterError, UnusableKubeconfig):
            return None  # its Secret is missing, or it is the hub that does not answer
        if connection is None:
            return None
        try:
            for path in PROBES:
                request = ApiRequest("GET", path, seconds=_PROBE_SECONDS)
                answer = await connection.exchange(request)
                if answer.status != 404:
                    # Refused credentials are an answer: whoever refuses is there.
                    return answer.status < 500
        except (AddressNotAllowed, CredentialsUnusable):
            return None
        except (ApiError, ClusterError):
            return False
        return True

    async def _say(self, seen: WitnessReport) -> None:
        await put_lease(self._hub, lease_of(seen, self._clock.now()))
