"""What agents reported into what the MemberCluster says: KubeFleet's conditions and reasons.

And silence, by our own clock, to a condition of its own. An agent stamps its heartbeats with its
own clock, which may be wrong by hours. What counts is the moment we saw a new stamp. A member is
silent after one and a half periods: one heartbeat was due and did not come, whatever the jitter;
the condition is there before a second one is due.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import DELETIONS_PAUSED
from clusterspace.apis.member_clusters import (
    HEALTHY,
    HEARTBEAT,
    JOINED,
    KUBERNETES_VERSION,
    NODE_COUNT,
    READY_TO_JOIN,
    SILENT_PERIODS,
    agent_statuses,
    conditions_of,
    find_agent_status,
    heartbeat_of,
    period_of,
    property_of,
)
from clusterspace.errors import Malformed
from clusterspace.fleet.membership.health import Health, State
from clusterspace.fleet.membership.health import ready_condition as cluster_ready
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    find_condition,
    set_condition,
)
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, with_value
from clusterspace.kube.quantities import ZERO, parse_quantity

RECEIVED: Final = "HeartbeatReceived"
LOST: Final = "HeartbeatLost"

_LONGEST_MESSAGE: Final = 1024
_LONGEST_VERSION: Final = 64
_LONGEST_COUNT: Final = 6
_MOST_RESOURCES: Final = 64
"""Beyond that it is no cluster that reports, but somebody who means harm."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """How an agent is heard."""

    last: str = ""
    """The stamp of the last heartbeat, by the agent's clock; empty when it was never heard."""
    silent_seconds: float = 0.0
    """How long ago we first saw that stamp, by ours."""

    def seconds_left(self, period: int) -> float:
        """Return after how long the agent is silent, if it is not heard before."""
        return max(period * SILENT_PERIODS - self.silent_seconds, 0.0)


def heartbeat_condition(pulse: Pulse, period: int, generation: int) -> Condition | None:
    """Return whether the agent is heard; None while it never was."""
    if not pulse.last:
        return None
    if pulse.seconds_left(period) > 0:
        message = f"the agent is heard every {period}s"
        return Condition(HEARTBEAT, TRUE, RECEIVED, message, generation)
    message = f"the agent was last heard at {pulse.last}, and should be every {period}s"
    return Condition(HEARTBEAT, FALSE, LOST, message, generation)


@dataclass(frozen=True, slots=True)
class _Observation:
    stamp: str
    at: float


class Heartbeats:
    """Remembers when each member's last heartbeat was first seen.

    After a restart everybody has the whole time anew: we were not there to listen.
    """

    def __init__(self) -> None:
        self._observations: dict[str, _Observation] = {}

    def see(self, internal: Object, now: float) -> Pulse:
        """Take in an agent's report; return how it is heard. `now` is a steady clock's."""
        name = name_of(internal)
        stamp = heartbeat_of(internal)
        last = self._observations.get(name)
        if last is None or last.stamp != stamp:
            last = _Observation(stamp, now)
            self._observations[name] = last
        return Pulse(stamp, now - last.at)

    def forget(self, cluster_name: str) -> None:
        """Forget a member that left."""
        self._observations.pop(cluster_name, None)


def seconds_to_silence(pulse: Pulse, member_cluster: Object) -> float | None:
    """Return when to look again so that silence is noticed; None when nothing is to be noticed."""
    left = pulse.seconds_left(period_of(member_cluster))
    return left if pulse.last and left > 0 else None


READY_REASON: Final = "MemberClusterReadyToJoin"
NOT_READY_REASON: Final = "MemberClusterNotReadyToJoin"
JOINED_REASON: Final = "MemberClusterJoined"
LEFT_REASON: Final = "MemberClusterLeft"
UNKNOWN_REASON: Final = "MemberClusterJoinStateUnknown"

_RELAYED: Final = ("resourceUsage", "properties", "namespaces")
_OURS: Final = frozenset({READY_TO_JOIN, JOINED, HEARTBEAT, DELETIONS_PAUSED})
"""Said by the hub alone, whatever an agent puts among its conditions."""


def generation_of(kube_object: Object) -> int:
    """Return how often what is asked for has changed."""
    return int(metadata_of(kube_object).get("generation") or 0)


def ready_condition(generation: int, obstacle: str = "") -> Condition:
    """Return whether everything a member needs to join is there."""
    if obstacle:
        return Condition(READY_TO_JOIN, FALSE, NOT_READY_REASON, obstacle, generation)
    message = "the hub has made all the agent needs"
    return Condition(READY_TO_JOIN, TRUE, READY_REASON, message, generation)


def joined_condition(internal: Object, generation: int, refusal: str = "") -> Condition:
    """Return whether the member is in, by what its agent says; `refusal` is why the hub says no."""
    reported = _agent_joined(internal)
    status = str(reported.get("status") or UNKNOWN)
    why = str(reported.get("message") or "")
    if refusal:
        return Condition(JOINED, UNKNOWN, UNKNOWN_REASON, refusal, generation)
    if status == TRUE:
        return Condition(JOINED, TRUE, JOINED_REASON, "the agent says it has joined", generation)
    if status == FALSE:
        return Condition(JOINED, FALSE, LEFT_REASON, "the agent says it has left", generation)
    message = f"the agent says: {why}" if why else "the agent has not said that it joined"
    return Condition(JOINED, UNKNOWN, UNKNOWN_REASON, message, generation)


def left_text(*, keeps: bool) -> str:
    """Return what became of what was placed on a member that has left."""
    if keeps:
        return "what was placed stays on the member, and is the fleet's no longer"
    return "all that was placed is withdrawn, but for namespaces that hold what others made"


