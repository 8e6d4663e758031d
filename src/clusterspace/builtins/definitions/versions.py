"""Everything a kube-apiserver refuses the versions of a CustomResourceDefinition for."""

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import Cause, MalformedPath, MalformedSchema
from clusterspace.kube import causes
from clusterspace.kube.cel.rules import check_rule_definitions
from clusterspace.kube.json_paths import read_json_path
from clusterspace.kube.names import dns1035_label_problems
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.structural import check_structural

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_NOT_SIMPLE: Final = "must be a simple json path starting with ."
_MOST_SELECTABLE: Final = 8


def check_versions(spec: Object, old_spec: Object | None) -> Iterator[Cause]:
    """Check the versions of a definition; schemas that were there before are not checked again."""
    versions = cast("list[Object]", spec.get("versions") or [])
    names = [version.get("name") for version in versions]
    for index, version in enumerate(versions):
        yield from _check_version(version, f"spec.versions[{index}]")
    if len(set(names)) != len(names):
        yield _refused_list(versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield _refused_list(versions, detail)
    kept = _schemas(old_spec or {})
    for place, version in _distinct_parts(versions):
        yield from _check_parts(version, place, kept)


def _check_version(version: Object, place: str) -> Iterator[Cause]:
    name = str(version.get("name") or "")
    for problem in dns1035_label_problems(name):
        yield causes.invalid(f"{place}.name", name, problem)
    warning = version.get("deprecationWarning")
    if warning is not None and not version.get("deprecated"):
        detail = "can only be set for deprecated versions"
        yield causes.invalid(f"{place}.deprecationWarning", warning, detail)
    if find_at(version, "schema", "openAPIV3Schema") is None:
        yield causes.required(f"{place}.schema.openAPIV3Schema")


def _refused_list(versions: list[Object], detail: str) -> Cause:
    """Blame the list of versions, shown as Kubernetes holds it, without what all have in common."""
    shown = [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": None,
            "Subresources": None,
            "AdditionalPrinterColumns": None,
            "SelectableFields": None,
        }
        for version in versions
    ]
    text = msgspec.json.encode(shown).decode()
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {detail}", "spec.versions")


_PARTS: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _distinct_parts(versions: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield what to check and where: what all versions share is said of the whole, and once."""
    shared = {
        part: versions[0].get(part)
        for part in _PARTS
        if versions and all(version.get(part) == versions[0].get(part) for version in versions)
    }
    yield "spec", {part: value for part, value in shared.items() if value is not None}
    for index, version in enumerate(versions):
        own = {part: version[part] for part in _PARTS if part in version and part not in shared}
        yield f"spec.versions[{index}]", own


def _check_parts(version: Object, place: str, kept: list[Any]) -> Iterator[Cause]:
    raw_schema = find_at(version, "schema", "openAPIV3Schema")
    schema_place = "validation" if place == "spec" else "schema"
    if raw_schema is not None and raw_schema not in kept:
        yield from check_schema(raw_schema, f"{place}.{schema_place}.openAPIV3Schema")
    scale = find_at(version, "subresources", "scale")
    if scale is not None:
        yield from _check_scale(cast("Object", scale), f"{place}.subresources.scale")
    columns = cast("list[Object]", version.get("additionalPrinterColumns") or [])
    for index, column in enumerate(columns):
        yield from _check_column(column, f"{place}.additionalPrinterColumns[{index}]")
    yield from _check_selectable(version, f"{place}.selectableFields", raw_schema)


def check_schema(raw_schema: Any, place: str) -> tuple[Cause, ...]:
    """Return what is wrong with a schema and, when it is sound, with its rules."""
    try:
        found = check_structural(raw_schema, path=place)
    except MalformedSchema as malformed:
        return (causes.invalid(malformed.place or place, "", malformed.message),)
    return found or check_rule_definitions(raw_schema, path=place)


def _schemas(spec: Object) -> list[Any]:
    versions = cast("list[Object]", spec.get("versions") or [])
    return [find_at(version, "schema", "openAPIV3Schema") for version in versions]


def _check_scale(scale: Object, place: str) -> Iterator[Cause]:
    for field, roots in (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".spec", ".status")),
    ):
        path, where = str(scale.get(field) or ""), f"{place}.{field}"
        if not path:
            if field != "labelSelectorPath":
                yield causes.required(where)
        elif not _is_simple(path):
            yield causes.invalid(where, path, _NOT_SIMPLE)
        elif not path.startswith(tuple(f"{root}." for root in roots)):
            named = f"either {' or '.join(roots)}" if len(roots) > 1 else roots[0]
            yield causes.invalid(where, path, f"should be a json path under {named}")


def _is_simple(path: str) -> bool:
    return path.startswith(".")


def _check_column(column: Object, place: str) -> Iterator[Cause]:
    if not column.get("name"):
        yield causes.required(f"{place}.name")
    given = column.get("type")
    if not given:
        listed = ",".join(_COLUMN_TYPES)
        yield causes.required(f"{place}.type", f"must be one of {listed}")
    elif given not in _COLUMN_TYPES:
        detail = f"must be one of {','.join(_COLUMN_TYPES)}"
        yield causes.invalid(f"{place}.type", given, detail)
    shape = column.get("format")
    if shape and shape not in _COLUMN_FORMATS:
        detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
        yield causes.invalid(f"{place}.format", shape, detail)
    path = str(column.get("jsonPath") or "")
    if not path:
        yield causes.required(f"{place}.JSONPath")
    elif not _is_simple(path):
        yield causes.invalid(f"{place}.JSONPath", path, _NOT_SIMPLE)


def _check_selectable(version: Object, place: str, raw_schema: Any) -> Iterator[Cause]:
    fields = cast("list[Object]", version.get("selectableFields") or [])
    if len(fields) > _MOST_SELECTABLE:
        yield causes.too_many(place, len(fields), _MOST_SELECTABLE)
    for index, field in enumerate(fields):
        path, where = str(field.get("jsonPath") or ""), f"{place}[{index}].jsonPath"
        if not path:
            yield causes.required(where)
        elif not _is_selectable(path, raw_schema):
            detail = "is an invalid path: does not refer to a valid field"
            yield causes.invalid(where, path, detail)


def _is_selectable(path: str, raw_schema: Any) -> bool:
    """Tell whether the schema has a scalar at the path, outside of the metadata."""
    try:
        fields = read_json_path(path).fields
    except MalformedPath:
        return False
    held: Schema | None = Schema(raw_schema or {})
    for name in fields:
        held = held.properties.get(name) if held is not None else None
    scalars = ("string", "boolean", "integer")
    return bool(fields) and fields[0] != "metadata" and held is not None and held.type in scalars
