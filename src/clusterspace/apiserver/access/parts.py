"""What parts of the control plane may do at the hub, as far as a role cannot say it.

A part logs in under its own name, and the role of that name (`default_roles.py`) says what it may
do. RBAC knows no prefixes of names, no parts of objects and no namespaces that are not there yet,
so the roles say more than the parts need: to mark templates of every kind, the controllers must be
allowed to patch everything. These limits say the rest. They hold whatever roles anybody adds, as
the scope of agents does.

    gateway      reads the Secrets of `karmada-cluster`, and no others
    controllers  delete execution namespaces, namespaces of members and their rights; no others
                 write leases, ConfigMaps and Secrets in `karmada-cluster` alone
                 patch, of what is not their own, the marks of propagation and summed up statuses
                 grant what agents of members need, in the namespaces of members, to somebody
                 use no subresource that is a door: proxy, exec, token, approval

And nobody becomes an agent or a part by impersonation: those names come with a certificate.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from clusterspace.apis.agents import AGENT_USER_PREFIX, AGENTS
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, EXECUTION_PREFIX
from clusterspace.apis.interpreter.aggregation import is_aggregated
from clusterspace.apis.member_clusters import NAMESPACE_PREFIX, is_everybody
from clusterspace.apis.parts import (
    CONTROLLERS_LEASE,
    CONTROLLERS_USER,
    FLEET_USER,
    PART_USER_PREFIX,
)
from clusterspace.apiserver.access.coverage import missing_atoms
from clusterspace.apiserver.access.rbac import EVERYTHING, Rule
from clusterspace.apiserver.admissions import Admission
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.state import HubState
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, labels_of, metadata_of, name_of, namespace_of

_RBAC: Final = "rbac.authorization.k8s.io"
_MEMBER_ROLES: Final = ("fleet-role-",)
_MEMBER_BINDINGS: Final = ("fleet-rolebinding-",)

_OWN_NAMES: Final = {
    ("", "namespaces"): (EXECUTION_PREFIX, NAMESPACE_PREFIX),
    (_RBAC, "roles"): _MEMBER_ROLES,
    (_RBAC, "clusterroles"): _MEMBER_ROLES,
    (_RBAC, "rolebindings"): _MEMBER_BINDINGS,
    (_RBAC, "clusterrolebindings"): _MEMBER_BINDINGS,
}
"""What the controllers make and remove for members, by how the names begin."""

_OWN_GROUPS: Final = frozenset(
    {
        "cluster.karmada.io",
        "work.karmada.io",
        "cluster.kubernetes-fleet.io",
        "placement.kubernetes-fleet.io",
    }
)
"""Groups in which the role alone says what the controllers may write."""

_FOR_TEMPLATES: Final = frozenset({"get", "list", "watch", "patch"})
"""Verbs the controllers need on everything; what a patch changes is seen in the PartGuard."""

_CREDENTIALS: Final = ("", "secrets")
_INSIDE: Final = {
    _CREDENTIALS: (CLUSTER_NAMESPACE,),
    ("", "configmaps"): (CLUSTER_NAMESPACE,),
    ("coordination.k8s.io", "leases"): (CLUSTER_NAMESPACE, "kube-system"),
}
"""Where the controllers create, replace and delete such things."""

_READ: Final = ("get", "list", "watch")
_CHANGE: Final = ("get", "update", "patch")
_REPORTING: Final = Rule((*_READ, "create", "update", "patch"), ("",), ("events",))
_LENT_FOR_CLUSTERS: Final = (
    Rule(_READ, ("cluster.karmada.io",), ("clusters",)),
    Rule(_CHANGE, ("cluster.karmada.io",), ("clusters/status",)),
)
_LENT_FOR_HEARTBEATS: Final = (
    Rule((*_READ, "update", "patch"), ("coordination.k8s.io",), ("leases",)),
)
_LENT_FOR_WORKS: Final = (
    Rule((*_READ, "update", "patch"), ("work.karmada.io",), ("works",)),
    Rule(_CHANGE, ("work.karmada.io",), ("works/status",)),
    _REPORTING,
)
_LENT_TO_MEMBERS: Final = (
    *(
        Rule((EVERYTHING,), (group,), (EVERYTHING,))
        for group in (
            "cluster.kubernetes-fleet.io",
            "placement.kubernetes-fleet.io",
            "networking.fleet.azure.com",
        )
    ),
    _REPORTING,
)

_EVENTS: Final = frozenset({("", "events"), ("events.k8s.io", "events")})
_LEASES: Final = ("coordination.k8s.io", "leases")
_CONFIG_MAPS: Final = ("", "configmaps")

_MARK_DOMAIN: Final = "karmada.io"
_SERVERS: Final = frozenset({"managedFields", "resourceVersion", "generation"})
_MARKED: Final = ("labels", "annotations", "finalizers")

_ISSUED: Final = "agents and parts of the control plane are known by certificates alone"
_ELSEWHERE: Final = f"outside of {CLUSTER_NAMESPACE} it is none of this part's business"
_DOOR: Final = "the controllers need no subresource but the status"
_LENDING: Final = "the controllers grant only what agents of members need"
_FOREIGN: Final = "the controllers remove only what they made for members"


def limit_of(user: User, info: RequestInfo, name: str) -> str:
    """Return why a request is refused whatever roles say; empty when roles decide.

    `name` is the object the request is about. Administrators are not asked.
    """
    if info.verb == "impersonate" and _is_issued(info, name):
        return _ISSUED
    kind = (info.group, info.resource)
    if user.name == FLEET_USER and kind == _CREDENTIALS:
        return "" if info.namespace == CLUSTER_NAMESPACE else _ELSEWHERE
    if user.name != CONTROLLERS_USER or not info.is_resource:
        return ""
    if info.subresource not in ("", "status"):
        return _DOOR
    if info.group == _RBAC and info.verb in ("bind", "escalate"):
        return _LENDING
    if kind in _OWN_NAMES and info.verb in ("delete", "deletecollection"):
        return "" if name.startswith(_OWN_NAMES[kind]) else _FOREIGN
    if kind in _INSIDE and info.verb not in _FOR_TEMPLATES:
        return "" if info.namespace in _INSIDE[kind] else _ELSEWHERE
    return ""


def _is_issued(info: RequestInfo, name: str) -> bool:
    if info.resource == "groups":
        return name == AGENTS
    return info.resource == "users" and name.startswith((PART_USER_PREFIX, AGENT_USER_PREFIX))


def lendable(user: User, held: Iterable[Rule], namespace: str) -> tuple[Rule, ...]:
    """Return the rules somebody may grant to others in a namespace, of those they hold.

    The controllers use what they hold within the limits above, and whoever they granted it to would
    not be. So they grant only what an agent needs, and only where it needs it.
    """
    if user.name != CONTROLLERS_USER:
        return tuple(held)
    rules = tuple(held)
    return tuple(rule for rule in _lent_in(namespace) if not any(missing_atoms((rule,), rules)))


def _lent_in(namespace: str) -> tuple[Rule, ...]:
    """Return what agents are given in a namespace, or at the cluster scope."""
    if not namespace:
        return _LENT_FOR_CLUSTERS
    if namespace == CLUSTER_NAMESPACE:
        return _LENT_FOR_HEARTBEATS
    if namespace.startswith(EXECUTION_PREFIX):
        return _LENT_FOR_WORKS
    return _LENT_TO_MEMBERS if namespace.startswith(NAMESPACE_PREFIX) else ()


def carries_for_others(user: User) -> bool:
    """Whether what somebody sends to members was written, and so answered for, by others."""
    return user.name == CONTROLLERS_USER


def only_marks(user: User, new: Object, old: Object) -> bool:
    """Whether the controllers write marks on an object, and nothing that it says changes."""
    return user.name == CONTROLLERS_USER and _unmarked(new) == _unmarked(old)


class PartGuard:
    """Refuses what the controllers write beyond their limits."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        if admission.user.name == CONTROLLERS_USER:
            why = refusal_of(admission)
            if why:
                resource = admission.served.info.group_resource
                raise statuses.forbidden(resource, name_of(admission.new), why)
        return admission.new