def has_joined(internal: Object) -> bool:
    """Whether the agent said that it is in."""
    return _agent_joined(internal).get("status") == TRUE


def has_left(internal: Object) -> bool:
    """Whether the agent has cleaned up and is out, since it was last told anything."""
    joined = _agent_joined(internal)
    observed = int(joined.get("observedGeneration") or 0)
    return joined.get("status") == FALSE and observed >= generation_of(internal)


def relayed_status(member_cluster: Object, internal: Object) -> Object:
    """Return the MemberCluster's status with what its agents reported; the hub's own word stays."""
    generation = generation_of(member_cluster)

    def observed(condition: Object) -> Object:
        # Said about the MemberCluster, whose generations are others.
        return {**condition, "observedGeneration": generation}

    status: Object = member_cluster.get("status") or {}
    reported: Object = internal.get("status") or {}
    kept = {key: value for key, value in status.items() if key not in _RELAYED}
    passed_on = {key: reported[key] for key in _RELAYED if reported.get(key)}
    relayed = {
        str(each.get("type")): observed(each)
        for each in conditions_of(internal)
        if each.get("type") not in _OURS
    }
    present = conditions_of(member_cluster)
    merged = [relayed.pop(str(each.get("type")), each) for each in present]
    result = {**kept, **passed_on, "conditions": [*merged, *relayed.values()]}
    agents: list[Object] = []
    for agent in agent_statuses(internal):
        conditions: list[Object] = agent.get("conditions") or []
        agents.append({**agent, "conditions": [observed(each) for each in conditions]})
    return {**result, "agentStatus": agents} if agents else result


def with_conditions(status: Object, conditions: Iterable[Condition | None], now: float) -> Object:
    """Return the status with these conditions set."""
    current: list[Object] = list(status.get("conditions") or [])
    for each in conditions:
        if each is not None:
            current = set_condition(current, each, now).conditions
    return {**status, "conditions": current}


def next_status(
    member_cluster: Object,
    internal: Object | None,
    pulse: Pulse,
    now: float,
    refusal: str = "",
    *,
    cluster: Object | None = None,
) -> Object:
    """Return the status of a MemberCluster whose member is in, or on its way in.

    Deletions that pause are told of as the Cluster tells of them; one made anew has no pause.
    """
    generation = generation_of(member_cluster)
    ready, paused = ready_condition(generation), None
    conditions = conditions_of(member_cluster)
    if (found := find_condition(conditions_of(cluster or {}), DELETIONS_PAUSED)) is not None:
        status, reason, message = (str(found.get(key)) for key in ("status", "reason", "message"))
        paused = Condition(DELETIONS_PAUSED, status, reason, message, generation)
    elif cluster is not None:
        conditions = [each for each in conditions if each.get("type") != DELETIONS_PAUSED]
        member_cluster = with_value(member_cluster, conditions, "status", "conditions")
    if internal is None:
        return with_conditions(member_cluster.get("status") or {}, (ready, paused), now)
    beat = heartbeat_condition(pulse, period_of(member_cluster), generation)
    joined = joined_condition(internal, generation, refusal)
    return with_conditions(
        relayed_status(member_cluster, internal), (ready, joined, beat, paused), now
    )


def _agent_joined(internal: Object) -> Object:
    """Return the Joined condition that the agent reported, or an empty one."""
    status = find_agent_status(internal) or {}
    return find_condition(find_at(status, "conditions"), JOINED) or {}


# -- a Cluster whose agent is KubeFleet's, which writes nothing but its InternalMemberCluster ------


def cluster_status(cluster: Object, internal: Object, now: float) -> Object:
    """Return the status of a Cluster as KubeFleet's agent reports it, in the words of a Cluster.

    It says how many nodes there are and what is free on them, and not which APIs are served.
    """
    status: Object = cluster.get("status") or {}
    agent = find_agent_status(internal) or {}
    healthy = find_condition(agent.get("conditions"), HEALTHY) or {}
    if healthy.get("status") == TRUE:
        health = Health(State.READY)
    else:
        why = str(healthy.get("message") or "its agent does not say how it is")
        health = Health(State.UNHEALTHY, why[:_LONGEST_MESSAGE])
    conditions = set_condition(status.get("conditions"), cluster_ready(health), now).conditions
    reported: Object = {}
    nodes = property_of(internal, NODE_COUNT)
    if nodes.isdecimal() and len(nodes) <= _LONGEST_COUNT:
        reported["nodeSummary"] = {"totalNum": int(nodes)}
    if version := property_of(internal, KUBERNETES_VERSION):
        reported["kubernetesVersion"] = version[:_LONGEST_VERSION]
    if summary := _resource_summary(find_at(internal, "status", "resourceUsage") or {}):
        reported["resourceSummary"] = summary
    return {**status, **reported, "conditions": conditions}


def _resource_summary(usage: Object) -> Object:
    allocatable: Object = usage.get("allocatable") or {}
    available: Object = usage.get("available") or {}
    allocated: dict[str, str] = {}
    for name, amount in list(allocatable.items())[:_MOST_RESOURCES]:
        try:
            used = parse_quantity(str(amount)) - parse_quantity(str(available.get(name, amount)))
        except Malformed:
            return {}  # what cannot be read is not known
        if used > ZERO:
            allocated[name] = str(used)
    kept = {name: str(amount) for name, amount in list(allocatable.items())[:_MOST_RESOURCES]}
    return {"allocatable": kept, **({"allocated": allocated} if allocated else {})} if kept else {}
