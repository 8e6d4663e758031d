"""The causes of a refusal as Kubernetes words them: the place, the value, and one of its reasons.

A path is a tuple of steps and becomes text only when there is something to say about it:
`spec.containers[0].image`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.errors import Cause


class Key(str):
    """A step to one value of a map with free keys."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Element:
    """A step to the element of a `map` list that has these values in its key fields."""

    keys: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return ",".join(f"{name}={value_text(value)}" for name, value in self.keys)


Step: TypeAlias = str | int | Key | Element
Steps: TypeAlias = tuple[Step, ...]

NO_PATH: Final = "<nil>"
"""What Kubernetes prints where a refusal is about no place in particular."""

# Beyond this Go prints a float with an exponent, and Python would print digits it does not hold.
_LARGEST_PLAIN_FLOAT: Final = 1e21

_LONGEST_SHOWN: Final = 16_384
"""Characters of a value that a refusal shows."""

_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def field_text(steps: Sequence[Step], root: str = "") -> str:
    """Return the path of a field error: `metadata.labels[key]`, `spec.containers[0].image`."""
    text = root
    for step in steps:
        if isinstance(step, int | Key | Element):
            text = f"{text}[{step}]"
        else:
            text = f"{text}.{step}" if text else step
    return text or NO_PATH


def dotted_text(steps: Sequence[Step], root: str = "") -> str:
    """Return the path as schema validation and the decoder write it: free keys after a dot."""
    text = root
    for step in steps:
        if isinstance(step, int | Element):
            text = f"{text}[{step}]"
        else:
            text = f"{text}.{step}" if text else str(step)
    return text


def value_text(value: Any) -> str:
    """Return a value as field errors show it: quoted, as a bare number, or as compact JSON.

    A long one is cut: a refusal may name a hundred values, and each may be the whole body.
    """
    match value:
        case str():
            # Cut before it is quoted, which takes time by the character, and again below: quotes
            # and escapes make it longer.
            text = quoted(value[:_LONGEST_SHOWN])
        case bool() | None:
            text = "null" if value is None else str(value).lower()
        case int() | float():
            text = number_text(value)
        case _:
            text = msgspec.json.encode(value, order="sorted").decode()
            text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f"{text[:_LONGEST_SHOWN]}..." if len(text) > _LONGEST_SHOWN else text


def number_text(number: float) -> str:
    """Return a number in its shortest form: 3.0 is `3`."""
    if isinstance(number, float) and number.is_integer() and abs(number) < _LARGEST_PLAIN_FLOAT:
        return str(int(number))
    return str(number)


def quoted(text: str) -> str:
    """Return the text in double quotes, with whatever would not print escaped."""
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


# Causes: one function for each of Kubernetes' reasons.

MOST: Final = 100
"""How many causes a refusal names: whoever has so many mends the first and asks again."""


def first(found: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return as many causes as a refusal names, and one more if there is one."""
    return tuple(islice(found, MOST + 1))


def required(field: str, detail: str = "") -> Cause:
    """Say that a value must be there."""
    message = f"Required value: {detail}" if detail else "Required value"
    return Cause("FieldValueRequired", message, field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """Say that a value breaks a rule."""
    return Cause("FieldValueInvalid", f"Invalid value: {value_text(value)}: {detail}", field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """Say that a value has the wrong type."""
    return Cause("FieldValueTypeInvalid", f"Invalid value: {value_text(value)}: {detail}", field)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    """Say that a value is none of those allowed."""
    detail = f"supported values: {', '.join(quoted(allowed) for allowed in supported)}"
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {value_text(value)}: {detail}", field
    )


def forbidden(field: str, detail: str) -> Cause:
    """Say that a value must not be there."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def duplicate(field: str, value: Any) -> Cause:
    """Say that a value is there twice and must not be."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {value_text(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """Say that a text is too long; Kubernetes says bytes even where it counts characters."""
    unit = "byte" if limit == 1 else "bytes"
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} {unit}", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """Say that a list or map has too many members."""
    unit = "item" if limit == 1 else "items"
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} {unit}", field)
