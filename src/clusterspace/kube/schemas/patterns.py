"""Regular expressions as Kubernetes reads them (RE2), compiled for Python's `re`.

The two agree on most of what schemas contain. Where they differ, the pattern is rewritten to mean
here what it means there; what RE2 does not have (look-around, back-references) is refused, and so
is the little that cannot be rewritten (Unicode scripts, flags in the middle of a pattern).
https://github.com/google/re2/wiki/Syntax
"""

import re
import sys
import unicodedata
from functools import cache, lru_cache
from typing import Final

from clusterspace.errors import MalformedSchema

_POSIX_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_WHITE: Final = "\\t\\n\\f\\r "  # RE2's \s; Python's has \v as well
_SAME_ESCAPES: Final = frozenset("ABDWSabdfnrtvwx0")
_GROUP_START: Final = re.compile(
    r"\(\?(?:P?<(?P<name>\w+)>|(?P<flags>[ims]*(?:-[ims]+)?)(?P<end>[:)]))"
)
_UNICODE_CLASS: Final = re.compile(r"\\(?P<kind>[pP])(?:\{(?P<long>\^?\w+)\}|(?P<short>[A-Z]))")
_POSIX_CLASS: Final = re.compile(r"\[:(?P<not>\^?)(?P<name>\w+):\]")
_HEX: Final = re.compile(r"\\x\{(?P<digits>[0-9A-Fa-f]{1,6})\}")
_POSSESSIVE: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+")


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern; raise MalformedSchema for what RE2 or we cannot read."""
    try:
        return re.compile(_Translation(pattern).text(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise MalformedSchema(f"cannot read the pattern {pattern!r}: {error}") from error


class _Translation:
    """One pass over a pattern, piece by piece."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._is_in_class = False
        leading_flags = re.match(r"\(\?([a-z]+)", pattern)
        self._is_multiline = leading_flags is not None and "m" in leading_flags[1]

    def text(self) -> str:
        pieces: list[str] = []
        while self._at < len(self._pattern):
            pieces.append(self._class_piece() if self._is_in_class else self._piece())
        return "".join(pieces)

    def _piece(self) -> str:
        match self._pattern[self._at]:
            case "\\":
                return self._escape()
            case "[":
                self._is_in_class = True
                opening = "[^" if self._pattern.startswith("[^", self._at) else "["
                # A closing bracket that comes first stands for itself.
                if self._pattern.startswith("]", self._at + len(opening)):
                    return self._take(len(opening) + 1, opening + "\\]")
                return self._take(len(opening), opening)
            case "$" if not self._is_multiline:
                return self._take(1, r"\Z")
            case "(" if self._pattern.startswith("(?", self._at):
                found = _GROUP_START.match(self._pattern, self._at)
                if found is None:
                    raise self._refusal("a kind of group that RE2 does not have")
                if found["name"]:
                    return self._take(len(found[0]), f"(?P<{found['name']}>")
                if found["end"] == ")" and self._at > 0:
                    raise self._refusal("flags in the middle of a pattern")
                return self._take(len(found[0]), found[0])
            case "*" | "+" | "?" | "{" if _POSSESSIVE.match(self._pattern, self._at):
                raise self._refusal("a repetition of a repetition")
            case character:
                return self._take(1, character)

    def _escape(self) -> str:
        found = _UNICODE_CLASS.match(self._pattern, self._at)
        if found is not None:
            name = found["long"] or found["short"]
            negated = (found["kind"] == "P") != name.startswith("^")
            ranges = _category_ranges(name.removeprefix("^"), negated)
            if not ranges:
                raise self._refusal(f"the character class {found[0]}")
            return self._take(len(found[0]), ranges if self._is_in_class else f"[{ranges}]")
        found = _HEX.match(self._pattern, self._at)
        if found is not None:
            number = int(found["digits"], 16)
            if number > sys.maxunicode:
                raise self._refusal("a character beyond Unicode")
            return self._take(len(found[0]), f"\\U{number:08x}")
        character = self._pattern[self._at + 1 : self._at + 2]
        if character == "Q":
            # Everything up to \\E, or to the end, stands for itself.
            quoted, ending, _ = self._pattern[self._at + 2 :].partition(r"\E")
            return self._take(2 + len(quoted) + len(ending), re.escape(quoted))
        if character == "s":
            return self._take(2, _WHITE if self._is_in_class else f"[{_WHITE}]")
        if character == "z" and not self._is_in_class:
            return self._take(2, r"\Z")
        if character in _SAME_ESCAPES or not character.isascii() or not character.isalnum():
            return self._take(2, "\\" + character)
        raise self._refusal(f"the escape \\{character}")

    def _class_piece(self) -> str:
        found = _POSIX_CLASS.match(self._pattern, self._at)
        if found is not None:
            ranges = _POSIX_CLASSES.get(found["name"])
            if ranges is None or found["not"]:
                raise self._refusal(f"the character class {found[0]}")
            return self._take(len(found[0]), ranges)
        before, after = self._pattern[self._at - 1], self._pattern[self._at + 1 : self._at + 2]
        match self._pattern[self._at]:
            case "\\":
                return self._escape()
            case "]":
                self._is_in_class = False
                return self._take(1, "]")
            case "-" if before in "[^-" or after == "]":
                return self._take(1, "\\-")
            case "[" | "&" | "|" | "~" as character:
                return self._take(1, "\\" + character)  # bare ones are reserved in Python
            case character:
                return self._take(1, character)

    def _take(self, length: int, translated: str) -> str:
        self._at += length
        return translated

    def _refusal(self, what: str) -> MalformedSchema:
        return MalformedSchema(f"cannot read the pattern {self._pattern!r}: it has {what}")


@cache
def _category_ranges(category: str, negated: bool) -> str:
    """Return the characters of a Unicode category (`L`, `Nd`) as ranges for a class."""
    ranges: list[str] = []
    start = -1
    for number in range(sys.maxunicode + 2):
        inside = number <= sys.maxunicode and negated != unicodedata.category(
            chr(number)
        ).startswith(category)
        if inside and start < 0:
            start = number
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{number - 1:08x}")
            start = -1
    return "".join(ranges)
