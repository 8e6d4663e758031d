"""A cluster without nodes whose controllers are looked at: a simulated one, or a real one."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, PatchType, Propagation
from clusterspace.kube.objects import Object, labels_of, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.sim.api import KINDS, Kind
from clusterspace.testing import steps
from clusterspace.testing.hubs import (
    client_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.stage import running_sim_member

CONTROLLERS = (
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "replicationcontroller-controller",
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "ttl-after-finished-controller",
    "disruption-controller",
    "resourcequota-controller",
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "volumeattributesclass-protection-controller",
    "namespace-controller",
    "garbage-collector-controller",
)
"""What a real cluster runs here; there is no node, no kubelet and no scheduler on either side."""

ELSEWHERE = "elsewhere"
"""A node that pods may be said to be on: it has no kubelet, so that tests say how they are."""

MORE = {
    each.name: each
    for each in (
        Kind("ResourceQuota", "v1", "resourcequotas"),
        Kind(
            "VolumeAttributesClass",
            "storage.k8s.io/v1",
            "volumeattributesclasses",
            namespaced=False,
        ),
    )
}
"""Kinds that the API server itself looks after, on either side."""

_NODES = ResourcePath(GroupVersionResource("", "v1", "nodes"))
_NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": ELSEWHERE}}


@dataclass
class Room:
    """One namespace of a cluster, for one test."""

    client: ClusterClient
    namespace: str

    def place(self, kind: str, name: str = "") -> ResourcePath:
        known = {**KINDS, **MORE}[kind]
        version = known.group_version
        resource = GroupVersionResource(version.group, version.version, known.plural)
        return ResourcePath(resource, self.namespace if known.namespaced else "", name)

    async def create(self, kube_object: Object) -> Object:
        return await self.client.create(self.place(kube_object["kind"]), kube_object)

    async def get(self, kind: str, name: str) -> Object:
        return await self.client.get(self.place(kind, name))

    async def find(self, kind: str, name: str) -> Object | None:
        return await self.client.find(self.place(kind, name))

    async def all(self, kind: str, **labels: str) -> list[Object]:
        found = await self.client.list_objects(self.place(kind))
        return [each for each in found if labels.items() <= labels_of(each).items()]

    async def names(self, kind: str) -> set[str]:
        return {name_of(each) for each in await self.all(kind)}

    async def edit(self, kind: str, name: str, change: Callable[[Object], Object]) -> Object:
        return await steps.edit(self.client, self.place(kind, name), change)

    async def patch(
        self, kind: str, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> None:
        """Patch as kubectl does: whatever the version."""
        place = self.place(kind, name)
        if subresource:
            place = place.with_subresource(subresource)
        headers = (("Content-Type", PatchType.MERGE.value),)
        body = msgspec.json.encode(patch)
        await self.client.connection.ask(
            ApiRequest("PATCH", place.path, headers=headers, body=body)
        )

    async def delete(
        self, kind: str, name: str, *, policy: Propagation = Propagation.BACKGROUND
    ) -> None:
        existing = await self.get(kind, name)
        # There is no kubelet that would end a pod, so that waiting for one is in vain.
        grace = 0 if kind == "Pod" else None
        options = DeleteOptions(uid=uid_of(existing), propagation=policy, grace_seconds=grace)
        await self.client.delete(self.place(kind, name), options)

    async def run_pod(self, name: str, **status: Any) -> None:
        """Say of a pod what its kubelet would; without more, that it runs and is ready."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        running: Object = {"phase": "Running", "conditions": [ready]}
        if address := status.pop("address", ""):
            running |= {"podIP": address, "podIPs": [{"ip": address}]}
        await self.patch("Pod", name, {"status": {**running, **status}}, subresource="status")

    async def end_pod(self, name: str, *, exit_code: int = 0) -> None:
        """Say of a pod that it has ended."""
        ended = {
            "name": "web",
            "image": "web:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": exit_code}},
        }
        phase = "Failed" if exit_code else "Succeeded"
        await self.run_pod(name, phase=phase, conditions=[], containerStatuses=[ended])


@asynccontextmanager
async def nodeless_cluster(kind: str, directory: Path) -> AsyncGenerator[ClusterClient]:
    """Run a cluster of a kind, `sim` or `real`; skip, by name, where there is no real one."""
    if kind == "sim":
        async with running_sim_member("sim", directory) as side:
            await side.client.create(_NODES, _NODE)
            yield side.client
        return
    async with (
        real_server_for_test(directory) as real,
        real_controllers_for_test(real, directory, *CONTROLLERS),
        client_for_test(real.settings) as client,
    ):
        await client.create(_NODES, _NODE)
        yield client
