"""Large JSON, read in steps: exactly what the quick decoder reads, up to as much as may be."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.http.bodies import NotJson, TooDeep, compose_json
from clusterspace.errors import RequestEntityTooLarge
from clusterspace.kube.shapes import MAX_CONTAINERS, MAX_EXTREME_NUMBERS, MAX_VALUES

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=30,
)


def composed(raw: bytes, max_depth: int = 200) -> object:
    return compose_json(raw, max_depth=max_depth)[0]


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_what_was_written_is_read(value: object, is_ascii: bool, indent: int | str | None) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")

    try:
        expected = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(NotJson):
            composed(raw)
        return

    assert json.dumps(composed(raw)) == json.dumps(expected)


@given(VALUES, st.data())
def test_what_the_quick_decoder_refuses_is_refused(value: object, data: st.DataObject) -> None:
    raw = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"0", b".", b"e"]
            )
        )

    try:
        expected: object = msgspec.json.decode(bytes(raw))
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(NotJson):
            composed(bytes(raw))
    else:
        assert json.dumps(composed(bytes(raw))) == json.dumps(expected)


def test_keys_that_come_twice_are_named_by_their_place() -> None:
    raw = b'{"a": [1, {"b": 1, "b": 2}], "c": {"d": {"e": 1, "e": 2}}, "c": 1, "f": {}, "f": []}'

    value, duplicates = compose_json(raw, max_depth=200)

    assert value == {"a": [1, {"b": 2}], "c": 1, "f": []}
    assert duplicates == ("a[1].b", "c.d.e", "c", "f")


def test_depth_has_the_same_limit_as_everywhere() -> None:
    assert composed(b"[" * 200 + b"]" * 200)
    with pytest.raises(TooDeep):
        composed(b"[" * 200 + b"1" + b"]" * 200)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * MAX_CONTAINERS + b"[]]",
        b"[" + b"1," * MAX_VALUES + b"1]",
        b"[" + b"1e-300," * MAX_EXTREME_NUMBERS + b"1e300]",
    ],
)
def test_too_many_parts_are_refused(raw: bytes) -> None:
    with pytest.raises(RequestEntityTooLarge, match="split the object"):
        composed(raw)
