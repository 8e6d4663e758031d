import asyncio
from collections.abc import KeysView
from random import Random

import msgspec
import pytest

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    EVERYTHING,
    ListOptions,
    RawObject,
    Version,
    read_raw_object,
)
from clusterspace.client.watch import (
    MOST_QUESTIONS,
    EventType,
    ListedView,
    Missing,
    ObjectChange,
    RawEvent,
    changes_by_events,
    changes_by_items,
    confirm_gone,
)
from clusterspace.errors import ClusterMisbehaved, Forbidden
from clusterspace.kube.objects import Object
from clusterspace.kube.selectors import parse_label_selector
from clusterspace.testing.builders import PODS, pod

BOOKMARK = RawEvent(EventType.BOOKMARK, RawObject("", Version("", "9"), b""))


class Known:
    def __init__(self, **versions: str) -> None:
        self._held = {
            f"default/{name}": Version(f"uid of {name}", version)
            for name, version in versions.items()
        }

    def keys(self) -> KeysView[str]:
        return self._held.keys()

    def find_version(self, key: str) -> Version | None:
        return self._held.get(key)


def raw(name: str, version: str, uid: str = "") -> RawObject:
    made = pod(name, uid=uid or f"uid of {name}", resourceVersion=version)
    return read_raw_object(msgspec.json.encode(made))


def event(event_type: EventType, name: str, version: str) -> RawEvent:
    return RawEvent(event_type, raw(name, version))


def told(changes: tuple[ObjectChange, ...]) -> list[tuple[str, str, str]]:
    return [
        (change.type.value, change.item.key, change.item.version.resource_version)
        for change in changes
    ]


def test_a_list_tells_only_what_is_new():
    items = [raw("same", "1"), raw("changed", "2"), raw("new", "3")]

    changes = changes_by_items(Known(same="1", changed="1", missing="1"), items)

    assert told(changes) == [("MODIFIED", "default/changed", "2"), ("ADDED", "default/new", "3")]


def test_an_object_made_anew_is_told_as_deleted_and_added():
    changes = changes_by_items(Known(a="1"), [raw("a", "5", uid="another")])

    assert told(changes) == [("DELETED", "default/a", "1"), ("ADDED", "default/a", "5")]
    assert changes[0].item.raw == b""


def test_events_are_told_by_what_is_known_and_not_by_what_they_say():
    events = [
        event(EventType.ADDED, "known", "2"),
        event(EventType.MODIFIED, "unknown", "3"),
        event(EventType.ADDED, "same", "1"),
        event(EventType.DELETED, "never-heard-of", "4"),
        BOOKMARK,
    ]

    changes = changes_by_events(Known(known="1", same="1"), events)

    assert told(changes) == [("MODIFIED", "default/known", "2"), ("ADDED", "default/unknown", "3")]


def test_events_of_one_batch_build_on_each_other():
    events = [
        event(EventType.ADDED, "a", "1"),
        event(EventType.MODIFIED, "a", "2"),
        event(EventType.DELETED, "a", "3"),
        event(EventType.DELETED, "a", "3"),
        event(EventType.ADDED, "a", "4"),
    ]

    assert [kind for kind, _, _ in told(changes_by_events(Known(), events))] == [
        "ADDED",
        "MODIFIED",
        "DELETED",
        "ADDED",
    ]


OURS = Missing("default/web", Version("u", "5"))


def view(labels: str = "", *, has_field_selector: bool = False) -> ListedView:
    return ListedView(ResourcePath(PODS), parse_label_selector(labels), has_field_selector)


class Live:
    """What asking by name finds."""

    def __init__(self, held: Object | Exception | None) -> None:
        self._held = held
        self.asked: list[str] = []

    async def find(self, place: ResourcePath) -> Object | None:
        self.asked.append(place.key)
        await asyncio.sleep(0)
        if isinstance(self._held, Exception):
            raise self._held
        return self._held

    async def get(self, place: ResourcePath) -> Object:
        raise NotImplementedError

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        raise NotImplementedError


def live_pod(uid: str = "u", version: str = "5", **labels: str) -> Object:
    return pod("web", uid=uid, resourceVersion=version, labels=labels)


@pytest.mark.parametrize(
    ("seen_by", "live", "must_show"),
    [
        (view(), live_pod(), True),
        (view(), live_pod(version="6"), True),
        (view(), live_pod(uid="another"), False),
        (view("app=web"), live_pod(version="6", app="web"), True),
        (view("app=web"), live_pod(version="6", app="other"), False),
        (view(has_field_selector=True), live_pod(), True),
        (view(has_field_selector=True), live_pod(version="6"), False),
    ],
)
def test_what_a_right_list_must_show(seen_by: ListedView, live: Object, must_show: bool):
    assert seen_by.must_show(live, OURS) is must_show


async def test_what_is_gone_by_name_is_gone():
    live = Live(None)

    await confirm_gone(live, "west", view(), [OURS], Random(1))

    assert live.asked == ["default/web"]


async def test_one_that_lives_convicts_the_list():
    with pytest.raises(ClusterMisbehaved, match="without default/web, which is there"):
        await confirm_gone(Live(live_pod()), "west", view(), [OURS], Random(1))


async def test_what_cannot_be_asked_for_is_not_gone():
    with pytest.raises(Forbidden):
        await confirm_gone(Live(Forbidden("no")), "west", view(), [OURS], Random(1))


async def test_of_many_a_sample_is_asked_for():
    many = [Missing(f"default/p{number}", Version("u", "5")) for number in range(500)]
    live = Live(None)

    await confirm_gone(live, "west", view(), many, Random(1))

    assert len(set(live.asked)) == MOST_QUESTIONS


class Slow(Live):
    """Finds one object at once; asked for another, it takes its time even to stop."""

    def __init__(self) -> None:
        super().__init__(live_pod())
        self.stopping = asyncio.Event()

    async def find(self, place: ResourcePath) -> Object | None:
        if place.key == OURS.key:
            return await super().find(place)
        try:
            await asyncio.Event().wait()
        finally:
            self.stopping.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return None


async def test_whoever_is_told_to_stop_stops_although_the_cluster_lied():
    live, other = Slow(), Missing("default/other", Version("v", "5"))
    confirming = asyncio.create_task(confirm_gone(live, "west", view(), [OURS, other], Random(1)))
    for _ in range(5):
        await asyncio.sleep(0)

    confirming.cancel()

    with pytest.raises(asyncio.CancelledError):
        await confirming
