"""What runs did and snapshots hold is said by the controllers, and believed as far as it can be.

The attacker may write all there is of staged update runs and snapshots, in one namespace or in all:
a status that says `Succeeded`, or that a stage was approved, once was taken at its word, and one of
another shape held the run, and every later change, for ever. What was written into a snapshot was
brought to clusters, without a stage or an approval.
"""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.test_rights_beyond_patch import Hub, rule
from tests.component.placement_site import PlacementSite, placement, placement_site, running
from tests.flows.stages import edit
from tests.flows.test_policy_rollouts import (
    APPROVED,
    BINDING,
    RINGS,
    contents,
    placed,
    until_contents,
    until_rolled_out,
)
from tests.flows.test_staged_updates import Runs, run, stage, strategy

from clusterspace.apis.fleet_placements import (
    API_VERSION,
    CLUSTER_WIDE,
    GROUP,
    NAMESPACED,
    PARENT,
    RESOURCE_HASH,
    PlacementScope,
)
from clusterspace.apis.rollouts import revision_name, revisions_of
from clusterspace.apis.staged_updates import CLUSTER_RUNS, NAMESPACED_RUNS, StagedScope
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Forbidden
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value
from clusterspace.testing.builders import config_map
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

SUCCEEDED: Object = {
    "type": "Succeeded",
    "status": "True",
    "reason": "UpdateRunSucceeded",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
RUN_OF_POLICY = ResourcePath(NAMESPACED_RUNS.runs, "app", "web-1")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as admin:
        yield Hub(admin, settings)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path) as made:
        for name, ring in RINGS.items():
            await made.join(name, labels={"ring": ring})
        await made.app("settings")
        async with running(made):
            yield made


def told(held: Object) -> Object:
    conditions = find_at(held, "status", "conditions") or []
    return with_value(held, [*conditions, SUCCEEDED], "status", "conditions")


def path_in(scope: StagedScope) -> ResourcePath:
    namespace = "default" if scope is NAMESPACED_RUNS else ""
    return ResourcePath(scope.runs, namespace, "mine")


# Who may say what a run did


@pytest.mark.parametrize("scope", [CLUSTER_RUNS, NAMESPACED_RUNS], ids=["of the hub", "namespaced"])
async def test_who_may_write_runs_does_not_say_what_they_did(hub: Hub, scope: StagedScope) -> None:
    place, plural = path_in(scope), scope.runs.resource
    made = told(run("mine", of=f"{place.namespace}/crp" if place.namespace else "crp"))
    async with hub.seen_by(rule(GROUP, plural, f"{plural}/status")) as mallory:
        created = await mallory.create(place.collection, made)
        assert "status" not in created
        status = place.with_subresource("status")
        with pytest.raises(Forbidden) as refused:
            await mallory.update(status, told(await mallory.get(place)))
        await edit(mallory, place, lambda held: with_value(held, "Stop", "spec", "state"))
        await edit(mallory, place, lambda held: with_metadata(held, labels={"a": "b"}))

    assert 'cannot update resource "clusterstagedupdateruns/progress"' in refused.value.message
    assert "the status of a run says what it did" in refused.value.message


async def test_the_right_to_say_what_runs_did_can_be_given(hub: Hub) -> None:
    place = path_in(NAMESPACED_RUNS)
    await hub.admin.create(place.collection, run("mine", of="default/crp"))
    rights = ("stagedupdateruns", "stagedupdateruns/status", "clusterstagedupdateruns/progress")
    async with hub.seen_by(rule(GROUP, *rights)) as program:
        held = await program.get(place)
        changed = await program.update(place.with_subresource("status"), told(held))

    assert find_condition(changed["status"]["conditions"], "Succeeded")


# What is believed, should it be written after all


async def test_a_success_that_bindings_know_nothing_of_is_not_believed(site: PlacementSite) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.change(RUN_OF_POLICY, told)

    await runs.until("web-2", "Progressing", "False", "UpdateRunWaiting")
    await settled()
    assert await contents(site) == {"one": "2", "two": "1", "three": "1"}
    await runs.approve("web-2-after-canary")
    await runs.until("web-2", "Succeeded", "True", "UpdateRunSucceeded")
    await until_contents(site, one="2", two="2", three="2")


def without_stages(held: Object) -> Object:
    return with_value(held, [], "status", "stagesStatus")


