"""Many Tables to one: one set of columns, cells matched by column, and a column for the cluster.

kubectl prints the header again whenever the columns differ from the last ones, be it by a word in
a description. So the columns of a built-in kind are always our own, whatever clusters answer; those
that only some clusters know come behind them. For other kinds the widest Table leads.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from clusterspace.fleet.gateway.merge.lists import (
    ClusterList,
    ListMetadata,
    Row,
    renamed_items,
    write_list,
    written_metadata,
)
from clusterspace.fleet.gateway.names import Subject
from clusterspace.fleet.gateway.renaming import edits, rules
from clusterspace.fleet.gateway.renaming.edits import Edit, Fields
from clusterspace.fleet.gateway.renaming.rules import qualifier
from clusterspace.kube import plain_text
from clusterspace.kube.objects import Object
from clusterspace.kube.plain_text import cell as printable
from clusterspace.kube.tables import META_VERSION, Column

CLUSTER: Final[Object] = Column("Cluster", description="The cluster the object is in.").definition
"""Our own column. It stands second: kubectl writes the kind in front of the first cell."""

_CLUSTER_AT: Final = 1
_NOTHING: Final = "<none>"
"""In a column its cluster does not have, as Kubernetes shows what is not there."""


def merge(
    parts: Sequence[ClusterList],
    *,
    subject: Subject,
    metadata: ListMetadata,
    columns: Sequence[Object] = (),
) -> Iterable[bytes]:
    """Yield the text of one Table; parts stay in the order given.

    A part that is a plain list, from a server that knows no Tables, shows its names. `columns`
    are those of an earlier page or event, without the cluster's: they are kept, and kept first.
    """
    shown = agreed_columns(parts, subject, columns)
    opening = {
        "kind": "Table",
        "apiVersion": next((part.api_version for part in parts if part.is_table), META_VERSION),
        "metadata": written_metadata(metadata),
        "columnDefinitions": with_cluster(shown),
    }
    rows = (row for part in parts for row in merged_rows(part, subject, shown))
    return write_list(opening, "rows", rows)


def agreed_columns(
    parts: Iterable[ClusterList], subject: Subject, columns: Sequence[Object] = ()
) -> tuple[Object, ...]:
    """Return the columns that all parts are shown in, without the one for the cluster."""
    widest_first = sorted((part.columns for part in parts), key=len, reverse=True)
    agreed: dict[str, Object] = {}
    for known in (columns or rules.own_columns(subject), *widest_first):
        for column in known:
            agreed.setdefault(_name(column), plain_text.lines_of_json(column))
    return tuple(agreed.values())


def with_cluster(columns: Sequence[Object]) -> list[Object]:
    """Return columns as clients are told of them, the one for the cluster among them."""
    return [*columns[:_CLUSTER_AT], CLUSTER, *columns[_CLUSTER_AT:]]


def empty_cells(columns: Sequence[Object]) -> list[Any]:
    """Return the cells of a row that stands for no object."""
    return [_NOTHING] * len(with_cluster(columns))


def merged_rows(part: ClusterList, subject: Subject, shown: Sequence[Object]) -> Iterator[Fields]:
    """Yield the rows of one part in the columns shown, with the names they have in the fleet."""
    if not part.is_table:
        return _rows_of_list(part, subject, shown)
    arrange = _arranger(part, subject, shown)
    rename = rules.object_edit(part.naming, subject)
    return (_row_of(row, arrange, rename) for row in part.rows)


def _row_of(row: Row, arrange: Callable[[list[Any]], list[Any]], rename: Edit) -> Fields:
    arranged: Fields = {"cells": arrange(row.cells)}
    if row.conditions is not msgspec.UNSET:
        arranged["conditions"] = row.conditions
    if row.beside is not msgspec.UNSET:
        arranged["object"] = rename(row.beside)
    return arranged


def _arranger(
    part: ClusterList, subject: Subject, shown: Sequence[Object]
) -> Callable[[list[Any]], list[Any]]:
    """Return what puts the cells of a row where the columns shown want them."""
    own = {_name(column): index for index, column in enumerate(part.columns)}
    order = [own.get(_name(column)) for column in shown]
    name_at = rules.name_column(part.columns)
    rename = qualifier(part.naming, subject)

    def arrange(cells: list[Any]) -> list[Any]:
        count = len(cells)
        if rename is not None and name_at is not None and name_at < count:
            cells = [*cells[:name_at], rename(str(cells[name_at])), *cells[name_at + 1 :]]
        arranged = [
            printable(cells[at]) if at is not None and at < count else _NOTHING for at in order
        ]
        arranged.insert(_CLUSTER_AT, part.cluster)
        return arranged

    return arrange


def _rows_of_list(part: ClusterList, subject: Subject, shown: Sequence[Object]) -> Iterator[Fields]:
    """Yield rows with names alone, for the items of a server that knows no Tables."""
    typed = {"kind": part.kind.removesuffix("List"), "apiVersion": part.api_version}
    name_at = rules.name_column(shown)
    for item in renamed_items(part, subject):
        cells: list[Any] = [_NOTHING] * len(shown)
        if name_at is not None:
            cells[name_at] = printable(_name_of(item))
        cells.insert(_CLUSTER_AT, part.cluster)
        yield {"cells": cells, "object": {**typed, **item}}


def _name_of(item: Fields) -> Any:
    metadata = item.get("metadata")
    taken = edits.read_object(metadata) if isinstance(metadata, msgspec.Raw) else metadata
    return taken.get("name", _NOTHING) if taken else _NOTHING


def _name(column: Object) -> str:
    return str(column.get("name", ""))
