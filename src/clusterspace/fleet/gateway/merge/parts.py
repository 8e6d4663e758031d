"""One cluster's part of a merged answer: a list or a Table taken apart once, its items unread."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import msgspec

from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway.flow import Naming
from clusterspace.fleet.gateway.names import MARKER
from clusterspace.fleet.gateway.renaming.edits import Fields, encode
from clusterspace.kube import plain_text
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object

_PIECE_BYTES: Final = 512 * 1024
"""What is written in one go: about a millisecond of work, and little beside a long list."""

_LONG_BYTES: Final = 4 * 1024 * 1024
_LEAST_BYTES: Final = 32
"""An object that has no more than a name and a version is larger."""
VERSION: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LONGEST_TOKEN: Final = 4096
_MOST_COLUMNS: Final = 100

_FIRST_ELEMENTS: Final = 8
_MOST_ELEMENTS: Final = 128

_MARKER: Final = MARKER.encode()

_NO_TEXT: Final = msgspec.Raw(b"")
"""Before the elements of a list it makes the encoder write the comma that joins two batches."""


@dataclass(frozen=True, slots=True)
class ListMetadata:
    """What a list says of itself."""

    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None


class Row(msgspec.Struct, frozen=True, rename={"beside": "object"}):
    """One row of a Table: its cells, what is said of it as a whole, and the object itself."""

    cells: list[Any]
    conditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    beside: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Part:
    """What one cluster gave: items of a list, or columns and rows of a Table."""

    naming: Naming
    kind: str
    api_version: str
    metadata: ListMetadata = ListMetadata()
    items: Sequence[Fields] = field(default=(), repr=False)
    columns: tuple[Object, ...] = ()
    rows: Sequence[Row] = field(default=(), repr=False)

    @property
    def cluster(self) -> str:
        """Whose part it is."""
        return self.naming.cluster

    @property
    def is_table(self) -> bool:
        """Whether it has rows and columns."""
        return self.kind == "Table"

    @property
    def count(self) -> int:
        """How many objects it brings."""
        return len(self.rows) if self.is_table else len(self.items)

    def pieces(self, most: int) -> "Iterator[Part]":
        """Yield the part in pieces of so many objects; all but the last say that it goes on."""
        if self.count <= most:
            yield self
            return
        going_on = replace(self.metadata, continue_token="more")  # noqa: S106 - any text will do
        for start in range(0, self.count, most):
            end = start + most
            yield replace(
                self,
                metadata=going_on if end < self.count else self.metadata,
                items=self.items[start:end],
                rows=self.rows[start:end],
            )


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion", "token": "continue"}):
    version: str = ""
    token: str = ""
    remainingItemCount: int | None = None  # noqa: N815 - the field's own name


class _Answer(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str = ""
    metadata: _Metadata | None = None
    items: list[dict[str, msgspec.Raw]] | msgspec.UnsetType | None = msgspec.UNSET
    column_definitions: list[dict[str, Any]] | None = None
    rows: list[Row] | msgspec.UnsetType | None = msgspec.UNSET


_decoder: Final = msgspec.json.Decoder(_Answer)


def read_part(body: bytes, naming: Naming, api_version: str = "") -> Part:
    """Take the answer of `naming.cluster` apart; raise ClusterMisbehaved when it is no list.

    `api_version` is that of what was asked for, where it is known.
    """
    try:
        if len(body) > _LONG_BYTES:
            _count(body)
        answer = _decoder.decode(body)
    except UNREADABLE as error:
        raise ClusterMisbehaved(naming.cluster, f"its answer is not a list: {error}") from error
    if nonsense := _nonsense_in(answer, api_version):
        raise ClusterMisbehaved(naming.cluster, f"its answer is not a list: {nonsense}")
    if naming.qualifies_marked and _MARKER not in body:
        naming = replace(naming, qualifies_marked=False)  # nothing to rename, nothing to look into
    found = answer.rows if answer.kind == "Table" else answer.items
    if found is msgspec.UNSET:
        raise ClusterMisbehaved(naming.cluster, "its answer is not a list: it has no items")
    return _part_of(answer, naming)


class _Counter:
    """Counts what is decoded, and stops it in time."""

    left: int = 0


class _Counted(msgspec.Struct, gc=False):
    def __post_init__(self) -> None:
        _Counter.left -= 1
        if _Counter.left < 0:
            raise ValueError(f"it has elements of less than {_LEAST_BYTES} bytes each")


class _CountedAnswer(msgspec.Struct):
    items: list[_Counted] | None = None
    rows: list[_Counted] | None = None


_counting: Final = msgspec.json.Decoder(_CountedAnswer)


def _count(body: bytes) -> None:
    """Raise unless the elements of a long answer have the size that objects have.

    A dictionary takes hundreds of bytes whatever it was made from, so of a hundred megabytes of
    `{},` there would be gigabytes. Counting skips what it counts and keeps next to nothing.
    """
    _Counter.left = len(body) // _LEAST_BYTES
    _counting.decode(body)


def _nonsense_in(answer: _Answer, api_version: str) -> str:
    """Return what no list of a Kubernetes API has, if there is something of the kind.

    Versions and tokens become part of ours, which must fit a URL: a cluster that writes long ones
    would make them useless for all.
    """
    metadata = answer.metadata or _Metadata()
    if metadata.version and not VERSION.fullmatch(metadata.version):
        return "its resourceVersion is none"
    if len(metadata.token) > _LONGEST_TOKEN or not _is_plain(metadata.token):
        return "its continue token is none"
    if metadata.token and not (answer.rows or answer.items):
        return "it has nothing and says that it goes on"
    if len(answer.column_definitions or ()) > _MOST_COLUMNS:
        return f"it has more than {_MOST_COLUMNS} columns"
    is_meta = answer.api_version.startswith("meta.k8s.io/")
    if answer.kind != "Table" and not answer.kind.endswith("List"):
        return f"it is a {plain_text.line(answer.kind, 64)}"
    if api_version and not is_meta and answer.api_version != api_version:
        return f"it is of {plain_text.line(answer.api_version, 64)}, not of {api_version}"
    return ""


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _part_of(answer: _Answer, naming: Naming) -> Part:
    metadata = answer.metadata or _Metadata()
    return Part(
        naming=naming,
        kind=answer.kind,
        api_version=answer.api_version,
        metadata=ListMetadata(metadata.version, metadata.token, metadata.remainingItemCount),
        items=answer.items or (),
        columns=tuple(answer.column_definitions or ()),
        rows=answer.rows or (),
    )


def write_list(opening: Object, listed: str, elements: Iterable[Fields]) -> Iterator[bytes]:
    """Yield the text of an object whose last field is a long list, some elements at a time."""
    yield encode({**opening, listed: []})[:-2]
    rest = iter(elements)
    before: tuple[Any, ...] = ()
    count = _FIRST_ELEMENTS
    while batch := list(islice(rest, count)):
        piece = encode([*before, *batch])
        yield piece[1:-1]
        before = (_NO_TEXT,)
        # Elements of one list are much alike: the next piece will be about as large as wanted.
        count = max(1, min(_MOST_ELEMENTS, count * _PIECE_BYTES // len(piece)))
    yield b"]}\n"


def written_metadata(metadata: ListMetadata) -> Object:
    """Return the metadata of a list as clients read it; what is not said is left out."""
    written: Object = {"resourceVersion": metadata.resource_version}
    if metadata.continue_token:
        written["continue"] = metadata.continue_token
    if metadata.remaining is not None:
        written["remainingItemCount"] = metadata.remaining
    return written
