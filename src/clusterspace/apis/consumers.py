"""ClusterConsumer of access.clusterspace.io, and what is written for one: profiles and Secrets.

    ClusterConsumer ──> ClusterProfile NAME     in the namespace of its ServiceAccount, for each
                   └──> Secret NAME             cluster that it is told of

Both are owned by the consumer and have its label: what has the name and is not so is somebody
else's. The credential is a token of the consumer's own account, bound to the Secret that it lies
in, so whoever deletes the Secret ends it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.apis.affinities import ClusterAffinity, read_affinity
from clusterspace.apis.clusters import CLUSTERS, conditions_of, id_of
from clusterspace.kube.conditions import UNKNOWN, find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
)
from clusterspace.kube.quantities import Quantity
from clusterspace.kube.resources import GroupVersionResource

GROUP: Final = "access.clusterspace.io"
KIND: Final = "ClusterConsumer"
CLUSTER_CONSUMERS: Final = GroupVersionResource(GROUP, "v1alpha1", "clusterconsumers")
CLUSTER_PROFILES: Final = GroupVersionResource(
    "multicluster.x-k8s.io", "v1alpha1", "clusterprofiles"
)

CONSUMER_LABEL: Final = f"{GROUP}/consumer"
EXPIRES: Final = f"{GROUP}/token-expires"
"""An annotation of a Secret: when its token ends."""
RENEWS: Final = f"{GROUP}/token-renews"
"""An annotation of a Secret: when the next token is due."""

PUBLISHED: Final = "Published"
PROFILE: Final = "ClusterProfile"
TOKEN_SECRET: Final = "TokenSecret"  # noqa: S105 - a word of the API
ARGO_SECRET: Final = "ArgoCDSecret"  # noqa: S105 - a word of the API

PLACE_OF_NAME: Final = "{cluster}"
MANAGER: Final = "clusterspace"
_MANAGER_LABEL: Final = "x-k8s.io/cluster-manager"
_ARGO_LABEL: Final = "argocd.argoproj.io/secret-type"
_SECRET_READER: Final = "secretreader"  # noqa: S105 - the plugin that reads Secrets named so
_EXEC: Final = "client.authentication.k8s.io/exec"
_CLUSTER_ID: Final = "cluster.clusterset.k8s.io"
_RESERVED: Final = (GROUP, "argoproj.io", "x-k8s.io", "kubernetes.io", "k8s.io")
"""Labels that mean something to whoever reads them are not copied from a Cluster."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A ClusterConsumer, read."""

    name: str
    uid: str
    namespace: str
    account: str
    affinity: ClusterAffinity
    outputs: frozenset[str]
    token_seconds: int
    is_suspended: bool

    @property
    def has_profiles(self) -> bool:
        """Whether ClusterProfiles are written for it."""
        return PROFILE in self.outputs

    @property
    def has_secrets(self) -> bool:
        """Whether it is given credentials now."""
        return bool(self.outputs & {TOKEN_SECRET, ARGO_SECRET}) and not self.is_suspended

    def owns(self, kube_object: Object) -> bool:
        """Whether an object was written for this consumer, and not for an earlier one."""
        owners: list[Object] = metadata_of(kube_object).get("ownerReferences") or []
        is_labelled = labels_of(kube_object).get(CONSUMER_LABEL) == self.name
        return is_labelled and any(each.get("uid") == self.uid for each in owners)

    def metadata_for(self, cluster: Object) -> Object:
        """Return the metadata of what is written for a cluster."""
        owner = {
            "apiVersion": CLUSTER_CONSUMERS.api_version,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
        }
        return {
            "name": name_of(cluster),
            "namespace": self.namespace,
            "labels": {**_copied(labels_of(cluster)), CONSUMER_LABEL: self.name},
            "ownerReferences": [owner],
        }


def read_consumer(kube_object: Object) -> Consumer:
    """Read a ClusterConsumer; MalformedSelector when its affinity makes no sense."""
    spec: Object = kube_object.get("spec") or {}
    return Consumer(
        name=name_of(kube_object),
        uid=uid_of(kube_object),
        namespace=str(find_at(spec, "serviceAccount", "namespace") or ""),
        account=str(find_at(spec, "serviceAccount", "name") or ""),
        affinity=read_affinity(spec.get("clusterAffinity"), place="spec.clusterAffinity"),
        outputs=frozenset(spec.get("outputs") or ()),
        token_seconds=int(spec.get("tokenSeconds") or 3600),
        is_suspended=bool(spec.get("suspend")),
    )


def is_consumers(kube_object: Object) -> bool:
    """Whether an object says that it was written for a consumer."""
    owners: list[Object] = metadata_of(kube_object).get("ownerReferences") or []
    is_owned = any(
        each.get("kind") == KIND and str(each.get("apiVersion")).startswith(f"{GROUP}/")
        for each in owners
    )
    return is_owned and bool(labels_of(kube_object).get(CONSUMER_LABEL))


