"""What clients send: read exactly, or refused with the place."""

import contextlib
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.http.bodies import read_body, read_json, read_yaml
from clusterspace.errors import ApiError, BadRequest, UnsupportedMediaType

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def test_yaml_becomes_the_same_object_as_json() -> None:
    text = b"kind: Pod\nmode: 0644\nports: [80, '80', 1:30]\nok: yes\nnone: ~\nwhen: 2020-01-01\n"

    body = read_body(text, "application/yaml")

    assert body.value == {
        "kind": "Pod",
        "mode": 0o644,
        "ports": [80, "80", "1:30"],
        "ok": True,
        "none": None,
        "when": "2020-01-01",
    }


@given(JSON_VALUES)
def test_json_under_the_yaml_type_is_read_as_json(value: object) -> None:
    assert read_yaml(json.dumps({"v": value}).encode()).value == {"v": value}


def test_a_key_that_comes_twice_is_named_and_the_last_one_wins() -> None:
    in_json = read_json(b'{"a": [{"b": 1, "b": 2}], "c": 1, "c": 2}')
    in_yaml = read_yaml(b"a:\n- {b: 1, b: 2}\nc: 1\nc: 2\n")

    assert in_json.value == in_yaml.value == {"a": [{"b": 2}], "c": 2}
    assert set(in_json.duplicates) == {"a[0].b", "c"}
    assert in_yaml.duplicate_lines == (
        'line 2: key "b" already set in map',
        'line 4: key "c" already set in map',
    )


_TEXTS = st.sampled_from(['"a"', '"b"', '"\\u0061"', '":"', '"\\":"', '": 1, "', '"a :"', '""'])
_BLANKS = st.sampled_from(["", "", "", " ", "\t", "\n ", "\r"])


@st.composite
def _json_texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Objects as somebody writes them who means to hide that a key comes twice."""
    if not depth or draw(st.booleans()):
        return draw(_TEXTS)
    pairs = [
        f"{draw(_TEXTS)}{draw(_BLANKS)}:{draw(_BLANKS)}{draw(_json_texts(depth - 1))}"
        for _ in range(draw(st.integers(0, 4)))
    ]
    return "{" + ",".join(pairs) + "}"


@given(_json_texts())
def test_no_way_of_writing_hides_a_key_that_comes_twice(text: str) -> None:
    found = list[str]()

    def note(pairs: list[tuple[str, object]]) -> None:
        found.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    json.loads(text, object_pairs_hook=note)

    # A key of what was dropped, for coming once more, is named by nobody.
    assert bool(read_json(text.encode()).duplicates) == bool(found)


def test_an_unknown_media_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json, application/yaml"):
        read_body(b"", "text/csv")


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 300_000,
        b'{"a":' * 100_000,
        b"[NaN]",
        b"1e999",
        b'"\xff"',
        b"{} {}",
    ],
)
def test_hostile_json_is_a_bad_request(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_json(raw)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b"[" * 300_000, "nested more than 200 levels"),
        (b"a: &x [1]\nb: [*x, *x]\n", "line 2: aliases"),
        (b"a: 1\n---\nb: 2\n", "line 2: one document"),
        (b"a: .inf\n", "line 1: .inf"),
        (b"? [a]\n: b\n", "line 1: a key must be"),
        (b"a: !!python/object:os.system x\n", "line 1: the tag"),
        (b"a: [\n", "line 2"),
        (b"a: \xff\n", "yaml:"),
    ],
)
def test_hostile_yaml_is_a_bad_request_that_names_the_place(raw: bytes, place: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        read_yaml(raw)

    assert place in refusal.value.message


@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/yaml", ""]))
def test_random_bytes_never_escape_as_anything_but_an_api_error(raw: bytes, kind: str) -> None:
    with contextlib.suppress(ApiError):
        read_body(raw, kind)
