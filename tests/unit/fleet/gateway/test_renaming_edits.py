"""Only the places named change, whatever else the text holds and however it is written."""

import json
import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clusterspace.errors import MalformedObject
from clusterspace.fleet.gateway import renaming
from clusterspace.fleet.gateway.renaming import EACH
from clusterspace.fleet.gateway.routes import Naming, Subject

POD = Subject("", "v1", "pods")
MEMBER = Naming("member1", qualifies_names=True)
SUFFIX = ".clusterspace.member1"

KEYS = st.sampled_from(
    ["name", "metadata", "ownerReferences", "spec", "nodeName", "labels", 'na"me', "\\", "é", ""]
) | st.text(max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["name", '"name":', '{"metadata":{"name":"x"}}', "nodeName"])
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OWNERS = st.lists(st.dictionaries(KEYS, SCALARS, max_size=3) | SCALARS, max_size=3)


@st.composite
def pods(draw: st.DrawFn) -> Any:
    metadata = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    spec = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    if draw(st.booleans()):
        metadata["name"] = draw(st.text(max_size=8))
    if draw(st.booleans()):
        metadata["ownerReferences"] = draw(OWNERS)
    if draw(st.booleans()):
        spec["nodeName"] = draw(st.text(max_size=8))
    pod = {**draw(st.dictionaries(KEYS, VALUES, max_size=3)), "metadata": metadata, "spec": spec}
    return dict(draw(st.permutations(list(pod.items()))))


def written(value: Any, choose: random.Random) -> str:
    """Write a value as some legal JSON: spaces and escapes wherever they may be."""

    def space() -> str:
        return choose.choice(["", "", " ", "\n\t", " \r\n"])

    if isinstance(value, str):
        return '"' + "".join(written_character(each, choose) for each in value) + '"'
    if isinstance(value, dict):
        pairs = (
            f"{space()}{written(key, choose)}{space()}:{space()}{written(held, choose)}{space()}"
            for key, held in value.items()
        )
        return "{" + (",".join(pairs) or space()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(f"{space()}{written(each, choose)}{space()}" for each in value) + "]"
    return json.dumps(value)


def written_character(character: str, choose: random.Random) -> str:
    if choose.random() < 0.3:
        utf16 = character.encode("utf-16-be")
        return "".join(f"\\u{utf16[at : at + 2].hex()}" for at in range(0, len(utf16), 2))
    if character == "/" and choose.random() < 0.5:
        return "\\/"
    return json.dumps(character, ensure_ascii=False)[1:-1]


def renamed(pod: Any) -> Any:
    """The oracle: decode, edit, encode."""

    def qualified(holder: Any, key: str) -> Any:
        if not isinstance(holder, dict) or not isinstance(holder.get(key), str) or not holder[key]:
            return holder
        return {**holder, key: holder[key] + SUFFIX}

    metadata = qualified(pod["metadata"], "name")
    if isinstance(metadata.get("ownerReferences"), list):
        owners = [qualified(owner, "name") for owner in metadata["ownerReferences"]]
        metadata = {**metadata, "ownerReferences": owners}
    return {**pod, "metadata": metadata, "spec": qualified(pod["spec"], "nodeName")}


@given(pods(), st.integers(0, 2**32))
def test_any_legal_text_changes_exactly_where_decoding_and_editing_it_would(
    pod: Any, seed: int
) -> None:
    text = written(pod, random.Random(seed)).encode()

    edited = renaming.edit_object(text, renaming.outward(MEMBER, POD))

    assert json.loads(edited) == renamed(pod)
    assert list(json.loads(edited)) == list(pod)


@given(pods(), st.integers(0, 2**32))
def test_a_text_in_which_nothing_changes_stays_byte_for_byte(pod: Any, seed: int) -> None:
    text = written(pod, random.Random(seed)).encode()

    assert renaming.edit_object(text, {"metadata": {"no such field": str.upper}}) is text


def test_what_is_not_on_the_way_keeps_its_spaces_numbers_and_escapes() -> None:
    text = b'{"metadata":{"name":"a"},"spec": { "x" : 1.00, "y":"\\u003c", "z":1e2 }}'

    edited = renaming.edit_object(text, {"metadata": {"name": str.upper}})

    assert edited == b'{"metadata":{"name":"A"},"spec":{ "x" : 1.00, "y":"\\u003c", "z":1e2 }}'


def test_editing_leaves_what_it_was_given_alone() -> None:
    fields = renaming.read_object(b'{"metadata":{"name":"a"}}')
    edit = renaming.editor_of({"metadata": {"name": str.upper}})

    assert (
        renaming.encode(edit(fields))
        == renaming.encode(edit(fields))
        == b'{"metadata":{"name":"A"}}'
    )


def test_lists_of_strings_and_of_lists_are_edited_as_well() -> None:
    tree = {"a": {EACH: str.upper}, "b": {EACH: {EACH: str.upper}}}

    assert (
        renaming.edit_object(b'{"a":["x",1],"b":[["y"],2]}', tree) == b'{"a":["X",1],"b":[["Y"],2]}'
    )


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"<html>", b'{"a":', b'{"a":"\xff', b'{"a":' + b"[" * 100_000]
)
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedObject, match="body"):
        renaming.edit_object(body, {})


@pytest.mark.parametrize(
    ("steps", "leads_to"),
    [
        ((), {"list": {EACH: {"name": str.upper}}}),
        (("list", "0"), {"name": str.upper}),
        (("list", "-", "name"), str.upper),
        (("list", "0", "other"), None),
        (("list", "0", "name", "deeper"), None),
        (("elsewhere",), None),
    ],
)
def test_a_path_leads_to_what_changes_below_it(steps: tuple[str, ...], leads_to: Any) -> None:
    assert renaming.below({"list": {EACH: {"name": str.upper}}}, steps) == leads_to
