import msgspec
import pytest

from clusterspace.client.resources import read_page, read_page_head
from clusterspace.errors import ClusterMisbehaved


def page(**changes: object) -> bytes:
    body = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "9", "continue": "more", "remainingItemCount": 3},
        "items": [{"metadata": {"name": "a", "uid": "u", "resourceVersion": "5"}}],
    }
    return msgspec.json.encode({**body, **changes})


def test_items_get_the_kind_their_list_left_out():
    (item,) = read_page("west", page()).items

    assert item.decode() == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "5"},
    }


def test_items_with_a_kind_keep_their_bytes():
    body = page(items=[{"kind": "Gear", "metadata": {"name": "a", "resourceVersion": "5"}}])

    (item,) = read_page("west", body).items

    assert item.raw in body


def test_a_page_tells_its_version_and_what_is_left():
    head = read_page_head("west", page())

    assert (head.resource_version, head.continue_token, head.remaining) == ("9", "more", 3)


def test_an_empty_list_says_so_as_null_or_as_nothing():
    assert read_page("west", page(items=[])).items == ()
    assert read_page("west", page(items=None)).items == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"kind":"PodList","apiVersion":"v1","items":[]}',
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"}}',
        page()[:-20],
        page(kind="Status"),
        page(metadata={}),
        page(items={"a": 1}),
        page(items=[5]),
        page(items=[{"metadata": {"name": "a"}}]),
    ],
)
def test_what_is_no_list_is_never_an_empty_one(body: bytes):
    with pytest.raises(ClusterMisbehaved, match="cluster west"):
        read_page("west", body)
