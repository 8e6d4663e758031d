"""Timestamps and durations."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.libraries.operators import checked_duration
from clusterspace.kube.cel.signatures import Function, function, method
from clusterspace.kube.cel.values import Duration, Timestamp

_SECOND: Final = 10**9
_RFC_3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))"
)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = -62_135_596_800 * _SECOND
_LATEST: Final = 253_402_300_800 * _SECOND - 1


def read_timestamp(text: str) -> Timestamp:
    """Read an RFC 3339 time, to the nanosecond, or fail."""
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise EvaluationFailed(f"parsing time {text!r}: not an RFC 3339 time")
    *calendar, fraction, sign, hours, minutes = found.groups()
    try:
        moment = datetime(*(int(part) for part in calendar), tzinfo=UTC)
    except ValueError as error:
        raise EvaluationFailed(f"parsing time {text!r}: {error}") from error
    offset = int(f"{sign}1") * (int(hours) * 3600 + int(minutes) * 60) if sign else 0
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset
    return Timestamp(seconds * _SECOND + int(f"{fraction or '':0<9}"[:9]))


def timestamp_text(moment: Timestamp) -> str:
    """Return the moment as RFC 3339, with as many decimals as it needs."""
    seconds, nanos = divmod(moment.nanos, _SECOND)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    shown = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{shown.rjust(19, '0')}{fraction}Z"


def _checked(nanos: int) -> Timestamp:
    if not _EARLIEST <= nanos <= _LATEST:
        raise EvaluationFailed("timestamp overflow")
    return Timestamp(nanos)


def _zone(name: str) -> tzinfo:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        size = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-size if found[1] == "-" else size)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise EvaluationFailed(f"unknown time zone {name}") from error


def _local(moment: Timestamp, zone: str) -> datetime:
    whole = _EPOCH + timedelta(microseconds=moment.nanos // 1000)
    return whole.astimezone(_zone(zone))


_PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}
_DURATION_PARTS: Final = {
    "getHours": 3600 * _SECOND,
    "getMinutes": 60 * _SECOND,
    "getSeconds": _SECOND,
    "getMilliseconds": 10**6,
}


def _part_functions() -> list[Function]:
    declared: list[Function] = []
    for name, part in _PARTS.items():
        declared += [
            method(f"timestamp.{name}() -> int", _part(part)),
            method(f"timestamp.{name}(string) -> int", _part(part)),
        ]
    for name, unit in _DURATION_PARTS.items():
        declared.append(method(f"duration.{name}() -> int", _whole(unit)))
    return declared


def _part(part: Callable[[datetime], int]) -> Callable[..., int]:
    def read(moment: Timestamp, zone: str = "+00:00") -> int:
        return part(_local(moment, zone))

    return read


def _whole(unit: int) -> Callable[[Duration], int]:
    return lambda length: int(abs(length.nanos) // unit) * (-1 if length.nanos < 0 else 1)


def _later(moment: Timestamp, length: Duration) -> Timestamp:
    return _checked(moment.nanos + length.nanos)


def _same(value: Any) -> Any:
    return value


FUNCTIONS: Final = (
    *_part_functions(),
    function("timestamp(string) -> timestamp", read_timestamp),
    function("timestamp(timestamp) -> timestamp", _same),
    function("timestamp(int) -> timestamp", lambda seconds: _checked(seconds * _SECOND)),
    function("string(timestamp) -> string", timestamp_text),
    function("_+_(timestamp, duration) -> timestamp", _later),
    function(
        "_+_(duration, timestamp) -> timestamp", lambda length, moment: _later(moment, length)
    ),
    function(
        "_+_(duration, duration) -> duration", lambda a, b: checked_duration(a.nanos + b.nanos)
    ),
    function(
        "_-_(timestamp, timestamp) -> duration", lambda a, b: checked_duration(a.nanos - b.nanos)
    ),
    function("_-_(timestamp, duration) -> timestamp", lambda a, b: _checked(a.nanos - b.nanos)),
    function(
        "_-_(duration, duration) -> duration", lambda a, b: checked_duration(a.nanos - b.nanos)
    ),
)
