"""A real kubelet runs real containers for our hub; Kubernetes' other components stand beside it.

The containers share the network of this machine, so nothing of it is changed. Needed besides the
components: containerd and runc, a static busybox to make an image of, and root.
"""

import asyncio
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from tests.conformance.test_kubernetes_components import manager_flags, scheduler_flags

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, PODS, namespace
from clusterspace.testing.hubs import (
    client_for_test,
    free_port,
    hub_for_test,
    real_component_for_test,
    real_program_for_test,
)
from clusterspace.testing.steps import delete, edit, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

NODES: Final = GroupVersionResource("", "v1", "nodes")
IMAGE: Final = "docker.io/test/busybox:1"
PAUSE: Final = "docker.io/test/pause:1"
PATIENCE: Final = 120.0


def image_of(busybox: str, reference: str, command: list[str]) -> bytes:
    """Return an archive as `docker save` writes it, of one layer with busybox and a shell in it."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "sleep", "cat", "echo"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    saved = BytesIO()
    with tarfile.open(fileobj=saved, mode="w") as archive:
        parts = {"config.json": config, "manifest.json": manifest}
        files = {name: json.dumps(part).encode() for name, part in parts.items()}
        for name, content in {**files, "layer.tar": layer.getvalue()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    return saved.getvalue()


def containerd_config(directory: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""
version = 2
root = "{directory}/root"
state = "{directory}/state"
[grpc]
address = "{directory}/containerd.sock"
[{cri}]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[{cri}.cni]
conf_dir = "{directory}/cni"
[{cri}.containerd]
snapshotter = "native"
"""


def kubelet_config(socket: Path) -> Object:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "port": free_port(),
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "failSwapOn": False,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "1Mi"},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    """A hub whose one node is this machine."""
    busybox = shutil.which("busybox")
    if os.geteuid() != 0 or busybox is None or shutil.which("runc") is None:
        pytest.skip("a kubelet needs root, runc and busybox")
    directory = tmp_path_factory.mktemp("hub")
    runtime = tmp_path_factory.mktemp("ctr")
    (runtime / "cni").mkdir()
    loopback = {"cniVersion": "0.4.0", "name": "lo", "type": "loopback"}
    (runtime / "cni" / "10.conf").write_text(json.dumps(loopback))
    (runtime / "containerd.toml").write_text(containerd_config(runtime))
    socket, settings_file = runtime / "containerd.sock", runtime / "kubelet.json"
    settings_file.write_text(json.dumps(kubelet_config(socket)))
    flags = (
        f"--kubeconfig={directory / 'kubeconfig'}",
        f"--config={settings_file}",
        f"--root-dir={runtime / 'kubelet'}",
        "--hostname-override=here",
    )
    pki = directory / "pki"
    async with (
        hub_for_test(directory) as settings,
        client_for_test(settings) as client,
        real_component_for_test("kube-controller-manager", directory, *manager_flags(pki)),
        real_component_for_test("kube-scheduler", directory, *scheduler_flags(pki)),
        real_program_for_test("containerd", runtime, f"--config={runtime / 'containerd.toml'}"),
    ):
        await until(socket.exists, seconds=PATIENCE)
        await until(lambda: import_images(socket, busybox), seconds=PATIENCE)
        async with mounts_taken_back(runtime), real_component_for_test("kubelet", runtime, *flags):
            await client.create(ResourcePath(NAMESPACES), namespace("shop"))
            await until(lambda: is_ready(client), seconds=PATIENCE)
            yield client
            # The kubelet ends the containers before it is ended itself.
            await delete(client, ResourcePath(NAMESPACES, "", "shop"))
            await until(lambda: has_no_pods(client), seconds=PATIENCE)


def mounts_in(directory: Path) -> list[str]:
    """Return what is mounted in a directory, the innermost first."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((each for each in mounts if each.startswith(f"{directory}/")), reverse=True)


@asynccontextmanager
async def mounts_taken_back(directory: Path) -> AsyncGenerator[None]:
    """Unmount what is mounted in a directory at the end: a kubelet leaves its own mounted."""
    try:
        yield
    finally:
        for place in mounts_in(directory):
            unmounting = await asyncio.create_subprocess_exec("umount", place)
            await unmounting.wait()


async def import_images(socket: Path, busybox: str) -> bool:
    for reference, command in ((PAUSE, ["/bin/sleep", "1000000"]), (IMAGE, ["/bin/sh"])):
        importing = await asyncio.create_subprocess_exec(
            *("ctr", "--address", str(socket), "-n", "k8s.io", "images", "import", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await importing.communicate(image_of(busybox, reference, command))
        if importing.returncode:
            return False
    return True


async def is_ready(hub: ClusterClient) -> bool:
    node = await hub.find(ResourcePath(NODES, "", "here")) or {}
    return is_true(find_at(node, "status", "conditions"), "Ready")


async def has_no_pods(hub: ClusterClient) -> bool:
    return not await hub.list_objects(ResourcePath(PODS, "shop"))


def workload(name: str, script: str) -> Object:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
    }
    pod = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


async def pods_of(hub: ClusterClient, name: str) -> list[Object]:
    pods = await hub.list_objects(ResourcePath(PODS, "shop"))
    return [each for each in pods if name_of(each).startswith(f"{name}-")]


async def test_a_kubelet_runs_a_deployment_of_our_hub(hub: ClusterClient) -> None:
    await hub.create(ResourcePath(DEPLOYMENTS, "shop"), workload("web", "sleep 100000"))

    async def running() -> Object | None:
        pods = await pods_of(hub, "web")
        ready = (is_true(find_at(each, "status", "conditions"), "Ready") for each in pods)
        return pods[0] if pods and all(ready) else None

    pod = await until(running, seconds=PATIENCE)

    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["containerID"].startswith("containerd://")
    assert pod["spec"]["nodeName"] == "here"


async def test_a_container_that_fails_is_started_again(hub: ClusterClient) -> None:
    await hub.create(ResourcePath(DEPLOYMENTS, "shop"), workload("bad", "exit 3"))

    async def restarted() -> bool:
        pods = await pods_of(hub, "bad")
        counts = [find_at(each, "status", "containerStatuses") or [] for each in pods]
        return any(each["restartCount"] > 0 for statuses in counts for each in statuses)

    await until(restarted, seconds=PATIENCE)


async def test_a_pod_that_is_deleted_ends_and_another_takes_its_place(hub: ClusterClient) -> None:
    async def pods() -> set[str]:
        return {name_of(each) for each in await pods_of(hub, "web") if not is_being_deleted(each)}

    (before,) = await pods()
    await delete(hub, ResourcePath(PODS, "shop", before))

    async def replaced() -> bool:
        names = {name_of(each) for each in await pods_of(hub, "web")}
        return before not in names and len(names) == 1

    await until(replaced, seconds=PATIENCE)


async def test_a_new_state_is_rolled_out_to_the_node(hub: ClusterClient) -> None:
    place = ResourcePath(DEPLOYMENTS, "shop", "web")
    changed = workload("web", "sleep 200000")["spec"]["template"]
    await edit(hub, place, lambda live: {**live, "spec": {**live["spec"], "template": changed}})

    async def rolled_out() -> bool:
        live = await hub.get(place)
        status, generation = live.get("status") or {}, live["metadata"]["generation"]
        is_seen = status.get("observedGeneration") == generation
        return is_seen and status.get("availableReplicas") == status.get("updatedReplicas") == 1

    await until(rolled_out, seconds=PATIENCE)
