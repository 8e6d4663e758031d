"""`clusterspace init` on Karmada's own control plane: its definitions, and Clusters served beside.

Whoever has Karmada says where its programs are in KARMADA_ASSETS, and where its sources are in
CONFORMANCE_KARMADA_TREE; neither is part of this project.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from tests.conformance.real_karmada import (
    definitions_of_karmada,
    front_proxy_flags,
    karmada_kinds,
)
from tests.flows.test_kubernetes_hub import POLICY, WEB

from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import CannotInstall
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.roots.hub_rules import examine_rules
from clusterspace.roots.init import Action, InitRequest, initialize, place_of
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.hubs import (
    client_for_test,
    kubernetes_hub_for_test,
)
from clusterspace.testing.stage import Fleet, Side, until_ready
from clusterspace.testing.steps import edit, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    directory = tmp_path_factory.mktemp("karmada")
    hub = directory / "hub"
    hub.mkdir()
    flags = front_proxy_flags(hub)
    async with AsyncExitStack() as stack:
        running = kubernetes_hub_for_test(
            hub, flags=flags, beside=lambda it: karmada_kinds(it, hub)
        )
        settings = await stack.enter_async_context(running)
        client = await stack.enter_async_context(client_for_test(settings))
        made = Fleet(Side(settings, client), directory, stack)
        await stack.enter_async_context(made.controllers())
        yield made


async def test_karmadas_kinds_are_adopted_and_stay_as_they_are(fleet: Fleet) -> None:
    plan = await initialize(InitRequest(is_dry_run=True), fleet.hub.settings, lambda _: None)

    adopted = {name_of(step.manifest) for step in plan.steps if step.action is Action.ADOPT}
    theirs = definitions_of_karmada()
    served = {name_of(step.manifest) for step in plan.steps}
    assert {name_of(each) for each in theirs} & served <= adopted
    assert "clusters.cluster.karmada.io" in adopted
    for each in theirs:
        existing = await fleet.hub.client.get(place_of(each))
        assert find_at(existing, "metadata", "labels", "app.kubernetes.io/managed-by") is None


async def test_a_workload_is_placed_by_a_cluster_that_karmadas_server_keeps(fleet: Fleet) -> None:
    west = await fleet.add_sim("west", nodes=1)
    await fleet.join("west", west)
    await until_ready(fleet, "west")
    hub = fleet.hub.client
    await hub.create(WEB.collection, deployment("web", replicas=1))
    await hub.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)

    await until(lambda: west.client.find(WEB))

    async def is_told() -> bool:
        template = await hub.get(ResourcePath(DEPLOYMENTS, "default", "web"))
        return find_at(template, "status", "readyReplicas") == 1

    await until(is_told)


async def test_doctor_says_that_clusters_pass_none_of_the_rules(fleet: Fleet) -> None:
    reports = [each async for each in examine_rules(fleet.hub.client)]

    assert [each.says for each in reports if each.is_bad] == []
    assert any("extension servers" in each.says for each in reports if not each.holds)


async def test_a_version_of_karmada_that_nobody_here_knows_is_refused(fleet: Fleet) -> None:
    hub = fleet.hub.client
    (works,) = [
        each for each in definitions_of_karmada() if name_of(each) == "works.work.karmada.io"
    ]

    def with_later_version(existing: Object) -> Object:
        versions = existing["spec"]["versions"]
        later = {**versions[0], "name": "v9", "storage": False}
        return {**existing, "spec": {**existing["spec"], "versions": [*versions, later]}}

    await edit(hub, place_of(works), with_later_version)
    try:
        with pytest.raises(
            CannotInstall, match=r"works\.work\.karmada\.io is defined there with version v9"
        ):
            await initialize(InitRequest(), fleet.hub.settings, lambda _: None)
    finally:
        await edit(hub, place_of(works), lambda it: {**it, "spec": works["spec"]})
