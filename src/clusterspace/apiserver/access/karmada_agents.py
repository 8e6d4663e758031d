"""What Karmada's own agent, and its `register`, reach at a hub that accepts them.

The agent of `west` asks for more than ours does. It gets this besides, for as long as the operator
says `--accept-karmada-agents`, and what of it concerns others is answered for itself alone:

    clusters              it lists and watches all of them: it is shown its own
    services              it lists and watches everybody's: it is shown those in `karmada-system`
    karmada-cluster       it looks whether the namespace is there
    karmada-system        its lease `karmada-agent-west`, by which its replicas elect a leader

It does not delete its Cluster, in whose name `karmadactl unregister` would do so: that is for an
administrator, whom it takes by `--karmada-config`.

`register` logs in before there is an agent, with a certificate of half an hour for one cluster, and
writes the roles that Karmada's agents need. Here they say nothing: agents are scoped by who they
are. So they are kept as written, under their own names, for nobody but the agent, and with no more
in them than Karmada writes.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, cast

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    EXECUTION_PREFIX,
    IMPERSONATOR_SUFFIX,
    SYSTEM_NAMESPACE,
)
from clusterspace.apis.identities import AGENT_USER_PREFIX, INSTALLER_USER
from clusterspace.apis.interpreters import CUSTOMIZATIONS, WEBHOOK_CONFIGURATIONS
from clusterspace.apiserver.access.agents import EVERYWHERE, AgentScope, Scope, scope_of
from clusterspace.apiserver.access.rbac import RBAC_GROUP, Rule
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import Query, RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import Object, labels_of, metadata_of, name_of, namespace_of
from clusterspace.kube.resources import ResourceInfo
from clusterspace.kube.selectors import parse_field_selector

_CLUSTERS: Final = "cluster.karmada.io"
_WORKS: Final = "work.karmada.io"
_LEASES: Final = "coordination.k8s.io"
_CERTIFICATES: Final = "certificates.k8s.io"
_REQUESTS: Final = "certificatesigningrequests"
_LISTS: Final = ("list", "watch")
_LEADER_PREFIX: Final = "karmada-agent-"
_NAMESPACE_FIELD: Final = "metadata.namespace"
_SELECTOR: Final = "fieldSelector"

_INSTALLER_PREFIX: Final = f"{INSTALLER_USER}:"
_REQUEST_PREFIX: Final = "agent-rbac-generator-"
_RANDOM_LENGTH: Final = 5


@dataclass(frozen=True, slots=True)
class KarmadaAgentScope(AgentScope):
    """The scope of an agent that may be Karmada's own."""

    @property
    def leader_lease(self) -> str:
        """The lease by which its replicas elect who works."""
        return _LEADER_PREFIX + self.cluster

    def rules(self, namespace: str) -> tuple[Rule, ...]:
        """Return its rules in a namespace, or at the cluster scope."""
        rules = AgentScope.rules(self, namespace)
        if not self.cluster:
            return rules
        if namespace == CLUSTER_NAMESPACE:
            return (*rules, Rule(("get",), ("",), ("namespaces",), (namespace,)))
        if namespace == SYSTEM_NAMESPACE:
            lease = Rule(("get", "update", "patch"), (_LEASES,), ("leases",), (self.leader_lease,))
            return (*rules, lease, Rule(("create",), (_LEASES,), ("leases",)))
        return rules

    def allows(self, info: RequestInfo, name: str) -> bool:
        """Whether the agent may do what a request asks for."""
        if (info.group, info.resource, info.subresource) == ("", "services", ""):
            # By the selector that `AnswerForItself` put there: without it, it is everybody's.
            return bool(self.cluster) and info.verb in _LISTS and _selects_system_services(info)
        return AgentScope.allows(self, info, name)

    def refusal_of(self, resource: ResourceInfo, new: Object, old: Object | None) -> str:
        """Return why this agent may not write an object it was let in to write, or nothing."""
        if resource.plural == "leases" and namespace_of(new) == SYSTEM_NAMESPACE:
            is_own = name_of(new) == self.leader_lease and not metadata_of(new).get("finalizers")
            return "" if is_own else f"leases {name_of(new)!r} is not cluster {self.cluster!r}'s"
        return AgentScope.refusal_of(self, resource, new, old)


