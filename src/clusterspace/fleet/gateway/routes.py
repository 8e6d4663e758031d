"""Request to Route: which cluster, or all of them, and what the request is called there.

    /apis/apps/v1/namespaces/NS/deployments/NAME                   vanilla: the cluster is in names
    /apis/apps/v1/namespaces/NS/clusterspaces/CLUSTER/deployments  explicit; with or without NS
    /clusterspaces/CLUSTER/...                                     prefix: one cluster, untouched
    /apis/search.karmada.io/v1alpha1/search/cache/...              what ResourceRegistries select,
    /apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/...    in the clusters' own names

A cluster is said by the explicit segment, by the suffix of a name or by the suffix of a namespace;
names stand in the URL, then in the query, where selectors name objects, then in the body of a
create. All that is said must agree. Whether there is such a cluster is not known here.

`NAME.clusterspace.CLUSTER` is how an object is called where many clusters are one. The last
`.clusterspace.` decides. Native names may contain dots, and even the marker itself when gateways
are nested; names of clusters are DNS labels and contain neither. A qualified name may be longer
than the 253 characters Kubernetes allows: the cluster judges its own part of it, no more.

On the way to a cluster names lose its suffix. In a selector a value with another cluster's suffix
stays: nothing in this cluster is called that, so `=` matches nothing here and `!=` everything,
which is the truth.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Final

from clusterspace.apis.registries import RESOURCE_REGISTRIES
from clusterspace.apiserver.http.messages import Request
from clusterspace.apiserver.http.request_info import CONNECTS, Query, RequestInfo, read_request
from clusterspace.errors import BadRequest
from clusterspace.fleet.gateway import virtual_labels
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupVersion
from clusterspace.kube.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    SET_SIGNS,
    FieldSelector,
    Term,
    parse_field_selector,
    read_terms,
)

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


def without_marker(name: str, cluster: str) -> str:
    """Return a name that was made of a qualified one as the cluster's own.

    >>> without_marker("node-debugger-n1.clusterspace.east-x7k2p", "east")
    'node-debugger-n1-x7k2p'
    """
    return name.replace(f"{MARKER}{cluster}-", "-", 1)


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
    shows_source: bool = False
    """Whether objects say their cluster in an annotation, as those of Karmada's search do."""
    row_labels: bytes = b""
    """The virtual labels that stand beside the rows of a Table, as `virtual_labels` writes them."""

    @property
    def is_plain(self) -> bool:
        """Whether everything is as the cluster itself shows it."""
        return not (
            self.qualifies_names
            or self.qualifies_namespaces
            or self.qualifies_marked
            or self.shows_source
        )


@dataclass(frozen=True, slots=True)
class BodyNames:
    """What the body of a request calls its object; empty where it does not say."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    node_name: str = ""
    """The node that a pod is to run on: its cluster is the pod's."""


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


_HUB_WORDS: Final = frozenset({HUB, HUB_ALIAS})


def unqualifier(cluster: str) -> Callable[[str], str]:
    """Return how names become the cluster's own; those of other clusters stay as they are."""

    def unqualify(name: str) -> str:
        said = split(name)
        is_ours = said.cluster is not None and is_same_cluster(said.cluster, cluster)
        return said.name if is_ours else name

    return unqualify


def is_same_cluster(one: str, other: str) -> bool:
    """Tell whether two words mean one cluster: the hub has two."""
    return one == other or {one, other} <= _HUB_WORDS


# -- URL to route ----------------------------------------------------------------------------------

_CLUSTERSPACES: Final = "clusterspaces"
_NAMESPACES: Final = "namespaces"
_PROXY: Final = "proxy"
_SEARCH_API: Final = ("apis", RESOURCE_REGISTRIES.group, RESOURCE_REGISTRIES.version)
_KARMADA_CLUSTERS: Final = ("apis", "cluster.karmada.io", "clusters")

_OWN_REVIEWS: Final = ("authorization.k8s.io", "selfsubjectaccessreviews")

