from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    are_alike,
    find_condition,
    is_true,
    remove_condition,
    set_condition,
)

READY = Condition("Ready", TRUE, "ClusterReady", "all is well")
EARLY, LATE = 0, 60


def test_a_new_condition_is_added_with_the_time_it_began():
    update = set_condition(None, READY, EARLY)

    assert update.is_changed
    assert update.conditions == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "ClusterReady",
            "message": "all is well",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ]


def test_saying_the_same_again_changes_nothing():
    first = set_condition([], READY, EARLY)

    again = set_condition(first.conditions, READY, LATE)

    assert not again.is_changed
    assert again.conditions == first.conditions


def test_a_new_message_does_not_make_an_old_condition_look_young():
    first = set_condition([], READY, EARLY)

    update = set_condition(
        first.conditions, Condition("Ready", TRUE, "ClusterReady", "still well"), LATE
    )

    assert update.is_changed
    assert update.conditions[0]["message"] == "still well"
    assert update.conditions[0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_a_new_status_moves_the_transition_time():
    first = set_condition([], READY, EARLY)

    update = set_condition(first.conditions, Condition("Ready", FALSE, "ClusterGone"), LATE)

    assert update.conditions[0]["status"] == "False"
    assert update.conditions[0]["lastTransitionTime"] == "1970-01-01T00:01:00Z"


def test_the_old_list_is_left_as_it_was():
    before = set_condition([], READY, EARLY).conditions
    copied = [dict(each) for each in before]

    set_condition(before, Condition("Ready", UNKNOWN, "NoAnswer"), LATE)

    assert before == copied


def test_other_conditions_and_other_fields_stay_in_place():
    present: list[dict[str, Any]] = [
        {"type": "Ready", "status": "False", "lastUpdateTime": "t", "reason": "x"},
        {"type": "Other", "status": "True"},
    ]

    update = set_condition(present, READY, LATE)

    assert [each["type"] for each in update.conditions] == ["Ready", "Other"]
    assert update.conditions[0]["lastUpdateTime"] == "t"
    assert update.conditions[1] is present[1]


def test_the_generation_a_condition_was_seen_at_is_kept():
    update = set_condition([], Condition("Ready", TRUE, "Ok", observed_generation=3), EARLY)

    assert update.conditions[0]["observedGeneration"] == 3
    newer = Condition("Ready", TRUE, "Ok", observed_generation=4)
    assert set_condition(update.conditions, newer, LATE).is_changed


def test_a_condition_that_lost_its_time_gets_one():
    update = set_condition([{"type": "Ready", "status": "True"}], READY, LATE)

    assert update.conditions[0]["lastTransitionTime"] == "1970-01-01T00:01:00Z"


@pytest.mark.parametrize("conditions", [None, [], ["Ready"], [None], [{"type": "Other"}]])
def test_an_absent_condition_is_not_found_and_not_true(conditions: Any):
    assert find_condition(conditions, "Ready") is None
    assert not is_true(conditions, "Ready")


def test_a_condition_is_true_only_when_it_says_so():
    assert is_true([{"type": "Ready", "status": "True"}], "Ready")
    assert not is_true([{"type": "Ready", "status": "Unknown"}], "Ready")
    assert not is_true([{"type": "Ready"}], "Ready")


def test_a_removed_condition_is_gone_and_removing_it_again_changes_nothing():
    held = set_condition([], READY, EARLY).conditions

    removed = remove_condition(held, "Ready")

    assert removed.conditions == []
    assert removed.is_changed
    assert not remove_condition(removed.conditions, "Ready").is_changed


def test_conditions_are_alike_whatever_their_order_and_times():
    left = [{"type": "A", "status": "True", "lastTransitionTime": "1"}, {"type": "B"}]
    right = [{"type": "B"}, {"type": "A", "status": "True", "lastTransitionTime": "2"}]

    assert are_alike(left, right)
    assert not are_alike(left, right[:1])
    assert not are_alike(left, [{"type": "B"}, {"type": "A", "status": "False"}])


STATUSES = st.sampled_from([TRUE, FALSE, UNKNOWN])


@given(st.lists(st.tuples(st.sampled_from("AB"), STATUSES), min_size=1, max_size=8))
def test_the_transition_time_is_that_of_the_last_change_of_status(steps: list[tuple[str, str]]):
    conditions: list[dict[str, Any]] = []
    began: dict[str, tuple[str, int]] = {}
    for now, (condition_type, status) in enumerate(steps):
        conditions = set_condition(
            conditions, Condition(condition_type, status, "R", str(now)), now
        ).conditions
        if began.get(condition_type, ("", 0))[0] != status:
            began[condition_type] = (status, now)

    for condition_type, (status, now) in began.items():
        found = find_condition(conditions, condition_type)
        assert found is not None
        assert found["status"] == status
        assert found["lastTransitionTime"] == f"1970-01-01T00:00:{now:02}Z"
