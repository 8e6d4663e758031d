"""The rollout of a policy is its own: bindings of others neither join it nor hold it.

The attacker may write bindings in one namespace. One that said there that it followed somebody
else's policy, or was needed by somebody else's binding, once was a part of that policy's run: its
clusters were waited for, and the number of the run that it named was where others went on counting.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import CONFIG_MAPS, PlacementSite, placement_site, running
from tests.flows.test_policy_rollouts import BAD, override, policy
from tests.flows.test_staged_updates import Runs, stage, strategy

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import generation_of
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.rollouts import revisions_of
from clusterspace.apis.staged_updates import CLUSTER_RUNS, NAMESPACED_RUNS
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, uid_of, with_value, without_value
from clusterspace.testing.steps import until, until_equal

VICTIM, TENANT = "app", "tenant"
BINDING = "settings-configmap"
OF_VICTIM = ResourcePath(RESOURCE_BINDINGS, VICTIM, BINDING)
OF_TENANT = ResourcePath(RESOURCE_BINDINGS, TENANT, BINDING)
RUNS = ["web-7", f"web-{'9' * 12}", f"web-{'9' * 200}", f"web-{'9' * 5000}"]
RUN_IDS = ["ahead", "the last number", "long for a name", "too long to be a number"]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path) as made:
        await made.join("one", labels={"ring": "canary"})
        await made.join("two", labels={"ring": "prod"})
        await made.app("settings", name=VICTIM)
        await made.app("settings", name=TENANT)
        async with running(made):
            yield made


async def until_data(site: PlacementSite, namespace: str, value: str) -> None:
    async def look() -> Any:
        found = [await site.data(each, "settings", namespace) for each in site.members]
        return [(each or {}).get("v") for each in found]

    await until_equal(look, [value, value])


async def set_data(site: PlacementSite, namespace: str, value: str) -> None:
    place = ResourcePath(CONFIG_MAPS, namespace, "settings")
    await site.change(place, lambda held: {**held, "data": {"v": value}})


async def by_claim(site: PlacementSite) -> Object:
    """Return marks that say that a binding follows the victim's policy."""
    victim = await site.hub.get(OF_VICTIM)
    return {
        "labels": {stamps.POLICY_ID: labels_of(victim)[stamps.POLICY_ID]},
        "annotations": {stamps.POLICY_NAMESPACE: VICTIM, stamps.POLICY_NAME: "web"},
    }


async def by_need(_: PlacementSite) -> Object:
    return {}


@pytest.mark.parametrize("run", RUNS, ids=RUN_IDS)
@pytest.mark.parametrize("joining", [by_claim, by_need])
async def test_a_binding_of_another_namespace_holds_no_rollout(
    site: PlacementSite, joining: Any, run: str
) -> None:
    await site.put(
        NAMESPACED_RUNS.strategies,
        strategy(stage("canary", "canary"), stage("prod", "prod"), namespace=VICTIM),
    )
    await site.put(PROPAGATION_POLICIES, policy())
    await until_data(site, VICTIM, "1")

    template = await site.hub.get(ResourcePath(CONFIG_MAPS, TENANT, "settings"))
    needed = {"requiredBy": [{"namespace": VICTIM, "name": BINDING, "clusters": [{"name": "one"}]}]}
    await site.put(
        RESOURCE_BINDINGS,
        {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {"name": BINDING, "namespace": TENANT, **await joining(site)},
            "spec": {
                "resource": {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "namespace": TENANT,
                    "name": "settings",
                    "uid": uid_of(template),
                },
                # A cluster that does not answer: it never has what it is to have.
                "clusters": [{"name": "nowhere"}],
                "rollout": {"strategyName": "rings"},
                "revisions": {"latest": "b", "stable": "a", "run": run},
                **(needed if joining is by_need else {}),
            },
        },
    )
    await set_data(site, VICTIM, "2")
    await Runs(site, VICTIM).until("web-1", "Succeeded", "True", "UpdateRunSucceeded")
    await until_data(site, VICTIM, "2")


