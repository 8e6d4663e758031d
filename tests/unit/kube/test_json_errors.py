"""The sentence a client gets for a body that is not JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.kube.json_errors import describe_json_error


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"{not json", "invalid character 'n' looking for beginning of object key string"),
        (b"", "unexpected end of JSON input"),
        (b'{"a":', "unexpected end of JSON input"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1] x", "invalid character 'x' after top-level value"),
        (b"nul", "unexpected end of JSON input"),
        (b"nulx", "invalid character 'x' in literal null (expecting 'l')"),
        (b"\x81", "invalid character '\\x81' looking for beginning of value"),
        (b'"\\q"', "invalid character 'q' in string escape code"),
        (b"[1.]", "invalid character ']' after decimal point in numeric literal"),
        (b"[" * 20_000, "exceeded max depth"),
    ],
)
def test_the_sentence_names_the_character_and_the_place(text: bytes, sentence: str) -> None:
    assert describe_json_error(text) == sentence


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
NEARLY_JSON = st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\', max_size=60).map(str.encode)


@given(VALUES)
def test_what_is_json_is_not_complained_about(value: object) -> None:
    assert describe_json_error(json.dumps(value).encode()) == ""


@given(st.binary(max_size=60) | NEARLY_JSON)
def test_whatever_the_standard_decoder_refuses_is_named(raw: bytes) -> None:
    try:
        json.loads(raw, parse_constant=lambda name: json.loads(name + "!"))
        readable = True
    except (ValueError, RecursionError):
        readable = False
    if not raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")) and b"\x00" not in raw:
        assert (describe_json_error(raw) == "") == readable
