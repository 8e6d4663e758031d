"""The roles and bindings that clients expect to find, under Kubernetes' names; roles made of roles.

`admin`, `edit` and `view` hold no rules of their own: they gather those of every role labelled for
them, so that a custom resource joins them by bringing a labelled role along. Installing them adds
what is missing, a role, a rule, a label, a subject, and leaves users' additions alone. A role whose
autoupdate annotation is `false` is its users' own.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog

from clusterspace.apis import tunnels
from clusterspace.apis.identities import CONTROLLERS_USER, FLEET_USER, REGISTRATION_GROUP
from clusterspace.apiserver import forms
from clusterspace.apiserver.access.rbac import (
    EVERYTHING,
    RBAC_GROUP,
    Rule,
    missing_atoms,
    read_rules,
)
from clusterspace.apiserver.http import revocations
from clusterspace.apiserver.http.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.errors import AlreadyExists, Conflict, MalformedSelector, StoreClosed, StoreError
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    identity_of,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.selectors import label_selector_of

_log = structlog.get_logger(__name__)

AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
API_VERSION: Final = f"{RBAC_GROUP}/v1"
MANAGER: Final = "kube-apiserver"
_PLURALS: Final = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "RoleBinding": "rolebindings",
}
_SELECTORS: Final = ("aggregationRule", "clusterRoleSelectors")

_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS: Final = {AUTOUPDATE: "true"}

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_READ_WRITE: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")  # fmt: skip  # noqa: E501
_CREATE: Final = ("create",)
_EVENTS: Final = ("", "events.k8s.io")

_CLUSTER_INFO: Final = "kubeadm:bootstrap-signer-clusterinfo"
_CLIENT_AUTHORITY: Final = "extension-apiserver-authentication-reader"
_REVOCATIONS: Final = "clusterspace:credentials"
_TUNNELS: Final = "clusterspace:tunnels"


@dataclass(frozen=True, slots=True)
class DefaultRole:
    """A role that is put back, rule by rule, where it is missing."""

    name: str
    rules: tuple[Rule, ...] = ()
    namespace: str = ""
    joins: str = ""
    """The aggregated role this one is gathered into."""
    gathers: str = ""
    """The name under which this role gathers others."""

    def as_object(self) -> Object:
        """Return the Role or ClusterRole."""
        labels = {**_LABELS, **({_label(self.joins): "true"} if self.joins else {})}
        metadata = _metadata(self.name, self.namespace, labels)
        kind = "Role" if self.namespace else "ClusterRole"
        role: Object = {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata}
        if self.gathers:
            selector = {"matchLabels": {_label(self.gathers): "true"}}
            return {**role, "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []}
        return {**role, "rules": [rule.as_object() for rule in self.rules]}


@dataclass(frozen=True, slots=True)
class DefaultBinding:
    """A binding of the role of the same name, in the same namespace, to groups and users."""

    name: str
    groups: tuple[str, ...] = ()
    namespace: str = ""
    users: tuple[str, ...] = ()
    role: str = ""
    """The role, where it has another name."""

    def as_object(self) -> Object:
        """Return the RoleBinding or ClusterRoleBinding."""
        scope = "" if self.namespace else "Cluster"
        return {
            "kind": f"{scope}RoleBinding",
            "apiVersion": API_VERSION,
            "metadata": _metadata(self.name, self.namespace, _LABELS),
            "subjects": [
                {"kind": kind, "apiGroup": RBAC_GROUP, "name": name}
                for kind, names in (("Group", self.groups), ("User", self.users))
                for name in names
            ],
            "roleRef": {
                "apiGroup": RBAC_GROUP,
                "kind": f"{scope}Role",
                "name": self.role or self.name,
            },
        }


def _label(aggregate: str) -> str:
    return f"rbac.authorization.k8s.io/aggregate-to-{aggregate}"


def _metadata(name: str, namespace: str, labels: dict[str, str]) -> Object:
    metadata: Object = {"name": name, "labels": labels, "annotations": _ANNOTATIONS}
    return {**metadata, "namespace": namespace} if namespace else metadata


def _on(verbs: tuple[str, ...], groups: str | tuple[str, ...], *resources: str) -> Rule:
    return Rule(verbs, (groups,) if isinstance(groups, str) else groups, resources)


def _at(*paths: str) -> Rule:
    return Rule(("get",), paths=paths)


_TO_ADMIN: Final = (
    _on(_CREATE, "authorization.k8s.io", "localsubjectaccessreviews"),
    _on(_READ_WRITE, RBAC_GROUP, "rolebindings", "roles"),
)

_TO_EDIT: Final = (
    _on(_READ, "", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets",
        "services/proxy"),
    _on(("impersonate",), "", "serviceaccounts"),
    _on(_WRITE, "", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
    _on(_CREATE, "", "pods/eviction"),
    _on(_WRITE, "", "configmaps", "persistentvolumeclaims", "replicationcontrollers",
        "replicationcontrollers/scale", "secrets", "serviceaccounts", "services",
        "services/proxy"),
    _on(_CREATE, "", "serviceaccounts/token"),
    _on(_WRITE, _EVENTS, "events"),
    _on(_WRITE, "apps", "daemonsets", "deployments", "deployments/rollback", "deployments/scale",
        "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"),
    _on(_WRITE, "autoscaling", "horizontalpodautoscalers"),
    _on(_WRITE, "batch", "cronjobs", "jobs"),
    _on(_WRITE, "extensions", "daemonsets", "deployments", "deployments/rollback",
        "deployments/scale", "ingresses", "networkpolicies", "replicasets", "replicasets/scale",
        "replicationcontrollers/scale"),
    _on(_WRITE, "policy", "poddisruptionbudgets"),
    _on(_WRITE, "networking.k8s.io", "ingresses", "networkpolicies"),
    _on(_READ_WRITE, "coordination.k8s.io", "leases"),
    _on(_WRITE, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
)  # fmt: skip

_TO_VIEW: Final = (
    _on(_READ, "", "configmaps", "endpoints", "persistentvolumeclaims",
        "persistentvolumeclaims/status", "pods", "replicationcontrollers",
        "replicationcontrollers/scale", "serviceaccounts", "services", "services/status"),
    _on(_READ, "", "bindings", "limitranges", "namespaces/status", "pods/log", "pods/status",
        "replicationcontrollers/status", "resourcequotas", "resourcequotas/status"),
    _on(_READ, "", "namespaces"),
    _on(_READ, _EVENTS, "events"),
    _on(_READ, "discovery.k8s.io", "endpointslices"),
    _on(_READ, "apps", "controllerrevisions", "daemonsets", "daemonsets/status", "deployments",
        "deployments/scale", "deployments/status", "replicasets", "replicasets/scale",
        "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status"),
    _on(_READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    _on(_READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _on(_READ, "extensions", "daemonsets", "daemonsets/status", "deployments",
        "deployments/scale", "deployments/status", "ingresses", "ingresses/status",
        "networkpolicies", "replicasets", "replicasets/scale", "replicasets/status",
        "replicationcontrollers/scale"),
    _on(_READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
    _on(_READ, "networking.k8s.io", "ingresses", "ingresses/status", "networkpolicies"),
    _on(_READ, "resource.k8s.io", "resourceclaims", "resourceclaims/status",
        "resourceclaimtemplates"),
)  # fmt: skip

_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")

_SIGNERS: Final = (
    "kube-apiserver-client",
    "kube-apiserver-client-kubelet",
    "kubelet-serving",
    "legacy-unknown",
)

ROLES: Final = (
    DefaultRole(
        "cluster-admin",
        (
            _on((EVERYTHING,), EVERYTHING, EVERYTHING),
            Rule((EVERYTHING,), paths=(EVERYTHING,)),
        ),
    ),
    DefaultRole("system:discovery", (
        _at("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
            "/readyz", "/version", "/version/"),
    )),
    DefaultRole("system:monitoring", (
        _at("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis",
            "/readyz", "/readyz/*"),
        _on(("get",), "", "nodes/metrics"),
    )),
    DefaultRole("system:basic-user", (
        _on(_CREATE, "authorization.k8s.io", "selfsubjectaccessreviews",
            "selfsubjectrulesreviews"),
        _on(_CREATE, "authentication.k8s.io", "selfsubjectreviews"),
    )),
    DefaultRole("system:public-info-viewer", (_at(*_PUBLIC),)),
    DefaultRole("admin", gathers="admin"),
    DefaultRole("edit", gathers="edit", joins="admin"),
    DefaultRole("view", gathers="view", joins="edit"),
    DefaultRole("system:aggregate-to-admin", _TO_ADMIN, joins="admin"),
    DefaultRole("system:aggregate-to-edit", _TO_EDIT, joins="edit"),
    DefaultRole("system:aggregate-to-view", _TO_VIEW, joins="view"),
    DefaultRole("system:auth-delegator", (
        _on(_CREATE, "authentication.k8s.io", "tokenreviews"),
        _on(_CREATE, "authorization.k8s.io", "subjectaccessreviews"),
    )),
    DefaultRole("system:node-bootstrapper", (
        _on(("create", *_READ), "certificates.k8s.io", "certificatesigningrequests"),
    )),
    DefaultRole("system:service-account-issuer-discovery", (
        _at("/.well-known/openid-configuration", "/.well-known/openid-configuration/",
            "/openid/v1/jwks", "/openid/v1/jwks/"),
    )),
    *(
        DefaultRole(f"system:certificates.k8s.io:{signer}-approver", (
            Rule(
                ("approve",), ("certificates.k8s.io",), ("signers",), (f"kubernetes.io/{signer}",)
            ),
        ))
        for signer in _SIGNERS
    ),
    DefaultRole(
        _CLIENT_AUTHORITY,
        (Rule(_READ, ("",), ("configmaps",), ("extension-apiserver-authentication",)),),
        namespace="kube-system",
    ),
    DefaultRole(
        _CLUSTER_INFO,
        (Rule(("get",), ("",), ("configmaps",), ("cluster-info",)),),
        namespace="kube-public",
    ),
)  # fmt: skip

BINDINGS: Final = (
    DefaultBinding("cluster-admin", (MASTERS,)),
    DefaultBinding("system:monitoring", ("system:monitoring",)),
    DefaultBinding("system:discovery", (AUTHENTICATED,)),
    DefaultBinding("system:basic-user", (AUTHENTICATED,)),
    DefaultBinding("system:public-info-viewer", (AUTHENTICATED, UNAUTHENTICATED)),
    DefaultBinding("system:service-account-issuer-discovery", ("system:serviceaccounts",)),
    # A cluster that wants to join reads where we are as nobody, and asks for its certificate with
    # a bootstrap token.
    DefaultBinding(_CLUSTER_INFO, (UNAUTHENTICATED, AUTHENTICATED), namespace="kube-public"),
    DefaultBinding("system:node-bootstrapper", (REGISTRATION_GROUP,)),
)

_CLUSTERS: Final = "cluster.karmada.io"
_WORKS: Final = "work.karmada.io"
_LEASES: Final = "coordination.k8s.io"
_CHANGE: Final = ("get", "patch", "update")

COMPONENT_ROLES: Final = (
    # Whoever logs in at the gateway is impersonated at the hub, administrators too: that is what a
    # gateway is. Of its own it reads the clusters and the credentials it connects with.
    DefaultRole(FLEET_USER, (
        _on(_READ, _CLUSTERS, "clusters"),
        _on(_READ, "search.karmada.io", "resourceregistries"),
        _on(_CREATE, "authentication.k8s.io", "tokenreviews"),
        _on(_CREATE, "authorization.k8s.io", "subjectaccessreviews"),
        _on(("impersonate",), "", "groups", "serviceaccounts", "users"),
        _on(("impersonate",), "authentication.k8s.io", EVERYTHING),  # uids and userextras/KEY
        _on(_READ, "", "secrets"),  # of members, in the one namespace that has them
        # No URLs: to say that it takes tunnels, and which clusters answer it.
        _on(("update",), _CLUSTERS, "clusters/tunnel", "clusters/witness"),
        # That rights have changed: what it remembers of them is then no longer so.
        _on(("list", "watch"), RBAC_GROUP, "clusterrolebindings", "clusterroles", "rolebindings",
            "roles"),
        # Whose requests are served first is said once, for the hub and for the fleet's address.
        _on(_READ, "flowcontrol.apiserver.k8s.io", "flowschemas", "prioritylevelconfigurations"),
    )),
    DefaultRole(
        _REVOCATIONS,
        (
            Rule(_READ, ("",), ("configmaps",), (revocations.NAME, revocations.AGENTS_NAME)),
            # Who still comes there with certificates of an authority that is on its way out.
            Rule(("get", "patch"), ("",), ("configmaps",), ("credentials-in-use",)),
        ),
        namespace=revocations.NAMESPACE,
    ),
    # Where it is, for agents that are to keep a tunnel to it, and which clusters answer it. Who may
    # write Leases may not write these: it takes the rights that the role above has, too.
    DefaultRole(_TUNNELS, (_on(("get", "create", "update"), "coordination.k8s.io", "leases"),),
        namespace=tunnels.LEASE_NAMESPACE),
    DefaultRole(CONTROLLERS_USER, (
        # Anything may be a template: it is found by watching, and claimed by a label.
        _on((*_READ, "patch"), EVERYTHING, EVERYTHING),
        # Named once more, for of these they give agents a share.
        _on((*_READ, "create", "delete", "patch"), _CLUSTERS, "clusters"),
        _on(_CHANGE, _CLUSTERS, "clusters/status"),
        _on((*_READ, "create", "delete", "patch", "update"), _WORKS, "clusterresourcebindings",
            "resourcebindings", "works"),
        _on(_CHANGE, _WORKS, "clusterresourcebindings/status", "resourcebindings/status",
            "works/status"),
        _on((*_READ, "create", "patch", "update"), _EVENTS, "events"),
        _on(_READ, "config.karmada.io", "resourceinterpretercustomizations",
            "resourceinterpreterwebhookconfigurations"),
        # KubeFleet gives members everything in these groups, in a namespace of their own.
        *(_on((EVERYTHING,), group, EVERYTHING) for group in (
            "cluster.kubernetes-fleet.io", "placement.kubernetes-fleet.io",
            "networking.fleet.azure.com",
        )),
        _on((*_READ, "create", "delete", "patch", "update"), _LEASES, "leases"),
        # No URL: to say which clusters answer, while they wait to lead.
        _on(("update",), _CLUSTERS, "clusters/witness"),
        # What imports and reports of exporting clusters become.
        _on(("create", "delete"), "", "services"),
        _on(("create", "delete"), "discovery.k8s.io", "endpointslices"),
        # Whose time is over.
        _on(("delete",), "apps.karmada.io", "workloadrebalancers"),
        _on(("delete",), "", "secrets"),
        _on(_CREATE, "", "configmaps"),
        _on(("create", "delete"), "", "namespaces"),
        _on(("create", "delete"), "multicluster.x-k8s.io", "clusterprofiles"),
        _on(("create", "delete"), RBAC_GROUP, "clusterrolebindings", "clusterroles",
            "rolebindings", "roles"),
    )),
)  # fmt: skip
"""What gateway and controllers may do on a hub, within the limits of components.py.

