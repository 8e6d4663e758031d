"""`clusterspace top`: the first screen of the page, in a terminal, in a pipe and for scripts."""

import asyncio
import json
import os
import pty
import re
import struct
import termios
from collections.abc import AsyncIterator
from fcntl import ioctl
from pathlib import Path

import pytest_asyncio
from click.testing import CliRunner, Result

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.cli.main import main
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.fleet.membership.manifests import cluster_path
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.quick_commands import quick_commands
from clusterspace.testing.steps import until

BINDINGS = GroupVersionResource("work.karmada.io", "v1alpha2", "resourcebindings")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
STEERING = "\x1b[2J\x1b]0;owned\x07"
"""What clears a terminal and names its window."""


@pytest_asyncio.fixture
async def hub(tmp_path: Path) -> AsyncIterator[ClusterClient]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as client:
        for name in ("east", "west"):
            await add_cluster(client, name)
        yield client


async def add_cluster(hub: ClusterClient, name: str) -> None:
    spec = {"syncMode": "Pull", "id": name}
    made = {"apiVersion": CLUSTERS.api_version, "kind": "Cluster", "metadata": {"name": name}}
    await hub.create(ResourcePath(CLUSTERS), {**made, "spec": spec})
    await say_ready(hub, name, "True")


async def say_ready(hub: ClusterClient, name: str, ready: str, message: str = "") -> None:
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "ByTest",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    place = cluster_path(name)
    current = await hub.get(place)
    status = ResourcePath(place.resource, place.namespace, place.name, "status")
    await hub.update(status, {**current, "status": {"conditions": [condition]}})


async def place_unapplied(hub: ClusterClient, name: str, message: str) -> None:
    if await hub.find(ResourcePath(NAMESPACES, name="shop")) is None:
        await hub.create(ResourcePath(NAMESPACES), namespace("shop"))
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name}
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": "ResourceBinding",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"resource": resource, "clusters": [{"name": "east"}]},
    }
    made = await hub.create(ResourcePath(BINDINGS, "shop"), binding)
    reported = {"clusterName": "east", "applied": False, "appliedMessage": message}
    status = ResourcePath(BINDINGS, "shop", name, "status")
    await hub.update(status, {**made, "status": {"aggregatedStatus": [reported]}})


async def top(tmp_path: Path, *words: str) -> Result:
    arguments = ["top", *words, "--kubeconfig", str(tmp_path / "kubeconfig")]
    return await asyncio.to_thread(CliRunner().invoke, main, arguments)


async def test_a_script_learns_by_the_exit_code_whether_something_is_broken(
    hub: ClusterClient, tmp_path: Path
) -> None:
    well = await top(tmp_path, "--once")
    await say_ready(hub, "west", "False", "its API server refuses")
    broken = await top(tmp_path, "--once")

    assert well.exit_code == 0
    assert "nothing is broken, as far as is known · 2 clusters: 2 well" in well.output
    assert broken.exit_code == 1
    assert re.search(r"Unwell +Cluster west +its API server refuses", broken.output)
    assert broken.output.index("Unwell") < broken.output.index("CLUSTER")


async def test_the_same_is_there_for_programs(hub: ClusterClient, tmp_path: Path) -> None:
    await place_unapplied(hub, "settings", "it exists already")

    found = json.loads((await top(tmp_path, "-o", "json")).output)

    assert [each["what"] for each in found["problems"]] == ["ConfigMap shop/settings"]
    assert found["problems"][0]["why"] == "it exists already"
    assert [(each["name"], each["failing"]) for each in found["clusters"]] == [
        ("east", 1),
        ("west", 0),
    ]


async def test_words_narrow_what_is_shown(hub: ClusterClient, tmp_path: Path) -> None:
    await place_unapplied(hub, "settings", "it exists already")
    await say_ready(hub, "west", "Unknown", "no heartbeat")

    shown = (await top(tmp_path, "--once", "WEST")).output

    assert "no heartbeat" in shown
    assert "settings" not in shown


async def test_a_hub_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    async with hub_for_test(tmp_path):
        pass  # its kubeconfig stays

    answer = await top(tmp_path, "--once")

    assert answer.exit_code == 1
    assert len(answer.output.strip().splitlines()) == 1
    assert "does it run?" in answer.output


async def test_what_a_member_writes_does_not_steer_the_terminal(
    hub: ClusterClient, tmp_path: Path
) -> None:
    await place_unapplied(hub, "settings", f"before {STEERING} behind")
    await say_ready(hub, "west", "False", STEERING)

    shown = (await top(tmp_path, "--once")).output

    assert "behind" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


async def test_in_a_pipe_what_breaks_and_what_is_mended_is_a_line_each(
    hub: ClusterClient, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        quick_commands() / "clusterspace", "top", "--kubeconfig", str(tmp_path / "kubeconfig"),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    lines = process.stdout
    try:
        async with asyncio.timeout(60):
            while not (await lines.readline()).startswith(b"west"):
                pass
            await say_ready(hub, "west", "False", "it refuses")
            broken = (await lines.readline()).decode()
            await say_ready(hub, "west", "True")
            mended = (await lines.readline()).decode()
    finally:
        process.terminate()
        await process.wait()

    assert broken == "broken  Unwell  Cluster west  -  it refuses\n"
    assert mended == "mended  Unwell  Cluster west  -  it refuses\n"


async def test_in_a_terminal_of_80_columns_it_is_drawn_as_it_changes_until_q(
    hub: ClusterClient, tmp_path: Path
) -> None:
    await place_unapplied(hub, "settings", "a reason " * 30)
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    drawn = bytearray()
    os.set_blocking(ours, False)
    asyncio.get_running_loop().add_reader(ours, lambda: drawn.extend(_read(ours)))
    process = await asyncio.create_subprocess_exec(
        quick_commands() / "clusterspace", "top", "--kubeconfig", str(tmp_path / "kubeconfig"),
        stdin=theirs, stdout=theirs, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    try:

        def has(text: str) -> bool:
            return text in _plain(drawn)

        await until(lambda: _when(has("q ends")))
        await say_ready(hub, "west", "Unknown", "no heartbeat")
        await until(lambda: _when(has("no heartbeat")))
        os.write(ours, b"q")
        async with asyncio.timeout(60):
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)

    lines = [each for each in _plain(drawn).splitlines() if "CLUSTER " in each or "east" in each]
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert "FAILING" in _plain(drawn), "every column has a place"


def _plain(drawn: bytearray) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode(errors="replace"))


def _read(number: int) -> bytes:
    try:
        return os.read(number, 65536)
    except OSError:
        return b""  # whoever wrote there has left


async def _when(is_so: bool) -> bool:
    return is_so
