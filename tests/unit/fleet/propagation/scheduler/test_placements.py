"""Placements are read as people mean them, and noted as Karmada notes them."""

import pytest

from clusterspace.fleet.propagation.scheduler.placements import (
    Strategy,
    applied_text,
    is_another,
    read_applied,
    read_placement,
)


@pytest.mark.parametrize(
    ("scheduling", "strategy"),
    [
        (None, Strategy.DUPLICATED),
        ({"replicaSchedulingType": "Duplicated"}, Strategy.DUPLICATED),
        ({"replicaSchedulingType": "Divided"}, Strategy.STATIC),
        (
            {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
            Strategy.STATIC,
        ),
        ({"replicaDivisionPreference": "Aggregated"}, Strategy.AGGREGATED),
        ({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}, Strategy.DYNAMIC),
    ],
)
def test_how_replicas_are_shared_out(scheduling, strategy):
    placement = {} if scheduling is None else {"replicaScheduling": scheduling}

    assert read_placement(placement).strategy is strategy


def test_the_note_has_its_fields_in_karmadas_order_and_labels_by_the_alphabet():
    placement = {
        "spreadConstraints": [{"minGroups": 1, "maxGroups": 2, "spreadByField": "cluster"}],
        "clusterTolerations": [{"operator": "Exists", "key": "a"}],
        "clusterAffinity": {
            "clusterNames": ["b"],
            "labelSelector": {"matchLabels": {"weight": "1", "key": "2", "app": "3"}},
        },
    }

    assert applied_text(placement) == (
        '{"clusterAffinity":{"labelSelector":{"matchLabels":{"app":"3","key":"2","weight":"1"}},'
        '"clusterNames":["b"]},"clusterTolerations":[{"key":"a","operator":"Exists"}],'
        '"spreadConstraints":[{"spreadByField":"cluster","maxGroups":2,"minGroups":1}]}'
    )


@pytest.mark.parametrize("applied", [None, "", "not json", "[]"])
def test_a_note_that_cannot_be_read_tells_nothing(applied):
    assert read_applied(applied) is None


def test_the_same_fields_in_another_order_are_no_change():
    placement = {"clusterAffinity": {"exclude": ["a"], "clusterNames": ["b"]}}
    noted = read_applied(applied_text(placement))

    assert noted is not None
    assert not is_another(placement, noted, "")
    assert is_another({}, noted, "")


def test_of_several_groups_only_the_one_in_use_counts():
    one = {"affinityName": "one", "clusterNames": ["a"]}
    two = {"affinityName": "two", "clusterNames": ["b"]}
    noted = {"clusterAffinities": [one, two]}

    edited_two = {"clusterAffinities": [one, {**two, "clusterNames": ["c"]}]}

    assert not is_another(edited_two, noted, "one")
    assert is_another(edited_two, noted, "two")
    assert is_another(edited_two, noted, "")
    assert is_another({"clusterAffinities": [two]}, noted, "one")
