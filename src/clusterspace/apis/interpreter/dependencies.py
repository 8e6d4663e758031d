"""What a template needs beside it on a cluster: configuration, secrets, accounts, volumes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.kinds import pod_spec_of
from clusterspace.kube.objects import Object, find_at, namespace_of

_CONFIG_MAP: Final = "ConfigMap"
_SECRET: Final = "Secret"  # noqa: S105 - a kind
_SERVICE_ACCOUNT: Final = "ServiceAccount"
_CLAIM: Final = "PersistentVolumeClaim"

_EVERYWHERE: Final = "default"
"""The account every namespace of every cluster has."""

# Where volume sources name a Secret: Kubernetes has two words for it, and one source its own.
_SECRET_REFERENCES: Final = ("secretRef", "nodePublishSecretRef")
_SOURCES_WITH_SECRETS: Final = (
    "azureFile", "cephfs", "cinder", "csi", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Dependency:
    """One object of the core group that a template needs, in its own namespace."""

    kind: str
    namespace: str
    name: str
    api_version: str = "v1"

    def written(self) -> dict[str, str]:
        """Return the reference as the annotation of a binding spells it."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
        }


def dependencies_in(template: Object) -> tuple[Dependency, ...]:
    """Return the objects a template needs, each once, in the order of kinds and names."""
    namespace = namespace_of(template)
    found = {
        Dependency(kind, namespace, name)
        for kind, name in _needed_by(template)
        if isinstance(name, str) and name
    }
    return tuple(sorted(found))


def _needed_by(template: Object) -> Iterator[tuple[str, Any]]:
    if kinds.kind_of(template) == kinds.INGRESS:
        for tls in _objects(find_at(template, "spec", "tls")):
            yield _SECRET, tls.get("secretName")
        return
    pod_spec = pod_spec_of(template)
    if pod_spec is None:
        return
    made_on_members: frozenset[str] = frozenset()
    if kinds.kind_of(template) == kinds.STATEFUL_SET:  # makes its claims wherever it runs
        claims = _objects(find_at(template, "spec", "volumeClaimTemplates"))
        made_on_members = frozenset(str(find_at(claim, "metadata", "name")) for claim in claims)
    for kind, name in _needed_by_pod(pod_spec):
        if kind != _CLAIM or name not in made_on_members:
            yield kind, name


def _needed_by_pod(pod_spec: Object) -> Iterator[tuple[str, Any]]:
    account = pod_spec.get("serviceAccountName")
    if account != _EVERYWHERE:
        yield _SERVICE_ACCOUNT, account
    for secret in _objects(pod_spec.get("imagePullSecrets")):
        yield _SECRET, secret.get("name")
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in _objects(pod_spec.get(field)):
            for source in _objects(container.get("envFrom")):
                yield _CONFIG_MAP, find_at(source, "configMapRef", "name")
                yield _SECRET, find_at(source, "secretRef", "name")
            for variable in _objects(container.get("env")):
                yield _CONFIG_MAP, find_at(variable, "valueFrom", "configMapKeyRef", "name")
                yield _SECRET, find_at(variable, "valueFrom", "secretKeyRef", "name")
    for volume in _objects(pod_spec.get("volumes")):
        yield _CONFIG_MAP, find_at(volume, "configMap", "name")
        yield _SECRET, find_at(volume, "secret", "secretName")
        yield _CLAIM, find_at(volume, "persistentVolumeClaim", "claimName")
        yield _SECRET, find_at(volume, "azureFile", "secretName")
        for source in _objects(find_at(volume, "projected", "sources")):
            yield _CONFIG_MAP, find_at(source, "configMap", "name")
            yield _SECRET, find_at(source, "secret", "name")
        for source in _SOURCES_WITH_SECRETS:
            for reference in _SECRET_REFERENCES:
                yield _SECRET, find_at(volume, source, reference, "name")


def _objects(listed: Iterable[Any] | None) -> Iterator[Object]:
    return (cast("Object", each) for each in listed or () if isinstance(each, dict))
