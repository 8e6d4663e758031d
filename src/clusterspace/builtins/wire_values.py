"""Reading the scalars of built-in kinds: what is accepted, its normal form, and the complaint.

A reader takes a JSON value other than null and returns its normal form. `WrongType` is the
complaint about a JSON type and is completed with the place by whoever knows it; `Unreadable` is
the complaint of a text about itself, which Kubernetes reports without a place.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from clusterspace.builtins.wire_types import Scalar
from clusterspace.errors import MalformedQuantity, MalformedTimestamp
from clusterspace.kube import timestamps
from clusterspace.kube.quantities import parse_quantity

ScalarReader: TypeAlias = Callable[[Any], Any]


class WrongType(Exception):
    """A JSON value of a type that does not fit; `path` grows as the error climbs out."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        self.found = found
        self.wanted = wanted
        self.struct = ""
        self.path: list[str] = []

    def climb(self, struct: str, field: str) -> None:
        """Add the field the error passes through; the innermost struct is the one named."""
        self.struct = self.struct or struct
        self.path.insert(0, field)

    def __str__(self) -> str:
        place = f"Go struct field {self.struct}.{'.'.join(self.path)}" if self.path else "Go value"
        return f"json: cannot unmarshal {self.found} into {place} of type {self.wanted}"


class Unreadable(Exception):
    """A text that is of the right type and still cannot be read."""


def scalar_reader(scalar: Scalar) -> ScalarReader:
    """Return the reader of a scalar type."""
    return _READERS[scalar.form](scalar)


def zero_of(scalar: Scalar) -> Any:
    """Return what an unset value of the type is answered as."""
    return _ZEROS.get(scalar.form)


def json_type(value: Any) -> str:
    """Return the JSON type of a value as the complaints name it."""
    return _JSON_TYPES[type(value)]


_JSON_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}


def _string_reader(scalar: Scalar) -> ScalarReader:
    def read(value: Any) -> str:
        if type(value) is str:
            return value
        raise WrongType(json_type(value), scalar.name)

    return read


def _bool_reader(scalar: Scalar) -> ScalarReader:
    def read(value: Any) -> bool:
        if type(value) is bool:
            return value
        raise WrongType(json_type(value), scalar.name)

    return read


def _int_reader(bits: int) -> Callable[[Scalar], ScalarReader]:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1

    def reader_for(scalar: Scalar) -> ScalarReader:
        def read(value: Any) -> int:
            if type(value) is int and lowest <= value <= highest:
                return value
            if type(value) in (int, float):
                raise WrongType(f"number {value}", scalar.name)
            raise WrongType(json_type(value), scalar.name)

        return read

    return reader_for


def _float_reader(scalar: Scalar) -> ScalarReader:
    def read(value: Any) -> float:
        if type(value) not in (int, float):
            raise WrongType(json_type(value), scalar.name)
        # A whole float is written without a fraction, as an integer is.
        return int(value) if value == int(value) else value

    return read


def _int_or_string_reader(scalar: Scalar) -> ScalarReader:
    read_int = _int_reader(32)(scalar)

    def read(value: Any) -> int | str:
        return value if type(value) is str else read_int(value)

    return read


def _quantity_reader(_: Scalar) -> ScalarReader:
    def read(value: Any) -> str:
        if type(value) is str:
            text = value.strip()
        else:
            text = str(value) if type(value) in (int, float) else json_type(value)
        try:
            return str(parse_quantity(text))
        except MalformedQuantity as malformed:
            raise Unreadable(malformed.message) from malformed

    return read


def _bytes_reader(scalar: Scalar) -> ScalarReader:
    def read(value: Any) -> str:
        if type(value) is not str:
            raise WrongType(json_type(value), scalar.name)
        text = value.replace("\n", "").replace("\r", "")
        try:
            return base64.b64encode(base64.b64decode(text, validate=True)).decode()
        except (binascii.Error, ValueError) as error:
            place = _where_base64_breaks(value)
            raise Unreadable(f"illegal base64 data at input byte {place}") from error

    return read


def _where_base64_breaks(text: str) -> int:
    stray = re.search(r"[^A-Za-z0-9+/=\r\n]|=(?!=?[\r\n]*$)", text)
    if stray:
        return stray.start()
    return len(text) // 4 * 4


# How Go writes the pieces of a time, and what each piece may look like.
_DATE_PIECES: Final = (
    ("2006", r"[0-9]{4}"), ("-", "-"), ("01", r"[0-9]{2}"), ("-", "-"), ("02", r"[0-9]{2}"),
    ("T", "T"), ("15", r"[0-9]{2}"), (":", ":"), ("04", r"[0-9]{2}"), (":", ":"),
)  # fmt: skip
_ZONE_PIECE: Final = ("Z07:00", r"Z|[+-][0-9]{2}:[0-9]{2}")
_TIME_PIECES: Final = (*_DATE_PIECES, ("05", r"[0-9]{2}(?:[.,][0-9]+)?"), _ZONE_PIECE)
_MICRO_TIME_PIECES: Final = (
    *_DATE_PIECES, ("05", r"[0-9]{2}"), (".000000", r"\.[0-9]{6}"), _ZONE_PIECE,
)  # fmt: skip

_NEVER: Final = "0001-01-01T00:00:00"


def _time_reader(
    pieces: tuple[tuple[str, str], ...], form: Callable[[float], str]
) -> Callable[[Scalar], ScalarReader]:
    def reader_for(scalar: Scalar) -> ScalarReader:
        def read(value: Any) -> str | None:
            if type(value) is not str:
                raise WrongType(json_type(value), scalar.name)
            _check_pieces(value, pieces)
            try:
                written = form(timestamps.parse_time(value))
            except MalformedTimestamp as malformed:
                raise Unreadable(f'parsing time "{value}": day out of range') from malformed
            return None if written.startswith(_NEVER) else written

        return read

    return reader_for


def _check_pieces(text: str, pieces: tuple[tuple[str, str], ...]) -> None:
    layout = "".join(piece for piece, _ in pieces)
    rest = text
    for piece, pattern in pieces:
        found = re.match(pattern, rest)
        if found is None:
            complaint = f'cannot parse "{rest}" as "{piece}"'
            raise Unreadable(f'parsing time "{text}" as "{layout}": {complaint}')
        rest = rest[found.end() :]
    if rest:
        raise Unreadable(f'parsing time "{text}": extra text: "{rest}"')


def _anything_reader(_: Scalar) -> ScalarReader:
    return lambda value: value


_READERS: Final[Mapping[str, Callable[[Scalar], ScalarReader]]] = {
    "string": _string_reader,
    "bool": _bool_reader,
    "int32": _int_reader(32),
    "int64": _int_reader(64),
    "float64": _float_reader,
    "intstr": _int_or_string_reader,
    "quantity": _quantity_reader,
    "bytes": _bytes_reader,
    "time": _time_reader(_TIME_PIECES, timestamps.format_time),
    "microtime": _time_reader(_MICRO_TIME_PIECES, timestamps.format_micro_time),
    "raw": _anything_reader,
    "json": _anything_reader,
}

_ZEROS: Final[Mapping[str, Any]] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "intstr": 0,
    "quantity": "0",
}