@pytest.mark.parametrize("run", RUNS, ids=RUN_IDS)
async def test_a_run_that_a_binding_names_holds_no_rollout_of_others(
    site: PlacementSite, run: str
) -> None:
    """A policy of the whole hub claims what is in both namespaces: there is one run for all."""
    await site.put(
        CLUSTER_RUNS.strategies, strategy(stage("canary", "canary"), stage("prod", "prod"))
    )
    wide = without_value(policy(), "metadata", "namespace")
    await site.put(CLUSTER_PROPAGATION_POLICIES, {**wide, "kind": "ClusterPropagationPolicy"})
    await until_data(site, VICTIM, "1")
    await until_data(site, TENANT, "1")

    async def revisions() -> Any:
        held = await site.hub.get(OF_TENANT)
        return bool(held["spec"].get("revisions"))

    await until_equal(revisions, wanted=True)
    await site.change(OF_TENANT, lambda held: with_value(held, run, "spec", "revisions", "run"))
    for value in ("2", "3"):
        await set_data(site, VICTIM, value)
        await until_data(site, VICTIM, value)
    await set_data(site, TENANT, "2")
    await until_data(site, TENANT, "2")


async def test_a_step_to_many_clusters_is_one_write(tmp_path: Path) -> None:
    """One for each would be, with ten thousand clusters, gigabytes for a policy with one field."""
    clusters = [f"member{number}" for number in range(30)]
    async with placement_site(tmp_path) as site:
        for each in clusters:
            await site.declare(each, labels={"ring": "prod"})
        await site.app("settings", name=VICTIM)
        at_once = strategy(stage("prod", "prod", maxConcurrency="100%"), namespace=VICTIM)
        await site.put(NAMESPACED_RUNS.strategies, at_once)
        await site.put(PROPAGATION_POLICIES, policy())

        async def brought() -> Any:
            found = revisions_of(await site.hub.find(OF_VICTIM) or {})
            return found is not None and [
                each for each in clusters if found.of(each) == found.latest
            ]

        async with running(site):
            await until_equal(brought, clusters)
            before = await site.hub.get(OF_VICTIM)
            first = before["spec"]["revisions"]["latest"]
            await set_data(site, VICTIM, "2")

            async def goes_on() -> Any:
                found = revisions_of(await site.hub.get(OF_VICTIM))
                is_new = found is not None and found.latest != first
                return is_new and await brought()

            await until_equal(goes_on, clusters)
            after = await site.hub.get(OF_VICTIM)
            assert generation_of(after) - generation_of(before) < 10


async def test_who_holds_the_run_of_everybody_is_named_with_their_namespace(
    site: PlacementSite,
) -> None:
    """One run takes all that a policy of the whole hub claims: an operator must see whom to ask."""
    await site.put(
        CLUSTER_RUNS.strategies, strategy(stage("canary", "canary"), stage("prod", "prod"))
    )
    rollout = {"strategyName": "rings", "progressDeadlineSeconds": 1}
    wide = without_value(policy(rollout=rollout), "metadata", "namespace")
    await site.put(CLUSTER_PROPAGATION_POLICIES, {**wide, "kind": "ClusterPropagationPolicy"})
    await until_data(site, VICTIM, "1")
    await until_data(site, TENANT, "1")
    broken = with_value(override("3"), BAD, "spec", "overrideRules")
    broken = with_value(broken, TENANT, "metadata", "namespace")
    await site.put(OVERRIDE_POLICIES, broken)

    async def said() -> str:
        conditions = find_at(await site.hub.get(OF_VICTIM), "status", "conditions")
        return str((find_condition(conditions, "RolledOut") or {}).get("message"))

    await set_data(site, VICTIM, "2")
    await until(lambda: is_named(said), explain=said)


async def is_named(said: Any) -> bool:
    return f"one: ConfigMap {TENANT}/settings" in await said()
