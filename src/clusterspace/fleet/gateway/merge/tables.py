"""Many Tables to one: one set of columns, cells matched by column, and a column for the cluster.

kubectl prints the header again whenever the columns differ from the last ones, be it by a word in
a description. So the columns of a built-in kind are always our own, whatever clusters answer; those
that only some clusters know come behind them. For other kinds the widest Table leads.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from clusterspace.fleet.gateway.merge.lists import (
    ClusterList,
    ListMetadata,
    renamed_items,
    write_list,
    written_metadata,
)
from clusterspace.fleet.gateway.names import Subject
from clusterspace.fleet.gateway.renaming import edits, rules
from clusterspace.fleet.gateway.renaming.edits import Fields
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


def merged_rows(listed: ClusterList, subject: Subject, shown: Sequence[Object]) -> Iterator[Fields]:
    """Yield the rows of one cluster in the columns shown, with the names they have in the fleet."""
    cluster = listed.cluster
    if not listed.is_table:
        # A server that knows no Tables: its items are shown by their names alone.
        typed = {"kind": listed.kind.removesuffix("List"), "apiVersion": listed.api_version}
        name_at = rules.name_column(shown)
        for item in renamed_items(listed, subject):
            metadata: Any = item.get("metadata")
            fields = edits.read_object(metadata) if isinstance(metadata, msgspec.Raw) else metadata
            cells: list[Any] = [_NOTHING] * len(shown)
            if name_at is not None:
                cells[name_at] = printable(fields.get("name", _NOTHING) if fields else _NOTHING)
            cells.insert(_CLUSTER_AT, cluster)
            yield {"cells": cells, "object": {**typed, **item}}
        return
    own = {_name(column): index for index, column in enumerate(listed.columns)}
    order = [own.get(_name(column)) for column in shown]
    name_at = rules.name_column(listed.columns)
    rename = qualifier(listed.naming, subject)
    rename_object = rules.object_edit(listed.naming, subject)
    for row in listed.rows:
        cells, count = row.cells, len(row.cells)
        if rename is not None and name_at is not None and name_at < count:
            cells = [*cells[:name_at], rename(str(cells[name_at])), *cells[name_at + 1 :]]
        arranged = [
            printable(cells[at]) if at is not None and at < count else _NOTHING for at in order
        ]
        arranged.insert(_CLUSTER_AT, cluster)
        shown_row: Fields = {"cells": arranged}
        if row.conditions is not msgspec.UNSET:
            shown_row["conditions"] = row.conditions
        if row.beside is not msgspec.UNSET:
            shown_row["object"] = rename_object(row.beside)
        yield shown_row


def _name(column: Object) -> str:
    return str(column.get("name", ""))
