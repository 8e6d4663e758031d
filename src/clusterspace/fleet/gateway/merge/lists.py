"""Many lists to one: each taken apart once, its items unread; only what holds a name is changed.

Of many Tables becomes one: one set of columns, cells matched by column, and a column for the
cluster. kubectl prints the header again whenever the columns differ from the last ones, be it by a
word in a description. So the columns of a built-in kind are always our own, whatever clusters
answer; those that only some clusters know come behind them. For other kinds the widest Table leads.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import msgspec

from clusterspace.apis.stamps import MANAGED
from clusterspace.apiserver.http.responses import require_elements
from clusterspace.errors import AnswerOverrun, ClusterMisbehaved, MalformedObject
from clusterspace.fleet.gateway import renaming
from clusterspace.fleet.gateway.renaming import Fields, encode, qualifier, renamer
from clusterspace.fleet.gateway.routes import MARKER, Naming, Subject
from clusterspace.fleet.gateway.virtual_labels import with_row_labels
from clusterspace.kube import plain_text
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import META_VERSION, Column

_PIECE_BYTES: Final = 512 * 1024
"""What is written in one go: about a millisecond of work, and little beside a long list."""

_LONG_BYTES: Final = 4 * 1024 * 1024
_LEAST_BYTES: Final = 32
"""An object that has no more than a name and a version is larger."""
VERSION: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LONGEST_TOKEN: Final = 4096
_MOST_COLUMNS: Final = 100
_LEAST_FIELD_BYTES: Final = 16
_FREE_FIELDS: Final = 64
"""A field at the top of an object takes two hundred bytes here, whatever it was made from. Among
those of a list is always `metadata`, which makes up for many that are short."""
_SHORT_FIELDS: Final = f"it has fields of less than {_LEAST_FIELD_BYTES} bytes each"
_MOST_OBJECT_BYTES: Final = 4 * 1024 * 1024
_MOST_CELLS_BYTES: Final = 64 * 1024

_FIRST_ELEMENTS: Final = 8
_MOST_ELEMENTS: Final = 128

_MARKER: Final = MARKER.encode()

_NULL: Final = msgspec.Raw(b"null")
_NO_TEXT: Final = msgspec.Raw(b"")
"""Before the elements of a list it makes the encoder write the comma that joins two batches."""


@dataclass(frozen=True, slots=True)
class ListMetadata:
    """The metadata of a list."""

    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None


class Row(msgspec.Struct, frozen=True, rename={"beside": "object"}):
    """One row of a Table: its cells, what is said of it as a whole, and the object itself."""

    cells: list[Any]
    conditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    beside: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class KnownRow(Row, frozen=True):
    """A row beside which stands what clients are to see: its names are changed."""


@dataclass(frozen=True, slots=True)
class ClusterList:
    """What one cluster gave: items of a list, or columns and rows of a Table."""

    naming: Naming
    kind: str
    api_version: str
    metadata: ListMetadata = ListMetadata()
    items: Sequence[Fields] = field(default=(), repr=False)
    columns: tuple[Object, ...] = ()
    rows: Sequence[Row] = field(default=(), repr=False)
    sort_keys: Sequence[tuple[int, Any]] = field(default=(), repr=False)
    """What each object is sorted by, where a list is to be in order."""
    is_sorted: bool = False
    """Whether it is in that order already."""
    texts: Sequence[msgspec.Raw] = field(default=(), repr=False)
    """The items as they are written to clients, in place of `items`: their names are changed."""
    age: str = ""
    """How old it is, where the cluster is away and this is what it said last."""
    is_table: bool = field(init=False)
    """Whether it has rows and columns."""
    count: int = field(init=False)
    """How many objects it brings."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_table", self.kind == "Table")
        found = self.rows if self.is_table else self.items or self.texts
        object.__setattr__(self, "count", len(found))

    @property
    def cluster(self) -> str:
        """Whose part it is."""
        return self.naming.cluster

    def pieces(self, most: int) -> "Iterator[ClusterList]":
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
                texts=self.texts[start:end],
            )


