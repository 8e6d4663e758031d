"""A cluster whose agent dials the hub is taken in and given back like any other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.component.migration.living import KUBECTL, SHOP, WEST

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.cli.commands.migrate import migrate
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.kube.objects import find_at, uid_of, with_metadata
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, PODS, deployment, namespace
from clusterspace.testing.stage import (
    Fleet,
    Side,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import edit, until

WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")


@pytest.fixture
async def dialling(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Side]]:
    async with running_fleet(tmp_path) as fleet, fleet.controllers():
        west = await fleet.add_sim(WEST, nodes=1)
        await west.client.create(ResourcePath(NAMESPACES), namespace(SHOP), KUBECTL)
        web = deployment("web", replicas=2, namespace=SHOP)
        await west.client.create(WEB.collection, web, KUBECTL)

        async def runs() -> bool:
            pods = await west.client.list_objects(ResourcePath(PODS, SHOP))
            return [find_at(each, "status", "phase") for each in pods] == ["Running"] * 2

        await until(runs)
        await register(fleet, WEST, west)
        async with running_agent(west):
            await until_ready(fleet, WEST)
            yield fleet, west


@pytest.mark.parametrize("is_by_kubeconfig", [False, True], ids=["tunnel", "kubeconfig"])
async def test_a_pull_member_is_migrated_through_its_tunnel_or_by_its_own_kubeconfig(
    dialling: tuple[Fleet, Side], tmp_path: Path, is_by_kubeconfig: bool
) -> None:
    fleet, west = dialling
    hub = ("--kubeconfig", str(fleet.directory / "hub" / "kubeconfig"))
    member = ("--cluster-kubeconfig", str(fleet.directory / WEST / "kubeconfig"))
    reach = member if is_by_kubeconfig else ()
    file = str(tmp_path / "plan.yaml")

    async def typed(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, migrate, [*words, *reach, *hub])

    async def pods() -> set[str]:
        return {uid_of(each) for each in await west.client.list_objects(ResourcePath(PODS, SHOP))}

    before = await pods()
    planned = await typed("plan", "-C", WEST, "-n", SHOP, "--name", "pull", "-f", file)
    assert planned.exit_code == 0, planned.output
    assert "2 of 2 objects of west would be taken" in " ".join(planned.output.split())
    applied = await typed("apply", file)
    assert applied.exit_code == 0, applied.output
    assert is_managed(await west.client.get(WEB))
    proved = await typed("prove", "pull")
    assert proved.exit_code == 0, proved.output

    undone = await typed("undo", "pull", "--restore")
    assert undone.exit_code == 0, undone.output
    assert not is_managed(await west.client.get(WEB))
    assert await pods() == before


async def test_a_pull_member_whose_agent_forbids_the_view_says_how_else_it_is_reached(
    dialling: tuple[Fleet, Side],
) -> None:
    fleet, _ = dialling
    path = ResourcePath(CLUSTERS, name=WEST)
    forbidden = {"clusterspace.io/view": "forbidden"}
    await edit(fleet.hub.client, path, lambda found: with_metadata(found, annotations=forbidden))
    hub = ("--kubeconfig", str(fleet.directory / "hub" / "kubeconfig"))

    async def refused() -> str:
        words = ["plan", "-C", WEST, "-n", SHOP, *hub]
        ran = await asyncio.to_thread(CliRunner().invoke, migrate, words)
        return " ".join(ran.output.split()) if ran.exit_code else ""

    assert "--cluster-kubeconfig" in await until(refused)
