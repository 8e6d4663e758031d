"""Rows of a Table renamed: the cell that shows the name, and the object beside the cells."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from clusterspace.builtins import resources as builtins
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.fleet.gateway.flow import Naming, Subject
from clusterspace.fleet.gateway.renaming import edits, places
from clusterspace.fleet.gateway.renaming.edits import Edit, Fields
from clusterspace.kube.objects import Object


def name_column(columns: Sequence[Object]) -> int | None:
    """Return which column shows the name of the object, or None."""
    found = (index for index, column in enumerate(columns) if column.get("format") == "name")
    return next(found, None)


def own_columns(subject: Subject) -> tuple[Object, ...]:
    """Return the columns of a built-in kind as we print it ourselves; none for other kinds."""
    builtin = builtins.find_resource(subject.group, subject.version, subject.resource)
    if builtin is None:
        return ()
    return tuple(
        column.definition for column in printer_for(subject.group, builtin.info.kind).columns
    )


def cell_edit(naming: Naming, subject: Subject) -> Edit:
    """Return the edit of a cell that shows a name."""
    change = places.qualifier(naming, subject)
    return _unchanged if change is None else edits.on_text(change)


@lru_cache(maxsize=4096)
def object_edit(naming: Naming, subject: Subject) -> Edit:
    """Return the edit of what stands beside the cells: metadata, a whole object, or nothing."""
    return edits.edit_of(places.outward(naming, subject))


def table_edit(naming: Naming, subject: Subject) -> Callable[[Fields], Fields]:
    """Return what renames the rows of a Table that stays as it is otherwise."""

    def edit(table: Fields) -> Fields:
        beside = {"object": object_edit(naming, subject)}
        # Only the first Table of a watch declares columns; custom kinds show their name first.
        at = name_column(_declared(table) or own_columns(subject)) or 0
        cells = {"cells": edits.in_element(at, cell_edit(naming, subject))}
        rows = edits.in_each(edits.in_fields({**cells, **beside}))
        return edits.fields_editor({"rows": rows})(table)

    return edit


def _declared(table: Fields) -> list[Object]:
    text = table.get("columnDefinitions", b"null")
    return msgspec.json.decode(text, type=list[Object] | None) or []


def _unchanged(text: msgspec.Raw) -> msgspec.Raw:
    return text
