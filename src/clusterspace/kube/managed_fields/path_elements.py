"""One step of a path to a field, in the form `fieldsV1` writes it.

    f:replicas                       the field `replicas`
    k:{"name":"web"}                 the list element with this key; several keys are sorted
    v:"example.com/f"                the element of a set with this value
    i:0                              the element at this place

Steps are kept as this text: two steps are the same exactly when their texts are, which spares us
Python's opinion that 1 is True.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import MalformedObject

FIELD: Final = "f:"
KEY: Final = "k:"
VALUE: Final = "v:"
INDEX: Final = "i:"

# Go's encoder escapes these inside strings, so the stored texts of a real server have them so.
_ESCAPED_BY_GO: Final = re.compile("[<>&\u2028\u2029]")
_GO_ESCAPES: Final = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})

_to_json: Final = msgspec.json.Encoder(order="sorted").encode

# From here on Go prints a whole number with an exponent; until here as an integer.
_FIRST_EXPONENT: Final = 1e21


def key_element(keys: Mapping[str, Any]) -> str:
    """Return the step to the list element that has these key fields."""
    return KEY + _written({name: _whole(value) for name, value in keys.items()})


def value_element(value: Any) -> str:
    """Return the step to the set element that has this value."""
    return VALUE + _written(_whole(value))


def canonical(element: str) -> str | None:
    """Return a step as we would write it; None for a kind of step we have never heard of.

    Unknown kinds are skipped, not refused: a newer server may know what they are.
    """
    kind, text = element[:2], element[2:]
    if len(kind) < 2 or kind[1] != ":":
        raise _unreadable(element)
    if kind == FIELD:
        return element
    if kind == VALUE:
        return value_element(_read_json(element))
    if kind == KEY:
        return key_element(_read_keys(element))
    if kind == INDEX:
        return f"{INDEX}{_read_index(element, text)}"
    return None


def as_text(element: str) -> str:
    """Return a step as messages show it: `.replicas`, `[name="web"]`, `[="x"]`, `[0]`."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return f".{text}"
    if kind == VALUE:
        return f"[={_shown(_read_json(element))}]"
    if kind == KEY:
        keys = _read_keys(element)
        return "[" + ",".join(f"{name}={_shown(keys[name])}" for name in sorted(keys)) + "]"
    return f"[{text}]"


def _written(value: Any) -> str:
    """Return compact JSON with sorted keys, as Go's encoder would have it."""
    text = _to_json(value).decode()
    return text.translate(_GO_ESCAPES) if _ESCAPED_BY_GO.search(text) else text


def _whole(value: Any) -> Any:
    """Return 1.0 as 1, since JSON has one kind of number."""
    is_whole = type(value) is float and value.is_integer() and abs(value) < _FIRST_EXPONENT
    return int(value) if is_whole else value


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _read_json(element: str) -> Any:
    try:
        return msgspec.json.decode(element[2:])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise _unreadable(element) from error


def _read_keys(element: str) -> dict[str, Any]:
    keys = _read_json(element)
    if not isinstance(keys, dict):
        raise _unreadable(element)
    return cast("dict[str, Any]", keys)


def _read_index(element: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise _unreadable(element) from error


def _unreadable(element: str) -> MalformedObject:
    return MalformedObject(f"{element!r} is not a path element of fieldsV1", place=element)
