"""Strings and regular expressions."""

import re
from collections.abc import Callable
from typing import Any, Final

from clusterspace.errors import MalformedSchema
from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.signatures import function, method
from clusterspace.kube.cel.values import Meter
from clusterspace.kube.field_paths import quoted
from clusterspace.kube.schemas.checks.patterns import compile_pattern

_ASCII_LOWER: Final = {number: number + 32 for number in range(ord("A"), ord("Z") + 1)}
_ASCII_UPPER: Final = {lower: upper for upper, lower in _ASCII_LOWER.items()}


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern, or fail."""
    try:
        return compile_pattern(pattern)
    except MalformedSchema as error:
        raise EvaluationFailed(error.message) from error


def _out_of_range(index: int) -> EvaluationFailed:
    return EvaluationFailed(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start) if start < len(text) or not part else -1


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_before(text: str, part: str, last: int) -> int:
    if last < 0:
        raise _out_of_range(last)
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    for index in (start, last):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    if start > last:
        raise EvaluationFailed(f"invalid substring range. start: {start}, end: {last}")
    return text[start:last]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        kept = len(text) if limit < 0 else limit - 1
        rest = text[kept:]
        return [*text[:kept], *([rest] if rest else [])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    meter.spend((len(text) + count * len(new)) // 10 + 1)
    return text.replace(old, new, limit)


def _join(meter: Meter, texts: list[Any], separator: str = "") -> str:
    length = sum(len(each) + len(separator) for each in texts if isinstance(each, str))
    meter.spend(length // 10 + len(texts))
    if not all(isinstance(each, str) for each in texts):
        raise EvaluationFailed("no such overload")
    return separator.join(texts)


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match[0] for match in compiled(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _matches(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def _trim(text: str) -> str:
    return text.strip("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + _SPACES)


_SPACES: Final = "".join(chr(number) for number in range(0x2000, 0x200B))

_starts: Final[Callable[[str, str], bool]] = str.startswith
_ends: Final[Callable[[str, str], bool]] = str.endswith

FUNCTIONS: Final = (
    method("string.startsWith(string) -> bool", _starts),
    method("string.endsWith(string) -> bool", _ends),
    method("string.contains(string) -> bool", lambda text, part: part in text),
    method("string.matches(string) -> bool", _matches),
    function("matches(string, string) -> bool", _matches),
    method("string.charAt(int) -> string", _char_at),
    method("string.indexOf(string) -> int", _index_of),
    method("string.indexOf(string, int) -> int", _index_of),
    method("string.lastIndexOf(string) -> int", _last_index_of),
    method("string.lastIndexOf(string, int) -> int", _last_index_before),
    method("string.lowerAscii() -> string", lambda text: text.translate(_ASCII_LOWER)),
    method("string.upperAscii() -> string", lambda text: text.translate(_ASCII_UPPER)),
    method("string.replace(string, string) -> string", _replace, metered=True),
    method("string.replace(string, string, int) -> string", _replace, metered=True),
    method("string.split(string) -> list(string)", _split),
    method("string.split(string, int) -> list(string)", _split),
    method("string.substring(int) -> string", _substring),
    method("string.substring(int, int) -> string", _substring),
    method("string.trim() -> string", _trim),
    method("list(string).join() -> string", _join, metered=True),
    method("list(string).join(string) -> string", _join, metered=True),
    function("strings.quote(string) -> string", quoted),
    method("string.find(string) -> string", _find),
    method("string.findAll(string) -> list(string)", _find_all),
    method("string.findAll(string, int) -> list(string)", _find_all),
)
