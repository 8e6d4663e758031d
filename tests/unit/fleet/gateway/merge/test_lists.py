"""Lists of many clusters become one that a client cannot tell from a cluster's own."""

import json
from typing import Any

import pytest

from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway.merge.lists import (
    ClusterList,
    ListMetadata,
    merge_lists,
    read_cluster_list,
)
from clusterspace.fleet.gateway.routes import Naming, Subject

POD = Subject("", "v1", "pods")
VECTOR = ListMetadata("vector")


def part(cluster: str, *names: str, kind: str = "PodList", plain: bool = False) -> ClusterList:
    items = [{"metadata": {"name": name}, "spec": {"nodeName": "n"}} for name in names]
    token = "next" if names else ""  # no server says of nothing that it goes on
    body = {
        "kind": kind,
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": token, "remainingItemCount": 3},
        "items": items,
    }
    return read_cluster_list(json.dumps(body).encode(), Naming(cluster, qualifies_names=not plain))


def merged(*parts: ClusterList, metadata: ListMetadata = VECTOR) -> Any:
    return json.loads(b"".join(merge_lists(parts, subject=POD, metadata=metadata)))


def names_in(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_items_keep_the_order_of_the_clusters_and_carry_their_names() -> None:
    answer = merged(part("karmada", "a", plain=True), part("m1", "b", "a"), part("m2", "a"))

    assert names_in(answer) == ["a", "b.clusterspace.m1", "a.clusterspace.m1", "a.clusterspace.m2"]
    assert answer["items"][3]["spec"] == {"nodeName": "n.clusterspace.m2"}
    assert (answer["kind"], answer["apiVersion"]) == ("PodList", "v1")


def test_the_lists_own_metadata_is_replaced() -> None:
    answer = merged(part("m1", "a"), metadata=ListMetadata("vector", "token", 0))

    assert answer["metadata"] == {
        "resourceVersion": "vector",
        "continue": "token",
        "remainingItemCount": 0,
    }


def test_what_is_not_said_of_a_list_is_left_out() -> None:
    assert merged(part("m1", "a"))["metadata"] == {"resourceVersion": "vector"}


def test_what_a_part_says_of_itself_can_be_read() -> None:
    assert part("m1", "a").metadata == ListMetadata("7", "next", 3)
    assert part("m1", "a", "b").count == 2


def test_lists_of_nothing_are_a_list_of_nothing() -> None:
    assert merged(part("m1"), part("m2"))["items"] == []


@pytest.mark.parametrize("items", [b"null", b"[ ]"])
def test_a_cluster_may_write_nothing_in_its_own_way(items: bytes) -> None:
    body = b'{"kind":"PodList","metadata":{},"items":' + items + b"}"

    assert merged(part("m1", "a"), read_cluster_list(body, Naming("m2")))["items"] != []
    assert merged(read_cluster_list(body, Naming("m2")))["items"] == []


def test_long_lists_come_in_pieces_that_fit_together() -> None:
    names = [f"pod-{index}" for index in range(257)]
    pieces = list(merge_lists([part("m1", *names), part("m2", "z")], subject=POD, metadata=VECTOR))

    assert len(pieces) > 4
    assert names_in(json.loads(b"".join(pieces))) == [
        *(f"{name}.clusterspace.m1" for name in names),
        "z.clusterspace.m2",
    ]


def test_only_those_names_of_the_hub_change_that_read_like_a_member_s() -> None:
    hub = Naming("karmada", qualifies_marked=True)
    items = [{"metadata": {"name": name}} for name in ("a", "a.clusterspace.m1", "a.clusterspace.")]
    body = json.dumps({"kind": "PodList", "metadata": {}, "items": items}).encode()

    answer = merged(read_cluster_list(body, hub))

    assert names_in(answer) == ["a", "a.clusterspace.m1.clusterspace.karmada", "a.clusterspace."]


def test_large_objects_do_not_make_large_pieces() -> None:
    items = [{"metadata": {"name": f"{index}"}, "data": "x" * 100_000} for index in range(100)]
    body = json.dumps({"kind": "PodList", "metadata": {}, "items": items}).encode()
    large = read_cluster_list(body, Naming("m1", qualifies_names=True))

    pieces = list(merge_lists([large], subject=POD, metadata=VECTOR))

    assert max(map(len, pieces)) < 1_000_000
    assert len(names_in(json.loads(b"".join(pieces)))) == 100


def test_metadata_lists_are_merged_like_any_other() -> None:
    answer = merged(part("m1", "a", kind="PartialObjectMetadataList"))

    assert (answer["kind"], names_in(answer)) == (
        "PartialObjectMetadataList",
        ["a.clusterspace.m1"],
    )


def test_merging_twice_gives_the_same_answer() -> None:
    parts = (part("m1", "a"), part("m2", "b"))

    assert merged(*parts) == merged(*parts)


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b'{"kind":"Pod"}', b'{"kind":"PodList","items":[1]}', b'{"items":[]}']
)
def test_an_answer_that_is_no_list_is_told_before_anything_is_written(body: bytes) -> None:
    with pytest.raises(ClusterMisbehaved, match="cluster m1"):
        read_cluster_list(body, Naming("m1"))


@pytest.mark.parametrize(
    ("metadata", "beside", "why"),
    [
        ({"resourceVersion": "9" * 200}, {}, "its resourceVersion is not valid"),
        ({"resourceVersion": "70/12"}, {}, "its resourceVersion is not valid"),
        ({"resourceVersion": "7", "continue": "x" * 5000}, {}, "its continue token is not valid"),
        ({"resourceVersion": "7", "continue": "a b"}, {}, "its continue token is not valid"),
        ({"resourceVersion": "7", "continue": "x"}, {}, "says that it goes on"),
        ({"resourceVersion": "7"}, {"kind": "Pod"}, "it is a Pod"),
        ({"resourceVersion": "7"}, {"apiVersion": "evil/v1"}, "it is of evil/v1, not of v1"),
    ],
)
def test_a_list_that_would_spoil_the_answer_for_all_is_none(
    metadata: dict[str, str], beside: dict[str, str], why: str
) -> None:
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": [], **beside}

    with pytest.raises(ClusterMisbehaved, match=why):
        read_cluster_list(json.dumps(body).encode(), Naming("m1"), "v1")


def test_millions_of_elements_smaller_than_any_object_are_not_even_decoded() -> None:
    opening = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":['

    with pytest.raises(ClusterMisbehaved, match="less than 32 bytes each"):
        read_cluster_list(opening + b"{}," * 2_000_000 + b"{}]}", Naming("m1"))


def test_the_list_is_of_the_kind_that_most_clusters_say() -> None:
    answer = merged(part("aaa", "x", kind="EvilList"), part("m1", "a"), part("m2", "a"))

    assert answer["kind"] == "PodList"


def test_a_part_comes_in_pieces_of_which_the_last_one_ends_it() -> None:
    whole = read_cluster_list(
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{},{},{},{},{}]}',
        Naming("m1"),
    )

    pieces = list(whole.pieces(2))

    assert [piece.count for piece in pieces] == [2, 2, 1]
    assert [bool(piece.metadata.continue_token) for piece in pieces] == [True, True, False]
    assert list(whole.pieces(5)) == [whole]