def _selects_system_services(info: RequestInfo) -> bool:
    try:
        selector = parse_field_selector(info.query.get(_SELECTOR))
    except MalformedSelector:
        return False
    return selector.requires_exact(_NAMESPACE_FIELD) == SYSTEM_NAMESPACE


# -- register --------------------------------------------------------------------------------------


def installer_user(cluster: str) -> str:
    """Return the user that `karmadactl register` becomes while it registers this cluster.

    Karmada has one such user for all clusters, who may do everything. This is the same name with
    the cluster behind it, which no cluster can be called.
    """
    return _INSTALLER_PREFIX + cluster


def installed_cluster(request_name: str) -> str:
    """Return the cluster that a certificate request of `register` names; empty for others.

    `register` joins the name and five random characters without anything in between.
    """
    named = request_name.removeprefix(_REQUEST_PREFIX)
    if named == request_name or len(named) <= _RANDOM_LENGTH:
        return ""
    return named[:-_RANDOM_LENGTH]


@dataclass(frozen=True, slots=True)
class InstallerScope:
    """What `karmadactl register` reaches while it registers one cluster: what it makes there."""

    cluster: str

    @property
    def _agent_role(self) -> str:
        return f"system:karmada:{self.cluster}:agent"

    def _role_in(self, namespace: str) -> str:
        """Return the name of the role it writes in a namespace; empty where it writes none."""
        if not namespace:
            return self._agent_role
        if namespace == CLUSTER_NAMESPACE:
            return f"{self._agent_role}-secret"
        is_own = namespace == EXECUTION_PREFIX + self.cluster
        return f"{self._agent_role}-work" if is_own else ""

    def rules(self, namespace: str) -> tuple[Rule, ...]:
        """Return its rules in a namespace, or at the cluster scope."""
        name = self._role_in(namespace)
        if not name or not self.cluster:
            return EVERYWHERE if self.cluster else ()
        kinds = ("roles", "rolebindings") if namespace else ("clusterroles", "clusterrolebindings")
        rules = (
            *EVERYWHERE,
            Rule(("create",), (RBAC_GROUP,), kinds),
            # What a registration that fails takes back; `get` before that.
            Rule(("get", "delete"), (RBAC_GROUP,), kinds, (name,)),
        )
        if namespace:
            return (*rules, Rule(("get",), ("",), ("namespaces",), (namespace,)))
        cluster = Rule(("get",), (_CLUSTERS,), ("clusters",), (self.cluster,))
        return (*rules, cluster, Rule(("create",), ("",), ("namespaces",)))

    def lendable(self, namespace: str) -> tuple[Rule, ...]:
        """Return what Karmada's roles for agents say, for which nobody need hold it."""
        own = (self.cluster,)
        if not namespace:
            return (
                Rule(("get", "delete"), (_CLUSTERS,), ("clusters",), own),
                Rule(("create", "list", "watch"), (_CLUSTERS,), ("clusters",)),
                Rule(("update",), (_CLUSTERS,), ("clusters/status",), own),
                Rule(
                    ("get", "list", "watch"),
                    (CUSTOMIZATIONS.group,),
                    (CUSTOMIZATIONS.resource, WEBHOOK_CONFIGURATIONS.resource),
                ),
                Rule(("get",), ("",), ("namespaces",)),
                Rule(("get", "create", "update"), (_LEASES,), ("leases",)),
                Rule(("get", "create"), (_CERTIFICATES,), (_REQUESTS,)),
                Rule(("list", "watch"), ("",), ("services",)),
                Rule(("patch", "create", "update"), ("",), ("events",)),
            )
        if namespace == CLUSTER_NAMESPACE:
            secrets = (self.cluster, self.cluster + IMPERSONATOR_SUFFIX)
            return (
                Rule(("get", "patch"), ("",), ("secrets",), secrets),
                Rule(("create",), ("",), ("secrets",)),
            )
        if self._role_in(namespace):
            verbs = ("get", "create", "list", "watch", "update", "delete")
            return (
                Rule(verbs, (_WORKS,), ("works",)),
                Rule(("patch", "update"), (_WORKS,), ("works/status",)),
            )
        return ()

    def allows(self, info: RequestInfo, name: str) -> bool:
        """Whether it may do what a request asks for."""
        if any(rule.allows(info, name) for rule in _rules_of(self, info.namespace)):
            return True
        is_request = (info.group, info.resource, info.subresource) == (_CERTIFICATES, _REQUESTS, "")
        return is_request and info.verb == "delete" and installed_cluster(name) == self.cluster

    def refusal_of(self, resource: ResourceInfo, new: Object, old: Object | None) -> str:
        """Return why it may not write an object it was let in to write, or nothing."""
        name = name_of(new)
        if resource.plural == "namespaces":
            own = (CLUSTER_NAMESPACE, EXECUTION_PREFIX + self.cluster)
            is_own = name in own
        else:
            is_own = name == self._role_in(namespace_of(new) if resource.namespaced else "")
        if not is_own:
            return f"{resource.plural} {name!r} is not for cluster {self.cluster!r}"
        if any(metadata_of(new).get(each) for each in ("ownerReferences", "finalizers")):
            return "metadata.ownerReferences and metadata.finalizers are not an installer's to set"
        if resource.plural in ("clusterroles", "roles"):
            gathers = new.get("aggregationRule") or any(
                each.startswith(f"{RBAC_GROUP}/") for each in labels_of(new)
            )
            return "such a role gathers no others, and is gathered by none" if gathers else ""
        if resource.plural not in ("clusterrolebindings", "rolebindings"):
            return ""
        # The schema has not been asked yet: whatever is not this one subject is somebody else.
        subjects: Any = new.get("subjects")
        agent = ("User", AGENT_USER_PREFIX + self.cluster)
        named = [
            (cast("Object", each).get("kind"), cast("Object", each).get("name"))
            if isinstance(each, dict)
            else ("", "")
            for each in (cast("list[Any]", subjects) if isinstance(subjects, list) else [])
        ]
        return "" if named == [agent] else f"it binds somebody besides {agent[1]!r}"


