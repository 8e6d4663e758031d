"""Clusters as a table for people: one glance tells who is well and who has room."""

from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import DELETIONS_PAUSED, conditions_of, is_pull, taints_of
from clusterspace.errors import Malformed
from clusterspace.fleet.membership.status import ready_status
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.times import age, parse_time

_BAR: Final = 10
_FULL: Final = "█"
_EMPTY: Final = "░"
NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One cluster, in words."""

    name: str
    mode: str
    ready: str
    version: str
    nodes: str
    cpu: str
    memory: str
    heartbeat: str
    taints: str

    def cells(self) -> tuple[str, ...]:
        """Return the words in the order of the columns."""
        return (
            self.name,
            self.mode,
            self.ready,
            self.version,
            self.nodes,
            self.cpu,
            self.memory,
            self.heartbeat,
            self.taints,
        )


COLUMNS: Final = (
    "NAME", "MODE", "READY", "VERSION", "NODES", "CPU", "MEMORY", "HEARTBEAT", "TAINTS",
)  # fmt: skip


def row_of(cluster: Object, lease: Object | None, now: float, *, has_bars: bool = True) -> Row:
    """Return the row of one cluster; `lease` is its heartbeat, if it has one.

    Without bars it is short enough for a narrow terminal.
    """
    summary = find_at(cluster, "status", "nodeSummary")
    nodes = NONE
    if summary is not None:
        nodes = f"{find_at(summary, 'readyNum') or 0}/{find_at(summary, 'totalNum') or 0}"
    taints = [
        f"{each.get('key')}{'=' + each['value'] if each.get('value') else ''}:{each.get('effect')}"
        for each in taints_of(cluster)
    ]
    ready = "Leaving" if is_being_deleted(cluster) else ready_status(cluster) or "Unknown"
    is_paused = is_true(conditions_of(cluster), DELETIONS_PAUSED)
    return Row(
        name=name_of(cluster),
        mode=str(find_at(cluster, "spec", "syncMode") or NONE),
        ready=ready + (", deletions paused" if is_paused else ""),
        version=str(find_at(cluster, "status", "kubernetesVersion") or NONE).partition("+")[0],
        nodes=nodes,
        cpu=usage_bar(cluster, "cpu", has_bar=has_bars),
        memory=usage_bar(cluster, "memory", has_bar=has_bars),
        heartbeat=_heartbeat(cluster, lease, now),
        taints=", ".join(taints) or NONE,
    )


def usage_bar(cluster: Object, resource: str, *, has_bar: bool = True) -> str:
    """Return how much of a resource is asked for, as a bar with its share, or as that alone."""
    offered = find_at(cluster, "status", "resourceSummary", "allocatable", resource)
    if not offered:
        return NONE
    asked = find_at(cluster, "status", "resourceSummary", "allocated", resource) or "0"
    total, used = parse_quantity(str(offered)), parse_quantity(str(asked))
    share = used.nanos / total.nanos if total else 0.0
    if not has_bar:
        return f"{share:.0%} of {total}"
    filled = min(round(share * _BAR), _BAR)
    return f"{_FULL * filled}{_EMPTY * (_BAR - filled)} {share:4.0%} of {total}"


def _heartbeat(cluster: Object, lease: Object | None, now: float) -> str:
    """Return how long ago the agent was last heard; the hub asks Push clusters itself."""
    renewed = find_at(lease, "spec", "renewTime") if is_pull(cluster) else None
    if not renewed:
        return NONE
    try:
        return age(max(now - parse_time(str(renewed)), 0.0))
    except Malformed:
        return NONE
