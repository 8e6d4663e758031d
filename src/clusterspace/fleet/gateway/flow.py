"""Route, Naming, Target, Reply: the values handed from step to step."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.errors import ApiError, ClusterError

HUB: Final = "karmada"
"""What the control plane is called where a cluster is named."""


class Reach(Enum):
    """How far a request reaches."""

    ONE = "one"
    """One cluster, named by the request."""
    EVERY = "every"
    """Every cluster the caller may reach: lists and watches."""
    UNSAID = "unsaid"
    """One cluster that the request does not name: looked for, among those the caller may reach."""
    ANY = "any"
    """The first that has it, the hub before members: whether a namespace is there at all."""


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
        """Return what this request is about."""
        return cls(info.group, info.version, info.resource, info.subresource)


@dataclass(frozen=True, slots=True)
class Route:
    """What a request asks, in the words of the cluster that will be asked, and of whom."""

    info: RequestInfo
    """The request as a single cluster understands it: names and namespace are its own."""
    reach: Reach
    naming: Naming
    """For Reach.ONE the whole truth; for the others its cluster is empty until one is chosen."""
    is_relayed: bool = False
    """Whether nothing is rewritten: the prefix form turns one cluster into an API server."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cluster that is not asked, or whose answer does not count, and why."""

    cluster: str
    why: str
    error: ApiError | ClusterError | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What one cluster answered: a whole answer of any status, or the reason why there is none."""

    cluster: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    failure: ApiError | ClusterError | None = None
