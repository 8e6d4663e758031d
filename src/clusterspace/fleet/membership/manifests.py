"""The objects a join puts on either side, as values: the same that Karmada makes.

On the member everything we make carries the mark of our hub, so that a leave removes what is ours.
And all of it is owned, in the end, by the role the hub works with:

    role of the hub ──> account, binding, namespace, impersonator's role ──> account, binding

A hub that leaves without the help of the member's administrator has no rights but that role's: it
deletes the role, its last request, and the member's garbage collector removes the rest. What
several hubs share has several owners, and goes with the last.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final, cast

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, KIND, PUSH, SYSTEM_LABELS
from clusterspace.fleet.membership import names
from clusterspace.kube.objects import Object, metadata_of, name_of, uid_of, with_metadata

_RBAC: Final = "rbac.authorization.k8s.io"
_RBAC_VERSION: Final = f"{_RBAC}/v1"
TOKEN_SECRET_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type
ACCOUNT_ANNOTATION: Final = "kubernetes.io/service-account.name"

_EVERYTHING: Final = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
)
_IMPERSONATION: Final = (
    {
        "apiGroups": [""],
        "resources": ["users", "groups", "serviceaccounts"],
        "verbs": ["impersonate"],
    },
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
    return _body("v1", "Namespace", name, "")


def member_namespace(hub_id: str, role: Object) -> Object:
    """Return our namespace on a member, for a role of the hub that is stored already."""
    return with_owner(_body("v1", "Namespace", CLUSTER_NAMESPACE, hub_id), role)


def service_account(name: str, hub_id: str, role: Object) -> Object:
    """Return an account on the member, for a role that is stored already."""
    return with_owner(_body("v1", "ServiceAccount", name, hub_id, CLUSTER_NAMESPACE), role)


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
    body = _body(_RBAC_VERSION, "ClusterRole", names.role(cluster_name), hub_id)
    return {**body, "rules": list(_EVERYTHING)}


def impersonator_role(hub_id: str, role: Object) -> Object:
    """Return the role of the account through which users' own rights are used."""
    body = _body(_RBAC_VERSION, "ClusterRole", names.IMPERSONATOR, hub_id)
    return {**with_owner(body, role), "rules": list(_IMPERSONATION)}


def role_binding(role: Object, account: str, hub_id: str) -> Object:
    """Return the binding of an account to a role that is stored already."""
    body = _body(_RBAC_VERSION, "ClusterRoleBinding", name_of(role), hub_id)
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


def cluster(name: str, cluster_id: str, endpoint: Endpoint, location: Location) -> Object:
    """Return the Cluster of a member the hub reaches by itself."""
    spec: Object = {
        "syncMode": PUSH,
        "id": cluster_id,
        "apiEndpoint": endpoint.server,
        "secretRef": _reference(name),
        "impersonatorSecretRef": _reference(names.impersonator_secret(name)),
        "insecureSkipTLSVerification": endpoint.skips_verification,
        "proxyURL": endpoint.proxy_url,
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
    held = cast("list[Object]", metadata_of(kube_object).get("ownerReferences") or [])
    if owner in held:
        return kube_object
    others = [each for each in held if each.get("name") != owner["name"]]
    return with_metadata(kube_object, ownerReferences=[*others, owner])


def _reference(secret: str) -> Object:
    return {"namespace": CLUSTER_NAMESPACE, "name": secret}


def _body(api_version: str, kind: str, name: str, hub_id: str, namespace: str = "") -> Object:
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "labels": dict(SYSTEM_LABELS),
        "annotations": {names.HUB_MARK: hub_id} if hub_id else None,
    }
    given = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": given}
