"""Field paths and values as Kubernetes prints them in refusals: `spec.containers[0].image`.

A path is a tuple of steps, and becomes text only when there is something to say about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec


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
    text = _whole_text(value if not isinstance(value, str) else value[:_LONGEST_SHOWN])
    is_cut = len(text) > _LONGEST_SHOWN
    return f"{text[:_LONGEST_SHOWN]}..." if is_cut else text


def _whole_text(value: Any) -> str:
    match value:
        case str():
            return quoted(value)
        case bool() | None:
            return "null" if value is None else str(value).lower()
        case int() | float():
            return number_text(value)
        case _:
            text = msgspec.json.encode(value, order="sorted").decode()
            return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
