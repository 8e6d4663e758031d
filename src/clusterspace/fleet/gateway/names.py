"""`NAME.clusterspace.CLUSTER`: how an object is called where many clusters are one.

The last `.clusterspace.` decides. Native names may contain dots, and even the marker itself when
gateways are nested; names of clusters are DNS labels and contain neither. A qualified name may be
longer than the 253 characters Kubernetes allows: the cluster judges its own part of it, no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver.http.request_info import RequestInfo

HUB: Final = "karmada"
"""What the control plane is called where a cluster is named."""

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


@dataclass(frozen=True, slots=True)
class Naming:
    """How the objects of one cluster are called in a request and in its answer."""

    cluster: str
    qualifies_names: bool = False
    """Whether names carry the cluster: `nginx.clusterspace.member1`."""
    qualifies_namespaces: bool = False
    """Whether namespaces do: `default.clusterspace.member1`."""
    qualifies_marked: bool = False
    """Whether names do that would be taken for those of another cluster: in lists of the hub."""

    @property
    def is_plain(self) -> bool:
        """Whether everything is called what the cluster itself calls it."""
        return not (self.qualifies_names or self.qualifies_namespaces or self.qualifies_marked)


@dataclass(frozen=True, slots=True)
class BodyNames:
    """What the body of a request calls its object; empty where it does not say."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What kind of object a body is about, as its URL says: patches do not say it themselves."""

    group: str
    version: str
    resource: str
    subresource: str = ""

    @classmethod
    def of(cls, info: RequestInfo) -> "Subject":
        """Return the resource and subresource that a request is about."""
        return cls(info.group, info.version, info.resource, info.subresource)
