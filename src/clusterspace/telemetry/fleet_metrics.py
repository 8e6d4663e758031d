"""What is measured of member clusters; the names are Karmada's, so that its dashboards work.

The only label is the name of a cluster, and only an administrator makes clusters.
"""

from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from clusterspace.telemetry.metrics import REGISTRY

_LABEL: Final = ("member_cluster",)
_LOOK_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_ready = Gauge(
    "cluster_ready_state",
    "Whether a cluster is ready: 1 or 0.",
    _LABEL,
    registry=REGISTRY,
)
_nodes = Gauge("cluster_node_number", "Nodes of a cluster.", _LABEL, registry=REGISTRY)
_ready_nodes = Gauge(
    "cluster_ready_node_number",
    "Nodes of a cluster that are ready.",
    _LABEL,
    registry=REGISTRY,
)
_look_seconds = Histogram(
    "cluster_sync_status_duration_seconds",
    "Time it took to look at a cluster and write what changed.",
    _LABEL,
    buckets=_LOOK_SECONDS,
    registry=REGISTRY,
)
_transitions = Counter(
    "clusterspace_cluster_transitions_total",
    "How often a cluster changed to this Ready status.",
    (*_LABEL, "status"),
    registry=REGISTRY,
)
_doubts = Gauge(
    "clusterspace_hub_suspects_itself",
    "Whether so many clusters fell silent at once that the hub suspects itself: 1 or 0.",
    registry=REGISTRY,
)
_evictions = Counter(
    "clusterspace_evictions_total",
    "Workloads that began to leave a cluster (started), left it (succeed), or stay (cancelled).",
    (*_LABEL, "step"),
    registry=REGISTRY,
)
_suspended = Gauge(
    "clusterspace_evictions_suspended",
    "Whether nobody is evicted at present, because the controllers suspect themselves: 1 or 0.",
    registry=REGISTRY,
)
_braked = Gauge(
    "clusterspace_evictions_braked",
    "Whether workloads wait to leave a failure domain because so many have left it: 1 or 0.",
    ("domain",),
    registry=REGISTRY,
)
_joins = Counter(
    "clusterspace_member_clusters_joined_total",
    "MemberClusters whose agent joined.",
    registry=REGISTRY,
)
_leaves = Counter(
    "clusterspace_member_clusters_left_total",
    "MemberClusters that are out: their agent left, or was given up (forced).",
    ("result",),
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The measurements of one cluster."""

    is_ready: bool
    nodes: int
    ready_nodes: int


def cluster_seen(cluster: str, figures: ClusterFigures, seconds: float) -> None:
    """Note what a look at a cluster found, and how long it took."""
    _ready.labels(cluster).set(int(figures.is_ready))
    _nodes.labels(cluster).set(figures.nodes)
    _ready_nodes.labels(cluster).set(figures.ready_nodes)
    _look_seconds.labels(cluster).observe(seconds)


def cluster_changed(cluster: str, status: str) -> None:
    """Count that a cluster's Ready status changed to True, False or Unknown."""
    _transitions.labels(cluster, status).inc()
    _ready.labels(cluster).set(int(status == "True"))


def cluster_forgotten(cluster: str) -> None:
    """Measure a cluster that left no more; how it did before is history."""
    for each in (_ready, _nodes, _ready_nodes, _look_seconds):
        each.remove(cluster)


def hub_doubts(*, itself: bool) -> None:
    """Note whether the hub suspects itself."""
    _doubts.set(int(itself))


def evicted(cluster: str, step: str) -> None:
    """Count a step of a workload's way out of a cluster."""
    _evictions.labels(cluster, step).inc()


def evictions_suspended(*, are: bool) -> None:
    """Note whether nobody is evicted at present."""
    _suspended.set(int(are))


def evictions_braked(domain: str, *, are: bool) -> None:
    """Note whether workloads wait to leave a failure domain."""
    _braked.labels(domain).set(int(are))


def member_joined() -> None:
    """Count a MemberCluster whose agent joined."""
    _joins.inc()


def member_left(result: str) -> None:
    """Count a MemberCluster that is out; the result is `left` or `forced`."""
    _leaves.labels(result).inc()
