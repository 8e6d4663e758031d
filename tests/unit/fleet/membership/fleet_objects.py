"""Clusters, nodes and pods for the membership's unit tests."""

from typing import Any

from clusterspace.kube.objects import Object


def cluster(
    name: str = "west",
    *,
    ready: str = "",
    taints: list[Object] | None = None,
    mode: str = "Push",
    cluster_id: str = "",
    **status: Any,
) -> Object:
    """Return a Cluster as the hub holds it."""
    spec: Object = {"syncMode": mode}
    if cluster_id:
        spec["id"] = cluster_id
    if taints is not None:
        spec["taints"] = taints
    if ready:
        since = "2026-01-01T00:00:00Z"
        held = {"type": "Ready", "status": ready, "reason": "Told", "message": "told"}
        status["conditions"] = [{**held, "lastTransitionTime": since}]
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1"},
        "spec": spec,
        "status": status,
    }


def node(name: str, *, cpu: str = "8", memory: str = "32Gi", pods: str = "110") -> Object:
    """Return a node that is ready."""
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(node_name: str = "", *, phase: str = "Running", **requests: str) -> Object:
    """Return a pod of one container that asks for this much."""
    spec: Object = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if node_name:
        spec["nodeName"] = node_name
    return {"spec": spec, "status": {"phase": phase}}
