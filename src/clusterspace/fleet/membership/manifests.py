"""The objects of a membership on either side: their names, their paths, and what a join puts in.

They are the same that Karmada makes.

On the member everything we make carries the mark of our hub, so that a leave removes what is ours.
What a push join makes is owned, in the end, by the role the hub works with:

    role of the hub ──> account, binding, namespace, impersonator's role ──> account, binding

A hub that leaves without the help of the member's administrator has no rights but that role's: it
deletes the role, its last request, and the member's garbage collector removes the rest. What
several hubs share has several owners, and goes with the last.

A pull join puts an agent there instead, unless it runs elsewhere:

    karmada-system   Secret karmada-kubeconfig: where the hub is, and the agent's certificate
                     account karmada-agent-sa and Deployment karmada-agent

Its mark is the fingerprint of the hub's authority: an agent knows no more of its hub than that.
"""

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    IMPERSONATOR_SUFFIX,
    KIND,
    PULL,
    PUSH,
    SYSTEM_LABELS,
    SYSTEM_NAMESPACE,
    WORKS,
    execution_namespace,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource

# -- what things are called on both sides, and where they are ----------------------------------


NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
SERVICE_ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")
NODES: Final = GroupVersionResource("", "v1", "nodes")
PODS: Final = GroupVersionResource("", "v1", "pods")
RESOURCE_QUOTAS: Final = GroupVersionResource("", "v1", "resourcequotas")
CLUSTER_ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = GroupVersionResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings"
)
LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")

IMPERSONATOR: Final = "karmada-impersonator"
"""The account, role and binding on the member through which users' own rights are used."""

HUB_MARK: Final = "clusterspace.io/hub-id"
"""Annotation on what a hub made on a member: another hub's things are not ours to remove."""


def account_name(cluster_name: str) -> str:
    """Return the account on the member that the hub works with."""
    return f"karmada-{cluster_name}"


def role_name(cluster_name: str) -> str:
    """Return the ClusterRole on the member, and the binding of the same name."""
    return f"karmada-controller-manager:{account_name(cluster_name)}"


def impersonation_role_name(cluster_name: str) -> str:
    """Return the ClusterRole on the member, and the binding of the same name, beside Karmada's."""
    return f"{IMPERSONATOR}:{account_name(cluster_name)}"


def impersonator_secret_name(cluster_name: str) -> str:
    """Return the Secret on the hub that holds the impersonator's token."""
    return cluster_name + IMPERSONATOR_SUFFIX


def left_behind_name(cluster_name: str) -> str:
    """Return the ConfigMap on the hub that tells what a forced leave could not clean."""
    return f"{cluster_name}-left-behind"


def cluster_path(cluster_name: str) -> ResourcePath:
    """Return where the Cluster is."""
    return ResourcePath(CLUSTERS, name=cluster_name)


def works_path(cluster_name: str) -> ResourcePath:
    """Return where the Works of a cluster are."""
    return ResourcePath(WORKS, execution_namespace(cluster_name))


def namespace_path(name: str) -> ResourcePath:
    """Return where a namespace is."""
    return ResourcePath(NAMESPACES, name=name)


def account_path(name: str) -> ResourcePath:
    """Return where an account of ours is on a member."""
    return ResourcePath(SERVICE_ACCOUNTS, CLUSTER_NAMESPACE, name)


def secret_path(name: str) -> ResourcePath:
    """Return where a Secret of ours is, on the hub or on a member."""
    return ResourcePath(SECRETS, CLUSTER_NAMESPACE, name)


def lease_path(cluster_name: str) -> ResourcePath:
    """Return where the heartbeat of a Pull cluster is."""
    return ResourcePath(LEASES, CLUSTER_NAMESPACE, cluster_name)


def role_path(name: str) -> ResourcePath:
    """Return where a ClusterRole is."""
    return ResourcePath(CLUSTER_ROLES, name=name)


def role_binding_path(name: str) -> ResourcePath:
    """Return where a ClusterRoleBinding is."""
    return ResourcePath(CLUSTER_ROLE_BINDINGS, name=name)


def left_behind_path(cluster_name: str) -> ResourcePath:
    """Return where it is written what a forced leave could not clean."""
    return ResourcePath(CONFIG_MAPS, CLUSTER_NAMESPACE, left_behind_name(cluster_name))


# -- what is in them ---------------------------------------------------------------------------


_RBAC: Final = "rbac.authorization.k8s.io"
_RBAC_VERSION: Final = f"{_RBAC}/v1"
TOKEN_SECRET_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type
ACCOUNT_ANNOTATION: Final = "kubernetes.io/service-account.name"

