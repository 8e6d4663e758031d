"""What was asked and selected, written down: numbered, in parts, and kept for a while."""

import pytest
from tests.unit.fleet.propagation.placements.objects import placement, stored

from clusterspace.apis.fleet_placements import (
    IS_LATEST,
    NUMBER_OF_CLUSTERS,
    POLICY_INDEX,
    RESOURCE_INDEX,
    manifests_in,
)
from clusterspace.fleet.propagation.placements.selection import (
    MOST_BYTES,
    history_limit,
    index_in,
    outdated,
    plan_policy_snapshot,
    plan_resource_snapshot,
)
from clusterspace.kube.objects import Object, annotations_of, labels_of, name_of
from clusterspace.testing.builders import config_map

PICK_TWO = {"placementType": "PickN", "numberOfClusters": 2}


def policy_snapshot(**policy: object) -> Object:
    return stored(plan_policy_snapshot(placement(policy=policy or PICK_TWO), []).latest)


def test_the_first_snapshot_of_a_policy_has_the_number_zero() -> None:
    plan = plan_policy_snapshot(placement(policy=PICK_TWO), [])

    (new,) = plan.new
    assert name_of(new) == "crp-0"
    assert new["spec"]["policy"] == {"placementType": "PickN"}
    assert annotations_of(new)[NUMBER_OF_CLUSTERS] == "2"


def test_another_number_is_noted_on_the_snapshot_there_is() -> None:
    known = policy_snapshot()

    plan = plan_policy_snapshot(placement(policy={**PICK_TWO, "numberOfClusters": 5}), [known])

    assert plan.new == ()
    ((_, after),) = plan.changed
    assert annotations_of(after)[NUMBER_OF_CLUSTERS] == "5"


def test_nothing_is_written_for_the_same_policy() -> None:
    plan = plan_policy_snapshot(placement(policy=PICK_TWO), [policy_snapshot()])

    assert (plan.new, plan.changed) == ((), ())


def test_another_policy_gets_a_snapshot_and_the_one_before_is_no_longer_the_latest() -> None:
    asked = placement(policy={**PICK_TWO, "tolerations": [{"operator": "Exists"}]})

    plan = plan_policy_snapshot(asked, [policy_snapshot()])

    assert [name_of(each) for each in plan.new] == ["crp-1"]
    ((_, demoted),) = plan.changed
    assert labels_of(demoted)[IS_LATEST] == "false"


def test_a_life_that_ended_between_two_writes_is_made_good() -> None:
    first = policy_snapshot()
    asked = placement(policy={**PICK_TWO, "tolerations": [{"operator": "Exists"}]})
    second = stored(plan_policy_snapshot(asked, [first]).latest)

    plan = plan_policy_snapshot(asked, [first, second])

    assert plan.new == ()
    assert [name_of(before) for before, _ in plan.changed] == ["crp-0"]


def test_the_same_objects_need_no_new_snapshot() -> None:
    manifests = [config_map("a")]
    first = plan_resource_snapshot(placement(), manifests, [])
    assert name_of(first.latest) == "crp-0-snapshot"

    again = plan_resource_snapshot(placement(), manifests, [stored(first.latest)])

    assert (again.new, again.changed, again.index) == ((), (), 0)
    other = plan_resource_snapshot(placement(), [config_map("b")], [stored(first.latest)])
    assert [name_of(each) for each in other.new] == ["crp-1-snapshot"]


def test_nothing_selected_is_a_snapshot_as_well() -> None:
    plan = plan_resource_snapshot(placement(), [], [])

    assert manifests_in(plan.latest) == []


def test_what_is_too_much_for_one_snapshot_is_split_and_the_master_comes_last() -> None:
    large = [config_map(each, {"v": "x" * (MOST_BYTES // 2)}) for each in ("a", "b", "c")]

    plan = plan_resource_snapshot(placement(), large, [])

    assert [name_of(each) for each in plan.new] == ["crp-0-0", "crp-0-1", "crp-0-snapshot"]
    held = [name_of(each) for part in (plan.latest, *plan.new[:-1]) for each in manifests_in(part)]
    assert held == ["a", "b", "c"]


def test_parts_without_a_master_are_passed_over_and_their_number_is_not_used_again() -> None:
    large = [config_map(each, {"v": "x" * MOST_BYTES}) for each in ("a", "b")]
    leftover = stored(plan_resource_snapshot(placement(), large, []).new[0])

    plan = plan_resource_snapshot(placement(), [config_map("a")], [leftover])

    assert name_of(plan.latest) == "crp-1-snapshot"


def test_old_snapshots_go_but_for_those_in_use() -> None:
    held = [
        {"metadata": {"name": f"crp-{each}-snapshot", "labels": {RESOURCE_INDEX: str(each)}}}
        for each in range(5)
    ]

    gone = outdated(held, RESOURCE_INDEX, 2, kept=frozenset({1}))

    assert [name_of(each) for each in gone] == ["crp-0-snapshot", "crp-2-snapshot"]
    assert history_limit(placement()) == 10
    assert outdated([], POLICY_INDEX, 1, frozenset()) == []


@pytest.mark.parametrize(
    ("name", "index"),
    [("crp-12-snapshot", 12), ("a-b-0-snapshot", 0), ("crp-1-2", None), ("", None)],
)
def test_the_number_is_in_the_name_of_a_master(name: str, index: int | None) -> None:
    assert index_in(name) == index