Those know namespaces and names that roles have no words for, or that are not there yet.
"""

COMPONENT_BINDINGS: Final = (
    DefaultBinding(FLEET_USER, users=(FLEET_USER,)),
    DefaultBinding(
        FLEET_USER, users=(FLEET_USER,), namespace="kube-system", role=_CLIENT_AUTHORITY
    ),
    DefaultBinding(_REVOCATIONS, users=(FLEET_USER,), namespace=revocations.NAMESPACE),
    DefaultBinding(_TUNNELS, users=(FLEET_USER,), namespace=tunnels.LEASE_NAMESPACE),
    DefaultBinding(CONTROLLERS_USER, users=(CONTROLLERS_USER,)),
)


# -- putting them there ------------------------------------------------------------------------


async def install_default_roles(hub: HubState) -> None:
    """Make the default roles and bindings, or complete them; harmless when repeated."""
    await _install(hub, (*ROLES, *BINDINGS))
    await aggregate_all(hub)


async def install_component_roles(hub: HubState) -> None:
    """Make or complete the roles under which gateway and controllers work with this hub."""
    await _install(hub, (*COMPONENT_ROLES, *COMPONENT_BINDINGS))


async def _install(hub: HubState, defaults: Iterable[DefaultRole | DefaultBinding]) -> None:
    # One write for each, and none of them undoes another: a crash leaves some of them made, and
    # the next start makes the others.
    for default in defaults:
        desired = default.as_object()
        served = hub.catalog.get_storage(RBAC_GROUP, _PLURALS[desired["kind"]])
        key = served.key(namespace_of(desired), name_of(desired))

        def completed(existing: Object, desired: Object = desired) -> Object:
            return complete(existing, desired)

        write = write_of(hub, served, manager=MANAGER)
        if await edit_own(hub, served, key, completed, write=write) is None:
            try:
                await create_own(hub, served, desired, MANAGER)
            except AlreadyExists:
                continue  # another hub on the same store was quicker, with the same role


def complete(existing: Object, desired: Object) -> Object:
    """Return a role or binding with what it lacks; the same object when it lacks nothing."""
    if annotations_of(existing).get(AUTOUPDATE) == "false":
        return existing
    metadata = {**metadata_of(existing)}
    for field in ("labels", "annotations"):
        metadata[field] = {**metadata_of(desired)[field], **(metadata.get(field) or {})}
    completed = {**existing, "metadata": metadata}
    if "roleRef" in desired:
        if existing.get("roleRef") == desired["roleRef"]:
            subjects = _with_missing(existing.get("subjects") or [], desired["subjects"])
        else:
            # Under this name it would grant another role to everybody we name: made anew.
            subjects = desired["subjects"]
        completed |= {"roleRef": desired["roleRef"], "subjects": subjects}
    elif selectors := find_at(desired, *_SELECTORS):
        gathered = _with_missing(find_at(existing, *_SELECTORS) or [], selectors)
        completed["aggregationRule"] = {"clusterRoleSelectors": gathered}
    else:
        owned = read_rules(existing.get("rules"))
        rules = read_rules(desired["rules"])
        lacking = [rule.as_object() for rule in rules if any(missing_atoms((rule,), owned))]
        if lacking:
            completed["rules"] = [*(existing.get("rules") or []), *lacking]
    return existing if completed == existing else completed


def _with_missing(existing: list[Any], desired: Iterable[Any]) -> list[Any]:
    return [*existing, *(each for each in desired if each not in existing)]


# -- the rules of an aggregated ClusterRole follow those of the roles it selects ---------------


AGGREGATION_MANAGER: Final = "clusterrole-aggregation-controller"
RETRY_SECONDS: Final = 1.0


def gathered_rules(aggregate: Object, roles: Iterable[Object]) -> list[Any]:
    """Return the rules of every role the aggregate selects, by role name, each rule once."""
    listed = cast("list[Object]", find_at(aggregate, "aggregationRule", "clusterRoleSelectors"))
    try:
        selectors = [label_selector_of(selector) for selector in listed or []]
    except MalformedSelector as error:
        _log.warning("role gathers nothing", role=name_of(aggregate), reason=str(error))
        return []
    gathered: dict[bytes, Any] = {}
    for role in sorted(roles, key=name_of):
        if name_of(role) == name_of(aggregate):
            continue
        if any(selector.matches(labels_of(role)) for selector in selectors):
            rules: list[Any] = role.get("rules") or []
            for rule in rules:
                gathered.setdefault(identity_of(rule), rule)
    return list(gathered.values())


def is_aggregate(role: Object) -> bool:
    """Whether a role gathers its rules from others."""
    return bool(find_at(role, "aggregationRule", "clusterRoleSelectors"))


async def aggregate_all(hub: HubState) -> None:
    """Bring every aggregated role up to date, also those made of aggregated ones."""
    served = hub.catalog.get_storage(RBAC_GROUP, "clusterroles")
    changed = True
    while changed:
        changed = False
        page = await hub.store.range(served.prefix())
        roles = [forms.decode_stored(entry, served.form) for entry in page.items]
        for role in filter(is_aggregate, roles):
            rules = gathered_rules(role, roles)
            current: list[Any] = role.get("rules") or []
            # Compared in whatever order: two aggregates that select each other would otherwise
            # reorder their rules for ever.
            if len(rules) == len(current) and all(rule in current for rule in rules):
                continue

            def with_rules(live: Object, rules: list[Any] = rules) -> Object:
                # Somebody may have made it a role of its own since it was read.
                return {**live, "rules": rules} if is_aggregate(live) else live

            key = served.key("", name_of(role))
            write = write_of(hub, served, manager=AGGREGATION_MANAGER)
            await edit_own(hub, served, key, with_rules, write=write)
            changed = True


class RoleAggregator:
    """Follows ClusterRoles and keeps the aggregated ones current."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Work until cancelled."""
        store = self._hub.store
        prefix = self._hub.catalog.get_storage(RBAC_GROUP, "clusterroles").prefix()
        while True:
            try:
                # Watched before it is read: what changes during the first pass brings a second
                # one. Our own writes come back as events too, and find nothing left to do.
                with closing(store.watch(prefix, after=store.current_revision)) as watch:
                    await aggregate_all(self._hub)
                    async for _events in watch:
                        await aggregate_all(self._hub)
            except StoreClosed:
                raise
            except (Conflict, StoreError) as error:
                _log.warning("roles are gathered again", reason=str(error))
                await self._hub.clock.sleep(RETRY_SECONDS)
