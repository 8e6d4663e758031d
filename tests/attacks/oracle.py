"""What Kubernetes' rules say about a request, worked out from the request alone.

A model of who may touch what, to hold the servers against. It shares nothing with them: it reads
URLs itself, evaluates roles as the documents describe them, and is told what is stored only by what
is stored. It is as simple as it can be, and as slow.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

RBAC = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
AGENTS, AGENT_NAME = "system:karmada:agents", "system:karmada:agent:"
HUB = "karmada"
MARKER = ".clusterspace."
CLUSTERS = "cluster.karmada.io"

CLUSTER_SCOPED = {
    "": "componentstatuses namespaces nodes persistentvolumes",
    "about.k8s.io": "clusterproperties",
    "admissionregistration.k8s.io": "mutatingwebhookconfigurations validatingadmissionpolicies "
    "validatingadmissionpolicybindings validatingwebhookconfigurations",
    "apiextensions.k8s.io": "customresourcedefinitions",
    "apiregistration.k8s.io": "apiservices",
    "apps.karmada.io": "workloadrebalancers",
    "authentication.k8s.io": "selfsubjectreviews tokenreviews",
    "authorization.k8s.io": "selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews",
    "certificates.k8s.io": "certificatesigningrequests",
    "cluster.karmada.io": "clusters",
    "cluster.kubernetes-fleet.io": "memberclusters",
    "config.karmada.io": "resourceinterpretercustomizations "
    "resourceinterpreterwebhookconfigurations",
    "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
    "access.clusterspace.io": "clusterconsumers",
    "migration.clusterspace.io": "migrationitems migrations",
    "networking.k8s.io": "ingressclasses ipaddresses servicecidrs",
    "node.k8s.io": "runtimeclasses",
    "odd.example": "watch namespaces",
    "placement.kubernetes-fleet.io": "appliedworks clusterapprovalrequests clusterresourcebindings "
    "clusterresourceenvelopes clusterresourceoverrides clusterresourceoverridesnapshots "
    "clusterresourceplacementdisruptionbudgets clusterresourceplacementevictions "
    "clusterresourceplacements clusterresourcesnapshots clusterschedulingpolicysnapshots "
    "clusterstagedupdateruns clusterstagedupdatestrategies",
    "policy.karmada.io": "clusteroverridepolicies clusterpropagationpolicies clustertaintpolicies",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles",
    "remedy.karmada.io": "remedies",
    "resource.k8s.io": "deviceclasses resourceslices",
    "scheduling.k8s.io": "priorityclasses",
    "search.karmada.io": "resourceregistries",
    "storage.k8s.io": "csidrivers csinodes storageclasses volumeattachments "
    "volumeattributesclasses",
    "work.karmada.io": "clusterresourcebindings",
}
"""The resources that are in no namespace, by group; all others are in one."""

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
         "DELETE": "delete"}  # fmt: skip
STREAMS = ("exec", "attach", "portforward")


def is_cluster_scoped(group: str, resource: str) -> bool:
    return resource in CLUSTER_SCOPED.get(group, "").split()


# -- what a URL says -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """One object, or with an empty name a collection; an empty namespace is all of them."""

    group: str
    resource: str
    namespace: str
    name: str

    @property
    def stored(self) -> "Place":
        """The same under the group it is stored in: events are one thing in two groups."""
        return replace(self, group="") if self.resource == "events" else self

    def holds(self, other: "Place") -> bool:
        """Whether this is the other, or a collection the other is in."""
        mine, its = self.stored, other.stored
        is_alike = (mine.group, mine.resource) == (its.group, its.resource)
        is_there = mine.namespace in ("", its.namespace)
        return is_alike and is_there and mine.name in ("", its.name)


@dataclass(frozen=True)
class Reading:
    """A method and a URL, read."""

    method: str
    path: str
    verb: str
    is_resource: bool = False
    version: str = ""
    place: Place = Place("", "", "", "")
    """As it is authorized: the namespace of a Namespace is itself."""
    subresource: str = ""
    rest: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    within: bool = False
    """Whether the path puts the resource into a namespace."""
    is_watch_path: bool = False

    @property
    def is_a_path(self) -> bool:
        """Whether there is such a path for a resource of this scope."""
        if self.rest and self.subresource != "proxy":
            return False
        place = self.place
        if is_cluster_scoped(place.group, place.resource):
            is_itself = not self.within and (place.group, place.resource) == ("", "namespaces")
            return not place.namespace or is_itself
        if not place.namespace:
            return not place.name
        return self.within

    @property
    def touches(self) -> Place:
        """The object or the collection that the path is about."""
        is_free = is_cluster_scoped(self.place.group, self.place.resource)
        return replace(self.place, namespace="") if is_free else self.place

    @property
    def named(self) -> str:
        """The name that is authorized: of the URL, or the only one that a selector lets through."""
        if self.place.name and not self.is_watch_path:
            return self.place.name
        return selected_name(self.query) if self.verb in ("list", "watch") else ""


class Unreadable(Exception):
    """The URL could mean two things, or nothing."""


def selected_name(query: Mapping[str, str]) -> str:
    for term in query.get("fieldSelector", "").split(","):
        key, _, value = term.replace("==", "=").partition("=")
        if key == "metadata.name":
            return value
    return ""


def segments_of(path: str) -> list[str]:
    """Take a path apart; every segment is decoded once, and must then be one."""
    pieces = path.split("/")
    if pieces[0] or len(pieces) < 2:
        raise Unreadable(path)
    found = [_decoded(piece) for piece in (pieces[1:-1] if pieces[-1] == "" else pieces[1:])]
    for segment in found:
        if segment in ("", ".", "..") or set(segment) & {"/", "%"} or not segment.isprintable():
            raise Unreadable(path)
    return found


def _decoded(piece: str) -> str:
    try:
        return unquote_to_bytes(piece).decode()
    except UnicodeDecodeError as error:
        raise Unreadable(piece) from error


def read(method: str, target: str) -> Reading:
    """Read a method and a target as an API server does."""
    path, _, text = target.partition("?")
    found, query = segments_of(path), dict(reversed(parse_qsl(text, keep_blank_values=True)))
    if found[:1] == ["api"] and len(found) >= 3:
        return _of_resource(method, found, "", found[1], found[2:], query)
    if found[:1] == ["apis"] and len(found) >= 4:
        return _of_resource(method, found, found[1], found[2], found[3:], query)
    return Reading(method, "/" + "/".join(found), method.lower(), query=query)


def _of_resource(
    method: str,
    found: Sequence[str],
    group: str,
    version: str,
    rest: Sequence[str],
    query: Mapping[str, str],
) -> Reading:
    verb = VERBS.get(method, method.lower())
    is_watch_path = method == "GET" and rest[0] == "watch" and len(rest) > 1
    if is_watch_path:
        verb, rest = "watch", rest[1:]
    namespace, within = "", False
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        within = len(rest) > 2 and rest[2] not in ("status", "finalize")
        rest = rest[2:] if within else rest
    resource, name, part = (*rest[:3], "", "")[:3]
    if not name:
        is_watched = method == "GET" and query.get("watch", "0").lower() not in ("0", "false")
        verb = {"get": "watch" if is_watched else "list", "delete": "deletecollection"}.get(
            verb, verb
        )
    if part in STREAMS and verb == "get":
        verb = "create"
    place = Place(group, resource, namespace, name)
    more = tuple(each for each in rest[3:] if each)
    path = "/" + "/".join(found)
    return Reading(
        method, path, verb, True, version, place, part, more, query, within, is_watch_path
    )


# -- who may -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Who:
    """Somebody, as roles see them."""

    name: str
    groups: tuple[str, ...]

    @property
    def agent_of(self) -> str | None:
        """The cluster whose agent this is; None for everybody else."""
        if self.name.startswith(AGENT_NAME):
            return self.name.removeprefix(AGENT_NAME)
        return "" if AGENTS in self.groups else None


class Roles:
    """The roles and bindings of one cluster, as they are stored."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._bindings: dict[tuple[str, str], dict[str, Any]] = {}
        self._held: dict[tuple[Who, str], list[dict[str, Any]]] = {}

    def learn(self, place: Place, stored: dict[str, Any]) -> None:
        """Take note of a role or binding that is there; all else says nothing about rights."""
        key = (place.namespace, place.name)
        if place.group == RBAC and place.resource in ("roles", "clusterroles"):
            self._rules[key] = stored.get("rules") or []
        elif place.group == RBAC:
            self._bindings[key] = stored

    def held_by(self, who: Who, namespace: str) -> list[dict[str, Any]]:
        """Return the rules somebody has in a namespace; those that hold everywhere among them."""
        if (who, namespace) not in self._held:
            self._held[who, namespace] = list(self._find(who, namespace))
        return self._held[who, namespace]

    def _find(self, who: Who, namespace: str) -> Iterator[dict[str, Any]]:
        for (place, _), binding in self._bindings.items():
            if place not in ("", namespace):
                continue
            if any(_is_subject(who, each) for each in binding.get("subjects") or []):
                yield from self.referred(place, binding) or []

    def referred(self, namespace: str, binding: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return the rules of the role that a binding refers to, if there is one."""
        ref = binding["roleRef"]
        return self._rules.get((namespace if ref["kind"] == "Role" else "", ref["name"]))

    def allow(self, who: Who, verb: str, place: Place, part: str = "") -> bool:
        """Whether somebody may do this to an object, or to a collection when it has no name."""
        if who.agent_of is not None:
            return agent_may(who.agent_of, verb, place, part)
        if MASTERS in who.groups:
            return True
        rules = self.held_by(who, place.namespace)
        return any(_allows(rule, verb, place, part) for rule in rules)

    def allow_path(self, who: Who, verb: str, path: str) -> bool:
        """Whether somebody may ask for what is no resource."""
        if MASTERS in who.groups:
            return True
        return any(
            {verb, "*"} & set(rule.get("verbs") or ()) and _has_path(rule, path)
            for rule in self.held_by(who, "")
        )

    def may_grant(self, who: Who, place: Place, stored: Mapping[str, Any]) -> bool:
        """Whether somebody holds all that a role or a binding gives, or may give more."""
        if MASTERS in who.groups:
            return True
        if place.resource in ("roles", "clusterroles"):
            if self.allow(who, "escalate", replace(place, name="")):
                return True
            if self.allow(who, "escalate", place):
                return True
            return self._hold(who, place.namespace, stored.get("rules") or [])
        ref = stored["roleRef"]
        kind = "roles" if ref["kind"] == "Role" else "clusterroles"
        if self.allow(who, "bind", Place(RBAC, kind, place.namespace, ref["name"])):
            return True
        rules = self.referred(place.namespace, stored)
        return rules is not None and self._hold(who, place.namespace, rules)

    def _hold(self, who: Who, namespace: str, wanted: Iterable[Mapping[str, Any]]) -> bool:
        held = self.held_by(who, namespace)
        return all(
            any(_covers(rule, one) for rule in held)
            for each in wanted
            for one in _taken_apart(each)
        )


def _is_subject(who: Who, subject: Mapping[str, Any]) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == who.name
        case "Group":
            return subject.get("name") in who.groups
        case "ServiceAccount":
            name = f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
            return name == who.name
        case _:
            return False


def _allows(rule: Mapping[str, Any], verb: str, place: Place, part: str) -> bool:
    what = {f"{place.resource}/{part}", f"*/{part}"} if part else {place.resource}
    names = rule.get("resourceNames") or ()
    return bool(
        {verb, "*"} & set(rule.get("verbs") or ())
        and {place.group, "*"} & set(rule.get("apiGroups") or ())
        and (what | {"*"}) & set(rule.get("resources") or ())
        and (not names or place.name in names)
    )


def _has_path(rule: Mapping[str, Any], path: str) -> bool:
    held = rule.get("nonResourceURLs") or ()
    return any(path.startswith(each[:-1]) if each.endswith("*") else path == each for each in held)


Grain = tuple[str, str, str, str, str]
"""The smallest thing a rule gives: verb, group, resource, name, path."""


def _taken_apart(rule: Mapping[str, Any]) -> Iterator[Grain]:
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield verb, "", "", "", path
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield verb, group, resource, name, ""


def _covers(rule: Mapping[str, Any], grain: Grain) -> bool:
    verb, group, resource, name, path = grain
    if not {verb, "*"} & set(rule.get("verbs") or ()):
        return False
    if path:
        return path in (rule.get("nonResourceURLs") or ()) or _has_path(rule, path)
    _, slash, part = resource.partition("/")
    wider = {resource, "*"} | ({f"*/{part}"} if slash else set())
    names = rule.get("resourceNames") or ()
    return bool(
        {group, "*"} & set(rule.get("apiGroups") or ())
        and wider & set(rule.get("resources") or ())
        and (not names or name in names)
    )


def agent_may(cluster: str, verb: str, place: Place, part: str) -> bool:
    """Return the most that the agent of a cluster may ever ask for, whatever roles it is given.

    A create is allowed by what it makes, which its URL does not say: that is judged by the change.
    """
    own = {
        f"karmada-es-{cluster}": "*",
        f"fleet-member-{cluster}": "*",
        "default": "events",
        "karmada-cluster": "leases secrets",
    }.get(place.namespace, "")
    if place.group in ("authorization.k8s.io", "authentication.k8s.io"):
        return verb == "create" and place.resource.startswith("selfsubject")
    if not cluster:
        return False
    if (place.group, place.resource) in (
        (CLUSTERS, "clusters"),
        ("certificates.k8s.io", "certificatesigningrequests"),
    ):
        is_own = place.name == cluster or place.name.startswith(f"{cluster}-")
        return part != "proxy" and (is_own or verb == "create")
    if own == "*":
        return True
    is_own = place.name.partition(".")[0] in (cluster, f"{cluster}-impersonator")
    return place.resource in own.split() and (is_own or verb == "create")


def act_as(headers: Sequence[tuple[str, str]], who: Who, roles: Roles) -> Who | None:
    """Return who a request is made as; None when it may not be made as them."""
    asked = [(name, value) for name, value in headers if name.startswith("impersonate-")]
    if not asked:
        return who
    users = [value for name, value in asked if name == "impersonate-user"]
    groups = tuple(value for name, value in asked if name == "impersonate-group")
    if len(users) != 1 or len(asked) != 1 + len(groups):
        return None
    wanted = [("users", users[0]), *(("groups", each) for each in groups)]
    if users[0].startswith("system:serviceaccount:"):
        return None  # the model knows no accounts
    if not all(roles.allow(who, "impersonate", Place("", kind, "", name)) for kind, name in wanted):
        return None
    common = () if "system:unauthenticated" in groups else ("system:authenticated",)
    return Who(users[0], (*groups, *(each for each in common if each not in groups)))


# -- what a request may do to a cluster -----------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One object before and after a request; None for one that is not there."""

    place: Place
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Cluster:
    """One API server, as the model sees it."""

    def __init__(self, served: Iterable[tuple[str, str, str]]) -> None:
        self.served = frozenset(served)
        """Group, version and resource of all there is."""
        self.roles = Roles()

    def lets_in(self, who: Who, reading: Reading) -> bool:
        """Whether a request is one that its sender may make."""
        if not reading.is_resource:
            return self.roles.allow_path(who, reading.verb, reading.path)
        place = reading.place
        is_served = (place.group, reading.version, place.resource) in self.served
        if is_served and not reading.is_a_path:
            return False
        asked = replace(place, name=reading.named)
        return self.roles.allow(who, reading.verb, asked, reading.subresource)

    def shows(self, who: Who, reading: Reading, place: Place) -> bool:
        """Whether the answer to a request may show this object."""
        if not reading.is_resource or not self.lets_in(who, reading):
            return False
        if reading.verb == "create" and not reading.place.name:
            return False
        about = reading.touches
        is_selected = reading.verb in ("list", "watch") and reading.named
        about = replace(about, name=reading.named) if is_selected else about
        return about.holds(place)

    def excuses(self, who: Who, reading: Reading, body: bytes, change: Change) -> bool:
        """Whether a request may have had this effect."""
        about, place = reading.touches, change.place
        if not reading.is_resource or not self.lets_in(who, reading) or not about.holds(place):
            return False
        if reading.query.get("dryRun") or reading.verb in ("get", "list", "watch"):
            return False
        if not _is_itself(change) or not self._may_write_agents(who, reading, change):
            return False
        if place.group == RBAC and change.after is not None and _grants(change):
            return self._is_excused(who, reading, body, change) and self.roles.may_grant(
                who, place, change.after
            )
        return self._is_excused(who, reading, body, change)

    def _is_excused(self, who: Who, reading: Reading, body: bytes, change: Change) -> bool:
        verb, part = reading.verb, reading.subresource
        if part:
            return change.before is not None and (part != "status" or _is_status_only(change))
        if verb in ("delete", "deletecollection"):
            return change.before is not None
        if verb == "create":
            return change.before is None and _is_named_by(body, change.place)
        if change.before is None:
            return self.roles.allow(who, "create", change.place)
        return change.after is not None or bool(change.before["metadata"].get("deletionTimestamp"))

    def _may_write_agents(self, who: Who, reading: Reading, change: Change) -> bool:
        if who.agent_of is None:
            return True
        verb = "update" if reading.verb == "create" else reading.verb
        return agent_may(who.agent_of, verb, change.place, reading.subresource)


def _is_itself(change: Change) -> bool:
    """Whether what is stored is called what its key says."""
    if change.after is None:
        return True
    metadata = change.after["metadata"]
    return (metadata.get("namespace") or "", metadata.get("name")) == (
        change.place.namespace,
        change.place.name,
    )


def _is_named_by(body: bytes, place: Place) -> bool:
    try:
        metadata = json.loads(body).get("metadata") or {}
    except ValueError:
        return True  # YAML or protobuf: the name is the servers' to find
    name = metadata.get("name")
    return place.name == name if name else place.name.startswith(metadata.get("generateName") or "")


def _is_status_only(change: Change) -> bool:
    """Whether nothing but the status is another one; labels are the server's to keep or not."""
    if change.before is None or change.after is None:
        return False
    fields = {*change.before, *change.after} - {"status", "metadata"}
    return all(change.before.get(each) == change.after.get(each) for each in fields)


def _grants(change: Change) -> bool:
    """Whether a role or binding says something else than before."""
    fields = ("rules", "roleRef", "subjects", "aggregationRule")
    before, after = change.before or {}, change.after or {}
    return any((before.get(each) or None) != (after.get(each) or None) for each in fields)


# -- what a request to the fleet may do, and where ------------------------------------------------


@dataclass(frozen=True)
class Aim:
    """Where a request to the fleet goes, and how it reads there."""

    cluster: str | None
    """None for every cluster."""
    reading: Reading
    said: Reading
    """The same in the client's own words, names of clusters included: what is audited."""


def split(name: str) -> tuple[str, str | None]:
    """Take `NAME.clusterspace.CLUSTER` apart."""
    own, marker, cluster = name.rpartition(MARKER)
    return (own, cluster) if marker and own and cluster else (name, None)


def aim(method: str, target: str, body: bytes) -> Aim:
    """Return where a request goes; Unreadable when it goes nowhere."""
    path, mark, text = target.partition("?")
    found = segments_of(path)
    raw = path.removesuffix("/").split("/")[1:]
    cluster: str | None = None
    cut = 0
    if found[:1] == ["clusterspaces"] and len(found) > 1:
        cluster, cut = found[1], 2
    elif found[:2] == ["apis", CLUSTERS] and found[3:4] == ["clusters"] and found[5:6] == ["proxy"]:
        cluster, cut = found[4], 6
    if cut:
        inner = "/" + "/".join(raw[cut:]) + mark + text
        if cluster not in ("all", "*"):
            own = read(method, inner)
            _refuse_nesting(own)
            return Aim(HUB if cluster == "hub" else cluster, own, own)
        target, found, raw = inner, found[cut:], raw[cut:]
    said: list[str] = []
    place = _explicit_at(found)
    if place:
        said = [HUB if found[place + 1] == "hub" else found[place + 1]]
        said = [] if said[0] in ("all", "*") else said
        found, raw = found[:place] + found[place + 2 :], raw[:place] + raw[place + 2 :]
        if _explicit_at(found):
            raise Unreadable(target)
        target = "/" + "/".join(raw) + mark + text
    return _aim_by_names(read(method, target), said, body)


def _refuse_nesting(reading: Reading) -> None:
    place = reading.place
    if (place.group, place.resource) == ("", "namespaces") and not reading.is_a_path:
        raise Unreadable(reading.path)


def _explicit_at(found: Sequence[str]) -> int:
    start = {"api": 2, "apis": 3}.get(found[0] if found else "", 0)
    if not start:
        return 0
    start += found[start : start + 1] == ["watch"]
    places = [start, start + 2] if found[start : start + 1] == ["namespaces"] else [start]
    for place in places:
        if found[place : place + 1] == ["clusterspaces"] and len(found) > place + 2:
            return place
    return 0


def _aim_by_names(reading: Reading, said: list[str], body: bytes) -> Aim:
    if not reading.is_resource:
        return Aim(None, reading, reading)
    _refuse_nesting(reading)
    place = reading.place
    name, in_name = split(place.name)
    if reading.subresource == "proxy" and in_name:
        in_name, colon, port = in_name.partition(":")
        name += colon + port
    namespace, in_namespace = split(place.namespace)
    mentioned = [*said, *(each for each in (in_name, in_namespace) if each is not None)]
    mentioned += [each for each in _in_selectors(reading.query) if each]
    is_create = reading.verb == "create" and not place.name
    if is_create:
        mentioned += [each for each in _in_body(body) if each]
    if len(set(mentioned)) > 1 or {"hub", "all"} & set(mentioned):
        raise Unreadable(f"{mentioned} are not one cluster")
    if {name, namespace} & {".", ".."}:
        raise Unreadable(f"{name!r} is no name")
    own = replace(reading, place=replace(place, name=name, namespace=namespace))
    query = {key: value.split(MARKER)[0] for key, value in reading.query.items()}
    own = replace(own, query=query)
    if mentioned:
        return Aim(mentioned[0], own, reading)
    is_open = place.name or selected_name(reading.query) or own.verb not in ("list", "watch", "get")
    is_anywhere = own.verb in ("get", "list", "watch") and place.resource == "namespaces"
    is_asked_of_all = place.resource == "selfsubjectaccessreviews" and own.verb == "create"
    return Aim(HUB if is_open and not (is_anywhere or is_asked_of_all) else None, own, reading)


def _in_selectors(query: Mapping[str, str]) -> Iterator[str | None]:
    for term in query.get("fieldSelector", "").split(","):
        _, sign, value = term.partition("=")
        yield split(value)[1] if sign else None


def _in_body(body: bytes) -> Iterator[str | None]:
    try:
        told = json.loads(body or b"{}")
    except ValueError:
        return
    metadata = told.get("metadata") or {}
    for key in ("name", "namespace"):
        yield split(str(metadata.get(key) or ""))[1]
    asked = ((told.get("spec") or {}).get("resourceAttributes")) or {}
    for key in ("name", "namespace"):
        yield split(str(asked.get(key) or ""))[1]


def reach_verb(reading: Reading, *, is_upgrade: bool = False) -> str:
    """Return the right on `clusters/proxy` that it takes to have a member asked this."""
    if is_upgrade or reading.subresource in (*STREAMS, "proxy"):
        return "create"
    return VERBS.get(reading.method, reading.method.lower())


class Fleet:
    """A hub and its members, as the model sees them."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self.clusters = clusters

    @property
    def hub(self) -> Cluster:
        return self.clusters[HUB]

    def reaches(self, who: Who, cluster: str, reading: Reading, *, is_upgrade: bool) -> bool:
        """Whether somebody may have a cluster asked this at all."""
        if cluster == HUB:
            return True
        verb = reach_verb(reading, is_upgrade=is_upgrade)
        return self.hub.roles.allow(who, verb, Place(CLUSTERS, "clusters", "", cluster), "proxy")
