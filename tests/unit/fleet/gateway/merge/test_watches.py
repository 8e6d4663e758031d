"""Many event streams to one: whoever goes on from any vector misses nothing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.gateway.merge.watch_model import (
    MAPS,
    FakeCluster,
    FakeStream,
    bookmark_object,
    line_of,
    naming_of,
)

from clusterspace.errors import ClusterMisbehaved, DeadlineExceeded, Expired, ServiceUnavailable
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.events import PlainStyle
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.testing.watch_histories import Event, Segment, problems_of

NAMES = ("east", "north", "west")
KEYS = ("shop/a", "shop/b", "shop/c", "shop/d", "shop/e")

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["left", "left", "right", "delete", "step", "step", "step", "bookmark", "own bookmark",
             "lose touch", "lose touch", "disconnect", "compact", "break", "start over", "join"]
        ),
        st.integers(0, 9),
        st.integers(0, 99),
    ),
    min_size=30,
    max_size=150,
)  # fmt: skip


def problems_in(segments: list[Segment], clusters: dict[str, FakeCluster]) -> list[str]:
    logs = {name: cluster.log for name, cluster in clusters.items()}
    return [each for segment in segments for each in problems_of(segment, logs)]


class Client:
    """A client that breaks off and goes on, and remembers every vector it was ever given."""

    def __init__(self, clusters: dict[str, FakeCluster], *, is_informer: bool) -> None:
        self.clusters = clusters
        self.joined = dict(list(clusters.items())[:2])
        self.is_informer = is_informer
        self.segments: list[Segment] = []
        self.issued: list[str] = []
        self.stream = self._open("")

    def _open(self, vector: str) -> FakeStream:
        starts = not vector
        return FakeStream(
            self.joined.values(),
            vector,
            wants_bookmarks=self.is_informer,
            wants_initial_end=self.is_informer and starts,
        )

    def break_off(self, choice: int) -> None:
        """Go on from any vector there was; from the start when that one is refused."""
        self.close()
        vector = self.issued[choice % len(self.issued)] if self.issued else ""
        try:
            self.stream = self._open(vector)
        except Expired:
            self.stream = self._open("")

    def start_over(self) -> None:
        self.close()
        self.stream = self._open("")

    def close(self, *, is_whole: bool = False) -> None:
        segment = self.stream.segment(is_whole=is_whole)
        self.segments.append(segment)
        self.issued += [event.vector for event in segment.events]

    def join(self) -> None:
        for name, cluster in self.clusters.items():
            if name not in self.joined:
                self.joined[name] = cluster
                self.stream.join(cluster)

    def do(self, operation: str, cluster: int, number: int) -> None:
        name = NAMES[cluster % len(NAMES)]
        if operation in ("left", "right", "delete"):
            side = None if operation == "delete" else operation
            self.clusters[name].touch(KEYS[number % len(KEYS)], side)
        elif operation == "compact":
            self.clusters[name].compact()
        elif operation == "lose touch":
            # What happens while a cluster cannot be heard is forgotten before it can.
            self.clusters[name].touch(KEYS[number % len(KEYS)], ("left", None)[number % 2])
            self.clusters[name].compact()
        elif operation == "join":
            self.join()
        elif operation == "break":
            self.break_off(number)
        elif operation == "start over":
            self.start_over()
        elif operation == "own bookmark":
            self.stream.write(name, self.stream.merger.bookmark())
        elif name in self.joined:
            steps = {
                "step": self.stream.step,
                "bookmark": self.stream.bookmark_from,
                "disconnect": self.stream.disconnect,
            }
            steps[operation](name)


@given(OPERATIONS, st.booleans())
def test_any_interleaving_can_be_gone_on_from_anywhere(
    operations: list[tuple[str, int, int]], is_informer: bool
) -> None:
    clusters = {name: FakeCluster(name) for name in NAMES}
    client = Client(clusters, is_informer=is_informer)

    for operation in operations:
        try:
            client.do(*operation)
        except Expired:
            client.start_over()
    try:
        client.stream.catch_up()
    except Expired:
        client.start_over()
        client.stream.catch_up()
    client.close(is_whole=True)

    # The last stream is whole, so an informer has been told the end of its initial events.
    assert problems_in(client.segments, clusters) == []


class StampThenSend(FakeStream):
    """The bug of a stream that stamps an event and lets each cluster send it on its own time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.unsent: dict[str, list[bytes]] = {}
        super().__init__(*arguments, **options)

    def write(self, name: str, lines: list[bytes]) -> None:
        self.unsent.setdefault(name, []).extend(lines)

    def send(self, name: str) -> None:
        self.lines += self.unsent.pop(name, [])


