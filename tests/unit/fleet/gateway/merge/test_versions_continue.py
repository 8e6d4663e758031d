"""Where a list across clusters goes on."""

import base64
import random
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import BadRequest
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.versions import Continue, decode_continue, encode_continue

clusters = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", fullmatch=True)
vectors = st.dictionaries(clusters, st.integers(0, 2**40).map(str), max_size=5).map(versions.encode)
places = st.builds(Continue, clusters, st.text(max_size=60), vectors)


@given(places)
def test_a_token_says_where_to_go_on(place: Continue) -> None:
    assert decode_continue(encode_continue(place)) == place


@given(places, st.data())
def test_a_damaged_token_is_refused(place: Continue, data: st.DataObject) -> None:
    token = encode_continue(place)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(["", "~", "x", "0"]).filter(lambda text: text != token[at]))

    with pytest.raises(BadRequest, match="invalid continue token"):
        decode_continue(token[:at] + other + token[at + 1 :])


@given(st.text(max_size=40))
def test_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="invalid continue token"):
        decode_continue(text)


def test_a_members_own_token_is_no_token_of_the_fleet() -> None:
    own = base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":5,"start":"a"}').decode()

    with pytest.raises(BadRequest):
        decode_continue(own)


def test_a_token_of_five_hundred_clusters_fits_a_url() -> None:
    chance = random.Random(7)
    fleet = ["".join(chance.choices(string.ascii_lowercase, k=48)) for _ in range(500)]
    vector = versions.encode({cluster: str(10**10 - 1) for cluster in fleet})
    longest_key = f"{'s' * 63}/{'n' * 253}\\u0000"
    member_token = base64.urlsafe_b64encode(
        f'{{"v":"meta.k8s.io/v1","rv":9999999999,"start":"{longest_key}"}}'.encode()
    ).decode()

    token = encode_continue(Continue(fleet[250], member_token.rstrip("="), vector))

    assert quote(token, safe="") == token
    assert len(token) < 7.5 * 1024


def test_what_remains_starts_with_the_cluster_in_hand() -> None:
    fleet = ["zoo", "karmada", "alpha", "lab"]

    assert Continue("lab", "x", "").remaining(fleet) == ["lab", "zoo"]
    assert Continue("karmada", "", "").remaining(fleet) == ["karmada", "alpha", "lab", "zoo"]


def test_a_list_goes_on_behind_a_cluster_that_is_out_of_it() -> None:
    assert Continue("lab", "", "").remaining(["alpha", "zoo"]) == ["zoo"]