def joined(pages: Sequence[ClusterList], subject: Subject, *, age: str) -> ClusterList:
    """Return the pages of one cluster's list as one list of so long ago, which does not go on."""
    first = pages[0]
    metadata = ListMetadata(first.metadata.resource_version)
    if any(page.texts for page in pages):
        texts = [
            text if isinstance(text, msgspec.Raw) else msgspec.Raw(encode(text))
            for page in pages
            for text in renamed_items(page, subject)
        ]
        return replace(first, metadata=metadata, items=(), texts=texts, age=age)
    return replace(
        first,
        metadata=metadata,
        items=[item for page in pages for item in page.items],
        rows=[row for page in pages for row in page.rows],
        sort_keys=[key for page in pages for key in page.sort_keys],
        age=age,
    )


class _Place(msgspec.Struct, frozen=True):
    namespace: str = ""


class _Placed(msgspec.Struct):
    metadata: _Place = _Place()


_read_place: Final = msgspec.json.Decoder(_Place).decode
_read_placed: Final = msgspec.json.Decoder(_Placed).decode


def in_namespace(listed: ClusterList, namespace: str) -> ClusterList | None:
    """Return what a list has of one namespace; None where that cannot be told."""

    def is_there(text: msgspec.Raw | msgspec.UnsetType) -> bool:
        return text is not msgspec.UNSET and _read_placed(text).metadata.namespace == namespace

    try:
        if any(row.beside in (msgspec.UNSET, _NULL) for row in listed.rows):
            return None
        rows = [row for row in listed.rows if is_there(row.beside)]
        items = [
            item for item in listed.items if _read_place(item["metadata"]).namespace == namespace
        ]
        texts = [text for text in listed.texts if is_there(text)]
    except (KeyError, *UNREADABLE):
        return None
    keys = listed.sort_keys
    if keys and len(rows) + len(items) + len(texts) < len(keys):
        return None  # it would have to be sorted anew
    return replace(listed, rows=rows, items=items, texts=texts)


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


def read_cluster_list(body: bytes, naming: Naming, api_version: str = "") -> ClusterList:
    """Take the answer of `naming.cluster` apart; raise ClusterMisbehaved when it is no list.

    `api_version` is that of what was asked for, where it is known. A long answer that is no list is
    an AnswerOverrun: to ask again costs as much.
    """
    is_long = len(body) > _LONG_BYTES
    misbehaved = AnswerOverrun if is_long else ClusterMisbehaved
    try:
        answer = _decode_long(body) if is_long else _decoder.decode(body)
    except UNREADABLE as error:
        raise misbehaved(naming.cluster, f"its answer is not a list: {error}") from error
    if nonsense := _nonsense_in(answer, api_version, len(body)):
        raise misbehaved(naming.cluster, f"its answer is not a list: {nonsense}")
    if naming.qualifies_marked and _MARKER not in body:
        naming = replace(naming, qualifies_marked=False)  # nothing to rename, nothing to look into
    found = answer.rows if answer.kind == "Table" else answer.items
    if found is msgspec.UNSET:
        raise ClusterMisbehaved(naming.cluster, "its answer is not a list: it has no items")
    metadata = answer.metadata or _Metadata()
    return ClusterList(
        naming=naming,
        kind=answer.kind,
        api_version=answer.api_version,
        metadata=ListMetadata(metadata.version, metadata.token, metadata.remainingItemCount),
        items=answer.items or (),
        columns=tuple(answer.column_definitions or ()),
        rows=answer.rows or (),
    )


class _LongAnswer(msgspec.Struct, rename="camel"):
    """An answer whose elements are text still."""

    kind: str
    api_version: str = ""
    metadata: _Metadata | None = None
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    column_definitions: msgspec.Raw = msgspec.Raw(b"null")
    rows: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


class _RowText(msgspec.Struct, rename={"beside": "object"}):
    cells: msgspec.Raw
    conditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    beside: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_long_decoder: Final = msgspec.json.Decoder(_LongAnswer)
