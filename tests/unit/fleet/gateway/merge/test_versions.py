"""Many clusters' versions in one string: small, exact, and never the wrong cluster's."""

import base64
import random
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import Expired
from clusterspace.fleet.gateway.merge import versions

clusters = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", fullmatch=True)
numbers = st.integers(0, 2**128 - 1).map(str)
odd_versions = st.sampled_from(["", "007", "-1", "a.b~c", "ü", "9" * 60, "٣"])
nested = st.dictionaries(clusters, numbers, max_size=3).map(versions.encode)
vectors = st.dictionaries(clusters, numbers | odd_versions | nested, max_size=12)

ALIKE = ("c172969", "c702257")
"""Two names with the same key."""


@given(vectors)
def test_a_vector_comes_back_as_it_was(vector: dict[str, str]) -> None:
    token = versions.encode(vector)

    assert versions.decode(token, list(vector)) == vector
    assert all(versions.version_in(token, each, list(vector)) == vector[each] for each in vector)


@given(vectors, st.randoms(use_true_random=False))
def test_equal_vectors_are_equal_strings(vector: dict[str, str], chance: random.Random) -> None:
    shuffled = list(vector.items())
    chance.shuffle(shuffled)

    assert versions.encode(dict(shuffled)) == versions.encode(vector)


@given(vectors)
def test_a_vector_needs_no_escaping_in_a_url(vector: dict[str, str]) -> None:
    token = versions.encode(vector)

    assert quote(token, safe="") == token


def test_five_hundred_clusters_fit_a_url() -> None:
    chance = random.Random(7)
    fleet = ["".join(chance.choices(string.ascii_lowercase, k=48)) for _ in range(500)]
    vector = {cluster: str(10**10 - 1 - chance.randrange(10**9)) for cluster in fleet}

    token = versions.encode(vector)

    # Of 8 KB this leaves more than 1 KB to the path and the other parameters.
    assert len(token) < 7 * 1024
    assert versions.decode(token, fleet) == vector


@given(vectors, clusters)
def test_a_cluster_that_joined_later_has_no_part(vector: dict[str, str], newcomer: str) -> None:
    vector.pop(newcomer, None)
    token = versions.encode(vector)
    fleet = [*vector, newcomer]

    assert versions.decode(token, fleet) == vector
    assert versions.version_in(token, newcomer, fleet) is None


@given(vectors.filter(bool), st.data())
def test_when_a_cluster_has_left_clients_list_again(
    vector: dict[str, str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(vector)))
    left = [each for each in vector if each != gone]

    with pytest.raises(Expired, match="list again"):
        versions.decode(versions.encode(vector), left)


@given(vectors.filter(bool), st.data())
def test_a_damaged_vector_is_expired(vector: dict[str, str], data: st.DataObject) -> None:
    token = versions.encode(vector)
    at = data.draw(st.integers(len(versions.MARK), len(token) - 1))
    other = data.draw(st.sampled_from([*string.ascii_letters, *string.digits, "-", "_", "~", ""]))
    damaged = token[:at] + other + token[at + 1 :]

    try:
        found = versions.decode(damaged, list(vector))
    except Expired:
        return
    # The last characters of base64 may hold bits that mean nothing.
    assert found == vector


@given(vectors, st.integers(0, 40))
def test_a_vector_cut_short_is_expired(vector: dict[str, str], keep: int) -> None:
    token = versions.encode(vector)

    with pytest.raises(Expired):
        versions.decode(token[: len(versions.MARK) + min(keep, 10)], list(vector))


@given(st.binary(max_size=64))
def test_bytes_that_are_no_vector_are_expired(raw: bytes) -> None:
    token = versions.MARK + base64.urlsafe_b64encode(raw).decode().rstrip("=")

    with pytest.raises(Expired):
        versions.decode(token, ["m1", "m2"])


@pytest.mark.parametrize("text", ["12345", "cs2.AAAA", "eyJtMSI6IjEyIn0", "cs1", "nonsense", "00"])
def test_what_is_not_of_the_fleet_is_expired_and_never_now(text: str) -> None:
    with pytest.raises(Expired):
        versions.decode(text, ["m1"])


def test_names_that_look_alike_to_the_vector_are_told_apart() -> None:
    one, other = ALIKE
    both = versions.encode({one: "1", other: "2", "m1": "3"})

    assert versions.decode(both, [other, "m1", one]) == {one: "1", other: "2", "m1": "3"}
    assert versions.decode(versions.encode({one: "1"}), ALIKE) == {one: "1"}
    assert versions.version_in(versions.encode({one: "1"}), other, ALIKE) is None


def test_a_version_never_reaches_a_cluster_that_only_looks_like_its_own() -> None:
    one, other = ALIKE
    token = versions.encode({one: "1", "m1": "3"})

    for fleet in [[other], [other, "m1"], [other, "m1", "m2"]]:
        with pytest.raises(Expired):
            versions.decode(token, fleet)
        with pytest.raises(Expired):
            versions.version_in(token, other, fleet)


def test_the_two_special_versions_are_passed_on() -> None:
    assert versions.decode("", ["m1", "m2"]) == {}
    assert versions.decode("0", ["m1", "m2"]) == {"m1": "0", "m2": "0"}
    assert versions.version_in("", "m1", ["m1"]) == ""
    assert versions.version_in("0", "m1", ["m1"]) == "0"


@pytest.mark.parametrize("native", ["1", "4711", "opaque", "csv.1", "cs.1", "c1.x"])
def test_a_clusters_own_version_is_its_own_business(native: str) -> None:
    assert versions.version_in(native, "m1", ["m1"]) == native


@pytest.mark.parametrize("broken", ["cs1.", "cs1.AAA", "cs9.AAAA", "cs1.!!"])
def test_a_broken_vector_is_not_taken_for_a_clusters_own(broken: str) -> None:
    with pytest.raises(Expired):
        versions.version_in(broken, "m1", ["m1"])