@lru_cache(maxsize=256)
def _rules_of(scope: InstallerScope, namespace: str) -> tuple[Rule, ...]:
    return scope.rules(namespace)


def accepting_scope_of(user: User) -> Scope | None:
    """Return the scope of an agent or of `register`, where those are accepted; None for others."""
    if user.name.startswith(_INSTALLER_PREFIX):
        return InstallerScope(user.name.removeprefix(_INSTALLER_PREFIX))
    scope = scope_of(user)
    return None if scope is None else KarmadaAgentScope(scope.cluster)


# -- the answer is for itself ----------------------------------------------------------------------


class AnswerForItself:
    """The step that makes an agent's lists of everything lists of what is its own.

    Before authorization, which therefore decides about the request as it will be answered.
    """

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Go on with the request as it is meant."""
        scope = scope_of(context.user)
        if scope is not None and scope.cluster:
            context.info = for_itself(scope.cluster, context.info)
        return rest(context)


def for_itself(cluster: str, info: RequestInfo) -> RequestInfo:
    """Return what an agent's list or watch is answered as."""
    if info.verb not in _LISTS or info.name or info.subresource or info.is_in_namespace:
        return info
    if (info.group, info.resource) == (_CLUSTERS, "clusters"):
        own = f"metadata.name={cluster}"
    elif (info.group, info.resource) == ("", "services"):
        own = f"{_NAMESPACE_FIELD}={SYSTEM_NAMESPACE}"
    else:
        return info
    given = info.query.get(_SELECTOR)
    others = tuple(pair for pair in info.query.pairs if pair[0] != _SELECTOR)
    selector = f"{own},{given}" if given else own
    return replace(info, query=Query((*others, (_SELECTOR, selector))))
