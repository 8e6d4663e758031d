"""One object of a watch, as read from an event or a list of its cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import msgspec

from clusterspace.errors import ApiError, ClusterMisbehaved, MalformedObject
from clusterspace.fleet.gateway.flow import Naming
from clusterspace.fleet.gateway.merge.parts import VERSION, Part, Row, read_part
from clusterspace.fleet.gateway.renaming import edits
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import META_VERSION

_PARTIAL: Final = "PartialObjectMetadata"


class Change(Enum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Head(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What tells an object and its state from all others of its kind in its cluster."""

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
    """An object as its cluster wrote it: `part` has this one item or row alone."""

    head: Head
    part: Part


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one cluster."""

    change: Change | None
    """None for a bookmark: nothing happened up to the version its item has."""
    item: Item


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
            raise _told(frame.object, naming.cluster)
        if frame.type == "BOOKMARK":
            return Event(None, _read_bookmark(frame.object, naming))
        return Event(Change(frame.type), _read_item(frame.object, naming, columns))
    except _UNREADABLE as error:
        why = f"the watch sent something that is no event: {error}"
        raise ClusterMisbehaved(naming.cluster, why, code=200) from error


def read_items(page: Part) -> list[Item]:
    """Return the items of one page of a list, each in a part of its own."""
    try:
        return list(_items_of(page))
    except _UNREADABLE as error:
        why = f"its list has an item that cannot be read: {error}"
        raise ClusterMisbehaved(page.cluster, why, code=200) from error


def gone(head: Head, like: Part) -> Item:
    """Return what can be told of an object that a list no longer has, of the kind of that list."""
    kind = _PARTIAL if like.is_table else like.kind.removesuffix("List")
    typed = {"kind": kind, "apiVersion": META_VERSION if like.is_table else like.api_version}
    metadata = {key: value for key, value in msgspec.to_builtins(head).items() if value}
    fields = {**typed, "metadata": msgspec.Raw(edits.encode(metadata))}
    return Item(head, Part(like.naming, kind, typed["apiVersion"], items=(fields,)))


def _told(status: msgspec.Raw, cluster: str) -> ApiError:
    error = statuses.error_from(msgspec.json.decode(status, type=dict[str, Any]), 500)
    error.cluster = cluster
    return error


def _read_bookmark(body: msgspec.Raw, naming: Naming) -> Item:
    headed = _headed.decode(body)
    _require_version(headed.metadata)
    return Item(headed.metadata, Part(naming, headed.kind, headed.api_version))


def _read_item(body: msgspec.Raw, naming: Naming, columns: Sequence[Object]) -> Item:
    headed = _headed.decode(body)
    if headed.kind != "Table":
        _require_version(headed.metadata)
        part = Part(naming, headed.kind, headed.api_version, items=(edits.read_object(body),))
        return Item(headed.metadata, part)
    table = read_part(bytes(body), naming)
    (item,) = _items_of(replace(table, columns=table.columns or tuple(columns)))
    return item


def _items_of(page: Part) -> Iterator[Item]:
    if page.is_table:
        for row in page.rows:
            yield Item(_head_beside(row), replace(page, rows=(row,)))
        return
    # Items of a list leave out their kind; events never do.
    typed = {"kind": page.kind.removesuffix("List"), "apiVersion": page.api_version}
    for item in page.items:
        head = _heads.decode(item.get("metadata", b"{}"))
        _require_version(head)
        fields = {**typed, **item}
        yield Item(head, Part(page.naming, typed["kind"], page.api_version, items=(fields,)))


def _head_beside(row: Row) -> Head:
    head = Head() if row.beside is msgspec.UNSET else _headed.decode(row.beside).metadata
    _require_version(head)
    return head


def _require_version(head: Head) -> None:
    # It becomes a part of ours, on every event that follows: one without bounds would make all of
    # them too long for a URL.
    if not VERSION.fullmatch(head.resource_version):
        raise ValueError("an object whose resourceVersion is none")