def without_a_stage(held: Object) -> Object:
    return with_value(held, held["status"]["stagesStatus"][1:], "status", "stagesStatus")


def without_a_strategy(held: Object) -> Object:
    return with_value(held, {"stages": []}, "status", "stagedUpdateStrategySnapshot")


def in_another_order(held: Object) -> Object:
    return with_value(held, held["status"]["stagesStatus"][::-1], "status", "stagesStatus")


def without_a_task(held: Object) -> Object:
    canary, prod = held["status"]["stagesStatus"]
    bare = {**canary, "afterStageTaskStatus": []}
    return with_value(held, [bare, prod], "status", "stagesStatus")


def with_a_cluster_twice(held: Object) -> Object:
    canary, prod = held["status"]["stagesStatus"]
    twice = {**prod, "clusters": [*prod["clusters"], {"clusterName": "one"}]}
    return with_value(held, [canary, twice], "status", "stagesStatus")


def with_a_selector_of_nothing(held: Object) -> Object:
    stages = held["status"]["stagedUpdateStrategySnapshot"]["stages"]
    odd = {"matchExpressions": [{"key": "ring", "operator": "Near"}]}
    changed = [stages[0], {**stages[1], "labelSelector": odd}]
    return with_value(held, changed, "status", "stagedUpdateStrategySnapshot", "stages")


SHAPES = [
    without_stages,
    without_a_stage,
    without_a_strategy,
    in_another_order,
    without_a_task,
    with_a_cluster_twice,
    with_a_selector_of_nothing,
]


@pytest.mark.parametrize("broken", SHAPES)
async def test_a_policys_run_of_another_shape_is_followed_by_the_next(
    site: PlacementSite, broken: Callable[[Object], Object]
) -> None:
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    await site.change(RUN_OF_POLICY, broken)

    await runs.until("web-1", "Succeeded", "False", "UpdateRunFailed")
    await runs.until("web-2", "Progressing", "False", "UpdateRunWaiting")
    assert await contents(site) == {"one": "2", "two": "1", "three": "1"}
    await runs.approve("web-2-after-canary")
    await runs.until("web-2", "Succeeded", "True", "UpdateRunSucceeded")


@pytest.mark.parametrize("broken", SHAPES)
async def test_a_placements_run_of_another_shape_fails_and_says_so(
    site: PlacementSite, broken: Callable[[Object], Object]
) -> None:
    runs = Runs(site)
    await site.place(placement(type="External"))
    stages = stage("canary", "canary", **APPROVED), stage("prod", "prod")
    await site.put(CLUSTER_RUNS.strategies, strategy(*stages))
    await runs.begin(run("first"))
    await runs.until("first", "Progressing", "False", "UpdateRunWaiting")
    await site.change(ResourcePath(CLUSTER_RUNS.runs, "", "first"), broken)

    await runs.until("first", "Succeeded", "False", "UpdateRunFailed")
    status: Any = await runs.status("first")
    said = find_condition(status["conditions"], "Succeeded") or {}
    assert said["message"].startswith("its status is not as it was written: ")
    assert await site.data("two", "settings") is None


# What snapshots hold


def snapshot(namespace: str, value: str) -> Object:
    wanted = config_map("settings", {"v": value}, namespace="app")
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSnapshot" if namespace else "ClusterResourceSnapshot",
        "metadata": {"name": "mine", **({"namespace": namespace} if namespace else {})},
        "spec": {"selectedResources": [wanted]},
    }


@pytest.mark.parametrize("scope", [CLUSTER_WIDE, NAMESPACED], ids=["of the hub", "namespaced"])
async def test_who_may_write_snapshots_does_not_say_what_is_in_them(
    hub: Hub, scope: PlacementScope
) -> None:
    resource, namespace = scope.resource_snapshots, "default" if scope is NAMESPACED else ""
    place = ResourcePath(resource, namespace, "mine")
    made = snapshot(namespace, "1")
    said = 'cannot update resource "clusterresourcesnapshots/contents"'
    async with hub.seen_by(rule(GROUP, resource.resource)) as mallory:
        with pytest.raises(Forbidden, match=said):
            await mallory.create(place.collection, made)
        await hub.admin.create(place.collection, made)
        for changed in (
            {**await mallory.get(place), "spec": snapshot(namespace, "2")["spec"]},
            with_metadata(await mallory.get(place), labels={PARENT: "crp"}),
            with_metadata(await mallory.get(place), annotations={RESOURCE_HASH: "0"}),
        ):
            with pytest.raises(Forbidden, match=said):
                await mallory.update(place, changed)


