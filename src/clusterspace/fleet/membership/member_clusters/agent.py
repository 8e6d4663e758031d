"""The member end: heard while it is in, cleaned up when it is to go.

On `Join` the agent reports how its cluster is, once every period. On `Leave` it waits until all
that was placed is withdrawn, lets go of the fleet Works, says that it left and falls silent. It
goes on listening: a MemberCluster that is made anew finds it again.
"""

from collections.abc import Iterable
from random import Random
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.member_clusters import (
    JOIN,
    JOINED,
    LEAVE,
    MEMBER_AGENT,
    agent_statuses,
    find_agent_status,
    period_of,
)
from clusterspace.client.discovery import Discovery
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import finalizers_of, is_being_deleted
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Done, Request, RequeueAfter, Result, request_for
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.identity import read_identity
from clusterspace.fleet.membership.member_clusters import places, usage
from clusterspace.fleet.membership.member_clusters.reports import generation_of
from clusterspace.fleet.membership.status import Report, collect
from clusterspace.kube.conditions import FALSE, TRUE, UNKNOWN, Condition, set_condition
from clusterspace.kube.objects import Object, find_at, name_of, uid_of, with_metadata
from clusterspace.kube.timestamps import format_time

_log = structlog.get_logger(__name__)

_JITTER: Final = 0.05
"""Heartbeats of a fleet that started together spread out; KubeFleet's five per cent."""

PATIENCE_SECONDS: Final = 30.0
"""How long a withdrawal may take before we say that leaving has failed so far."""

_LOOK_AGAIN_SECONDS: Final = 1.0
_MOST_NAMED: Final = 5


def with_told(internal: Object, conditions: Iterable[Condition], now: float) -> Object:
    """Return the InternalMemberCluster with a heartbeat of ours; other agents' word stays."""
    held = find_agent_status(internal) or {"type": MEMBER_AGENT}
    told: list[Object] = list(held.get("conditions") or [])
    for each in conditions:
        told = set_condition(told, each, now).conditions
    own = {**held, "conditions": told, "lastReceivedHeartbeat": format_time(now)}
    others = [each for each in agent_statuses(internal) if each.get("type") != MEMBER_AGENT]
    status: Object = internal.get("status") or {}
    return {**internal, "status": {**status, "agentStatus": [own, *others]}}


def with_look(internal: Object, report: Report, cluster_id: str, now: float) -> Object:
    """Return the InternalMemberCluster with what a look at the member found."""
    if report.inventory is None:
        return internal  # it has what it had when it last told
    nodes, pods = report.inventory.nodes, report.inventory.pods
    status: Object = internal.get("status") or {}
    seen = {
        "resourceUsage": usage.resource_usage(nodes, pods, now),
        "properties": usage.properties(nodes, cluster_id, now),
    }
    return {**internal, "status": {**status, **seen}}


def joined(generation: int) -> Condition:
    """Say that we are in."""
    message = "the agent reports, and carries out what is placed here"
    return Condition(JOINED, TRUE, "InternalMemberClusterJoined", message, generation)


def left(generation: int) -> Condition:
    """Say that we are out."""
    message = "all that was placed is withdrawn"
    return Condition(JOINED, FALSE, "InternalMemberClusterLeft", message, generation)


def failed_to_leave(why: str, generation: int) -> Condition:
    """Say what keeps us in."""
    return Condition(JOINED, UNKNOWN, "InternalMemberClusterFailedToLeave", why, generation)


class MembershipAgent:
    """Reconciles the InternalMemberCluster of the cluster it runs for."""

    def __init__(
        self,
        hub: Client,
        member: ClusterClient,
        *,
        clock: Clock,
        random: Random,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._hub = hub
        self._member = member
        self._discovery = Discovery(member.connection)
        self._clock = clock
        self._random = random
        self._patience_seconds = patience_seconds
        self._leaving_since: tuple[str, float] | None = None

    async def reconcile(self, request: Request) -> Result:
        """Do what we are told, and say how it goes."""
        internal = await self._hub.find(places.internal_place(request.name))
        if internal is None or is_being_deleted(internal):
            return Done()
        match find_at(internal, "spec", "state"):
            case state if state == JOIN:
                return await self._stay(internal)
            case state if state == LEAVE:
                return await self._go(internal)
            case state:
                _log.warning("told to do what no agent does", cluster=request.name, state=state)
                return Done()

    async def _stay(self, internal: Object) -> Result:
        self._leaving_since = None
        report = await collect(self._member, self._discovery)
        cluster_id = "" if report.inventory is None else (await read_identity(self._member)).id
        now, generation = self._clock.now(), generation_of(internal)
        healthy = usage.healthy_condition(report.health, generation)
        told = with_told(internal, (joined(generation), healthy), now)
        await self._write(internal, with_look(told, report, cluster_id, now))
        spread = self._random.uniform(1 - _JITTER, 1 + _JITTER)
        # Stamps have whole seconds: two in the same one would look as if one were missing.
        return RequeueAfter(max(period_of(internal) * spread, 1.0))

    async def _go(self, internal: Object) -> Result:
        generation, now = generation_of(internal), self._clock.now()
        try:
            obstacle = await self._find_obstacle(name_of(internal))
        except (ApiError, ClusterError) as error:
            obstacle = f"the hub cannot be asked: {error}"
        if not obstacle:
            await self._write(internal, with_told(internal, (left(generation),), now))
            _log.info("left the fleet", cluster=name_of(internal))
            return Done()
        if self._is_late(internal):
            told = with_told(internal, (failed_to_leave(obstacle, generation),), now)
            await self._write(internal, told)
            _log.warning("cannot leave yet", cluster=name_of(internal), reason=obstacle)
            return RequeueAfter(min(period_of(internal), self._patience_seconds))
        return RequeueAfter(_LOOK_AGAIN_SECONDS)

    async def _find_obstacle(self, cluster_name: str) -> str:
        """Return what is still placed; what is placed is known by the Works of our Cluster."""
        cluster = await self._hub.find(names.cluster_place(cluster_name))
        if cluster is not None:
            if not is_being_deleted(cluster):
                return "the hub has not begun to withdraw what was placed"
            works = await self._hub.list_objects(names.works_place(cluster_name))
            if works:
                return _remaining(works)
        await self._let_fleet_works_go(cluster_name)
        return ""

    async def _let_fleet_works_go(self, cluster_name: str) -> None:
        place = places.fleet_works_place(cluster_name)
        for work in await self._hub.list_objects(place):
            if finalizers_of(work):
                freed = with_metadata(work, finalizers=None)
                await commit(self._hub, place.named(name_of(work)), work, freed)

    def _is_late(self, internal: Object) -> bool:
        now = self._clock.monotonic()
        if self._leaving_since is None or self._leaving_since[0] != uid_of(internal):
            self._leaving_since = (uid_of(internal), now)
        return now - self._leaving_since[1] >= self._patience_seconds

    async def _write(self, before: Object, after: Object) -> None:
        await commit(self._hub, places.internal_place(name_of(before)), before, after)


def _remaining(works: list[Object]) -> str:
    shown = ", ".join(sorted(map(name_of, works))[:_MOST_NAMED])
    more = f" and {len(works) - _MOST_NAMED} more" if len(works) > _MOST_NAMED else ""
    return f"not withdrawn yet: {shown}{more}"


def when_told_anew(update: Update) -> Iterable[Request]:
    """Act when we are told something else; what we ourselves told is no news."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None or _told(before) != _told(after):
        yield request_for(update.key)


def _told(internal: Object) -> tuple[object, ...]:
    return uid_of(internal), internal.get("spec"), is_being_deleted(internal)