def test_a_stamp_that_is_overtaken_is_found() -> None:
    clusters = {name: FakeCluster(name) for name in NAMES[:2]}
    stream = StampThenSend(clusters.values())
    stream.catch_up()
    for name in clusters:
        clusters[name].touch("shop/a", "left")
        stream.step(name)

    stream.send("north")
    stream.send("east")

    problems = problems_in([stream.segment()], clusters)
    assert any("promises east up to 11, but not so" in each for each in problems)


def whole_stream(**options: Any) -> tuple[FakeStream, FakeCluster, FakeCluster]:
    east, west = FakeCluster("east"), FakeCluster("west")
    east.touch("shop/a", "left")
    east.touch("shop/b", "left")
    west.touch("shop/a", "left")
    stream = FakeStream((east, west), **options)
    stream.catch_up()
    return stream, east, west


def positions_in(event: Event) -> dict[str, str]:
    return versions.decode(event.vector, NAMES)


def test_the_initial_events_end_once_behind_every_cluster() -> None:
    stream, _, _ = whole_stream(wants_bookmarks=True, wants_initial_end=True)

    ends = [event for event in stream.events if event.ends_initial]

    assert [event.type for event in stream.events][-1] == "BOOKMARK"
    assert [positions_in(event) for event in ends] == [{"east": "12", "west": "11"}]
    bookmark = msgspec.json.decode(stream.lines[-1])["object"]
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("ConfigMap", "v1")


def test_a_client_that_asks_for_no_bookmarks_gets_none() -> None:
    stream, east, _ = whole_stream()

    stream.write("east", stream.merger.feed("east", east.bookmark()))
    stream.write("east", stream.merger.bookmark())

    assert "BOOKMARK" not in [event.type for event in stream.events]


def test_nobody_goes_on_from_the_middle_of_a_state() -> None:
    stream, east, west = whole_stream()
    first = stream.events[0]

    assert positions_in(first) == {"east": ""}
    with pytest.raises(Expired):
        FakeStream((east, west), first.vector)


def test_an_object_of_the_initial_state_can_be_written_with_the_version_it_came_with() -> None:
    stream, _, _ = whole_stream()

    owns = [versions.version_in(event.vector, event.cluster, NAMES) for event in stream.events]

    assert owns == ["11", "12", "11"]


def test_a_cluster_that_forgot_is_told_as_the_difference() -> None:
    stream, east, _ = whole_stream(wants_bookmarks=True)
    before = len(stream.lines)
    east.touch("shop/a", None)
    east.touch("shop/b", "left")
    east.touch("shop/c", "left")
    east.compact()
    stream.catch_up()

    event = [(each.type, each.key) for each in stream.events[before:]]

    assert event == [
        ("MODIFIED", "shop/b"),
        ("ADDED", "shop/c"),
        ("DELETED", "shop/a"),
        ("BOOKMARK", ""),
    ]
    deleted = msgspec.json.decode(stream.lines[before + 2])["object"]
    assert deleted["kind"] == "ConfigMap"
    assert deleted["metadata"]["name"] == "a.clusterspace.east"


def test_a_cluster_that_has_gone_back_is_told_anew() -> None:
    stream, _, _ = whole_stream(wants_bookmarks=True)
    before = len(stream.lines)
    position = stream.merger.position("east")

    with pytest.raises(DeadlineExceeded, match=f"{position}, current: 3$"):
        stream.merger.require_no_return("east", "3")
    stream.merger.expire("east", has_gone_back=True)
    stream.catch_up()

    # Their versions are those that were sent, and may stand for other content now.
    told = [(each.type, each.key) for each in stream.events[before:]]
    assert told == [("MODIFIED", "shop/a"), ("MODIFIED", "shop/b"), ("BOOKMARK", "")]


def test_a_lower_bookmark_leads_nobody_back() -> None:
    stream, _, _ = whole_stream(wants_bookmarks=True)
    position = stream.merger.position("east")

    with pytest.raises(DeadlineExceeded, match="Too large resource version"):
        stream.merger.feed("east", line_of("BOOKMARK", bookmark_object("3")))

    assert stream.merger.position("east") == position


def test_a_list_that_begins_anew_forgets_what_the_first_one_had() -> None:
    stream, east, _ = whole_stream()
    east.touch("shop/c", "left")
    east.compact()
    stream.step("east")
    stream.step("east")
    stream.disconnect("east")
    east.touch("shop/a", None)
    stream.catch_up()

    assert ("DELETED", "shop/a") in [(each.type, each.key) for each in stream.events]


