"""Replicas that no node of a member takes: counted there, for the scheduler to place elsewhere.

    workload with replicas missing ──> its Pending pods ──for long enough──> status of its Work

Only workloads that lack replicas are looked into, now and then. How long a pod waits is measured
here, by our own clock, from when it was first seen waiting: members' clocks differ, and a process
that starts anew waits once more.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.errors import ApiError, ClusterError, MalformedSelector
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.selectors import label_selector_of

_log = structlog.get_logger(__name__)

UNSCHEDULABLE_SECONDS: Final = 300.0
"""How long a pod must have found no node: autoscalers of nodes need their time."""

_LOOKS: Final = 5
"""How often a pod is looked at within that time."""

_PODS: Final = GroupVersionResource("", "v1", "pods")
_PENDING: Final = ListOptions(field_selector="status.phase=Pending")
_KINDS: Final = frozenset({("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")})


@dataclass(frozen=True, slots=True)
class Stuck:
    """How many replicas find no node, and after how many seconds to look again; 0 for never."""

    replicas: int = 0
    look_again_seconds: float = 0.0


NOTHING_STUCK: Final = Stuck()


@dataclass(slots=True)
class _Look:
    generation: object
    at: float
    replicas: int
    since: dict[str, float]
    """Pods that wait, by UID, and since when they are known to."""


class UnschedulableReplicas:
    """Counts, for the workloads of one member, the pods that have long found no node."""

    def __init__(
        self, member: ClusterClient, clock: Clock, seconds: float = UNSCHEDULABLE_SECONDS
    ) -> None:
        self._member = member
        self._clock = clock
        self._seconds = seconds
        self._looks: dict[str, _Look] = {}

    async def count(self, live: Object) -> Stuck:
        """Return how many replicas of a workload are stuck; none when the member does not say."""
        kind = str(live.get("apiVersion")), str(live.get("kind"))
        if not self._seconds or kind not in _KINDS or is_being_deleted(live):
            return NOTHING_STUCK
        now, every = self._clock.monotonic(), self._seconds / _LOOKS
        last = self._looks.get(uid_of(live))
        generation = metadata_of(live).get("generation")
        if last is not None and last.generation == generation and now - last.at < every:
            return Stuck(last.replicas, every - (now - last.at))
        try:
            selector = label_selector_of(find_at(live, "spec", "selector") or {})
            pods = await self._member.list_objects(
                ResourcePath(_PODS, namespace_of(live)), _PENDING
            )
        except (ApiError, ClusterError, MalformedSelector) as error:
            _log.debug("pods not counted", reason=str(error))
            return Stuck(0, every)
        known = {} if last is None else last.since
        since = {
            uid_of(pod): known.get(uid_of(pod), now)
            for pod in pods
            if selector.matches(labels_of(pod)) and is_unschedulable(pod)
        }
        replicas = sum(now - seen >= self._seconds for seen in since.values())
        # What nobody asks about any more is gone from the member, or has all its replicas.
        self._looks = {
            uid: look for uid, look in self._looks.items() if now - look.at < 2 * self._seconds
        }
        self._looks[uid_of(live)] = _Look(generation, now, replicas, since)
        return Stuck(replicas, every)


def is_unschedulable(pod: Object) -> bool:
    """Whether the scheduler of the member found no node for a pod that is to run."""
    found = find_condition(find_at(pod, "status", "conditions"), "PodScheduled") or {}
    is_refused = found.get("status") == "False" and found.get("reason") == "Unschedulable"
    return is_refused and not is_being_deleted(pod) and not find_at(pod, "spec", "nodeName")
