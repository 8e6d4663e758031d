"""Which states of which objects there are: a list of metadata, in JSON or in protobuf.

A kube-apiserver writes metadata of a thousand pods as protobuf in a quarter of the time that it
takes as JSON, and what is read here of an object is little more than how long it is. One that
stores JSON, as our own hub does, is quicker to write JSON.

The bytes of one form say nothing of the bytes of the other. So which state a metadata in protobuf
stands for is found out once, by what both say of it (`Marks`), and remembered by the digest of its
bytes from then on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from clusterspace.apiserver.http.responses import require_elements
from clusterspace.errors import ApiError, ClusterMisbehaved, MalformedObject
from clusterspace.fleet.gateway.merge.events import Head
from clusterspace.fleet.gateway.merge.lists import (
    ListMetadata,
    require_fit_metadata,
)
from clusterspace.kube import plain_text
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object
from clusterspace.kube.protobuf.bodies import decode_message
from clusterspace.kube.protobuf.wire import WireType, read_envelope, read_known, read_spans

METADATA_LIST: Final = "PartialObjectMetadataList"
_LONG_BYTES: Final = 4 * 1024 * 1024
_LEAST_BYTES: Final = 32
"""An object that has no more than a name and a version is larger."""
_TOO_MANY: Final = f"it has elements of less than {_LEAST_BYTES} bytes each"
_LIST_METADATA, _ITEMS, _METADATA = 1, 2, 1

_UID, _VERSION, _MANAGED_FIELDS, _MANAGER, _TIME, _SECONDS = 5, 6, 17, 1, 4, 1
_TIMESTAMP: Final = {_SECONDS: WireType.VARINT, 2: WireType.VARINT}


class Marks(NamedTuple):
    """What tells one state of an object from another: its UID and version, and who wrote it when.

    A cluster that was restored from a backup and counts again may give the same version twice. Two
    states that are alike in all of this were written by the same people in the same second.
    """

    uid: str
    version: str
    writers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NamedStates:
    """The metadata of each object of a list, as the cluster wrote it."""

    metadata: ListMetadata
    states: Sequence[memoryview | msgspec.Raw]
    is_protobuf: bool = False
    are_unchanged: bool = False
    """Whether they are what they were, byte for byte, and have not been taken apart."""

    def read(self, at: int) -> Object:
        """Return one of them as JSON has it; raise one of UNREADABLE."""
        state = self.states[at]
        if not self.is_protobuf:
            return _read_object(state)
        try:
            return decode_message("meta.ObjectMeta", bytes(state))
        except ApiError as error:
            # It says what we do not know, as a newer Kubernetes does: then it says nothing.
            raise msgspec.DecodeError(str(error)) from error

    def head(self, at: int) -> Head:
        """Return which object one of them is of; raise one of UNREADABLE."""
        return msgspec.convert(self.read(at), Head)

    def marks(self, at: int) -> Marks:
        """Return which state one of them is of; raise one of UNREADABLE."""
        if not self.is_protobuf:
            return marks_of(_read_marked(self.states[at]))
        uid = version = b""
        writers: list[tuple[str, int]] = []
        try:
            data = bytes(self.states[at])
            for number, start, end in read_spans(data, 0, len(data), "metadata"):
                if number == _UID:
                    uid = data[start:end]
                elif number == _VERSION:
                    version = data[start:end]
                elif number == _MANAGED_FIELDS:
                    manager = time = b""
                    for part, first, last in read_spans(data, start, end, "managedFields"):
                        if part == _MANAGER:
                            manager = data[first:last]
                        elif part == _TIME:
                            time = data[first:last]
                    seconds = read_known(time, _TIMESTAMP, "time").get(_SECONDS, 0)
                    writers.append((manager.decode(), int(seconds)))
        except ApiError as error:
            raise msgspec.DecodeError(str(error)) from error
        return _whole(Marks(uid.decode(), version.decode(), tuple(writers)))

    def is_of(self, at: int, metadata: msgspec.Raw) -> bool:
        """Whether the metadata of an object, as its cluster wrote it in JSON, is of that state."""
        if not self.is_protobuf and self.states[at] == metadata:
            return True
        try:
            return self.marks(at) == marks_of(_read_marked(metadata))
        except UNREADABLE:
            return False


class _Writer(msgspec.Struct, gc=False):
    manager: str = ""
    time: datetime | None = None


class Marked(msgspec.Struct, rename="camel", gc=False):
    """Metadata in JSON, as far as it tells states apart."""

    uid: str = ""
    resource_version: str = ""
    managed_fields: list[_Writer] | None = None


def marks_of(metadata: Marked) -> Marks:
    """Return which state a metadata in JSON is of; raise one of UNREADABLE if it does not say."""
    writers = tuple(
        (each.manager, 0 if each.time is None else int(each.time.timestamp()))
        for each in metadata.managed_fields or ()
    )
    return _whole(Marks(metadata.uid, metadata.resource_version, writers))


def _whole(marks: Marks) -> Marks:
    if not marks.uid or not marks.version:
        raise msgspec.DecodeError("an object without UID or version is like any other")
    return marks


_read_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_read_marked: Final = msgspec.json.Decoder(Marked).decode


class _MetadataItem(msgspec.Struct):
    metadata: msgspec.Raw


class _ListMetadata(msgspec.Struct, rename={"version": "resourceVersion", "token": "continue"}):
    version: str = ""
    token: str = ""
    remainingItemCount: int | None = None  # noqa: N815 - the field's own name


class _MetadataAnswer(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str = ""
    metadata: _ListMetadata | None = None
    items: list[_MetadataItem] | None = None


_decoder: Final = msgspec.json.Decoder(_MetadataAnswer)


def _never(_items: memoryview) -> bool:
    return False


def read_metadata_list(
    body: bytes,
    cluster: str,
    *,
    is_protobuf: bool,
    are_unchanged: Callable[[memoryview], bool] = _never,
) -> NamedStates | None:
    """Take a list of metadata apart; None when it is another list, as older servers answer.

    `are_unchanged` is shown all objects of a list in protobuf, in one piece: if it says so, they
    are not taken apart. Raises ClusterMisbehaved when it is no list at all.
    """
    try:
        found = _read_protobuf(body, are_unchanged) if is_protobuf else _read_json(body)
    except (ApiError, *UNREADABLE) as error:
        raise ClusterMisbehaved(cluster, f"its answer is not a list: {error}") from error
    if found is not None:
        has_items = bool(found.states) or found.are_unchanged
        require_fit_metadata(found.metadata, cluster, has_items=has_items)
    return found


def _read_json(body: bytes) -> NamedStates | None:
    if len(body) > _LONG_BYTES:
        require_elements(body, len(body) // _LEAST_BYTES, _TOO_MANY)
    answer = _decoder.decode(body)
    if answer.kind != METADATA_LIST:
        return None
    said = answer.metadata or _ListMetadata()
    metadata = ListMetadata(said.version, said.token, said.remainingItemCount)
    return NamedStates(metadata, [each.metadata for each in answer.items or ()])


def _read_protobuf(body: bytes, are_unchanged: Callable[[memoryview], bool]) -> NamedStates:
    envelope = read_envelope(body)
    if envelope.kind != METADATA_LIST:
        raise MalformedObject(f"it is a {plain_text.line(envelope.kind, 64)}", place="body")
    data = envelope.raw
    whole, spans = memoryview(data), read_spans(data, 0, len(data), METADATA_LIST)
    number, start, end = next(spans, (0, 0, 0))
    if number != _LIST_METADATA:
        raise MalformedObject("its own metadata does not come first", place="body")
    said = decode_message("meta.ListMeta", data[start:end])
    fields = msgspec.convert(said, _ListMetadata)
    metadata = ListMetadata(fields.version, fields.token, fields.remainingItemCount)
    if end < len(data) and are_unchanged(whole[end:]):
        return NamedStates(metadata, (), is_protobuf=True, are_unchanged=True)
    states: list[memoryview] = []
    most = max(64, len(data) // _LEAST_BYTES)
    for number, start, end in spans:
        at, first, last = next(read_spans(data, start, end, "items"), (0, 0, 0))
        if (number, at) != (_ITEMS, _METADATA):
            raise MalformedObject("items: one has no metadata", place="items")
        states.append(whole[first:last])
        if len(states) > most:
            raise msgspec.DecodeError(_TOO_MANY)
    return NamedStates(metadata, states, is_protobuf=True)
