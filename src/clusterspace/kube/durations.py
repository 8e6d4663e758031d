"""Durations as Go writes them (`1h30m0s`), and ages as kubectl shows them (`5d3h`).

An exact duration is a whole number of nanoseconds, as in Go.
"""

import re
from typing import Final

from clusterspace.errors import MalformedDuration
from clusterspace.kube.statuses import quoted

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
