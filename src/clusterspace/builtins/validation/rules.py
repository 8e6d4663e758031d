"""The vocabulary of validation: a check takes a struct and its path and yields what is wrong.

The checks of a struct are listed in the order a kube-apiserver reports them, so that a table of
checks reads like the list of causes a user would get:

    PORT = (well_formed("name", port_name_problems), required("containerPort"))
    CONTAINER = (named("name", dns1123_label_problems), required("image"), each("ports", PORT))

Checks see objects in normal form with their defaults.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.causes import quoted
from clusterspace.kube.names import NameCheck
from clusterspace.kube.objects import Object

Check: TypeAlias = Callable[[Object, str], Iterable[Cause]]
"""Yields what is wrong with a struct found at a path."""

Checks: TypeAlias = Sequence[Check]

Condition: TypeAlias = Callable[[Object], Any]
"""Whether a check applies to a struct."""

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
PORT_RANGE = "must be between 1 and 65535, inclusive"


def at(path: str, field: str) -> str:
    """Return the path of a field."""
    return f"{path}.{field}" if path else field


def check_all(struct: Object, path: str, checks: Checks) -> Iterator[Cause]:
    """Run checks in order."""
    for check in checks:
        yield from check(struct, path)


def structs_in(struct: Object, field: str) -> list[Object]:
    """Return a list of structs, empty when there is none."""
    return cast("list[Object]", struct.get(field) or [])


def struct_in(struct: Object, field: str) -> Object:
    """Return a struct, empty when there is none."""
    return cast("Object", struct.get(field) or {})


def texts_in(struct: Object, field: str) -> list[str]:
    """Return a list of texts, empty when there is none."""
    return cast("list[str]", struct.get(field) or [])


def problems_at(path: str, value: Any, problems: Iterable[str]) -> Iterator[Cause]:
    """Say of a value everything that is wrong with it."""
    return (causes.invalid(path, value, problem) for problem in problems)


def required(field: str, why: str = "") -> Check:
    """Refuse a struct without the field, or with an empty one."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        if not struct.get(field):
            yield causes.required(at(path, field), why)

    return check


def present(field: str, why: str = "") -> Check:
    """Refuse a struct without the field; an empty one will do."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        if struct.get(field) is None:
            yield causes.required(at(path, field), why)

    return check


def well_formed(field: str, problems_of: NameCheck) -> Check:
    """Refuse a text that is there, not empty, and not of the form."""

    def check(struct: Object, path: str) -> Iterable[Cause]:
        text = struct.get(field)
        return problems_at(at(path, field), text, problems_of(text)) if text else ()

    return check


def of_form(field: str, problems_of: NameCheck) -> Check:
    """Refuse a text that is not of the form; a missing one is empty."""

    def check(struct: Object, path: str) -> Iterable[Cause]:
        text = str(struct.get(field) or "")
        return problems_at(at(path, field), text, problems_of(text))

    return check


def if_set(field: str, check: Check) -> Check:
    """Apply a check only where the field is there, empty or not."""
    return lambda struct, path: () if struct.get(field) is None else check(struct, path)


def named(field: str, problems_of: NameCheck) -> Check:
    """Require a text of the form."""

    def check(struct: Object, path: str) -> Iterable[Cause]:
        text = struct.get(field)
        if not text:
            return (causes.required(at(path, field)),)
        return problems_at(at(path, field), text, problems_of(text))

    return check


def supported(field: str, *values: str) -> Check:
    """Refuse a value that is there and not one of these."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        value = struct.get(field)
        if value is not None and value not in values:
            yield causes.not_supported(at(path, field), value, values)

    return check


def one_of(field: str, *values: str) -> Check:
    """Refuse a value that is not one of these; a missing one is empty."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        value = struct.get(field) or ""
        if value not in values:
            yield causes.not_supported(at(path, field), value, values)

    return check


def chosen(field: str, *values: str) -> Check:
    """Require one of these values; a missing one is called missing."""
    is_one = one_of(field, *values)
    is_there = required(field)
    return lambda struct, path: (is_one if struct.get(field) else is_there)(struct, path)


def satisfies(field: str, is_good: Callable[[Any], bool], why: str) -> Check:
    """Refuse a value that is there and not good."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        value = struct.get(field)
        if value is not None and not is_good(value):
            yield causes.invalid(at(path, field), value, why)

    return check


def not_negative(field: str) -> Check:
    """Refuse a number below zero."""
    return satisfies(field, lambda value: value >= 0, NOT_NEGATIVE)


def positive(field: str, why: str = "must be greater than 0") -> Check:
    """Refuse a number that is not above zero."""
    return satisfies(field, lambda value: value > 0, why)


def between(field: str, lowest: int, highest: int, why: str = "") -> Check:
    """Refuse a number outside a range, bounds included."""
    message = why or f"must be between {lowest} and {highest}, inclusive"
    return satisfies(field, lambda value: lowest <= value <= highest, message)


def each(field: str, *checks: Check) -> Check:
    """Check every element of a list of structs."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        for index, element in enumerate(structs_in(struct, field)):
            yield from check_all(element, f"{at(path, field)}[{index}]", checks)

    return check


def inside(field: str, *checks: Check) -> Check:
    """Check a struct that is there."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        inner = struct.get(field)
        if inner is not None:
            yield from check_all(inner, at(path, field), checks)

    return check


def when(condition: Condition, *checks: Check) -> Check:
    """Apply checks only to structs that meet a condition."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        if condition(struct):
            yield from check_all(struct, path, checks)

    return check


def forbidden(field: str, why: str) -> Check:
    """Refuse a struct that has the field at all."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        if struct.get(field) is not None:
            yield causes.forbidden(at(path, field), why)

    return check


def unique(field: str, key: str) -> Check:
    """Refuse list elements that share the value of a key field."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        seen: set[Any] = set()
        for index, element in enumerate(structs_in(struct, field)):
            value = element.get(key)
            if value in seen:
                yield causes.duplicate(f"{at(path, field)}[{index}].{key}", value)
            seen.add(value)

    return check


def not_found(path: str, name: str) -> Cause:
    """Say that a name refers to nothing."""
    return Cause("FieldValueNotFound", f"Not found: {quoted(name)}", path)


def invalid_struct(path: str, struct: Mapping[str, Any] | list[Object], why: str) -> Cause:
    """Say that a struct breaks a rule; unlike a map, a struct is shown in its own order."""
    message = f"Invalid value: {_shown(struct)}"
    return Cause("FieldValueInvalid", f"{message}: {why}" if why else message, path)


def unsupported_struct(
    path: str, struct: Mapping[str, Any], supported_values: Sequence[str]
) -> Cause:
    """Say that a struct is not of a known sort; it is shown in its own order."""
    listed = ", ".join(quoted(value) for value in supported_values)
    message = f"Unsupported value: {_shown(struct)}: supported values: {listed}"
    return Cause("FieldValueNotSupported", message, path)


def duplicate_struct(path: str, struct: Mapping[str, Any], why: str = "") -> Cause:
    """Say that a struct is there twice; it is shown in its own order."""
    message = f"Duplicate value: {_shown(struct)}"
    return Cause("FieldValueDuplicate", f"{message}: {why}" if why else message, path)


def _shown(struct: Mapping[str, Any] | list[Object]) -> str:
    return msgspec.json.encode(struct).decode()


def immutable(new: Any, old: Any, path: str, why: str = IMMUTABLE) -> Iterator[Cause]:
    """Refuse a change; nothing and empty are the same."""
    if (new or None) != (old or None):
        yield causes.invalid(path, new, why)
