from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.controllers.commit import merge_difference, plan_commit
from clusterspace.errors import MixedCommit
from clusterspace.kube.json_patches import apply_merge_patch
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.testing.builders import deployment

LEAVES = st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=3)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), LEAVES, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), LEAVES | inner, max_size=4),
    max_leaves=12,
)

BEFORE = with_metadata(deployment("web"), resourceVersion="5", uid="u", generation=1)


@given(OBJECTS, OBJECTS)
def test_the_difference_turns_one_into_the_other(before: Object, after: Object):
    assert apply_merge_patch(before, merge_difference(before, after)) == after


@given(OBJECTS)
def test_nothing_changed_is_no_difference(same: Object):
    assert merge_difference(same, same) == {}


def test_a_change_is_sent_alone_with_the_version_and_uid_it_was_made_from():
    planned = plan_commit(BEFORE, with_value(BEFORE, 3, "spec", "replicas"))

    assert planned is not None
    assert planned.subresource == ""
    assert planned.patch == {
        "spec": {"replicas": 3},
        "metadata": {"resourceVersion": "5", "uid": "u"},
    }


def test_a_status_goes_through_its_own_door():
    planned = plan_commit(BEFORE, with_value(BEFORE, 3, "status", "readyReplicas"))

    assert planned is not None
    assert planned.subresource == "status"
    assert planned.patch["status"] == {"readyReplicas": 3}


def test_a_label_that_was_taken_out_is_null():
    planned = plan_commit(BEFORE, with_metadata(BEFORE, labels={"new": "1"}))

    assert planned is not None
    assert planned.patch["metadata"]["labels"] == {"app": None, "new": "1"}


@pytest.mark.parametrize("other", [("spec", "replicas"), ("metadata", "labels", "x")])
def test_status_and_anything_else_in_one_go_is_a_mistake(other: tuple[str, ...]):
    value: Any = 2
    after = with_value(with_value(BEFORE, 3, "status", "readyReplicas"), value, *other)

    with pytest.raises(MixedCommit, match=other[0]):
        plan_commit(BEFORE, after)


def test_what_the_server_writes_is_no_change_of_ours():
    after = with_metadata(BEFORE, resourceVersion="6", generation=2, managedFields=[{}])

    assert plan_commit(BEFORE, after) is None
    assert plan_commit(BEFORE, BEFORE) is None