@dataclass(frozen=True, slots=True)
class Address:
    """Where consumers reach clusters, and the authority that they check it by.

    A hub has each under its proxy; the fleet API server, which any hub may have, is said with a
    place for the name: `https://fleet.example.com/clusterspaces/{cluster}`.
    """

    server: str
    authority: bytes

    def of(self, cluster: str) -> str:
        """Return the address of one cluster, at which the rights of whoever comes are decided."""
        if PLACE_OF_NAME in self.server:
            return self.server.replace(PLACE_OF_NAME, cluster)
        return f"{self.server.rstrip('/')}/apis/{CLUSTERS.api_version}/clusters/{cluster}/proxy"

    def kubeconfig_cluster(self, cluster: str) -> Object:
        """Return how a kubeconfig would say it."""
        encoded = base64.b64encode(self.authority).decode()
        known: Object = {"certificate-authority-data": encoded} if encoded else {}
        return {"server": self.of(cluster), **known}


def profile_for(consumer: Consumer, cluster: Object) -> Object:
    """Return the ClusterProfile of a cluster, without its status."""
    metadata = consumer.metadata_for(cluster)
    labels = {**metadata["labels"], _MANAGER_LABEL: MANAGER}
    return {
        "apiVersion": CLUSTER_PROFILES.api_version,
        "kind": PROFILE,
        "metadata": {**metadata, "labels": labels},
        "spec": {"displayName": name_of(cluster), "clusterManager": {"name": MANAGER}},
    }


def profile_status(
    consumer: Consumer, cluster: Object, properties: Mapping[str, Quantity], address: Address
) -> Object:
    """Return what a profile says of its cluster, as far as it is known.

    Both names of the access providers are written: consumers of before the second one know only
    the first.
    """
    name, version = name_of(cluster), find_at(cluster, "status", "kubernetesVersion")
    at = address.kubeconfig_cluster(name)
    providers: list[Object] = [{"name": MANAGER, "cluster": at}]
    if TOKEN_SECRET in consumer.outputs and not consumer.is_suspended:
        config = {"name": _EXEC, "extension": {"clusterName": name}}
        providers.append({"name": _SECRET_READER, "cluster": {**at, "extensions": [config]}})
    values = {key: str(each) for key, each in properties.items()}
    if identifier := id_of(cluster):
        values[_CLUSTER_ID] = identifier
    return {
        **({"version": {"kubernetes": str(version)}} if version else {}),
        "properties": [{"name": key, "value": values[key]} for key in sorted(values)],
        "accessProviders": providers,
        "credentialProviders": providers,
        "conditions": [_health(cluster)],
    }


def _health(cluster: Object) -> Object:
    ready = find_condition(conditions_of(cluster), "Ready")
    if ready is None:
        created = metadata_of(cluster).get("creationTimestamp")
        said = {"status": UNKNOWN, "reason": "NotReported", "message": "it has not reported yet"}
        return {"type": "ControlPlaneHealthy", **said, "lastTransitionTime": created}
    return {
        "type": "ControlPlaneHealthy",
        "status": ready.get("status") or UNKNOWN,
        "reason": ready.get("reason") or "Unknown",
        "message": ready.get("message") or "",
        "lastTransitionTime": ready.get("lastTransitionTime"),
    }


def secret_for(consumer: Consumer, cluster: Object) -> Object:
    """Return the Secret of a cluster before it has a token: nobody takes it for one yet."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": consumer.metadata_for(cluster),
    }


def with_token(
    secret: Object, consumer: Consumer, address: Address, token: str, times: tuple[str, str]
) -> Object:
    """Return a Secret with a token in the shapes that were asked for, and when it renews and ends.

    Argo CD takes a Secret for a cluster by its label. It comes with the token, so that there is
    never one without.
    """
    name = name_of(secret)
    data: dict[str, str] = {}
    if TOKEN_SECRET in consumer.outputs:
        data["token"] = token
    labels = {key: each for key, each in labels_of(secret).items() if key != _ARGO_LABEL}
    if ARGO_SECRET in consumer.outputs:
        authority = base64.b64encode(address.authority).decode()
        config = {"bearerToken": token, "tlsClientConfig": {"caData": authority}}
        data |= {
            "name": name,
            "server": address.of(name),
            "config": msgspec.json.encode(config).decode(),
        }
        labels[_ARGO_LABEL] = "cluster"
    annotations = {**annotations_of(secret), RENEWS: times[0], EXPIRES: times[1]}
    encoded = {key: base64.b64encode(each.encode()).decode() for key, each in data.items()}
    metadata = {**metadata_of(secret), "labels": labels, "annotations": annotations}
    return {**secret, "metadata": metadata, "data": encoded}


def shape_of(secret: Object) -> Any:
    """Return what a Secret is like apart from its token: where this differs, it is written anew."""
    data = cast("dict[str, str]", secret.get("data") or {})
    texts = {key: base64.b64decode(each).decode(errors="replace") for key, each in data.items()}
    try:
        config: Any = msgspec.json.decode(texts.get("config", "{}"))
    except msgspec.DecodeError:
        config = None
    trust = find_at(config, "tlsClientConfig") if isinstance(config, dict) else config
    return sorted(texts), texts.get("name"), texts.get("server"), trust, labels_of(secret)


def _copied(labels: Mapping[str, str]) -> dict[str, str]:
    def is_reserved(key: str) -> bool:
        domain = key.partition("/")[0] if "/" in key else ""
        return any(domain == each or domain.endswith(f".{each}") for each in _RESERVED)

    return {key: each for key, each in labels.items() if not is_reserved(key)}
