"""One cluster's part of a merged answer: a list or a Table taken apart once, its items unread."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import msgspec

from clusterspace.errors import ClusterMisbehaved
from clusterspace.gateway.flow import Naming
from clusterspace.gateway.names import MARKER
from clusterspace.gateway.renaming.edits import Fields, encode
from clusterspace.kube.objects import Object

_PIECE_BYTES: Final = 512 * 1024
"""What is written in one go: about a millisecond of work, and little beside a long list."""

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


def read_part(body: bytes, naming: Naming) -> Part:
    """Take the answer of `naming.cluster` apart; raise ClusterMisbehaved when it is no list."""
    try:
        answer = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterMisbehaved(naming.cluster, f"its answer is not a list: {error}") from error
    if naming.qualifies_marked and _MARKER not in body:
        naming = replace(naming, qualifies_marked=False)  # nothing to rename, nothing to look into
    found = answer.rows if answer.kind == "Table" else answer.items
    if found is msgspec.UNSET:
        raise ClusterMisbehaved(naming.cluster, f"its answer is not a list but a {answer.kind}")
    return _part_of(answer, naming)


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
