from collections.abc import KeysView

import msgspec

from clusterspace.client.changes import Change, changes_by_events, changes_by_items
from clusterspace.client.raw_objects import RawObject, Version, read_raw_object
from clusterspace.client.watch import EventType, RawEvent
from clusterspace.testing.builders import pod

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


def told(changes: tuple[Change, ...]) -> list[tuple[str, str, str]]:
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
