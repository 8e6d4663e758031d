"""Whether a member is alive and well: asked, judged, and believed only when it lasts.

A condition that flips with every lost packet would move workloads about, so a change counts when
it has been seen for as long as its threshold. The first thing seen counts at once.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.errors import AddressNotAllowed, ApiError, ClusterError
from clusterspace.kube.conditions import FALSE, TRUE, UNKNOWN, Condition

READY: Final = "Ready"
PROBES: Final = ("/readyz", "/healthz")
"""Newer servers have the first, older ones only the second."""

_PROBE_SECONDS: Final = 5.0


class State(Enum):
    """What a probe found."""

    READY = "ready"
    UNHEALTHY = "unhealthy"
    UNREACHABLE = "unreachable"
    UNPROBED = "unprobed"
    """The hub has no way to ask: no credentials, no address."""


@dataclass(frozen=True, slots=True)
class Health:
    """The result of a probe, and the reason if the member is not well."""

    state: State
    why: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether workloads may go there."""
        return self.state is State.READY


@dataclass(frozen=True, slots=True)
class Thresholds:
    """For how many seconds a change must be seen before it counts."""

    success_seconds: float = 30.0
    failure_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class History:
    """The readiness of a member that counts, and since when probes contradict it."""

    is_ready: bool | None = None
    otherwise_since: float | None = None

    def see(self, is_ready: bool, now: float, thresholds: Thresholds) -> "History":
        """Return the history after one more probe: a change counts when it has lasted."""
        if self.is_ready is None or self.is_ready == is_ready:
            return History(is_ready)
        since = now if self.otherwise_since is None else self.otherwise_since
        needed = thresholds.success_seconds if is_ready else thresholds.failure_seconds
        if now - since >= needed:
            return History(is_ready)
        return replace(self, otherwise_since=since)


def ready_condition(health: Health) -> Condition:
    """Return the Ready condition that tells of this health, with Karmada's reasons."""
    detail = f": {health.why}" if health.why else ""
    match health.state:
        case State.READY:
            message = "cluster is healthy and ready to accept workloads"
            return Condition(READY, TRUE, "ClusterReady", message)
        case State.UNHEALTHY:
            message = f"cluster is reachable but not healthy{detail}"
            return Condition(READY, FALSE, "ClusterNotReady", message)
        case State.UNREACHABLE:
            message = f"cluster is not reachable{detail}"
            return Condition(READY, FALSE, "ClusterNotReachable", message)
        case State.UNPROBED:
            message = f"cluster cannot be asked{detail}"
            return Condition(READY, FALSE, "StatusCollectionFailed", message)


def silent_condition(*, was_heard: bool) -> Condition:
    """Return the Ready condition of a cluster whose agent is not heard any more, or never was."""
    if was_heard:
        message = "Cluster status controller stopped posting cluster status."
        return Condition(READY, UNKNOWN, "ClusterStatusUnknown", message)
    message = "Cluster status controller never posted cluster status."
    return Condition(READY, UNKNOWN, "ClusterStatusNeverUpdated", message)


async def probe(connection: Connection) -> Health:
    """Ask a member how it is: /readyz, or /healthz where there is none."""
    try:
        for path in PROBES:
            answer = await connection.exchange(ApiRequest("GET", path, seconds=_PROBE_SECONDS))
            if answer.status != 404:
                return judge(answer)
    except (ApiError, ClusterError) as error:
        return Health(State.UNREACHABLE, why_of(error))
    return Health(State.UNHEALTHY, "it has neither /readyz nor /healthz")


def judge(answer: Answer) -> Health:
    """Return the health by the answer to a probe; 401 and 403: it works, but not for us."""
    if answer.status == 200:
        return Health(State.READY)
    if answer.status in (401, 403):
        why = f"it refuses the hub's credentials ({answer.status}); join again to replace them"
        return Health(State.UNREACHABLE, why)
    return Health(State.UNHEALTHY, f"its health check answered {answer.status}")


def why_of(error: ApiError | ClusterError) -> str:
    """Return why a request failed, for the Cluster's conditions; readers may know addresses."""
    if isinstance(error, AddressNotAllowed):
        return f"{error.why} (it leads to {error.address})"
    return error.why if isinstance(error, ClusterError) else error.message