QUESTIONS: Final = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
"""Groups whose creates leave nothing behind: access reviews and the like."""

_READ: Final = tuple(each.name for each in fields(RequestInfo) if each.init)
"""All that is read of a request, whoever reads it."""


class Reach(Enum):
    """How far a request reaches."""

    ONE = "one"
    """One cluster, named by the request."""
    ALL = "all"
    """Every cluster the caller may reach: lists and watches."""
    UNSAID = "unsaid"
    """One cluster that the request does not name: looked for, among those the caller may reach."""
    ANY = "any"
    """The first that has it, the hub before members: whether a namespace is there at all.

    Only where the hub is no part of the view. Where it is, a namespace is the hub's like all else
    that a bare name means, or `get ns x || create ns x` would find one that `create -n x` lacks.
    """


class Search(Enum):
    """The paths at which Karmada's search answers, below `/apis/search.karmada.io/v1alpha1`."""

    CACHE = "search/cache"
    """Lists of what ResourceRegistries select."""
    PROXY = "proxying/karmada/proxy"
    """An API server of what they select, and of the control plane for everything else."""


@dataclass(frozen=True, slots=True)
class FleetRequestInfo(RequestInfo):
    """A request without its `clusterspaces` segment, as authorization, audit and metrics see it."""

    clusterspace: str | None = None
    """The cluster the URL says outright; None in vanilla paths, and where the URL says `all`."""
    is_prefix: bool = False
    """Whether everything after the clusterspace is that cluster's business."""
    raw_path: str = ""
    """The path without the segment, as it was sent: escapes and a slash at the end included."""
    search: Search | None = None
    """For a path of Karmada's search, which it is; the rest is read from the path behind it."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a request asks, in the words of the cluster that will be asked, and of whom."""

    info: FleetRequestInfo
    """The request as a single cluster understands it: names and namespace are its own."""
    reach: Reach
    naming: Naming
    """For Reach.ONE the whole truth; for the others its cluster is empty until one is chosen."""
    is_relayed: bool = False
    """Whether nothing is rewritten: the prefix form turns one cluster into an API server."""
    is_review: bool = False
    """Whether somebody asks what they may do themselves, which each cluster answers for itself."""
    namespaces: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Of which namespaces objects are shown, by cluster, where not of all."""

    def naming_in(self, cluster: str) -> Naming:
        """Return how one of the clusters the request reaches calls things in it.

        In collections every member's objects carry its name, and the hub's do not, unless they
        would be taken for somebody else's.
        """
        if self.reach is Reach.ONE:
            return self.naming
        if self.info.search is not None:
            return Naming(cluster, shows_source=True)
        is_listed, is_hub = self.reach is Reach.ALL, cluster == HUB
        return Naming(
            cluster,
            qualifies_names=is_listed and not is_hub,
            qualifies_marked=is_listed and is_hub,
        )


def read_fleet_info(request: Request) -> FleetRequestInfo:
    """Read what a request asks from its URL, without the words that say of which cluster.

    The URL is read here and nowhere else: what goes through the chain and reaches the app is this.
    """
    return read_fleet_request(request.method, request.path, request.query)


def read_fleet_request(method: str, raw_path: str, raw_query: str) -> FleetRequestInfo:
    """Read method and URL, in any of the forms."""
    info = read_request(method, raw_path, raw_query)
    segments = _segments_of(info)
    # The hub's own address with search behind it is all that Karmada's API server is.
    is_hubs = segments[0] == _CLUSTERSPACES and segments[1:2] != [] and segments[1] in _HUB_WORDS
    start = 2 if is_hubs else 0
    if found := _search_at(segments[start:]):
        search, count = found
        raw_path = _without(raw_path, 0, start + count)
        info = read_request(method, raw_path, raw_query)
        return replace(_fleet_info(info, raw_path, None), search=search)
    cluster: str | None = None
    # Karmada has a form too that turns one cluster into an API server.
    is_karmada = (*segments[:2], *segments[3:4]) == _KARMADA_CLUSTERS
    if (segments[0] == _CLUSTERSPACES and len(segments) > 1) or (
        is_karmada and segments[5:6] == [_PROXY]
    ):
        count, at = (6, 4) if is_karmada else (2, 1)
        cluster = _cluster_of(segments[at])
        raw_path = _without(raw_path, 0, count)
        info = read_request(method, raw_path, raw_query)
        if cluster is not None:
            return _fleet_info(info, raw_path, cluster, is_prefix=True)
        segments = _segments_of(info)
    place = _clusterspaces_at(segments)
    if place:
        cluster = _cluster_of(segments[place + 1])
        raw_path = _without(raw_path, place, place + 2)
        info = read_request(method, raw_path, raw_query)
        if _clusterspaces_at(_segments_of(info)):
            raise BadRequest(f"the path contains {_CLUSTERSPACES} twice")
    return _fleet_info(info, raw_path, cluster)


def _search_at(segments: Sequence[str]) -> tuple[Search, int] | None:
    """Return which path of Karmada's search this is, and how many segments it takes."""
    if tuple(segments[:3]) != _SEARCH_API:
        return None
    if segments[3:5] == ["search", "cache"]:
        return Search.CACHE, 5
    # Karmada takes any name here: there is one control plane.
    if segments[3:4] == ["proxying"] and segments[5:6] == [_PROXY] and segments[4]:
        return Search.PROXY, 6
    return None


