"""What the control plane's components may do at the hub, as far as a role cannot say it.

A component logs in under its own name, and the role of that name (`default_roles.py`) says what it
may do. RBAC knows no prefixes of names, no fields of objects and no namespaces that are not there
yet, so the roles say more than the components need: to mark templates of every kind, the
controllers must be allowed to patch everything. These limits say the rest. They hold whatever roles
anybody adds, as the scope of agents does.

    gateway      reads the Secrets of `karmada-cluster`, and no others
    controllers  delete execution namespaces, namespaces of members and their rights; no others
                 make and delete Services `derived-…` and EndpointSlices `imported-…`, of imports
                 write leases, ConfigMaps and Secrets in `karmada-cluster` alone; of other
                 namespaces' Secrets, what is written there for a ClusterConsumer, and of their
                 leases, their own and those that say which clusters answer
                 patch, of what is not their own, the marks of propagation and summed up statuses
                 grant what agents of members need, in the namespaces of members, to somebody
                 use no subresource but status and scale: not exec, approval; and scale only
                 what an autoscaler of its namespace names. Tokens of a ServiceAccount they may
                 ask for where a role of its namespace says so, and theirs does not. Through the
                 proxy of clusters they list pods and read metrics, and reach nothing else

And nobody becomes an agent or a component by impersonation: those names come with a certificate.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from clusterspace.apis import fleet_placements, staged_updates, witnesses
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, EXECUTION_PREFIX
from clusterspace.apis.consumers import CLUSTER_CONSUMERS, CLUSTER_PROFILES, is_consumers
from clusterspace.apis.identities import (
    AGENT_USER_PREFIX,
    AGENTS,
    COMPONENT_USER_PREFIX,
    CONTROLLERS_LEASE,
    CONTROLLERS_USER,
    FLEET_USER,
)
from clusterspace.apis.interpreter.reports import is_aggregated
from clusterspace.apis.member_clusters import NAMESPACE_PREFIX, is_everybody
from clusterspace.apis.services import (
    DERIVED_PREFIX,
    IMPORTED_PREFIX,
    IMPORTER,
    MANAGED_BY,
    SERVICE_IMPORT,
)
from clusterspace.apiserver.access.rbac import EVERYTHING, RBAC_GROUP, Rule, missing_atoms
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.kube.objects import Object, labels_of, metadata_of, name_of, namespace_of
from clusterspace.kube.resources import ResourceInfo

_MEMBER_ROLES: Final = ("fleet-role-",)
_MEMBER_BINDINGS: Final = ("fleet-rolebinding-",)

_OWN_NAMES: Final = {
    ("", "namespaces"): (EXECUTION_PREFIX, NAMESPACE_PREFIX),
    (RBAC_GROUP, "roles"): _MEMBER_ROLES,
    (RBAC_GROUP, "clusterroles"): _MEMBER_ROLES,
    (RBAC_GROUP, "rolebindings"): _MEMBER_BINDINGS,
    (RBAC_GROUP, "clusterrolebindings"): _MEMBER_BINDINGS,
}
"""What the controllers make and remove for members, by how the names begin."""

_DERIVED_NAMES: Final = {
    ("", "services"): DERIVED_PREFIX,
    ("discovery.k8s.io", "endpointslices"): IMPORTED_PREFIX,
}
"""What the controllers make of imports and of reports, by how the names begin."""

_OWN_GROUPS: Final = frozenset(
    {
        "autoscaling.karmada.io",
        "cluster.karmada.io",
        "work.karmada.io",
        "cluster.kubernetes-fleet.io",
        "placement.kubernetes-fleet.io",
    }
)
"""Groups in which the role alone says what the controllers may write."""

_OWN_STATUSES: Final = frozenset(
    {
        ("apps.karmada.io", "workloadrebalancers"),
        ("multicluster.x-k8s.io", "serviceimports"),
        ("networking.karmada.io", "multiclusterservices"),
        ("policy.karmada.io", "federatedresourcequotas"),
        (CLUSTER_CONSUMERS.group, CLUSTER_CONSUMERS.resource),
    }
)
"""What people write and the controllers answer in the status."""

_FOR_TEMPLATES: Final = frozenset({"get", "list", "watch", "patch"})
"""Verbs the controllers need on everything; what a patch changes is seen in the ComponentGuard."""

_CREDENTIALS: Final = ("", "secrets")
_FOR_CONSUMERS: Final = frozenset(
    {_CREDENTIALS, (CLUSTER_PROFILES.group, CLUSTER_PROFILES.resource)}
)
"""What the controllers write for ClusterConsumers, in namespaces of others."""

_INSIDE: Final = {
    _CREDENTIALS: (CLUSTER_NAMESPACE,),
    ("", "configmaps"): (CLUSTER_NAMESPACE,),
    ("coordination.k8s.io", "leases"): (
        CLUSTER_NAMESPACE,
        "kube-system",
        witnesses.LEASE_NAMESPACE,
    ),
}
"""Where the controllers create, replace and delete such things."""

_READ: Final = ("get", "list", "watch")
_CHANGE: Final = ("get", "update", "patch")
_INTERPRETERS: Final = (
    "resourceinterpretercustomizations",
    "resourceinterpreterwebhookconfigurations",
)
_REPORTING: Final = Rule((*_READ, "create", "update", "patch"), ("",), ("events",))
_LENT_FOR_CLUSTERS: Final = (
    Rule(_READ, ("cluster.karmada.io",), ("clusters",)),
    Rule(_CHANGE, ("cluster.karmada.io",), ("clusters/status",)),
    Rule(_READ, ("config.karmada.io",), _INTERPRETERS),
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

_CERTIFIED: Final = "agents and parts of the control plane are known by certificates alone"
_ELSEWHERE: Final = f"outside of {CLUSTER_NAMESPACE} it is none of this part's business"
_SUBRESOURCES: Final = ("", "status", "scale")
_ACCOUNTS: Final = ("", "serviceaccounts")
_RIGHTS: Final = frozenset(
    {
        (*_ACCOUNTS, "token"),
        ("cluster.karmada.io", "clusters", witnesses.SUBRESOURCE),
        (
            staged_updates.CLUSTER_RUNS.runs.group,
            staged_updates.CLUSTER_RUNS.runs.resource,
            staged_updates.RECORD,
        ),
        (
            fleet_placements.RESOURCE_SNAPSHOTS.group,
            fleet_placements.RESOURCE_SNAPSHOTS.resource,
            fleet_placements.CONTENTS,
        ),
    }
)
"""Subresources that they need beside these, which most often are rights and no URLs."""
_METRICS: Final = frozenset({"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"})
_NO_OTHERS: Final = "the controllers need no subresource but status and scale"
_MEASURING: Final = "the controllers list pods and read metrics of members, and reach nothing else"
_CONSUMERS_ALONE: Final = "the controllers remove only what they wrote for a ClusterConsumer"
_LENDING: Final = "the controllers grant only what agents of members need"
_FOREIGN: Final = "the controllers remove only what they made for members"


def limit_of(user: User, info: RequestInfo, name: str) -> str:
    """Return why a request is refused whatever roles say; empty when roles decide.

    `name` is the object the request is about. Administrators are not asked.
    """
    if info.verb == "impersonate":
        is_user = info.resource == "users"
        if is_user and name.startswith((COMPONENT_USER_PREFIX, AGENT_USER_PREFIX)):
            return _CERTIFIED
        if info.resource == "groups" and name == AGENTS:
            return _CERTIFIED
    kind = (info.group, info.resource)
    if user.name == FLEET_USER and kind == _CREDENTIALS:
        return "" if info.namespace == CLUSTER_NAMESPACE else _ELSEWHERE
    if user.name != CONTROLLERS_USER or not info.is_resource:
        return ""
    if info.proxied is not None:
        return "" if _is_measuring(info.verb, info.proxied) else _MEASURING
    if info.subresource not in _SUBRESOURCES:
        # Their own role has no tokens: who wants the controllers to give some to a program says so
        # in its namespace, by a role that names the account.
        return "" if (*kind, info.subresource) in _RIGHTS else _NO_OTHERS
    if info.group == RBAC_GROUP and info.verb in ("bind", "escalate"):
        return _LENDING
    if kind in _OWN_NAMES and info.verb in ("delete", "deletecollection"):
        return "" if name.startswith(_OWN_NAMES[kind]) else _FOREIGN
    if kind == _CREDENTIALS and info.verb in ("create", "delete"):
        return ""  # which ones is seen in the ComponentGuard
    if kind in _DERIVED_NAMES and info.verb in ("delete", "deletecollection"):
        return "" if name.startswith(_DERIVED_NAMES[kind]) else _FOREIGN
    if kind in _INSIDE and info.verb not in _FOR_TEMPLATES:
        return "" if info.namespace in _INSIDE[kind] else _ELSEWHERE
    return ""


def _is_measuring(verb: str, inner: RequestInfo) -> bool:
    """Whether a member is asked for what autoscalers need; `verb` is the right on the proxy."""
    if verb != "get" or inner.is_watch:
        return False
    if inner.group in _METRICS:
        return inner.verb in ("get", "list")
    kind = (inner.group, inner.resource, inner.subresource)
    return inner.is_resource and inner.verb == "list" and kind == ("", "pods", "")


def lendable(user: User, owned: Iterable[Rule], namespace: str) -> tuple[Rule, ...]:
    """Return the rules somebody may grant to others in a namespace, of those they own.

    The controllers use their rights within the limits above, and whoever they granted them to would
    not be. So they grant only what an agent needs, and only where it needs it.
    """
    rules = tuple(owned)
    if user.name != CONTROLLERS_USER:
        return rules
    lent: tuple[Rule, ...] = ()
    if not namespace:
        lent = _LENT_FOR_CLUSTERS
    elif namespace == CLUSTER_NAMESPACE:
        lent = _LENT_FOR_HEARTBEATS
    elif namespace.startswith(EXECUTION_PREFIX):
        lent = _LENT_FOR_WORKS
    elif namespace.startswith(NAMESPACE_PREFIX):
        lent = _LENT_TO_MEMBERS
    return tuple(rule for rule in lent if not any(missing_atoms((rule,), rules)))


def carries_for_others(user: User) -> bool:
    """Whether what somebody sends to members was written, and so answered for, by others."""
    return user.name == CONTROLLERS_USER


def only_marks(user: User, new: Object, old: Object) -> bool:
    """Whether the controllers write marks on an object, and nothing that it says changes."""
    return user.name == CONTROLLERS_USER and _unmarked(new) == _unmarked(old)


def refusal_of(
    resource: ResourceInfo,
    new: Object,
    old: Object | None,
    *,
    subresource: str,
    is_summed_up: bool = False,
) -> str:
    """Return why the controllers may not write an object that their role let them write.

    `is_summed_up` says that somebody told them how to sum up the statuses of this kind.
    """
    kind, name = (resource.group, resource.plural), name_of(new)
    if resource.group in _OWN_GROUPS or kind in _EVENTS:
        return ""
    if name.startswith(_OWN_NAMES.get(kind, ())):
        return _grant_refusal(new, old) if resource.group == RBAC_GROUP else ""
    is_named = kind in _DERIVED_NAMES and name.startswith(_DERIVED_NAMES[kind])
    if is_named and not subresource and all(map(_is_derived, (new, old or new))):
        return ""
    if kind == _LEASES and name == CONTROLLERS_LEASE:
        return ""
    if kind == _LEASES and witnesses.is_witness_lease(namespace_of(new), name):
        return ""
    if namespace_of(new) == CLUSTER_NAMESPACE and kind in (_LEASES, _CONFIG_MAPS):
        return ""  # heartbeats, and what a member that left by force leaves behind
    if kind in _FOR_CONSUMERS and is_consumers(new) and (old is None or is_consumers(old)):
        return ""
    if old is None:
        is_shared = kind == ("", "namespaces") and name == CLUSTER_NAMESPACE
        return "" if is_shared else f"the controllers make no {resource.plural} of this name"
    if subresource == "scale":
        return ""  # replicas are all that it can change; of what, is seen in the ComponentGuard
    if subresource:
        is_known = is_summed_up or is_aggregated(resource.group_kind)
        if kind not in _OWN_STATUSES and not is_known:
            return f"the controllers sum up no status of {resource.plural}"
        # Metadata can come along with a status, so the rest is compared as in any other write.
        new, old = ({k: v for k, v in each.items() if k != "status"} for each in (new, old))
    if _unmarked(new) != _unmarked(old):
        return "the controllers may mark it, and what it says is its author's"
    return ""


def deletion_refusal_of(resource: ResourceInfo, old: Object) -> str:
    """Return why the controllers may not delete an object that their role let them delete."""
    kind = (resource.group, resource.plural)
    if kind == _CREDENTIALS and namespace_of(old) == CLUSTER_NAMESPACE:
        return ""
    return _CONSUMERS_ALONE if kind in _FOR_CONSUMERS and not is_consumers(old) else ""


def _is_derived(kube_object: Object) -> bool:
    """Whether a Service is an import's, or a slice made of a report; others have authors."""
    owners = cast("list[Object]", metadata_of(kube_object).get("ownerReferences") or [])
    is_imports = any(each.get("kind") == SERVICE_IMPORT for each in owners)
    return is_imports or labels_of(kube_object).get(MANAGED_BY) == IMPORTER


