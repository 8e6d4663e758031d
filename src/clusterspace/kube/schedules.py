"""Cron schedules: when a CronJob or a rule of a CronFederatedHPA is due. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from clusterspace.errors import MalformedDuration
from clusterspace.kube.times import seconds_of

_SHORTHANDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES: Final[tuple[dict[str, int], ...]] = (
    {},
    {},
    {},
    {
        name: number
        for number, name in enumerate(
            ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
        )
    },
    {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])},
)
_LONGEST_SEARCH: Final = timedelta(days=5 * 366)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron schedule, read; `every` is the period of those that are one."""

    fields: tuple[frozenset[int], ...] = ()
    zone: tzinfo = UTC
    every: float = 0.0
    any_day_of_month: bool = True
    any_day_of_week: bool = True

    @classmethod
    def parse(cls, text: str, zone: tzinfo = UTC) -> "Schedule":
        """Read a schedule that validation has let pass; ValueError where it has not."""
        if text.startswith("@every "):
            try:
                return cls(every=max(1.0, float(int(seconds_of(text[7:].strip())))))
            except MalformedDuration as error:
                raise ValueError(str(error)) from error
        parts = _SHORTHANDS.get(text, text).split()
        if len(parts) != len(_BOUNDS):
            raise ValueError(f"schedule {text!r} does not have five fields")
        fields = tuple(
            frozenset(each for piece in part.split(",") for each in _numbers(piece, bounds, names))
            for part, bounds, names in zip(parts, _BOUNDS, _NAMES, strict=True)
        )
        return cls(
            fields,
            zone,
            any_day_of_month=parts[2].startswith(("*", "?")),
            any_day_of_week=parts[4].startswith(("*", "?")),
        )

    def after(self, moment: float) -> float | None:
        """Return the first time after a moment; None when there is none for years."""
        if self.every:
            return float(int(moment) + self.every)
        minutes, hours, _, months, _ = self.fields
        at = datetime.fromtimestamp(moment, self.zone).replace(second=0, microsecond=0)
        at += timedelta(minutes=1)
        latest = at + _LONGEST_SEARCH
        while at < latest:
            if at.month not in months:
                day = at.replace(day=1, hour=0, minute=0)
                at = (day + timedelta(days=32)).replace(day=1)
            elif not self._is_on_day(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif at.hour not in hours:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif at.minute not in minutes:
                at += timedelta(minutes=1)
            else:
                return at.timestamp()
        return None

    def _is_on_day(self, at: datetime) -> bool:
        in_month = at.day in self.fields[2]
        in_week = at.isoweekday() % 7 in self.fields[4]
        if self.any_day_of_month or self.any_day_of_week:
            return in_month and in_week
        return in_month or in_week


def _numbers(piece: str, bounds: tuple[int, int], names: dict[str, int]) -> Iterator[int]:
    span, _, step = piece.partition("/")
    low, dash, high = span.partition("-")
    if low in ("*", "?"):
        first, last = bounds
    else:
        first = names[low.lower()] if low.lower() in names else int(low)
        # `5/10` goes on to the end; `5` alone does not.
        last = bounds[1] if step else first
        if dash:
            last = names[high.lower()] if high.lower() in names else int(high)
    yield from range(first, min(last, bounds[1]) + 1, int(step or 1))


def read_schedule(text: str, zone_name: str = "") -> Schedule | None:
    """Read a schedule in a time zone, UTC when none is named; None when either makes no sense."""
    text = text.strip()
    first, _, rest = text.partition(" ")
    if first.startswith(("TZ=", "CRON_TZ=")):
        zone_name, text = first.partition("=")[2], rest.strip()
    try:
        return Schedule.parse(text, ZoneInfo(zone_name) if zone_name else UTC)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return None
