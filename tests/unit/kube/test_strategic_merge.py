"""Strategic merge patches merge lists the way Kubernetes does, order included."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace import errors
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.strategic_merge import apply_strategic_merge

CONTAINER = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "args": {"type": "array", "items": {"type": "string"}},
        "env": {
            "type": "array",
            "items": {"type": "object"},
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
        },
    },
}

SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-patch-strategy": "merge",
            },
            "containers": {
                "type": "array",
                "items": CONTAINER,
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            },
            "keyless": {
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-patch-strategy": "merge",
            },
            "tolerations": {"type": "array", "items": {"type": "object"}},
            "strategy": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys"},
            "whole": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
        },
    }
)


def merged(original: Any, patch: Any) -> Any:
    return apply_strategic_merge(original, patch, SCHEMA)


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def names_of(result: Any) -> str:
    return "".join(container["name"] for container in result["containers"])


def test_a_list_element_is_merged_with_the_one_of_its_name() -> None:
    original = {"containers": [{"name": "a", "image": "a:1", "args": ["x"]}, {"name": "b"}]}

    result = merged(original, {"containers": [{"name": "a", "image": "a:2"}]})

    assert result == {"containers": [{"name": "a", "image": "a:2", "args": ["x"]}, {"name": "b"}]}


def test_lists_inside_list_elements_are_merged_too() -> None:
    original = {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}

    result = merged(original, {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]})

    assert result["containers"][0]["env"] == [
        {"name": "Y", "value": "2"},
        {"name": "X", "value": "1"},
    ]


def test_a_list_without_a_strategy_is_replaced_whole() -> None:
    original = {"tolerations": [{"key": "a"}, {"key": "b"}]}

    assert merged(original, {"tolerations": [{"key": "c"}]}) == {"tolerations": [{"key": "c"}]}


def test_a_map_with_the_replace_strategy_is_replaced_whole() -> None:
    assert merged({"whole": {"a": 1}}, {"whole": {"b": 2, "c": None}}) == {"whole": {"b": 2}}


def test_a_null_takes_a_field_away() -> None:
    original = {"labels": {"a": "1", "b": "2"}, "containers": named("a")}

    assert merged(original, {"labels": {"a": None}, "containers": None}) == {"labels": {"b": "2"}}


def test_nulls_and_directives_of_new_content_leave_no_trace() -> None:
    patch = {
        "containers": [
            {"name": "a", "image": None, "$retainKeys": ["name"], "$setElementOrder/env": []},
            {"name": "b", "$patch": "delete"},
        ],
        "strategy": {"$patch": "replace", "type": "Recreate"},
    }

    assert merged({}, patch) == {"containers": named("a")}


@pytest.mark.parametrize(
    ("present", "patch", "result"),
    [
        ("abcd", "dxb", "acdxb"),
        ("ab", "x", "xab"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),
        ("", "ba", "ba"),
    ],
)
def test_the_patch_orders_its_own_elements_and_the_rest_stays_in_place(
    present: str, patch: str, result: str
) -> None:
    assert (
        names_of(merged({"containers": named(*present)}, {"containers": named(*patch)})) == result
    )
    finalizers = merged({"finalizers": [*present]}, {"finalizers": [*patch]})["finalizers"]
    assert "".join(finalizers) == result


@pytest.mark.parametrize(
    ("present", "order", "patch", "result"),
    [
        ("abc", "cba", "", "cba"),
        ("abc", "ca", "", "bca"),
        ("ab", "xab", "x", "xab"),
        ("ab", "axb", "x", "axb"),
        ("ab", "bz", "", "ab"),
        ("", "ab", "ab", "ab"),
    ],
)
def test_set_element_order_sorts_the_list(
    present: str, order: str, patch: str, result: str
) -> None:
    original = {"containers": named(*present)} if present else {}
    changes = {"containers": named(*patch)} if patch else {}
    change = {"$setElementOrder/containers": named(*order), **changes}

    assert names_of(merged(original, change)) == result


@pytest.mark.parametrize(
    ("present", "added", "result"), [("adz", "b", "zb"), ("az", "bc", "zbc"), ("z", "b", "bz")]
)
def test_an_element_in_exchange_for_a_deleted_one_comes_after_server_only_elements(
    present: str, added: str, result: str
) -> None:
    doomed = [{"name": name, "$patch": "delete"} for name in present if name in "ad"]
    patch = {"$setElementOrder/containers": named(*added), "containers": named(*added) + doomed}

    assert names_of(merged({"containers": named(*present)}, patch)) == result


def test_set_element_order_for_a_list_nobody_has_changes_nothing() -> None:
    assert merged({"a": 1}, {"$setElementOrder/containers": named("a")}) == {"a": 1}


def test_delete_takes_every_element_of_that_name() -> None:
    original = {"containers": [*named("a", "b"), {"name": "a", "image": "again"}]}

    assert merged(original, {"containers": [{"name": "a", "$patch": "delete"}]}) == {
        "containers": named("b")
    }


def test_replace_in_a_list_puts_the_other_elements_in_its_place() -> None:
    patch = {"containers": [{"$patch": "replace"}, {"name": "z", "image": None}]}

    assert merged({"containers": named("a", "b")}, patch) == {"containers": named("z")}


def test_replace_and_delete_act_on_a_whole_map() -> None:
    original = {"labels": {"a": "1"}, "strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}
    patch = {
        "labels": {"$patch": "delete"},
        "strategy": {"$patch": "replace", "type": "Recreate", "none": None},
    }

    assert merged(original, patch) == {"labels": {}, "strategy": {"type": "Recreate"}}


def test_merge_is_what_happens_anyway() -> None:
    original = {"labels": {"a": "1"}, "containers": [{"name": "a", "image": "a:1"}]}
    patch = {
        "labels": {"$patch": "merge", "b": "2"},
        "containers": [{"name": "a", "$patch": "merge", "args": ["x"]}],
    }

    assert merged(original, patch) == {
        "labels": {"a": "1", "b": "2"},
        "containers": [{"name": "a", "image": "a:1", "args": ["x"]}],
    }


def test_retain_keys_drops_every_other_field() -> None:
    original = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": None}}

    assert merged(original, patch) == {"strategy": {"type": "Recreate"}}


def test_values_are_deleted_from_a_primitive_list() -> None:
    patch = {"$deleteFromPrimitiveList/finalizers": ["a", "none"], "finalizers": ["c"]}

    assert merged({"finalizers": ["a", "b"]}, patch) == {"finalizers": ["c", "b"]}
    assert merged({}, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {}


def test_a_value_of_another_type_gives_way() -> None:
    assert merged({"labels": "text"}, {"labels": {"a": "1", "b": None}}) == {"labels": {"a": "1"}}
    assert merged({"labels": "text"}, {"labels": {"$patch": "delete"}}) == {}
    assert merged({"containers": {"a": 1}}, {"containers": named("a")}) == {
        "containers": named("a")
    }


def test_fields_the_schema_does_not_know_are_merged_as_maps_and_replaced_as_lists() -> None:
    original = {"x": {"a": 1, "l": [1]}}

    assert merged(original, {"x": {"b": 2, "l": [2]}}) == {"x": {"a": 1, "b": 2, "l": [2]}}


@pytest.mark.parametrize("patch", [None, {}])
def test_an_empty_patch_is_the_object_itself(patch: Any) -> None:
    original = {"containers": named("a")}

    assert merged(original, patch) is original


def test_what_the_patch_does_not_name_is_shared() -> None:
    original: dict[str, Any] = {
        "labels": {"a": "1"},
        "containers": [{"name": "a", "env": named("X")}, {"name": "b"}],
    }

    result = merged(original, {"containers": [{"name": "a", "image": "a:2"}]})

    assert result["labels"] is original["labels"]
    assert result["containers"][0]["env"] is original["containers"][0]["env"]
    assert result["containers"][1] is original["containers"][1]


CONTAINERS = {"containers": [{"name": "a", "env": named("X")}], "finalizers": ["f"], "labels": {}}


@pytest.mark.parametrize(
    ("patch", "message", "place"),
    [
        (
            {"containers": [{"image": "noname", "args": [1, True, None]}]},
            "map: map[args:[1 true <nil>] image:noname] does not contain declared merge key: name",
            "containers[0]",
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "Y"}, {"$patch": "delete"}]}]},
            "map: map[$patch:delete] does not contain declared merge key: name",
            "containers[name=a].env[1]",
        ),
        (
            {"labels": {"$patch": "frobnicate"}},
            "unknown patch type: frobnicate in map: map[$patch:frobnicate]",
            "labels",
        ),
        (
            {"containers": [{"name": "a", "$patch": 5}]},
            "unknown patch type: 5 in map: map[$patch:5 name:a]",
            "containers[0]",
        ),
        (
            {"containers": ["a"]},
            "list element types are not identical: [[map[env:[map[name:X]] name:a]] [a]]",
            "containers",
        ),
        (
            {"finalizers": [None]},
            "list element types are not identical: [[f] [<nil>]]",
            "finalizers",
        ),
        (
            {"containers": [{"name": {}}]},
            "elements cannot be told apart by a map[string]interface {}",
            "containers[0]",
        ),
        (
            {"$setElementOrder/containers": "a"},
            "expected a []interface {}, but received a string",
            "$setElementOrder/containers",
        ),
        (
            {"$setElementOrder/labels": ["a"]},
            "expected a []interface {}, but received a map[string]interface {}",
            "labels",
        ),
        (
            {"$setElementOrder/containers": ["a"]},
            "expected a map[string]interface {}, but received a string",
            "containers",
        ),
        (
            {"$setElementOrder/containers": named("b", "a"), "containers": named("a", "b")},
            "The order in patch list:\n[map[name:a] map[name:b]]\n"
            " doesn't match $setElementOrder list:\n[map[name:b] map[name:a]]\n",
            "containers",
        ),
        (
            {"$deleteFromPrimitiveList/containers": ["a"]},
            "elements cannot be told apart by a map[string]interface {}",
            "containers",
        ),
    ],
)
def test_what_cannot_be_merged_is_refused_as_kubernetes_does(
    patch: Any, message: str, place: str
) -> None:
    with pytest.raises(errors.UnmergeablePatch) as refusal:
        merged(CONTAINERS, patch)

    assert (refusal.value.message, refusal.value.place) == (message, place)
    assert refusal.value.code == 500


def test_a_list_of_maps_needs_a_merge_key() -> None:
    with pytest.raises(errors.UnmergeablePatch, match="without merge key"):
        merged({"keyless": [{}]}, {"keyless": [{}]})


def test_lists_of_lists_are_invalid() -> None:
    with pytest.raises(errors.InapplicablePatch) as refusal:
        merged({"finalizers": ["f"]}, {"finalizers": [[]]})

    assert refusal.value.problem == "lists of lists are not supported"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ([], "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"labels": {"$retainKeys": "a"}}, "invalid patch format of retainKeys"),
        ({"labels": {"$retainKeys": [1]}}, "invalid patch format of retainKeys"),
        ({"labels": {"$retainKeys": ["a"], "b": "2"}}, "invalid patch format of retainKeys"),
        ({"$deleteFromPrimitiveList/finalizers": "f"}, "invalid patch format of primitive list"),
        ({"$deleteFromPrimitiveList": ["f"]}, "invalid patch format of primitive list"),
        ({"$setElementOrder": ["f"]}, "invalid patch format of setElementOrder list"),
    ],
)
def test_a_directive_that_cannot_be_read_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(errors.MalformedPatch) as refusal:
        merged(CONTAINERS, patch)

    assert (refusal.value.message, refusal.value.code) == (message, 400)


def test_a_patch_nested_without_end_is_refused() -> None:
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"x": patch}

    with pytest.raises(errors.MalformedPatch, match="nested too deeply"):
        merged({}, patch)


letters = st.sampled_from("abcdef")
texts = st.sampled_from(["", "1", "2"])
finalizers = st.lists(letters, unique=True, max_size=5)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": letters},
        optional={
            "image": texts,
            "args": st.lists(texts, max_size=2),
            "env": finalizers.map(lambda n: named(*n)),
        },
    ),
    unique_by=lambda container: str(container["name"]),
    max_size=4,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(letters, texts),
        "finalizers": finalizers,
        "containers": containers,
    },
)
removals = st.fixed_dictionaries({"labels": st.dictionaries(letters, st.none() | texts)})
patches = st.one_of(objects, removals)


@given(objects, patches)
def test_applying_a_patch_twice_is_applying_it_once(original: Any, patch: Any) -> None:
    once = merged(original, patch)

    assert merged(once, patch) == once


@given(finalizers, finalizers)
def test_a_primitive_list_becomes_the_union_in_both_orders(present: Any, change: Any) -> None:
    result = merged({"finalizers": present}, {"finalizers": change})["finalizers"]

    assert sorted(result) == sorted({*present, *change})
    assert [value for value in result if value in change] == change
    assert [value for value in result if value not in change] == [
        value for value in present if value not in change
    ]


@given(containers, containers)
def test_server_only_elements_keep_their_order(present: Any, change: Any) -> None:
    result = merged({"containers": present}, {"containers": change})["containers"]

    touched = {container["name"] for container in change}
    assert [c["name"] for c in result if c["name"] in touched] == [c["name"] for c in change]
    assert [c for c in result if c["name"] not in touched] == [
        c for c in present if c["name"] not in touched
    ]


@given(containers)
def test_deleting_every_element_leaves_none(present: Any) -> None:
    doomed = [{"name": container["name"], "$patch": "delete"} for container in present]

    assert merged({"containers": present}, {"containers": doomed}) == {"containers": []}


directive_keys = [
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$setElementOrder/finalizers",
    "$deleteFromPrimitiveList/finalizers",
    "$deleteFromPrimitiveList",
]
keys = st.sampled_from([*SCHEMA.properties, "env", "name", "a", *directive_keys])
leaves = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "delete", "replace"])
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)


@given(objects | st.dictionaries(keys, anything), anything)
def test_any_json_is_merged_or_refused_and_inputs_stay(original: Any, patch: Any) -> None:
    before = msgspec.json.encode([original, patch])
    try:
        answer = merged(original, patch)
    except errors.ApiError as refusal:
        answer = refusal

    assert isinstance(answer, dict | errors.ApiError)
    assert msgspec.json.encode([original, patch]) == before