def altered(held: Object) -> Object:
    first, *others = held["spec"]["selectedResources"]
    return with_value(
        held, [{**first, "data": {"v": "evil"}}, *others], "spec", "selectedResources"
    )


def state(revision: str) -> ResourcePath:
    name = revision_name("settings-configmap", revision)
    return ResourcePath(NAMESPACED.resource_snapshots, "app", name)


async def test_an_altered_state_of_a_policy_is_brought_nowhere(site: PlacementSite) -> None:
    """The old state is refused and named; the newest one is stored again from the template."""
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    revisions = revisions_of(await site.hub.get(BINDING))
    assert revisions is not None
    await site.change(state(revisions.stable), altered)
    await site.change(state(revisions.latest), altered)
    # What a look at the binding, or a new cluster, takes from it.
    await site.join("four", labels={"ring": "prod"})
    await until_rolled_out(site, "False", "SnapshotAltered")
    condition = find_condition((await site.hub.get(BINDING))["status"]["conditions"], "RolledOut")
    assert condition is not None
    assert f"ResourceSnapshot {state(revisions.stable).key} is not" in condition["message"]
    await settled()
    assert await contents(site) == {"one": "2", "two": "1", "three": "1", "four": None}

    await runs.approve("web-1-after-canary")
    await until_contents(site, one="2", two="2", three="2", four="2")
    await until_rolled_out(site, "True", "RolledOut")


async def test_a_state_that_somebody_stored_before_is_replaced(site: PlacementSite) -> None:
    """Its name follows from what the template will say, so it can be there first."""
    runs = await placed(site)
    await site.set_data("settings", {"v": "2"})
    await runs.until("web-1", "Progressing", "False", "UpdateRunWaiting")
    second = revisions_of(await site.hub.get(BINDING))
    assert second is not None
    forged = altered(await site.hub.get(state(second.latest)))
    await site.set_data("settings", {"v": "1"})
    await runs.until("web-2", "Succeeded", "True", "UpdateRunSucceeded")

    async def is_gone() -> bool:
        return await site.hub.find(state(second.latest)) is None

    await until(is_gone)
    server_set = ("uid", "resourceVersion", "creationTimestamp")
    metadata = {k: v for k, v in metadata_of(forged).items() if k not in server_set}
    await site.put(NAMESPACED.resource_snapshots, {**forged, "metadata": metadata})
    await site.set_data("settings", {"v": "2"})
    await runs.approve("web-3-after-canary")
    await until_contents(site, one="2", two="2", three="2")


async def test_an_altered_snapshot_of_a_placement_is_not_gone_back_to(site: PlacementSite) -> None:
    runs = Runs(site)
    await site.place(placement(type="External"))
    await site.put(
        CLUSTER_RUNS.strategies, strategy(stage("canary", "canary"), stage("prod", "prod"))
    )
    for name, value in (("first", "1"), ("second", "2")):
        await site.set_data("settings", {"v": value})
        await runs.begin(run(name))
        await runs.until(name, "Succeeded", "True", "UpdateRunSucceeded")
    old = ResourcePath(CLUSTER_WIDE.resource_snapshots, "", "crp-0-snapshot")

    def with_evil(held: Object) -> Object:
        manifests = [
            {**each, "data": {"v": "evil"}} if each["kind"] == "ConfigMap" else each
            for each in held["spec"]["selectedResources"]
        ]
        return with_value(held, manifests, "spec", "selectedResources")

    await site.change(old, with_evil)
    await runs.begin(run("back", index="0"))
    await runs.until("back", "Initialized", "False", "UpdateRunInitializedFailed")
    status: Any = await runs.status("back")
    said = find_condition(status["conditions"], "Initialized") or {}
    assert said["message"] == "ClusterResourceSnapshot crp-0-snapshot is not as it was written"
    assert set((await contents(site)).values()) == {"2"}

    # The newest, altered, is written anew under the next number.
    newest = ResourcePath(CLUSTER_WIDE.resource_snapshots, "", "crp-1-snapshot")
    await site.change(newest, with_evil)
    await runs.begin(run("again"))
    await runs.until("again", "Succeeded", "True", "UpdateRunSucceeded")
    assert (await runs.status("again"))["resourceSnapshotIndexUsed"] == "2"
    assert set((await contents(site)).values()) == {"2"}
