"""Both ends of the declarative door against a hub, one step at a time."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.component.doorways import Doorway, doorway_for_test
from tests.component.execution_site import make_namespace
from tests.component.invited_members import ACCOUNTS, member_cluster, work_for

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import RequeueAfter
from clusterspace.errors import Invalid
from clusterspace.fleet.membership.manifests import SERVICE_ACCOUNTS, cluster_path
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_metadata, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import PATIENCE

V1 = GroupVersionResource("cluster.kubernetes-fleet.io", "v1", "memberclusters")


@pytest.fixture
async def doorway(tmp_path: Path) -> AsyncGenerator[Doorway]:
    async with doorway_for_test(tmp_path) as made:
        yield made


async def test_it_is_looked_again_just_when_a_heartbeat_would_be_missed(doorway: Doorway) -> None:
    await doorway.join()
    outcome = await doorway.look()
    assert isinstance(outcome, RequeueAfter)
    assert 80 < outcome.seconds <= 90

    doorway.clock.shift = 95
    await doorway.look()

    assert (await doorway.condition("HeartbeatReceived"))["reason"] == "HeartbeatLost"
    assert (await doorway.condition("Joined"))["status"] == "True"


async def test_heartbeats_are_spread_around_their_period(doorway: Doorway) -> None:
    await doorway.join()
    waits: list[float] = []
    for _ in range(20):
        outcome = await doorway.report()
        assert isinstance(outcome, RequeueAfter)
        waits.append(outcome.seconds)
    assert all(57 <= each <= 63 for each in waits)
    assert len(set(waits)) > 10


async def test_an_agent_that_cannot_withdraw_says_what_holds_it_and_the_hub_passes_it_on(
    doorway: Doorway,
) -> None:
    await doorway.join()
    await doorway.hub.create(
        ResourcePath(WORKS, execution_namespace("west")), work_for("west", "stuck")
    )
    await doorway.let_go()
    await doorway.look()
    await doorway.report()
    assert (await doorway.condition("Joined"))["status"] == "True"

    doorway.clock.shift = 11
    cluster = await doorway.hub.get(cluster_path("west"))
    assert find_at(cluster, "metadata", "deletionTimestamp")
    await doorway.report()
    await doorway.look()

    joined = await doorway.condition("Joined")
    internal = await doorway.hub.get(manifests.internal_path("west"))
    agent = internal["status"]["agentStatus"][0]["conditions"]
    said = find_condition(agent, "Joined") or {}
    assert (said["status"], said["reason"]) == ("Unknown", "InternalMemberClusterFailedToLeave")
    assert (joined["status"], joined["reason"]) == ("Unknown", "MemberClusterJoinStateUnknown")
    assert "not withdrawn yet" in joined["message"]


async def test_an_agent_told_what_no_agent_does_goes_on_as_before(doorway: Doorway) -> None:
    await doorway.join()
    place = manifests.internal_path("west")
    before = await doorway.hub.get(place)
    await commit(doorway.hub, place, before, with_value(before, "Dance", "spec", "state"))
    await doorway.report()
    after = await doorway.hub.get(place)
    assert after["status"] == before["status"]

    await doorway.look()
    assert find_at(await doorway.hub.get(place), "spec", "state") == "Join"


async def test_a_cluster_that_is_no_longer_ours_is_left_alone_and_said(doorway: Doorway) -> None:
    await doorway.join()
    place = cluster_path("west")
    before = await doorway.hub.get(place)
    foreign = await commit(doorway.hub, place, before, with_metadata(before, ownerReferences=None))
    held = await doorway.get()
    tainted = with_value(held, [{"key": "a", "effect": "NoSchedule"}], "spec", "taints")
    await commit(doorway.hub, manifests.member_cluster_path("west"), held, tainted)
    await doorway.look()

    assert "joined by another door" in (await doorway.condition("Joined"))["message"]
    assert await doorway.hub.get(place) == foreign


async def test_an_identity_that_is_replaced_loses_its_rights(doorway: Doorway) -> None:
    await doorway.join()
    held = await doorway.get()
    jane = with_value(held, {"kind": "User", "name": "jane"}, "spec", "identity")
    await commit(doorway.hub, manifests.member_cluster_path("west"), held, jane)
    await doorway.look()

    for place in (
        manifests.binding_path("west", "fleet-member-west"),
        manifests.binding_path("west", "karmada-cluster"),
        manifests.binding_path("west", execution_namespace("west")),
        manifests.cluster_binding_path("west"),
    ):
        (subject,) = (await doorway.hub.get(place))["subjects"]
        assert (subject["kind"], subject["name"]) == ("User", "jane")


async def test_reporting_on_a_cluster_changes_nothing_but_its_status(doorway: Doorway) -> None:
    await doorway.join()
    async with client_for_test(await _as_agent(doorway)) as agent:
        place = cluster_path("west")
        before = await agent.get(place)
        bold = with_metadata(before, labels={"region": "mars"}, finalizers=["mine/forever"])
        bold = {
            **bold,
            "spec": {**bold["spec"], "taints": []},
            "status": {"kubernetesVersion": "v9"},
        }
        await agent.update(place.with_subresource("status"), bold)
        after = await agent.get(place)

    assert after["status"]["kubernetesVersion"] == "v9"
    assert after["spec"] == before["spec"]
    for field in ("labels", "finalizers", "ownerReferences", "annotations"):
        assert after["metadata"].get(field) == before["metadata"].get(field)


async def _as_agent(doorway: Doorway) -> ConnectionSettings:
    await make_namespace(doorway.hub, ACCOUNTS)
    account = ResourcePath(SERVICE_ACCOUNTS, ACCOUNTS, "agent-west")
    body: Object = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "agent-west"},
    }
    await doorway.hub.create(account.collection, body)
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await doorway.hub.create(account.with_subresource("token"), wanted)
    token = str(find_at(answer, "status", "token"))
    return replace(doorway.settings, identity=AuthInfo(token=token))


async def test_both_versions_are_served_and_tell_the_same(
    doorway: Doorway,
) -> None:
    wanted = {**member_cluster(), "apiVersion": V1.api_version}
    await doorway.hub.create(ResourcePath(V1), wanted)
    held = await doorway.get()
    skipping = with_value(held, {"validationMode": "Skip"}, "spec", "deleteOptions")
    await commit(doorway.hub, manifests.member_cluster_path("west"), held, skipping)

    newer = await doorway.hub.get(ResourcePath(V1, name="west"))
    assert newer["spec"] == skipping["spec"]
    assert (await doorway.get())["spec"] == skipping["spec"]


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"heartbeatPeriodSeconds": 0}, "greater than or equal to 1"),
        ({"heartbeatPeriodSeconds": 601}, "less than or equal to 600"),
        ({"identity": None}, "spec.identity: Required value"),
        ({"identity": {"kind": "ServiceAccount", "name": "a"}}, "spec.identity.namespace"),
        ({"taints": [{"key": "", "effect": "NoSchedule"}]}, "spec.taints[0].key"),
        ({"taints": "all"}, "spec.taints: Invalid value"),
        ({"taints": ["all"]}, "spec.taints[0]: Invalid value"),
        (
            {"taints": [{"key": f"k{n}", "effect": "NoSchedule"} for n in range(101)]},
            "must have at most 100 items",
        ),
        ({"deleteOptions": {"validationMode": "Never"}}, "validationMode: Unsupported value"),
    ],
    ids=[
        "too often",
        "too rare",
        "nobody",
        "nowhere",
        "no key",
        "no list",
        "no taint",
        "too many",
        "unknown mode",
    ],
)
@pytest.mark.parametrize("resource", [MEMBER_CLUSTERS, V1], ids=lambda each: each.version)
async def test_bad_input_is_refused_with_its_place(
    doorway: Doorway, resource: GroupVersionResource, spec: dict[str, Any], complaint: str
) -> None:
    if resource == V1 and "deleteOptions" in spec:
        pytest.skip("v1 has no delete options: they are pruned, not refused")
    base = member_cluster()
    merged = {key: each for key, each in {**base["spec"], **spec}.items() if each is not None}
    wanted = {**base, "apiVersion": resource.api_version, "spec": merged}
    with pytest.raises(Invalid) as refused:
        await doorway.hub.create(ResourcePath(resource), wanted)
    assert complaint in refused.value.message


async def test_kubectl_shows_the_columns_people_know(doorway: Doorway, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    await doorway.join()
    kubeconfig = str(tmp_path / "hub" / "kubeconfig")
    command = [kubectl, "--kubeconfig", kubeconfig, "get", "memberclusters", "-o", "wide"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        output, _ = await process.communicate()
    header, row = output.decode().splitlines()
    assert header.split() == [
        "NAME", "JOINED", "AGE", "MEMBER-AGENT-LAST-SEEN", "NODE-COUNT", "AVAILABLE-CPU",
        "AVAILABLE-MEMORY", "ALLOCATABLE-CPU", "ALLOCATABLE-MEMORY",
    ]  # fmt: skip
    name, joined, _age, _seen, nodes, *amounts = row.split()
    assert (name, joined, nodes, amounts) == ("west", "True", "0", ["0", "0", "0", "0"])
