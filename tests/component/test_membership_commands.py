"""The commands people type, against a running hub: what they print and how they end."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from clusterspace.cli.commands.clusters import clusters, cordon, taint, uncordon
from clusterspace.cli.commands.membership import join, unjoin, unregister
from clusterspace.cli.commands.tokens import token
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import CannotJoin
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.membership import join_cluster
from clusterspace.roots.processes import serving_metrics
from clusterspace.testing.hubs import hub_for_test
from clusterspace.testing.quick_commands import quick_commands
from clusterspace.testing.stage import PATIENCE, Fleet, running_fleet
from clusterspace.testing.steps import until


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        await running.add_member("west")
        yield running


async def run(fleet: Fleet, command: click.Command, *words: str) -> Result:
    """Run a command as a shell would, beside the hub in this process."""
    hub = str(fleet.directory / "hub" / "kubeconfig")
    arguments = [*words, "--kubeconfig", hub]
    return await asyncio.to_thread(CliRunner().invoke, command, arguments)


async def join_west(fleet: Fleet, *words: str) -> Result:
    kubeconfig = str(fleet.directory / "west" / "kubeconfig")
    return await run(fleet, join, "west", "--cluster-kubeconfig", kubeconfig, *words)


async def test_a_join_tells_each_step_and_the_fleet_shows_the_cluster(fleet: Fleet) -> None:
    told = await join_west(fleet)
    assert told.exit_code == 0, told.output
    assert told.output.splitlines()[0] == "asking the member who it is"
    assert told.output.splitlines()[-1] == "cluster west joined"

    async with fleet.controllers():

        async def is_ready() -> bool:
            return (await fleet.ready("west"))[0] == "True"

        await until(is_ready)

    shown = (await run(fleet, clusters)).output.splitlines()
    assert shown[0].split()[:4] == ["NAME", "MODE", "READY", "VERSION"]
    assert shown[1].split()[:3] == ["west", "Push", "True"]

    left = await run(fleet, unjoin, "west")
    assert left.output.splitlines()[-1] == "cluster west has left"


async def test_a_dry_run_changes_nothing(fleet: Fleet) -> None:
    told = await join_west(fleet, "--dry-run", "--create-clusterproperty-not-exist", "true")

    assert "would create ClusterProperty id.k8s.io on the member" in told.output
    assert (await run(fleet, unjoin, "west")).exit_code == 1


async def test_cordon_and_taint_say_what_they_did(fleet: Fleet) -> None:
    await join_west(fleet)

    said = [
        (await run(fleet, cordon, "west")).output,
        (await run(fleet, cordon, "west")).output,
        (await run(fleet, uncordon, "west")).output,
        (await run(fleet, taint, "west", "team=a:NoSchedule")).output,
    ]

    assert said == [
        "west cluster cordoned\n",
        "west cluster already cordoned\n",
        "west cluster uncordoned\n",
        "cluster west tainted\n",
    ]
    assert await fleet.taints("west") == {"team:NoSchedule"}
    assert (await run(fleet, taint, "west", "team")).exit_code == 2


async def test_what_goes_wrong_is_told_in_a_sentence(fleet: Fleet) -> None:
    missing = await run(fleet, join, "west", "--cluster-kubeconfig", "/nowhere")
    unknown = await run(fleet, cordon, "nobody")

    assert missing.output == "Error: /nowhere: there is no such file\n"
    assert unknown.output == (
        'Error: hub: clusters.cluster.karmada.io "nobody" not found; '
        "`clusterspace clusters` shows those there are\n"
    )
    assert (missing.exit_code, unknown.exit_code) == (1, 1)


async def test_tokens_are_made_shown_and_taken_back(fleet: Fleet) -> None:
    made = (await run(fleet, token, "create", "west")).output.strip()
    shown = (await run(fleet, token, "list")).output.splitlines()
    deleted = await run(fleet, token, "delete", made)
    again = await run(fleet, token, "delete", made)

    token_id, _, secret_half = made.partition(".")
    assert shown[0].split() == ["TOKEN", "CLUSTER", "STATE", "EXPIRES"]
    assert shown[1].split()[:3] == [token_id, "west", "unused"]
    assert secret_half not in "".join(shown)
    assert deleted.output == f"token {token_id} deleted\n"
    assert again.output == f"Error: there is no token {token_id}\n"


async def test_a_name_that_is_too_long_for_an_agent_is_refused_in_a_sentence(
    fleet: Fleet,
) -> None:
    refused = await run(fleet, token, "create", "x" * 45)

    assert "has room for a name of 43 characters, and this one has 45" in refused.output
    assert refused.exit_code == 1


async def test_unregister_asks_for_the_members_kubeconfig_unless_forced(fleet: Fleet) -> None:
    refused = await run(fleet, unregister, "west")

    assert "--cluster-kubeconfig is needed to take the agent down." in refused.output
    assert refused.exit_code == 2


async def test_controllers_without_a_hub_say_so_and_wait() -> None:
    waiting = await asyncio.create_subprocess_exec(
        *(quick_commands() / "clusterspace", "controllers", "--hub-kubeconfig", "/nowhere"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert waiting.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            said = (await waiting.stderr.readline()).decode()
        assert "waiting" in said
        assert "/nowhere: there is no such file" in said
        assert waiting.returncode is None
    finally:
        waiting.terminate()
        await waiting.communicate()


async def test_metrics_are_served_and_nothing_else() -> None:
    async with serving_metrics("127.0.0.1", 0) as port:
        codes = {
            path: await asyncio.to_thread(_code_of, f"http://127.0.0.1:{port}{path}")
            for path in ("/metrics", "/healthz", "/api")
        }

    assert codes == {"/metrics": 200, "/healthz": 200, "/api": 404}


def _code_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answered:
            return answered.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


async def test_a_join_that_reaches_nobody_names_the_address_it_tried(tmp_path: Path) -> None:
    nobody = ConnectionSettings(cluster="west", server="https://127.0.0.1:1")
    async with hub_for_test(tmp_path) as hub:
        with pytest.raises(CannotJoin, match=r"refused the connection at https://127\.0\.0\.1:1"):
            await join_cluster(JoinRequest("west", nobody), hub, lambda _: None)
