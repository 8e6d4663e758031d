"""Which items make a page, and where it stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest
from clusterspace.fleet.gateway.answers.list_all import (
    Slice,
    Stop,
    how_many_next,
    plan_page,
    read_limit,
    without_paging,
)
from clusterspace.fleet.gateway.merge.lists import ClusterList, ListMetadata
from clusterspace.fleet.gateway.routes import Naming


def part(cluster: str, count: int, token: str = "") -> ClusterList:
    metadata = ListMetadata(resource_version="7", continue_token=token)
    return ClusterList(Naming(cluster), "PodList", "v1", metadata, items=[{}] * count)


def test_a_page_with_room_takes_everything():
    parts = [part("a", 2), part("b", 0), part("c", 3)]

    plan = plan_page(parts, 5, is_fresh=True)

    assert plan.taken == tuple(parts)
    assert plan.stop is None


def test_a_page_stops_in_the_cluster_that_has_more():
    plan = plan_page([part("a", 2), part("b", 3, token="more"), part("c", 1)], 5, is_fresh=True)

    assert [each.cluster for each in plan.taken] == ["a", "b"]
    assert plan.stop == Stop("b", "more")
    assert not plan.is_cut


def test_a_cluster_that_does_not_fit_is_asked_again_for_what_does():
    plan = plan_page([part("a", 2), part("b", 4)], 5, is_fresh=True)

    assert (plan.stop, plan.is_cut, plan.count) == (Stop("b"), True, 2)


def test_a_full_page_stops_before_the_next_item():
    plan = plan_page([part("a", 5), part("b", 1)], 5, is_fresh=True)

    assert (plan.stop, plan.is_cut) == (Stop("b"), False)


def test_a_server_that_ignores_the_limit_is_not_asked_for_ever():
    plan = plan_page([part("a", 9), part("b", 1)], 5, is_fresh=True)

    assert [each.cluster for each in plan.taken] == ["a"]
    assert plan.stop == Stop("b")


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=6), room=st.integers(1, 12))
def test_a_page_is_a_beginning_of_the_parts_and_says_where_it_ends(counts: list[int], room: int):
    parts = [part(f"c{index}", count) for index, count in enumerate(counts)]

    plan = plan_page(parts, room, is_fresh=True)

    assert list(plan.taken) == parts[: len(plan.taken)]
    is_whole = len(plan.taken) == len(parts)
    assert (plan.stop is None) is is_whole
    assert plan.stop is None or plan.stop.cluster == parts[len(plan.taken)].cluster
    assert plan.count <= room or len(plan.taken) == 1


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ((), 0),
        ((("limit", "500"),), 500),
        ((("limit", "500"), ("resourceVersion", "0")), 0),
        ((("limit", "500"), ("resourceVersion", "7")), 500),
    ],
)
def test_a_limit_is_read_as_servers_read_it(query: tuple[tuple[str, str], ...], limit: int):
    assert read_limit(Query(query)) == limit


@pytest.mark.parametrize("text", ["x", "-1", "1e3", "9" * 19, "٣"])
def test_a_limit_that_is_no_number_is_refused(text: str):
    with pytest.raises(BadRequest, match="limit"):
        read_limit(Query((("limit", text),)))


def test_a_slice_says_the_version_only_where_it_may():
    base = without_paging(Query((("labelSelector", "a=b"), ("limit", "5"), ("continue", "x"))))

    first = Slice(3, "", "7", "NotOlderThan").added_to(base)
    later = Slice(3, "more", "7", "NotOlderThan").added_to(base)
    unversioned = Slice(0, "", "", "Exact").added_to(base)

    assert first.pairs == (
        ("labelSelector", "a=b"),
        ("limit", "3"),
        ("resourceVersion", "7"),
        ("resourceVersionMatch", "NotOlderThan"),
    )
    assert later.pairs == (("labelSelector", "a=b"), ("limit", "3"), ("continue", "more"))
    assert unversioned.pairs == (("labelSelector", "a=b"),)


@pytest.mark.parametrize(
    ("room", "counts", "wanted"),
    [
        (500, [], 8),
        (500, [0, 0], 8),
        (500, [5], 8),
        (400, [100], 4),
        (400, [100, 300], 2),
        (10, [500], 1),
        (0, [500], 8),
    ],
)
def test_no_more_clusters_are_asked_than_a_page_may_need(
    room: int, counts: list[int], wanted: int
) -> None:
    assert how_many_next(room, counts) == wanted
