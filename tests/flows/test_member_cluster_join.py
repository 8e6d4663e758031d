"""A MemberCluster invites a cluster; its agent joins, is heard, falls silent, is heard again."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.component.invited_members import Invited, edit_at
from tests.flows.members import SIM_FIRST, running_member

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, WORKS, execution_namespace
from clusterspace.apis.member_clusters import member_namespace
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions, ListOptions
from clusterspace.client.settings import AuthInfo
from clusterspace.controllers.commit import commit
from clusterspace.errors import CannotJoin, Forbidden, Invalid
from clusterspace.fleet.membership.manifests import (
    NODES,
    SECRETS,
    cluster_path,
    lease_path,
    namespace_path,
)
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.kube.objects import Object, find_at, labels_of, uid_of, with_metadata, with_value
from clusterspace.roots.agent import run_agent
from clusterspace.roots.settings import AgentSettings, Invitation
from clusterspace.testing.faults import Drop, fault_proxy
from clusterspace.testing.hubs import KUBERNETES, OURS, client_for_test
from clusterspace.testing.stage import Side, register, running_agent, running_fleet
from clusterspace.testing.steps import stop, until


@pytest.fixture
async def invited(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Invited]:
    """Run a hub: ours, unless the test says which."""
    hub_kind: str = getattr(request, "param", OURS)
    async with running_fleet(tmp_path, hub_kind=hub_kind) as running:
        yield Invited(running)


async def test_before_any_agent_namespace_role_binding_and_orders_are_there(
    invited: Invited,
) -> None:
    await invited.invite(period=30)
    async with invited.controllers():
        await invited.until_condition("ReadyToJoin", "True")

    hub, inside = invited.hub, member_namespace("west")
    member_cluster = await invited.get()
    namespace = await hub.get(manifests.member_namespace_path("west"))
    role = await hub.get(manifests.role_path("west", inside))
    binding = await hub.get(manifests.binding_path("west", inside))
    internal = await invited.internal()
    assert inside == "fleet-member-west"
    assert labels_of(namespace)["kubernetes-fleet.io/is-fleet-resource"] == "true"
    assert [rule["apiGroups"] for rule in role["rules"]] == [
        ["cluster.kubernetes-fleet.io"],
        ["placement.kubernetes-fleet.io"],
        ["networking.fleet.azure.com"],
        [""],
    ]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "agent-west", "namespace": "fleet-system"}
    ]
    assert binding["roleRef"]["name"] == "fleet-role-west"
    assert internal["spec"] == {"state": "Join", "heartbeatPeriodSeconds": 30}
    for each in (namespace, role, binding, internal):
        assert each["metadata"]["ownerReferences"][0]["uid"] == uid_of(member_cluster)
    assert labels_of(member_cluster)["kubernetes-fleet.io/member-name"] == "west"
    assert (await invited.condition("Joined"))[0] != "True"
    assert await hub.find(cluster_path("west")) is None


@pytest.mark.parametrize(
    "invited", [OURS, pytest.param(KUBERNETES, marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("kind", SIM_FIRST)
async def test_an_invited_cluster_joins_and_is_a_pull_cluster_too(
    invited: Invited, kind: str, tmp_path: Path
) -> None:
    await invited.invite()
    directory = tmp_path / "member"
    directory.mkdir()
    async with (
        running_member(kind, directory) as member,
        invited.controllers(),
        invited.agent(member),
    ):
        await invited.until_joined()

        cluster = await invited.fleet.cluster("west")
        kube_system = await member.client.get(namespace_path("kube-system"))
        assert await invited.condition("Joined") == ("True", "MemberClusterJoined")
        assert await invited.condition("ReadyToJoin") == ("True", "MemberClusterReadyToJoin")
        assert find_at(cluster, "spec", "syncMode") == "Pull"
        assert find_at(cluster, "spec", "id") == kube_system["metadata"]["uid"]
        member_cluster = await invited.get()
        nodes = len(await member.client.list_objects(ResourcePath(NODES)))
        count = "kubernetes-fleet.io/node-count"
        assert find_at(member_cluster, "status", "properties", count, "value") == str(nodes)
        assert find_at(member_cluster, "status", "resourceUsage", "available", "cpu")


async def test_what_the_agent_told_is_passed_on_with_the_members_own_generation(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(member):
        await invited.until_joined()
        await invited.change(lambda held: with_value(held, 2, "spec", "heartbeatPeriodSeconds"))

        async def is_told() -> bool:
            internal = await invited.internal()
            return find_at(internal, "spec", "heartbeatPeriodSeconds") == 2

        await until(is_told)
        generation = (await invited.get())["metadata"]["generation"]

        async def is_observed() -> bool:
            status = (await invited.get())["status"]
            agent = status["agentStatus"][0]
            told = [*status["conditions"], *agent["conditions"]]
            return all(each.get("observedGeneration") == generation for each in told)

        await until(is_observed)
        agent = (await invited.get())["status"]["agentStatus"][0]
        assert agent["type"] == "MemberAgent"
        assert {each["type"]: each["reason"] for each in agent["conditions"]} == {
            "Joined": "InternalMemberClusterJoined",
            "Healthy": "InternalMemberClusterHealthy",
        }


async def test_what_somebody_changed_is_put_back(invited: Invited) -> None:
    await invited.invite()
    hub, inside = invited.hub, member_namespace("west")
    role, binding = manifests.role_path("west", inside), manifests.binding_path("west", inside)
    async with invited.controllers():
        await invited.until_condition("ReadyToJoin", "True")
        wanted = (await hub.get(role))["rules"]
        await edit_at(hub, role, lambda each: {**each, "rules": []})
        await edit_at(hub, binding, lambda each: {**each, "subjects": []})
        namespace = manifests.member_namespace_path("west")
        await edit_at(hub, namespace, lambda each: with_metadata(each, labels=None))
        await invited.change(lambda each: with_metadata(each, labels=None))

        async def is_back() -> bool:
            return (
                (await hub.get(role))["rules"] == wanted
                and bool((await hub.get(binding)).get("subjects"))
                and "kubernetes-fleet.io/is-fleet-resource"
                in labels_of(await hub.get(manifests.member_namespace_path("west")))
                and "kubernetes-fleet.io/member-name" in labels_of(await invited.get())
            )

        await until(is_back)


async def test_an_agent_that_falls_silent_is_seen_within_two_periods_and_has_not_left(
    invited: Invited,
) -> None:
    period = 2
    member = await invited.fleet.add_member("west")
    await invited.invite(period=period)
    loop = asyncio.get_running_loop()
    async with invited.controllers():
        async with invited.agent(member):
            await invited.until_joined()
            await invited.until_condition("HeartbeatReceived", "True")
        silent_since = loop.time()
        await invited.until_condition("HeartbeatReceived", "False")
        assert loop.time() - silent_since <= 2 * period
        assert await invited.condition("HeartbeatReceived") == ("False", "HeartbeatLost")
        assert await invited.condition("Joined") == ("True", "MemberClusterJoined")
        async with invited.agent(member):
            await invited.until_condition("HeartbeatReceived", "True")


async def test_an_unwell_cluster_says_so_and_stays_joined(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with fault_proxy(member.client.connection) as proxy:
        led = Side(proxy.settings, member.client)
        async with invited.controllers(), invited.agent(led):
            await invited.until_joined()
            proxy.inject(Drop(), times=None)

            async def is_unwell() -> bool:
                agent = (await invited.get())["status"]["agentStatus"][0]
                reasons = {each["type"]: each["reason"] for each in agent["conditions"]}
                return reasons["Healthy"] == "InternalMemberClusterUnhealthy"

            await until(is_unwell)
            assert await invited.condition("Joined") == ("True", "MemberClusterJoined")


async def test_an_agent_that_came_before_its_invitation_joins_all_the_same(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    async with invited.controllers(), invited.agent(member):
        await asyncio.sleep(0.3)
        await invited.invite()
        await invited.until_joined()


async def test_the_same_cluster_under_a_second_name_is_refused_and_the_first_is_named(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite("west")
    await invited.invite("east")
    async with invited.controllers(), invited.agent(member, "west"):
        await invited.until_joined("west")
        async with invited.agent(member, "east"):
            await invited.until_condition("Joined", "Unknown", "east")

            async def is_told() -> bool:
                conditions = (await invited.get("east"))["status"]["conditions"]
                return any("cluster west has this ID" in each["message"] for each in conditions)

            await until(is_told)
        assert await invited.hub.find(cluster_path("east")) is None


async def test_a_name_that_a_cluster_has_is_refused_to_a_membercluster(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.fleet.join("west", member)

    with pytest.raises(
        Invalid, match=r"was joined \(Push\): let it leave with `clusterspace unjoin`"
    ):
        await invited.invite("west")


async def test_a_name_that_a_membercluster_has_is_refused_to_other_doors(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite("west")

    with pytest.raises(CannotJoin, match="a MemberCluster of this name is how this cluster joins"):
        await invited.fleet.join("west", member)
    with pytest.raises(CannotJoin, match="a MemberCluster of this name is how this cluster joins"):
        await register(invited.fleet, "west", member)
    assert await invited.hub.find(cluster_path("west")) is None


async def test_the_agent_of_a_registration_may_be_the_one_that_is_invited(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite("west", identity={"kind": "User", "name": "system:karmada:agent:west"})
    async with invited.controllers():
        await register(invited.fleet, "west", member)
        async with running_agent(member):
            await invited.until_joined()
    cluster = await invited.fleet.cluster("west")
    assert cluster["metadata"]["ownerReferences"][0]["kind"] == "MemberCluster"


async def test_a_namespace_that_somebody_else_made_is_not_taken_over(invited: Invited) -> None:
    place = manifests.member_namespace_path("west")
    theirs: Object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "fleet-member-west"},
    }
    await invited.hub.create(place.collection, theirs)
    await invited.invite()
    async with invited.controllers():
        await invited.until_condition("ReadyToJoin", "False")
        assert await invited.condition("ReadyToJoin") == ("False", "MemberClusterNotReadyToJoin")
        assert not await invited.internals()
        held = await invited.hub.get(place)
        await invited.hub.delete(place, DeleteOptions(uid_of(held)))
        await invited.until_condition("ReadyToJoin", "True")


async def test_an_agent_reaches_its_own_and_nothing_of_other_members(invited: Invited) -> None:
    west, east = await invited.fleet.add_member("west"), await invited.fleet.add_member("east")
    await invited.invite("west")
    await invited.invite("east")
    async with invited.controllers(), invited.agent(west, "west"), invited.agent(east, "east"):
        await invited.until_joined("west")
        await invited.until_joined("east")
        async with client_for_test(await invited.identity_settings("west")) as agent:
            await agent.get(cluster_path("west"))
            await agent.get(lease_path("west"))
            await agent.list_objects(ResourcePath(WORKS, execution_namespace("west")))
            for forbidden in (
                cluster_path("east"),
                lease_path("east"),
                manifests.internal_path("east"),
                manifests.member_cluster_path("west"),
                ResourcePath(SECRETS, CLUSTER_NAMESPACE, "west"),
            ):
                with pytest.raises(Forbidden):
                    await agent.get(forbidden)
            for place in (ResourcePath(WORKS, execution_namespace("east")), ResourcePath(CLUSTERS)):
                with pytest.raises(Forbidden):
                    await agent.list_objects(place)
            own = await agent.get(cluster_path("west"))
            untainted = with_value(own, [], "spec", "taints")
            with pytest.raises(Forbidden):
                await commit(agent, cluster_path("west"), own, untainted)
            named = ListOptions(field_selector="metadata.name=west")
            assert len(await agent.list_objects(ResourcePath(CLUSTERS), named)) == 1


async def test_a_cluster_deleted_by_hand_comes_back_for_its_membercluster_is_still_there(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(member):
        await invited.until_joined()
        before = await invited.fleet.cluster("west")
        await invited.hub.delete(cluster_path("west"), DeleteOptions(uid_of(before)))

        async def is_another() -> bool:
            found = await invited.hub.find(cluster_path("west"))
            return found is not None and uid_of(found) != uid_of(before)

        await until(is_another)
        await invited.until_joined()


async def test_an_agent_whose_token_ended_takes_the_next_one_from_its_kubeconfig(
    invited: Invited, tmp_path: Path
) -> None:
    await invited.invite()
    member = await invited.fleet.add_sim("west")
    good = await invited.identity_settings()
    ended = replace(good, identity=AuthInfo(token="it-ended-after-24-hours"))
    settings = AgentSettings(member.settings, Invitation("west", ended, lambda: good))
    async with invited.controllers():
        running = asyncio.create_task(run_agent(settings, SystemClock()))
        try:
            await invited.until_condition("Joined", "True")
        finally:
            await stop(running)


async def says(logged: list[MutableMapping[str, Any]], text: str) -> bool:
    return any(text in str(each.get("reason") or each["event"]) for each in logged)


async def test_an_agent_with_a_wrong_name_or_token_says_so_and_not_that_it_works(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite("east")
    async with invited.controllers():
        await invited.until_condition("ReadyToJoin", "True", "east")
        with capture_logs() as logged:
            async with invited.agent(member, "west"):
                await until(lambda: says(logged, "does not know us as the agent of west"))
            settings = await invited.identity_settings("east")
            stranger = replace(settings, identity=AuthInfo(token="wrong"))
            agent = AgentSettings(member.settings, Invitation("east", stranger))
            task = asyncio.create_task(run_agent(agent, SystemClock()))
            try:
                await until(lambda: says(logged, "does not accept our credentials"))
            finally:
                await stop(task)
            assert not await says(logged, "agent is working")
            async with invited.agent(member, "east"):
                await until(lambda: says(logged, "agent is working"))