def test_an_object_made_anew_behind_our_back_is_deleted_and_added() -> None:
    stream, east, _ = whole_stream()
    before = len(stream.lines)
    east.touch("shop/a", None)
    east.touch("shop/a", "left")
    east.compact()
    stream.catch_up()

    event = [(each.type, each.uid) for each in stream.events[before:]]

    assert event == [("DELETED", "east-1"), ("ADDED", "east-3")]


def test_a_stream_that_did_not_tell_a_state_does_not_guess_the_difference() -> None:
    first, east, west = whole_stream()
    stream = FakeStream((east, west), first.events[-1].vector)
    east.touch("shop/a", None)
    east.compact()

    with pytest.raises(Expired, match="cluster east has forgotten"):
        stream.step("east")


def test_a_cluster_that_joins_is_spliced_in() -> None:
    stream, _, _ = whole_stream()
    north = FakeCluster("north")
    north.touch("shop/z", "left")
    stream.join(north)
    stream.catch_up()

    assert (stream.events[-1].type, stream.events[-1].cluster) == ("ADDED", "north")
    assert positions_in(stream.events[-1]) == {"east": "12", "west": "11", "north": "11"}


def test_a_cluster_that_leaves_ends_the_stream() -> None:
    stream, _, _ = whole_stream()

    with pytest.raises(Expired, match="cluster west has left"):
        stream.merger.leave("west")


def test_a_cluster_that_leaves_untold_ends_nothing_and_is_waited_for_no_longer() -> None:
    east, west = FakeCluster("east"), FakeCluster("west")
    stream = FakeStream((east, west), wants_bookmarks=True, wants_initial_end=True)
    stream.step("east")

    stream.write("west", stream.merger.leave("west"))

    assert [event.ends_initial for event in stream.events] == [True]


def test_a_silent_cluster_changes_nothing() -> None:
    stream, east, west = whole_stream()
    stream.disconnect("west")
    east.touch("shop/a", "left")
    stream.step("east")

    assert positions_in(stream.events[-1]) == {"east": "13", "west": "11"}
    assert "DELETED" not in [event.type for event in stream.events]
    assert problems_in([stream.segment()], {"east": east, "west": west}) == []


def test_an_error_in_a_stream_is_raised_with_its_cluster() -> None:
    merger = WatchMerger(PlainStyle(MAPS))
    merger.follow(naming_of("east"), "5")
    status = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "not now"}

    with pytest.raises(ServiceUnavailable, match="not now") as raised:
        merger.feed("east", line_of("ERROR", status))
    assert raised.value.cluster == "east"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"type":"ADDED"}',
        b'{"type":"WHATEVER","object":{"metadata":{"resourceVersion":"1"}}}',
        b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"}}}',
        b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{}}}',
        b'{"type":"ADDED","object":{"kind":"Table","rows":[]}}',
        b'{"type":"ADDED","object":{"kind":"Table","rows":[{"cells":[]}]}}',
    ],
)
def test_what_is_no_event_is_the_clusters_fault(line: bytes) -> None:
    merger = WatchMerger(PlainStyle(MAPS))
    merger.follow(naming_of("east"), "5")

    with pytest.raises(ClusterMisbehaved, match="cluster east"):
        merger.feed("east", line)
    assert merger.position("east") == "5"


def test_the_validator_sees_a_gap_a_double_and_a_lie() -> None:
    east = FakeCluster("east")
    east.touch("shop/a", "left")
    east.touch("shop/a", "left")
    logs = {"east": east.log}
    vectors = {n: versions.encode({"east": str(n)}) for n in (10, 11, 12)}
    added = Event("ADDED", vectors[11], "east", "shop/a", "east-1")
    modified = Event("MODIFIED", vectors[12], "east", "shop/a", "east-1")

    assert problems_of(Segment([added, modified], vectors[10]), logs) == []
    assert problems_of(Segment([modified], vectors[10]), logs)
    assert problems_of(Segment([added, added], vectors[10]), logs)
    assert problems_of(Segment([modified, added], vectors[10]), logs)
    assert problems_of(Segment([Event("BOOKMARK", vectors[12])], vectors[10], True), logs)
    assert problems_of(Segment([Event("BOOKMARK", vectors[10])], vectors[10]), logs)
    assert problems_of(Segment([], wants_initial_end=True, is_whole=True), logs)
