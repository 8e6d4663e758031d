"""Commands that stay may have as many open files as the operator's hard limit says."""

import asyncio
import re
import resource
import sys
from pathlib import Path

import pytest

from clusterspace.testing.steps import until_equal

SOFT = 256
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
"""
COMMANDS = {
    "hub": ("--data-dir", "data", "--port", "0"),
    "fleet": ("--data-dir", "data", "--port", "0", "--hub-kubeconfig", "kubeconfig"),
    "controllers": ("--hub-kubeconfig", "kubeconfig"),
    "agent": (
        *("--name", "west", "--cluster-kubeconfig", "kubeconfig"),
        *("--hub-kubeconfig", "kubeconfig"),
    ),
    "watchdog": ("--cluster-kubeconfig", "kubeconfig"),
    "sim": ("west", "--data-dir", "data", "--port", "0"),
    "up": ("--data-dir", "data"),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_that_stays_takes_the_files_it_may_have(
    tmp_path: Path, command: str
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clusterspace", command, *COMMANDS[command]),
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, hard)),
    )

    def soft_limit() -> int:
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        found = re.search(r"^Max open files +(\d+)", limits, re.MULTILINE)
        return int(found[1]) if found else 0

    try:
        await until_equal(soft_limit, hard)
    finally:
        process.terminate()
        await process.wait()
