"""Cron schedules: whether one can be kept, and why not.

    minute  hour  day-of-month  month  day-of-week

Each field is a list of `*`, numbers, names or ranges, any of them with a step; or the whole is
one of the shorthands such as `@daily`.
"""

from typing import Final

_SHORTHANDS: Final = frozenset(
    {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES: Final[tuple[dict[str, int], ...]] = (
    {},
    {},
    {},
    dict(zip(_MONTHS, range(1, 13), strict=True)),
    dict(zip(_DAYS, range(7), strict=True)),
)


def schedule_problem(schedule: str) -> str:
    """Return what is wrong with a cron schedule, or nothing."""
    text = schedule.partition(" ")[2].strip() if "TZ=" in schedule.partition(" ")[0] else schedule
    if text.startswith("@"):
        is_known = text in _SHORTHANDS or text.startswith("@every ")
        return "" if is_known else f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_BOUNDS):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, bounds, names in zip(fields, _BOUNDS, _NAMES, strict=True):
        for part in field.split(","):
            if problem := _part_problem(part, bounds, names):
                return problem
    return ""


def _part_problem(part: str, bounds: tuple[int, int], names: dict[str, int]) -> str:
    span, slash, step = part.partition("/")
    lowest, _, highest = span.partition("-")
    if slash and (not step.isdecimal() or int(step) == 0):
        return _number_problem(step) or f"step of range should be a positive number: {part}"
    if lowest in ("*", "?"):
        return ""
    ends = [lowest, highest] if "-" in span else [lowest]
    for end in ends:
        if end.lower() not in names and (problem := _number_problem(end)):
            return problem
    numbers = [names.get(end.lower(), int(end) if end.isdecimal() else 0) for end in ends]
    return _range_problem(numbers, bounds, part)


def _number_problem(text: str) -> str:
    if text.isdecimal():
        return ""
    return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'


def _range_problem(numbers: list[int], bounds: tuple[int, int], part: str) -> str:
    start, end = numbers[0], numbers[-1]
    if start < bounds[0]:
        return f"beginning of range ({start}) below minimum ({bounds[0]}): {part}"
    if end > bounds[1]:
        return f"end of range ({end}) above maximum ({bounds[1]}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    return ""
