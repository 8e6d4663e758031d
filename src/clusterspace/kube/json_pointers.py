"""JSON pointers (RFC 6901): `/metadata/annotations/example.com~1owner` as steps, and back."""

import re
from typing import Final

Steps = tuple[str, ...]
"""The keys and indices from the root to one place, unescaped."""

_BAD_ESCAPE: Final = re.compile(r"~(?![01])")

_LONGEST_INDEX: Final = 9
"""Digits in an index: enough for any list we can hold, too few for int() to refuse."""


def read_pointer(text: str) -> Steps:
    """Return the steps of a pointer; ValueError when it is not one."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError(f"the JSON pointer {text!r} must be empty or start with a slash")
    if "~" not in text:
        return tuple(text[1:].split("/"))
    if _BAD_ESCAPE.search(text):
        raise ValueError(f"the JSON pointer {text!r} has a ~ that is neither ~0 nor ~1")
    # ~1 first: the other way round, ~01 would become a slash.
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def write_pointer(steps: Steps) -> str:
    """Return the pointer text of these steps."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def find_index(step: str, length: int) -> int | None:
    """Return the index a step spells in a list, or None.

    Leading zeros are no index. A sign counts from the end, which RFC 6901 does not know and
    kube-apiserver accepts: `-1` is the last element.
    """
    digits = step.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _LONGEST_INDEX:
        return None
    if digits[0] == "0" and step != "0":
        return None
    index = int(step)
    if index >= 0:
        return index
    return index + length if index + length >= 0 else None
