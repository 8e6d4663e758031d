"""The words printers are written in: Printer, columns, and cells that many kinds share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.errors import Malformed
from clusterspace.kube import times
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of
from clusterspace.kube.selectors import label_selector_of
from clusterspace.kube.tables import Column, IncludeObject, table_row

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
UNSET: Final = "<unset>"

Cell: TypeAlias = Callable[[Object, float], Any]
"""Reads one cell from an object at a moment, in seconds since 1970."""

Conditions: TypeAlias = Callable[[Object], Sequence[Object]]

SHOWN_AT_ONCE: Final = 3  # items of a long list before "+ 2 more..."


@dataclass(frozen=True, slots=True)
class PrintedColumn:
    """A column, and how its cells are read."""

    column: Column
    cell: Cell


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind."""

    printed: tuple[PrintedColumn, ...]
    conditions: Conditions = lambda _: ()
    """What there is to say about the row as a whole; most kinds have nothing."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the Table declares."""
        return tuple(each.column for each in self.printed)

    def cells_of(self, kube_object: Object, now: float) -> list[Any]:
        """Return the cells of one object."""
        return [each.cell(kube_object, now) for each in self.printed]

    def row_of(
        self, kube_object: Object, now: float, include: IncludeObject = IncludeObject.METADATA
    ) -> Object:
        """Return the whole row of one object, ready for a Table."""
        cells = self.cells_of(kube_object, now)
        return table_row(cells, kube_object, include, self.conditions(kube_object))


def printer(*printed: PrintedColumn) -> Printer:
    """Return the printer of a kind that has nothing to say but its columns."""
    return Printer(printed)


def shown(name: str, read: Callable[[Object], Any], type_name: str = "string") -> PrintedColumn:
    """Return a column whose cells do not depend on the time."""
    return PrintedColumn(Column(name, type_name), lambda kube_object, _: read(kube_object))


def wide(name: str, read: Callable[[Object], Any]) -> PrintedColumn:
    """Return a column that only `-o wide` shows."""
    return PrintedColumn(Column(name, priority=1), lambda kube_object, _: read(kube_object))


def number(name: str, *path: str) -> PrintedColumn:
    """Return a column of a number, zero when it is not there."""
    return shown(name, lambda kube_object: find_at(kube_object, *path) or 0, "integer")


def flag(name: str, *path: str) -> PrintedColumn:
    """Return a column of yes or no, no when it is not there."""
    return shown(name, lambda kube_object: bool(find_at(kube_object, *path)), "boolean")


def text(name: str, *path: str, when_absent: str = "") -> PrintedColumn:
    """Return a column of a text at a path."""
    return shown(name, lambda kube_object: find_at(kube_object, *path) or when_absent)


def given(
    name: str, *path: str, when_absent: str, form: Callable[[Any], Any] | None = None
) -> PrintedColumn:
    """Return a column of a value at a path that counts even when it is zero or empty."""

    def read(kube_object: Object) -> Any:
        value = find_at(kube_object, *path)
        if value is None:
            return when_absent
        return value if form is None else form(value)

    return shown(name, read)


def pair(
    name: str, path: tuple[str, ...], fields: tuple[str, str], when_absent: str | None = None
) -> PrintedColumn:
    """Return a column of two fields of a struct, `first/second`."""
    first, second = fields

    def read(kube_object: Object) -> str:
        struct: Object = find_at(kube_object, *path) or {}
        if not struct and when_absent is not None:
            return when_absent
        return f"{struct.get(first)}/{struct.get(second)}"

    return shown(name, read)


def condition_status(name: str, condition: str, when_absent: str) -> PrintedColumn:
    """Return a column of what a condition says."""

    def read(kube_object: Object) -> str:
        found = find_condition(find_at(kube_object, "status", "conditions"), condition) or {}
        return str(found.get("status") or when_absent)

    return shown(name, read)


def size(name: str, *path: str) -> PrintedColumn:
    """Return a column that counts a list."""
    return shown(name, lambda kube_object: len(find_at(kube_object, *path) or ()), "integer")


NAME: Final = PrintedColumn(
    Column("Name", format="name"), lambda kube_object, _: name_of(kube_object)
)


def age_of(moment: Any, now: float) -> str:
    """Return how long ago a time of an object was; `<unknown>` when it says none."""
    if not isinstance(moment, str):
        return UNKNOWN
    try:
        return times.age(now - times.parse_time(moment))
    except Malformed:
        return UNKNOWN


AGE: Final = PrintedColumn(
    Column("Age"),
    lambda kube_object, now: age_of(metadata_of(kube_object).get("creationTimestamp"), now),
)

CREATED_AT: Final = shown(
    "Created At", lambda kube_object: metadata_of(kube_object).get("creationTimestamp"), "date"
)


def items_at(kube_object: Any, *path: str) -> list[Object]:
    """Return the objects of a list; none when it is missing."""
    return cast("list[Object]", find_at(kube_object, *path) or [])


def texts_at(kube_object: Any, *path: str) -> list[str]:
    """Return the texts of a list; none when it is missing."""
    return cast("list[str]", find_at(kube_object, *path) or [])


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Return labels as a selector of exactly these."""
    listed = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    return ",".join(listed) or NONE


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """Return a LabelSelector as `-l` would take it."""
    try:
        return str(label_selector_of(selector)) or NONE
    except Malformed:
        return UNKNOWN


def joined(texts: Iterable[str], when_empty: str = NONE) -> str:
    """Return texts with commas between them."""
    return ",".join(texts) or when_empty


def shortened(texts: Sequence[str], when_empty: str, at_once: int = SHOWN_AT_ONCE) -> str:
    """Return the first few texts, and how many more there are."""
    more = len(texts) - at_once
    suffix = f" + {more} more..." if more > 0 else ""
    return joined(texts[:at_once], when_empty) + suffix


def container_names(*path: str) -> PrintedColumn:
    """Return the wide column of container names of the pod spec at a path."""
    return wide("Containers", lambda each: _of_containers(each, path, "name"))


def container_images(*path: str) -> PrintedColumn:
    """Return the wide column of container images of the pod spec at a path."""
    return wide("Images", lambda each: _of_containers(each, path, "image"))


def _of_containers(kube_object: Object, path: tuple[str, ...], field: str) -> str:
    containers = items_at(kube_object, *path, "containers")
    return ",".join(str(container.get(field, "")) for container in containers)
