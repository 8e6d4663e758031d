"""Many placements and policies that want the same objects: each object is exactly one owner's.

Whoever does not have an object says whose it is, and has it when a placement that had it goes.
"""

from pathlib import Path
from random import Random

import pytest
from tests.component.placement_site import (
    CONFIG_MAPS,
    PlacementSite,
    namespace_selector,
    placement,
    placement_site,
    resource_placement,
    running,
)

from clusterspace.apis.fleet_placements import key_of_placement, parent_of, scope_of
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS, controller_uid_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.fleet.propagation.bindings import claim_of
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of, uid_of
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.steps import until

OBJECTS: tuple[str, ...] = ("a", "b", "c", "d", "e")


def policy(name: str, space: str, names: list[str]) -> Object:
    selectors = [{"apiVersion": "v1", "kind": "ConfigMap", "name": each} for each in names]
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "resourceSelectors": selectors,
            "placement": {"clusterAffinity": {"clusterNames": ["east"]}},
        },
    }


def owner(random: Random, number: int, space: str) -> Object:
    """Return a placement of either kind, or a policy, that wants some of the objects."""
    names = random.sample(OBJECTS, random.randint(1, len(OBJECTS)))
    match random.randrange(4):
        case 0:
            return placement(f"{space}-{number}", namespace_selector(space))
        case 1:
            return policy(f"o{number}", space, names)
        case _:
            chosen = {"group": "", "version": "v1", "kind": "ConfigMap"}
            made = resource_placement(f"o{number}", *({**chosen, "name": each} for each in names))
            return {**made, "metadata": {"name": f"o{number}", "namespace": space}}


def wants(made: Object, name: str) -> bool:
    if made["kind"] == "ClusterResourcePlacement":
        return True
    return name in {each["name"] for each in made["spec"]["resourceSelectors"]}


def path_for(made: Object) -> ResourcePath:
    if made["kind"] == "PropagationPolicy":
        return resource_path_of(PROPAGATION_POLICIES, made)
    return resource_path_of(scope_of(made).placements, made)


async def disowned(site: PlacementSite, space: str, owners: list[Object]) -> list[str]:
    """Return the objects that do not have the one owner they could have, and why."""
    live = {uid_of(each): each for each in owners}
    problems: list[str] = []
    for name in OBJECTS:
        binding = await site.hub.find(ResourcePath(RESOURCE_BINDINGS, space, f"{name}-configmap"))
        candidates = [each for each in owners if wants(each, name)]
        if binding is None or is_being_deleted(binding):
            if candidates:
                problems.append(f"{name}: nobody has it, {len(candidates)} want it")
            continue
        placed_by, claim = parent_of(binding), claim_of(binding)
        if placed_by and claim is not None:
            problems.append(f"{name}: placement {placed_by} and policy {claim.key}")
        elif not placed_by and claim is None:
            # What a policy leaves behind when it goes stays where it is, and follows nobody. A
            # policy takes it; placements leave it alone, and say so.
            if any(each["kind"] == "PropagationPolicy" for each in candidates):
                problems.append(f"{name}: it follows nobody, and a policy wants it")
        elif placed_by:
            having = live.get(controller_uid_of(binding) or "")
            if having is None or key_of_placement(having) != placed_by:
                problems.append(f"{name}: labelled {placed_by}, owned by somebody else")
        elif claim is not None and claim.name not in {name_of(each) for each in candidates}:
            problems.append(f"{name}: claimed by {claim.key}, which is gone")
        if await site.data("east", name, space) is None:
            problems.append(f"{name}: it is not on the member")
    return problems


async def unexplained(site: PlacementSite, space: str, owners: list[Object]) -> list[str]:
    """Return the placements that lack an object and do not say so."""
    silent: list[str] = []
    for each in owners:
        if each["kind"] == "PropagationPolicy":
            continue
        held = await site.hub.get(path_for(each))
        statuses: list[Object] = find_at(held, "status", "placementStatuses") or []
        failed = {
            one["name"]
            for status in statuses
            for one in status.get("failedPlacements") or ()
            if one["kind"] == "ConfigMap"
        }
        for name in OBJECTS:
            path = ResourcePath(RESOURCE_BINDINGS, space, f"{name}-configmap")
            binding = await site.hub.find(path) or {}
            is_its_own = controller_uid_of(binding) == uid_of(each)
            if wants(each, name) and not is_its_own and name not in failed:
                silent.append(f"{name_of(each)} does not say why it has no {name}")
    return silent


async def story(site: PlacementSite, seed: int, number_of_owners: int) -> None:
    random, space = Random(seed), f"seed-{seed}"
    await site.put(NAMESPACES, namespace(space))
    things: list[Object] = [config_map(each, {"v": "1"}, namespace=space) for each in OBJECTS]
    things += [owner(random, each, space) for each in range(number_of_owners)]
    random.shuffle(things)
    owners: list[Object] = []
    for each in things:
        if each["kind"] == "ConfigMap":
            await site.put(CONFIG_MAPS, each)
        else:
            made = await site.hub.create(path_for(each).collection, each)
            owners.append(made)

    async def problems() -> list[str]:
        found = await disowned(site, space, owners)
        return found or await unexplained(site, space, owners)

    async def is_settled() -> bool:
        return not await problems()

    await until(is_settled, 180, explain=problems)
    # Owners go, in any order, and whoever is left has what they had.
    random.shuffle(owners)
    while owners:
        going, owners[:] = owners[: 1 + len(owners) // 2], owners[1 + len(owners) // 2 :]
        for each in going:
            await site.delete(path_for(each))
        await until(is_settled, 180, explain=problems)
    await site.delete(ResourcePath(NAMESPACES, "", space))


async def test_each_object_of_many_owners_is_one_owners(tmp_path: Path) -> None:
    async with placement_site(tmp_path, "east") as site, running(site):
        await story(site, 1, 8)


@pytest.mark.slow
async def test_each_object_is_one_owners_whatever_the_order(tmp_path: Path) -> None:
    async with placement_site(tmp_path, "east") as site, running(site):
        for seed in range(200):
            await story(site, seed, 50 if seed % 20 == 0 else 10)
