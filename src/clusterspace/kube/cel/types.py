"""What is known of a value before there is one: the types of the language."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Type:
    """A type by its name; lists, maps and optionals have parameters, objects have fields."""

    name: str
    params: tuple["Type", ...] = ()
    fields: Mapping[str, "Field"] | None = field(default=None, compare=False)
    """By the name an expression uses, which is not always the name in the object."""

    @property
    def is_parameter(self) -> bool:
        """Whether this stands for any type in a signature, the same one each time."""
        return len(self.name) == 1

    def __str__(self) -> str:
        listed = ", ".join(str(param) for param in self.params)
        return f"{self.name}({listed})" if listed else self.name


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: what it is called there, and what it holds."""

    name: str
    type: Type


BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
DYN: Final = Type("dyn")
"""Known only when there is a value."""
UNKNOWN: Final = Type("!error!")
"""The type of what does not compile: it fits everywhere, so that one fault is told once."""

LIST: Final = "list"
MAP: Final = "map"
OPTIONAL: Final = "optional_type"
TYPE: Final = "type"

_NULLABLE: Final = (TIMESTAMP, DURATION)
_LOOSE: Final = (DYN, UNKNOWN)

Bindings: TypeAlias = dict[str, Type]
"""What the parameters of a signature stand for, as far as the arguments have shown."""


def list_of(element: Type) -> Type:
    """Return the type of a list."""
    return Type(LIST, (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map."""
    return Type(MAP, (key, value))


def optional_of(held: Type) -> Type:
    """Return the type of a value that may be missing."""
    return Type(OPTIONAL, (held,))


def is_loose(given: Type) -> bool:
    """Whether only the value will tell."""
    return given in _LOOSE


def fits(wanted: Type, given: Type, bindings: Bindings) -> bool:
    """Tell whether a value of one type may stand where another is wanted; may add bindings."""
    if wanted.is_parameter:
        return _fits_parameter(wanted, given, bindings)
    if is_loose(wanted) or is_loose(given):
        return True
    if NULL in (wanted, given) and wanted != given:
        other = given if wanted == NULL else wanted
        return other.fields is not None or other in _NULLABLE
    if wanted.name != given.name or len(wanted.params) != len(given.params):
        return False
    pairs = zip(wanted.params, given.params, strict=True)
    return all(fits(inner, held, bindings) for inner, held in pairs)


def _fits_parameter(parameter: Type, given: Type, bindings: Bindings) -> bool:
    bound = bindings.get(parameter.name)
    if bound is None or is_loose(given):
        bindings[parameter.name] = given
        return True
    if bound == NULL or is_loose(bound):
        bindings[parameter.name] = given
    return fits(bound, given, bindings)


def resolved(given: Type, bindings: Bindings) -> Type:
    """Return the type with its parameters replaced; what nothing is known of is dynamic."""
    if given.is_parameter:
        return bindings.get(given.name, DYN)
    if not given.params:
        return given
    return Type(given.name, tuple(resolved(param, bindings) for param in given.params))


def joined(left: Type, right: Type) -> Type | None:
    """Return the type of a value that is one or the other; None when they have nothing in common.

    An empty list fits every list, and null fits objects.
    """
    if left in (right, UNKNOWN):
        return right
    if is_loose(left) or is_loose(right):
        return DYN if UNKNOWN not in (left, right) else left
    if fits(left, right, {}):
        return right if left == NULL or DYN in left.params else left
    return None


_WORD: Final = re.compile(r"[A-Za-z_][\w.]*")


def read_type(text: str) -> Type:
    """Read a type as signatures spell it: `map(string, list(A))`."""
    found = _WORD.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no type")
    inner = text[found.end() :].strip()
    if not inner:
        return Type(found[0])
    return Type(found[0], tuple(read_type(part) for part in split_outside(inner[1:-1])))


def split_outside(text: str) -> list[str]:
    """Split at the commas that are not inside parentheses."""
    parts, depth, current = list[str](), 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()] if current.strip() else parts
