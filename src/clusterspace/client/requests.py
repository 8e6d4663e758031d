"""ApiRequest and Answer, handed to a connection and back; ResourcePath, what requests are for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from clusterspace.client.answer_memory import Hold
from clusterspace.errors import MalformedObject
from clusterspace.kube.objects import name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource

Headers: TypeAlias = tuple[tuple[str, str], ...]
Query: TypeAlias = tuple[tuple[str, str], ...]

DEADLINE_SECONDS: Final = 30.0
MOST_BYTES: Final = 256 * 1024 * 1024
"""A list of a hundred thousand large objects fits; an answer without end does not."""

_SAFE: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request to a cluster, and how much time and memory its answer may take.

    `path` starts at the cluster's root and is percent-encoded already; a prefix the server's URL
    has comes before it.
    """

    method: str
    path: str
    query: Query = ()
    headers: Headers = ()
    body: bytes | None = field(default=None, repr=False)
    seconds: float = DEADLINE_SECONDS
    """For the whole answer; of a stream, for its head."""
    most_bytes: int = MOST_BYTES
    hold: Hold | None = field(default=None, repr=False, compare=False)
    """What the answer is counted in, when all answers together have a bound."""
    quiet_seconds: float | None = None
    """Of a stream: how long it may say nothing before it counts as broken."""

    @property
    def is_safe(self) -> bool:
        """Whether asking twice is the same as asking once."""
        return self.method in _SAFE

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the server asks us to try again, if it does."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() else None


def path_of(*segments: str) -> str:
    """Join segments to a path, each encoded as a whole: a slash in a name stays in the name.

    Dots cannot be encoded away: a server, or a proxy before it, would walk up the path.
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            raise MalformedObject(f"{segment!r} is no part of a path", place="path")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


@dataclass(frozen=True, slots=True, order=True)
class ResourcePath:
    """A collection, an object in it, or a subresource of that object.

    ResourcePath(PODS)                                           pods of all namespaces
    ResourcePath(PODS, "default")                                pods of one namespace
    ResourcePath(PODS, "default", "web")                         one pod
    ResourcePath(PODS, "default", "web").with_subresource("log")
    """

    resource: GroupVersionResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path of the URL, encoded."""
        inside = ("namespaces", self.namespace) if self.namespace else ()
        behind = tuple(each for each in (self.name, self.subresource) if each)
        return self.resource.group_version.path + path_of(*inside, self.resource.resource, *behind)

    @property
    def collection(self) -> "ResourcePath":
        """The collection the object is in."""
        return replace(self, name="", subresource="")

    @property
    def key(self) -> str:
        """The object's name, with its namespace before it if it has one."""
        return key_of(self.namespace, self.name)

    def named(self, name: str) -> "ResourcePath":
        """Return an object of this collection."""
        return replace(self, name=name)

    def with_subresource(self, subresource: str) -> "ResourcePath":
        """Return a subresource of this object."""
        return replace(self, subresource=subresource)

    def at(self, key: str) -> "ResourcePath":
        """Return the object with this key."""
        namespace, _, name = key.rpartition("/")
        return replace(self, namespace=namespace, name=name)

    def __str__(self) -> str:
        subresource = f"/{self.subresource}" if self.subresource else ""
        subject = f" {self.key}" if self.name or self.namespace else ""
        return f"{self.resource.group_resource}{subresource}{subject}"


def resource_path_of(
    resource: GroupVersionResource, kube_object: Mapping[str, Any]
) -> ResourcePath:
    """Return where an object is."""
    return ResourcePath(resource, namespace_of(kube_object), name_of(kube_object))


def key_of(namespace: str, name: str) -> str:
    """Return `namespace/name`, or the name alone for what has no namespace."""
    return f"{namespace}/{name}" if namespace else name
