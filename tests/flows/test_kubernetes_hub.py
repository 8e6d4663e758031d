"""A kube-apiserver as the hub: `clusterspace init`, and the stories of a fleet told on it."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from tests.flows.stages import resource_path_of

from clusterspace.apis.clusters import WORKS
from clusterspace.apis.quotas import FEDERATED_RESOURCE_QUOTAS
from clusterspace.apis.works import RESOURCE_BINDINGS, clusters_of
from clusterspace.apiserver.kubernetes_hub.agents import agent_objects
from clusterspace.apiserver.kubernetes_hub.promises import PROMISES, SHORTFALLS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.errors import CannotJoin, Forbidden
from clusterspace.fleet.membership import manifests
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    namespace_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.hub_rules import examine_rules
from clusterspace.roots.init import InitRequest, initialize, place_of
from clusterspace.roots.membership import register_cluster
from clusterspace.roots.tokens import create_token, delete_token, list_tokens
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, deployment
from clusterspace.testing.hubs import KUBERNETES
from clusterspace.testing.stage import (
    Fleet,
    as_agent,
    register,
    request_for,
    running_agent,
    running_fleet,
    unregister,
    until_ready,
)
from clusterspace.testing.steps import edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEB = ResourcePath(DEPLOYMENTS, "default", "web")
SELECTOR = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def policy_for(name: str, kind: str, api_version: str, cluster: str) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": api_version, "kind": kind, "name": name}],
            "placement": {"clusterAffinity": {"clusterNames": [cluster]}},
        },
    }


POLICY = policy_for("web", "Deployment", "apps/v1", "west")
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


async def test_a_quota_of_the_fleet_is_kept_there_too(fleet: Fleet) -> None:
    hub, place = fleet.hub.client, ResourcePath(FEDERATED_RESOURCE_QUOTAS, "default", "team")
    depot = await fleet.add_sim("depot", nodes=1)
    await fleet.join("depot", depot)
    await until_ready(fleet, "depot")

    async def apply(name: str, replicas: int) -> None:
        template = deployment(name, replicas=replicas)
        for each in (template, policy_for(name, "Deployment", "apps/v1", "depot")):
            await hub.create(resource_path_of(each).collection, each)

    await apply("small", 1)
    await until(lambda: depot.client.find(ResourcePath(DEPLOYMENTS, "default", "small")))
    bindings = await hub.list_objects(ResourcePath(RESOURCE_BINDINGS, "default"))
    used = sum(target.replicas for each in bindings for target in clusters_of(each))
    quota = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "FederatedResourceQuota",
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"overall": {"pods": str(used + 1)}},
    }
    await hub.create(place.collection, quota)
    await apply("large", 2)
    binding = ResourcePath(RESOURCE_BINDINGS, "default", "large-deployment")

    async def reason() -> str:
        found = await hub.find(binding)
        condition = find_condition(find_at(found or {}, "status", "conditions"), "Scheduled")
        return str((condition or {}).get("reason") or "")

    await until_equal(reason, "QuotaExceeded")
    assert find_at(await hub.get(binding), "spec", "clusters") is None
    await edit(hub, place, lambda live: with_value(live, "100", "spec", "overall", "pods"))

    await until(lambda: depot.client.find(ResourcePath(DEPLOYMENTS, "default", "large")))

    async def counted() -> str:
        return str(find_at(await hub.get(place), "status", "overallUsed", "pods"))

    await until_equal(counted, str(used + 2))


@pytest.mark.slow
async def test_a_cluster_leaves_and_takes_along_what_was_placed(fleet: Fleet) -> None:
    south, hub = await fleet.add_kubernetes("south"), fleet.hub.client
    await fleet.join("south", south)
    await until_ready(fleet, "south")
    api = ResourcePath(DEPLOYMENTS, "default", "api")
    for each in (
        deployment("api", replicas=1),
        policy_for("api", "Deployment", "apps/v1", "south"),
    ):
        await hub.create(resource_path_of(each).collection, each)
    await until(lambda: south.client.find(api))

    await fleet.unjoin("south", member=south.settings)

    assert await hub.find(manifests.cluster_path("south")) is None
    assert await south.client.find(api) is None


@pytest.mark.slow
async def test_a_cluster_registers_itself_and_its_agent_works_with_its_own_rights_alone(
    fleet: Fleet,
) -> None:
    east, hub = await fleet.add_sim("east", nodes=1), fleet.hub.client
    await register(fleet, "east", east)
    async with running_agent(east):
        await until_ready(fleet, "east")
        place = ResourcePath(CONFIG_MAPS, "default", "settings")
        for each in (
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "settings", "namespace": "default"},
            },
            policy_for("settings", "ConfigMap", "v1", "east"),
        ):
            await hub.create(resource_path_of(each).collection, each)
        await until(lambda: east.client.find(place))

        async with as_agent(east) as agent:
            with pytest.raises(Forbidden):
                await agent.get(manifests.secret_path("west"))
            with pytest.raises(Forbidden, match="clusters 'other' is not cluster 'east'"):
                await agent.create(
                    manifests.cluster_path("").collection, manifests.cluster("other", "id-other")
                )
            with pytest.raises(Forbidden):
                await agent.list_objects(ResourcePath(WORKS, "default"))
        await unregister(fleet, "east", east)
    assert await hub.find(manifests.cluster_path("east")) is None
    assert (
        await hub.find(ResourcePath(manifests.CLUSTER_ROLES, name="clusterspace-agent-east"))
        is None
    )


async def test_a_token_is_for_one_cluster_and_works_once(fleet: Fleet) -> None:
    north = await fleet.add_sim("north")
    token = await create_token("north", fleet.hub.settings)

    with pytest.raises(CannotJoin, match="the common name is not system:karmada:agent:north"):
        await register_cluster(
            request_for(token, name="south"), north.settings, fleet.messages.append
        )
    await register_cluster(request_for(token), north.settings, fleet.messages.append)
    (known,) = [
        each for each in await list_tokens(fleet.hub.settings) if each.cluster_name == "north"
    ]
    assert known.state == "used"
    with pytest.raises(CannotJoin, match="was used before, and works once"):
        await register_cluster(request_for(token), north.settings, fleet.messages.append)


async def made_for_agent(hub: ClusterClient, cluster: str) -> list[str]:
    """What there is at the hub for the agent of a cluster; a namespace that ends is gone."""
    return [
        f"{each['kind']} {namespace_of(each)}"
        for each in agent_objects(cluster)
        if (found := await hub.find(place_of(each))) is not None and not is_being_deleted(found)
    ]


async def test_a_registration_that_failed_leaves_nothing_behind(fleet: Fleet) -> None:
    """Whoever deletes its token takes away what was made along with it, and nothing in use."""
    hub, settings = fleet.hub.client, fleet.hub.settings
    member = await fleet.add_sim("nowhere")
    first, second = await create_token("nowhere", settings), await create_token("nowhere", settings)
    assert len(await made_for_agent(hub, "nowhere")) == len(agent_objects("nowhere"))
    with pytest.raises(CannotJoin):
        await register_cluster(
            request_for(first, name="elsewhere"), member.settings, fleet.messages.append
        )

    await delete_token(first.token, settings)
    assert len(await made_for_agent(hub, "nowhere")) == len(agent_objects("nowhere"))
    # Kubernetes removes tokens that have ended by itself: what is beside one still goes with it.
    secret = manifests.secret_path("bootstrap-token-" + second.token.partition(".")[0])
    ended = ResourcePath(secret.resource, "kube-system", secret.name)
    await hub.delete(ended, DeleteOptions(uid_of(await hub.get(ended))))
    await delete_token(second.token, settings)
    assert await made_for_agent(hub, "nowhere") == []

    async def is_gone() -> bool:
        return await hub.find(manifests.namespace_path("karmada-es-nowhere")) is None

    await until(is_gone)
    third = await create_token("nowhere", settings)
    await register_cluster(request_for(third), member.settings, fleet.messages.append)
    await delete_token(third.token, settings)
    assert len(await made_for_agent(hub, "nowhere")) == len(agent_objects("nowhere"))


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