_EVERYTHING: Final = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
)
IMPERSONATED: Final = ("users", "groups", "serviceaccounts")
"""What the gateway says of whom it acts for; see `MemberIdentities`."""
_IMPERSONATION: Final = (
    {"apiGroups": [""], "resources": list(IMPERSONATED), "verbs": ["impersonate"]},
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a cluster runs, as schedulers want to know it."""

    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()


NOWHERE: Final = Location()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How the hub reaches a member."""

    server: str
    authority: bytes = b""
    """Whose certificates are trusted; the system's authorities when there is none."""
    skips_verification: bool = False
    proxy_url: str = ""


def namespace(name: str) -> Object:
    """Return a namespace of ours on the hub."""
    return marked_object("v1", "Namespace", namespace_path(name), "")


def member_namespace(hub_id: str, role: Object) -> Object:
    """Return our namespace on a member, for a role of the hub that is stored already."""
    path = namespace_path(CLUSTER_NAMESPACE)
    return with_owner(marked_object("v1", "Namespace", path, hub_id), role)


def service_account(name: str, hub_id: str, role: Object) -> Object:
    """Return an account on the member, for a role that is stored already."""
    path = account_path(name)
    return with_owner(marked_object("v1", "ServiceAccount", path, hub_id), role)


def token_secret(account: str) -> Object:
    """Return a Secret on the member that its controllers fill with the account's token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TOKEN_SECRET_TYPE,
        "metadata": {
            "name": account,
            "namespace": CLUSTER_NAMESPACE,
            "annotations": {ACCOUNT_ANNOTATION: account},
        },
    }


def full_role(cluster_name: str, hub_id: str) -> Object:
    """Return the role of the account the hub works with."""
    path = role_path(role_name(cluster_name))
    body = marked_object(_RBAC_VERSION, "ClusterRole", path, hub_id)
    return {**body, "rules": list(_EVERYTHING)}


def impersonator_role(hub_id: str, role: Object) -> Object:
    """Return the role of the account through which users' own rights are used."""
    path = role_path(IMPERSONATOR)
    body = marked_object(_RBAC_VERSION, "ClusterRole", path, hub_id)
    return {**with_owner(body, role), "rules": list(_IMPERSONATION)}


def impersonation_role(cluster_name: str, hub_id: str, role: Object | None) -> Object:
    """Return the role beside the impersonator's own, where others write that and grant less."""
    path = role_path(impersonation_role_name(cluster_name))
    body = marked_object(_RBAC_VERSION, "ClusterRole", path, hub_id)
    owned = body if role is None else with_owner(body, role)
    return {**owned, "rules": list(_IMPERSONATION)}


def lets_impersonate(role: Object, binding: Object) -> bool:
    """Whether a role and its binding let the impersonator act for whomever the hub says."""
    account = {"kind": "ServiceAccount", "name": IMPERSONATOR, "namespace": CLUSTER_NAMESPACE}
    subjects = cast("list[Object]", binding.get("subjects") or [])
    is_bound = any(account.items() <= each.items() for each in subjects)
    granted: set[str] = set()
    for rule in cast("list[Object]", role.get("rules") or []):
        # A rule with names, as Karmada writes them, is for these and nobody else.
        verbs, groups = set(rule.get("verbs") or ()), set(rule.get("apiGroups") or ())
        if not rule.get("resourceNames") and verbs & {"impersonate", "*"} and groups & {"", "*"}:
            granted |= set(rule.get("resources") or ())
    is_ours = find_at(binding, "roleRef", "name") == name_of(role)
    return is_bound and is_ours and ("*" in granted or granted >= set(IMPERSONATED))


def role_binding(role: Object, account: str, hub_id: str) -> Object:
    """Return the binding of an account to a role that is stored already."""
    path = role_binding_path(name_of(role))
    body = marked_object(_RBAC_VERSION, "ClusterRoleBinding", path, hub_id)
    return {
        **with_owner(body, role),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name_of(role)},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": CLUSTER_NAMESPACE}],
    }


