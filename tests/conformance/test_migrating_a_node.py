"""What a real kubelet runs is taken in and given back, and containerd has seen nothing of it."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.component.migration.living import differences
from tests.conformance.real_nodes import IMAGE, PATIENCE, Runtime, running_node

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, name_of, with_metadata, without_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, PODS, namespace
from clusterspace.testing.hubs import (
    client_for_test,
    real_component_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.live_cluster import is_rolled_out
from clusterspace.testing.stage import Side, running_fleet, until_ready
from clusterspace.testing.steps import delete, until

pytestmark = pytest.mark.slow

WEST: Final = "west"
SHOP: Final = "shop"
KUBECTL: Final = WriteOptions(field_manager="kubectl-create")
RESOURCES: Final = {
    "PersistentVolume": GroupVersionResource("", "v1", "persistentvolumes"),
    "ConfigMap": GroupVersionResource("", "v1", "configmaps"),
    "Secret": GroupVersionResource("", "v1", "secrets"),
    "ServiceAccount": GroupVersionResource("", "v1", "serviceaccounts"),
    "Service": GroupVersionResource("", "v1", "services"),
    "PodDisruptionBudget": GroupVersionResource("policy", "v1", "poddisruptionbudgets"),
    "Deployment": DEPLOYMENTS,
    "StatefulSet": GroupVersionResource("apps", "v1", "statefulsets"),
    "DaemonSet": GroupVersionResource("apps", "v1", "daemonsets"),
    "Job": GroupVersionResource("batch", "v1", "jobs"),
    "CronJob": GroupVersionResource("batch", "v1", "cronjobs"),
}
SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
APPLICATIONS: Final = 4
RUNNING: Final = 6
"""Pods of an application: two of its web, and one that failed once, has data, is on every node, is
of a Job; another Job is over."""
SERVING: Final = 5
"""Those that are behind its Service: not those of Jobs. They all have the address of the node."""
SLEEPS: Final = "sleep 100000"
FAILS_ONCE: Final = f"test -f /once/done && {SLEEPS}; touch /once/done; exit 1"
"""Its container was restarted before anybody came: the count must not change, and is not 0."""


def pods_of(name: str, script: str, **more: Any) -> Object:
    """Return the template of pods that use an application's settings, Secret and account."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "envFrom": [{"configMapRef": {"name": name}}],
        "volumeMounts": [
            {"name": "secret", "mountPath": "/secret"},
            {"name": "once", "mountPath": "/once"},
        ],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
    }
    volumes = [
        {"name": "secret", "secret": {"secretName": name}},
        {"name": "once", "emptyDir": {}},
    ]
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "serviceAccountName": name,
        "containers": [container],
        "volumes": volumes,
        **more,
    }
    return {"metadata": {"labels": {}}, "spec": spec}


