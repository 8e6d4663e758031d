"""The causes of a refusal as Kubernetes words them, one function for each of its reasons."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from clusterspace.errors import Cause
from clusterspace.kube.field_paths import quoted, value_text

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
