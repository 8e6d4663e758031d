"""Path elements and sets of fields are written as Kubernetes writes them; sets obey their laws."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kube.managed_fields.gadgets import field_sets, json_values

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.field_sets import (
    FieldSet,
    canonical,
    key_element,
    path_text,
    value_element,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("x", 'v:"x"'),
        ("a<b>&c", r'v:"a\u003cb\u003e\u0026c"'),
        ("é", 'v:"é"'),
        (1, "v:1"),
        (1.0, "v:1"),
        (1.5, "v:1.5"),
        (True, "v:true"),
    ],
)
def test_values_are_written_as_go_writes_them(value: object, written: str) -> None:
    assert value_element(value) == written


def test_keys_are_sorted() -> None:
    assert key_element({"protocol": "TCP", "port": 80}) == 'k:{"port":80,"protocol":"TCP"}'


def test_true_is_not_one() -> None:
    assert value_element(True) != value_element(1)


@given(json_values)
def test_what_is_written_is_canonical(value: object) -> None:
    assert canonical(value_element(value)) == value_element(value)
    assert canonical(key_element({"k": value})) == key_element({"k": value})


def paths(fields: FieldSet) -> set[tuple[str, ...]]:
    return set(fields.paths())


@given(field_sets)
def test_what_is_written_reads_back_the_same(fields: FieldSet) -> None:
    assert FieldSet.from_json(fields.to_json()) == fields
    assert FieldSet.of(*fields.paths()) == fields


@given(field_sets, field_sets)
def test_set_operations_are_those_of_sets_of_paths(left: FieldSet, right: FieldSet) -> None:
    assert paths(left | right) == paths(left) | paths(right)
    assert paths(left & right) == paths(left) & paths(right)
    assert paths(left - right) == paths(left) - paths(right)


@given(field_sets, field_sets)
def test_results_are_in_written_form(left: FieldSet, right: FieldSet) -> None:
    for result in (left | right, left & right, left - right, left.without(right)):
        assert list(result.paths()) == list(FieldSet.of(*result.paths()).paths())
        assert bool(result) == bool(paths(result))


@given(field_sets, field_sets)
def test_without_takes_everything_below_too(left: FieldSet, right: FieldSet) -> None:
    gone = paths(right)
    kept = {path for path in left.paths() if not any(path[: len(each)] == each for each in gone)}

    assert paths(left.without(right)) == kept


@given(field_sets, field_sets)
def test_losing_a_leaf_loses_what_was_below_it(left: FieldSet, right: FieldSet) -> None:
    taken = paths(right)
    leaves = {
        path for path in taken if not any(each[: len(path)] == path for each in taken - {path})
    }
    kept = {
        path
        for path in left.paths()
        if path not in taken and not any(path[: len(leaf)] == leaf for leaf in leaves)
    }

    assert paths(left.losing(right)) == kept


@given(field_sets)
def test_membership_agrees_with_the_paths(fields: FieldSet) -> None:
    assert all(path in fields for path in fields.paths())
    assert () not in fields
    assert ("f:nowhere",) not in fields


def test_a_place_can_be_owned_beside_what_is_below_it() -> None:
    both = FieldSet.of(("f:a",)) | FieldSet.of(("f:a", "f:b"))

    assert both.to_json() == {"f:a": {".": {}, "f:b": {}}}
    assert (both - FieldSet.of(("f:a",))).to_json() == {"f:a": {"f:b": {}}}


def test_elements_are_read_into_one_form() -> None:
    fields = FieldSet.from_json({'k:{"protocol": "TCP", "port": 80.0}': {".": {}}, "f:a": {}})

    assert list(fields.to_json()) == ["f:a", 'k:{"port":80,"protocol":"TCP"}']
    assert fields.to_json()['k:{"port":80,"protocol":"TCP"}'] == {}


def test_kinds_of_elements_from_the_future_are_skipped() -> None:
    assert FieldSet.from_json({"q:what": {}, "f:a": {}}).to_json() == {"f:a": {}}


@pytest.mark.parametrize(
    "raw",
    [5, [], {"f:a": 5}, {"a": {}}, {"k:{": {}}, {"k:[]": {}}, {"i:x": {}}, {"v:": {}}, {"": {}}],
)
def test_nonsense_is_refused(raw: Any) -> None:
    with pytest.raises(MalformedObject):
        FieldSet.from_json(raw)


@given(st.dictionaries(st.text(max_size=5) | st.sampled_from(["f:a", "k:1"]), json_values))
def test_nonsense_never_gets_past_as_another_error(raw: Any) -> None:
    try:
        fields = FieldSet.from_json(raw)
    except MalformedObject:
        return
    assert FieldSet.from_json(fields.to_json()) == fields


def test_paths_are_shown_as_kubernetes_shows_them() -> None:
    path = ("f:spec", 'k:{"name":"a\\"b","port":80}', 'v:"x"', "i:0", "f:c")

    assert path_text(path) == '.spec[name="a\\"b",port=80][="x"][0].c'
