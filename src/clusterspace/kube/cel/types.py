"""The types of the language, and the signatures of its functions."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar


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
"""The type of what does not compile: it fits everywhere, so that one fault is reported once."""

LIST: Final = "list"
MAP: Final = "map"
OPTIONAL: Final = "optional_type"
TYPE: Final = "type"

_NULLABLE: Final = (TIMESTAMP, DURATION)

Bindings: TypeAlias = dict[str, Type]
"""What the parameters of a signature stand for, as far as the arguments have shown."""


def list_of(element: Type) -> Type:
    """Return the type of a list."""
    return Type(LIST, (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map."""
    return Type(MAP, (key, value))


def optional_of(content: Type) -> Type:
    """Return the type of a value that may be missing."""
    return Type(OPTIONAL, (content,))


def is_loose(given: Type) -> bool:
    """Whether only a value shows the type."""
    return given in (DYN, UNKNOWN)


def fits(wanted: Type, given: Type, bindings: Bindings) -> bool:
    """Tell whether a value of one type may stand where another is wanted; may add bindings.

    A parameter is bound by the first argument that shows its type. For `_+_(list(A), list(A))`
    and the arguments `[]` and `[1]`, the first binds A to `dyn`, which says nothing, and the
    second binds it again to `int`; a third argument of `list(string)` would not fit any more.
    """
    if wanted.is_parameter:
        bound = bindings.get(wanted.name)
        if bound is None or is_loose(given):
            bindings[wanted.name] = given
            return True
        if bound == NULL or is_loose(bound):
            bindings[wanted.name] = given
        return fits(bound, given, bindings)
    if is_loose(wanted) or is_loose(given):
        return True
    if NULL in (wanted, given) and wanted != given:
        other = given if wanted == NULL else wanted
        return other.fields is not None or other in _NULLABLE
    if wanted.name != given.name or len(wanted.params) != len(given.params):
        return False
    pairs = zip(wanted.params, given.params, strict=True)
    return all(fits(inner, other, bindings) for inner, other in pairs)


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


# Functions are declared in one line each, above the code that runs: `string.charAt(int) -> string`.
# A type of one letter is a parameter and stands for the same type throughout its signature.

Run: TypeAlias = (
    Callable[[], Any]
    | Callable[[Any], Any]
    | Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any, Any], Any]
)
_Declared = TypeVar("_Declared", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function; a method has its receiver as the first argument."""

    args: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    is_method: bool
    is_metered: bool
    """Whether the function pays for its own steps: it takes the meter before its arguments."""

    @property
    def metered_run(self) -> Callable[..., Any]:
        """The function as one that takes the meter, whether or not it pays for its steps."""
        run = self.run

        def unmetered(_: object, *values: Any) -> Any:
            return run(*values)

        return run if self.is_metered else unmetered


class Library:
    """Functions by name, each with its overloads in the order of their declaration.

    The order matters where types are known only at run time: the first overload that takes the
    values is called, and an empty list is taken by every overload that takes lists.
    """

    def __init__(self) -> None:
        self.overloads: dict[str, tuple[Overload, ...]] = {}

    def function(self, *signatures: str, metered: bool = False) -> Callable[[_Declared], _Declared]:
        """Declare the decorated function as `name(args) -> result`; the name may have dots."""

        def declare(run: _Declared) -> _Declared:
            for signature in signatures:
                self._add(signature, run, is_method=False, is_metered=metered)
            return run

        return declare

    def method(self, *signatures: str, metered: bool = False) -> Callable[[_Declared], _Declared]:
        """Declare the decorated function as `receiver.name(args) -> result`."""

        def declare(run: _Declared) -> _Declared:
            for signature in signatures:
                self._add(signature, run, is_method=True, is_metered=metered)
            return run

        return declare

    def functions(self, runs: Mapping[str, Run]) -> None:
        """Declare functions too short for a name of their own."""
        for signature, run in runs.items():
            self._add(signature, run, is_method=False, is_metered=False)

    def methods(self, runs: Mapping[str, Run]) -> None:
        """Declare methods too short for a name of their own."""
        for signature, run in runs.items():
            self._add(signature, run, is_method=True, is_metered=False)

    def _add(
        self, signature: str, run: Callable[..., Any], *, is_method: bool, is_metered: bool
    ) -> None:
        head, _, result = signature.partition(" -> ")
        # The arguments begin at the parenthesis that the last one closes; a receiver such as
        # `list(string)` has parentheses of its own before that.
        depth, at = 0, len(head)
        while at > 0:
            at -= 1
            depth += (head[at] == ")") - (head[at] == "(")
            if depth == 0:
                break
        name = head[:at]
        args = tuple(read_type(part) for part in _split_outside(head[at + 1 : -1]))
        if is_method:
            receiver, _, name = name.rpartition(".")
            args = (read_type(receiver), *args)
        overload = Overload(args, read_type(result), run, is_method, is_metered)
        self.overloads[name] = (*self.overloads.get(name, ()), overload)


_WORD: Final = re.compile(r"[A-Za-z_][\w.]*")


def read_type(text: str) -> Type:
    """Read a type as signatures spell it: `map(string, list(A))`."""
    found = _WORD.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no type")
    inner = text[found.end() :].strip()
    if not inner:
        return Type(found[0])
    return Type(found[0], tuple(read_type(part) for part in _split_outside(inner[1:-1])))


def _split_outside(text: str) -> list[str]:
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
