"""JSON pointers, JSON patch and merge patch, as the RFCs say and as kube-apiserver differs."""

from typing import Any

import jsonpatch
import jsonpointer
import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clusterspace import errors
from clusterspace.kube.json_patches import (
    MAX_COPIED_BYTES,
    MAX_OPERATIONS,
    apply_json_patch,
    apply_merge_patch,
    find_index,
    parse_json_patch,
    read_pointer,
    write_pointer,
)

# Pointers.


@given(st.lists(st.text(alphabet="ab~/01-"), max_size=5).map(tuple))
def test_steps_survive_being_written_and_read(steps: tuple[str, ...]) -> None:
    assert read_pointer(write_pointer(steps)) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", ()),
        ("/", ("",)),
        ("/a//b", ("a", "", "b")),
        (
            "/metadata/annotations/example.com~1owner",
            ("metadata", "annotations", "example.com/owner"),
        ),
        ("/~01", ("~1",)),
    ],
)
def test_pointers_name_the_steps_to_a_place(text: str, steps: tuple[str, ...]) -> None:
    assert read_pointer(text) == steps


@pytest.mark.parametrize("text", ["a", "a/b", "/~", "/~2", "/a~/b"])
def test_what_is_not_a_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON pointer"):
        read_pointer(text)


@pytest.mark.parametrize(("step", "index"), [("0", 0), ("7", 7), ("10", 10), ("-1", 4), ("-5", 0)])
def test_plain_numbers_are_indices(step: str, index: int) -> None:
    assert find_index(step, length=5) == index


@pytest.mark.parametrize(
    "step", ["", "-", "-6", "-0", "--1", "+1", "01", "1.0", "1 ", "²", "٣", "9" * 5000]
)
def test_nothing_else_is_an_index(step: str) -> None:
    assert find_index(step, length=5) is None


# JSON patch.


def patched(document: Any, *operations: Any) -> Any:
    return apply_json_patch(document, parse_json_patch(list(operations)))


def refusal_of(document: Any, *operations: Any) -> errors.InapplicablePatch:
    with pytest.raises(errors.InapplicablePatch) as refusal:
        patched(document, *operations)
    return refusal.value


@pytest.mark.parametrize(
    ("path", "result"),
    [("/l/0", ["x", "a", "b"]), ("/l/1", ["a", "x", "b"]), ("/l/2", ["a", "b", "x"])],
)
def test_add_inserts_into_a_list(path: str, result: Any) -> None:
    assert patched({"l": ["a", "b"]}, {"op": "add", "path": path, "value": "x"}) == {"l": result}


def test_a_dash_is_the_end_of_the_list() -> None:
    operation = {"op": "add", "path": "/l/-", "value": "x"}

    assert patched({"l": ["a"]}, operation, operation) == {"l": ["a", "x", "x"]}


def test_keys_with_slashes_and_tildes_are_escaped() -> None:
    document = {"a/b": 1, "m~n": 2}

    assert patched(document, {"op": "remove", "path": "/a~1b"}) == {"m~n": 2}
    assert patched(document, {"op": "remove", "path": "/m~0n"}) == {"a/b": 1}


def test_move_takes_the_value_along() -> None:
    assert patched({"a": {"x": 1}}, {"op": "move", "from": "/a", "path": "/b"}) == {"b": {"x": 1}}


def test_an_edit_of_a_copy_leaves_the_source_alone() -> None:
    result = patched(
        {"a": {"x": [1]}},
        {"op": "add", "path": "/a/x/-", "value": 2},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x/-", "value": 3},
        {"op": "add", "path": "/a/x/-", "value": 4},
    )

    assert result == {"a": {"x": [1, 2, 4]}, "b": {"x": [1, 2, 3]}}


def test_replace_may_put_another_document_in_place() -> None:
    assert patched({"a": 1}, {"op": "replace", "path": "", "value": {"b": 2}}) == {"b": 2}


def test_a_missing_value_is_null() -> None:
    assert patched({}, {"op": "add", "path": "/a"}) == {"a": None}


def test_a_missing_key_passes_a_test_for_null() -> None:
    assert patched({"a": 1}, {"op": "test", "path": "/b", "value": None}) == {"a": 1}