def application(number: int, disks: Path) -> list[Object]:
    """Return an application of every kind of workload, with what belongs to it."""
    name = f"app-{number}"

    def of(api_version: str, kind: str, name: str = name, **parts: Any) -> Object:
        metadata = {"name": name, "namespace": SHOP, "labels": {"app": name}}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}

    def rolling(name: str, script: str = SLEEPS, **more: Any) -> Object:
        template = pods_of(name, script)
        labels = template["metadata"]["labels"] = {"app": name, "part": more.pop("part")}
        return {"selector": {"matchLabels": labels}, "template": template, **more}

    size = {"requests": {"storage": "1Mi"}}
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    claim = {"metadata": {"name": "data"}, "spec": {**modes, "resources": size}}
    disk = {
        **modes,
        "capacity": size["requests"],
        "hostPath": {"path": str(disks / name)},
        "claimRef": {"namespace": SHOP, "name": f"data-{name}-db-0"},
    }
    ports = [{"port": 80, "targetPort": 8080}]
    database = rolling(name, part="db", replicas=1, serviceName=name, volumeClaimTemplates=[claim])
    once = pods_of(name, SLEEPS, restartPolicy="Never")
    done = pods_of(name, "echo done", restartPolicy="Never")
    nightly = {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": {"template": done}}}
    volume = of("v1", "PersistentVolume", spec=disk)
    del volume["metadata"]["namespace"]
    return [
        volume,
        of("v1", "ServiceAccount"),
        of("v1", "ConfigMap", data={"LEVEL": str(number)}),
        of("v1", "Secret", stringData={"password": f"of {name}"}),
        of("v1", "Service", spec={"selector": {"app": name}, "ports": ports}),
        of(
            "policy/v1",
            "PodDisruptionBudget",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": name, "part": "web"}}},
        ),
        of("apps/v1", "Deployment", f"{name}-web", spec=rolling(name, part="web", replicas=2)),
        of(
            "apps/v1",
            "Deployment",
            f"{name}-flaky",
            spec=rolling(name, FAILS_ONCE, part="flaky", replicas=1),
        ),
        of("apps/v1", "StatefulSet", f"{name}-db", spec=database),
        of("apps/v1", "DaemonSet", f"{name}-agent", spec=rolling(name, part="agent")),
        of("batch/v1", "Job", f"{name}-runs", spec={"template": once}),
        of("batch/v1", "Job", f"{name}-is-over", spec={"template": done}),
        of("batch/v1", "CronJob", f"{name}-nightly", spec=nightly),
    ]


def is_at_rest(live: Object) -> bool:
    """Whether nothing more happens to a workload by itself."""
    status: Object = live.get("status") or {}
    match live["kind"]:
        case "Deployment" | "StatefulSet":
            return is_rolled_out(live)
        case "DaemonSet":
            return status.get("numberReady") == 1
        case "Job" if name_of(live).endswith("is-over"):
            return is_true(status.get("conditions"), "Complete")
        case "Job":
            return status.get("ready") == 1
        case "PodDisruptionBudget":
            return status.get("currentHealthy") == status.get("expectedPods") == 2
        case "PersistentVolume":
            return status.get("phase") == "Bound"
        case _:
            return True


@dataclass
class Member:
    """A cluster with one node, this machine, and a hub that knows it."""

    client: ClusterClient
    runtime: Runtime
    directory: Path
    objects: list[Object]

    async def clusterspace(self, *words: str) -> str:
        """Type a command of ours at the hub; it must succeed."""
        hub = ("--kubeconfig", str(self.directory / "hub" / "kubeconfig"))
        typed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "clusterspace", *words, *hub),
            *("--allow-member-cidrs", "127.0.0.0/8"),
            cwd=self.directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await typed.communicate()
        assert typed.returncode == 0, said.decode()
        return said.decode()

    async def contents(self) -> dict[str, Object]:
        """Return the objects, without what no undo can give back."""
        found: dict[str, Object] = {}
        for each in self.objects:
            live = await self.client.get(path_of(each))
            live = without_value(live, "status", "observedGeneration")
            counted: dict[str, Any] = dict.fromkeys(
                ("resourceVersion", "managedFields", "generation")
            )
            found[f"{each['kind']} {name_of(each)}"] = with_metadata(live, **counted)
        return found

    async def pods(self) -> dict[str, Any]:
        """Return what must not change of pods, as the member's API has it."""
        return {
            name_of(each): (
                each["metadata"]["uid"],
                find_at(each, "status", "startTime"),
                [
                    (status["containerID"], status["restartCount"])
                    for status in find_at(each, "status", "containerStatuses") or ()
                ],
            )
            for each in await self.client.list_objects(ResourcePath(PODS, SHOP))
        }

    async def unrest(self) -> list[str]:
        """Return what is not at rest yet: workloads, and Services that do not know their pods."""
        seen = [await self.client.get(path_of(each)) for each in self.objects]
        restless = [f"{each['kind']} {name_of(each)}" for each in seen if not is_at_rest(each)]
        for each in await self.client.list_objects(ResourcePath(SLICES, SHOP)):
            endpoints: list[Object] = each.get("endpoints") or []
            ready = [it for it in endpoints if find_at(it, "conditions", "ready")]
            if len(endpoints) != len(ready) or len(ready) != SERVING:
                restless.append(f"EndpointSlice {name_of(each)}")
        return restless