def _fleet_info(
    info: RequestInfo, raw_path: str, cluster: str | None, *, is_prefix: bool = False
) -> FleetRequestInfo:
    said = {name: getattr(info, name) for name in _READ}
    return FleetRequestInfo(**said, clusterspace=cluster, is_prefix=is_prefix, raw_path=raw_path)


def _segments_of(info: RequestInfo) -> list[str]:
    return info.path.removeprefix("/").split("/")


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


def _without(raw_path: str, start: int, end: int) -> str:
    """Return a path without these segments, counted from the first slash."""
    pieces = raw_path.removeprefix("/").split("/")
    return "/" + "/".join([*pieces[:start], *pieces[end:]])


def route_for(
    info: FleetRequestInfo,
    *,
    federation: bool,
    body_names: Callable[[], BodyNames] | None = None,
) -> Route:
    """Decide whom a request reaches; `body_names` is asked only when a create needs it.

    Raise BadRequest when the request names two clusters, or none although it changes something,
    MethodNotAllowed when it would delete in every cluster, and NotFound when the parts of its path
    disagree.
    """
    if info.search is not None:
        return Route(info, Reach.ALL, Naming(""))
    is_about_namespaces = info.resource == _NAMESPACES and not info.group
    if is_about_namespaces and not info.fits_scope(namespaced=False):
        # A namespace within a namespace. Other scopes are for the clusters to know.
        raise statuses.unknown_path()
    if info.is_prefix:
        return Route(info, Reach.ONE, Naming(info.clusterspace or ""), is_relayed=True)
    if not info.is_resource:
        return Route(info, Reach.ALL, Naming(""))
    is_create = info.verb == "create" and not info.name
    body = body_names() if body_names and is_create else BodyNames()
    naming = _agreed(list(_mentions(info, body)))
    own = _in_own_words(info)
    is_review = (own.group, own.resource) == _OWN_REVIEWS and own.verb == "create"
    if naming is not None:
        return Route(own, Reach.ONE, naming, is_review=is_review)

    # From here on the request says no cluster, unless its label selector does.
    if own.verb == "deletecollection":
        named = virtual_labels.read_selector(own.query.get("labelSelector")).named or ()
        if len(named) == 1 and (only := _cluster_of(*named)):
            return Route(own, Reach.ONE, Naming(only, qualifies_names=only != HUB))
        raise statuses.method_not_served(
            f"deletecollection is for one cluster: say which, with {_CLUSTERSPACES}/CLUSTER in "
            f"the URL, with a namespace like {qualify('default', 'CLUSTER')}, or with the label "
            f"selector {virtual_labels.CLUSTER}=CLUSTER"
        )
    selector = own.query.first.get("fieldSelector", "")
    selected = selector and parse_field_selector(selector).requires_exact("metadata.name")
    is_read = not own.is_write and own.subresource not in CONNECTS
    is_question = own.group in QUESTIONS and is_create
    if is_read and not (own.name or selected):
        return Route(own, Reach.ALL, Naming(""))
    if is_read and is_about_namespaces and not federation:
        return Route(own, Reach.ANY, Naming(""))
    if is_question and own.resource == "selfsubjectaccessreviews":
        # What somebody may do themselves is for each cluster to decide.
        return Route(own, Reach.ALL, Naming(""), is_review=is_review)
    if federation or is_question:
        return Route(own, Reach.ONE, Naming(HUB), is_review=is_review)
    if is_read:
        return Route(own, Reach.UNSAID, Naming(""))
    name = own.name or body.name
    ways = [f"the name {qualify(name, 'CLUSTER')}"] if name else []
    if own.namespace and not _is_a_namespace(own):
        ways.append(f"the namespace {qualify(own.namespace, 'CLUSTER')}")
    ways.append(f"{_CLUSTERSPACES}/CLUSTER in the URL")
    what = statuses.quoted(name) if name else f"the new object in {own.resource}"
    raise BadRequest(f"{what} does not name a cluster; to name one, use {' or '.join(ways)}")


