"""The member end: heard while it is in, cleaned up when it is to go.

On `Join` the agent reports how its cluster is, once every period. On `Leave` it waits until all
that was placed is withdrawn, lets go of the fleet Works, says that it left and falls silent. It
goes on listening: a MemberCluster that is made anew finds it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.member_clusters import (
    CLUSTER_ID,
    HEALTHY,
    JOIN,
    JOINED,
    LEAVE,
    MEMBER_AGENT,
    NODE_COUNT,
    agent_statuses,
    find_agent_status,
    keeps_resources,
    period_of,
)
from clusterspace.client.discovery import Discovery
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
)
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.health import Health
from clusterspace.fleet.membership.member_access import read_identity
from clusterspace.fleet.membership.member_clusters.manifests import (
    fleet_works_path,
    internal_path,
)
from clusterspace.fleet.membership.member_clusters.status import generation_of, left_text
from clusterspace.fleet.membership.room import pod_requests, total
from clusterspace.fleet.membership.status import Report, collect
from clusterspace.kube.conditions import FALSE, TRUE, UNKNOWN, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    is_being_deleted,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.times import format_time

_log = structlog.get_logger(__name__)

_JITTER: Final = 0.05
"""Heartbeats of a fleet that started together spread out; KubeFleet's five per cent."""

PATIENCE_SECONDS: Final = 30.0
"""How long a withdrawal may take before we say that leaving has failed so far."""

_POLL_SECONDS: Final = 1.0
_MOST_NAMED: Final = 5


_COUNTED: Final[tuple[str, ...]] = ("cpu", "memory")
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def resource_usage(nodes: Sequence[Object], pods: Iterable[Object], now: float) -> Object:
    """Return `status.resourceUsage`: capacity, allocatable, and what bound pods leave of that."""
    capacity, allocatable = _offered(nodes, "capacity"), _offered(nodes, "allocatable")
    running = (
        each
        for each in pods
        if find_at(each, "spec", "nodeName") and find_at(each, "status", "phase") not in _FINISHED
    )
    used = total(pod_requests(each) for each in running)
    free = {name: max(allocatable[name] - used.get(name, ZERO), ZERO) for name in _COUNTED}
    return {
        "capacity": _texts(capacity),
        "allocatable": _texts(allocatable),
        "available": _texts(free),
        "observationTime": format_time(now),
    }


def reported_properties(nodes: Sequence[Object], cluster_id: str, now: float) -> Object:
    """Return the properties of a cluster, each with when it was seen."""
    values = {NODE_COUNT: str(len(nodes)), CLUSTER_ID: cluster_id}
    seen = format_time(now)
    return {
        name: {"value": value, "observationTime": seen} for name, value in values.items() if value
    }


def healthy_condition(health: Health, generation: int) -> Condition:
    """Return whether the member is well, with KubeFleet's reasons."""
    if health.is_ready:
        message = "the cluster says that it is ready"
        return Condition(HEALTHY, TRUE, "InternalMemberClusterHealthy", message, generation)
    message = health.why or "the cluster is not ready"
    return Condition(HEALTHY, FALSE, "InternalMemberClusterUnhealthy", message, generation)


def _offered(nodes: Iterable[Object], field: str) -> dict[str, Quantity]:
    summed: dict[str, Quantity] = dict.fromkeys(_COUNTED, ZERO)
    for node in nodes:
        for name in _COUNTED:
            summed[name] += parse_quantity(str(find_at(node, "status", field, name) or "0"))
    return summed


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def with_heartbeat(internal: Object, conditions: Iterable[Condition], now: float) -> Object:
    """Return the InternalMemberCluster with a heartbeat of ours; other agents' word stays."""
    last = find_agent_status(internal) or {"type": MEMBER_AGENT}
    current: list[Object] = list(last.get("conditions") or [])
    for each in conditions:
        current = set_condition(current, each, now).conditions
    own = {**last, "conditions": current, "lastReceivedHeartbeat": format_time(now)}
    others = [each for each in agent_statuses(internal) if each.get("type") != MEMBER_AGENT]
    status: Object = internal.get("status") or {}
    return {**internal, "status": {**status, "agentStatus": [own, *others]}}


def with_inventory(internal: Object, report: Report, cluster_id: str, now: float) -> Object:
    """Return the InternalMemberCluster with what a look at the member found."""
    if report.inventory is None:
        return internal  # it has what it had when it last told
    nodes, pods = report.inventory.nodes, report.inventory.pods
    status: Object = internal.get("status") or {}
    seen = {
        "resourceUsage": resource_usage(nodes, pods, now),
        "properties": reported_properties(nodes, cluster_id, now),
    }
    return {**internal, "status": {**status, **seen}}


