"""The clusters of the fleet, as placements see them: by name, labels, taints, and health."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from clusterspace.apis.clusters import (
    CLUSTERS,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    conditions_of,
    taints_of,
)
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.controllers.hub_caches import HubCaches
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, labels_of, name_of
from clusterspace.kube.timestamps import parse_time

UNHEALTHY_SECONDS: Final = 300.0
"""How long a cluster may be without health before nothing new is placed there."""

_READY: Final = "Ready"
_HEALTH_TAINTS: Final = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})


@dataclass(frozen=True, slots=True)
class Member:
    """A cluster that something could be placed on."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Object, ...] = ()
    is_leaving: bool = False
    has_reported: bool = True
    unready_since: float | None = None
    """Since when it has not been ready; None while it is."""

    def problem(self, now: float) -> str | None:
        """Return why nothing new can be placed there, or None."""
        if self.is_leaving:
            return "it is leaving the fleet"
        if not self.has_reported:
            return "it has not reported yet"
        if self.unready_since is not None and now - self.unready_since >= UNHEALTHY_SECONDS:
            minutes = int((now - self.unready_since) // 60)
            return f"it has not been ready for {minutes} minutes"
        return None

    def turns_unhealthy_after(self, now: float) -> float | None:
        """Return in how many seconds its silence begins to count; None when it does not."""
        if self.unready_since is None:
            return None
        left = self.unready_since + UNHEALTHY_SECONDS - now
        return left if left > 0 else None


def member_of(cluster: Object) -> Member:
    """Return what placements look at in a Cluster.

    The taints that a cluster gets for being unhealthy are left out: health has rules of its own.
    """
    ready = find_condition(conditions_of(cluster), _READY)
    since = (ready or {}).get("lastTransitionTime")
    is_ready = ready is not None and ready.get("status") == TRUE
    return Member(
        name=name_of(cluster),
        labels=labels_of(cluster),
        taints=tuple(t for t in taints_of(cluster) if t.get("key") not in _HEALTH_TAINTS),
        is_leaving=is_being_deleted(cluster),
        has_reported=ready is not None,
        unready_since=None if is_ready or not since else parse_time(str(since)),
    )


class KnownMembers:
    """The clusters there are; each state of one is read once, for a Cluster is long."""

    def __init__(self, caches: HubCaches) -> None:
        self._cache = caches.informer(CLUSTERS).cache
        self._read: dict[str, tuple[bytes | None, Member]] = {}

    def members(self) -> dict[str, Member]:
        """Return all clusters by name."""
        self._read = {key: self._member(key) for key in sorted(self._cache.keys())}
        return {member.name: member for _, member in self._read.values()}

    def _member(self, key: str) -> tuple[bytes | None, Member]:
        raw, known = self._cache.find_raw(key), self._read.get(key)
        if known is not None and known[0] is raw:
            return known
        return raw, member_of(self._cache.find(key) or {})
