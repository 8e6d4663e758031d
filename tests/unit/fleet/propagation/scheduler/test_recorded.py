"""Every recorded binding is scheduled as Karmada scheduled it: clusters, note and condition."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.corpus import load_scenario
from tests.unit.fleet.propagation.scheduler.fleet_objects import CORDON, cluster

from clusterspace.apis import stamps
from clusterspace.apis.clusters import taints_of
from clusterspace.apis.works import clusters_of
from clusterspace.fleet.propagation.scheduler.decisions import plan_for, with_outcome, with_targets
from clusterspace.fleet.propagation.scheduler.filters import Candidate, candidate_of
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    name_of,
    with_metadata,
    without_value,
)

SCENES = (
    "duplicated",
    "divided",
    "override_and_cluster_scope",
    "unschedulable_and_missing",
    "promote",
    "pull_join",
)
CLUSTER_ROLES = {
    "groupVersion": "rbac.authorization.k8s.io/v1",
    "resources": [{"name": "clusterroles", "kind": "ClusterRole"}],
}


def member(name: str, **spec: Any) -> Object:
    made = cluster(name, **spec)
    status = made["status"]
    served = [*status["apiEnablements"], CLUSTER_ROLES]
    return {**made, "status": {**status, "apiEnablements": served}}


MEMBERS = [member("member1"), member("member2")]


def bindings_in(value: Any) -> Iterator[Object]:
    """Yield every binding in a recording that a policy had claimed."""
    if isinstance(value, list):
        for each in value:
            yield from bindings_in(each)
    elif isinstance(value, dict):
        claimed = (stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID)
        is_binding = value.get("kind") in ("ResourceBinding", "ClusterResourceBinding")
        if is_binding and "spec" in value:
            if any(label in value["metadata"]["labels"] for label in claimed):
                yield value
        else:
            yield from bindings_in(list(value.values()))


def before_scheduling(recorded: Object) -> Object:
    bare = without_value(without_value(recorded, "spec", "clusters"), "status")
    noted = {**annotations_of(recorded)}
    del noted[stamps.APPLIED_PLACEMENT]
    return with_metadata(bare, annotations=noted)


def scheduled(recorded: Object, candidates: dict[str, Candidate]) -> Object:
    fresh = before_scheduling(recorded)
    decision = plan_for(fresh, candidates)
    return with_outcome(with_targets(fresh, decision), decision, now=0)


def candidates(*clusters: Object) -> dict[str, Candidate]:
    return {name_of(each): candidate_of(each) for each in clusters}


def assert_alike(ours: Object, recorded: Object) -> None:
    assert ours["spec"] == recorded["spec"]
    assert annotations_of(ours) == annotations_of(recorded)
    ours_told, theirs = (
        find_condition(each["status"]["conditions"], "Scheduled") for each in (ours, recorded)
    )
    assert ours_told is not None
    assert theirs is not None
    assert {**ours_told, "lastTransitionTime": "<time>"} == theirs
    for key in ("schedulerObservedGeneration", "lastScheduledTime"):
        assert (key in ours["status"]) == (key in recorded["status"])


@pytest.mark.parametrize("scene", SCENES)
def test_recorded_bindings_are_scheduled_alike(scene: str):
    recorded = list(bindings_in(load_scenario("karmada", scene)))

    assert recorded
    for each in recorded:
        names = {target.name for target in clusters_of(each)} - {"member1", "member2"}
        extra = [member(name) for name in names]
        assert_alike(scheduled(each, candidates(*MEMBERS, *extra)), each)


def test_cordoned_members_are_avoided_alike():
    steps = load_scenario("karmada", "taints_and_cordon")["steps"]
    cordoned = [member("member1"), member("member2", taints=[CORDON])]

    before, *after = [
        step["objects"] for step in steps if step.get("see", "").startswith("hub: rb ")
    ]

    assert_alike(scheduled(before, candidates(*MEMBERS)), before)
    for each in after:
        if name_of(each) == "before-deployment":
            assert plan_for(each, candidates(*cordoned)).targets == {"member1": 2, "member2": 2}
        else:
            assert_alike(scheduled(each, candidates(*cordoned)), each)


def test_the_recorded_cluster_is_cordoned_as_ours_is():
    steps = load_scenario("karmada", "taints_and_cordon")["steps"]
    recorded = next(step["objects"] for step in steps if step.get("see") == "hub: clusters member2")

    assert taints_of(recorded) == (CORDON,)


def test_a_member_that_leaves_is_dropped_alike():
    steps = load_scenario("karmada", "unjoin")["steps"]
    before, after = [
        step["objects"] for step in steps if step.get("see") == "hub: rb stay-deployment"
    ]

    left = plan_for(before, candidates(member("member1")))

    assert with_targets(before, left)["spec"] == after["spec"]
