"""A member leaves with what placements put on it, says the truth about it, and comes back."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.component.invited_members import Invited
from tests.component.placement_site import namespace_selector, pick_fixed, placement

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.fleet_placements import PARENT, PLACEMENTS
from clusterspace.apis.member_clusters import FORCE_LEAVE, KEEP_ON_LEAVE
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.fleet.execution.takeover import KEPT_COPY_OF, is_managed
from clusterspace.fleet.membership.manifests import left_behind_path
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    uid_of,
    with_metadata,
)
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.stage import Side, running_fleet
from clusterspace.testing.steps import until

HOME = ResourcePath(NAMESPACES, name="app")
SETTINGS = ResourcePath(CONFIG_MAPS, "app", "settings")


@pytest.fixture
async def invited(tmp_path: Path) -> AsyncGenerator[Invited]:
    async with running_fleet(tmp_path) as running:
        yield Invited(running)


async def place(invited: Invited, **strategy: object) -> None:
    """Place the namespace `app` and what is in it on `west`, taking nothing over."""
    hub = invited.hub
    await hub.create(ResourcePath(NAMESPACES), namespace("app"))
    await hub.create(SETTINGS.collection, config_map("settings", {"v": "1"}, namespace="app"))
    made = placement(
        "crp",
        namespace_selector("app"),
        policy=pick_fixed("west"),
        applyStrategy={"whenToTakeOver": "Never"},
    )
    await hub.create(ResourcePath(PLACEMENTS), made)


async def until_applied(invited: Invited, status: str = "True") -> None:
    async def is_applied() -> bool:
        found = await invited.hub.get(ResourcePath(PLACEMENTS, name="crp"))
        listed: list[Object] = find_at(found, "status", "placementStatuses") or []
        mine: Object = next((e for e in listed if e.get("clusterName") == "west"), {})
        applied = find_condition(mine.get("conditions"), "Applied") or {}
        return applied.get("status") == status

    async def placements() -> object:
        return (await invited.hub.get(ResourcePath(PLACEMENTS, name="crp"))).get("status")

    await until(is_applied, explain=placements)


async def on_member(member: Side, path: ResourcePath) -> Object:
    return await member.client.get(path)


async def test_a_member_that_kept_everything_gets_it_back_without_a_takeover(
    invited: Invited,
) -> None:
    west = await invited.fleet.add_member("west")
    await invited.invite(annotations={KEEP_ON_LEAVE: "true"})
    async with invited.controllers(), invited.agent(west):
        await invited.until_joined()
        await place(invited)
        await until_applied(invited)
        before = await on_member(west, SETTINGS)
        assert labels_of(before)[PARENT] == "crp"

        await invited.let_go()
        said: set[str] = set()

        async def is_gone() -> bool:
            found = await invited.find() or {}
            joined = find_condition(find_at(found, "status", "conditions"), "Joined") or {}
            if joined.get("status") == "False":
                said.add(str(joined.get("message")))
            return not found

        await until(is_gone)
        kept = await on_member(west, SETTINGS)
        assert uid_of(kept) == uid_of(before)
        assert not is_managed(kept)
        assert not [key for key in labels_of(kept) if "karmada" in key or "fleet" in key]
        assert list(annotations_of(kept)) == [KEPT_COPY_OF]
        assert not any("withdrawn" in each for each in said)

        await invited.invite()
        await invited.until_joined()
        await until_applied(invited)
        back = await on_member(west, SETTINGS)
    assert uid_of(back) == uid_of(before)
    assert is_managed(back)
    assert KEPT_COPY_OF not in annotations_of(back)


async def test_what_somebody_else_made_is_no_more_taken_over_after_a_return(
    invited: Invited,
) -> None:
    west = await invited.fleet.add_member("west")
    await invited.invite(annotations={KEEP_ON_LEAVE: "true"})
    async with invited.controllers(), invited.agent(west):
        await invited.until_joined()
        await place(invited)
        await until_applied(invited)
        await invited.let_go()
        await invited.until_gone()
        kept = await on_member(west, SETTINGS)
        await west.client.delete(SETTINGS, DeleteOptions(uid_of(kept)))
        made = await west.client.create(
            SETTINGS.collection, config_map("settings", {"v": "theirs"}, namespace="app")
        )

        await invited.invite()
        await invited.until_joined()
        await until_applied(invited, "False")
        found = await on_member(west, SETTINGS)
    assert (uid_of(found), found["data"]) == (uid_of(made), {"v": "theirs"})


async def test_a_leave_keeps_a_namespace_of_the_hub_in_which_somebody_has_something(
    invited: Invited,
) -> None:
    west = await invited.fleet.add_member("west")
    await invited.invite()
    async with invited.controllers(), invited.agent(west):
        await invited.until_joined()
        await invited.hub.create(ResourcePath(NAMESPACES), namespace("app"))

        async def is_there() -> bool:
            found = await west.client.find(HOME)
            return found is not None and is_managed(found)

        await until(is_there)
        notes = ResourcePath(CONFIG_MAPS, "app", "notes")
        await west.client.create(notes.collection, config_map("notes", namespace="app"))

        await invited.let_go()
        await invited.until_gone()

        assert not is_managed(await on_member(west, HOME))
        assert await west.client.find(notes) is not None
    written = await invited.hub.get(left_behind_path("west"))
    assert "namespace app stays, and is not ours any more" in written["data"]["left-behind"]
    assert "configmaps notes" in written["data"]["left-behind"]


async def test_a_forced_leave_lists_what_is_there_by_the_hub_and_nothing_else(
    invited: Invited,
) -> None:
    west = await invited.fleet.add_member("west")
    await west.client.create(ResourcePath(NAMESPACES), namespace("shop"))
    await west.client.create(ResourcePath(NAMESPACES), namespace("app"))
    await west.client.create(
        SETTINGS.collection, config_map("settings", {"v": "theirs"}, namespace="app")
    )
    await invited.hub.create(ResourcePath(NAMESPACES), namespace("shop"))
    await invited.hub.create(ResourcePath(NAMESPACES), namespace("depot"))
    await invited.invite()
    async with invited.controllers():
        async with invited.agent(west):
            await invited.until_joined()
            await place(invited)
            await until_applied(invited, "False")
            everywhere = ("app", "depot", "shop")

            async def are_reported() -> bool:
                works = await invited.hub.list_objects(
                    ResourcePath(WORKS, execution_namespace("west"))
                )
                told = [each for each in works if find_at(each, "status", "conditions")]
                return len(told) == len(works) >= len(everywhere)

            await until(are_reported)
        await invited.let_go()
        await invited.until_condition("Leaving", "True")
        await invited.change(
            lambda held: with_metadata(
                held, annotations={**annotations_of(held), FORCE_LEAVE: "true"}
            )
        )
        await invited.until_gone()
    written = await invited.hub.get(left_behind_path("west"))
    lines = written["data"]["left-behind"].splitlines()
    assert [each for each in lines if "placed" in each] == ["placed: Namespace depot"]
