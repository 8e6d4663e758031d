"""Events as clients want them: names of the fleet, one header, bookmarks of the right kind."""

from typing import Any

import msgspec

from clusterspace.fleet.gateway.merge.events import (
    Change,
    PlainStyle,
    TableStyle,
    read_event,
    read_items,
)
from clusterspace.fleet.gateway.merge.lists import read_cluster_list
from clusterspace.fleet.gateway.routes import Naming, Subject

PODS = Subject("", "v1", "pods")
THINGS = Subject("example.com", "v1", "things")
EAST = Naming("east", qualifies_names=True)
WEST = Naming("west", qualifies_names=True)


def table(columns: list[str] | None, *cells: Any, name: str = "a") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "7"}
    beside = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    shown = None
    if columns is not None:
        shown = [{"name": each, "type": "string"} for each in columns]
        shown[0]["format"] = "name"
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "columnDefinitions": shown,
        "rows": [{"cells": list(cells), "object": beside}],
    }


def line_of(shown: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": "ADDED", "object": shown})


def written(style: TableStyle, shown: dict[str, Any], naming: Naming, columns: Any = ()) -> Any:
    event = read_event(line_of(shown), naming, columns)
    return msgspec.json.decode(style.write(Change.ADDED, event.item, "V"))["object"]


def names_of(columns: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in columns]


def test_clusters_of_different_releases_share_one_header() -> None:
    style = TableStyle(THINGS)
    old = table(["Name", "Size"], "a", 1)
    new = table(["Name", "Size", "Colour"], "b", 2, "red", name="b")
    for shown, naming in ((old, EAST), (new, WEST)):
        style.learn(read_cluster_list(msgspec.json.encode(shown), naming))

    first = written(style, old, EAST)
    second = written(style, new, WEST)

    assert names_of(first["columnDefinitions"]) == ["Name", "Cluster", "Size", "Colour"]
    assert second["columnDefinitions"] is None
    assert first["rows"][0]["cells"] == ["a.clusterspace.east", "east", 1, "<none>"]
    assert second["rows"][0]["cells"] == ["b.clusterspace.west", "west", 2, "red"]
    assert first["metadata"]["resourceVersion"] == "V"
    assert first["rows"][0]["object"]["metadata"]["resourceVersion"] == "V"


def test_later_tables_of_a_cluster_are_read_by_the_columns_it_declared_first() -> None:
    style = TableStyle(THINGS)
    declared = read_event(line_of(table(["Name", "Size"], "a", 1)), EAST).item.listed.columns
    written(style, table(["Name", "Size"], "a", 1), EAST)

    shown = written(style, table(None, "c", 3, name="c"), EAST, declared)

    assert shown["rows"][0]["cells"] == ["c.clusterspace.east", "east", 3]


def test_a_table_nobody_has_declared_columns_for_has_no_bookmark_yet() -> None:
    style = TableStyle(THINGS)
    before = style.bookmark("V", ends_initial=True)
    style.learn(read_cluster_list(msgspec.json.encode(table(["Name", "Size"], "a", 1)), EAST))

    bookmark = msgspec.json.decode(style.bookmark("V", ends_initial=True))["object"]

    assert before == b""
    assert names_of(bookmark["columnDefinitions"]) == ["Name", "Cluster", "Size"]
    metadata = bookmark["rows"][0]["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_cluster_that_knows_no_tables_shows_its_names() -> None:
    style = TableStyle(PODS)
    metadata = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7"}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}

    shown = written(style, pod, EAST)

    assert shown["rows"][0]["cells"][:3] == ["a.clusterspace.east", "east", "<none>"]


def test_items_of_a_list_get_the_kind_that_events_have() -> None:
    style = PlainStyle(PODS)
    item = {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodeName": "n"},
    }
    page = read_cluster_list(
        msgspec.json.encode(
            {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [item]}
        ),
        EAST,
    )
    (read,) = read_items(page)

    shown = msgspec.json.decode(style.write(Change.ADDED, read, "V"))["object"]

    assert (shown["kind"], shown["apiVersion"]) == ("Pod", "v1")
    assert shown["metadata"]["name"] == "a.clusterspace.east"
    assert shown["spec"]["nodeName"] == "n.clusterspace.east"
