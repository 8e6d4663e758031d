"""`status` and `doctor` ask the parts themselves: none is well because a file says so."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.settings import AuthInfo
from clusterspace.kube.objects import Object
from clusterspace.roots.clients import hub_settings
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.hub import running_hub
from clusterspace.roots.kubeconfigs import kubeconfig_of
from clusterspace.roots.local.doctor import Severity, examine_cluster
from clusterspace.roots.local.files import LocalFiles
from clusterspace.roots.local.parts import Whereabouts, ask_parts
from clusterspace.roots.settings import FleetSettings, HubSettings
from clusterspace.testing.quick_commands import quick_commands
from clusterspace.testing.stage import PATIENCE, quick
from clusterspace.testing.steps import stop, until

NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Result:
    exit_code: int
    output: str


async def clusterspace(*words: str) -> Result:
    """Run a command as a process: what the parts in this one log is not its output."""
    process = await asyncio.create_subprocess_exec(
        *(quick_commands() / "clusterspace", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        output, errors = await process.communicate()
    assert b"Traceback" not in errors, errors.decode()
    said = output if "-o" in words else output + errors
    return Result(process.returncode or 0, said.decode())


async def states(directory: Path) -> dict[str, str]:
    found = await ask_parts(LocalFiles(directory), Whereabouts(), SystemClock())
    return {each.name: each.state for each in found.parts}


@asynccontextmanager
async def frozen_server() -> AsyncGenerator[int]:
    """Run something that takes connections and never answers, as a process that was stopped."""

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in writers:
            each.close()


@pytest.mark.parametrize("verb", ["status", "doctor"])
async def test_where_nothing_runs_nothing_is_green(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)

    done = await clusterspace(verb, "--data-dir", str(tmp_path / "none"))

    assert done.exit_code == 1
    assert "clusterspace up" in done.output


async def test_parts_that_were_started_one_by_one_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    async with running_hub(HubSettings(tmp_path)) as hub:
        assert await states(tmp_path) == {
            "hub": "ready",
            "fleet": "could not be asked",
            "controllers": "does not run",
        }
        parts = hub.installation.component_kubeconfig
        settings = FleetSettings(hub_settings(parts("fleet")), tmp_path / "fleet")
        works = quick(hub_settings(parts("controllers")))
        async with running_fleet(settings):
            leading = asyncio.create_task(run_controllers(works, SystemClock()))

            async def all_ready() -> bool:
                return set((await states(tmp_path)).values()) == {"ready"}

            await until(all_ready)
            shown = await clusterspace("status", "--data-dir", str(tmp_path), "-o", "json")
            assert shown.exit_code == 0, shown.output
            assert json.loads(shown.output)["isWell"] is True
            well = await clusterspace("doctor", "--data-dir", str(tmp_path), "-o", "json")
            assert well.exit_code == 0, well.output
            await stop(leading)
        assert (await states(tmp_path))["fleet"] == "does not run"
        ill = await clusterspace("doctor", "--data-dir", str(tmp_path), "-o", "json")
        assert ill.exit_code == 1
        found = {each["subject"]: each for each in json.loads(ill.output)["findings"]}
        assert found["fleet"]["severity"] == "bad"
    assert set((await states(tmp_path)).values()) == {"does not run", "could not be asked"}


async def test_a_frozen_part_is_said_not_to_answer(tmp_path: Path) -> None:
    async with frozen_server() as port:
        server = f"https://127.0.0.1:{port}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_bytes(
            kubeconfig_of({"hub": server, "fleet": server + "/x"}, b"", AuthInfo(token="t"))
        )
        assert read_kubeconfig([kubeconfig]).contexts

        done = await clusterspace("status", "--kubeconfig", str(kubeconfig))

    assert done.exit_code == 1
    assert done.output.count("does not answer") == 3  # their lease is at the hub


def cluster(*conditions: Object, **metadata: object) -> Object:
    return {
        "metadata": {"name": "west", **metadata},
        "spec": {"syncMode": "Push"},
        "status": {"conditions": list(conditions)},
    }


READY = {"type": "Ready", "status": "True"}
LOST = {"type": "Ready", "status": "False", "reason": "ClusterNotReachable", "message": "gone"}
PAUSED = {"type": "DeletionsPaused", "status": "True", "message": "20 of 30"}
GOING = "2027-01-15T07:59:00Z"


@pytest.mark.parametrize(
    ("seen", "severity", "words"),
    [
        (cluster(READY), Severity.OK, "is Ready"),
        (cluster(LOST), Severity.BAD, "ClusterNotReachable"),
        (cluster(), Severity.WARNING, "has not reported yet"),
        (cluster(READY, deletionTimestamp=GOING), Severity.WARNING, "is leaving for 60s"),
        (cluster(LOST, deletionTimestamp=GOING), Severity.BAD, "does not answer"),
        (cluster(READY, deletionTimestamp="2027-01-15T07:50:00Z"), Severity.BAD, "does not end"),
        (cluster(READY, PAUSED), Severity.BAD, "deletions are paused: 20 of 30"),
    ],
)
def test_a_cluster_that_leaves_dead_or_deletes_nothing_is_not_green(
    seen: Object, severity: Severity, words: str
) -> None:
    *_, last = examine_cluster(seen, None, NOW)

    assert last.severity is severity
    assert words in last.seen
    assert last.advice or severity is Severity.OK


def test_without_controllers_nobody_knows_whether_a_cluster_is_still_ready() -> None:
    (found,) = examine_cluster(cluster(READY), None, NOW, is_watched=False)

    assert found.severity is Severity.WARNING


async def test_a_fleet_without_a_part_that_nothing_names_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    async with running_hub(HubSettings(tmp_path)) as hub:
        works = quick(hub_settings(hub.installation.component_kubeconfig("controllers")))
        leading = asyncio.create_task(run_controllers(works, SystemClock()))

        async def is_well() -> bool:
            done = await clusterspace("status", "--data-dir", str(tmp_path))
            assert "no kubeconfig says where it is" in done.output
            return done.exit_code == 0

        try:
            await until(is_well)
            said = await clusterspace("doctor", "--data-dir", str(tmp_path), "-o", "json")
            assert said.exit_code == 0, said.output
            found = {each["subject"]: each for each in json.loads(said.output)["findings"]}
            assert found["fleet"]["severity"] == "warning"
        finally:
            await stop(leading)