@pytest.mark.parametrize(
    ("held", "asked"),
    [({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}), ({"a": 1, "b": 2}, {"b": 2, "a": 1})],
)
def test_equal_values_pass_a_test(held: Any, asked: Any) -> None:
    assert patched({"v": held}, {"op": "test", "path": "/v", "value": asked}) == {"v": held}


@pytest.mark.parametrize(
    ("held", "asked"), [(1, True), (0, False), (1, "1"), ([1], [True]), ({}, [])]
)
def test_values_of_other_types_fail_a_test(held: Any, asked: Any) -> None:
    assert refusal_of({"v": held}, {"op": "test", "path": "/v", "value": asked}).place == "/v"


@pytest.mark.parametrize(
    ("operation", "place"),
    [
        ({"op": "remove", "path": "/none"}, "/none"),
        ({"op": "remove", "path": "/l/2"}, "/l/2"),
        ({"op": "remove", "path": "/l/-"}, "/l/-"),
        ({"op": "replace", "path": "/l/-3", "value": 1}, "/l/-3"),
        ({"op": "add", "path": "/l/3", "value": 1}, "/l/3"),
        ({"op": "add", "path": "/l/-4", "value": 1}, "/l/-4"),
        ({"op": "add", "path": "/l/01", "value": 1}, "/l/01"),
        ({"op": "add", "path": "/none/x", "value": 1}, "/none"),
        ({"op": "add", "path": "/s/x", "value": 1}, "/s/x"),
        ({"op": "move", "from": "/none", "path": "/x"}, "/none"),
        ({"op": "move", "from": "/o", "path": "/o/x"}, "/o"),
        ({"op": "copy", "from": "/none", "path": "/x"}, "/none"),
        ({"op": "test", "path": "/none/x", "value": None}, "/none"),
        ({"op": "test", "path": "/l/2", "value": None}, "/l/2"),
        ({"op": "test", "path": "", "value": {}}, ""),
        ({"op": "replace", "path": "", "value": []}, ""),
        ({"op": "add", "path": "", "value": {}}, "[0].path"),
        ({"op": "copy", "from": "", "path": "/x"}, "[0].from"),
        ({"op": "add", "path": "a", "value": 1}, "[0].path"),
        ({"op": "add", "path": "/~2", "value": 1}, "[0].path"),
        ({"op": "add", "value": 1}, "[0]"),
        ({"op": "move", "path": "/x"}, "[0]"),
        ({"op": "frobnicate", "path": "/x"}, "[0].op"),
        ({"path": "/x"}, "[0]"),
        (None, "[0]"),
    ],
)
def test_what_cannot_be_carried_out_is_invalid_and_says_where(operation: Any, place: str) -> None:
    refusal = refusal_of({"l": ["a", "b"], "s": "text", "o": {}}, operation)

    assert (refusal.code, refusal.reason, refusal.place) == (422, "Invalid", place)
    assert refusal.problem


def test_a_patch_is_carried_out_whole_or_not_at_all() -> None:
    document = {"a": {"b": 1}}

    refusal_of(document, {"op": "add", "path": "/a/c", "value": 2}, {"op": "remove", "path": "/x"})

    assert document == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("raw", "problem", "place"),
    [
        ({}, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp", ""),
        ("x", "cannot unmarshal string into Go value of type []handlers.jsonPatchOp", ""),
        ([[]], "cannot unmarshal array into Go value of type handlers.jsonPatchOp", "[0]"),
        (
            [{"op": "remove", "path": "/x"}, {"op": 1}],
            "cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            "[1].op",
        ),
        (
            [{"op": "remove", "path": True}],
            "cannot unmarshal bool into Go struct field jsonPatchOp.path of type string",
            "[0].path",
        ),
    ],
)
def test_what_is_no_patch_is_a_bad_request(raw: Any, problem: str, place: str) -> None:
    with pytest.raises(errors.MalformedPatch) as refusal:
        parse_json_patch(raw)

    assert refusal.value.message == f"error decoding patch: json: {problem}"
    assert (refusal.value.code, refusal.value.place) == (400, place)


