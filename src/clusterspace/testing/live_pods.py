"""What makes the pods of a live cluster other than their templates, and what runs them.

A webhook gives pods a sidecar, as a mesh does. Where a member is a real API server with real
controllers and no nodes, `run_pods` does what a scheduler and a kubelet would.
"""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.errors import Conflict, NotFound
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
    uid_of,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.certificates import loopback_tls

INJECTED: Final = "sidecars.example.com/injection"
"""The label of namespaces whose pods get a sidecar."""
_PODS: Final = GroupVersionResource("", "v1", "pods")
_NODE: Final = "node-1"


def sidecar(name: str) -> Object:
    # An autoscaler cannot measure pods with a container that requests nothing.
    requests = {"cpu": "5m", "memory": "8Mi"}
    image = f"registry.example/{name}:2.1"
    return {"name": name, "image": image, "resources": {"requests": requests}}


@dataclass(frozen=True, slots=True)
class Injector:
    """A webhook that gives pods a sidecar."""

    url: str

    def configuration(self) -> Object:
        """Return the configuration that has the webhook called for labelled namespaces."""
        authority = base64.b64encode(loopback_tls().authority).decode()
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
        webhook = {
            "name": "pods.sidecars.example.com",
            "clientConfig": {"url": f"{self.url}/pods", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {INJECTED: "enabled"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "sidecars.example.com"},
            "webhooks": [webhook],
        }


@asynccontextmanager
async def sidecar_injector() -> AsyncGenerator[Injector]:
    """Run a webhook that adds a container and an annotation to every pod it is asked about."""

    async def inject(request: web.Request) -> web.Response:
        review: Object = await request.json()
        status = {"sidecars.example.com/status": "injected"}
        pod = review["request"]["object"]
        present: Object = find_at(pod, "metadata", "annotations") or {}
        annotations = {**present, **status}
        patch = [
            {"op": "add", "path": "/spec/containers/-", "value": sidecar("sidecar")},
            {"op": "add", "path": "/metadata/annotations", "value": annotations},
        ]
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(msgspec.json.encode(patch)).decode(),
        }
        answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview"}
        return web.json_response({**answer, "response": response})

    app = web.Application()
    app.router.add_post("/pods", inject)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=loopback_tls().context)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield Injector(f"https://{host}:{port}")
    finally:
        await runner.cleanup()


async def add_node(member: ClusterClient) -> None:
    """Add the Node that `run_pods` runs pods on: without it no pod is an endpoint of a Service."""
    nodes = ResourcePath(GroupVersionResource("", "v1", "nodes"))
    place = nodes.named(_NODE)
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
    # A new Node is tainted until a controller sees it ready; none does that here.
    made = without_value(await member.create(nodes, node), "spec", "taints")
    status = {
        "capacity": {"cpu": "64", "memory": "256Gi", "pods": "1000"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    untainted = await member.update(place, made)
    await member.update(place.with_subresource("status"), with_value(untainted, status, "status"))


async def run_pods(member: ClusterClient) -> None:
    """Do what a scheduler and a kubelet would for every pod that waits, or is to end.

    For members that are a real API server with real controllers, and the Node of `add_node`.
    """
    for pod in await member.list_objects(ResourcePath(_PODS)):
        place = ResourcePath(_PODS, namespace_of(pod), name_of(pod))
        # Controllers go on meanwhile: a pod that went or changed since the list is of the next one.
        with suppress(NotFound, Conflict):
            if is_being_deleted(pod):
                await member.delete(place, DeleteOptions(uid_of(pod), grace_seconds=0))
            elif (find_at(pod, "status", "phase") or "Pending") == "Pending":
                await _run_pod(member, place, pod)


async def _run_pod(member: ClusterClient, place: ResourcePath, pod: Object) -> None:
    if not find_at(pod, "spec", "nodeName"):
        target = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
        meta = {"name": place.name, "namespace": place.namespace}
        binding: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": meta}
        await member.create(place.with_subresource("binding"), {**binding, "target": target})
    number = int(uid_of(pod).replace("-", "")[:8], 16)
    started = "2026-03-01T10:00:00Z"
    statuses = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "containerID": f"containerd://{uid_of(pod)}-{index}",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        }
        for index, each in enumerate(pod["spec"]["containers"])
    ]
    conditions = [
        {"type": each, "status": "True", "lastTransitionTime": started}
        for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255 or 1}"
    status = {
        "phase": "Running",
        "startTime": started,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": statuses,
        "conditions": conditions,
    }
    live = await member.get(place)
    await member.update(place.with_subresource("status"), with_value(live, status, "status"))