class _Carrier(Enum):
    """The part of a request that carries the name of a cluster."""

    SPACE = "clusterspace"
    NAME = "name"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class _Mention:
    """A cluster, and where the request says it."""

    cluster: str
    carrier: _Carrier
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
    carriers = {mention.carrier for mention in mentions}
    return Naming(
        first.cluster,
        qualifies_names=_Carrier.NAME in carriers,
        qualifies_namespaces=_Carrier.NAMESPACE in carriers,
    )


def _mentions(info: FleetRequestInfo, body: BodyNames) -> Iterator[_Mention]:
    """Yield all clusters that are said, in the order in which they are looked for.

    A selector without the marker is not even read.
    """
    if info.clusterspace is not None:
        yield _Mention(info.clusterspace, _Carrier.SPACE, "the URL")
    texts = [(_Carrier.NAME, _split_name(info), f"the name {info.name}")]
    if not _is_a_namespace(info):
        namespace = split(info.namespace)
        texts.append((_Carrier.NAMESPACE, namespace, f"the namespace {info.namespace}"))
    field_selector = info.query.first.get("fieldSelector", "")
    if MARKER in field_selector:
        for field in parse_field_selector(field_selector).requirements:
            if field.is_equal:
                is_namespace = field.field.endswith("namespace")
                carrier = _Carrier.NAMESPACE if is_namespace else _Carrier.NAME
                texts.append((carrier, split(field.value), f"the field selector {field}"))
    label_selector = info.query.first.get("labelSelector", "")
    if MARKER in label_selector:
        for term in read_terms(label_selector):
            if term.key in NAME_LABELS and term.sign in ("=", "==", "in"):
                texts += [
                    (_Carrier.NAME, split(value), f"the label selector {term.key}={value}")
                    for value in term.values
                ]
    node = split(body.node_name)
    texts.append((_Carrier.NAME, node, f"the node {body.node_name} in the body"))
    # `kubectl debug node/n.clusterspace.east` calls its pod `node-debugger-n.clusterspace.east-…`,
    # which says no other cluster than the node does.
    is_derived = bool(node.cluster) and f"{MARKER}{node.cluster}-" in body.name
    if not is_derived:
        texts.append((_Carrier.NAME, split(body.name), f"the name {body.name} in the body"))
    namespace = split(body.namespace)
    texts.append((_Carrier.NAMESPACE, namespace, f"the namespace {body.namespace} in the body"))
    for carrier, found, place in texts:
        if found.cluster in (HUB_ALIAS, ALL):
            # One object, one name: an answer must repeat the name that was asked for.
            raise BadRequest(
                f"{place} cannot say {found.cluster}; the control plane is called {HUB} there, "
                f"as in {qualify(found.name, HUB)}"
            )
        if found.cluster is not None:
            yield _Mention(found.cluster, carrier, place)