def test_a_null_patch_has_no_operations() -> None:
    assert parse_json_patch(None) == ()


def test_ten_thousand_operations_are_carried_out_and_one_more_is_refused() -> None:
    adds = [{"op": "add", "path": f"/d/{n}", "value": n} for n in range(MAX_OPERATIONS)]

    assert len(patched({"d": {}}, *adds)["d"]) == MAX_OPERATIONS
    with pytest.raises(errors.RequestEntityTooLarge) as refusal:
        parse_json_patch([*adds, adds[0]])
    assert refusal.value.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, "
        "got 10001"
    )


def test_copies_within_the_budget_are_made_and_one_byte_more_is_refused() -> None:
    text = "x" * (MAX_COPIED_BYTES // 2 - len('""'))
    copies = [{"op": "copy", "from": "/a", "path": f"/c{n}"} for n in range(2)]

    assert patched({"a": text}, *copies) == {"a": text, "c0": text, "c1": text}
    assert refusal_of({"a": text + "x"}, *copies).place == "/a"


def test_a_list_that_doubles_itself_meets_the_budget() -> None:
    doubling = {"op": "copy", "from": "/a", "path": "/a/-"}

    assert refusal_of({"a": ["x"]}, *[doubling] * 60).place == "/a"


def test_an_object_that_nests_itself_without_end_is_refused() -> None:
    nesting = {"op": "copy", "from": "/a", "path": "/a/b"}

    problem = refusal_of({"a": {}}, *[nesting] * 2000).problem
    # Which bound is met first depends on how deep the interpreter can go.
    assert "nested too deeply" in problem or "copy operations may add" in problem


def test_only_what_lies_on_the_path_is_copied() -> None:
    document = {"metadata": {"labels": {}}, "spec": {"containers": [{"n": 1}, {"n": 2}]}}

    result = patched(document, {"op": "replace", "path": "/spec/containers/1/n", "value": 3})

    assert result["metadata"] is document["metadata"]
    assert result["spec"]["containers"][0] is document["spec"]["containers"][0]
    assert document["spec"]["containers"][1] == {"n": 2}


def test_a_value_of_the_patch_is_not_changed_by_later_operations() -> None:
    operations = parse_json_patch(
        [
            {"op": "add", "path": "/a", "value": {"l": []}},
            {"op": "add", "path": "/a/l/-", "value": 1},
        ]
    )

    assert apply_json_patch({}, operations) == apply_json_patch({}, operations) == {"a": {"l": [1]}}


# Integers start at 2 and floats are left out: to the oracle True is 1 and 1.0 is 1. Texts are
# empty: the oracle takes "/name/0" for the first letter of a text. The whole document is no path:
# the oracle follows the RFC there, we follow kube-apiserver. Test values are never null: a missing
# key passes such a test here and fails it there. Indices are never negative and what is replaced is
# there: the oracle follows the RFC, we follow kube-apiserver.
keys = st.sampled_from(["a", "b", "~", "/", "0"])
scalars = st.booleans() | st.integers(2, 5) | st.just("")
nullable = st.none() | scalars
values = st.recursive(
    nullable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner),
    max_leaves=10,
)
documents = st.dictionaries(keys, values, min_size=1)


