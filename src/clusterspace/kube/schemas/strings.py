"""What a schema may ask of a string: a pattern, as RE2 reads it, or a format that has a name."""

import ipaddress
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache, lru_cache
from itertools import groupby
from typing import Final

from clusterspace.errors import MalformedSchema

# Patterns: regular expressions as Kubernetes reads them (RE2), compiled for Python's `re`. The two
# agree on most of what schemas contain. Where they differ, the pattern is rewritten to mean here
# what it means there; what RE2 does not have (look-around, back-references) is refused, and so is
# the little that cannot be rewritten (Unicode scripts, flags in the middle of a pattern).
# https://github.com/google/re2/wiki/Syntax

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
    for inside, group in groupby(_runs(), lambda run: run[0].startswith(category) != negated):
        runs = list(group)
        if inside:
            ranges.append(f"\\U{runs[0][1]:08x}-\\U{runs[-1][2]:08x}")
    return "".join(ranges)


@cache
def _runs() -> tuple[tuple[str, int, int], ...]:
    """Return all of Unicode as runs of one category: first and last character of each."""
    runs, start = list[tuple[str, int, int]](), 0
    for category, run in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        behind = start + sum(1 for _ in run)
        runs.append((category, start, behind - 1))
        start = behind
    return tuple(runs)


# Formats: those that Kubernetes checks in custom resources, by name. A format that is not here is
# documentation: Kubernetes ignores it, and so do we.

_DATE_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[tT]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([zZ]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_GO_DURATION: Final = re.compile(
    r"[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)",
    re.ASCII,
)
_WORDY_DURATION: Final = re.compile(
    r"\d+\s*(?:ns|nano|us|µs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|wk|week)", re.IGNORECASE
)
_MAC: Final = re.compile(
    r"(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}(?:[0-9a-f]{2}\1){0,2}[0-9a-f]{2}"
    r"|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}(?:\.[0-9a-f]{4})?)",
    re.IGNORECASE,
)
_URI: Final = re.compile(
    r"(?:/|[a-z][a-z0-9+.-]*:)(?:[^\x00-\x20\x7f%]|%[0-9a-f]{2})*", re.IGNORECASE
)
_EMAIL: Final = re.compile(r'(?:[^<>@]*<)?(?:[^\s@<>,;:"()]+|"[^"]*")@[^\s@<>,;:()]+')
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9a-fA-F:])0+(?=\d)")
_CARD: Final = re.compile(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|(?:2131|1800|35\d{3})\d{11}",
    re.ASCII,
)
_SHORT_NAME: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_BYTE: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LONGEST_HOSTNAME: Final = 255
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253


def _matching(pattern: str, *, longest: int | None = None) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: bool(compiled.fullmatch(text)) and len(text) <= (longest or len(text))


def is_date(text: str) -> bool:
    """Check a day: `2006-01-02`."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def is_date_time(text: str) -> bool:
    """Check a moment: `2006-01-02T15:04:05Z`."""
    found = _DATE_TIME.fullmatch(text)
    return found is not None and is_date(found["date"])


def is_duration(text: str) -> bool:
    """Check a span: `1h30m` as Go writes it, or words as in `22 days`."""
    return bool(_GO_DURATION.fullmatch(text) or _WORDY_DURATION.search(text))


def is_hostname(text: str) -> bool:
    """Check a host name: labels of letters, digits and inner dashes, any script."""
    labels = text.split(".")
    is_qualified = len(labels) > 1
    return (
        len(text) <= _LONGEST_HOSTNAME
        and (not is_qualified or (len(labels[-1]) > 1 and labels[-1].isalpha()))
        and all(
            0 < len(label) <= _LONGEST_LABEL
            and not label.startswith("-")
            and not label.endswith("-")
            and all(
                (character.isalnum() or character == "-")
                if character.isascii()
                else unicodedata.category(character)[0] in "LS"
                for character in label
            )
            for label in labels
        )
    )


def is_ipv4(text: str) -> bool:
    """Check an address written with dots, which an IPv6 one may be too."""
    return "." in text and _is_address(text)


def is_ipv6(text: str) -> bool:
    """Check an address written with colons."""
    return ":" in text and _is_address(text)


def is_cidr(text: str) -> bool:
    """Check a network: an address and how many bits of it count."""
    address, slash, bits = text.partition("/")
    is_number = bits.isascii() and bits.isdigit()
    widest = 128 if ":" in address else 32
    return bool(slash) and is_number and int(bits[:4]) <= widest and _is_address(address)


def _is_address(text: str) -> bool:
    try:
        # Kubernetes forgives leading zeros, as Go did before 1.17; zones it never took.
        ipaddress.ip_address(_LEADING_ZEROS.sub("", text))
    except ValueError:
        return False
    return "%" not in text


def is_email(text: str) -> bool:
    """Check an address, alone or after a name: `Ann <ann@example.com>`."""
    body = text[:-1] if "<" in text and text.endswith(">") else text
    return bool(_EMAIL.fullmatch(body)) and ("<" in body) == (body != text)


def is_isbn10(text: str) -> bool:
    """Check a ten-digit book number and its check digit."""
    digits = _without_separators(text)
    if not re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII):
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(weight * value for weight, value in enumerate(values, 1)) % 11 == 0


def is_isbn13(text: str) -> bool:
    """Check a thirteen-digit book number and its check digit."""
    digits = _without_separators(text)
    if not re.fullmatch(r"\d{13}", digits, re.ASCII):
        return False
    return sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits)) % 10 == 0


def is_credit_card(text: str) -> bool:
    """Check a card number: a known range, and the Luhn sum."""
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value // 10 + value % 10 for value in doubled) % 10 == 0


def _without_separators(text: str) -> str:
    return re.sub(r"[\s-]+", "", text)


_UUID: Final = r"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}-?{variant}-?[0-9a-f]{{12}}"
_ANY_FOUR: Final = "[0-9a-f]{4}"
_VARIANT: Final = "[89ab][0-9a-f]{3}"

FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "bsonobjectid": _matching(r"[0-9a-fA-F]{24}"),
    # No bytes at all are bytes too: Secrets have them.
    "byte": _matching(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "cidr": is_cidr,
    "creditcard": is_credit_card,
    "date": is_date,
    "datetime": is_date_time,
    "duration": is_duration,
    "email": is_email,
    "hexcolor": _matching(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "k8slongname": _matching(rf"{_SHORT_NAME}(?:\.{_SHORT_NAME})*", longest=_LONGEST_NAME),
    "k8sshortname": _matching(_SHORT_NAME, longest=_LONGEST_LABEL),
    "mac": lambda text: bool(_MAC.fullmatch(text)),
    "password": lambda _: True,
    "rgbcolor": _matching(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "ssn": _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": lambda text: bool(_URI.fullmatch(text)),
    "uuid": _matching(_UUID.format(version=_ANY_FOUR, variant=_ANY_FOUR)),
    "uuid3": _matching(_UUID.format(version="3[0-9a-f]{3}", variant=_ANY_FOUR)),
    "uuid4": _matching(_UUID.format(version="4[0-9a-f]{3}", variant=_VARIANT)),
    "uuid5": _matching(_UUID.format(version="5[0-9a-f]{3}", variant=_VARIANT)),
}


def find_format(name: str) -> Callable[[str], bool] | None:
    """Return the check of a format; dashes in the name do not count (`date-time`)."""
    return FORMATS.get(name.replace("-", ""))
