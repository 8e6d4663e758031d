"""What a pull join puts on the member, and the Cluster it makes, as values.

    karmada-system   Secret karmada-kubeconfig: where the hub is, and the agent's certificate
                     account karmada-agent-sa and Deployment karmada-agent, unless it runs elsewhere

The names are Karmada's. Each object carries the mark of its hub, which is the fingerprint of the
hub's authority: an agent knows no more of its hub than that.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.apis.clusters import CLUSTERS, KIND, PULL, SYSTEM_LABELS
from clusterspace.client.kubeconfig import parse_kubeconfig
from clusterspace.client.places import Place
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import UnusableKubeconfig
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.agent_credentials import KeyedCertificate, is_readable
from clusterspace.fleet.membership.hub_discovery import FoundHub
from clusterspace.fleet.membership.manifests import Location
from clusterspace.fleet.membership.tokens import secret_value
from clusterspace.kube.objects import Object, annotations_of
from clusterspace.kube.resources import GroupVersionResource

DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
NAMESPACE: Final = "karmada-system"
AGENT: Final = "karmada-agent"
ACCOUNT: Final = "karmada-agent-sa"
REGISTRATION: Final = "karmada-kubeconfig"
CLUSTER_MARK: Final = "clusterspace.io/cluster"
"""Annotation of the registration: what the hub calls this cluster."""

NAMESPACE_PLACE: Final = names.namespace_place(NAMESPACE)
REGISTRATION_PLACE: Final = Place(names.SECRETS, NAMESPACE, REGISTRATION)
ACCOUNT_PLACE: Final = Place(names.SERVICE_ACCOUNTS, NAMESPACE, ACCOUNT)
ROLE_PLACE: Final = names.role_place(AGENT)
ROLE_BINDING_PLACE: Final = names.role_binding_place(AGENT)
DEPLOYMENT_PLACE: Final = Place(DEPLOYMENTS, NAMESPACE, AGENT)

_RBAC: Final = "rbac.authorization.k8s.io"
_SERVER: Final = "karmada-apiserver"
_EVERYTHING: Final = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
)
_APP_LABELS: Final = {"app": AGENT}
_RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True)
class Registration:
    """What an agent needs to know: what its cluster is called, where the hub is, who it is."""

    cluster_name: str
    hub: ConnectionSettings
    held: KeyedCertificate

    @property
    def authority(self) -> bytes:
        """The authority that vouches for the hub."""
        return self.hub.trust.authority.data


def registration_data(
    cluster_name: str, server: str, authority: bytes, held: KeyedCertificate
) -> Object:
    """Return what the Secret of a registration holds: a kubeconfig for the hub."""
    user = {"client-certificate-data": held.certificate, "client-key-data": held.key}
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _SERVER,
        "clusters": [
            {
                "name": _SERVER,
                "cluster": {"server": server, "certificate-authority-data": _text(authority)},
            }
        ],
        "users": [
            {"name": cluster_name, "user": {key: _text(value) for key, value in user.items()}}
        ],
        "contexts": [{"name": _SERVER, "context": {"cluster": _SERVER, "user": cluster_name}}],
    }
    return {REGISTRATION: _text(msgspec.yaml.encode(config))}


def registration_secret(
    cluster_name: str, hub: FoundHub, held: KeyedCertificate, mark: str
) -> Object:
    """Return the Secret of a new registration."""
    body = _body("v1", "Secret", REGISTRATION_PLACE, mark, {CLUSTER_MARK: cluster_name})
    data = registration_data(cluster_name, hub.server, hub.authority, held)
    return {**body, "type": "Opaque", "data": data}


def read_registration(secret: Object) -> Registration:
    """Read what an agent is to know; UnusableKubeconfig when the Secret does not say."""
    place = str(REGISTRATION_PLACE)
    cluster_name = annotations_of(secret).get(CLUSTER_MARK, "")
    if not cluster_name:
        raise UnusableKubeconfig("it does not say which cluster this is", place=place)
    content = secret_value(secret, REGISTRATION)
    hub = parse_kubeconfig(content, place=place).settings(cluster="hub")
    held = KeyedCertificate(hub.identity.certificate.data, hub.identity.key.data)
    if not is_readable(held):
        raise UnusableKubeconfig("the agent's certificate cannot be read", place=place)
    return Registration(cluster_name, hub, held)


def namespace(mark: str) -> Object:
    """Return the namespace of the agent."""
    return _body("v1", "Namespace", NAMESPACE_PLACE, mark)


def account(mark: str) -> Object:
    """Return the account the agent runs as."""
    return _body("v1", "ServiceAccount", ACCOUNT_PLACE, mark)


def role(mark: str) -> Object:
    """Return the agent's role: it places whatever the hub is told to place."""
    body = _body(f"{_RBAC}/v1", "ClusterRole", ROLE_PLACE, mark)
    return {**body, "rules": list(_EVERYTHING)}


def role_binding(mark: str) -> Object:
    """Return the binding of the agent's account to its role."""
    return {
        **_body(f"{_RBAC}/v1", "ClusterRoleBinding", ROLE_BINDING_PLACE, mark),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": AGENT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }


def deployment(image: str, mark: str) -> Object:
    """Return the Deployment of the agent: one at a time, with no rights on its machine."""
    container = {
        "name": AGENT,
        "image": image,
        "command": ["clusterspace", "agent", "--log-format", "json"],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": _RESTRICTED,
        # Certificates are loaded through a file that is gone at once.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - in the container
    }
    pod = {
        "serviceAccountName": ACCOUNT,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
    }
    return {
        **_body("apps/v1", "Deployment", DEPLOYMENT_PLACE, mark),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _APP_LABELS},
            "template": {"metadata": {"labels": _APP_LABELS}, "spec": pod},
        },
    }


def cluster(name: str, cluster_id: str, location: Location) -> Object:
    """Return the Cluster of a member whose agent reports for it; the hub holds no way in."""
    spec: Object = {
        "syncMode": PULL,
        "id": cluster_id,
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


def _body(
    api_version: str, kind: str, place: Place, mark: str, annotations: dict[str, str] | None = None
) -> Object:
    metadata: Object = {
        "name": place.name,
        "namespace": place.namespace,
        "labels": dict(SYSTEM_LABELS),
        "annotations": {names.HUB_MARK: mark, **(annotations or {})},
    }
    given = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": given}


def _text(content: bytes) -> str:
    return b64encode(content).decode()
