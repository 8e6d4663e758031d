"""The printer columns of a custom resource."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterspace.builtins.printers.cells import NAME, PrintedColumn, Printer
from clusterspace.errors import Malformed, MalformedPath
from clusterspace.kube import durations, timestamps
from clusterspace.kube.json_paths import JsonPath, read_json_path
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import Column

_AGE: Final[Object] = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_NO_TIME: Final = "<invalid>"


def printer_of(raw_columns: Sequence[Object]) -> Printer:
    """Return the printer of a custom resource: its name, then what its definition lists."""
    return Printer((NAME, *(_printed(raw) for raw in raw_columns or (_AGE,))))


def _printed(raw: Object) -> PrintedColumn:
    path_text = str(raw["jsonPath"])
    said = f"Custom resource definition column (in JSONPath format): {path_text}"
    column = Column(
        name=str(raw["name"]),
        type=str(raw["type"]),
        format=str(raw.get("format") or ""),
        description=str(raw.get("description") or said),
        priority=int(raw.get("priority") or 0),
    )
    return PrintedColumn(column, _cell(_path(path_text), column.type))


def _path(text: str) -> JsonPath | None:
    """Return the path; None for one that Kubernetes stores too, and that finds nothing."""
    try:
        return read_json_path(text)
    except MalformedPath:
        return None


def _cell(path: JsonPath | None, column_type: str) -> Callable[[Object, float], Any]:
    show = _SHOWN[column_type]

    def cell(kube_object: Object, now: float) -> Any:
        value = None if path is None else path.find(kube_object)
        return None if value is None else show(value, now)

    return cell


def _text(value: Any, _: float) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _integer(value: Any, _: float) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)


def _number(value: Any, _: float) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: Any, _: float) -> bool | None:
    return value if isinstance(value, bool) else None


def _age(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return durations.age(now - timestamps.parse_time(value))
    except Malformed:
        return _NO_TIME


_SHOWN: Final[Mapping[str, Callable[[Any, float], Any]]] = {
    "boolean": _flag,
    "date": _age,
    "integer": _integer,
    "number": _number,
    "string": _text,
}
