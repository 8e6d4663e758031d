"""The story of a membership with members that are processes: simulated, and real where found."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.flows.members import SIM_FIRST, Member, running_member

from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import CannotJoin, NotFound
from clusterspace.fleet.membership import leave, manifests
from clusterspace.kube.objects import find_at
from clusterspace.testing.stage import Fleet, register, running_agent, running_fleet, unregister
from clusterspace.testing.steps import until

UNTAINTED: set[str] = set()
NOTICED_SECONDS = 60.0
"""A member that hangs lets two looks wait five seconds each; the rest is quick here."""
BACK_SECONDS = 30.0
FORCED_SECONDS = 10.0


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        yield running


@pytest.fixture(params=SIM_FIRST)
async def member(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Member]:
    async with running_member(request.param, tmp_path_factory.mktemp("member")) as running:
        yield running


async def until_it_is(fleet: Fleet, ready: tuple[str, str], taints: set[str]) -> None:
    async def is_so() -> bool:
        return await fleet.ready("west") == ready and await fleet.taints("west") == taints

    await until(is_so, NOTICED_SECONDS)


async def left_on(member: Member) -> set[str]:
    """Return what a membership left, but for a namespace that is ending where nobody ends it."""
    left = await member.everything_of_ours()
    if member.ends_namespaces:
        return left
    namespaces = await member.client.list_objects(ResourcePath(manifests.NAMESPACES))
    ending = {
        f"namespaces/{each['metadata']['name']}"
        for each in namespaces
        if find_at(each, "metadata", "deletionTimestamp")
    }
    # What the namespace holds, and the role's dependents, go when their controllers run.
    return {each for each in left - ending if not each.startswith("secrets/")}


async def told(fleet: Fleet) -> set[str]:
    """Return the reasons of the events about clusters."""
    events = await fleet.hub.client.list_objects(ResourcePath(EVENTS, "default"))
    return {each["reason"] for each in events if each["involvedObject"]["kind"] == "Cluster"}


async def test_a_member_joins_stops_returns_and_leaves(fleet: Fleet, member: Member) -> None:
    async with fleet.controllers():
        await fleet.join("west", member)
        await until_it_is(fleet, ("True", "ClusterReady"), UNTAINTED)
        version = find_at(await fleet.cluster("west"), "status", "kubernetesVersion")
        assert version.startswith("v1.")

        member.stop()
        async with asyncio.timeout(NOTICED_SECONDS):
            await until_it_is(
                fleet,
                ("False", "ClusterNotReachable"),
                {"cluster.karmada.io/not-ready:NoSchedule"},
            )
        # What was known of it stays known.
        assert find_at(await fleet.cluster("west"), "status", "kubernetesVersion") == version

        member.go_on()
        async with asyncio.timeout(BACK_SECONDS):
            await until_it_is(fleet, ("True", "ClusterReady"), UNTAINTED)
        # Events are written beside what they tell of, and a moment later.
        reasons = {"ClusterReady", "ClusterNotReachable", "TaintClusterSucceed"}

        async def is_told() -> bool:
            return reasons <= await told(fleet)

        await until(is_told, explain=lambda: told(fleet))
        await fleet.unjoin("west", member=member.settings)

        async def is_clean() -> bool:
            return await left_on(member) == set()

        await until(is_clean)
        with pytest.raises(NotFound):
            await fleet.cluster("west")
        assert await fleet.hub.everything_of_ours() == {"namespaces/karmada-cluster"}


async def test_a_member_that_hangs_leaves_by_force_within_ten_seconds(
    fleet: Fleet, member: Member
) -> None:
    await fleet.join("west", member)
    member.stop()

    async with asyncio.timeout(FORCED_SECONDS):
        await fleet.unjoin("west", is_forced=True)

    assert await fleet.hub.client.find(manifests.cluster_path("west")) is None
    written = await fleet.hub.client.get(manifests.left_behind_path("west"))
    for place in (*leave.own_paths("west"), *leave.shared_paths()):
        assert f"on the member: {place}" in written["data"]["left-behind"]


async def test_the_same_member_is_refused_under_another_name(fleet: Fleet, member: Member) -> None:
    await fleet.join("west", member)
    before = await member.everything_of_ours()

    with pytest.raises(CannotJoin, match="has joined as west: unjoin west first"):
        await fleet.join("east", member)

    assert await member.everything_of_ours() == before


async def test_a_member_registers_is_heard_stops_returns_and_is_unregistered(
    fleet: Fleet, member: Member
) -> None:
    await register(fleet, "west", member)
    async with fleet.controllers(), running_agent(member) as agent:
        await until_it_is(fleet, ("True", "ClusterReady"), UNTAINTED)

        member.stop()
        async with asyncio.timeout(NOTICED_SECONDS):
            await until_it_is(
                fleet,
                ("False", "ClusterNotReachable"),
                {"cluster.karmada.io/not-ready:NoSchedule"},
            )
        member.go_on()
        async with asyncio.timeout(BACK_SECONDS):
            await until_it_is(fleet, ("True", "ClusterReady"), UNTAINTED)

        await unregister(fleet, "west", member)
        await asyncio.wait_for(agent, BACK_SECONDS)
    assert await member.client.find(manifests.REGISTRATION_PLACE) is None
    assert await fleet.hub.client.find(manifests.cluster_path("west")) is None
    assert await fleet.hub.client.find(manifests.lease_path("west")) is None
