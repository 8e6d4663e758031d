"""Request to Route: which cluster, or all of them, and what the request is called there.

    /apis/apps/v1/namespaces/NS/deployments/NAME                   vanilla: the cluster is in names
    /apis/apps/v1/namespaces/NS/clusterspaces/CLUSTER/deployments  explicit; with or without NS
    /clusterspaces/CLUSTER/...                                     prefix: one cluster, untouched

A cluster is said by the explicit segment, by the suffix of a name or by the suffix of a namespace;
names stand in the URL, then in the query, where selectors name objects, then in the body of a
create. All that is said must agree. Whether there is such a cluster is not known here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from clusterspace.apiserver.http.request_info import CONNECTS, Query, RequestInfo, read_request
from clusterspace.errors import BadRequest
from clusterspace.fleet.gateway.flow import HUB, BodyNames, Naming, Reach, Route
from clusterspace.fleet.gateway.names import (
    ALL,
    HUB_ALIAS,
    MARKER,
    NAME_LABELS,
    Split,
    qualify,
    split,
)
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupVersion
from clusterspace.kube.selectors import parse_field_selector, read_terms

_CLUSTERSPACES: Final = "clusterspaces"
_NAMESPACES: Final = "namespaces"
_PROXY: Final = "proxy"
_KARMADA_CLUSTERS: Final = ("apis", "cluster.karmada.io", "clusters")

_CLUSTER_IN_PREFIX: Final = {2: 1, 6: 4}
"""Where in a prefix of that many segments the cluster is."""

QUESTIONS: Final = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
"""Groups whose creates leave nothing behind: access reviews and the like."""


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A request without its `clusterspaces` segment, as authorization, audit and metrics see it."""

    info: RequestInfo
    clusterspace: str | None = None
    """The cluster the URL says outright; None in vanilla paths, and where the URL says `all`."""
    is_prefix: bool = False
    """Whether everything after the clusterspace is that cluster's business."""
    raw_path: str = ""
    """The path without the segment, as it was sent: escapes and a slash at the end included."""


def read_fleet_request(method: str, raw_path: str, raw_query: str) -> FleetRequest:
    """Read method and URL, in any of the forms."""
    whole = FleetRequest(read_request(method, raw_path, raw_query), raw_path=raw_path)
    segments = _segments_of(whole.info)
    prefix = _prefix_length(segments)
    if not prefix:
        return _read_explicit(whole, raw_query)
    inner = _without(whole, 0, prefix, raw_query)
    cluster = _cluster_of(segments[_CLUSTER_IN_PREFIX[prefix]])
    if cluster is None:
        return _read_explicit(inner, raw_query)
    return replace(inner, clusterspace=cluster, is_prefix=True)


def route_for(
    request: FleetRequest,
    *,
    federation: bool,
    body_names: Callable[[], BodyNames] | None = None,
) -> Route:
    """Decide whom a request reaches; `body_names` is asked only when a create needs it.

    Raise BadRequest when the request names two clusters, or none although it changes something,
    MethodNotAllowed when it would delete in every cluster, and NotFound when the parts of its path
    disagree.
    """
    info = request.info
    if _is_about_namespaces(info) and not info.fits_scope(namespaced=False):
        # A namespace within a namespace. Other scopes are for the clusters to know.
        raise statuses.unknown_path()
    if request.is_prefix:
        return Route(info, Reach.ONE, Naming(request.clusterspace or ""), is_relayed=True)
    if not info.is_resource:
        return Route(info, Reach.EVERY, Naming(""))
    body = body_names() if body_names and _is_create(info) else BodyNames()
    naming = _agreed(list(_mentions(request, body)))
    own = _in_own_words(request)
    if naming is not None:
        return Route(own, Reach.ONE, naming)
    return _route_unplaced(own, body, federation=federation)


def naming_in(route: Route, cluster: str) -> Naming:
    """Return how one of the clusters a request reaches calls things in it.

    In collections every member's objects carry its name, and the hub's do not, unless they would
    be taken for somebody else's.
    """
    if route.reach is Reach.ONE:
        return route.naming
    is_listed = route.reach is Reach.EVERY
    is_hub = cluster == HUB
    return Naming(
        cluster,
        qualifies_names=is_listed and not is_hub,
        qualifies_marked=is_listed and is_hub,
    )