def path_of(body: Object) -> ResourcePath:
    return ResourcePath(
        RESOURCES[body["kind"]], body["metadata"].get("namespace", ""), name_of(body)
    )


@pytest.fixture
async def member(tmp_path: Path) -> AsyncGenerator[Member]:
    directory = tmp_path / WEST
    directory.mkdir()
    (tmp_path / "node").mkdir()
    authority = directory / "certificates" / "apiserver.crt"
    kubeconfig = directory / "controllers.kubeconfig"
    flags = (f"--root-ca-file={authority}", "--node-monitor-grace-period=24h")
    async with (
        running_fleet(tmp_path) as fleet,
        real_server_for_test(directory, name=WEST, without="") as real,
        client_for_test(real.settings) as client,
        real_controllers_for_test(real, directory, "*", flags=flags),
        real_component_for_test(
            "kube-scheduler", directory, f"--kubeconfig={kubeconfig}", "--secure-port=0"
        ),
        running_node(client, kubeconfig, tmp_path / "node") as runtime,
        fleet.controllers(),
    ):
        await client.create(ResourcePath(NAMESPACES), namespace(SHOP), KUBECTL)
        objects = [each for n in range(APPLICATIONS) for each in application(n, tmp_path / "disks")]
        for each in objects:
            await client.create(path_of(each).collection, each, KUBECTL)
        member = Member(client, runtime, tmp_path, objects)

        async def is_running() -> bool:
            return not await member.unrest()

        try:
            await until(is_running, PATIENCE, explain=member.unrest)
            await fleet.join(WEST, Side(real.settings, client))
            await until_ready(fleet, WEST)
            yield member
        finally:
            # The kubelet ends the containers before it is ended itself.
            await delete(client, ResourcePath(NAMESPACES, "", SHOP))

            async def is_empty() -> bool:
                return not await client.list_objects(ResourcePath(PODS, SHOP))

            await until(is_empty, PATIENCE)


async def test_no_container_of_a_node_notices_that_its_cluster_comes_and_goes(
    member: Member,
) -> None:
    before, pods, tasks = await member.contents(), await member.pods(), await member.runtime.tasks()
    assert len(pods) == (RUNNING + 1) * APPLICATIONS
    restarts = [count for _, _, containers in pods.values() for _, count in containers]
    assert sum(restarts) == APPLICATIONS
    ids = {each.removeprefix("containerd://") for _, _, run in pods.values() for each, _ in run}
    started = {each for each, (_, state) in tasks.items() if state == "RUNNING"}
    assert len(ids & started) == RUNNING * APPLICATIONS

    async def assert_nothing_moved() -> None:
        assert await member.runtime.tasks() == tasks
        assert await member.pods() == pods
        proof = await member.clusterspace("migrate", "prove", "west-1")
        assert proof.startswith("Nothing changed: "), proof

    plan = ("migrate", "plan", "-C", WEST, "--name", "west-1", "-f", "west.yaml")
    summary = await member.clusterspace(*plan)
    # All that was made here, its namespace, and the claims of the StatefulSets.
    count = len(member.objects) + 1 + APPLICATIONS
    assert f"{count} of {count} objects of west would be taken" in summary, summary
    said = await member.clusterspace("migrate", "apply", "west.yaml")
    assert f"migration west-1: {count} taken" in said
    await assert_nothing_moved()

    said = await member.clusterspace("migrate", "undo", "west-1")
    assert f"migration west-1: {count} undone" in said
    await assert_nothing_moved()
    assert differences(before, await member.contents()) == []
