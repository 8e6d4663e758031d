"""Events as a client wants them: whole objects or metadata, or rows of a Table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from clusterspace.fleet.gateway.flow import Subject
from clusterspace.fleet.gateway.merge import tables
from clusterspace.fleet.gateway.merge.parts import Part
from clusterspace.fleet.gateway.merge.watch_items import Change, Item
from clusterspace.fleet.gateway.renaming import edits
from clusterspace.fleet.gateway.renaming.edits import Fields
from clusterspace.fleet.gateway.renaming.places import renamer
from clusterspace.kube.tables import META_VERSION

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind the events a watch begins with."""

_PARTIAL: Final = {"kind": "PartialObjectMetadata", "apiVersion": META_VERSION}


class Style(Protocol):
    """How a client wants its objects."""

    def learn(self, part: Part) -> None:
        """Take note of what a cluster says of the kind of its objects."""
        ...

    def write(self, change: Change, item: Item, vector: str) -> bytes:
        """Return the event that tells of a change."""
        ...

    def bookmark(self, vector: str, *, ends_initial: bool) -> bytes:
        """Return the event that tells how far the stream has come; empty while none can be made."""
        ...


class PlainStyle:
    """Objects as they are, or their metadata alone: whatever the clusters were asked for."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._kind: Mapping[str, str] = {}

    def learn(self, part: Part) -> None:
        """Remember the kind: a bookmark must have it, and may be the first event."""
        if not self._kind and part.kind:
            kind = part.kind.removesuffix("List")
            self._kind = {"kind": kind, "apiVersion": part.api_version}

    def write(self, change: Change, item: Item, vector: str) -> bytes:
        """Return the event, its object renamed and stamped."""
        fields = renamer(item.part.naming, self._subject)(item.part.items[0])
        return _line(change.value, _stamped(fields, vector))

    def bookmark(self, vector: str, *, ends_initial: bool) -> bytes:
        """Return an object of the right kind with nothing but its version."""
        if not self._kind:
            return b""
        return _line("BOOKMARK", _bookmark(self._kind, vector, ends_initial=ends_initial))


class TableStyle:
    """Objects as rows; the first event alone declares the columns."""

    def __init__(self, subject: Subject, *, shows_objects: bool = True) -> None:
        self._subject = subject
        self._shows_objects = shows_objects
        self._agreed: tuple[Object, ...] = ()
        self._has_declared = False

    def learn(self, part: Part) -> None:
        """Let a cluster have its columns shown, until they are declared."""
        if not self._has_declared:
            self._agreed = tables.agreed_columns((part,), self._subject, self._agreed)

    def write(self, change: Change, item: Item, vector: str) -> bytes:
        """Return the event: a Table of one row."""
        self.learn(item.part)
        (row,) = tables.merged_rows(item.part, self._subject, self._agreed)
        return self._table(change.value, row, vector)

    def bookmark(self, vector: str, *, ends_initial: bool) -> bytes:
        """Return the row of an empty object, as a kube-apiserver does: the mark is in it."""
        if not self._agreed:
            return b""
        beside = _bookmark(_PARTIAL, vector, ends_initial=ends_initial)
        row = {"cells": tables.empty_cells(self._agreed), "object": beside}
        return self._table("BOOKMARK", row, vector)

    def _table(self, kind: str, row: Fields, vector: str) -> bytes:
        beside = _stamped(_taken_apart(row["object"]), vector) if self._shows_objects else None
        columns = None if self._has_declared else tables.with_cluster(self._agreed)
        self._has_declared = True
        table = {
            "kind": "Table",
            "apiVersion": META_VERSION,
            "metadata": {"resourceVersion": vector},
            "columnDefinitions": columns,
            "rows": [{**row, "object": beside}],
        }
        return _line(kind, table)


def _stamped(fields: Fields, vector: str) -> Fields:
    metadata = _taken_apart(fields.get("metadata", {}))
    return {**fields, "metadata": {**metadata, "resourceVersion": vector}}


def _taken_apart(held: Any) -> Fields:
    return edits.read_object(held) if isinstance(held, msgspec.Raw) else cast("Fields", held)


def _bookmark(kind: Mapping[str, str], vector: str, *, ends_initial: bool) -> Fields:
    metadata: Object = {"resourceVersion": vector}
    if ends_initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return {**kind, "metadata": metadata}


def _line(kind: str, shown: Fields) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), edits.encode(shown))