def _route_unplaced(info: RequestInfo, body: BodyNames, *, federation: bool) -> Route:
    """Decide about a request that says no cluster."""
    if info.verb == "deletecollection":
        raise statuses.method_not_served(
            f"deletecollection is for one cluster: say which, with {_CLUSTERSPACES}/CLUSTER in "
            f"the URL or with a namespace like {qualify('default', 'CLUSTER')}"
        )
    is_named = bool(info.name or _selected_name(info.query))
    is_read = not info.is_write and info.subresource not in CONNECTS
    if is_read and not is_named:
        return Route(info, Reach.EVERY, Naming(""))
    if is_read and _is_about_namespaces(info):
        return Route(info, Reach.ANY, Naming(""))
    if _is_about_oneself(info):
        return Route(info, Reach.EVERY, Naming(""))
    if federation or _is_question(info):
        return Route(info, Reach.ONE, Naming(HUB))
    if is_read:
        return Route(info, Reach.UNSAID, Naming(""))
    raise _says_no_cluster(info, body)


def _says_no_cluster(info: RequestInfo, body: BodyNames) -> BadRequest:
    name = info.name or body.name
    ways = [f"the name {qualify(name, 'CLUSTER')}"] if name else []
    if info.namespace and not _is_a_namespace(info):
        ways.append(f"the namespace {qualify(info.namespace, 'CLUSTER')}")
    ways.append(f"{_CLUSTERSPACES}/CLUSTER in the URL")
    what = statuses.quoted(name) if name else f"the new object in {info.resource}"
    return BadRequest(f"{what} is in no cluster by itself; say which one: use {' or '.join(ways)}")


def _is_create(info: RequestInfo) -> bool:
    return info.verb == "create" and not info.name


def _is_about_namespaces(info: RequestInfo) -> bool:
    return info.resource == _NAMESPACES and not info.group


def _is_a_namespace(info: RequestInfo) -> bool:
    """Whether the URL names a namespace as an object: then its namespace is said to be itself."""
    return bool(info.namespace) and not info.is_in_namespace


def _is_question(info: RequestInfo) -> bool:
    return info.group in QUESTIONS and _is_create(info)


def _is_about_oneself(info: RequestInfo) -> bool:
    """Whether the caller asks what they may do, which each cluster decides for itself."""
    return _is_question(info) and info.resource == "selfsubjectaccessreviews"


class _Part(Enum):
    """What it is that carries the name of a cluster."""

    SPACE = "clusterspace"
    NAME = "name"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class _Mention:
    """A cluster, and where the request says it."""

    cluster: str
    part: _Part
    place: str


def _agreed(mentions: Sequence[_Mention]) -> Naming | None:
    """Return the one cluster that all mentions say, and how; None when there is no mention."""
    if not mentions:
        return None
    first = mentions[0]
    for other in mentions:
        if other.cluster != first.cluster:
            raise BadRequest(
                f"the request names two clusters: {first.cluster} in {first.place}, "
                f"and {other.cluster} in {other.place}"
            )
    parts = {mention.part for mention in mentions}
    return Naming(
        first.cluster,
        qualifies_names=_Part.NAME in parts,
        qualifies_namespaces=_Part.NAMESPACE in parts,
    )


def _mentions(request: FleetRequest, body: BodyNames) -> Iterator[_Mention]:
    if request.clusterspace is not None:
        yield _Mention(request.clusterspace, _Part.SPACE, "the URL")
    for part, found, place in _texts(request.info, body):
        if found.cluster in (HUB_ALIAS, ALL):
            # One object, one name: an answer must repeat the name that was asked for.
            raise BadRequest(
                f"{place} cannot say {found.cluster}; the control plane is called {HUB} there, "
                f"as in {qualify(found.name, HUB)}"
            )
        if found.cluster is not None:
            yield _Mention(found.cluster, part, place)


def _texts(info: RequestInfo, body: BodyNames) -> Iterator[tuple[_Part, Split, str]]:
    """Yield all that may carry a cluster, in the order in which it is looked for."""
    yield _Part.NAME, _split_name(info), f"the name {info.name}"
    if not _is_a_namespace(info):
        yield _Part.NAMESPACE, split(info.namespace), f"the namespace {info.namespace}"
    yield from _selected(info.query)
    yield _Part.NAME, split(body.name), f"the name {body.name} in the body"
    yield _Part.NAMESPACE, split(body.namespace), f"the namespace {body.namespace} in the body"


def _selected(query: Query) -> Iterator[tuple[_Part, Split, str]]:
    """Yield the values selectors ask for; a selector without the marker is not even read."""
    field_selector = query.get("fieldSelector")
    if MARKER in field_selector:
        for field in parse_field_selector(field_selector).requirements:
            if field.is_equal:
                part = _Part.NAMESPACE if field.field.endswith("namespace") else _Part.NAME
                yield part, split(field.value), f"the field selector {field}"
    label_selector = query.get("labelSelector")
    if MARKER in label_selector:
        for term in read_terms(label_selector):
            if term.key in NAME_LABELS and term.sign in ("=", "==", "in"):
                for value in term.values:
                    yield _Part.NAME, split(value), f"the label selector {term.key}={value}"


