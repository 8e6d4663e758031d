"""One watch: chunks to lines to events, until the server ends it."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from clusterspace.client.answers import api_error, unreadable
from clusterspace.client.connection import Connection
from clusterspace.client.raw_objects import RawObject, Version, read_raw_object
from clusterspace.client.requests import ApiRequest, Query, ResourcePath
from clusterspace.client.resources import raise_refusal
from clusterspace.errors import ClusterMisbehaved
from clusterspace.kube.json_errors import UNREADABLE

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

LONGEST_LINE: Final = 8 * 1024 * 1024
"""More than twice the largest object a Kubernetes API takes."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class EventType(Enum):
    """What happened to an object; BOOKMARK is only about the version reached."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One event; the object is not decoded yet."""

    type: EventType
    item: RawObject
    ends_initial_events: bool = False


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What to watch, from where on, and for how long at most."""

    resource_version: str = ""
    label_selector: str = ""
    field_selector: str = ""
    timeout_seconds: int = 300
    sends_initial_events: bool = False
    quiet_seconds: float | None = None

    def query(self) -> Query:
        """Return the query."""
        pairs = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "labelSelector": self.label_selector,
            "fieldSelector": self.field_selector,
            "timeoutSeconds": str(self.timeout_seconds),
        }
        if self.sends_initial_events:
            pairs |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return tuple((key, value) for key, value in pairs.items() if value)


class LineSplitter:
    """Cuts a stream of chunks into lines; what is behind the last newline waits for the next."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are whole now; a ValueError when one has no end."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        self._pieces.append(chunk[:end])
        lines = b"".join(self._pieces).split(b"\n")
        self._pieces, self._size = [], 0
        self._keep(chunk[end + 1 :])
        return [line for line in lines if line]

    @property
    def rest_bytes(self) -> int:
        """How much there is of a line that began and did not end."""
        return self._size

    def _keep(self, part: bytes) -> None:
        if part:
            self._pieces.append(part)
            self._size += len(part)
        if self._size > LONGEST_LINE:
            raise ValueError(f"an event of more than {LONGEST_LINE} bytes")


async def watch(
    connection: Connection, place: ResourcePath, options: WatchOptions
) -> AsyncGenerator[list[RawEvent]]:
    """Yield events as they come, those that came together in one list.

    Ends when the server ends it, which is normal. Raises what an ERROR event tells, above all
    Expired, and ClusterError when the stream breaks.
    """
    request = ApiRequest(
        "GET",
        place.path,
        options.query(),
        # Events are read as they come. Servers from 1.37 on compress a streamed list if they may.
        headers=(("Accept-Encoding", "identity"),),
        quiet_seconds=options.quiet_seconds,
    )
    splitter = LineSplitter()
    async with connection.stream(request) as stream:
        await raise_refusal(connection.cluster, stream)
        async for chunk in stream.chunks():
            try:
                lines = splitter.feed(chunk)
            except ValueError as error:
                raise ClusterMisbehaved(connection.cluster, f"sent {error}") from error
            if lines:
                yield [read_event(connection.cluster, line) for line in lines]
    if splitter.rest_bytes:
        raise unreadable(connection.cluster, "the watch ended in the middle of an event")


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct):
    resourceVersion: str  # noqa: N815 - the names of the wire
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMetadata


_frame_decoder: Final = msgspec.json.Decoder(_Frame)
_bookmark_decoder: Final = msgspec.json.Decoder(_Bookmark)


def read_event(cluster: str, line: bytes) -> RawEvent:
    """Read one line of a watch; raise what it tells when it is an ERROR event."""
    try:
        frame = _frame_decoder.decode(line)
        if frame.type != "ERROR":
            event_type, raw = EventType(frame.type), bytes(frame.object)
            if event_type is not EventType.BOOKMARK:
                return RawEvent(event_type, read_raw_object(raw))
            metadata = _bookmark_decoder.decode(raw).metadata
            if not metadata.resourceVersion:
                raise ValueError("a bookmark without a resourceVersion")
            item = RawObject("", Version("", metadata.resourceVersion), b"")
            is_end = metadata.annotations.get(INITIAL_EVENTS_END) == "true"
            return RawEvent(event_type, item, ends_initial_events=is_end)
        status: Any = msgspec.json.decode(frame.object)
    except (*UNREADABLE, ValueError) as error:
        raise unreadable(cluster, "the watch sent something that is no event", error) from error
    if not isinstance(status, dict):
        raise unreadable(cluster, "the watch sent an error that is no Status")
    raise api_error(cluster, cast("Object", status), 500)
