"""Staged update runs: stage by stage, with approvals, stops, joins, leaves and rollbacks."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    PlacementSite,
    path_of,
    placement,
    placement_site,
    resource_placement,
    running,
)

from clusterspace.apis.staged_updates import CLUSTER_RUNS, staged_scope_at
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions
from clusterspace.controllers.informers import HubCaches, Informer
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import PATIENCE, until, until_equal

V1BETA1 = "placement.kubernetes-fleet.io/v1beta1"


def stage(name: str, ring: str, **more: Any) -> Object:
    return {"name": name, "labelSelector": {"matchLabels": {"ring": ring}}, **more}


def strategy(*stages: Object, name: str = "rings", namespace: str = "") -> Object:
    return {
        "apiVersion": V1BETA1,
        "kind": "StagedUpdateStrategy" if namespace else "ClusterStagedUpdateStrategy",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"stages": list(stages)},
    }


def run(
    name: str, *, of: str = "crp", index: str = "", state: str = "Run", rings: str = "rings"
) -> Object:
    namespace, _, placed = of.rpartition("/")
    spec = {"placementName": placed, "stagedRolloutStrategyName": rings, "state": state}
    return {
        "apiVersion": V1BETA1,
        "kind": "StagedUpdateRun" if namespace else "ClusterStagedUpdateRun",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {**spec, "resourceSnapshotIndex": index},
    }


class Runs:
    """The runs of a site, as operators see them."""

    def __init__(self, site: PlacementSite, namespace: str = "") -> None:
        self._site = site
        self._namespace = namespace
        self._scope = staged_scope_at(namespace)

    async def begin(self, made: Object) -> None:
        await self._site.put(self._scope.runs, made)

    async def condition(self, name: str, kind: str) -> tuple[str, str]:
        path = ResourcePath(self._scope.runs, self._namespace, name)
        held = await self._site.hub.find(path) or {}
        found = find_condition(find_at(held, "status", "conditions"), kind) or {}
        return str(found.get("status", "")), str(found.get("reason", ""))

    async def status(self, name: str) -> Object:
        path = ResourcePath(self._scope.runs, self._namespace, name)
        return (await self._site.hub.get(path)).get("status") or {}

    async def until(self, name: str, kind: str, *wanted: str, seconds: float = PATIENCE) -> None:
        async def look() -> Any:
            return await self.condition(name, kind)

        await until_equal(look, wanted, seconds)

    async def approve(self, name: str, seconds: float = PATIENCE) -> None:
        path = ResourcePath(self._scope.approvals, self._namespace, name)

        async def is_there() -> bool:
            return await self._site.hub.find(path) is not None

        await until(is_there, seconds)
        approved = {
            "type": "Approved",
            "status": "True",
            "reason": "lgtm",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"conditions": [approved]}
        await self._site.change(path, lambda held: {**held, "status": status})

    async def tell(self, name: str, state: str) -> None:
        path = ResourcePath(self._scope.runs, self._namespace, name)
        await self._site.change(path, lambda held: with_value(held, state, "spec", "state"))


RINGS = {"one": "canary", "two": "prod", "three": "prod"}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path) as made:
        for name, ring in RINGS.items():
            await made.join(name, labels={"ring": ring, "order": str(len(name))})
        async with running(made):
            yield made


async def test_stage_by_stage_with_an_approval_a_stop_and_a_rollback(site: PlacementSite) -> None:
    runs = Runs(site)
    await site.app("settings")
    await site.place(placement(type="External"))
    approval = {"afterStageTasks": [{"type": "Approval"}]}
    prod = stage("prod", "prod", sortingLabelKey="order")
    await site.put(CLUSTER_RUNS.strategies, strategy(stage("canary", "canary", **approval), prod))
    await runs.begin(run("first", state="Initialize"))
    await runs.until("first", "Initialized", "True", "UpdateRunInitializedSuccessfully")
    status = await runs.status("first")
    assert [
        (each["stageName"], [one["clusterName"] for one in each["clusters"]])
        for each in status["stagesStatus"]
    ] == [("canary", ["one"]), ("prod", ["two", "three"])]
    assert status["resourceSnapshotIndexUsed"] == "0"
    await settled()
    assert await site.data("one", "settings") is None, "nothing begins before it is told to run"

    await runs.tell("first", "Run")
    await runs.until("first", "Progressing", "False", "UpdateRunWaiting")
    assert await site.data("one", "settings") == {"v": "1"}
    assert await site.data("two", "settings") is None
    reason = "RolloutControlledByExternalController"
    assert await site.condition("RolloutStarted") == ("Unknown", reason)
    await runs.tell("first", "Stop")
    await runs.until("first", "Progressing", "False", "UpdateRunStopped")
    await runs.approve("first-after-canary")
    await settled()
    assert await site.data("two", "settings") is None, "a run that is stopped goes no further"
    await runs.tell("first", "Run")
    await runs.until("first", "Succeeded", "True", "UpdateRunSucceeded")
    assert await site.data("three", "settings") == {"v": "1"}
    await site.until_settled()
    accepted = await site.hub.get(ResourcePath(CLUSTER_RUNS.approvals, "", "first-after-canary"))
    assert find_condition(find_at(accepted, "status", "conditions"), "ApprovalAccepted")

    await site.set_data("settings", {"v": "2"})
    await runs.begin(run("second"))
    await site.until_data("one", "settings", {"v": "2"})
    await runs.until("second", "Progressing", "False", "UpdateRunWaiting")
    assert await site.data("two", "settings") == {"v": "1"}
    at_once = strategy({"name": "all", "labelSelector": {}, "maxConcurrency": "100%"}, name="once")
    await site.put(CLUSTER_RUNS.strategies, at_once)
    await runs.begin(run("wrong", index="7", rings="once"))
    await runs.until("wrong", "Initialized", "False", "UpdateRunInitializedFailed")
    await runs.begin(run("zback", index="0", rings="once"))
    await runs.until("zback", "Succeeded", "True", "UpdateRunSucceeded")
    for name in RINGS:
        assert await site.data(name, "settings") == {"v": "1"}
    await runs.until("second", "Succeeded", "False", "UpdateRunFailed")
    await runs.approve("second-after-canary")
    await settled()
    assert await site.data("two", "settings") == {"v": "1"}
    assert (await site.status())["observedResourceIndex"] == "0"


async def test_clusters_join_and_leave_and_namespaced_runs_do_the_same(site: PlacementSite) -> None:
    runs = Runs(site, "app")
    await site.app("settings")
    await site.place(resource_placement(type="External"))
    tasks = {"beforeStageTasks": [{"type": "Approval"}]}
    stages = (stage("canary", "canary"), stage("prod", "prod", maxConcurrency=2, **tasks))
    scope = staged_scope_at("app")
    await site.put(scope.strategies, strategy(*stages, namespace="app"))
    await runs.begin(run("first", of="app/rp"))
    await runs.until("first", "Progressing", "False", "UpdateRunWaiting")
    assert await site.data("one", "settings") == {"v": "1"}
    await site.join("four", labels={"ring": "canary"})
    await site.leave("three")
    await site.until_data("four", "settings", {"v": "1"})
    assert await site.data("two", "settings") is None
    await runs.approve("first-before-prod")
    await runs.until("first", "Succeeded", "True", "UpdateRunSucceeded")
    await site.until_data("two", "settings", {"v": "1"})
    canary, prod = (await runs.status("first"))["stagesStatus"]
    assert [each["clusterName"] for each in canary["clusters"]] == ["one", "four"]
    left = next(each for each in prod["clusters"] if each["clusterName"] == "three")
    succeeded = find_condition(left["conditions"], "Succeeded") or {}
    assert succeeded["reason"] == "ClusterLeft"
    await site.until_settled("app/rp")
    await site.delete(path_of("app/rp"))
    await site.until_data("two", "settings", None)


class Forgetful(HubCaches):
    """Caches that never hear of strategies, as those that are late."""

    def informer(
        self, resource: GroupVersionResource, namespace: str = "", **options: Any
    ) -> Informer:
        if resource == CLUSTER_RUNS.strategies:
            options["selection"] = ListOptions(label_selector="nobody=has-this")
        return super().informer(resource, namespace, **options)


async def test_a_strategy_that_was_made_just_before_its_run_is_found(tmp_path: Path) -> None:
    """A run that cannot begin is over for good: a cache that lags must not end one."""
    async with (
        placement_site(tmp_path, "one") as site,
        running(site, caches=Forgetful(site.hub)),
    ):
        await site.app("settings")
        await site.place(placement(type="External"))
        everywhere = {"name": "all", "labelSelector": {}}
        await site.put(CLUSTER_RUNS.strategies, strategy(everywhere))
        await Runs(site).begin(run("first"))
        await Runs(site).until("first", "Succeeded", "True", "UpdateRunSucceeded")
