"""A policy that overwrites takes over what runs, and `why` proves what became of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.cli.commands.why import why
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.execution.evidence import noted_on
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.kube.objects import Object, uid_of, with_metadata, with_value
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEST, SHOP = "west", "shop"
WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")
SETTINGS = ResourcePath(CONFIG_MAPS, SHOP, "settings")


def policy() -> dict[str, Any]:
    kinds = (("apps/v1", "Deployment"), ("v1", "ConfigMap"))
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "shop", "namespace": SHOP},
        "spec": {
            "resourceSelectors": [{"apiVersion": group, "kind": kind} for group, kind in kinds],
            "placement": {"clusterAffinity": {"clusterNames": [WEST]}},
            "conflictResolution": "Overwrite",
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Fleet, Side]]:
    async with running_fleet(tmp_path_factory.mktemp("fleet")) as fleet, fleet.controllers():
        west = await fleet.add_sim(WEST, nodes=1)
        member, hub = west.client, fleet.hub.client
        for client in (member, hub):
            await client.create(ResourcePath(NAMESPACES), namespace(SHOP))
        await member.create(WEB.collection, deployment("web", replicas=2, namespace=SHOP))
        await until(lambda: _runs(member))
        await fleet.join(WEST, west)
        await until_ready(fleet, WEST)
        await hub.create(ResourcePath(PROPAGATION_POLICIES, SHOP), policy())
        yield fleet, west


async def _runs(member: Any) -> bool:
    pods = await member.list_objects(ResourcePath(PODS, SHOP))
    return [each["status"].get("phase") for each in pods] == ["Running"] * 2


async def asked(fleet: Fleet, *words: str) -> str:
    hub = ("--kubeconfig", str(fleet.directory / "hub" / "kubeconfig"))
    told = await asyncio.to_thread(CliRunner().invoke, why, [*words, "-n", SHOP, *hub])
    assert told.exit_code == 0, told.output
    return " ".join(told.output.split())


async def _work(fleet: Fleet, kind: str, name: str) -> Object | None:
    place = ResourcePath(WORKS, execution_namespace(WEST), stamps.work_name(kind, SHOP, name))
    return await fleet.hub.client.find(place)


async def test_what_ran_is_proved_to_run_still_and_what_does_not_is_said_first(
    running: tuple[Fleet, Side],
) -> None:
    fleet, west = running
    hub, member = fleet.hub.client, west.client
    before = {uid_of(each) for each in await member.list_objects(ResourcePath(PODS, SHOP))}

    template = deployment("web", replicas=2, namespace=SHOP)
    await hub.create(WEB.collection, template)

    async def is_taken() -> bool:
        return is_managed(await member.get(WEB))

    await until(is_taken)
    noted = noted_on(await _work(fleet, "Deployment", "web"))
    assert noted is not None
    assert {each.uid for each in noted.pods.values()} == before
    assert len(noted.replica_sets) == 1
    assert "ago: the same 2 pods, and no container restarted" in await asked(fleet, "deploy/web")

    container = {**template["spec"]["template"]["spec"]["containers"][0], "image": "web:2"}
    await edit(
        hub,
        WEB,
        lambda found: with_value(found, [container], "spec", "template", "spec", "containers"),
    )

    async def are_others() -> bool:
        pods = await member.list_objects(ResourcePath(PODS, SHOP))
        return not before & {uid_of(each) for each in pods}

    await until(are_others)
    assert "ago: 2 of 2 pods are gone or replaced, such as web-" in await asked(fleet, "deploy/web")


async def test_what_says_that_it_is_not_to_be_taken_is_not_and_has_no_proof(
    running: tuple[Fleet, Side],
) -> None:
    fleet, west = running
    mine = config_map("settings", {"a": "mine"}, namespace=SHOP)
    await west.client.create(SETTINGS.collection, mine)
    stays = with_metadata(mine, annotations={stamps.CONFLICT_RESOLUTION: "abort"})
    await fleet.hub.client.create(SETTINGS.collection, with_value(stays, {"a": "hub"}, "data"))

    async def is_told() -> bool:
        return "already exist" in await asked(fleet, "configmap/settings")

    await until(is_told)
    assert noted_on(await _work(fleet, "ConfigMap", "settings")) is None
    assert not is_managed(await west.client.get(SETTINGS))


async def test_what_the_hub_made_itself_was_not_taken_over(running: tuple[Fleet, Side]) -> None:
    fleet, west = running
    new = ResourcePath(CONFIG_MAPS, SHOP, "new")
    await fleet.hub.client.create(new.collection, config_map("new", {"a": "1"}, namespace=SHOP))

    async def is_there() -> bool:
        return await west.client.find(new) is not None

    await until(is_there)
    assert noted_on(await _work(fleet, "ConfigMap", "new")) is None
