"""A hub whose disk is really full: a small file system of its own, filled to the last byte."""

import subprocess
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import InternalError, ServiceUnavailable
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.hubs import free_port

CONFIG_MAPS = ResourcePath(GroupVersionResource("", "v1", "configmaps"), "default")
READ_ONLY = "the store is read-only until there is room on its disk"


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    mounting = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(tmp_path)]
    try:
        subprocess.run(mounting, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(disk: Path) -> Path:
    filling = disk / "fill"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    return filling


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def ready_text(client: ClusterClient) -> str:
    return (await client.connection.ask(ApiRequest("GET", "/readyz"))).body.decode()


def count(logs: Sequence[object], event: str) -> int:
    return sum(isinstance(each, dict) and each["event"] == event for each in logs)


@pytest.mark.sqlite("it fills the disk of the file")
async def test_a_hub_restarted_on_a_full_disk_is_read_only_and_says_so(
    small_disk: Path, logged_errors: list[str]
) -> None:
    settings = HubSettings(small_disk / "hub", port=free_port())
    with capture_logs() as logs:
        async with (
            running_hub(settings) as hub,
            open_client(hub_settings(hub.installation.kubeconfig)) as client,
        ):
            await client.create(CONFIG_MAPS, config_map("kept"))
            assert await ready_text(client) == "ok"
            filling = fill(small_disk)
            for number in range(5):
                with pytest.raises(InternalError, match="out of disk space"):
                    await client.create(CONFIG_MAPS, config_map(f"refused-{number}"))
            assert "read-only" in await ready_text(client)
    # One line, however many requests were refused.
    assert count(logs, READ_ONLY) == 1

    with capture_logs() as logs:
        async with (
            running_hub(settings) as hub,
            open_client(hub_settings(hub.installation.kubeconfig)) as client,
        ):
            assert await client.find(ResourcePath(CONFIG_MAPS.resource, "default", "kept"))
            assert "read-only" in await ready_text(client)
            with pytest.raises(ServiceUnavailable):
                await client.connection.ask(ApiRequest("GET", "/readyz/store-writes"))
            with pytest.raises(InternalError, match="out of disk space"):
                await client.create(CONFIG_MAPS, config_map("refused"))

            filling.unlink()
            await client.create(CONFIG_MAPS, config_map("written"))
            assert await ready_text(client) == "ok"
    assert count(logs, READ_ONLY) == 1
    assert not [each for each in logs if each["event"] == "task failed"]
