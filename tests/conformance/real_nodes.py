"""A node of this machine: containerd, and a kubelet that runs containers for any API server.

The containers share the network of this machine, so nothing of it is changed. Needed besides the
kubelet: containerd and runc, a static busybox to make an image of, and root.
"""

import asyncio
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import free_port, real_component_for_test, real_program_for_test
from clusterspace.testing.steps import until

NODES: Final = GroupVersionResource("", "v1", "nodes")
NODE: Final = "here"
IMAGE: Final = "docker.io/test/busybox:1"
PAUSE: Final = "docker.io/test/pause:1"
PATIENCE: Final = 120.0
_COMMANDS: Final = ("sh", "sleep", "cat", "echo", "test", "touch")


@dataclass(frozen=True)
class Runtime:
    """The containerd of a node."""

    socket: Path

    async def ctr(self, *words: str, stdin: bytes | None = None) -> tuple[int, str]:
        """Ask containerd itself, past every kubelet; return its exit code and what it said."""
        asking = await asyncio.create_subprocess_exec(
            *("ctr", "--address", str(self.socket), "-n", "k8s.io", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said, _ = await asking.communicate(stdin)
        return asking.returncode or 0, said.decode()

    async def tasks(self) -> dict[str, tuple[str, str]]:
        """Return the process and the state of every container that was started, by its ID."""
        code, said = await self.ctr("tasks", "ls")
        assert code == 0
        rows = [line.split() for line in said.splitlines()[1:]]
        return {container: (process, state) for container, process, state in rows}


@asynccontextmanager
async def running_node(
    client: ClusterClient, kubeconfig: Path, directory: Path
) -> AsyncGenerator[Runtime]:
    """Make this machine the node of an API server; skip the asking test where that cannot be.

    Whoever asks ends the pods before the block ends: the kubelet ends their containers.
    """
    busybox = shutil.which("busybox")
    if os.geteuid() != 0 or busybox is None or shutil.which("runc") is None:
        pytest.skip("a kubelet needs root, runc and busybox")
    (directory / "cni").mkdir()
    loopback = {"cniVersion": "0.4.0", "name": "lo", "type": "loopback"}
    (directory / "cni" / "10.conf").write_text(json.dumps(loopback))
    (directory / "containerd.toml").write_text(_containerd_config(directory))
    runtime, settings_file = Runtime(directory / "containerd.sock"), directory / "kubelet.json"
    settings_file.write_text(json.dumps(_kubelet_config(runtime.socket)))
    flags = (
        f"--kubeconfig={kubeconfig}",
        f"--config={settings_file}",
        f"--root-dir={directory / 'kubelet'}",
        f"--hostname-override={NODE}",
    )
    containerd = f"--config={directory / 'containerd.toml'}"
    async with real_program_for_test("containerd", directory, containerd):
        await until(runtime.socket.exists, seconds=PATIENCE)
        await until(lambda: _import_images(runtime, busybox), seconds=PATIENCE)
        async with (
            _mounts_taken_back(directory),
            real_component_for_test("kubelet", directory, *flags),
        ):
            await until(lambda: _is_ready(client), seconds=PATIENCE)
            yield runtime


def _image_of(busybox: str, reference: str, command: list[str]) -> bytes:
    """Return an archive as `docker save` writes it, of one layer with busybox and a shell in it."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in _COMMANDS:
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


async def _import_images(runtime: Runtime, busybox: str) -> bool:
    for reference, command in ((PAUSE, ["/bin/sleep", "1000000"]), (IMAGE, ["/bin/sh"])):
        image = _image_of(busybox, reference, command)
        code, _ = await runtime.ctr("images", "import", "-", stdin=image)
        if code:
            return False
    return True


def _containerd_config(directory: Path) -> str:
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


def _kubelet_config(socket: Path) -> Object:
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


def _mounts_in(directory: Path) -> list[str]:
    """Return what is mounted in a directory, the innermost first."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((each for each in mounts if each.startswith(f"{directory}/")), reverse=True)


@asynccontextmanager
async def _mounts_taken_back(directory: Path) -> AsyncGenerator[None]:
    """Unmount what is mounted in a directory at the end: a kubelet leaves its own mounted."""
    try:
        yield
    finally:
        for place in _mounts_in(directory):
            unmounting = await asyncio.create_subprocess_exec("umount", place)
            await unmounting.wait()


async def _is_ready(client: ClusterClient) -> bool:
    node = await client.find(ResourcePath(NODES, "", NODE)) or {}
    return is_true(find_at(node, "status", "conditions"), "Ready")
