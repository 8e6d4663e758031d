"""`'%s of %d'.format([…])`: values written into a text."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.libraries.operators import double_text, format_seconds
from clusterspace.kube.cel.libraries.times import timestamp_text
from clusterspace.kube.cel.signatures import method
from clusterspace.kube.cel.types import Type
from clusterspace.kube.cel.values import Duration, Meter, Timestamp, kind_of
from clusterspace.kube.field_paths import quoted

_VERB: Final = re.compile(r"%(?:(?P<percent>%)|(?:\.(?P<digits>\d{1,3}))?(?P<verb>[a-zA-Z]))")
_SPECIAL: Final = ("NaN", "+Inf", "-Inf")


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
        text = _written(found["verb"], found["digits"], args[used])
        meter.spend(len(text) // 10 + 1)
        pieces.append(text)
        used += 1
    return "".join([*pieces, pattern[at:]])


def _written(verb: str, digits: str | None, value: Any) -> str:
    write = _VERBS.get(verb)
    if write is None:
        why = f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        raise EvaluationFailed(why)
    return write(value, 6 if digits is None else int(digits))


def _refused(what: str, wanted: str, value: Any) -> EvaluationFailed:
    return EvaluationFailed(
        f"error during formatting: {what} clause can only be used on {wanted}, "
        f"was given {kind_of(value)}"
    )


def text_of(value: Any) -> str:
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
            return f"{kind_of(value)}({quoted(text_of(value))})"
        case list():
            return f"[{', '.join(_inner_text(each) for each in cast('list[Any]', value))}]"
        case dict():
            held = cast("dict[Any, Any]", value)
            entries = sorted(f"{_inner_text(key)}:{_inner_text(held[key])}" for key in held)
            return "{" + ", ".join(entries) + "}"
        case Type():
            return str(value)
        case _:
            raise _refused("string", _SHOWN, value)


_SHOWN: Final = (
    "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
)
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+")


def _as_text(value: Any, _: int) -> str:
    return text_of(value)


def _as_decimal(value: Any, _: int) -> str:
    if isinstance(value, float) and double_text(value) in _SPECIAL:
        return double_text(value)
    return str(_whole(value, "decimal"))


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(what, "integers", value)
    return int(value)


def _as_fixed(value: Any, digits: int) -> str:
    return f"{_real(value, 'fixed-point'):.{digits}f}"


def _as_scientific(value: Any, _: int) -> str:
    mantissa, exponent = f"{_real(value, 'scientific'):.6e}".split("e")
    return f"{mantissa}×10{exponent.translate(_SUPERSCRIPTS)}"  # noqa: RUF001 - so it is shown


def _real(value: Any, what: str) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return float(value)
    if not isinstance(value, float):
        raise _refused(what, "doubles", value)
    return value


def _as_binary(value: Any, _: int) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return f"{_whole(value, 'binary'):b}"


def _as_octal(value: Any, _: int) -> str:
    return f"{_whole(value, 'octal'):o}"


def _as_hex(value: Any, _: int) -> str:
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, bytes):
        return value.hex()
    return f"{_whole(value, 'hex'):x}"


_VERBS: Final[Mapping[str, Callable[[Any, int], str]]] = {
    "s": _as_text,
    "d": _as_decimal,
    "f": _as_fixed,
    "e": _as_scientific,
    "b": _as_binary,
    "o": _as_octal,
    "x": _as_hex,
    "X": lambda value, digits: _as_hex(value, digits).upper(),
}

FUNCTIONS: Final = (method("string.format(list(dyn)) -> string", _format, metered=True),)