def places_in(value: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every place of a document, and one beyond the end of each list and map."""
    if isinstance(value, dict):
        inner = [(*above, key) for key in [*value, "a"]]
        return inner + [p for key, held in value.items() for p in places_in(held, (*above, key))]
    if isinstance(value, list):
        inner = [(*above, step) for step in [*map(str, range(len(value) + 2)), "-", "a"]]
        return inner + [
            p for n, held in enumerate(value) for p in places_in(held, (*above, str(n)))
        ]
    return [(*above, "a"), (*above, "0")] if above else []


@st.composite
def documents_with_patches(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    document = draw(documents)
    pointers = st.sampled_from(places_in(document)).map(write_pointer)
    operation = st.one_of(
        st.fixed_dictionaries({"op": st.just("add"), "path": pointers, "value": values}),
        st.fixed_dictionaries({"op": st.just("replace"), "path": pointers, "value": values}),
        st.fixed_dictionaries({"op": st.just("test"), "path": pointers, "value": scalars}),
        st.fixed_dictionaries({"op": st.just("remove"), "path": pointers}),
        st.fixed_dictionaries({"op": st.just("move"), "from": pointers, "path": pointers}),
        st.fixed_dictionaries({"op": st.just("copy"), "from": pointers, "path": pointers}),
    )
    return document, draw(st.lists(operation, min_size=1, max_size=4))


def replaces_nothing(document: Any, operation: dict[str, Any]) -> bool:
    missing = object()
    pointer = jsonpointer.JsonPointer(operation["path"])
    is_replace = operation["op"] == "replace"
    return is_replace and pointer.resolve(document, missing) is missing


def test_replace_sets_a_missing_key_as_kube_apiserver_does() -> None:
    assert patched({"o": {}}, {"op": "replace", "path": "/o/new", "value": 1}) == {"o": {"new": 1}}


def test_a_negative_index_counts_from_the_end_as_in_kube_apiserver() -> None:
    document = {"l": ["a", "b"]}

    assert patched(document, {"op": "replace", "path": "/l/-1", "value": "z"}) == {"l": ["a", "z"]}
    assert patched(document, {"op": "remove", "path": "/l/-2"}) == {"l": ["b"]}
    assert patched(document, {"op": "add", "path": "/l/-1", "value": "z"}) == {"l": ["a", "b", "z"]}


@given(documents_with_patches())
def test_we_agree_with_another_implementation(case: tuple[Any, list[dict[str, Any]]]) -> None:
    document, operations = case
    assume(not any(replaces_nothing(document, each) for each in operations))
    try:
        expected = jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        expected = None

    try:
        result = patched(document, *operations)
    except errors.InapplicablePatch:
        result = None

    assert result == expected


@given(documents_with_patches())
def test_inputs_are_never_changed(case: tuple[Any, list[dict[str, Any]]]) -> None:
    before = msgspec.json.encode(case)
    try:
        result = patched(case[0], *case[1])
    except errors.InapplicablePatch:
        result = case[0]

    assert msgspec.json.encode(case) == before
    assert isinstance(result, dict)


fields = st.sampled_from(["op", "path", "from", "value"])
words = st.sampled_from(["add", "test", "copy", "move", "replace", "remove", "", "/a", "/a/0", "~"])
arbitrary = values | st.lists(values | words | st.dictionaries(fields, words | values), max_size=4)


@given(documents, arbitrary)
def test_any_json_is_a_patch_or_refused_as_one(document: Any, raw: Any) -> None:
    try:
        answer = apply_json_patch(document, parse_json_patch(raw))
    except (errors.MalformedPatch, errors.InapplicablePatch) as refusal:
        answer = refusal

    assert isinstance(answer, dict | errors.ApiError)


# Merge patch.

merge_keys = st.sampled_from(["a", "b", "c"])
merge_scalars = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"])
merge_values = st.recursive(
    merge_scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(merge_keys, inner),
    max_leaves=12,
)
merge_maps = st.dictionaries(merge_keys, merge_values)


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


@given(merge_maps, merge_maps)
def test_applying_a_patch_twice_is_applying_it_once(document: Any, patch: Any) -> None:
    once = apply_merge_patch(document, patch)

    assert same(apply_merge_patch(once, patch), once)


@given(merge_maps.map(without_nulls), merge_maps)
def test_no_field_becomes_null(document: Any, patch: Any) -> None:
    patched = apply_merge_patch(document, patch)

    assert same(patched, without_nulls(patched))


@given(merge_maps.map(without_nulls), merge_maps.map(without_nulls))
def test_a_diff_applied_gives_the_other_document(before: Any, after: Any) -> None:
    assert same(apply_merge_patch(before, diff(before, after)), after)


@given(merge_maps, merge_values)
def test_a_merge_changes_no_input(document: Any, patch: Any) -> None:
    before = msgspec.json.encode([document, patch])
    try:
        apply_merge_patch(document, patch)
    except errors.ApiError:
        assert not isinstance(patch, dict)

    assert msgspec.json.encode([document, patch]) == before