def _selected_name(query: Query) -> str:
    """Return the one name a field selector lets through, which stands for the name in the URL."""
    return parse_field_selector(query.get("fieldSelector")).requires_exact("metadata.name") or ""


def _in_own_words(request: FleetRequest) -> RequestInfo:
    """Return the request as the cluster itself would be asked; BadRequest when it cannot be."""
    own = request.info
    name, namespace = _split_name(own).name, split(own.namespace).name
    if (name, namespace) != (own.name, own.namespace):
        own = replace(own, name=name, namespace=namespace)
        own = replace(own, path=path_in_cluster(own))
        # What is left of a name may mean something in a path: `...clusterspace.m1` is an object
        # called `..`, and the cluster would be asked about what that is in. Therefore the path is
        # read again, as the cluster will read it; what it says must be what was asked.
        read = read_request(own.method, own.path, "")
        if replace(read, verb=own.verb, query=own.query) != own:
            raise statuses.unknown_path()
    if own.subresource == _PROXY and request.raw_path.endswith("/"):
        # To what is proxied to, with and without the slash are two pages.
        return replace(own, path=f"{own.path}/")
    return own


def path_in_cluster(info: RequestInfo) -> str:
    """Return the path that says what was read, in the same form in which it was said."""
    parts = (
        GroupVersion(info.group, info.version).path,
        "watch" if info.is_watch_path else "",
        f"{_NAMESPACES}/{info.namespace}" if info.is_in_namespace else "",
        info.resource,
        info.name,
        info.subresource,
        *info.rest,
    )
    return "/".join(part for part in parts if part)


def _split_name(info: RequestInfo) -> Split:
    """Take the name apart; where it is proxied to, a port follows the cluster: `web.….m1:80`."""
    found = split(info.name)
    if info.subresource != _PROXY or found.cluster is None:
        return found
    cluster, colon, port = found.cluster.partition(":")
    return Split(found.name + colon + port, cluster)


def _segments_of(info: RequestInfo) -> list[str]:
    return info.path.removeprefix("/").split("/")


def _prefix_length(segments: Sequence[str]) -> int:
    """Return how many segments turn one cluster into an API server; Karmada has such a form too."""
    if segments[0] == _CLUSTERSPACES and len(segments) > 1:
        return 2
    is_karmada = (*segments[:2], *segments[3:4]) == _KARMADA_CLUSTERS
    return 6 if is_karmada and segments[5:6] == [_PROXY] else 0


def _read_explicit(request: FleetRequest, raw_query: str) -> FleetRequest:
    segments = _segments_of(request.info)
    place = _clusterspaces_at(segments)
    if not place:
        return request
    inner = _without(request, place, place + 2, raw_query)
    if _clusterspaces_at(_segments_of(inner.info)):
        raise BadRequest(f"the path says {_CLUSTERSPACES} twice")
    return replace(inner, clusterspace=_cluster_of(segments[place + 1]))


def _clusterspaces_at(segments: Sequence[str]) -> int:
    """Return where the segment is: after the version or after the namespace; 0 for nowhere.

    A resource must follow, so that a resource which is called `clusterspaces` can be served.
    """
    start = {"api": 2, "apis": 3}.get(segments[0], len(segments))
    if segments[start : start + 1] == ["watch"]:
        start += 1
    after_namespace = start + 2 if segments[start : start + 1] == [_NAMESPACES] else start
    for place in (start, after_namespace):
        if segments[place : place + 1] == [_CLUSTERSPACES] and len(segments) > place + 2:
            return place
    return 0


def _cluster_of(clusterspace: str) -> str | None:
    """Return the cluster the word stands for; None when it stands for all of them."""
    if clusterspace in (ALL, "*"):  # the second is Karmada's word
        return None
    return HUB if clusterspace == HUB_ALIAS else clusterspace


def _without(request: FleetRequest, start: int, end: int, raw_query: str) -> FleetRequest:
    """Return the request with a path that lacks these segments, counted from the first slash."""
    pieces = request.raw_path.removeprefix("/").split("/")
    raw_path = "/" + "/".join([*pieces[:start], *pieces[end:]])
    return FleetRequest(read_request(request.info.method, raw_path, raw_query), raw_path=raw_path)