_item_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_row_decoder: Final = msgspec.json.Decoder(_RowText)
_cells_decoder: Final = msgspec.json.Decoder(list[Any])
_columns_decoder: Final = msgspec.json.Decoder(list[dict[str, Any]] | None)


def _decode_long(body: bytes) -> _Answer:
    """Take a long answer apart element by element, and stop at one that is none.

    What is made of a hundred megabytes must not be gigabytes: neither by elements of two bytes, nor
    by one element with a million fields or cells. Raises one of UNREADABLE.
    """
    too_many = f"it has elements of less than {_LEAST_BYTES} bytes each"
    require_elements(body, len(body) // _LEAST_BYTES, too_many)
    answer = _long_decoder.decode(body)
    if len(answer.column_definitions) > _MOST_CELLS_BYTES:
        raise msgspec.DecodeError("its columns are too long")
    items: list[dict[str, msgspec.Raw]] = []
    left = _most_fields(len(body))
    for text in answer.items or ():
        if len(text) > _MOST_OBJECT_BYTES:
            raise msgspec.DecodeError("it has an element that is too long")
        item = _item_decoder.decode(text)
        left -= len(item)
        if left < 0:
            raise msgspec.DecodeError(_SHORT_FIELDS)
        items.append(item)
    rows: list[Row] = []
    for text in answer.rows or ():
        row = _row_decoder.decode(text)
        if len(row.cells) > _MOST_CELLS_BYTES:
            raise msgspec.DecodeError("it has a row that is too long")
        rows.append(Row(_cells_decoder.decode(row.cells), row.conditions, row.beside))
    return _Answer(
        answer.kind,
        answer.api_version,
        answer.metadata,
        msgspec.UNSET if answer.items is msgspec.UNSET else items,
        _columns_decoder.decode(answer.column_definitions),
        msgspec.UNSET if answer.rows is msgspec.UNSET else rows,
    )


def _nonsense_in(answer: _Answer, api_version: str, size: int) -> str:
    """Return why this is no list of a Kubernetes API; empty if it is one.

    Versions and tokens become part of ours, which must fit a URL: a cluster that writes long ones
    would make them useless for all.
    """
    metadata = answer.metadata or _Metadata()
    if metadata.version and not VERSION.fullmatch(metadata.version):
        return "its resourceVersion is not valid"
    token = metadata.token
    is_plain = token.isascii() and token.isprintable() and " " not in token
    if len(token) > _LONGEST_TOKEN or not is_plain:
        return "its continue token is not valid"
    if token and not (answer.rows or answer.items):
        return "it has nothing and says that it goes on"
    if len(answer.column_definitions or ()) > _MOST_COLUMNS:
        return f"it has more than {_MOST_COLUMNS} columns"
    if any(len(row.cells) > _MOST_COLUMNS for row in answer.rows or ()):
        return f"it has a row of more than {_MOST_COLUMNS} cells"
    if sum(map(len, answer.items or ())) > _most_fields(size):
        return _SHORT_FIELDS
    is_meta = answer.api_version.startswith("meta.k8s.io/")
    if answer.kind != "Table" and not answer.kind.endswith("List"):
        return f"it is a {plain_text.line(answer.kind, 64)}"
    if api_version and not is_meta and answer.api_version != api_version:
        return f"it is of {plain_text.line(answer.api_version, 64)}, not of {api_version}"
    return ""


def _most_fields(size: int) -> int:
    """Return how many fields all elements of an answer of so many bytes may have, at their top."""
    return _FREE_FIELDS + size // _LEAST_FIELD_BYTES


def require_fit_metadata(metadata: ListMetadata, cluster: str, *, has_items: bool) -> None:
    """Raise ClusterMisbehaved for metadata that no list of a Kubernetes API has."""
    said = _Metadata(metadata.resource_version, metadata.continue_token)
    shape = _Answer("List", metadata=said, items=[{}] if has_items else [])
    if nonsense := _nonsense_in(shape, "", 0):
        raise ClusterMisbehaved(cluster, f"its answer is not a list: {nonsense}")


def write_list(
    opening: Object, listed: str, elements: Iterable[Fields | msgspec.Raw]
) -> Iterator[bytes]:
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


def merge_lists(
    lists: Sequence[ClusterList], *, subject: Subject, metadata: ListMetadata
) -> Iterable[bytes]:
    """Yield the text of one list, of the kind most lists have; they stay in the order given.

    There must be one: a list of nothing has a kind, too, and only a cluster knows it.
    """
    kinds = Counter((each.kind, each.api_version) for each in lists)
    (kind, api_version), _ = kinds.most_common(1)[0]
    opening = {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": written_metadata(metadata),
    }
    items = (item for each in lists for item in renamed_items(each, subject))
    return write_list(opening, "items", items)


def renamed_items(listed: ClusterList, subject: Subject) -> Iterator[Fields | msgspec.Raw]:
    """Yield the items of one cluster with the names they have in the fleet."""
    if listed.texts:
        return iter(listed.texts)
    if listed.naming.is_plain:
        return iter(listed.items)
    return map(renamer(listed.naming, subject), listed.items)


class _Labelled(msgspec.Struct):
    labels: dict[str, str] | None = None


_read_labelled: Final = msgspec.json.Decoder(_Labelled).decode


def count_copies(listed: ClusterList) -> int:
    """Return how many items are copies that a template of the hub keeps there.

    Rows of a Table count as none: what is in them is not read.
    """

    def is_copy(item: Fields) -> bool:
        try:
            labels = _read_labelled(item["metadata"]).labels or {}
        except (KeyError, *UNREADABLE):
            return False  # nobody knows whose it is: it is not ours to call one of ours
        return labels.get(MANAGED) == "true"

    return sum(map(is_copy, listed.items))


# -- Tables ----------------------------------------------------------------------------------------

CLUSTER: Final[Object] = Column("Cluster", description="The cluster the object is in.").definition
"""Our own column. It stands second: kubectl writes the kind in front of the first cell."""

_CLUSTER_AT: Final = 1
_PARTIAL: Final = msgspec.Raw(b'"PartialObjectMetadata"')
_NUMBERS: Final = (int, float, type(None))
_NOTHING: Final = "<none>"
"""In a column its cluster does not have, as Kubernetes shows what is not there."""


def merge_tables(
    lists: Sequence[ClusterList],
    *,
    subject: Subject,
    metadata: ListMetadata,
    columns: Sequence[Object] = (),
) -> Iterable[bytes]:
    """Yield the text of one Table; lists stay in the order given.

    A plain list, from a server that knows no Tables, shows its names. `columns`
    are those of an earlier page or event, without the cluster's: they are kept, and kept first.
    """
    shown = agreed_columns(lists, subject, columns)
    opening = {
        "kind": "Table",
        "apiVersion": next((each.api_version for each in lists if each.is_table), META_VERSION),
        "metadata": written_metadata(metadata),
        "columnDefinitions": with_cluster(shown),
    }
    rows = (row for each in lists for row in merged_rows(each, subject, shown))
    return write_list(opening, "rows", rows)


def agreed_columns(
    lists: Iterable[ClusterList], subject: Subject, columns: Sequence[Object] = ()
) -> tuple[Object, ...]:
    """Return the columns that all lists are shown in, without the one for the cluster."""
    widest_first = sorted((each.columns for each in lists), key=len, reverse=True)
    agreed: dict[str, Object] = {}
    own = columns or renaming.own_columns(subject)  # of an earlier page, or ours: fit to be shown
    for known in (own, *widest_first):
        for column in known:
            if (name := _name(column)) not in agreed:
                agreed[name] = column if known is own else plain_text.lines_of_json(column)
    return tuple(agreed.values())


def with_cluster(columns: Sequence[Object]) -> list[Object]:
    """Return columns as clients are told of them, the one for the cluster among them."""
    return [*columns[:_CLUSTER_AT], CLUSTER, *columns[_CLUSTER_AT:]]


def empty_cells(columns: Sequence[Object]) -> list[Any]:
    """Return the cells of a row that stands for no object."""
    return [_NOTHING] * len(with_cluster(columns))


def merged_rows(listed: ClusterList, subject: Subject, shown: Sequence[Object]) -> Iterator[Fields]:
    """Yield the rows of one cluster in the columns shown, with the names they have in the fleet."""
    cluster = f"{listed.cluster} ({listed.age} ago)" if listed.age else listed.cluster
    if not listed.is_table:
        # A server that knows no Tables: its items are shown by their names alone.
        typed = {"kind": listed.kind.removesuffix("List"), "apiVersion": listed.api_version}
        name_at = renaming.name_column(shown)
        for written in renamed_items(listed, subject):
            item = renaming.read_object(written) if isinstance(written, msgspec.Raw) else written
            metadata: Any = item.get("metadata")
            fields = (
                renaming.read_object(metadata) if isinstance(metadata, msgspec.Raw) else metadata
            )
            cells: list[Any] = [_NOTHING] * len(shown)
            if name_at is not None:
                cells[name_at] = plain_text.cell(
                    fields.get("name", _NOTHING) if fields else _NOTHING
                )
            cells.insert(_CLUSTER_AT, cluster)
            yield {"cells": cells, "object": {**typed, **item}}
        return
    own = {_name(column): index for index, column in enumerate(listed.columns)}
    order = [own.get(_name(column)) for column in shown]
    name_at = renaming.name_column(listed.columns)
    node_at = renaming.node_columns(subject, listed.columns)
    rename = qualifier(listed.naming, subject)
    shown_beside = beside_editor(listed.naming, subject)
    for row in listed.rows:
        cells, count = row.cells, len(row.cells)
        if rename is not None and name_at is not None and name_at < count:
            cells = [*cells[:name_at], rename(str(cells[name_at])), *cells[name_at + 1 :]]
            for at in node_at:
                if at < count and cells[at] not in ("", _NOTHING):
                    cells[at] = rename(str(cells[at]))
        arranged = [cells[at] if at is not None and at < count else _NOTHING for at in order]
        # Almost all rows are fit to be printed as they are: numbers, and texts of one line.
        if not all(
            each.isprintable() if isinstance(each, str) else isinstance(each, _NUMBERS)
            for each in arranged
        ):
            arranged = list(map(plain_text.cell, arranged))
        arranged.insert(_CLUSTER_AT, cluster)
        shown_row: Fields = {"cells": arranged}
        if row.conditions is not msgspec.UNSET:
            shown_row["conditions"] = row.conditions
        if isinstance(row, KnownRow):
            shown_row["object"] = row.beside
        elif row.beside is not msgspec.UNSET:
            shown_row["object"] = shown_beside(row.beside)
        yield shown_row


def beside_editor(naming: Naming, subject: Subject) -> Callable[[msgspec.Raw], Any]:
    """Return how what stands beside a row becomes what clients see there."""
    rename, row_labels = renaming.object_edit(naming, subject), naming.row_labels
    if not row_labels:
        return rename
    return lambda beside: labelled(rename(beside), row_labels)


def labelled(beside: Any, row_labels: bytes) -> Any:
    """Return what stands beside a row with the virtual labels of its cluster, if it is metadata.

    A whole object stays as it is: whoever asks for those may write them back.
    """
    try:
        fields = renaming.read_object(beside) if isinstance(beside, msgspec.Raw) else beside
        if fields["kind"] != _PARTIAL:
            return beside
        metadata = fields["metadata"]
        inner = renaming.read_object(metadata) if isinstance(metadata, msgspec.Raw) else metadata
    except (KeyError, TypeError, MalformedObject):
        return beside
    # Both were made for this row alone, by the renaming or right here: nobody else has them.
    inner["labels"] = with_row_labels(inner.get("labels", _NO_TEXT), row_labels)
    fields["metadata"] = inner
    return fields


def _name(column: Object) -> str:
    return str(column.get("name", ""))