def _is_a_namespace(info: RequestInfo) -> bool:
    """Whether the URL names a namespace as an object: then its namespace is said to be itself."""
    return bool(info.namespace) and not info.is_in_namespace


def _in_own_words(info: FleetRequestInfo) -> FleetRequestInfo:
    """Return the request as the cluster itself would be asked; BadRequest when it cannot be."""
    own = info
    name, namespace = _split_name(own).name, split(own.namespace).name
    if (name, namespace) != (own.name, own.namespace):
        own = replace(own, name=name, namespace=namespace)
        own = replace(own, path=path_in_cluster(own))
        # What is left of a name may mean something in a path: `...clusterspace.m1` is an object
        # called `..`, and the cluster would be asked about what that is in. Therefore the path is
        # read again, as the cluster will read it; what it says must be what was asked.
        read = replace(read_request(own.method, own.path, ""), verb=own.verb, query=own.query)
        if any(getattr(read, each) != getattr(own, each) for each in _READ):
            raise statuses.unknown_path()
    if own.subresource == _PROXY and own.raw_path.endswith("/"):
        # To what is proxied to, with and without the slash are two pages.
        return replace(own, path=f"{own.path}/")
    return own


def path_in_cluster(info: RequestInfo) -> str:
    """Return the path that says what was read, in the same form in which it was said."""
    segments = (
        GroupVersion(info.group, info.version).path,
        "watch" if info.is_watch_path else "",
        f"{_NAMESPACES}/{info.namespace}" if info.is_in_namespace else "",
        info.resource,
        info.name,
        info.subresource,
        *info.rest,
    )
    return "/".join(segment for segment in segments if segment)


def _split_name(info: RequestInfo) -> Split:
    """Take the name apart; where it is proxied to, a port follows the cluster: `web.….m1:80`."""
    found = split(info.name)
    if info.subresource != _PROXY or found.cluster is None:
        return found
    cluster, colon, port = found.cluster.partition(":")
    return Split(found.name + colon + port, cluster)


# -- the query, in the words of one cluster --------------------------------------------------------


_ANY_VERSION: Final = ("", "0")


def rewrite_query(
    query: Query, naming: Naming, *, version_for: Callable[[str], str] = str
) -> Query:
    """Return the parameters in the words of `naming.cluster`; unknown ones pass untouched.

    Without `version_for` versions do too, for who has taken them out. Raises MalformedSelector for
    a selector that cannot be read, and whatever `version_for` raises.
    """
    unqualify = unqualifier(naming.cluster)

    def field_selector(text: str) -> str:
        # The value of every field: which of them are names, only the cluster knows.
        asked = parse_field_selector(text)
        changed = FieldSelector(
            tuple(replace(each, value=unqualify(each.value)) for each in asked.requirements)
        )
        return text if changed == asked else str(changed)

    def label_selector(text: str) -> str:
        # The values of the few labels that hold names; others may mean anything.
        terms = list(read_terms(text))
        changed = [
            replace(term, values=tuple(map(unqualify, term.values)))
            if term.key in NAME_LABELS
            else term
            for term in terms
        ]
        return text if changed == terms else ",".join(map(_written_term, changed))

    changes: dict[str, Callable[[str], str]] = {
        "fieldSelector": field_selector,
        "labelSelector": label_selector,
        "resourceVersion": lambda text: text if text in _ANY_VERSION else version_for(text),
    }
    return Query(
        tuple((key, changes[key](value) if key in changes else value) for key, value in query.pairs)
    )


def _written_term(term: Term) -> str:
    if term.sign == EXISTS:
        return term.key
    if term.sign == DOES_NOT_EXIST:
        return f"!{term.key}"
    if term.sign in SET_SIGNS:
        return f"{term.key} {term.sign} ({','.join(term.values)})"
    return f"{term.key}{term.sign}{term.values[0]}"
