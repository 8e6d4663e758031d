"""One event of a watch: read as its cluster wrote it, written as the client wants it.

A client wants whole objects or their metadata, or rows of a Table.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol, cast

import msgspec

from clusterspace.errors import ClusterMisbehaved, MalformedObject
from clusterspace.fleet.gateway import renaming
from clusterspace.fleet.gateway.merge import lists
from clusterspace.fleet.gateway.merge.lists import VERSION, ClusterList, read_cluster_list
from clusterspace.fleet.gateway.renaming import Fields, renamer
from clusterspace.fleet.gateway.routes import Naming, Subject
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import META_VERSION

_PARTIAL_KIND: Final = "PartialObjectMetadata"


class Change(Enum):
    """The type of an event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Head(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The name, UID and version of an object: they identify its state within one cluster."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """What the object is called in its cluster, and no other one of its kind."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Item:
    """An object as its cluster wrote it: `listed` has this one item or row alone."""

    head: Head
    listed: ClusterList
    written: "list[_Written]" = field(default_factory=list["_Written"], compare=False, repr=False)
    """The events that were made of it: what many clients are told is written once."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one cluster."""

    change: Change | None
    """None for a bookmark: nothing happened up to the version its item has."""
    item: Item


@dataclass(frozen=True, slots=True)
class _Written:
    """An event as it goes out, but for the vector of the stream that it is written for."""

    form: tuple[Any, ...]
    """All that it depends on but the item."""
    pieces: tuple[bytes, ...]
    """The vector stands between each two of these."""


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Headed(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: Head = Head()


_frames: Final = msgspec.json.Decoder(_Frame)
_headed: Final = msgspec.json.Decoder(_Headed)
_heads: Final = msgspec.json.Decoder(Head)
_UNREADABLE: Final = (UnicodeDecodeError, RecursionError, MalformedObject, ValueError)
"""What reading raises; a DecodeError is a ValueError."""


def read_event(line: bytes, naming: Naming, columns: Sequence[Object] = ()) -> Event:
    """Read one line of the watch of `naming.cluster`; raise what it tells when it is an error.

    `columns` are those its Tables declared before: only the first one does.
    """
    try:
        frame = _frames.decode(line)
        if frame.type == "ERROR":
            status = msgspec.json.decode(frame.object, type=dict[str, Any])
            error = statuses.error_from(status, 500)
            error.cluster = naming.cluster
            raise error
        change = None if frame.type == "BOOKMARK" else Change(frame.type)
        headed = _headed.decode(frame.object)
        if change is not None and headed.kind == "Table":
            table = read_cluster_list(bytes(frame.object), naming)
            (item,) = _items_of(replace(table, columns=table.columns or tuple(columns)))
            return Event(change, item)
        _require_version(headed.metadata)
        items = () if change is None else (renaming.read_object(frame.object),)
        listed = ClusterList(naming, headed.kind, headed.api_version, items=items)
        return Event(change, Item(headed.metadata, listed))
    except _UNREADABLE as error:
        why = f"the watch sent something that is not an event: {error}"
        raise ClusterMisbehaved(naming.cluster, why, code=200) from error


def read_items(page: ClusterList) -> list[Item]:
    """Return the items of one page of a list, each in a list of its own."""
    try:
        return list(_items_of(page))
    except _UNREADABLE as error:
        why = f"its list has an item that cannot be read: {error}"
        raise ClusterMisbehaved(page.cluster, why, code=200) from error


def gone(head: Head, like: ClusterList) -> Item:
    """Return an item for an object that a list no longer has: its kind and metadata."""
    kind = _PARTIAL_KIND if like.is_table else like.kind.removesuffix("List")
    typed = {"kind": kind, "apiVersion": META_VERSION if like.is_table else like.api_version}
    metadata = {key: value for key, value in msgspec.to_builtins(head).items() if value}
    fields = {**typed, "metadata": msgspec.Raw(renaming.encode(metadata))}
    return Item(head, ClusterList(like.naming, kind, typed["apiVersion"], items=(fields,)))


def _items_of(page: ClusterList) -> Iterator[Item]:
    if page.is_table:
        for row in page.rows:
            head = Head() if row.beside is msgspec.UNSET else _headed.decode(row.beside).metadata
            _require_version(head)
            yield Item(head, replace(page, rows=(row,)))
        return
    # Items of a list leave out their kind; events never do.
    typed = {"kind": page.kind.removesuffix("List"), "apiVersion": page.api_version}
    for item in page.items:
        head = _heads.decode(item.get("metadata", b"{}"))
        _require_version(head)
        fields = {**typed, **item}
        yield Item(head, ClusterList(page.naming, typed["kind"], page.api_version, items=(fields,)))


def _require_version(head: Head) -> None:
    # It becomes a part of ours, on every event that follows: one without bounds would make all of
    # them too long for a URL.
    if not VERSION.fullmatch(head.resource_version):
        raise ValueError("an object whose resourceVersion is not valid")


INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind the events a watch begins with."""

_PARTIAL: Final = {"kind": "PartialObjectMetadata", "apiVersion": META_VERSION}


class Style(Protocol):
    """How a client wants its objects."""

    def learn(self, listed: ClusterList) -> None:
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

    def learn(self, listed: ClusterList) -> None:
        """Remember the kind: a bookmark must have it, and may be the first event."""
        if not self._kind and listed.kind:
            kind = listed.kind.removesuffix("List")
            self._kind = {"kind": kind, "apiVersion": listed.api_version}

    def write(self, change: Change, item: Item, vector: str) -> bytes:
        """Return the event, its object renamed and stamped."""

        def make() -> bytes:
            fields = renamer(item.listed.naming, self._subject)(item.listed.items[0])
            return _line(change.value, _stamped(fields, _VECTOR))

        return _written(item, (change, self._subject), make, vector)

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

    def learn(self, listed: ClusterList) -> None:
        """Let a cluster have its columns shown, until they are declared."""
        if not self._has_declared:
            self._agreed = lists.agreed_columns((listed,), self._subject, self._agreed)

    def write(self, change: Change, item: Item, vector: str) -> bytes:
        """Return the event: a Table of one row."""
        self.learn(item.listed)
        is_declared, self._has_declared = self._has_declared, True

        def make() -> bytes:
            (row,) = lists.merged_rows(item.listed, self._subject, self._agreed)
            return self._table(change.value, row, _VECTOR, is_declared=is_declared)

        form = (change, self._subject, is_declared, self._shows_objects, self._agreed)
        return _written(item, form, make, vector)

    def bookmark(self, vector: str, *, ends_initial: bool) -> bytes:
        """Return the row of an empty object, as a kube-apiserver does: the mark is in it."""
        if not self._agreed:
            return b""
        beside = _bookmark(_PARTIAL, vector, ends_initial=ends_initial)
        row = {"cells": lists.empty_cells(self._agreed), "object": beside}
        is_declared, self._has_declared = self._has_declared, True
        return self._table("BOOKMARK", row, vector, is_declared=is_declared)

    def _table(self, kind: str, row: Fields, vector: str, *, is_declared: bool) -> bytes:
        beside = _stamped(_taken_apart(row["object"]), vector) if self._shows_objects else None
        columns = None if is_declared else lists.with_cluster(self._agreed)
        table = {
            "kind": "Table",
            "apiVersion": META_VERSION,
            "metadata": {"resourceVersion": vector},
            "columnDefinitions": columns,
            "rows": [{**row, "object": beside}],
        }
        return _line(kind, table)


_VECTOR: Final = f"vector-{secrets.token_hex(16)}"
"""Stands for the vector in what is written once for many streams. Nobody else knows it, so that it
is in no object that somebody might have made up."""


def _written(item: Item, form: tuple[Any, ...], make: Callable[[], bytes], vector: str) -> bytes:
    """Return an event with its vector; all but that is made once for everybody who is told."""
    for each in item.written:
        if each.form == form:
            break
    else:
        each = _Written(form, tuple(make().split(_VECTOR.encode())))
        item.written.append(each)
    return vector.encode().join(each.pieces)


def _stamped(fields: Fields, vector: str) -> Fields:
    metadata = _taken_apart(fields.get("metadata", {}))
    return {**fields, "metadata": {**metadata, "resourceVersion": vector}}


def _taken_apart(value: Any) -> Fields:
    return renaming.read_object(value) if isinstance(value, msgspec.Raw) else cast("Fields", value)


def _bookmark(kind: Mapping[str, str], vector: str, *, ends_initial: bool) -> Fields:
    metadata: Object = {"resourceVersion": vector}
    if ends_initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return {**kind, "metadata": metadata}


def _line(kind: str, shown: Fields) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), renaming.encode(shown))
