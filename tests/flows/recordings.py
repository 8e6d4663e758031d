"""What was recorded and what is here, compared field by field.

Names that differ from run to run (UIDs, permanent IDs) have to differ consistently: each recorded
one stands for one of ours, everywhere. Versions and times only have to be there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_SYMBOL = re.compile(r"<uid:\d+>|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ANYTHING = re.compile(r"<time>|<rv:\d+>")


@dataclass
class Symbols:
    """Which of our names each recorded one stands for."""

    ours: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)

    def match(self, recorded: str, ours: Any) -> bool:
        """Whether two names may be the same; they are from now on, if neither was known."""
        if not isinstance(ours, str) or not ours:
            return False
        known = self.ours.setdefault(recorded, ours)
        return known == ours and self.recorded.setdefault(ours, recorded) == recorded

    def copy(self) -> "Symbols":
        return Symbols(dict(self.ours), dict(self.recorded))

    def take(self, other: "Symbols") -> None:
        self.ours, self.recorded = other.ours, other.recorded


def differences(recorded: Any, ours: Any, symbols: Symbols, at: str = "") -> Iterator[str]:
    """Say where two things differ, as `path: theirs, ours`."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        yield from _of_objects(recorded, ours, symbols, at)
    elif isinstance(recorded, list) and isinstance(ours, list):
        if len(recorded) != len(ours):
            yield f"{at}: {len(recorded)} recorded, {len(ours)} here"
        for number, (one, other) in enumerate(zip(recorded, ours, strict=False)):
            yield from differences(one, other, symbols, f"{at}[{number}]")
    elif not _are_alike(recorded, ours, symbols):
        yield f"{at}: {recorded!r} recorded, {ours!r} here"


def _of_objects(
    recorded: dict[str, Any], ours: dict[str, Any], symbols: Symbols, at: str
) -> Iterator[str]:
    for key in sorted({*recorded, *ours} - {"managedFields"}):
        path = f"{at}[{key}]" if "." in key else f"{at}.{key}".lstrip(".")
        if key not in ours:
            yield f"{path}: {recorded[key]!r} recorded, nothing here"
        elif key not in recorded:
            yield f"{path}: nothing recorded, {ours[key]!r} here"
        else:
            yield from differences(recorded[key], ours[key], symbols, path)


def _are_alike(recorded: Any, ours: Any, symbols: Symbols) -> bool:
    if not isinstance(recorded, str):
        return recorded == ours
    if _ANYTHING.fullmatch(recorded):
        return bool(ours)
    if _SYMBOL.fullmatch(recorded):
        return symbols.match(recorded, ours)
    return recorded == ours
