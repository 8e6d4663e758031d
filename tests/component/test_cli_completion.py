"""What the Tab key offers in a shell and in kubectl, with a hub and without one."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.cli.main import main
from clusterspace.client.requests import ResourcePath
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.stage import PATIENCE

PROGRAMS = Path(sys.executable).parent


@pytest_asyncio.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """A hub with two clusters."""
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        for name in ("east", "west"):
            cluster = {
                "apiVersion": CLUSTERS.api_version,
                "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {"syncMode": "Push", "id": name, "apiEndpoint": "https://127.0.0.1:1"},
            }
            await hub_client.create(ResourcePath(CLUSTERS), cluster)
        yield tmp_path / "kubeconfig"


async def offered(line: str, kubeconfig: Path | str) -> list[str]:
    """Return what bash would offer at the end of this line."""
    words = line.split(" ")
    environment = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_CLUSTERSPACE_COMPLETE": "bash_complete",
        "KUBECONFIG": str(kubeconfig),
    }
    process = await asyncio.create_subprocess_exec(
        PROGRAMS / "clusterspace",
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        told, complaints = await process.communicate()
    assert complaints == b""
    return [each.removeprefix("plain,") for each in told.decode().split()]


async def test_clusters_are_offered_by_name(kubeconfig: Path) -> None:
    assert await offered("clusterspace cordon ", kubeconfig) == ["east", "west"]
    assert await offered("clusterspace unjoin w", kubeconfig) == ["west"]


async def test_kinds_are_offered_and_then_names(kubeconfig: Path) -> None:
    assert await offered("clusterspace why deploy", kubeconfig) == ["deployment"]
    assert "namespace/default" in await offered("clusterspace why namespace/d", kubeconfig)


async def test_a_hub_that_is_not_there_is_no_news(tmp_path: Path) -> None:
    assert await offered("clusterspace cordon ", tmp_path / "kubeconfig") == []


async def test_a_hub_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        kubeconfig.write_text(
            f"""\
apiVersion: v1
kind: Config
current-context: hub
contexts: [{{name: hub, context: {{cluster: hub, user: me}}}}]
clusters: [{{name: hub, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{}}}}]
"""
        )

        async with asyncio.timeout(10):
            assert await offered("clusterspace cordon ", kubeconfig) == []


async def test_verbs_and_options_need_no_hub() -> None:
    assert await offered("clusterspace cor", "") == ["cordon"]
    assert await offered("clusterspace hub --po", "") == ["--port"]


async def test_kubectl_completes_the_plug_in(kubeconfig: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the PATH")
    process = await asyncio.create_subprocess_exec(
        kubectl,
        "__complete",
        "clusterspace",
        "cordon",
        "w",
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        told, _ = await process.communicate()

    assert told.decode().splitlines() == ["west", ":4"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_read_by_it(shell: str, tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["completion", shell])
    assert "_CLUSTERSPACE_COMPLETE" in printed.output
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not on the PATH")
    script = tmp_path / "script"
    script.write_text(printed.output)

    subprocess.run([program, "-n", str(script)], check=True, timeout=PATIENCE)
