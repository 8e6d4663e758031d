"""Short constructors for objects."""

import base64
from typing import Any, Final

from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
PODS: Final = GroupVersionResource("", "v1", "pods")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")


def config_map(
    name: str, data: dict[str, str] | None = None, *, namespace: str = "default", **metadata: Any
) -> Object:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "data": data or {},
    }


def secret(
    name: str, data: dict[str, str] | None = None, *, namespace: str = "default", **metadata: Any
) -> Object:
    """Return a Secret: unlike a ConfigMap, it has no others of its kind beside it unasked."""
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in (data or {}).items()}
    return {**config_map(name, encoded, namespace=namespace, **metadata), "kind": "Secret"}


def namespace(name: str) -> Object:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def pod(name: str, *, namespace: str = "default", image: str = "web:1", **metadata: Any) -> Object:
    """Return a Pod with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


def deployment(name: str, *, replicas: int = 1, namespace: str = "default") -> Object:
    """Return a Deployment of pods labelled `app: NAME`."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    }