def joined(generation: int) -> Condition:
    """Return the Joined condition of a member that is in."""
    message = "the agent reports, and carries out what is placed here"
    return Condition(JOINED, TRUE, "InternalMemberClusterJoined", message, generation)


def left(generation: int, *, keeps: bool = False) -> Condition:
    """Return the Joined condition of a member that is out."""
    message = left_text(keeps=keeps)
    return Condition(JOINED, FALSE, "InternalMemberClusterLeft", message, generation)


def failed_to_leave(why: str, generation: int) -> Condition:
    """Return the Joined condition of a member that cannot leave yet."""
    return Condition(JOINED, UNKNOWN, "InternalMemberClusterFailedToLeave", why, generation)


class MembershipAgent(Reconciler):
    """Does what the InternalMemberCluster of the cluster it runs for asks, if there is one."""

    name = "membership-agent"
    workers = 1
    longest_retry_seconds = 30.0  # how late a heartbeat may be once a hub that was away is back

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        cluster_name: str,
        member: ClusterClient,
        *,
        clock: Clock,
        random: Random,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._hub = hub
        path = internal_path(cluster_name)
        self._internals = caches.informer(path.resource, path.namespace)
        self._member = member
        self._discovery = Discovery(member.connection)
        self._clock = clock
        self._random = random
        self._patience_seconds = patience_seconds
        self._leaving_since: tuple[str, float] | None = None

    def watches(self) -> Iterable[Watch]:
        """Return the InternalMemberCluster, but for echoes of our own reports."""
        yield Watch(self._internals, when=more_than_status_changed)

    async def reconcile(self, request: Request) -> Result:
        """Do what the hub asks for, and say how it goes."""
        internal = await self._hub.find(internal_path(request.name))
        if internal is None or is_being_deleted(internal):
            return Done()
        match find_at(internal, "spec", "state"):
            case state if state == JOIN:
                return await self._stay(internal)
            case state if state == LEAVE:
                return await self._leave(internal)
            case state:
                _log.warning("told to do what no agent does", cluster=request.name, state=state)
                return Done()

    async def _stay(self, internal: Object) -> Result:
        self._leaving_since = None
        report = await collect(self._member, self._discovery)
        cluster_id = "" if report.inventory is None else (await read_identity(self._member)).id
        now, generation = self._clock.now(), generation_of(internal)
        healthy = healthy_condition(report.health, generation)
        after = with_heartbeat(internal, (joined(generation), healthy), now)
        await self._write(internal, with_inventory(after, report, cluster_id, now))
        spread = self._random.uniform(1 - _JITTER, 1 + _JITTER)
        # Stamps have whole seconds: two in the same one would look as if one were missing.
        return RequeueAfter(max(period_of(internal) * spread, 1.0))

    async def _leave(self, internal: Object) -> Result:
        generation, now = generation_of(internal), self._clock.now()
        try:
            obstacle = await self._find_obstacle(name_of(internal))
        except (ApiError, ClusterError) as error:
            obstacle = f"the hub cannot be asked: {error}"
        if not obstacle:
            gone = left(generation, keeps=keeps_resources(internal))
            await self._write(internal, with_heartbeat(internal, (gone,), now))
            _log.info(
                "left the fleet; this agent waits to be invited again, until it is stopped",
                cluster=name_of(internal),
            )
            return Done()
        started = self._clock.monotonic()
        if self._leaving_since is None or self._leaving_since[0] != uid_of(internal):
            self._leaving_since = (uid_of(internal), started)
        if started - self._leaving_since[1] < self._patience_seconds:
            return RequeueAfter(_POLL_SECONDS)
        failed = failed_to_leave(obstacle, generation)
        await self._write(internal, with_heartbeat(internal, (failed,), now))
        _log.warning("cannot leave yet", cluster=name_of(internal), reason=obstacle)
        return RequeueAfter(min(period_of(internal), self._patience_seconds))

    async def _find_obstacle(self, cluster_name: str) -> str:
        """Return why we cannot leave yet: Works of our Cluster are left; empty when none are."""
        cluster = await self._hub.find(manifests.cluster_path(cluster_name))
        if cluster is not None:
            if not is_being_deleted(cluster):
                return "the hub has not begun to withdraw what was placed"
            works = await self._hub.list_objects(manifests.works_path(cluster_name))
            if works:
                shown = ", ".join(sorted(map(name_of, works))[:_MOST_NAMED])
                more = len(works) - _MOST_NAMED
                return f"not withdrawn yet: {shown}{f' and {more} more' if more > 0 else ''}"
        path = fleet_works_path(cluster_name)
        for work in await self._hub.list_objects(path):
            if finalizers_of(work):
                freed = with_metadata(work, finalizers=None)
                await commit(self._hub, path.named(name_of(work)), work, freed)
        return ""

    async def _write(self, before: Object, after: Object) -> None:
        await commit(self._hub, internal_path(name_of(before)), before, after)
