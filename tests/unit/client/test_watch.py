import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.client import watch
from clusterspace.client.watch import EventType, LineSplitter, WatchOptions, read_event
from clusterspace.errors import ClusterMisbehaved, Expired

POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


def line(event_type: str, body: object) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": body})


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda each: b"\n" not in each), max_size=8),
    cuts=st.lists(st.integers(min_value=0, max_value=200), max_size=8),
)
def test_lines_are_the_same_however_the_stream_is_cut(lines: list[bytes], cuts: list[int]):
    stream = b"".join(each + b"\n" for each in lines)
    bounds = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    chunks = [stream[start:end] for start, end in itertools.pairwise(bounds)]
    splitter = LineSplitter()

    assert [each for chunk in chunks for each in splitter.feed(chunk)] == lines
    assert splitter.rest_bytes == 0


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "LONGEST_LINE", 10)
    splitter = LineSplitter()
    splitter.feed(b"123456")

    with pytest.raises(ValueError, match="more than 10 bytes"):
        splitter.feed(b"789012")


def test_an_event_carries_its_object_undecoded():
    event = read_event("west", line("MODIFIED", POD))

    assert event.type is EventType.MODIFIED
    assert event.item.key == "default/web"
    assert (event.item.version.uid, event.item.version.resource_version) == ("u", "7")
    assert event.item.decode() == POD


def test_a_bookmark_is_only_a_version():
    plain = read_event("west", line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": "9", "annotations": annotations}
    end = read_event("west", line("BOOKMARK", {"metadata": metadata}))

    assert plain.item.version.resource_version == "9"
    assert not plain.ends_initial_events
    assert end.ends_initial_events


def test_an_error_event_is_raised_as_what_it_tells():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}

    with pytest.raises(Expired, match="too old") as caught:
        read_event("west", line("ERROR", status))

    assert caught.value.cluster == "west"


@pytest.mark.parametrize(
    "content",
    [
        b"<html>",
        b"{}",
        b'{"type":"ADDED","object":{}}',
        b'{"type":"INVENTED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":""}}}',
        b'{"type":"ERROR","object":5}',
        b'{"kind":"PodList","apiVersion":"v1","items":[]}',
    ],
)
def test_what_is_no_event_is_misbehaviour(content: bytes):
    with pytest.raises(ClusterMisbehaved):
        read_event("west", content)


def test_the_query_asks_for_bookmarks_and_says_from_where():
    plain = dict(WatchOptions(resource_version="5", label_selector="a=b").query())
    streamed = dict(WatchOptions(sends_initial_events=True).query())

    assert plain["allowWatchBookmarks"] == "true"
    assert (plain["resourceVersion"], plain["labelSelector"]) == ("5", "a=b")
    assert "sendInitialEvents" not in plain
    assert streamed["sendInitialEvents"] == "true"
    assert streamed["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in streamed
