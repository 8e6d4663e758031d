"""Silence, by our own clock, to a condition of its own.

An agent stamps its heartbeats with its own clock, which may be wrong by hours. What counts is the
moment we saw a new stamp. A member is silent after one and a half periods: one heartbeat was due
and did not come, whatever the jitter; the condition is there before a second one is due.
"""

from dataclasses import dataclass
from typing import Final

from clusterspace.apis.member_clusters import HEARTBEAT, find_agent_status, period_of
from clusterspace.kube.conditions import FALSE, TRUE, Condition
from clusterspace.kube.objects import Object, name_of

RECEIVED: Final = "HeartbeatReceived"
LOST: Final = "HeartbeatLost"
_SILENT_PERIODS: Final = 1.5


@dataclass(frozen=True, slots=True)
class Pulse:
    """How an agent is heard."""

    last: str = ""
    """The stamp of the last heartbeat, by the agent's clock; empty when it was never heard."""
    silent_seconds: float = 0.0
    """How long ago we first saw that stamp, by ours."""

    def seconds_left(self, period: int) -> float:
        """Return after how long the agent is silent, if it is not heard before."""
        return max(period * _SILENT_PERIODS - self.silent_seconds, 0.0)


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
class _Sighting:
    stamp: str
    at: float


class Heartbeats:
    """Remembers when each member's last heartbeat was first seen.

    After a restart everybody has the whole time anew: we were not there to listen.
    """

    def __init__(self) -> None:
        self._sightings: dict[str, _Sighting] = {}

    def see(self, internal: Object, now: float) -> Pulse:
        """Take in what an agent told; return how it is heard. `now` is a steady clock's."""
        name = name_of(internal)
        told = find_agent_status(internal) or {}
        stamp = str(told.get("lastReceivedHeartbeat") or "")
        held = self._sightings.get(name)
        if held is None or held.stamp != stamp:
            held = _Sighting(stamp, now)
            self._sightings[name] = held
        return Pulse(stamp, now - held.at)

    def forget(self, cluster_name: str) -> None:
        """Forget a member that left."""
        self._sightings.pop(cluster_name, None)


def seconds_to_silence(pulse: Pulse, member_cluster: Object) -> float | None:
    """Return when to look again so that silence is noticed; None when nothing is to be noticed."""
    left = pulse.seconds_left(period_of(member_cluster))
    return left if pulse.last and left > 0 else None
