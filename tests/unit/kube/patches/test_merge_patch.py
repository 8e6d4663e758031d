"""Merge patches do what RFC 7386 says, and never leave a null behind."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace import errors
from clusterspace.kube.patches.merge_patch import apply_merge_patch

keys = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=12
)
maps = st.dictionaries(keys, values)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(held) for key, held in value.items() if held is not None}
    if isinstance(value, list):
        return [without_nulls(held) for held in value]
    return value


def same(left: Any, right: Any) -> bool:
    """Equal as JSON, where true and 1 are two things."""
    encoder = msgspec.json.Encoder(order="deterministic")
    return encoder.encode(left) == encoder.encode(right)


def diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The patch from one document to another; neither has a null."""
    gone = {key: None for key in before if key not in after}
    changed = {}
    for key, wanted in after.items():
        held = before.get(key)
        if key in before and same(held, wanted):
            continue
        if isinstance(held, dict) and isinstance(wanted, dict):
            wanted = diff(held, wanted)
        changed[key] = wanted
    return {**gone, **changed}


# The examples of RFC 7386, appendix A, whose document and patch are both objects.
@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc_hold(document: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(document, patch) == result


def test_a_null_in_an_object_in_a_list_is_an_absent_field() -> None:
    patched = apply_merge_patch({}, {"list": [{"kept": 1, "gone": None}, None]})

    assert patched == {"list": [{"kept": 1}, None]}


def test_an_empty_patch_is_the_document_itself() -> None:
    document = {"spec": {"replicas": 1}}

    assert apply_merge_patch(document, {}) is document


def test_what_the_patch_does_not_name_is_shared() -> None:
    document = {"metadata": {"name": "web"}, "spec": {"template": {"x": 1}, "replicas": 1}}

    patched = apply_merge_patch(document, {"spec": {"replicas": 2}})

    assert patched["metadata"] is document["metadata"]
    assert patched["spec"]["template"] is document["spec"]["template"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (None, "Invalid JSON Patch"),
        (
            [],
            "error decoding patch: json: cannot unmarshal array into Go value of type "
            "map[string]interface {}",
        ),
        (
            1.5,
            "error decoding patch: json: cannot unmarshal number into Go value of type "
            "map[string]interface {}",
        ),
    ],
)
def test_a_patch_that_is_no_object_is_refused(patch: Any, message: str) -> None:
    with pytest.raises(errors.MalformedPatch) as refusal:
        apply_merge_patch({}, patch)

    assert (refusal.value.message, refusal.value.code) == (message, 400)


def test_a_patch_nested_without_end_is_refused() -> None:
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"a": patch}

    with pytest.raises(errors.MalformedPatch, match="nested too deeply"):
        apply_merge_patch({}, patch)


@given(maps, maps)
def test_applying_a_patch_twice_is_applying_it_once(document: Any, patch: Any) -> None:
    once = apply_merge_patch(document, patch)

    assert same(apply_merge_patch(once, patch), once)


@given(maps.map(without_nulls), maps)
def test_no_field_becomes_null(document: Any, patch: Any) -> None:
    patched = apply_merge_patch(document, patch)

    assert same(patched, without_nulls(patched))


@given(maps.map(without_nulls), maps.map(without_nulls))
def test_a_diff_applied_gives_the_other_document(before: Any, after: Any) -> None:
    assert same(apply_merge_patch(before, diff(before, after)), after)


@given(maps, values)
def test_inputs_are_never_changed(document: Any, patch: Any) -> None:
    before = msgspec.json.encode([document, patch])
    try:
        apply_merge_patch(document, patch)
    except errors.ApiError:
        assert not isinstance(patch, dict)

    assert msgspec.json.encode([document, patch]) == before
