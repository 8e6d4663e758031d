"""`NAME.clusterspace.CLUSTER`: how an object is called where many clusters are one.

The last `.clusterspace.` decides. Native names may contain dots, and even the marker itself when
gateways are nested; names of clusters are DNS labels and contain neither. A qualified name may be
longer than the 253 characters Kubernetes allows: the cluster judges its own part of it, no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.fleet.gateway.flow import HUB

MARKER: Final = ".clusterspace."

HUB_ALIAS: Final = "hub"
"""The other word for the control plane, understood in URLs."""

ALL: Final = "all"
"""The word for every cluster, understood in URLs."""

NAME_LABELS: Final = frozenset(
    {
        "kubernetes.io/service-name",
        "job-name",
        "batch.kubernetes.io/job-name",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels whose values are names of objects, which clients select by when they follow a name."""


@dataclass(frozen=True, slots=True)
class Split:
    """A name taken apart: what the cluster calls the object, and which cluster, if it is said."""

    name: str
    cluster: str | None = None


def qualify(name: str, cluster: str) -> str:
    """Return the name the object has in the fleet."""
    return f"{name}{MARKER}{cluster}"


def split(name: str) -> Split:
    """Take a name apart; without a name or a cluster around the marker it is a bare one."""
    own, _, cluster = name.rpartition(MARKER)
    return Split(own, cluster) if own and cluster else Split(name)


def in_order(clusters: Iterable[str]) -> list[str]:
    """Return clusters in the order answers have: the hub, then members by name."""
    return sorted(clusters, key=position)


def position(cluster: str) -> tuple[bool, str]:
    """Return where a cluster comes in an answer; a sort key."""
    return cluster != HUB, cluster
