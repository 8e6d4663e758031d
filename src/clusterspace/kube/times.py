"""Times, durations and ages as Kubernetes, Go and kubectl write them."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from clusterspace.errors import MalformedDuration, MalformedTimestamp
from clusterspace.kube.statuses import quoted

# RFC 3339 times to and from seconds since 1970. Seconds are a float because that is what a Clock
# gives; it holds a microsecond exactly enough to print it back unchanged until the year 2242.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (
    (datetime(*day, tzinfo=UTC) - _EPOCH).total_seconds() for day in ((1, 1, 1), (9999, 12, 31))
)

_USUAL_LENGTH = len("2006-01-02T15:04:05Z")
_REMEMBERED = 4096
"""Servers write and read the same few seconds over and over: those of now, and of what is busy."""

_RFC_3339 = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"[Tt](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]+))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<offset_hours>[0-9]{2}):(?P<offset_minutes>[0-9]{2}))"
)


def format_time(seconds: float) -> str:
    """Return whole seconds, as `metav1.Time` prints: `2006-01-02T15:04:05Z`."""
    return _format_whole(seconds // 1)


@lru_cache(_REMEMBERED)
def _format_whole(seconds: float) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def format_micro_time(seconds: float) -> str:
    """Return microseconds, as `metav1.MicroTime` prints: `2006-01-02T15:04:05.000000Z`."""
    whole = seconds // 1
    micros = round((seconds - whole) * 1_000_000)
    if micros == 1_000_000:
        whole, micros = whole + 1, 0
    return f"{_format_whole(whole)[:-1]}.{micros:06d}Z"


def parse_time(text: str) -> float:
    """Read either form, with any offset and any number of decimals, into seconds.

    Every text of format `date-time` is read, small letters and offsets of days too: members write
    such into statuses, API servers store them, and no reader may stop at one.
    """
    # Of other lengths nothing is remembered: clients may send as many decimals as they like.
    return _parse_usual(text) if len(text) == _USUAL_LENGTH else _parse(text)


def _parse(text: str) -> float:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise _unreadable(text)
    calendar = (int(found[part]) for part in ("year", "month", "day", "hour", "minute", "second"))
    micros = int(f"{found['fraction'] or '':0<6}"[:6])
    try:
        moment = datetime(*calendar, microsecond=micros, tzinfo=UTC)
    except ValueError as error:  # the 31st of February, hour 25
        raise _unreadable(text) from error
    seconds = (moment - _EPOCH).total_seconds()
    if found["sign"] is None:
        return seconds
    offset = int(found["offset_hours"]) * _HOUR + int(found["offset_minutes"]) * _MINUTE
    seconds += offset if found["sign"] == "-" else -offset
    return min(max(seconds, _FIRST), _LAST)  # what is read can be written


_parse_usual = lru_cache(_REMEMBERED)(_parse)


def _unreadable(text: str) -> MalformedTimestamp:
    message = f"{text!r} is not an RFC 3339 time such as 2006-01-02T15:04:05Z"
    return MalformedTimestamp(message, place=text)


# Durations as Go writes them (`1h30m0s`): a whole number of nanoseconds, as in Go.

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # the micro sign, which is also how it prints
    "\u03bcs": 10**3,  # the Greek letter
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1

# Longer numbers are out of range in every unit, and reading them would only cost time.
_MOST_DIGITS: Final = 40

_PART = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]*)")

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def parse_duration(text: str) -> int:
    """Read a duration such as `1h30m`, `-1.5s` or `0` into nanoseconds."""
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0
    if not unsigned:
        raise _invalid(text)
    nanoseconds = 0
    position = 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None or part.end() == position:
            raise _invalid(text)
        whole, fraction, unit = part["whole"], part["fraction"] or "", part["unit"]
        if not whole and not fraction:
            raise _invalid(text)
        if not unit:
            raise MalformedDuration(f"time: missing unit in duration {quoted(text)}", place=text)
        if unit not in _UNITS:
            message = f"time: unknown unit {quoted(unit)} in duration {quoted(text)}"
            raise MalformedDuration(message, place=text)
        if len(whole.lstrip("0")) > _MOST_DIGITS:
            raise _invalid(text)
        kept = fraction[:_MOST_DIGITS]
        nanoseconds += int(whole[-_MOST_DIGITS:] or 0) * _UNITS[unit]
        nanoseconds += int(kept or 0) * _UNITS[unit] // 10 ** len(kept)
        position = part.end()
    signed = -nanoseconds if text[0] == "-" else nanoseconds
    if not _SMALLEST <= signed <= _LARGEST:
        raise _invalid(text)
    return signed


def seconds_of(text: str) -> float:
    """Read a duration into seconds, for a clock."""
    return parse_duration(text) / 10**9


def format_duration(nanoseconds: int) -> str:
    """Return the duration as Go prints it: `0s`, `1.5µs`, `300ms`, `1h30m0s`."""
    sign = "-" if nanoseconds < 0 else ""
    size = abs(nanoseconds)
    if size == 0:
        return "0s"
    if size < _UNITS["s"]:
        unit = next(each for each in ("ms", "\u00b5s", "ns") if size >= _UNITS[each])
        return f"{sign}{_decimal(size, unit)}"
    minutes, rest = divmod(size, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest, "s")
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def age(seconds: float) -> str:
    """Return how long ago something was, as kubectl shows it: the longer, the rougher."""
    elapsed = int(seconds)
    if elapsed < -1:
        return "<invalid>"  # more than clocks that disagree a little
    if elapsed < 2 * _MINUTE:
        return f"{max(elapsed, 0)}s"
    if elapsed < 10 * _MINUTE:
        return _pair(elapsed, (_MINUTE, "m"), (1, "s"))
    if elapsed < 3 * _HOUR:
        return f"{elapsed // _MINUTE}m"
    if elapsed < 8 * _HOUR:
        return _pair(elapsed, (_HOUR, "h"), (_MINUTE, "m"))
    if elapsed < 2 * _DAY:
        return f"{elapsed // _HOUR}h"
    if elapsed < 8 * _DAY:
        return _pair(elapsed, (_DAY, "d"), (_HOUR, "h"))
    if elapsed < 2 * _YEAR:
        return f"{elapsed // _DAY}d"
    if elapsed < 8 * _YEAR:
        return _pair(elapsed, (_YEAR, "y"), (_DAY, "d"))
    return f"{elapsed // _YEAR}y"


def _decimal(nanoseconds: int, unit: str) -> str:
    whole, rest = divmod(nanoseconds, _UNITS[unit])
    if not rest:
        return f"{whole}{unit}"
    digits = len(str(_UNITS[unit])) - 1
    fraction = f"{rest:0{digits}}".rstrip("0")
    return f"{whole}.{fraction}{unit}"


def _pair(elapsed: int, larger: tuple[int, str], smaller: tuple[int, str]) -> str:
    whole, rest = divmod(elapsed, larger[0])
    small = rest // smaller[0]
    return f"{whole}{larger[1]}{small}{smaller[1]}" if small else f"{whole}{larger[1]}"


def _invalid(text: str) -> MalformedDuration:
    return MalformedDuration(f"time: invalid duration {quoted(text)}", place=text)
