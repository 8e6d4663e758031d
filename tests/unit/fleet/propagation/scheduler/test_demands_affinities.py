"""A choice of clusters means those that people mean by it."""

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import cluster

from clusterspace.apis.affinities import read_affinity, traits_of
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.scheduler.demands import read_groups

EAST = traits_of(
    cluster("east", labels={"tier": "prod"}, provider="metal", region="eu", zones=["a", "b"])
)
BARE = traits_of(cluster("bare"))
WEST = traits_of(cluster("west"))


def field(key: str, operator: str, *values: str) -> dict[str, object]:
    expression = {"key": key, "operator": operator, "values": list(values)}
    return {"fieldSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("affinity", "east", "bare"),
    [
        (None, True, True),
        ({}, True, True),
        ({"clusterNames": ["east"]}, True, False),
        ({"exclude": ["east"]}, False, True),
        ({"clusterNames": ["east"], "exclude": ["east"]}, False, False),
        ({"labelSelector": {}}, True, True),
        ({"labelSelector": {"matchLabels": {"tier": "prod"}}}, True, False),
        (
            {"labelSelector": {"matchLabels": {"tier": "prod"}}, "clusterNames": ["bare"]},
            False,
            False,
        ),
        (field("provider", "In", "metal", "cloud"), True, False),
        (field("region", "NotIn", "eu"), False, True),
        (field("zone", "In", "b", "c"), True, False),
        (field("zone", "NotIn", "b"), False, True),
    ],
)
def test_everything_asked_for_must_hold(affinity, east, bare):
    read = read_affinity(affinity, place="here")

    assert (read.matches(EAST), read.matches(BARE)) == (east, bare)


def test_the_single_zone_of_old_clusters_counts():
    assert traits_of(cluster("old", zone="z")).zones == {"z"}


@pytest.mark.parametrize("affinity", [field("galaxy", "In", "a"), field("zone", "Exists")])
def test_fields_clusters_do_not_have_are_refused_with_their_place(affinity):
    with pytest.raises(MalformedSelector) as refusal:
        read_affinity(affinity, place="spec.somewhere")

    assert refusal.value.place == "spec.somewhere.fieldSelector.matchExpressions[0]"


def test_groups_are_tried_in_order_and_overflow_in_tiers():
    placement = {
        "clusterAffinities": [
            {
                "affinityName": "first",
                "clusterNames": ["east"],
                "overflowAffinities": [{"affinityName": "more", "clusterNames": ["bare"]}],
            },
            {"affinityName": "second"},
        ]
    }

    first, second = read_groups(placement, place="spec")

    assert (first.name, second.name) == ("first", "second")
    assert first.find_tier(EAST, may_overflow=True) == 0
    assert first.find_tier(BARE, may_overflow=True) == 1
    assert first.find_tier(BARE, may_overflow=False) is None
    assert first.find_tier(WEST, may_overflow=True) is None


@pytest.mark.parametrize(
    ("field_name", "values"),
    [
        ("cluster", {"east"}),
        ("region", {"eu"}),
        ("provider", {"metal"}),
        ("zone", {"a", "b"}),
        ("label:tier", {"prod"}),
        ("label:absent", set()),
    ],
)
def test_a_cluster_can_be_grouped_by_what_it_is(field_name, values):
    assert EAST.values_of(field_name) == values
