"""What agents told into what the MemberCluster says: KubeFleet's conditions and reasons."""

from collections.abc import Iterable
from typing import Final

from clusterspace.apis.member_clusters import (
    HEARTBEAT,
    JOINED,
    READY_TO_JOIN,
    agent_statuses,
    conditions_of,
    find_agent_status,
    period_of,
)
from clusterspace.fleet.membership.member_clusters.heartbeats import Pulse, heartbeat_condition
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    find_condition,
    set_condition,
)
from clusterspace.kube.objects import Object, find_at, metadata_of

READY_REASON: Final = "MemberClusterReadyToJoin"
NOT_READY_REASON: Final = "MemberClusterNotReadyToJoin"
JOINED_REASON: Final = "MemberClusterJoined"
LEFT_REASON: Final = "MemberClusterLeft"
UNKNOWN_REASON: Final = "MemberClusterJoinStateUnknown"

_RELAYED: Final = ("resourceUsage", "properties", "namespaces")
_OURS: Final = frozenset({READY_TO_JOIN, JOINED, HEARTBEAT})
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
    told = _told_joined(internal)
    status, why = str(told.get("status") or UNKNOWN), str(told.get("message") or "")
    if refusal:
        return Condition(JOINED, UNKNOWN, UNKNOWN_REASON, refusal, generation)
    if status == TRUE:
        return Condition(JOINED, TRUE, JOINED_REASON, "the agent says it has joined", generation)
    if status == FALSE:
        return Condition(JOINED, FALSE, LEFT_REASON, "the agent says it has left", generation)
    message = f"the agent says: {why}" if why else "the agent has not said that it joined"
    return Condition(JOINED, UNKNOWN, UNKNOWN_REASON, message, generation)


def has_joined(internal: Object) -> bool:
    """Whether the agent said that it is in."""
    return _told_joined(internal).get("status") == TRUE


def has_left(internal: Object) -> bool:
    """Whether the agent has cleaned up and is out, since it was last told anything."""
    told = _told_joined(internal)
    observed = int(told.get("observedGeneration") or 0)
    return told.get("status") == FALSE and observed >= generation_of(internal)


def relayed_status(member_cluster: Object, internal: Object) -> Object:
    """Return the MemberCluster's status with what its agents told; the hub's own word stays."""
    generation = generation_of(member_cluster)
    status: Object = member_cluster.get("status") or {}
    told: Object = internal.get("status") or {}
    kept = {key: value for key, value in status.items() if key not in _RELAYED}
    passed_on = {key: told[key] for key in _RELAYED if told.get(key)}
    agents = [_observed_agent(each, generation) for each in agent_statuses(internal)]
    relayed = [each for each in conditions_of(internal) if each.get("type") not in _OURS]
    conditions = _merged(conditions_of(member_cluster), relayed, generation)
    result = {**kept, **passed_on, "conditions": conditions}
    return {**result, "agentStatus": agents} if agents else result


def with_conditions(status: Object, conditions: Iterable[Condition | None], now: float) -> Object:
    """Return the status with these conditions set."""
    held: list[Object] = list(status.get("conditions") or [])
    for each in conditions:
        if each is not None:
            held = set_condition(held, each, now).conditions
    return {**status, "conditions": held}


def next_status(
    member_cluster: Object, internal: Object | None, pulse: Pulse, now: float, refusal: str = ""
) -> Object:
    """Return what a MemberCluster says while its member is in, or on its way in."""
    generation = generation_of(member_cluster)
    ready = ready_condition(generation)
    if internal is None:
        return with_conditions(member_cluster.get("status") or {}, (ready,), now)
    beat = heartbeat_condition(pulse, period_of(member_cluster), generation)
    joined = joined_condition(internal, generation, refusal)
    return with_conditions(relayed_status(member_cluster, internal), (ready, joined, beat), now)


def _told_joined(internal: Object) -> Object:
    told = find_agent_status(internal) or {}
    return find_condition(find_at(told, "conditions"), JOINED) or {}


def _observed_agent(agent: Object, generation: int) -> Object:
    conditions: list[Object] = agent.get("conditions") or []
    return {**agent, "conditions": [_observed(each, generation) for each in conditions]}


def _observed(condition: Object, generation: int) -> Object:
    """Return a condition as said about the MemberCluster, whose generations are others."""
    return {**condition, "observedGeneration": generation}


def _merged(held: list[Object], told: list[Object], generation: int) -> list[Object]:
    by_type = {str(each.get("type")): _observed(each, generation) for each in told}
    kept = [by_type.pop(str(each.get("type")), each) for each in held]
    return [*kept, *by_type.values()]