def _grant_refusal(new: Object, old: Object | None) -> str:
    """Return why a role or binding gives to more people, or more, than it says to one agent."""
    if old is not None and _unmarked(new) == _unmarked(old):
        return ""
    if new.get("aggregationRule") or any(
        each.startswith(f"{RBAC_GROUP}/") for each in labels_of(new)
    ):
        return "the controllers make no role that gathers others, or is gathered by one"
    subjects = cast("list[Object]", new.get("subjects") or [])
    named = [(str(each.get("kind")), str(each.get("name"))) for each in subjects]
    if ("Group", MASTERS) in named or any(is_everybody(*each) for each in named):
        return "the controllers grant to agents, and not to everybody"
    return ""


def _unmarked(kube_object: Object) -> Object:
    """Return an object without the marks of propagation, and without the fields a server sets."""
    metadata = {key: each for key, each in metadata_of(kube_object).items() if key not in _SERVERS}
    for field in _MARKED:
        marks: Any = metadata.get(field) or {}
        if not isinstance(marks, dict):
            marks = dict.fromkeys(marks, "")  # labels and annotations are maps, finalizers a list
        metadata[field] = {
            key: value
            for key, value in cast("dict[str, Any]", marks).items()
            if not f".{key.partition('/')[0]}".endswith(f".{_MARK_DOMAIN}")
        }
    return {**kube_object, "metadata": metadata}
