"""What the objects of a KubeFleet say: what is placed where, who owns it, who stands still."""

from typing import Any

import pytest

from clusterspace.fleet.migration.kubefleet import (
    carried_placement,
    comparing,
    is_owned_by,
    labels_gone_by,
    other_owners,
    owners_of,
    placed_by,
    resting,
    resumed,
    settled,
    stands_still,
    taking,
    with_owner,
    without_owners,
)
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.testing.builders import config_map

GROUP = "placement.kubernetes-fleet.io"
APPLIED = {"apiVersion": f"{GROUP}/v1beta1", "metadata": {"name": "shop-work", "uid": "u1"}}
STRATEGY = ("spec", "strategy", "applyStrategy")


def work(cluster: str, *names: str, labels: dict[str, str] | None = None) -> Object:
    marks = {"kubernetes-fleet.io/parent-CRP": "shop", **(labels or {})}
    manifests = [config_map(name, {}, namespace="shop") for name in names]
    return {
        "metadata": {"name": "shop-work", "namespace": f"fleet-member-{cluster}", "labels": marks},
        "spec": {"workload": {"manifests": manifests}},
    }


def owned(*owners: Object) -> Object:
    live = config_map("settings", {}, namespace="shop")
    return {**live, "metadata": {**live["metadata"], "ownerReferences": list(owners)}}


def placement(**strategy: Any) -> Object:
    spec = {"strategy": {"applyStrategy": strategy}} if strategy else {}
    head = {"apiVersion": f"{GROUP}/v1beta1", "kind": "ClusterResourcePlacement"}
    return {**head, "metadata": {"name": "shop"}, "spec": spec}


def test_what_is_placed_is_told_by_works_cluster_by_cluster() -> None:
    in_bank = {"kubernetes-fleet.io/parent-placement-namespace": "bank"}
    sealed = {
        "kubernetes-fleet.io/envelope-work": "ResourceEnvelope",
        "kubernetes-fleet.io/envelope-name": "sealed",
        "kubernetes-fleet.io/envelope-namespace": "shop",
    }

    placed = placed_by(
        [
            work("east", "a", "b"),
            work("west", "a"),
            work("west", "c", labels=sealed),
            work("east", "z", labels=in_bank),
        ]
    )

    assert placed.keys() == {"shop", "bank/shop"}
    objects = {each.name: clusters for each, clusters in placed["shop"].objects().items()}
    assert objects == {"a": ("east", "west"), "b": ("east",), "c": ("west",)}
    assert {each.name for each in placed["shop"].plain()} == {"a", "b"}
    assert {each.key: where for each, where in placed["shop"].envelopes().items()} == {
        "shop/sealed": ("west",)
    }


def test_a_placement_lets_go_and_goes_on_as_its_users_had_it() -> None:
    theirs = placement(type="ServerSideApply", serverSideApplyConfig={"force": True})

    quiet = resting(theirs)

    assert find_at(quiet, *STRATEGY) == {"type": "ReportDiff", "whenToTakeOver": "Never"}
    assert resumed(quiet, theirs) == theirs
    assert find_at(resumed(resting(placement()), placement()), *STRATEGY) is None


@pytest.mark.parametrize(
    ("strategy", "observed", "still"),
    [
        ({"type": "ReportDiff", "whenToTakeOver": "Never"}, 3, True),
        ({"type": "ReportDiff", "whenToTakeOver": "Never"}, 2, False),
        ({"type": "ReportDiff", "whenToTakeOver": "Always"}, 3, False),
        ({"type": "ClientSideApply", "whenToTakeOver": "Never"}, 3, False),
    ],
)
def test_an_agent_stands_still_when_it_said_so_of_what_it_was_told_last(
    strategy: Object, observed: int, still: bool
) -> None:
    told = {"type": "DiffReported", "status": "True", "observedGeneration": observed}
    found: Object = {
        "metadata": {"generation": 3},
        "spec": {"applyStrategy": strategy},
        "status": {"conditions": [told]},
    }

    assert stands_still(found) is still


def test_an_object_loses_the_owner_that_goes_and_no_other() -> None:
    mine = with_owner(owned(), APPLIED)
    (reference,) = owners_of(mine)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "shop-work", "uid": "u2"}
    stranger = {**reference, "name": "bank-work", "uid": "u3"}
    live = owned(reference, other, stranger)

    assert is_owned_by(live, ["shop-work"])
    assert other_owners(live, ["shop-work"]) == ("ConfigMap shop-work", "AppliedWork bank-work")
    assert owners_of(without_owners(live, ["shop-work"])) == [other, stranger]
    untouched = owned(other)
    assert without_owners(untouched, ["shop-work"]) is untouched
    assert with_owner(mine, APPLIED) is mine


def test_a_carried_placement_compares_then_takes_over_then_is_as_its_users_wrote_it() -> None:
    theirs = placement(type="ClientSideApply", whenToTakeOver="Never")
    carried = carried_placement(resting(theirs), theirs, "move")

    first = comparing(carried, {"east": "shop-east-1"})
    second = taking(first, carried)
    last = settled(second, carried)

    assert find_at(first, *STRATEGY, "type") == "ReportDiff"
    strategy = {"type": "ClientSideApply", "whenToTakeOver": "Always"}
    assert find_at(second, *STRATEGY) == strategy
    assert find_at(last, *STRATEGY) == find_at(theirs, *STRATEGY)
    assert annotations_of(last) == annotations_of(carried)
    assert find_at(last, "spec", "strategy", "deleteStrategy") == {"propagationPolicy": "Abandon"}


def test_labels_of_clusters_are_found_and_those_of_objects_are_not() -> None:
    term = {"labelSelector": {"matchLabels": {"region": "east"}}}
    keys = {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}
    spec = {
        "resourceSelectors": [
            {"kind": "Namespace", "labelSelector": {"matchLabels": {"app": "x"}}}
        ],
        "policy": {
            "affinity": {"terms": [term], "preferred": [{"preference": keys}]},
            "topologySpreadConstraints": [{"topologyKey": "zone"}],
        },
    }

    assert set(labels_gone_by(spec)) == {"region", "tier", "zone"}
