"""What an object is called where many clusters are one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.fleet.gateway.routes import MARKER, Split, in_order, qualify, split

clusters = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", fullmatch=True) | st.just(
    "clusterspace"
)
plain_names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True)
pieces = st.sampled_from(["a", "web-1", "clusterspace", "member1", "17ab"])
marked_names = st.lists(pieces, min_size=1, max_size=8).map(".".join)
full_names = st.just("n" * 253) | st.just("n" * 239 + MARKER + "m")


@given(plain_names | marked_names | full_names, clusters)
def test_a_name_comes_back_as_it_was(name: str, cluster: str) -> None:
    assert split(qualify(name, cluster)) == Split(name, cluster)


@given(plain_names | marked_names, clusters, clusters)
def test_through_two_gateways_the_outer_one_is_taken_off_first(
    name: str, inner: str, outer: str
) -> None:
    nested = qualify(qualify(name, inner), outer)

    assert split(nested) == Split(qualify(name, inner), outer)


@given(plain_names.filter(lambda name: MARKER not in name))
def test_a_name_without_the_marker_says_no_cluster(name: str) -> None:
    assert split(name) == Split(name, None)


@pytest.mark.parametrize(
    "name",
    ["", "web.clusterspace", "clusterspace.m1", ".clusterspace.m1", "web.clusterspace.", MARKER],
)
def test_half_a_qualified_name_is_a_bare_name(name: str) -> None:
    assert split(name) == Split(name, None)


def test_an_event_of_a_member_keeps_the_dots_of_its_name() -> None:
    assert split("web.17ab3f.clusterspace.m1") == Split("web.17ab3f", "m1")


def test_the_hub_comes_first_and_members_follow_by_name() -> None:
    assert in_order(["zoo", "karmada", "alpha", "lab"]) == ["karmada", "alpha", "lab", "zoo"]
