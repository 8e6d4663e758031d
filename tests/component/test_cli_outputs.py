"""Commands that show things, asked for every form."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner

from clusterspace import __version__
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.cli.main import main
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership.overview import row_of
from clusterspace.roots.local.files import ComponentRecord, LocalFiles, RunRecord
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.quick_commands import quick_commands
from clusterspace.testing.steps import until

WEST = {
    "apiVersion": CLUSTERS.api_version,
    "kind": "Cluster",
    "metadata": {"name": "west"},
    "spec": {"syncMode": "Push", "id": "w-1", "apiEndpoint": "https://127.0.0.1:1", "region": "eu"},
}


@pytest_asyncio.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        await hub_client.create(ResourcePath(CLUSTERS), WEST)
        yield tmp_path / "kubeconfig"


async def shown(kubeconfig: Path, *words: str) -> str:
    arguments = [*words, "--kubeconfig", str(kubeconfig)]
    told = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert told.exit_code == 0, told.output
    return told.output


async def test_clusters_in_every_form(kubeconfig: Path) -> None:
    documents = (
        json.loads(await shown(kubeconfig, "clusters", "-o", "json")),
        yaml.safe_load(await shown(kubeconfig, "clusters", "-o", "yaml")),
    )

    for each in documents:
        assert [item["metadata"]["name"] for item in each["items"]] == ["west"]
        assert "managedFields" not in each["items"][0]["metadata"]
    assert "w-1" not in await shown(kubeconfig, "clusters")
    assert "w-1" in await shown(kubeconfig, "clusters", "-o", "wide")
    named = await shown(kubeconfig, "clusters", "-o", "name")
    assert named == "cluster.cluster.karmada.io/west\n"


async def test_tokens_in_every_form(kubeconfig: Path) -> None:
    token = await shown(kubeconfig, "token", "create", "east")
    token_id = token.partition(".")[0]

    (told,) = json.loads(await shown(kubeconfig, "token", "list", "-o", "json"))

    assert (told["token_id"], told["cluster_name"], told["state"]) == (token_id, "east", "unused")
    assert await shown(kubeconfig, "token", "list", "-o", "name") == f"{token_id}\n"
    assert token_id in await shown(kubeconfig, "token", "list")


async def test_watching_clusters_into_a_file_writes_them_as_they_change(
    kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "seen"
    command = [quick_commands() / "clusterspace", "clusters", "--watch"]
    with file.open("wb") as output:
        watching = await asyncio.create_subprocess_exec(
            *command, "--kubeconfig", str(kubeconfig), stdout=output
        )
    try:
        await until(lambda: "west" in file.read_text())
        await shown(kubeconfig, "cordon", "west")
        await until(lambda: "unschedulable" in file.read_text())
        assert file.read_text().count("NAME") == 1
    finally:
        watching.terminate()
        await watching.wait()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("maintenance=today:NoSchedule",), "tainted"),
        (("maintenance-",), "untainted"),
        (("maintenance-",), "not changed"),
    ],
)
async def test_a_taint_that_is_removed_is_not_said_to_be_set(
    kubeconfig: Path, words: tuple[str, ...], said: str
) -> None:
    if said == "untainted":
        await shown(kubeconfig, "taint", "west", "maintenance=today:NoSchedule")

    assert await shown(kubeconfig, "taint", "west", *words) == f"cluster west {said}\n"


async def test_the_version_is_said_with_the_hubs(kubeconfig: Path) -> None:
    told = await shown(kubeconfig, "version")

    assert told.startswith(f"clusterspace {__version__} (Python ")
    assert "hub v1." in told
    document = json.loads(await shown(kubeconfig, "version", "-o", "json"))
    assert document["clusterspace"] == __version__
    assert document["hub"].startswith("v1.")


def test_a_version_is_said_where_there_is_no_hub(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["version", "--kubeconfig", str(tmp_path / "none")])

    assert told.exit_code == 0
    assert "hub unknown: " in told.output


@pytest.mark.parametrize(
    "words",
    [("up", "--hub-port", "99999"), ("up", "--fleet-port", "-1"), ("hub", "--port", "99999")],
)
def test_a_port_that_is_none_is_said_in_a_sentence(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(main, list(words))

    assert told.exit_code == 2
    assert f"Invalid value for '{words[1]}'" in told.output


def test_a_narrow_terminal_shows_clusters_without_pictures() -> None:
    cluster = {
        "metadata": {"name": "west"},
        "spec": {"syncMode": "Push"},
        "status": {
            "kubernetesVersion": "v1.35.0+clusterspace.0.1.0",
            "resourceSummary": {
                "allocatable": {"cpu": "24", "memory": "96Gi"},
                "allocated": {"cpu": "6"},
            },
        },
    }

    row = row_of(cluster, None, 0.0, has_bars=False)

    assert (row.version, row.cpu, row.memory) == ("v1.35.0", "25% of 24", "0% of 96Gi")


def test_watching_is_for_tables_only() -> None:
    told = CliRunner().invoke(main, ["clusters", "--watch", "-o", "json"])

    assert told.exit_code == 2
    assert "--watch shows a table" in told.output


def test_the_parts_of_a_local_fleet_in_every_form(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.prepare()
    hub = ComponentRecord("hub", "ready", pid=1, restarts=0, port=5443, log="hub.log")
    with files.locked():
        files.write_record(RunRecord(pid=1, started=0.0, is_ready=True, components=(hub,)))

        def status(output: str) -> str:
            arguments = ["status", "--data-dir", str(tmp_path), "-o", output]
            told = CliRunner().invoke(main, arguments)
            assert told.exit_code == 1
            return told.stdout

        # What is written down says ready, and nobody is there to say so.
        assert json.loads(status("json"))["parts"][0]["port"] == 5443
        assert yaml.safe_load(status("yaml"))["isWell"] is False
        assert status("name") == "hub\n"
        shown = status("wide").splitlines()[1]
        assert "could not be asked" in shown
        assert "127.0.0.1:5443" in shown
        assert shown.split()[-1] == "hub.log"


@pytest.mark.parametrize("verb", ["status", "logs"])
def test_without_a_local_fleet_the_next_step_is_said(verb: str, tmp_path: Path) -> None:
    part = ["hub"] if verb == "logs" else []

    told = CliRunner().invoke(main, [verb, *part, "--data-dir", str(tmp_path / "none")])

    assert told.exit_code == 1
    assert told.output.startswith("Error: ")
    assert len(told.output.splitlines()) == 1
