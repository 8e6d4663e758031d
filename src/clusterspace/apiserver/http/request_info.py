"""What a request asks for: verb and resource, from method and URL; and in which form, from Accept.

The record is built once, from the matched path, and serves authorization, audit and handler
alike: what was authorized is what is handled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from clusterspace.errors import BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.discovery_documents import (
    AGGREGATED_GROUP,
    AGGREGATED_KIND,
    AGGREGATED_VERSIONS,
)
from clusterspace.kube.tables import META_GROUP, META_VERSION

MAX_QUERY_FIELDS: Final = 1000
"""More parameters than any client sends; a bound on the work a URL can cause."""

_REMEMBERED_LENGTH: Final = 512
"""Of method and URL together; of a thousand of these, what they mean is remembered."""

_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

READ_VERBS: Final = frozenset({"get", "list", "watch", "head", "options"})

_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
"""What may follow `/namespaces/NAME` and still be about the namespace itself."""

_PROXY: Final = "proxy"
STREAMS: Final = frozenset({"attach", "exec", "portforward"})
"""Subresources that are asked for by GET or by POST, as the protocol of their stream has it."""
CONNECTS: Final = STREAMS | {_PROXY}
"""Subresources that lead into what runs there: a GET does as much as a POST."""


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a URL, in order; a parameter may come several times."""

    pairs: tuple[tuple[str, str], ...] = ()
    first: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """The first value of each parameter, which is the one that counts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", dict(reversed(self.pairs)))

    def get(self, name: str) -> str:
        """Return the first value, or an empty string."""
        return self.first.get(name, "")

    def get_all(self, name: str) -> tuple[str, ...]:
        """Return every value given for the parameter."""
        return tuple(value for key, value in self.pairs if key == name)

    def is_true(self, name: str) -> bool:
        """Whether a flag is set, as Kubernetes reads them: present, and not `0` or `false`."""
        return name in self.first and self.first[name].lower() not in ("0", "false")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a request asks for, read from its method and URL alone."""

    method: str
    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    """The namespace whose roles count. That of a Namespace is itself, as in Kubernetes."""
    name: str = ""
    rest: tuple[str, ...] = ()
    """Path segments after the subresource, as a proxy gets them."""
    query: Query = field(default_factory=Query)
    is_in_namespace: bool = False
    """Whether the path says `namespaces/NS` and then the resource."""
    is_watch_path: bool = False
    """Whether the path says `watch` before all that, the old way to watch."""
    proxied: "RequestInfo | None" = None
    """The request that a member behind `clusters/NAME/proxy` is to be asked, as it will read it."""
    is_watch: bool = field(init=False, repr=False, compare=False)
    """Whether the answer is a stream of events."""
    is_write: bool = field(init=False, repr=False, compare=False)
    """Whether the request can change something."""

    def __post_init__(self) -> None:
        # Said once: every step of the chain asks for one of them.
        object.__setattr__(self, "is_watch", self.verb in ("watch", "watchlist"))
        object.__setattr__(self, "is_write", self.verb not in READ_VERBS)

    def fits_scope(self, *, namespaced: bool) -> bool:
        """Whether the path is one that a resource of this scope has.

            namespaced       /namespaces/NS/RESOURCE[/NAME[/SUBRESOURCE]]; /RESOURCE, in all of them
            cluster-scoped   /RESOURCE[/NAME[/SUBRESOURCE]]

        In any other path the namespace that is authorized and the object that is named have
        nothing to do with each other: `/namespaces/mine/namespaces/yours`. A Namespace is its own
        namespace, which makes `/namespaces/NAME` the one cluster-scoped path that has one; for a
        resource of another group that is called so too, roles in NAME would count for an object
        that is not in it. Only a proxy has something to do with what follows a subresource.
        """
        if self.rest and self.subresource != _PROXY:
            return False
        if self.is_in_namespace:
            return namespaced
        if self.namespace:
            return not namespaced and not self.group
        return not (namespaced and self.name)


def verb_of(method: str) -> str:
    """Return the verb of a method on one object, in the words of authorization."""
    return _VERBS.get(method, method.lower())


def reach_verb(method: str, inner: RequestInfo, *, is_upgrade: bool) -> str:
    """Return the right on `clusters/proxy` that it takes to have a cluster asked something.

    `inner` is the request as that cluster reads it. Who may only `get` may look at the cluster:
    what opens a stream, or leads into what runs there, takes `create` whatever its method.
    """
    return "create" if is_upgrade or inner.subresource in CONNECTS else verb_of(method)


def read_request(method: str, raw_path: str, raw_query: str) -> RequestInfo:
    """Read method and URL; raise BadRequest for a path that could mean two things."""
    # Clients ask for the same few things again and again, and the same URL always means the same.
    # Long ones are forgotten at once: they come from whoever would fill memory with them.
    if len(method) + len(raw_path) + len(raw_query) > _REMEMBERED_LENGTH:
        return _read_url(method, raw_path, raw_query)
    return _read_remembered(method, raw_path, raw_query)


