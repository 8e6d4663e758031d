"""RFC 3339 times as Kubernetes writes them, to and from seconds since 1970.

Seconds are a float because that is what a Clock gives; it holds a microsecond exactly enough to
print it back unchanged until the year 2242.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from clusterspace.errors import MalformedTimestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_USUAL_LENGTH = len("2006-01-02T15:04:05Z")
_REMEMBERED = 4096
"""Servers write and read the same few seconds over and over: those of now, and of what is busy."""

_RFC_3339 = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"T(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]+))?"
    r"(?:Z|(?P<sign>[+-])(?P<offset_hours>[0-9]{2}):(?P<offset_minutes>[0-9]{2}))"
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
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse_time(text: str) -> float:
    """Read either form, with any offset and any number of decimals, into seconds."""
    # Of other lengths nothing is remembered: clients may send as many decimals as they like.
    return _parse_usual(text) if len(text) == _USUAL_LENGTH else _parse(text)


def _parse(text: str) -> float:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise _unreadable(text)
    calendar = (int(found[part]) for part in ("year", "month", "day", "hour", "minute", "second"))
    micros = int(f"{found['fraction'] or '':0<6}"[:6])
    zone = UTC
    try:
        if found["sign"] is not None:
            minutes = int(found["offset_minutes"])
            if minutes > 59:
                raise _unreadable(text)
            offset = timedelta(hours=int(found["offset_hours"]), minutes=minutes)
            zone = timezone(-offset if found["sign"] == "-" else offset)
        moment = datetime(*calendar, microsecond=micros, tzinfo=zone)
    except ValueError as error:  # the 31st of February, hour 25, an offset of a day or more
        raise _unreadable(text) from error
    return (moment - _EPOCH).total_seconds()


_parse_usual = lru_cache(_REMEMBERED)(_parse)


def _unreadable(text: str) -> MalformedTimestamp:
    message = f"{text!r} is not an RFC 3339 time such as 2006-01-02T15:04:05Z"
    return MalformedTimestamp(message, place=text)
