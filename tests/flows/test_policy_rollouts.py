"""Rollouts of policies: a change reaches clusters stage by stage, and goes back at once."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    cluster_role,
    placement_site,
    running,
)
from tests.flows.test_staged_updates import Runs, stage, strategy

from clusterspace.apis.fleet_placements import NAMESPACED
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.rollouts import new_run, run_number
from clusterspace.apis.staged_updates import CLUSTER_RUNS, NAMESPACED_RUNS
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.testing.builders import DEPLOYMENTS, config_map
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until, until_equal

RINGS = {"one": "canary", "two": "prod", "three": "prod"}
BINDING = ResourcePath(RESOURCE_BINDINGS, "app", "settings-configmap")
POLICY = ResourcePath(PROPAGATION_POLICIES, "app", "web")
APPROVED = {"afterStageTasks": [{"type": "Approval"}]}


def policy(name: str = "web", *selected: str, rings: str = "rings", **spec: Any) -> Object:
    """Return a policy that places ConfigMaps on every cluster, by the strategy of this name."""
    selectors = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": each}
        for each in selected or ("settings",)
    ]
    rollout = {"rollout": {"strategyName": rings}} if rings else {}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "app"},
        "spec": {
            "resourceSelectors": selectors,
            "placement": {"clusterAffinity": {"clusterNames": []}},
            **rollout,
            **spec,
        },
    }


async def rolled_out(site: PlacementSite, path: ResourcePath = BINDING) -> tuple[str, str]:
    binding = await site.hub.find(path) or {}
    found = find_condition(find_at(binding, "status", "conditions"), "RolledOut") or {}
    return str(found.get("status", "")), str(found.get("reason", ""))


async def until_rolled_out(site: PlacementSite, *wanted: str) -> None:
    async def look() -> Any:
        return await rolled_out(site)

    await until_equal(look, wanted)


async def contents(site: PlacementSite, name: str = "settings") -> dict[str, Any]:
    found = {each: await site.data(each, name) for each in site.members}
    return {each: (data or {}).get("v") for each, data in found.items()}


async def until_contents(site: PlacementSite, name: str = "settings", **wanted: Any) -> None:
    async def look() -> Any:
        return await contents(site, name)

    await until_equal(look, wanted)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path) as made:
        for name, ring in RINGS.items():
            await made.join(name, labels={"ring": ring, "order": str(len(name))})
        await made.app("settings")
        async with running(made):
            yield made


async def placed(site: PlacementSite, *stages: Object, **spec: Any) -> Runs:
    """Place the settings by a policy with stages; the first state is everywhere at once."""
    default = (stage("canary", "canary", **APPROVED), stage("prod", "prod"))
    made = strategy(*(stages or default), namespace="app")
    await site.put(NAMESPACED_RUNS.strategies, made)
    await site.put(PROPAGATION_POLICIES, policy(**spec))
    await until_contents(site, **dict.fromkeys(site.members, "1"))
    await until_rolled_out(site, "True", "RolledOut")
    return Runs(site, "app")


async def test_a_change_waits_for_its_stage_and_for_approval(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await settled()
    assert await contents(site) == {"one": "2", "two": "1", "three": "1"}
    assert await rolled_out(site) == ("False", "UpdateRunWaiting")

    await runs.approve("web-1-after-canary")
    await runs.until("web-1", "Succeeded", "True", "UpdateRunSucceeded")
    assert await contents(site) == {"one": "2", "two": "2", "three": "2"}
    await until_rolled_out(site, "True", "RolledOut")


async def test_the_old_template_put_back_is_everywhere_at_once(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.set_data("settings", {"v": "1"})
    await runs.until("web-2", "Succeeded", "True", "UpdateRunSucceeded")
    await runs.until("web-1", "Succeeded", "False", "UpdateRunFailed")
    assert await contents(site) == {"one": "1", "two": "1", "three": "1"}
    await until_rolled_out(site, "True", "RolledOut")


async def test_a_newer_change_supersedes_the_one_before_it(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.set_data("settings", {"v": "3"})
    await until_contents(site, one="3", two="1", three="1")
    await runs.until("web-1", "Succeeded", "False", "UpdateRunFailed")
    await runs.approve("web-2-after-canary")
    await runs.until("web-2", "Succeeded", "True", "UpdateRunSucceeded")
    assert await contents(site) == {"one": "3", "two": "3", "three": "3"}
    snapshots = ResourcePath(NAMESPACED.resource_snapshots, "app")

    async def only_one_is_left() -> bool:
        return len(await site.hub.list_objects(snapshots)) == 1

    await until(only_one_is_left)


async def test_a_new_cluster_gets_what_its_stage_has_reached(site: PlacementSite) -> None:
    runs = await placed(site, stage("canary", "canary"), stage("prod", "prod", **BEFORE))
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.join("four", labels={"ring": "prod"})
    await site.join("five", labels={"ring": "canary"})
    await until_contents(site, one="2", two="1", three="1", four="1", five="2")
    await runs.approve("web-1-before-prod")
    await until_contents(site, one="2", two="2", three="2", four="2", five="2")
    await runs.until("web-1", "Succeeded", "True", "UpdateRunSucceeded")


async def test_a_silent_cluster_is_parked_and_updated_when_it_is_back(tmp_path: Path) -> None:
    async with placement_site(tmp_path) as site:
        for name, ring in {**RINGS, "four": "prod"}.items():
            await site.join(name, labels={"ring": ring})
        await site.app("settings")
        async with running(site):
            stages = (stage("canary", "canary"), stage("prod", "prod", maxConcurrency=2))
            runs = await placed(site, *stages)
        reached = site.members.pop("three")
        await site.set_ready("three", "False", for_seconds=600)
        await site.set_data("settings", {"v": "2"})
        async with running(site):
            await runs.until("web-1", "Succeeded", "True", "UpdateRunSucceeded")
            held = await site.hub.get(ResourcePath(NAMESPACED_RUNS.runs, "app", "web-1"))
            done = find_condition(held["status"]["conditions"], "Succeeded") or {}
            assert done["message"] == "every cluster is updated but those parked: three"
            assert await contents(site) == {"one": "2", "two": "2", "four": "2"}
            site.members["three"] = reached
            await site.set_ready("three", "True")
            await until_contents(site, one="2", two="2", three="2", four="2")


async def test_objects_of_one_policy_change_together(site: PlacementSite) -> None:
    await site.put(CONFIG_MAPS, config_map("more", {"v": "1"}, namespace="app"))
    names = ("settings", "more")
    selectors = [{"apiVersion": "v1", "kind": "ConfigMap", "name": each} for each in names]
    runs = await placed(site, resourceSelectors=selectors)
    await until_contents(site, "more", one="1", two="1", three="1")
    for name in names:
        await site.set_data(name, {"v": "2"})

    async def runs_there() -> list[Object]:
        listed = await site.hub.list_objects(ResourcePath(NAMESPACED_RUNS.runs, "app"))
        return sorted(listed, key=lambda each: run_number(name_of(each)))

    await until(runs_there)
    last = name_of((await runs_there())[-1])
    await runs.until(last, "Progressing", "False", "UpdateRunWaiting")
    for name in names:
        await until_contents(site, name, one="2", two="1", three="1")
    await runs.approve(f"{last}-after-canary")
    for name in names:
        await until_contents(site, name, one="2", two="2", three="2")


async def test_a_changed_override_goes_stage_by_stage_too(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.put(OVERRIDE_POLICIES, override("3"))
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    assert await contents(site) == {"one": "3", "two": "1", "three": "1"}
    await runs.approve("web-1-after-canary")
    await runs.until("web-1", "Succeeded", "True", "UpdateRunSucceeded")
    await site.delete(ResourcePath(OVERRIDE_POLICIES, "app", "values"))
    await until_contents(site, one="1", two="3", three="3")


def override(value: str) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": "values", "namespace": "app"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}],
            "overrideRules": [
                {
                    "overriders": {
                        "plaintext": [{"path": "/data/v", "operator": "replace", "value": value}]
                    }
                }
            ],
        },
    }


async def test_nothing_goes_anywhere_while_no_strategy_says_how(site: PlacementSite) -> None:
    await site.put(PROPAGATION_POLICIES, policy())
    await until_contents(site, one="1", two="1", three="1")
    await site.set_data("settings", {"v": "2"})
    await until_rolled_out(site, "False", "RolloutNotStaged")
    await settled()
    assert await contents(site) == {"one": "1", "two": "1", "three": "1"}
    binding = await site.hub.get(BINDING)
    found = find_condition(binding["status"]["conditions"], "RolledOut") or {}
    assert found["message"] == "there is no StagedUpdateStrategy rings"
    incomplete = strategy(stage("canary", "canary"), namespace="app")
    await site.put(NAMESPACED_RUNS.strategies, incomplete)

    async def said() -> str:
        held = await site.hub.get(BINDING)
        told = find_condition(held["status"]["conditions"], "RolledOut") or {}
        return str(told.get("message"))

    await until_equal(said, "no stage selects three, two: every cluster must be in one")
    path = ResourcePath(NAMESPACED_RUNS.strategies, "app", "rings")
    both = [stage("canary", "canary"), stage("prod", "prod")]
    await site.change(path, lambda held: with_value(held, both, "spec", "stages"))
    await until_contents(site, one="2", two="2", three="2")


async def test_without_a_rollout_everything_is_as_ever(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.change(POLICY, lambda held: without_value(held, "spec", "rollout"))
    await until_contents(site, one="2", two="2", three="2")
    await runs.until("web-1", "Succeeded", "False", "UpdateRunFailed")

    async def nothing_is_left() -> bool:
        held = await site.hub.get(BINDING)
        listed = await site.hub.list_objects(ResourcePath(NAMESPACED.resource_snapshots, "app"))
        return "revisions" not in held["spec"] and "rollout" not in held["spec"] and not listed

    await until(nothing_is_left)


async def test_a_deletion_is_never_held_back(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.delete(ResourcePath(CONFIG_MAPS, "app", "settings"))
    await until_contents(site, one=None, two=None, three=None)


async def test_what_no_policy_claims_any_more_stays_as_it_is(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.delete(POLICY)

    async def is_gone() -> bool:
        return await site.hub.find(POLICY) is None

    await until(is_gone)
    await settled()
    assert await contents(site) == {"one": "2", "two": "1", "three": "1"}


async def test_a_change_that_cannot_be_applied_stops_in_its_stage(site: PlacementSite) -> None:
    rollout = {"strategyName": "rings", "progressDeadlineSeconds": 1}
    runs = await placed(site, stage("canary", "canary"), stage("prod", "prod"), rollout=rollout)
    await site.put(OVERRIDE_POLICIES, with_value(override("3"), BAD, "spec", "overrideRules"))
    await runs.until("web-1", "Progressing", "False", "UpdateRunStuck")
    held = await site.hub.get(ResourcePath(NAMESPACED_RUNS.runs, "app", "web-1"))
    told = find_condition(held["status"]["conditions"], "Progressing") or {}
    assert told["message"].startswith("one: ConfigMap settings")
    assert await rolled_out(site) == ("False", "UpdateRunStuck")
    assert await contents(site) == {"one": "1", "two": "1", "three": "1"}
    await site.delete(ResourcePath(OVERRIDE_POLICIES, "app", "values"))
    await until_rolled_out(site, "True", "RolledOut")


BAD = [{"overriders": {"plaintext": [{"path": "/data/x/y", "operator": "remove"}]}}]
BEFORE = {"beforeStageTasks": [{"type": "Approval"}]}


async def test_what_a_template_needs_follows_it(site: PlacementSite) -> None:
    """Also what only its older state needs, as long as a cluster has that."""
    await site.put(DEPLOYMENTS, deployment("old"))
    for name in ("old", "new"):
        await site.put(CONFIG_MAPS, config_map(name, {"v": "1"}, namespace="app"))
    selectors = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]
    await site.put(PROPAGATION_POLICIES, policy(propagateDeps=True, resourceSelectors=selectors))
    stages = (stage("canary", "canary", **APPROVED), stage("prod", "prod"))
    await site.put(NAMESPACED_RUNS.strategies, strategy(*stages, namespace="app"))
    await until_contents(site, "old", one="1", two="1", three="1")
    runs = Runs(site, "app")

    await site.set_data("old", {"v": "2"})
    await until_contents(site, "old", one="2", two="1", three="1")
    await site.set_data("old", {"v": "1"})
    await runs.until("web-2", "Succeeded", "True", "UpdateRunSucceeded")
    await until_contents(site, "old", one="1", two="1", three="1")

    path = ResourcePath(DEPLOYMENTS, "app", "web")
    await site.change(path, lambda held: {**held, "spec": deployment("new")["spec"]})
    await until_contents(site, "new", one="1", two="1", three="1")
    await runs.until("web-3", "Progressing", "False", "UpdateRunWaiting")
    await settled()
    assert await contents(site, "old") == {"one": "1", "two": "1", "three": "1"}
    assert [await needed(site, each) for each in RINGS] == ["new", "old", "old"]
    await runs.approve("web-3-after-canary")
    await until_contents(site, "old", one=None, two=None, three=None)
    assert [await needed(site, each) for each in RINGS] == ["new", "new", "new"]


async def needed(site: PlacementSite, cluster: str) -> str:
    held = await site.members[cluster].get(ResourcePath(DEPLOYMENTS, "app", "web"))
    return str(held["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"])


def deployment(needs: str) -> Object:
    """Return a Deployment without replicas, which is well wherever it is."""
    volume = {"name": "settings", "configMap": {"name": needs}}
    pod = {"containers": [{"name": "web", "image": "web:1"}], "volumes": [volume]}
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "app"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


async def test_to_scale_is_not_to_roll_out(site: PlacementSite) -> None:
    await site.put(DEPLOYMENTS, deployment("old"))
    selectors = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]
    await site.put(PROPAGATION_POLICIES, policy(resourceSelectors=selectors))
    path = ResourcePath(DEPLOYMENTS, "app", "web")

    async def replicas() -> list[Any]:
        found = [await each.find(path) for each in site.members.values()]
        return [find_at(each or {}, "spec", "replicas") for each in found]

    await until_equal(replicas, [0, 0, 0])
    await site.change(path, lambda held: with_value(held, 2, "spec", "replicas"))
    await until_equal(replicas, [2, 2, 2])
    assert not await site.hub.list_objects(ResourcePath(NAMESPACED_RUNS.runs, "app"))


async def test_a_run_that_somebody_wrote_gets_around_no_approval(site: PlacementSite) -> None:
    runs = await placed(site)
    held = await site.hub.get(POLICY)
    forged = new_run(held, "web-7", is_rollback=True)
    await site.put(NAMESPACED_RUNS.runs, forged)
    await site.set_data("settings", {"v": "2"})
    await until_contents(site, one="2", two="1", three="1")

    async def waiting() -> list[str]:
        listed = await site.hub.list_objects(ResourcePath(NAMESPACED_RUNS.approvals, "app"))
        return [name_of(each) for each in listed]

    await until(waiting)
    await settled()
    assert await contents(site) == {"one": "2", "two": "1", "three": "1"}
    for name in await waiting():
        await runs.approve(name)
    await until_contents(site, one="2", two="2", three="2")


async def test_another_policy_goes_on_where_the_first_one_was(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.put(PROPAGATION_POLICIES, policy("api", priority=9, preemption="Always"))
    await runs.until("api-2", "Progressing", "False", "UpdateRunWaiting")
    assert await contents(site) == {"one": "2", "two": "1", "three": "1"}
    await runs.approve("api-2-after-canary")
    await until_contents(site, one="2", two="2", three="2")
    await until_rolled_out(site, "True", "RolledOut")


@pytest.mark.slow
async def test_a_suspended_cluster_is_waited_for_and_said(site: PlacementSite) -> None:
    rollout = {"strategyName": "rings", "progressDeadlineSeconds": 1}
    suspended = {"dispatchingOnClusters": {"clusterNames": ["one"]}}
    runs = await placed(site, stage("canary", "canary"), stage("prod", "prod"), rollout=rollout)
    await site.change(POLICY, lambda held: with_value(held, suspended, "spec", "suspension"))
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunStuck")
    binding = await site.hub.get(BINDING)
    said = find_condition(binding["status"]["conditions"], "RolledOut") or {}
    assert said["message"].endswith("waits until dispatching is no longer suspended")
    assert await contents(site) == {"one": "1", "two": "1", "three": "1"}
    await site.change(POLICY, lambda held: without_value(held, "spec", "suspension"))
    await until_contents(site, one="2", two="2", three="2")


async def test_a_cluster_wide_policy_rolls_out_by_a_cluster_wide_strategy(
    site: PlacementSite,
) -> None:
    stages = (stage("canary", "canary", **APPROVED), stage("prod", "prod"))
    await site.put(CLUSTER_RUNS.strategies, strategy(*stages))
    role = cluster_role("reader", tier="1")
    await site.put(CLUSTER_ROLES, role)
    selectors = [
        {"apiVersion": role["apiVersion"], "kind": "ClusterRole", "name": "reader"},
        {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "app", "name": "settings"},
    ]
    wide = {**policy(resourceSelectors=selectors), "kind": "ClusterPropagationPolicy"}
    await site.put(CLUSTER_PROPAGATION_POLICIES, with_metadata(wide, namespace=None))
    path = ResourcePath(CLUSTER_ROLES, "", "reader")

    async def tiers() -> list[Any]:
        found = [await each.find(path) for each in site.members.values()]
        return [labels_of(each or {}).get("tier") for each in found]

    await until_equal(tiers, ["1", "1", "1"])
    await until_contents(site, one="1", two="1", three="1")
    await site.change(
        path, lambda held: with_metadata(held, labels={**labels_of(held), "tier": "2"})
    )
    await until_equal(tiers, ["2", "1", "1"])
    await Runs(site).approve("web-1-after-canary")
    await until_equal(tiers, ["2", "2", "2"])


async def test_what_a_run_brought_everywhere_is_gone_back_to_though_nobody_had_said_so_yet(
    tmp_path: Path,
) -> None:
    """A newer change comes between the end of a run and the note that its state is the good one."""
    async with placement_site(tmp_path) as site:
        for name, ring in RINGS.items():
            await site.join(name, labels={"ring": ring, "order": str(len(name))})
        await site.app("settings")
        async with running(site):
            runs = await placed(site)
            first = (await site.hub.get(BINDING))["spec"]["revisions"]["stable"]
            await site.set_data("settings", {"v": "2"})
            await runs.approve("web-1-after-canary")
            await runs.until("web-1", "Succeeded", "True", "UpdateRunSucceeded")
            await until_rolled_out(site, "True", "RolledOut")
        await site.change(BINDING, lambda b: with_value(b, first, "spec", "revisions", "stable"))
        await site.set_data("settings", {"v": "3"})
        async with running(site):
            await runs.until("web-2", "Progressing", "False", "UpdateRunWaiting")
            await site.set_data("settings", {"v": "2"})
            await runs.until("web-3", "Succeeded", "True", "UpdateRunSucceeded")
            assert set((await contents(site)).values()) == {"2"}