def refusal_of(admission: Admission) -> str:
    """Return why the controllers may not write an object that their role let them write."""
    info, new, old = admission.served.info, admission.new, admission.old
    kind, name = (info.group, info.plural), name_of(new)
    if info.group in _OWN_GROUPS or kind in _EVENTS:
        return ""
    if name.startswith(_OWN_NAMES.get(kind, ())):
        return _grant_refusal(new, old) if info.group == _RBAC else ""
    if kind == _LEASES and name == CONTROLLERS_LEASE:
        return ""
    if namespace_of(new) == CLUSTER_NAMESPACE and kind in (_LEASES, _CONFIG_MAPS):
        return ""  # heartbeats, and what a member that left by force leaves behind
    if old is None:
        is_shared = kind == ("", "namespaces") and name == CLUSTER_NAMESPACE
        return "" if is_shared else f"the controllers make no {info.plural} of this name"
    if admission.subresource:
        if not is_aggregated(info.group_kind):
            return f"the controllers sum up no status of {info.plural}"
        new, old = _without_status(new), _without_status(old)  # metadata can come along with it
    if _unmarked(new) != _unmarked(old):
        return "the controllers may mark it, and what it says is its author's"
    return ""


def _grant_refusal(new: Object, old: Object | None) -> str:
    """Return why a role or binding gives to more people, or more, than it says to one agent."""
    if old is not None and _unmarked(new) == _unmarked(old):
        return ""
    if new.get("aggregationRule") or any(each.startswith(f"{_RBAC}/") for each in labels_of(new)):
        return "the controllers make no role that gathers others, or is gathered by one"
    subjects = cast("list[Object]", new.get("subjects") or [])
    named = [(str(each.get("kind")), str(each.get("name"))) for each in subjects]
    if ("Group", MASTERS) in named or any(is_everybody(*each) for each in named):
        return "the controllers grant to agents, and not to everybody"
    return ""


def _without_status(kube_object: Object) -> Object:
    return {key: each for key, each in kube_object.items() if key != "status"}


def _unmarked(kube_object: Object) -> Object:
    """Return an object without what propagation writes on it, and without the server's words."""
    metadata = {key: each for key, each in metadata_of(kube_object).items() if key not in _SERVERS}
    for field in _MARKED:
        metadata[field] = _without_marks(metadata.get(field))
    return {**kube_object, "metadata": metadata}


def _without_marks(words: Any) -> dict[str, Any]:
    """Return labels, annotations or finalizers that are not ours."""
    if isinstance(words, dict):
        pairs = list(cast("dict[str, Any]", words).items())
    else:
        pairs = [(each, "") for each in cast("list[str]", words or [])]
    return {key: value for key, value in pairs if not _is_mark(key)}


def _is_mark(key: str) -> bool:
    domain = key.partition("/")[0]
    return domain == _MARK_DOMAIN or domain.endswith(f".{_MARK_DOMAIN}")