def _read_url(method: str, raw_path: str, raw_query: str) -> RequestInfo:
    segments, query = _read_segments(raw_path), Query()
    if raw_query:
        try:
            pairs = parse_qsl(
                raw_query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS
            )
        except (ValueError, UnicodeDecodeError) as error:
            raise BadRequest("the query string cannot be read") from error
        query = Query(tuple(pairs))
    path = "/" + "/".join(segments)
    if segments[:1] == ["api"] and len(segments) > 2:
        group, version, below = "", segments[1], segments[2:]
    elif segments[:1] == ["apis"] and len(segments) > 3:
        group, version, below = segments[1], segments[2], segments[3:]
    else:
        return RequestInfo(method=method, path=path, verb=method.lower(), query=query)
    verb = verb_of(method)
    # A HEAD is never a watch: its answer ends with its headers, and a client, or a gateway with
    # connections that many share, sends its next request after it and waits behind the stream.
    may_watch = method == "GET"
    is_watch_path = below[0] == "watch" and len(below) > 1 and may_watch
    if is_watch_path:
        # The old way to watch: /api/v1/watch/namespaces/NS/pods.
        verb, below = "watch", below[1:]
    namespace, is_in_namespace = "", False
    if below[0] == "namespaces" and len(below) > 1:
        namespace = below[1]
        is_in_namespace = len(below) > 2 and below[2] not in _NAMESPACE_SUBRESOURCES
        if is_in_namespace:
            below = below[2:]
    resource, name, subresource, *rest = [*below, "", ""] if len(below) < 3 else below
    if subresource in STREAMS and verb == "get":
        verb = "create"  # a WebSocket begins with GET; a shell is no read for all that
    elif not name and verb == "get":
        verb = "watch" if may_watch and query.is_true("watch") else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        method=method,
        path=path,
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        rest=tuple(segment for segment in rest if segment),
        query=query,
        is_in_namespace=is_in_namespace,
        is_watch_path=is_watch_path,
    )


_read_remembered: Final = lru_cache(maxsize=1024)(_read_url)


def _read_segments(raw_path: str) -> list[str]:
    """Decode the path exactly once; whatever could be read in two ways is refused."""
    if not raw_path.startswith("/"):
        raise BadRequest(f"the path {raw_path[:80]!r} does not start with a slash")
    pieces = raw_path[1:].split("/")
    if pieces and pieces[-1] == "":
        pieces.pop()
    segments: list[str] = []
    for piece in pieces:
        try:
            segment = unquote_to_bytes(piece).decode("utf-8") if "%" in piece else piece
        except UnicodeDecodeError as error:
            raise BadRequest(f"the path segment {piece[:80]!r} is not UTF-8") from error
        if segment in ("", ".", ".."):
            raise BadRequest(f"the path has an empty or dot segment ({piece[:80]!r})")
        if "/" in segment or "%" in segment or not segment.isprintable():
            why = f"the path segment {piece[:80]!r} has a character that no name may have"
            raise BadRequest(why)
        segments.append(segment)
    return segments


# -- the form of the answer ------------------------------------------------------------------------

JSON: Final = "application/json"

YAML: Final = "application/yaml"

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MOST_RANGES: Final = 64
"""Entries of an Accept header that are looked at; clients send a handful."""

_TABLE: Final = "Table"

_PARTIAL: Final = ("PartialObjectMetadata", "PartialObjectMetadataList")
_META_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One entry of an Accept header."""

    type: str
    parameters: tuple[tuple[str, str], ...] = ()

    def parameter(self, name: str) -> str:
        """Return one parameter, or an empty string."""
        return next((value for key, value in self.parameters if key == name), "")

    @property
    def weight(self) -> float:
        """How much the client wants it, from 0 to 1; what cannot be read is 1."""
        try:
            return float(self.parameter("q") or 1)
        except ValueError:
            return 1.0


class Protobuf(Enum):
    """How much of a resource can be answered in protobuf."""

    NOTHING = "nothing"
    """Where answers are merged and renamed as JSON."""
    METADATA = "metadata"
    """Kinds without a protobuf form: what all kinds have in common, and refusals."""
    OBJECTS = "objects"


@dataclass(frozen=True, slots=True)
class Representation:
    """What the answer looks like on the wire."""

    media_type: str = JSON
    transform: str = ""
    """`Table` or `PartialObjectMetadata`, or nothing for the object itself."""
    meta_version: str = META_VERSION
    """The version of `meta.k8s.io` in which that is written."""
    is_table: bool = field(init=False, repr=False, compare=False)
    """Whether rows and columns are wanted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_table", self.transform == _TABLE)

    @property
    def is_metadata_only(self) -> bool:
        """Whether only metadata is wanted."""
        return self.transform == "PartialObjectMetadata"


