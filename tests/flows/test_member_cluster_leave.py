"""A MemberCluster is deleted: what was placed goes or stays as said, and the hub forgets."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.component.invited_members import Invited, placed, work_for
from tests.flows.members import SIM_FIRST, running_member

from clusterspace.apis.clusters import execution_namespace
from clusterspace.apis.member_clusters import FORCE_LEAVE, KEEP_ON_LEAVE, member_namespace
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import CannotLeave, Unauthorized
from clusterspace.fleet.membership.manifests import (
    CONFIG_MAPS,
    cluster_path,
    lease_path,
    left_behind_path,
    namespace_path,
)
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_metadata, with_value
from clusterspace.testing.stage import as_agent, register, running_agent, running_fleet, unregister
from clusterspace.testing.steps import until

KEEPING = {KEEP_ON_LEAVE: "true"}


@pytest.fixture
async def invited(tmp_path: Path) -> AsyncGenerator[Invited]:
    async with running_fleet(tmp_path) as running:
        yield Invited(running)


async def leftovers(invited: Invited, name: str = "west") -> list[str]:
    """Return what the hub still has of a member."""
    found = [
        manifests.member_namespace_path(name),
        namespace_path(execution_namespace(name)),
        cluster_path(name),
        lease_path(name),
        manifests.member_cluster_path(name),
        *manifests.shared_rights(name),
    ]
    return [str(each) for each in found if await invited.hub.find(each) is not None]


async def until_forgotten(invited: Invited, name: str = "west") -> None:
    await invited.until_gone(name)

    async def is_forgotten() -> bool:
        return not await leftovers(invited, name)

    await until(is_forgotten)


@pytest.mark.parametrize("kind", SIM_FIRST)
@pytest.mark.parametrize("keeps", [False, True], ids=["removed", "kept"])
async def test_a_leave_removes_or_keeps_what_was_placed_as_it_was_told(
    invited: Invited, kind: str, keeps: bool, tmp_path: Path
) -> None:
    await invited.invite(annotations=KEEPING if keeps else {})
    directory = tmp_path / "member"
    directory.mkdir()
    async with (
        running_member(kind, directory) as member,
        invited.controllers(),
        invited.agent(member),
    ):
        await invited.until_joined()
        await invited.order(work_for("west", "one", "two"))
        await invited.until_placed("one", "two")
        await invited.let_go()
        await until_forgotten(invited)
        assert await placed(invited, "west") == ({"one", "two"} if keeps else set())


async def test_a_leave_takes_nothing_from_another_cluster(invited: Invited) -> None:
    west, east = await invited.fleet.add_member("west"), await invited.fleet.add_member("east")
    await invited.invite("west")
    await invited.invite("east")
    async with invited.controllers(), invited.agent(west, "west"), invited.agent(east, "east"):
        for name in ("west", "east"):
            await invited.until_joined(name)
            await invited.order(work_for(name, "thing"), name)
            await invited.until_placed("thing", name=name)
        await invited.let_go("west")
        await until_forgotten(invited, "west")
        assert await placed(invited, "west") == set()
        assert await placed(invited, "east") == {"thing"}
        assert await invited.condition("Joined", "east") == ("True", "MemberClusterJoined")


async def test_what_a_leave_will_do_is_said_before_it_does_anything(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers():
        async with invited.agent(member):
            await invited.until_joined()
            await invited.order(work_for("west", "one", "two"))
            await invited.until_placed("one", "two")
        await invited.let_go()
        await invited.until_condition("Leaving", "True")
        said = find_condition((await invited.get())["status"]["conditions"], "Leaving") or {}

        async def is_told() -> bool:
            return find_at(await invited.internal(), "spec", "state") == "Leave"

        await until(is_told)
        assert said["reason"] == "RemovingResources"
        assert "placed objects will be removed from the member" in said["message"]
        assert "ConfigMap default/one, ConfigMap default/two" in said["message"]
        assert await invited.condition("Joined") == ("True", "MemberClusterJoined")
        assert await placed(invited, "west") == {"one", "two"}

        async def is_an_event() -> bool:
            return "MemberClusterLeaving" in await invited.event_reasons()

        await until(is_an_event)
        async with invited.agent(member):
            await until_forgotten(invited)


async def test_a_member_that_never_joined_leaves_at_once(invited: Invited) -> None:
    await invited.invite()
    async with invited.controllers():
        await invited.until_condition("ReadyToJoin", "True")
        await invited.let_go()
        await until_forgotten(invited)


async def test_a_silent_agent_is_given_up_after_the_time_set_and_may_join_again(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(force_seconds=1.0):
        async with invited.agent(member):
            await invited.until_joined()
            await invited.order(work_for("west", "stranded"))
            await invited.until_placed("stranded")
        await invited.let_go()
        await until_forgotten(invited)
        assert await placed(invited, "west") == {"stranded"}
        written = await invited.hub.get(left_behind_path("west"))
        assert "placed: ConfigMap default/stranded" in written["data"]["left-behind"]

        await invited.invite()
        async with invited.agent(member):
            await invited.until_joined()


async def test_the_same_agent_joins_again_when_its_member_is_invited_anew(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(member):
        await invited.until_joined()
        await invited.let_go()
        await until_forgotten(invited)
        await invited.invite()
        await invited.until_joined()
        await invited.order(work_for("west", "again"))
        await invited.until_placed("again")


async def test_ten_fleet_works_held_by_finalizers_do_not_hold_the_leave(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(member):
        await invited.until_joined()
        for number in range(10):
            await invited.hub.create(manifests.fleet_works_path("west"), _fleet_work(number))
        await invited.let_go()
        await until_forgotten(invited)


def _fleet_work(number: int) -> Object:
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "Work",
        "metadata": {
            "name": f"work-{number}",
            "namespace": member_namespace("west"),
            "finalizers": ["kubernetes-fleet.io/work-cleanup"],
        },
        "spec": {"workload": {"manifests": []}},
    }


async def test_skipping_the_validation_of_a_deletion_is_accepted(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(member):
        await invited.until_joined()
        skip = {"validationMode": "Skip"}
        await invited.change(lambda held: with_value(held, skip, "spec", "deleteOptions"))
        await invited.let_go()
        await until_forgotten(invited)


@pytest.mark.parametrize(
    "keeps",
    [pytest.param(False, id="removed"), pytest.param(True, id="kept", marks=pytest.mark.slow)],
)
async def test_two_hundred_objects_and_an_agent_killed_ten_times_come_to_the_same_end(
    invited: Invited, keeps: bool
) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite(annotations=KEEPING if keeps else {})
    wanted = [f"thing-{number:03}" for number in range(200)]
    async with invited.controllers():
        async with invited.agent(member):
            await invited.until_joined()
            for start in range(0, 200, 5):
                await invited.order(work_for("west", *wanted[start : start + 5]))
            await invited.until_placed(*wanted)
        await member.client.create(ResourcePath(CONFIG_MAPS, "default"), _config_map("bystander"))
        await invited.let_go()
        for life in range(10):
            async with invited.agent(member):
                await asyncio.sleep(0.05 * life)
        async with invited.agent(member):
            await until_forgotten(invited)
        left = await placed(invited, "west")
        assert left - {"bystander"} == (set(wanted) if keeps else set())
        assert await member.client.find(ResourcePath(CONFIG_MAPS, "default", "bystander"))


def _config_map(name: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def test_a_dead_agent_is_given_up_at_once_when_a_person_says_so(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers():
        async with invited.agent(member):
            await invited.until_joined()
        await invited.let_go()
        await invited.until_condition("Leaving", "True")
        forced = {FORCE_LEAVE: "true"}
        await invited.change(lambda held: with_metadata(held, annotations=forced))
        await until_forgotten(invited)


async def test_other_doors_do_not_lead_out_and_say_which_one_does(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(member):
        await invited.until_joined()
        with pytest.raises(CannotLeave, match="it joined by a MemberCluster: delete that"):
            await invited.fleet.unjoin("west", is_forced=True)
        with pytest.raises(CannotLeave, match="it joined by a MemberCluster: delete that"):
            await unregister(invited.fleet, "west", None, is_forced=True)
        assert await invited.condition("Joined") == ("True", "MemberClusterJoined")


async def test_a_registered_agent_that_was_invited_leaves_and_its_certificate_ends(
    invited: Invited,
) -> None:
    member = await invited.fleet.add_member("west")
    identity = {"kind": "User", "name": "system:karmada:agent:west"}
    await invited.invite("west", identity=identity)
    async with invited.controllers():
        await register(invited.fleet, "west", member)
        invited.members["west"] = member
        async with running_agent(member):
            await invited.until_condition("Joined", "True")
            await invited.order(work_for("west", "one"))
            await invited.until_placed("one")
            await invited.let_go()
            await until_forgotten(invited)
        assert await placed(invited, "west") == set()
        async with as_agent(member) as agent:
            with pytest.raises(Unauthorized):
                await agent.get(cluster_path("west"))
