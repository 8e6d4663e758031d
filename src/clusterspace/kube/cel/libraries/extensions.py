"""CEL's extensions: strings, regular expressions and `format`; lists, sets and optionals."""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, cast

from clusterspace.errors import MalformedSchema
from clusterspace.kube.causes import quoted
from clusterspace.kube.cel.libraries.standard import double_text, format_seconds, timestamp_text
from clusterspace.kube.cel.types import Library, Type
from clusterspace.kube.cel.values import (
    NONE,
    Duration,
    EvaluationFailed,
    Meter,
    Optional,
    Timestamp,
    checked_int,
    checked_uint,
    contains,
    equals,
    kind_of,
)
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


# Formatting: values written into a text, `'%s of %d'.format([…])`.

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


# Lists, sets and optionals.

_ORDERED: Final = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")


@LIBRARY.method(*(f"list({kind}).isSorted() -> bool" for kind in _ORDERED))
def _is_sorted(elements: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(elements))


@LIBRARY.method(*(f"list({kind}).min() -> {kind}" for kind in _ORDERED))
def _smallest(elements: list[Any]) -> Any:
    if not elements:
        raise EvaluationFailed("min called on empty list")
    return min(elements)


@LIBRARY.method(*(f"list({kind}).max() -> {kind}" for kind in _ORDERED))
def _largest(elements: list[Any]) -> Any:
    if not elements:
        raise EvaluationFailed("max called on empty list")
    return max(elements)


LIBRARY.methods({f"list({kind}).sort() -> list({kind})": sorted for kind in _ORDERED})
LIBRARY.methods(
    {
        "list(int).sum() -> int": lambda elements: checked_int(sum(elements)),
        "list(uint).sum() -> uint": lambda elements: checked_uint(sum(elements)),
        "list(double).sum() -> double": lambda elements: float(sum(elements)),
        "list(duration).sum() -> duration": lambda elements: Duration(
            sum(each.nanos for each in elements)
        ),
        "list(A).reverse() -> list(A)": lambda elements: elements[::-1],
    }
)


@LIBRARY.method("list(A).indexOf(A) -> int", metered=True)
def _element_index(meter: Meter, elements: list[Any], wanted: Any) -> int:
    found = (index for index, each in enumerate(elements) if equals(meter, each, wanted))
    return next(found, -1)


@LIBRARY.method("list(A).lastIndexOf(A) -> int", metered=True)
def _last_element_index(meter: Meter, elements: list[Any], wanted: Any) -> int:
    places = range(len(elements) - 1, -1, -1)
    return next((index for index in places if equals(meter, elements[index], wanted)), -1)


@LIBRARY.method(
    "list(dyn).flatten() -> list(dyn)", "list(dyn).flatten(int) -> list(dyn)", metered=True
)
def _flatten(meter: Meter, elements: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationFailed("level must be non-negative")
    flat: list[Any] = []
    for each in elements:
        inner = cast("list[Any]", each) if isinstance(each, list) else None
        if inner is not None and depth > 0:
            flat.extend(_flatten(meter, inner, depth - 1))
        else:
            flat.append(each)
    meter.spend(len(flat))
    return flat


@LIBRARY.method("list(A).distinct() -> list(A)", metered=True)
def _distinct(meter: Meter, elements: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for each in elements:
        if not contains(meter, kept, each):
            kept.append(each)
    return kept


@LIBRARY.method("list(A).slice(int, int) -> list(A)")
def _slice(elements: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(elements):
        why = f"cannot slice({start}, {end}), list is length {len(elements)}"
        raise EvaluationFailed(why)
    return elements[start:end]


@LIBRARY.function("lists.range(int) -> list(int)", metered=True)
def _range(meter: Meter, count: int) -> list[int]:
    meter.spend(max(count, 0))
    return list(range(count))


@LIBRARY.function("sets.contains(list(A), list(A)) -> bool", metered=True)
def _includes(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return all(contains(meter, left, each) for each in right)


@LIBRARY.function("sets.equivalent(list(A), list(A)) -> bool", metered=True)
def _equivalent(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return _includes(meter, left, right) and _includes(meter, right, left)


@LIBRARY.function("sets.intersects(list(A), list(A)) -> bool", metered=True)
def _intersects(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return any(contains(meter, left, each) for each in right)


@LIBRARY.function("optional.ofNonZeroValue(A) -> optional_type(A)")
def _of_non_zero(value: Any) -> Optional:
    is_zero = value is None or value in (False, 0, 0.0, "", b"") or value in ([], {})
    return NONE if is_zero or value == Duration(0) else Optional(value, is_present=True)


@LIBRARY.function("_[?_](list(A), int) -> optional_type(A)")
def _optional_element(elements: list[Any], index: int) -> Optional:
    if 0 <= index < len(elements):
        return Optional(elements[index], is_present=True)
    return NONE


@LIBRARY.function("_[?_](map(K, V), K) -> optional_type(V)")
def _optional_value(entries: dict[Any, Any], key: Any) -> Optional:
    return Optional(entries[key], is_present=True) if key in entries else NONE


@LIBRARY.function(
    "_[?_](optional_type(list(A)), int) -> optional_type(A)",
    "_[?_](optional_type(map(K, V)), K) -> optional_type(V)",
    "_[_](optional_type(list(A)), int) -> optional_type(A)",
    "_[_](optional_type(map(K, V)), K) -> optional_type(V)",
)
def _member_of_optional(collection: Optional, index: Any) -> Optional:
    if not collection.is_present:
        return NONE
    if isinstance(collection.content, list):
        return _optional_element(cast("list[Any]", collection.content), index)
    return _optional_value(collection.content, index)


LIBRARY.functions(
    {
        "optional.of(A) -> optional_type(A)": lambda value: Optional(value, is_present=True),
        "optional.none() -> optional_type(A)": lambda: NONE,
    }
)
LIBRARY.methods(
    {
        "list(A).first() -> optional_type(A)": lambda elements: _optional_element(elements, 0),
        "list(A).last() -> optional_type(A)": lambda elements: _optional_element(
            elements, len(elements) - 1
        ),
        "optional_type(A).hasValue() -> bool": lambda optional: optional.is_present,
        "optional_type(A).value() -> A": Optional.value,
        "optional_type(A).or(optional_type(A)) -> optional_type(A)": lambda left, right: (
            left if left.is_present else right
        ),
        "optional_type(A).orValue(A) -> A": lambda left, other: (
            left.content if left.is_present else other
        ),
    }
)
