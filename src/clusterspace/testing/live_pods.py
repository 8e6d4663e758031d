"""What makes the pods of a live cluster other than their templates, and what runs them.

A webhook gives pods a sidecar, as a mesh does. Where a member is a real API server with real
controllers and no nodes, `run_pods` does what a scheduler and a kubelet would.
"""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    namespace_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.certificates import loopback_tls

INJECTED: Final = "sidecars.example.com/injection"
"""The label of namespaces whose pods get a sidecar."""
_PODS: Final = GroupVersionResource("", "v1", "pods")


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


async def run_pods(member: ClusterClient, node: str = "node-1") -> int:
    """Do what a scheduler and a kubelet would for every pod that waits; return for how many.

    For members that are a real API server with real controllers, and no nodes.
    """
    count = 0
    for pod in await member.list_objects(ResourcePath(_PODS)):
        if (find_at(pod, "status", "phase") or "Pending") != "Pending":
            continue
        place = ResourcePath(_PODS, namespace_of(pod), name_of(pod))
        if not find_at(pod, "spec", "nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
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
        count += 1
    return count
