"""Tables of stored objects, in as much detail as a client asks for."""

from collections.abc import Iterable

from clusterspace.builtins.printers.cells import Printer
from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import IncludeObject, table


def read_include(text: str) -> IncludeObject:
    """Read `includeObject`; leaving it out means metadata."""
    try:
        return IncludeObject(text or IncludeObject.METADATA.value)
    except ValueError as error:
        known = ", ".join(each.value for each in IncludeObject)
        raise BadRequest(f"includeObject must be one of {known}, not {text!r}") from error


def table_of(
    objects: Iterable[Object],
    printer: Printer,
    *,
    list_metadata: Object,
    include: IncludeObject,
    now: float,
) -> Object:
    """Return the Table of some objects of one kind."""
    rows = (printer.row_of(each, now, include) for each in objects)
    return table(printer.columns, rows, list_metadata)
