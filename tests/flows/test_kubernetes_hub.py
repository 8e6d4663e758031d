"""A kube-apiserver as the hub: `clusterspace init`, and the stories of a fleet told on it."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from tests.flows.stages import resource_path_of

from clusterspace.apiserver.kubernetes_hub.promises import PROMISES, SHORTFALLS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, find_at, uid_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.hub_rules import examine_rules
from clusterspace.roots.init import InitRequest, initialize
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.hubs import KUBERNETES
from clusterspace.testing.stage import Fleet, running_fleet, until_ready
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEB = ResourcePath(DEPLOYMENTS, "default", "web")
SELECTOR = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
POLICY: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "resourceSelectors": [SELECTOR],
        "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
    },
}
OVERRIDE: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "OverridePolicy",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "resourceSelectors": [SELECTOR],
        "overrideRules": [
            {
                "targetCluster": {"clusterNames": ["west"]},
                "overriders": {
                    "plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 2}]
                },
            }
        ],
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    async with AsyncExitStack() as stack:
        running = running_fleet(tmp_path_factory.mktemp("fleet"), hub_kind=KUBERNETES)
        made = await stack.enter_async_context(running)
        await stack.enter_async_context(made.controllers())
        yield made


async def test_a_workload_goes_out_with_its_override_and_its_status_comes_back(
    fleet: Fleet,
) -> None:
    west = await fleet.add_sim("west", nodes=1)
    await fleet.join("west", west)
    await until_ready(fleet, "west")
    hub = fleet.hub.client
    for each in (OVERRIDE, deployment("web", replicas=1), POLICY):
        await hub.create(resource_path_of(each).collection, each)

    placed = await until(lambda: west.client.find(WEB))
    assert find_at(placed, "spec", "replicas") == 2

    async def is_told() -> bool:
        template = await hub.get(WEB)
        return find_at(template, "status", "readyReplicas") == 2

    await until(is_told)
    await fleet.unjoin("west", member=west.settings)
    assert await hub.find(manifests.cluster_path("west")) is None
    assert await west.client.find(WEB) is None


async def test_doctor_says_which_rules_hold_and_which_cannot(fleet: Fleet) -> None:
    reports = [report async for report in examine_rules(fleet.hub.client)]

    assert [each.says for each in reports if each.is_bad] == []
    assert len([each for each in reports if each.holds]) == len(PROMISES)
    assert len([each for each in reports if not each.holds]) == len(SHORTFALLS)


async def test_doctor_names_a_rule_that_somebody_took_away(fleet: Fleet) -> None:
    hub, name = fleet.hub.client, "clusterspace-permanent-ids"
    bindings = GroupVersionResource(
        "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"
    )
    place = ResourcePath(bindings, name=name)
    await hub.delete(place, DeleteOptions(uid_of(await hub.get(place))))
    try:
        reports = [report async for report in examine_rules(hub)]
    finally:
        await initialize(InitRequest(), fleet.hub.settings, fleet.messages.append)

    (bad,) = [each for each in reports if each.is_bad]
    assert bad.says == f"permanent IDs: policy {name} is missing or was changed"
    assert bad.advice == "run `clusterspace init` again"
