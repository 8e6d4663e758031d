"""Short constructors for workloads and what belongs to them."""

from typing import Any

from clusterspace.kube.objects import Object

LABELS = {"app": "web"}


def template(image: str = "web:1", **metadata: Any) -> Object:
    return {
        "metadata": {"labels": LABELS, **metadata},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }


def workload(kind: str, *, name: str = "web", api_version: str = "apps/v1", **spec: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template(), **spec},
    }


def deployment(replicas: int = 3, **spec: Any) -> Object:
    return workload("Deployment", replicas=replicas, **spec)


def job(**spec: Any) -> Object:
    pods = template()
    pods["spec"]["restartPolicy"] = "Never"
    return workload("Job", api_version="batch/v1", template=pods, **spec)


def pod(name: str = "p", *, node: str = "", cpu: str = "", **spec: Any) -> Object:
    container: Object = {"name": "web", "image": "web:1"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    held: Object = {"containers": [container], **spec}
    if node:
        held["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": held,
    }


def node(name: str, *, cpu: str = "4", pods: int = 10, **spec: Any) -> Object:
    room = {"cpu": cpu, "memory": "8Gi", "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": name[-1]}},
        "spec": spec,
        "status": {"allocatable": room},
    }
