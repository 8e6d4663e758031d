from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.kube import objects

POD: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "u-1",
        "resourceVersion": "7",
        "labels": {"app": "web"},
        "annotations": {"note": "x"},
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
}

KEYS = st.sampled_from("abc")
TREES = st.recursive(
    st.none() | st.integers(0, 3) | st.just("text"),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, TREES, max_size=3)
PATHS = st.lists(KEYS, min_size=1, max_size=4)


def test_metadata_reads_by_name():
    assert objects.name_of(POD) == "web"
    assert objects.namespace_of(POD) == "shop"
    assert objects.uid_of(POD) == "u-1"
    assert objects.resource_version_of(POD) == "7"
    assert objects.labels_of(POD) == {"app": "web"}
    assert objects.annotations_of(POD) == {"note": "x"}


@pytest.mark.parametrize(
    "bare",
    [
        {},
        {"metadata": None},
        {"metadata": {"labels": None}},
        {"metadata": "text"},
        {"metadata": {"labels": ["a"], "annotations": "b"}},
    ],
)
def test_an_object_with_nothing_in_it_reads_as_empty(bare: dict[str, Any]):
    assert objects.name_of(bare) == ""
    assert objects.namespace_of(bare) == ""
    assert objects.uid_of(bare) == ""
    assert objects.resource_version_of(bare) == ""
    assert objects.labels_of(bare) == {}
    assert objects.annotations_of(bare) == {}


def test_a_path_that_leaves_the_objects_finds_nothing():
    assert objects.find_at(POD, "spec", "nodeName") == "n1"
    assert objects.find_at(POD, "spec", "nodeName", "deeper") is None
    assert objects.find_at(POD, "spec", "containers", "0") is None
    assert objects.find_at(POD, "status", "phase") is None
    assert objects.find_at(None, "status") is None


def test_an_edit_shares_what_it_did_not_touch():
    edited = objects.with_value(POD, "n2", "spec", "nodeName")

    assert edited["spec"]["nodeName"] == "n2"
    assert POD["spec"]["nodeName"] == "n1"
    assert edited["metadata"] is POD["metadata"]
    assert edited["spec"]["containers"] is POD["spec"]["containers"]


@given(OBJECTS, PATHS, TREES)
def test_what_is_put_at_a_path_is_found_there_and_the_original_is_unchanged(
    kube_object: dict[str, Any], path: list[str], value: Any
):
    before = repr(kube_object)

    edited = objects.with_value(kube_object, value, *path)

    assert objects.find_at(edited, *path) == value
    assert repr(kube_object) == before


@given(OBJECTS, PATHS)
def test_what_is_taken_out_is_gone_and_the_original_is_unchanged(
    kube_object: dict[str, Any], path: list[str]
):
    before = repr(kube_object)

    edited = objects.without_value(kube_object, *path)

    parent = objects.find_at(edited, *path[:-1])
    assert not isinstance(parent, dict) or path[-1] not in parent
    assert repr(kube_object) == before


@given(OBJECTS, PATHS)
def test_taking_out_what_is_not_there_gives_the_same_object(
    kube_object: dict[str, Any], path: list[str]
):
    parent = objects.find_at(kube_object, *path[:-1])
    if isinstance(parent, dict) and path[-1] in parent:
        return
    assert objects.without_value(kube_object, *path) is kube_object


def test_taking_out_of_a_text_or_a_list_is_taking_out_nothing():
    assert objects.without_value(POD, "spec", "nodeName", "n") is POD
    assert objects.without_value(POD, "spec", "containers", "0") is POD


def test_metadata_fields_are_set_and_taken_out():
    edited = objects.with_metadata(POD, name="api", uid=None, generation=1)

    assert objects.name_of(edited) == "api"
    assert "uid" not in edited["metadata"]
    assert edited["metadata"]["generation"] == 1
    assert objects.uid_of(POD) == "u-1"


def test_metadata_is_made_where_there_was_none():
    assert objects.with_metadata({}, name="a") == {"metadata": {"name": "a"}}
