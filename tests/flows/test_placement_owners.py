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
from clusterspace.apis.policies import CLUSTER_PROPAGATION_POLICIES, PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS, controller_uid_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.fleet.propagation.bindings import claim_of
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of, uid_of
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.steps import until

OBJECTS: tuple[str, ...] = ("a", "b", "c", "d", "e")
POLICIES = ("PropagationPolicy", "ClusterPropagationPolicy")


def owner(random: Random, number: int, space: str) -> Object:
    """Return a placement or a policy, of either scope, that wants some of the objects."""
    names = random.sample(OBJECTS, random.randint(1, len(OBJECTS)))
    match random.randrange(5):
        case 0:
            made = placement(f"{space}-{number}")
        case 1:
            made = policy("ClusterPropagationPolicy", {"name": f"{space}-{number}"})
        case 2:
            made = policy("PropagationPolicy", {"name": f"o{number}", "namespace": space})
        case _:
            made = resource_placement()
            made = {**made, "metadata": {"name": f"o{number}", "namespace": space}}
    return selecting(made, space, names)


def policy(kind: str, metadata: Object) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"placement": {"clusterAffinity": {"clusterNames": ["east"]}}},
    }


def selecting(made: Object, space: str, names: list[str]) -> Object:
    """Return an owner that wants these objects: all in the namespace, where it cannot say."""
    version = {"apiVersion": "v1"} if made["kind"] in POLICIES else {"group": "", "version": "v1"}
    inside = {"namespace": space} if made["kind"] in POLICIES else {}
    selectors = [{**version, **inside, "kind": "ConfigMap", "name": each} for each in names]
    if made["kind"] == "ClusterResourcePlacement":
        selectors = [namespace_selector(space)]
    return {**made, "spec": {**made["spec"], "resourceSelectors": selectors}}


def wants(made: Object, name: str) -> bool:
    if made["kind"] == "ClusterResourcePlacement":
        return True
    return name in {each["name"] for each in made["spec"]["resourceSelectors"]}


def path_for(made: Object) -> ResourcePath:
    if made["kind"] == "PropagationPolicy":
        return resource_path_of(PROPAGATION_POLICIES, made)
    if made["kind"] == "ClusterPropagationPolicy":
        return resource_path_of(CLUSTER_PROPAGATION_POLICIES, made)
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
            if any(each["kind"] in POLICIES for each in candidates):
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
        if each["kind"] in POLICIES:
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
    """Let owners and objects come, change and go in any order, and look whenever they rest."""
    random, space = Random(seed), f"seed-{seed}"
    await site.put(NAMESPACES, namespace(space))
    coming: list[Object] = [config_map(each, {"v": "1"}, namespace=space) for each in OBJECTS]
    coming += [owner(random, each, space) for each in range(number_of_owners)]
    random.shuffle(coming)
    owners: list[Object] = []
    while coming:
        match random.randrange(8) if owners else 7:
            case 0:
                await site.delete(path_for(owners.pop(random.randrange(len(owners)))))
            case 1 | 2:
                at = random.randrange(len(owners))
                names = random.sample(OBJECTS, random.randint(1, len(OBJECTS)))

                def changed(held: Object, names: list[str] = names) -> Object:
                    return selecting(held, space, names)

                owners[at] = await site.change(path_for(owners[at]), changed)
            case _:
                each = coming.pop()
                if each["kind"] == "ConfigMap":
                    await site.put(CONFIG_MAPS, each)
                else:
                    owners.append(await site.hub.create(path_for(each).collection, each))

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
            await story(site, seed, 50)
