"""Strings, regular expressions, and values written into a text: `'%s of %d'.format([…])`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from clusterspace.errors import MalformedSchema
from clusterspace.kube.causes import quoted
from clusterspace.kube.cel.libraries.standard import double_text, format_seconds, timestamp_text
from clusterspace.kube.cel.types import Library, Type
from clusterspace.kube.cel.values import Duration, EvaluationFailed, Meter, Timestamp, kind_of
from clusterspace.kube.schemas.strings import compile_pattern

LIBRARY: Final = Library()

_ASCII_LOWER: Final = {number: number + 32 for number in range(ord("A"), ord("Z") + 1)}
_ASCII_UPPER: Final = {lower: upper for upper, lower in _ASCII_LOWER.items()}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return compile_pattern(pattern)
    except MalformedSchema as error:
        raise EvaluationFailed(error.message) from error


def _out_of_range(index: int) -> EvaluationFailed:
    return EvaluationFailed(f"index out of range: {index}")


@LIBRARY.method("string.charAt(int) -> string")
def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


@LIBRARY.method("string.indexOf(string) -> int", "string.indexOf(string, int) -> int")
def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start) if start < len(text) or not part else -1


@LIBRARY.method("string.lastIndexOf(string, int) -> int")
def _last_index_before(text: str, part: str, last: int) -> int:
    if last < 0:
        raise _out_of_range(last)
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


@LIBRARY.method("string.substring(int) -> string", "string.substring(int, int) -> string")
def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    for index in (start, last):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    if start > last:
        raise EvaluationFailed(f"invalid substring range. start: {start}, end: {last}")
    return text[start:last]


@LIBRARY.method("string.split(string) -> list(string)", "string.split(string, int) -> list(string)")
def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        kept = len(text) if limit < 0 else limit - 1
        rest = text[kept:]
        return [*text[:kept], *([rest] if rest else [])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


@LIBRARY.method(
    "string.replace(string, string) -> string",
    "string.replace(string, string, int) -> string",
    metered=True,
)
def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    meter.spend((len(text) + count * len(new)) // 10 + 1)
    return text.replace(old, new, limit)


@LIBRARY.method(
    "list(string).join() -> string", "list(string).join(string) -> string", metered=True
)
def _join(meter: Meter, texts: list[Any], separator: str = "") -> str:
    length = sum(len(each) + len(separator) for each in texts if isinstance(each, str))
    meter.spend(length // 10 + len(texts))
    if not all(isinstance(each, str) for each in texts):
        raise EvaluationFailed("no such overload")
    return separator.join(texts)


@LIBRARY.method("string.find(string) -> string")
def _find(text: str, pattern: str) -> str:
    found = _compiled(pattern).search(text)
    return found[0] if found else ""


@LIBRARY.method(
    "string.findAll(string) -> list(string)", "string.findAll(string, int) -> list(string)"
)
def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match[0] for match in _compiled(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


@LIBRARY.function("matches(string, string) -> bool")
@LIBRARY.method("string.matches(string) -> bool")
def _matches(text: str, pattern: str) -> bool:
    return _compiled(pattern).search(text) is not None


_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    chr(number) for number in range(0x2000, 0x200B)
)

LIBRARY.methods(
    {
        "string.startsWith(string) -> bool": lambda text, part: text.startswith(part),
        "string.endsWith(string) -> bool": lambda text, part: text.endswith(part),
        "string.contains(string) -> bool": lambda text, part: part in text,
        "string.lastIndexOf(string) -> int": lambda text, part: text.rfind(part),
        "string.lowerAscii() -> string": lambda text: text.translate(_ASCII_LOWER),
        "string.upperAscii() -> string": lambda text: text.translate(_ASCII_UPPER),
        "string.trim() -> string": lambda text: text.strip(_SPACES),
    }
)
LIBRARY.functions({"strings.quote(string) -> string": quoted})


# Formatting.

_VERB: Final = re.compile(r"%(?:(?P<percent>%)|(?:\.(?P<digits>\d{1,3}))?(?P<verb>[a-zA-Z]))")
_SPECIAL: Final = ("NaN", "+Inf", "-Inf")


@LIBRARY.method("string.format(list(dyn)) -> string", metered=True)
def _format(meter: Meter, pattern: str, args: list[Any]) -> str:
    pieces, at, used = list[str](), 0, 0
    while (percent := pattern.find("%", at)) >= 0:
        pieces.append(pattern[at:percent])
        found = _VERB.match(pattern, percent)
        if found is None:
            raise EvaluationFailed(f"could not parse formatting clause at {percent}")
        at = found.end()
        if found["percent"]:
            pieces.append("%")
            continue
        if used >= len(args):
            raise EvaluationFailed(f"index {used} out of range")
        write = _VERBS.get(found["verb"])
        if write is None:
            clause = f'unrecognized formatting clause "{found["verb"]}"'
            raise EvaluationFailed(f"could not parse formatting clause: {clause}")
        text = write(args[used], 6 if found["digits"] is None else int(found["digits"]))
        meter.spend(len(text) // 10 + 1)
        pieces.append(text)
        used += 1
    return "".join([*pieces, pattern[at:]])


def _refused(what: str, wanted: str, value: Any) -> EvaluationFailed:
    return EvaluationFailed(
        f"error during formatting: {what} clause can only be used on {wanted}, "
        f"was given {kind_of(value)}"
    )


def _text_of(value: Any) -> str:
    """Return any value as `%s` shows it."""
    match value:
        case str():
            return value
        case bytes():
            return value.decode("utf-8", "replace")
        case float():
            return double_text(value)
        case Duration():
            return format_seconds(value)
        case Timestamp():
            return timestamp_text(value)
        case _:
            return _inner_text(value)


def _inner_text(value: Any) -> str:
    """Return a value as it is shown inside of a list or map, where its kind must be seen."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case float():
            return f"{value:.6f}"
        case int():
            return str(int(value))
        case Duration() | Timestamp():
            return f"{kind_of(value)}({quoted(_text_of(value))})"
        case list():
            return f"[{', '.join(_inner_text(each) for each in cast('list[Any]', value))}]"
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            entries = sorted(f"{_inner_text(key)}:{_inner_text(each)}" for key, each in pairs)
            return "{" + ", ".join(entries) + "}"
        case Type():
            return str(value)
        case _:
            raise _refused("string", _SHOWN, value)


