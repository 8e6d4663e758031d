"""Continue tokens: opaque, relative, and refused when we did not write them."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.verbs.read import Continue, decode_continue, encode_continue
from clusterspace.errors import BadRequest

PREFIX = "/registry/core/pods/default/"
OTHER = "/registry/core/pods/kube-system/"
names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)


@given(st.integers(1, 2**62), names)
def test_a_token_says_where_to_go_on(revision: int, name: str) -> None:
    place = Continue(revision, PREFIX + name)

    assert decode_continue(encode_continue(place, PREFIX), PREFIX) == place


@given(names)
def test_a_token_does_not_show_our_keys_and_fits_a_url(name: str) -> None:
    text = encode_continue(Continue(5, PREFIX + name), PREFIX)

    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert b"registry" not in base64.urlsafe_b64decode(text + "==")


@given(names)
def test_a_token_of_one_list_stays_inside_another(name: str) -> None:
    text = encode_continue(Continue(5, PREFIX + name), PREFIX)

    assert decode_continue(text, OTHER).last_key.startswith(OTHER)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_token_are_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="invalid continue token"):
        decode_continue(base64.urlsafe_b64encode(raw).decode(), PREFIX)


@given(st.text(max_size=40))
def test_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="invalid continue token"):
        decode_continue(text, PREFIX)


@pytest.mark.parametrize(
    "forged",
    [
        {"v": "meta.k8s.io/v2", "rv": 5, "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": 0, "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": 2**70, "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": True, "start": "a"},
        {"v": "meta.k8s.io/v1", "rv": 5, "start": "../kube-system/a"},
        {"v": "meta.k8s.io/v1", "rv": 5, "start": "a/../../x"},
        {"v": "meta.k8s.io/v1", "rv": 5},
    ],
    ids=str,
)
def test_a_forged_token_is_refused(forged: dict[str, object]) -> None:
    text = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode()

    with pytest.raises(BadRequest, match="invalid continue token"):
        decode_continue(text, PREFIX)
