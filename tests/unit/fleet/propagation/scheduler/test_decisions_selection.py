"""Spread constraints are met, or it is said which cannot be."""

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import (
    AGGREGATED,
    DYNAMIC,
    binding,
    cluster,
    plan,
)

from clusterspace.fleet.propagation.scheduler.decisions import Reason
from clusterspace.kube.objects import Object


def over(field: str, fewest: int, most: int = 0) -> Object:
    return {"spreadByField": field, "minGroups": fewest, "maxGroups": most}


def spread(*constraints: Object, **more: Object) -> Object:
    return {"spreadConstraints": list(constraints), **more}


FLEET = [
    cluster("eu-1", region="eu", pods=10),
    cluster("eu-2", region="eu", pods=40),
    cluster("us-1", region="us", pods=20),
    cluster("us-2", region="us", pods=5),
    cluster("ap-1", region="ap", pods=8),
]


def test_no_more_clusters_than_allowed_are_used_the_roomiest_first():
    decision = plan(binding(spread(over("cluster", 1, 2)), replicas=1), *FLEET)

    assert decision.targets == {"eu-2": 1, "us-1": 1}


def test_clusters_in_use_are_kept_before_roomier_ones():
    placement = spread(over("cluster", 1, 2))

    decision = plan(binding(placement, replicas=1, placed={"us-2": 1, "ap-1": 1}), *FLEET)

    assert decision.targets == {"us-2": 1, "ap-1": 1}


def test_without_an_upper_bound_all_are_used():
    assert len(plan(binding(spread(over("cluster", 2)), replicas=1), *FLEET).targets) == 5


def test_too_few_clusters_change_nothing_and_are_told():
    placed = {"eu-1": 1}

    decision = plan(binding(spread(over("cluster", 9, 9)), replicas=1, placed=placed), *FLEET)

    assert decision.reason is Reason.SCHEDULER_ERROR
    assert decision.targets == placed
    assert decision.message == "the placement spreads over 9 or more by cluster, and only 5 fit"


def test_a_roomier_cluster_is_used_when_the_replicas_would_not_fit():
    placement = spread(over("cluster", 1, 2), replicaScheduling=DYNAMIC)
    kept = binding(placement, replicas=40, placed={"us-2": 2, "ap-1": 1})

    assert set(plan(kept, *FLEET).targets) == {"ap-1", "eu-2"}


def test_every_region_gets_its_best_cluster_first():
    two_regions = spread(over("region", 2, 2), over("cluster", 2, 3))

    decision = plan(binding(two_regions, replicas=1), *FLEET)

    assert decision.targets == {"eu-1": 1, "eu-2": 1, "us-1": 1}


def test_two_regions_with_one_cluster_in_all_are_one_cluster_in_each():
    placement = spread(over("region", 2, 2), over("cluster", 1, 1))

    decision = plan(binding(placement, replicas=1), *FLEET)

    assert decision.targets == {"eu-2": 1, "us-1": 1}


def test_regions_in_use_are_kept():
    placement = spread(over("region", 1, 1), over("cluster", 1, 1))

    decision = plan(binding(placement, replicas=1, placed={"ap-1": 1}), *FLEET)

    assert decision.targets == {"ap-1": 1}


def test_regions_with_enough_clusters_are_found():
    placement = spread(over("region", 1, 1), over("cluster", 2, 2))

    decision = plan(binding(placement, replicas=1, placed={"ap-1": 1}), *FLEET)

    assert decision.targets == {"eu-1": 1, "eu-2": 1}


def test_a_region_where_the_replicas_fit_is_found():
    placement = spread(over("region", 1, 1), over("cluster", 1, 1), replicaScheduling=AGGREGATED)

    assert plan(binding(placement, replicas=30), *FLEET).targets == {"eu-2": 30}


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([over("region", 4)], "the placement spreads over 4 or more by region, and only 3 fit"),
        (
            [over("region", 1, 1), over("cluster", 3)],
            "no 1 groups by region have 3 clusters that fit",
        ),
    ],
)
def test_a_spread_that_cannot_be_met_is_named(constraints, message):
    assert plan(binding(spread(*constraints), replicas=1), *FLEET).message == message


def test_two_kinds_of_groups_at_once_are_refused():
    zoned = cluster("a", region="eu", zones=["z"])

    decision = plan(binding(spread(over("region", 1), over("zone", 1))), zoned)

    assert decision.message == (
        "the placement spreads over region and zone, and only one of them can be met"
    )


def test_weights_go_before_spread():
    static = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
    placement = spread(over("cluster", 1, 1), replicaScheduling=static)

    assert len(plan(binding(placement, replicas=10), *FLEET).targets) == 5


def test_labels_group_clusters_too():
    racks = [cluster(f"c{n}", labels={"rack": str(n % 2)}) for n in range(4)]
    by_rack = {"spreadByLabel": "rack", "minGroups": 2, "maxGroups": 2}

    decision = plan(binding(spread(by_rack, over("cluster", 2, 2)), replicas=1), *racks)

    assert decision.targets == {"c0": 1, "c1": 1}
