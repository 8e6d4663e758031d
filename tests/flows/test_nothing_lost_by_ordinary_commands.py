"""Deleting a namespace, unjoining, deleting many objects: what people have on members is theirs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import NotServed
from clusterspace.fleet.execution.prune import DeletionLimits, is_paused
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.kube.objects import Object, name_of, uid_of, with_metadata, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.membership import UnjoinRequest, unjoin_cluster
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import delete, edit, until, until_equal

SHOP = ResourcePath(NAMESPACES, name="shop")
IN_SHOP = ResourcePath(CONFIG_MAPS, "shop")
POLICIES = ResourcePath(PROPAGATION_POLICIES, "shop")
FOURTEEN = frozenset(f"web-{number}" for number in range(14))


def policy(*clusters: str) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters)}},
        },
    }


def moved_away(existing: Object) -> Object:
    clusters = ("spec", "placement", "clusterAffinity", "clusterNames")
    return with_value(existing, ["north"], *clusters)


@asynccontextmanager
async def shop(
    directory: Path, *templates: str, limits: DeletionLimits | None = None
) -> AsyncGenerator[tuple[Fleet, Side]]:
    """Run a fleet with a namespace `shop` whose templates are on a member."""
    async with (
        running_fleet(directory) as fleet,
        fleet.controllers(deletions=limits or DeletionLimits()),
    ):
        west = await fleet.add_member("west")
        await fleet.join("west", west)
        await until_ready(fleet, "west")
        hub = fleet.hub.client
        await hub.create(SHOP.collection, namespace("shop"))
        for each in templates:
            await hub.create(IN_SHOP, config_map(each, namespace="shop"))
        await hub.create(POLICIES, policy("west"))
        await until(lambda: west.client.find(SHOP))
        await until_equal(lambda: ours_in(west), set(templates))
        yield fleet, west


async def ours_in(member: Side) -> set[str]:
    found = await member.client.list_objects(IN_SHOP)
    return {name_of(each) for each in found if is_managed(each)}


async def test_deleting_a_hub_namespace_keeps_what_people_made_in_it_on_members(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path, "web") as (fleet, west):
        made = await west.client.create(IN_SHOP, config_map("by-hand", namespace="shop"))

        await delete(fleet.hub.client, SHOP)

        async def is_let_go() -> bool:
            there = await west.client.find(SHOP)
            return there is not None and not is_managed(there) and not await ours_in(west)

        await until(is_let_go)
        await settled()
        there = await west.client.get(IN_SHOP.named("by-hand"))
        assert uid_of(there) == uid_of(made)


async def test_deleting_a_hub_namespace_takes_an_empty_one_from_members(tmp_path: Path) -> None:
    async with shop(tmp_path, "web") as (fleet, west):
        await delete(fleet.hub.client, SHOP)

        async def is_gone() -> bool:
            return await west.client.find(SHOP) is None

        await until(is_gone)


@pytest.mark.parametrize("takes_contents", [False, True])
async def test_unjoin_lists_what_people_made_and_leaves_it_unless_told(
    tmp_path: Path, *, takes_contents: bool
) -> None:
    async with shop(tmp_path, "web") as (fleet, west):
        await west.client.create(IN_SHOP, config_map("by-hand", namespace="shop"))
        said: list[str] = []
        request = UnjoinRequest("west", takes_contents=takes_contents)
        await unjoin_cluster(request, fleet.hub.settings, said.append, is_dry_run=True)
        assert "  configmaps by-hand" in said
        fate = "goes with what this hub did not place" if takes_contents else "namespace shop stays"
        assert any(fate in each for each in said)
        assert await west.client.find(IN_SHOP.named("web")) is not None

        await unjoin_cluster(request, fleet.hub.settings, said.append)

        async def is_gone() -> bool:
            return await west.client.find(SHOP) is None

        if takes_contents:
            await until(is_gone)
        else:
            assert await west.client.find(IN_SHOP.named("web")) is None
            assert await west.client.find(IN_SHOP.named("by-hand")) is not None
            assert not is_managed(await west.client.get(SHOP))


async def test_ten_deletions_of_fourteen_objects_by_a_person_are_carried_out(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path, *FOURTEEN) as (fleet, west):
        for each in sorted(FOURTEEN)[:12]:
            await delete(fleet.hub.client, IN_SHOP.named(each))

        await until_equal(lambda: ours_in(west), set(sorted(FOURTEEN)[12:]))
        assert not is_paused(await fleet.cluster("west"))


async def test_a_policy_edit_that_empties_a_cluster_waits_for_a_person(tmp_path: Path) -> None:
    async with shop(tmp_path, *FOURTEEN) as (fleet, west):
        await edit(
            fleet.hub.client,
            POLICIES.named("web"),
            moved_away,
        )

        async def paused() -> bool:
            return is_paused(await fleet.cluster("west"))

        await until(paused)
        assert await ours_in(west) == FOURTEEN
        # Meanwhile what a person deletes goes.
        await delete(fleet.hub.client, IN_SHOP.named("web-0"))
        await until_equal(lambda: ours_in(west), FOURTEEN - {"web-0"})
        assert is_paused(await fleet.cluster("west"))


async def test_a_deletion_budget_that_is_off_never_waits(tmp_path: Path) -> None:
    async with shop(tmp_path, *FOURTEEN, limits=DeletionLimits(float("inf"))) as (fleet, west):
        await edit(
            fleet.hub.client,
            POLICIES.named("web"),
            moved_away,
        )

        await until_equal(lambda: ours_in(west), set[str]())
        assert not is_paused(await fleet.cluster("west"))


# -- a kind that goes from the hub takes its templates along ---------------------------------------

DEFINITIONS = ResourcePath(
    GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
)
WIDGETS = ResourcePath(GroupVersionResource("example.com", "v1", "widgets"), "shop")


async def define_widgets(*sides: Side) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    for side in sides:
        await side.client.create(DEFINITIONS, definition)
        await until(partial(_has_widgets, side))


async def _has_widgets(side: Side) -> bool:
    with suppress(NotServed):
        await side.client.list_objects(WIDGETS)
        return True
    return False


async def place_widgets(fleet: Fleet, west: Side, names: frozenset[str]) -> None:
    await define_widgets(fleet.hub, west)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget"}
    for name in sorted(names):
        metadata = {"name": name, "namespace": "shop"}
        await fleet.hub.client.create(WIDGETS, {**widget, "metadata": metadata})
    placing = with_metadata(policy("west"), name="widgets")
    placing = with_value(placing, [widget], "spec", "resourceSelectors")
    await fleet.hub.client.create(POLICIES, placing)
    await until_equal(lambda: widgets_in(west), set(names))


async def widgets_in(member: Side) -> set[str]:
    found = await member.client.list_objects(WIDGETS)
    return {name_of(each) for each in found if is_managed(each)}


async def test_a_template_that_goes_with_its_kind_goes_from_members(tmp_path: Path) -> None:
    async with shop(tmp_path) as (fleet, west):
        await place_widgets(fleet, west, frozenset({"web"}))

        await delete(fleet.hub.client, DEFINITIONS.named("widgets.example.com"))

        await until_equal(lambda: widgets_in(west), set[str]())


async def test_many_templates_that_go_with_their_kind_wait_for_a_person(tmp_path: Path) -> None:
    async with shop(tmp_path) as (fleet, west):
        await place_widgets(fleet, west, FOURTEEN)

        await delete(fleet.hub.client, DEFINITIONS.named("widgets.example.com"))

        async def paused() -> bool:
            return is_paused(await fleet.cluster("west"))

        await until(paused)
        assert await widgets_in(west) == FOURTEEN
