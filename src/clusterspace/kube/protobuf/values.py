"""Small messages whose JSON is not an object: times, quantities, ports, raw JSON, lists of text.

With protobuf's own types they make up `VALUE_TYPES`: every type of the table of fields that is
not itself a message of that table.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import Malformed, MalformedObject
from clusterspace.kube import timestamps
from clusterspace.kube.protobuf.scalars import (
    INT32,
    SCALARS,
    ValueType,
    bytes_of,
    check_known,
    must_be,
    read_known,
    signed,
    text_of,
    write_text,
)
from clusterspace.kube.protobuf.wire import (
    WireType,
    WireValue,
    read_fields,
    write_bytes_field,
    write_varint_field,
)

_FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01T00:00:00Z, which Go takes for "never"
_LAST_SECOND: Final = 253_402_300_799  # 9999-12-31T23:59:59Z, the last one RFC 3339 can write
_TIME_FIELDS: Final = {1: WireType.VARINT, 2: WireType.VARINT}
_ONE_TEXT: Final = {1: WireType.BYTES}
_INT_OR_STRING_FIELDS: Final = {1: WireType.VARINT, 2: WireType.VARINT, 3: WireType.BYTES}
_IS_INT, _IS_STRING = 0, 1
_FRACTION: Final = re.compile(r"\.([0-9]+)")


def _read_time(value: WireValue, place: str) -> str | None:
    seconds, _ = _seconds_and_nanos(value, place)
    return None if seconds is None else timestamps.format_time(seconds)


def _read_micro_time(value: WireValue, place: str) -> str | None:
    seconds, nanos = _seconds_and_nanos(value, place)
    if seconds is None:
        return None
    whole = timestamps.format_time(seconds).removesuffix("Z")
    return f"{whole}.{nanos // 1000:06}Z"


def _seconds_and_nanos(value: WireValue, place: str) -> tuple[int | None, int]:
    """Return the two halves of a time; no seconds when the time was never set."""
    fields = read_known(cast("bytes", value), _TIME_FIELDS, place)
    seconds, nanos = signed(fields.get(1, 0)), signed(fields.get(2, 0))
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanos < 10**9:
        raise MalformedObject(f"{place}: not a time of the years 1 to 9999", place=place)
    never = not fields or (seconds, nanos) == (_FIRST_SECOND, 0)
    return (None, 0) if never else (seconds, nanos)


def _write_time(value: Any, place: str) -> bytes:
    return _time_bytes(_parsed_time(value, place), 0)


def _write_micro_time(value: Any, place: str) -> bytes:
    text = str(must_be(value, str, place))
    fraction = _FRACTION.search(text)
    # Apart, because seconds and microseconds of any year do not fit one float.
    micros = int(fraction[1][:6].ljust(6, "0")) if fraction else 0
    return _time_bytes(_parsed_time(_FRACTION.sub("", text), place), micros * 1000)


def _parsed_time(value: Any, place: str) -> int:
    try:
        return int(timestamps.parse_time(must_be(value, str, place)) // 1)
    except Malformed as error:
        raise MalformedObject(f"{place}: {error}", place=place) from error


def _time_bytes(seconds: int, nanos: int) -> bytes:
    return write_varint_field(1, seconds) + write_varint_field(2, nanos)


def _read_quantity(value: WireValue, place: str) -> str:
    fields = read_known(cast("bytes", value), _ONE_TEXT, place)
    return text_of(fields.get(1, b""), place) or "0"


def _write_quantity(value: Any, place: str) -> bytes:
    # Bare numbers are quantities too when people write YAML.
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return write_bytes_field(1, write_text(text, place))


def _read_int_or_string(value: WireValue, place: str) -> int | str:
    fields = read_known(cast("bytes", value), _INT_OR_STRING_FIELDS, place)
    which = fields.get(1, _IS_INT)
    if which == _IS_INT:
        return INT32.read(fields.get(2, 0), place)
    if which == _IS_STRING:
        return text_of(fields.get(3, b""), place)
    raise MalformedObject(f"{place}: {which} says neither integer nor string", place=place)


def _write_int_or_string(value: Any, place: str) -> bytes:
    is_string = isinstance(value, str)
    number = 0 if is_string else INT32.write(value, place)
    return b"".join(
        (
            write_varint_field(1, _IS_STRING if is_string else _IS_INT),
            write_varint_field(2, cast("int", number)),
            write_bytes_field(3, write_text(value, place) if is_string else b""),
        )
    )


def _read_json(value: WireValue, place: str) -> Any:
    raw = bytes_of(read_known(cast("bytes", value), _ONE_TEXT, place), 1)
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedObject(f"{place}: the embedded JSON cannot be read", place=place) from error


def _write_json(value: Any, place: str) -> bytes:
    try:
        return write_bytes_field(1, msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedObject(f"{place}: the value has no JSON form", place=place) from error


def _read_strings(value: WireValue, place: str) -> list[str]:
    texts: list[str] = []
    for field in read_fields(cast("bytes", value), place):
        check_known(field, _ONE_TEXT, place)
        texts.append(text_of(field.value, place))
    return texts


def _write_strings(value: Any, place: str) -> bytes:
    texts = cast("list[Any]", must_be(value, list, place))
    return b"".join(write_bytes_field(1, write_text(text, place)) for text in texts)


VALUE_TYPES: Final[Mapping[str, ValueType]] = {
    **SCALARS,
    "time": ValueType(WireType.BYTES, None, _read_time, _write_time, True),
    "microtime": ValueType(WireType.BYTES, None, _read_micro_time, _write_micro_time, True),
    "quantity": ValueType(WireType.BYTES, "0", _read_quantity, _write_quantity, True),
    "intorstring": ValueType(WireType.BYTES, 0, _read_int_or_string, _write_int_or_string, True),
    "json": ValueType(WireType.BYTES, None, _read_json, _write_json, True),
    "strings": ValueType(WireType.BYTES, None, _read_strings, _write_strings, True),
}