_SHOWN: Final = (
    "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
)
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+")


def _whole(value: Any, clause: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(clause, "integers", value)
    return int(value)


def _real(value: Any, clause: str) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return float(value)
    if not isinstance(value, float):
        raise _refused(clause, "doubles", value)
    return value


def _decimal(value: Any, _: int) -> str:
    if isinstance(value, float) and double_text(value) in _SPECIAL:
        return double_text(value)
    return str(_whole(value, "decimal"))


def _scientific(value: Any, _: int) -> str:
    mantissa, exponent = f"{_real(value, 'scientific'):.6e}".split("e")
    return f"{mantissa}×10{exponent.translate(_SUPERSCRIPTS)}"  # noqa: RUF001 - so it is shown


def _hex(value: Any, _: int) -> str:
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, bytes):
        return value.hex()
    return f"{_whole(value, 'hex'):x}"


_VERBS: Final[Mapping[str, Callable[[Any, int], str]]] = {
    "s": lambda value, _: _text_of(value),
    "d": _decimal,
    "f": lambda value, digits: f"{_real(value, 'fixed-point'):.{digits}f}",
    "e": _scientific,
    "b": lambda value, _: f"{value if isinstance(value, bool) else _whole(value, 'binary'):b}",
    "o": lambda value, _: f"{_whole(value, 'octal'):o}",
    "x": _hex,
    "X": lambda value, digits: _hex(value, digits).upper(),
}
