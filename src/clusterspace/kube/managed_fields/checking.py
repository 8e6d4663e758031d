"""Does an applied configuration fit its schema? Every mistake, in the words of Kubernetes.

Ownership is a matter of paths, and a value that does not fit its schema has no right paths. So
this is asked before anything is merged, and long before the object is validated.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.errors import ApiError, MalformedObject
from clusterspace.kube.managed_fields.path_elements import FIELD, INDEX, as_text
from clusterspace.kube.managed_fields.typed_values import item_element, item_schema
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.schemas.model import ANYTHING, Schema

_NUMBERS: Final = ("integer", "number")

# Formats under which a string is still just a string to Kubernetes; under others anything goes.
_PLAIN_FORMATS: Final = ("", "byte")


def check_fits(kube_object: Object, schema: Schema, what: str) -> None:
    """Raise the error Kubernetes gives for an object that does not fit: a 500 with no reason."""
    mistakes = list(_mistakes(kube_object, schema, keeps_unknown=False))
    if not mistakes:
        return
    listed = mistakes[0] if len(mistakes) == 1 else "\n  ".join(("errors:", *mistakes))
    raise ApiError(f"failed to create typed {what} object ({_identity(kube_object)}): {listed}")


def _identity(kube_object: Object) -> str:
    group, _, version = str(kube_object.get("apiVersion") or "").rpartition("/")
    written = f"{group}/{version}, Kind={kube_object.get('kind') or ''}"
    return f"{namespace_of(kube_object)}/{name_of(kube_object)}; {written}"


def _mistakes(value: Any, schema: Schema, *, keeps_unknown: bool) -> Iterator[str]:
    """Yield each mistake as `path: what is wrong`, the path from here on."""
    if value is None:
        return
    keeps_unknown = keeps_unknown or schema.preserves_unknown_fields
    if isinstance(value, dict) and schema.type in ("", "object") and not schema.is_int_or_string:
        yield from _mistakes_in_map(cast("Object", value), schema, keeps_unknown)
    elif isinstance(value, list) and schema.type in ("", "array") and not schema.is_int_or_string:
        yield from _mistakes_in_list(cast("list[Any]", value), schema, keeps_unknown)
    elif (mistake := _type_mistake(value, schema)) is not None:
        yield f": {mistake}"


def _mistakes_in_map(value: Object, schema: Schema, keeps_unknown: bool) -> Iterator[str]:
    for name in sorted(value):
        inner = schema.field(name)
        if inner is None and schema.properties and not keeps_unknown:
            yield f".{name}: field not declared in schema"
            return
        place = as_text(FIELD + name)
        for mistake in _mistakes(value[name], inner or ANYTHING, keeps_unknown=keeps_unknown):
            yield place + mistake


def _mistakes_in_list(items: list[Any], schema: Schema, keeps_unknown: bool) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        try:
            element = _element(item, index, schema)
        except MalformedObject as error:
            yield f": element {index}: {error.message}"
            return
        place = as_text(element)
        if element in seen:
            yield f": duplicate entries for key {place}"
        seen.add(element)
        for mistake in _mistakes(item, item_schema(schema), keeps_unknown=keeps_unknown):
            yield place + mistake


def _element(item: Any, index: int, schema: Schema) -> str:
    return f"{INDEX}{index}" if schema.list_type == "atomic" else item_element(item, schema)


def _type_mistake(value: Any, schema: Schema) -> str | None:
    """Return what is wrong with the type of a value, if anything is."""
    wanted = schema.type
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "object":
        return f"expected map, got &{{{_go_text(value)}}}"
    if wanted == "array":
        return f"expected list, got &{{{_go_text(value)}}}"
    if wanted in _NUMBERS and not is_number:
        return f"expected numeric (int or float), got {_go_type(value)}"
    if wanted == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{_go_text(value)}}}"
    if wanted == "string" and schema.raw.get("format", "") in _PLAIN_FORMATS:
        is_right = isinstance(value, str)
        return None if is_right else _not_a_string(value)
    if isinstance(value, dict | list):
        return f"expected any scalar, got &{{{_go_text(value)}}}"
    return None


def _not_a_string(value: Any) -> str:
    return f"expected string, got &value.valueUnstructured{{Value:{_go_text(value)}}}"


def _go_text(value: Any) -> str:
    """Return a value as Go prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        held = cast("Object", value)
        return "map[" + " ".join(f"{name}:{_go_text(held[name])}" for name in sorted(held)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_text(item) for item in cast("list[Any]", value)) + "]"
    return str(value)


def _go_type(value: Any) -> str:
    """Return what Go calls the type of a decoded value."""
    names = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(cast("type[Any]", type(value)), type(value).__name__)