def credentials_secret(name: str, values: dict[str, bytes]) -> Object:
    """Return a Secret on the hub with what it needs to reach a member."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": CLUSTER_NAMESPACE,
            "labels": dict(SYSTEM_LABELS),
        },
        "data": {key: b64encode(value).decode() for key, value in values.items() if value},
    }


def cluster(
    name: str, cluster_id: str, endpoint: Endpoint | None = None, location: Location = NOWHERE
) -> Object:
    """Return the Cluster of a member: Push with an endpoint, and Pull when its agent reports."""
    spec: Object = {"syncMode": PULL if endpoint is None else PUSH, "id": cluster_id}
    if endpoint is not None:
        impersonator = impersonator_secret_name(name)
        spec |= {
            "apiEndpoint": endpoint.server,
            "secretRef": {"namespace": CLUSTER_NAMESPACE, "name": name},
            "impersonatorSecretRef": {"namespace": CLUSTER_NAMESPACE, "name": impersonator},
            "insecureSkipTLSVerification": endpoint.skips_verification,
            "proxyURL": endpoint.proxy_url,
        }
    spec |= {
        "provider": location.provider,
        "region": location.region,
        "zones": list(location.zones),
    }
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value},
    }


def owner_of_secrets(stored_cluster: Object) -> Object:
    """Return the owner reference by which credentials go away with their Cluster."""
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": KIND,
        "name": name_of(stored_cluster),
        "uid": uid_of(stored_cluster),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_owner(kube_object: Object, role: Object) -> Object:
    """Return the object owned by this role too; an earlier role of the same name is forgotten."""
    owner = {
        "apiVersion": _RBAC_VERSION,
        "kind": "ClusterRole",
        "name": name_of(role),
        "uid": uid_of(role),
    }
    current = cast("list[Object]", metadata_of(kube_object).get("ownerReferences") or [])
    if owner in current:
        return kube_object
    others = [each for each in current if each.get("name") != owner["name"]]
    return with_metadata(kube_object, ownerReferences=[*others, owner])


def marked_object(
    api_version: str,
    kind: str,
    path: ResourcePath,
    hub_mark: str,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return an object with its name, our labels, and the mark of its hub; nothing else yet."""
    mark = {HUB_MARK: hub_mark} if hub_mark else {}
    metadata: Object = {
        "name": path.name,
        "namespace": path.namespace,
        "labels": dict(SYSTEM_LABELS),
        "annotations": {**mark, **(annotations or {})},
    }
    given = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": given}


DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
AGENT: Final = "karmada-agent"
AGENT_ACCOUNT: Final = "karmada-agent-sa"
AGENT_NAMESPACE: Final = SYSTEM_NAMESPACE
REGISTRATION: Final = "karmada-kubeconfig"
CLUSTER_MARK: Final = "clusterspace.io/cluster"
"""Annotation of the registration: what the hub calls this cluster."""

AGENT_NAMESPACE_PLACE: Final = namespace_path(AGENT_NAMESPACE)
AGENT_ACCOUNT_PLACE: Final = ResourcePath(SERVICE_ACCOUNTS, AGENT_NAMESPACE, AGENT_ACCOUNT)
AGENT_ROLE_PLACE: Final = role_path(AGENT)
AGENT_ROLE_BINDING_PLACE: Final = role_binding_path(AGENT)
AGENT_DEPLOYMENT_PLACE: Final = ResourcePath(DEPLOYMENTS, AGENT_NAMESPACE, AGENT)
REGISTRATION_PLACE: Final = ResourcePath(SECRETS, AGENT_NAMESPACE, REGISTRATION)

_APP_LABELS: Final = {"app": AGENT}
_RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def agent_namespace(mark: str) -> Object:
    """Return the namespace of the agent."""
    return marked_object("v1", "Namespace", AGENT_NAMESPACE_PLACE, mark)


def agent_account(mark: str) -> Object:
    """Return the account the agent runs as."""
    return marked_object("v1", "ServiceAccount", AGENT_ACCOUNT_PLACE, mark)


def agent_role(mark: str) -> Object:
    """Return the agent's role: it places whatever the hub is told to place."""
    body = marked_object(_RBAC_VERSION, "ClusterRole", AGENT_ROLE_PLACE, mark)
    return {**body, "rules": list(_EVERYTHING)}


def agent_role_binding(mark: str) -> Object:
    """Return the binding of the agent's account to its role."""
    subject = {"kind": "ServiceAccount", "name": AGENT_ACCOUNT, "namespace": AGENT_NAMESPACE}
    return {
        **marked_object(_RBAC_VERSION, "ClusterRoleBinding", AGENT_ROLE_BINDING_PLACE, mark),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": AGENT},
        "subjects": [subject],
    }


def agent_deployment(
    image: str, mark: str, *, allows_view: bool = True, webhook_cidrs: Iterable[object] = ()
) -> Object:
    """Return the Deployment of the agent: one at a time, with no rights on its machine."""
    view = () if allows_view else ("--allow-view", "false")
    cidrs = (word for each in webhook_cidrs for word in ("--allow-webhook-cidrs", str(each)))
    container = {
        "name": AGENT,
        "image": image,
        "command": ["clusterspace", "agent", "--log-format", "json", *view, *cidrs],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": _RESTRICTED,
        # Certificates are loaded through a file that is gone at once.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - in the container
    }
    pod = {
        "serviceAccountName": AGENT_ACCOUNT,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
    }
    return {
        **marked_object("apps/v1", "Deployment", AGENT_DEPLOYMENT_PLACE, mark),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _APP_LABELS},
            "template": {"metadata": {"labels": _APP_LABELS}, "spec": pod},
        },
    }