@lru_cache(maxsize=512)
def read_accept(header: str) -> tuple[MediaRange, ...]:
    """Parse an Accept header into the client's order of preference."""
    ranges: list[MediaRange] = []
    for text in header.split(",", _MOST_RANGES)[:_MOST_RANGES]:
        if not text.strip():
            continue
        media_type, *parameters = (piece.strip() for piece in text.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        read = tuple((key.strip().lower(), value.strip(' "')) for key, _, value in pairs)
        ranges.append(MediaRange(media_type.lower(), read))
    # The order of entries decides between equals, and what is said by name is meant more than a
    # star: `*/*, application/yaml` asks for YAML.
    return tuple(sorted(ranges, key=lambda each: (-each.weight, each.type.count("*"))))


def aggregated_version(accept: str) -> str:
    """Return the version of aggregated discovery the client prefers; nothing for the legacy form.

    The two versions are two names for one format.
    """
    for media_range in read_accept(accept):
        is_aggregated = (
            media_range.type == JSON
            and media_range.parameter("as") == AGGREGATED_KIND
            and media_range.parameter("g") == AGGREGATED_GROUP
            and media_range.parameter("v") in AGGREGATED_VERSIONS
        )
        if is_aggregated:
            return media_range.parameter("v")
        if media_range.type in (JSON, "*/*") and not media_range.parameter("as"):
            return ""
    return ""


@lru_cache(maxsize=512)
def negotiate(
    accept: str, protobuf: Protobuf = Protobuf.NOTHING, *, is_transformed: bool = True
) -> Representation:
    """Choose the first entry we can serve; raise NotAcceptable when there is none.

    What is not `is_transformed` is shown as itself only: a review is no row of anything.
    """
    for media_range in read_accept(accept or "*/*"):
        if media_range.type in (JSON, "*/*", "application/*"):
            media_type = JSON
        elif media_range.type == YAML:
            media_type = YAML
        elif media_range.type == PROTOBUF and protobuf is not Protobuf.NOTHING:
            media_type = PROTOBUF
        else:
            continue
        transform = media_range.parameter("as")
        if not transform:
            if media_type == PROTOBUF and protobuf is not Protobuf.OBJECTS:
                continue
            return Representation(media_type)
        group, version = media_range.parameter("g"), media_range.parameter("v")
        if not is_transformed or group != META_GROUP or version not in _META_VERSIONS:
            continue
        if media_type == PROTOBUF and (transform == _TABLE or version != _META_VERSIONS[0]):
            continue
        if transform == _TABLE:
            return Representation(media_type, _TABLE, f"{META_GROUP}/{version}")
        if transform in _PARTIAL:
            return Representation(media_type, _PARTIAL[0], f"{META_GROUP}/{version}")
    if protobuf is Protobuf.NOTHING:
        raise statuses.not_acceptable((JSON, YAML))
    # Two sentences, as kube-apiserver has them: for a built-in resource its router is asked first,
    # which knows of types and nothing else. Custom resources list protobuf, since they have it for
    # their metadata.
    offered = (JSON, YAML, PROTOBUF)
    is_known = any(media_range.type in offered for media_range in read_accept(accept))
    if is_known or protobuf is Protobuf.METADATA:
        raise statuses.only_accepted(offered)
    raise statuses.not_acceptable(offered)


def negotiate_stream(accept: str, protobuf: Protobuf) -> Representation:
    """Choose how the events of a watch look: there is no YAML of which one would know the end."""
    representation = negotiate(accept, protobuf)
    if representation.media_type == YAML:
        raise statuses.only_accepted(f"{each};stream=watch" for each in (JSON, PROTOBUF))
    return representation


def text_accepted(accept: str) -> str:
    """Return an Accept header without protobuf; refuse one in which nothing else is said."""
    entries = (accept or "*/*").split(",", _MOST_RANGES)[:_MOST_RANGES]
    kept = [each for each in entries if not each.strip().lower().startswith(PROTOBUF)]
    if not kept:
        raise statuses.only_accepted((f"{JSON};stream=watch",))
    return ",".join(kept)


@lru_cache(maxsize=512)
def negotiate_status(accept: str) -> str:
    """Return the media type of a refusal: JSON where the client accepts nothing we have.

    A client that wants a Table gets no Table of a refusal, so such entries do not count.
    """
    for media_range in read_accept(accept or "*/*"):
        if media_range.parameter("as"):
            continue
        if media_range.type in (JSON, "*/*", "application/*"):
            return JSON
        if media_range.type in (YAML, PROTOBUF):
            return media_range.type
    return JSON
