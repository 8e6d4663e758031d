"""What the agent of a member cluster reaches, and nothing else, whatever roles add.

An agent is scoped by who it is, as Kubernetes scopes nodes. The agent of `west` reaches

    karmada-es-west       its execution namespace: the namespace itself, its works, its events
    karmada-cluster       its lease `west`, its secrets `west` and `west-impersonator`
    fleet-member-west     its InternalMemberCluster and fleet works, if a MemberCluster invited it
    cluster scope         its Cluster `west`, and certificate requests named `west-xxxxx`; it
                          reads what interprets kinds of people's own
    default               events about its Cluster, which has no namespace of its own
    kube-public           `cluster-info`: whom to trust to be the hub; and which servers want a
                          tunnel to it

A URL names no object when it creates one, so creating is allowed by resource, and `refusal_of`
looks at what the body says.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CREDENTIALS_SUBRESOURCE,
    EXECUTION_PREFIX,
    IMPERSONATOR_SUFFIX,
)
from clusterspace.apis.identities import AGENT_USER_PREFIX, AGENTS
from clusterspace.apis.interpreters import CUSTOMIZATIONS, WEBHOOK_CONFIGURATIONS
from clusterspace.apis.interpreters import GROUP as INTERPRETERS
from clusterspace.apis.member_clusters import NAMESPACE_PREFIX
from clusterspace.apis.tunnels import SUBRESOURCE
from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.kube.objects import (
    Object,
    find_at,
    identity_of,
    metadata_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import ResourceInfo

_CLUSTERS: Final = "cluster.karmada.io"
_WORKS: Final = "work.karmada.io"
_FLEET_CLUSTERS: Final = "cluster.kubernetes-fleet.io"
_FLEET_WORKS: Final = "placement.kubernetes-fleet.io"
_LEASES: Final = "coordination.k8s.io"
_CERTIFICATES: Final = "certificates.k8s.io"
_CERTIFICATE_REQUESTS: Final = "certificatesigningrequests"

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("update", "patch")
_REQUEST_SUFFIX: Final = re.compile(r"-[a-z0-9]{5}")
_EVENT_GROUPS: Final = ("", "events.k8s.io")
_PUBLIC_NAMESPACE: Final = "kube-public"
_EVENT_NAMESPACE: Final = "default"
"""Where events about objects without a namespace are."""
_EVENT_SUFFIX: Final = re.compile(r"\.clusterspace-agent\.[0-9a-f]{16}")
"""How events an agent recorded go on after the name of its cluster."""
_OPAQUE: Final = "Opaque"
_OPERATORS_FIELDS: Final = (
    ("metadata", "ownerReferences"),
    ("metadata", "finalizers"),
    ("metadata", "labels"),
    ("spec", "taints"),
)
"""What an agent may not say of its Cluster, at birth or later."""

EVERYWHERE: Final = (
    Rule(
        ("get",),
        paths=(
            "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*",
            "/healthz", "/livez", "/readyz", "/version", "/version/",
        ),
    ),
    Rule(
        ("create",),
        ("authorization.k8s.io",),
        ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    ),
    Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
)  # fmt: skip
"""How an agent learns about the API and about itself, and about nobody else."""


class Scope(Protocol):
    """What one identity reaches, whatever roles add."""

    def rules(self, namespace: str) -> tuple[Rule, ...]:
        """Return its rules in a namespace, or at the cluster scope."""
        ...

    def lendable(self, namespace: str) -> tuple[Rule, ...]:
        """Return the rules it may write into roles there."""
        ...

    def allows(self, info: RequestInfo, name: str) -> bool:
        """Whether it may do what a request asks for."""
        ...

    def refusal_of(self, resource: ResourceInfo, new: Object, old: Object | None) -> str:
        """Return why it may not write an object it was let in to write, or nothing."""
        ...


ScopeOf: TypeAlias = Callable[[User], "Scope | None"]
"""Says who is scoped by who they are; None for everybody else."""


@dataclass(frozen=True, slots=True)
class AgentScope:
    """The namespaces and objects that the agent of one cluster may reach."""

    cluster: str

    @property
    def execution_namespace(self) -> str:
        """Where its works are."""
        return EXECUTION_PREFIX + self.cluster

    @property
    def member_namespace(self) -> str:
        """Where its InternalMemberCluster is, if there is one."""
        return NAMESPACE_PREFIX + self.cluster

    @property
    def secrets(self) -> tuple[str, str]:
        """The secrets that hold its credentials."""
        return self.cluster, self.cluster + IMPERSONATOR_SUFFIX

    def rules(self, namespace: str) -> tuple[Rule, ...]:
        """Return its rules in a namespace, or at the cluster scope.

        A URL names no object when it creates one, so `create` comes without names: which object
        it may be is for `refusal_of`, once the body is read.
        """
        if not self.cluster:
            return ()
        own = (self.cluster,)
        events = Rule(("get", "create", *_WRITE), _EVENT_GROUPS, ("events",))
        rules: tuple[Rule, ...] = ()
        if not namespace:
            rules = (
                Rule(("create",), (_CLUSTERS,), ("clusters",)),
                Rule(_READ, (_CLUSTERS,), ("clusters",), own),
                Rule(("get", *_WRITE), (_CLUSTERS,), ("clusters/status",), own),
                # Said once, at birth: agents may not change their Cluster. Its Secrets are its
                # own, so all it can send anywhere is what it has itself.
                Rule(("update",), (_CLUSTERS,), (f"clusters/{CREDENTIALS_SUBRESOURCE}",), own),
                # To be what its own cluster is reached through, and no other.
                Rule(("create",), (_CLUSTERS,), (f"clusters/{SUBRESOURCE}",), own),
                Rule(("create",), (_CERTIFICATES,), (_CERTIFICATE_REQUESTS,)),
                # What people say of kinds of their own; it holds no secrets.
                Rule(_READ, (INTERPRETERS,), (CUSTOMIZATIONS.resource,)),
                Rule(_READ, (INTERPRETERS,), (WEBHOOK_CONFIGURATIONS.resource,)),
            )
        elif namespace == self.execution_namespace:
            rules = (
                Rule(("get",), ("",), ("namespaces",), (namespace,)),
                Rule((*_READ, *_WRITE), (_WORKS,), ("works",)),
                Rule(("get", *_WRITE), (_WORKS,), ("works/status",)),
                events,
            )
        elif namespace == self.member_namespace:
            rules = (
                Rule(_READ, (_FLEET_CLUSTERS,), ("internalmemberclusters",)),
                Rule(("get", *_WRITE), (_FLEET_CLUSTERS,), ("internalmemberclusters/status",)),
                Rule((*_READ, *_WRITE), (_FLEET_WORKS,), ("works",)),
                Rule(("get", *_WRITE), (_FLEET_WORKS,), ("works/status",)),
                events,
            )
        elif namespace == CLUSTER_NAMESPACE:
            rules = (
                Rule(("create",), (_LEASES,), ("leases",)),
                Rule((*_READ, *_WRITE), (_LEASES,), ("leases",), own),
                Rule(("create",), ("",), ("secrets",)),
                Rule(("get", *_WRITE), ("",), ("secrets",), self.secrets),
            )
        elif namespace == _PUBLIC_NAMESPACE:
            # Whom to trust to be the hub, when that changes: everybody may read it anyway.
            rules = (
                Rule(("get",), ("",), ("configmaps",), ("cluster-info",)),
                Rule(("list",), (_LEASES,), ("leases",)),
            )
        elif namespace == _EVENT_NAMESPACE:
            rules = (Rule(("create",), _EVENT_GROUPS, ("events",)),)
        return (*EVERYWHERE, *rules)

    def lendable(self, namespace: str) -> tuple[Rule, ...]:
        """Return the rules it may grant to others there; it writes no roles, so it does not."""
        return self.rules(namespace)

    def allows(self, info: RequestInfo, name: str) -> bool:
        """Whether the agent may do what a request asks for."""
        if not self.cluster:
            return False
        if any(rule.allows(info, name) for rule in _rules_of(self, info.namespace)):
            return True
        # What is left are names that a rule cannot list, for they have a random end.
        if info.subresource:
            return False
        if (info.group, info.resource) == (_CERTIFICATES, _CERTIFICATE_REQUESTS):
            return info.verb == "get" and self._is_own_request(name)
        if info.group not in _EVENT_GROUPS or info.resource != "events":
            return False
        # An event beside its execution namespace. Objects of another kind may have the cluster's
        # name, and their events names that begin alike: those the agent cannot read, and
        # `refusal_of` keeps it from changing them.
        head, tail = name[: len(self.cluster)], name[len(self.cluster) :]
        if info.namespace != _EVENT_NAMESPACE or head != self.cluster or not tail.startswith("."):
            return False
        is_recorded = _EVENT_SUFFIX.fullmatch(tail) is not None
        return info.verb in _WRITE or (info.verb == "get" and is_recorded)

    def _is_own_request(self, request_name: str) -> bool:
        """Whether a certificate request is this agent's.

        The suffix has a fixed length, so no name is that of two clusters: `west-1a2b3` is
        `west`'s even if there is a cluster `west-1a2b3`, whose requests are longer.
        """
        head, tail = request_name[: len(self.cluster)], request_name[len(self.cluster) :]
        return head == self.cluster and _REQUEST_SUFFIX.fullmatch(tail) is not None

    def refusal_of(self, resource: ResourceInfo, new: Object, old: Object | None) -> str:
        """Return why this agent may not write an object it was let in to write, or nothing."""
        if self._is_foreign_event(resource, new) or self._is_foreign_event(resource, old):
            return f"the event is not about cluster {self.cluster!r}"
        if old is None:
            name = name_of(new)
            match resource.plural:
                case "clusters" | "leases":
                    is_own = name == self.cluster
                case "secrets":
                    is_own = name in self.secrets
                case "certificatesigningrequests":
                    is_own = self._is_own_request(name)
                case _:
                    is_own = True  # whatever else it may create is in its own namespace
            if not is_own:
                return f"{resource.plural} {name!r} is not cluster {self.cluster!r}'s"
        field = self._operators_field(resource, new, old or {})
        return f"{field} is not an agent's to set" if field else ""

    def _is_foreign_event(self, resource: ResourceInfo, event: Object | None) -> bool:
        """Whether this is an event, outside its own namespaces, about anything but us."""
        if event is None or resource.plural != "events":
            return False
        if namespace_of(event) in (self.execution_namespace, self.member_namespace):
            return False
        about: Object = event.get("involvedObject") or event.get("regarding") or {}
        is_named_alike = name_of(event).startswith(f"{self.cluster}.")
        return bool(about.get("namespace")) or not is_named_alike or self._is_foreign(about)

    def _operators_field(self, resource: ResourceInfo, new: Object, old: Object) -> str:
        """Return a field that the write changes and that only operators may change.

        Owners let an agent decide when objects go, taints and labels where workloads run, a
        foreign secret whose credentials the hub uses; and the hub fills in secrets that say they
        are a service account's. A Work is an order: an agent reports on it, and lets it go.
        """
        existing: list[Object] = metadata_of(old).get("ownerReferences") or []
        desired: list[Object] = metadata_of(new).get("ownerReferences") or []
        known = {identity_of(each) for each in existing}
        added = (each for each in desired if identity_of(each) not in known)
        if any(map(self._is_foreign, added)):
            return "metadata.ownerReferences"
        if resource.plural == "secrets" and (new.get("type") or _OPAQUE) != _OPAQUE:
            return "type"
        if resource.plural == "works" and new.get("spec") != old.get("spec"):
            return "spec"
        if resource.plural != "clusters":
            return ""
        for path in _OPERATORS_FIELDS:
            if (find_at(new, *path) or None) != (find_at(old, *path) or None):
                return ".".join(path)
        for field in ("secretRef", "impersonatorSecretRef"):
            reference: Object = find_at(new, "spec", field) or {}
            is_own = reference.get("name") in self.secrets
            if reference and not (is_own and reference.get("namespace") == CLUSTER_NAMESPACE):
                return f"spec.{field}"
        return ""

    def _is_foreign(self, reference: Object) -> bool:
        """Whether a reference names anything but the agent's own Cluster."""
        group = str(reference.get("apiVersion") or "").partition("/")[0]
        own = (_CLUSTERS, "Cluster", self.cluster)
        return (group, reference.get("kind"), reference.get("name")) != own


@lru_cache(maxsize=4096)
def _rules_of(scope: AgentScope, namespace: str) -> tuple[Rule, ...]:
    return scope.rules(namespace)


def scope_of(user: User) -> AgentScope | None:
    """Return the scope of an agent; None for everybody else.

    Either sign makes an agent, so that neither a group without a name nor a name without the
    group gets out of the scope. One whose name says no cluster reaches nothing.
    """
    is_named = user.name.startswith(AGENT_USER_PREFIX)
    if not is_named and AGENTS not in user.groups:
        return None
    cluster = user.name.removeprefix(AGENT_USER_PREFIX) if is_named else ""
    # No cluster is called so, but a certificate may be: its secrets would be another cluster's. A
    # name with a colon is that of Karmada's `register` (karmada_agents.py), and no agent's.
    is_none = cluster.endswith(IMPERSONATOR_SUFFIX) or ":" in cluster
    return AgentScope("" if is_none else cluster)
