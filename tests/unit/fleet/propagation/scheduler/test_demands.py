"""Placements are read as people mean them, and noted as Karmada notes them."""

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import binding

from clusterspace.fleet.propagation.scheduler.demands import (
    Strategy,
    applied_text,
    is_another,
    is_to_schedule,
    read_applied,
    read_demand,
    read_placement,
)
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.kube.quantities import parse_quantity


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


OURS = binding({}, replicas=2)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (OURS, True),
        (with_metadata(OURS, labels={"binding.karmada.io/managed-by": "someone"}), True),
        (with_metadata(OURS, labels={}), False),
        (with_metadata(OURS, deletionTimestamp="2024-01-01T00:00:00Z"), False),
        (with_value(OURS, "default-scheduler", "spec", "schedulerName"), True),
        (with_value(OURS, "another", "spec", "schedulerName"), False),
        (with_value(OURS, {"scheduling": True}, "spec", "suspension"), False),
        (with_value(OURS, {"dispatching": True}, "spec", "suspension"), True),
        (with_value(OURS, None, "spec", "placement"), False),
    ],
)
def test_only_claimed_bindings_that_are_not_held_back_are_scheduled(held: Object, expected: bool):
    assert is_to_schedule(held) is expected


def test_what_each_replica_needs_is_read():
    needing = binding({}, replicas=2, replicaRequirements={"resourceRequest": {"cpu": "250m"}})

    assert read_demand(needing).each_needs == {"cpu": parse_quantity("250m")}


def test_objects_of_several_parts_are_not_shared_out():
    parts = [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]

    assert not read_demand(binding({}, replicas=3, components=parts)).has_replicas


def test_a_deployment_scaled_to_nothing_still_has_replicas_to_share():
    assert read_demand(binding({}, replicaRequirements={})).has_replicas
    assert not read_demand(binding({})).has_replicas
