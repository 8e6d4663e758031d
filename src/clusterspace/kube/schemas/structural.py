"""Whether a schema is one that a CustomResourceDefinition may have: structural, with sane defaults.

A structural schema says what every field is before it says what may be in it, so that objects can
be pruned and defaulted. The rules are Kubernetes', and so are the words:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from clusterspace.errors import Cause, MalformedSchema
from clusterspace.kube import causes
from clusterspace.kube.schemas.checks.patterns import compile_pattern
from clusterspace.kube.schemas.default_values import check_default_values
from clusterspace.kube.schemas.keywords import check_keywords, find_unsupported
from clusterspace.kube.schemas.reading import check_shape, subschemas

Raw = Mapping[str, Any]

DEFINITION_PATH: Final = "spec.validation.openAPIV3Schema"
"""Where Kubernetes says the schema is when all versions of a definition share it."""

_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]

_FORBIDDEN_WHEN_NESTED: Final[Mapping[str, str]] = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


class _Level(Enum):
    ROOT = "must not be empty at the root"
    ITEM = "must not be empty for specified array items"
    FIELD = "must not be empty for specified object fields"


def check_structural(raw_schema: Any, *, path: str = DEFINITION_PATH) -> tuple[Cause, ...]:
    """Return every rule that the schema breaks; raise MalformedSchema if it is no schema at all."""
    check_shape(raw_schema, place=path)
    raw = cast("Raw", raw_schema)
    found: list[Cause] = []
    if raw.get("nullable"):
        found.append(causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    unsupported = find_unsupported(raw)
    if not unsupported:
        found += _structure_or_defaults(raw, path)
    found += check_keywords(raw, path=path)
    if unsupported and not found:
        found.append(causes.invalid(path, "", f"OpenAPIV3Schema '{unsupported}' is not supported"))
    return tuple(found)


def _structure_or_defaults(raw: Raw, path: str) -> list[Cause]:
    """Look at defaults only in a schema whose structure is sound enough to hold them against."""
    found = [*_Node(raw, path, _Level.ROOT).broken_rules(), *_incomplete(raw, raw, path, path)]
    if not found:
        return check_default_values(raw, path=path)
    return sorted(found, key=lambda cause: f"{cause.field}: {cause.message}")


@dataclass(frozen=True, slots=True)
class _Node:
    """One place that the schema itself specifies, not under a junctor."""

    raw: Raw
    path: str
    level: _Level

    @property
    def type(self) -> str:
        return self.raw.get("type") or ""

    @property
    def is_embedded(self) -> bool:
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @property
    def properties(self) -> Mapping[str, Raw]:
        return self.raw.get("properties") or {}

    def broken_rules(self) -> Iterator[Cause]:
        """Yield what is wrong here and everywhere below."""
        yield from self._type_rules()
        yield from self._extension_rules()
        yield from self._resource_rules()
        yield from _value_rules(self.raw, self.path, may_be_int_or_string=True)
        for child in self._children():
            yield from child.broken_rules()

    def _children(self) -> Iterator["_Node"]:
        for name, raw in sorted(self.properties.items()):
            yield _Node(raw, f"{self.path}.properties[{name}]", _Level.FIELD)
        for keyword, level in (("items", _Level.ITEM), ("additionalProperties", _Level.FIELD)):
            if isinstance(self.raw.get(keyword), dict):
                yield _Node(self.raw[keyword], f"{self.path}.{keyword}", level)

    def _type_rules(self) -> Iterator[Cause]:
        place = f"{self.path}.type"
        may_lack_type = any(
            self.raw.get(f"x-kubernetes-{name}")
            for name in ("int-or-string", "preserve-unknown-fields")
        )
        if self.is_embedded and self.type != "object":
            detail = "must be object if x-kubernetes-embedded-resource is true"
            yield _required_or_invalid(place, self.type, detail)
        elif not self.type and not may_lack_type:
            yield causes.required(place, self.level.value)
        if self.level is _Level.ROOT and self.type not in {"", "object"}:
            yield causes.invalid(place, self.type, "must be object at the root")
        if self.type == "array" and self.raw.get("items") is None:
            yield causes.required(f"{self.path}.items", "must be specified")

    def _extension_rules(self) -> Iterator[Cause]:
        for name in ("preserve-unknown-fields", "embedded-resource"):
            keyword = f"x-kubernetes-{name}"
            if self.raw.get("x-kubernetes-int-or-string") and self.raw.get(keyword):
                detail = "must be false if x-kubernetes-int-or-string is true"
                yield causes.invalid(f"{self.path}.{keyword}", True, detail)

    def _resource_rules(self) -> Iterator[Cause]:
        """Yield what a whole resource, the root or an embedded one, must not say of itself."""
        place = f"{self.path}.additionalProperties"
        has_free_keys = self.raw.get("additionalProperties") is not None
        if has_free_keys and self.level is _Level.ROOT:
            yield causes.forbidden(place, "must not be used at the root")
        if has_free_keys and self.is_embedded:
            detail = "must not be used if x-kubernetes-embedded-resource is set"
            yield causes.forbidden(place, detail)
        keeps_all = self.raw.get("x-kubernetes-preserve-unknown-fields")
        if self.is_embedded and not keeps_all and not self.properties:
            detail = (
                "must not be empty if x-kubernetes-embedded-resource is true"
                " without x-kubernetes-preserve-unknown-fields"
            )
            yield causes.required(f"{self.path}.properties", detail)
        if self.is_embedded or self.level is _Level.ROOT:
            yield from self._meta_rules()

    def _meta_rules(self) -> Iterator[Cause]:
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            given = self.properties.get(name, {"type": wanted}).get("type") or ""
            if given != wanted:
                place = f"{self.path}.properties[{name}].type"
                yield causes.invalid(place, given, f"must be {wanted}")
        if self.level is _Level.ROOT and not _is_plain_metadata(self.properties.get("metadata")):
            detail = (
                "must not specify anything other than name and generateName,"
                " but metadata is implicitly specified"
            )
            yield causes.forbidden(f"{self.path}.properties[metadata]", detail)


def _is_plain_metadata(raw: Raw | None) -> bool:
    if raw is None:
        return True
    said = {keyword for keyword, value in raw.items() if value}
    names: set[str] = set(raw.get("properties") or ())
    return said <= {"type", "default", "properties"} and names <= {"name", "generateName"}


def _value_rules(raw: Raw, path: str, *, may_be_int_or_string: bool = False) -> Iterator[Cause]:
    """Yield what is wrong with the rules for values: junctors and patterns.

    Types belong outside of junctors. The one exception is the way to write an int-or-string,
    as the whole `anyOf` or as that of the first `allOf`.
    """
    is_int_or_string = may_be_int_or_string and raw.get("anyOf") == _INT_OR_STRING
    for way, part in _parts_of(raw):
        if not (is_int_or_string and way.startswith("anyOf")):
            is_first_part = may_be_int_or_string and way == "allOf[0]"
            yield from _nested_rules(part, f"{path}.{way}", may_be_int_or_string=is_first_part)
    if raw.get("pattern"):
        try:
            compile_pattern(raw["pattern"])
        except MalformedSchema as error:
            detail = f"must be a valid regular expression, but isn't: {error.message}"
            yield causes.invalid(f"{path}.pattern", raw["pattern"], detail)


def _nested_rules(raw: Raw, path: str, *, may_be_int_or_string: bool = False) -> Iterator[Cause]:
    yield from _value_rules(raw, path, may_be_int_or_string=may_be_int_or_string)
    if isinstance(raw.get("items"), dict):
        yield from _nested_rules(raw["items"], f"{path}.items")
    properties = cast("Mapping[str, Raw]", raw.get("properties") or {})
    for name, held in sorted(properties.items()):
        yield from _nested_rules(held, f"{path}.properties[{name}]")
    if "metadata" in properties:
        detail = "must not be specified in a nested context"
        yield causes.forbidden(f"{path}.properties[metadata]", detail)
    for keyword, detail in _FORBIDDEN_WHEN_NESTED.items():
        value = raw.get(keyword)
        is_said = value is not None if "undefined" in detail else bool(value)
        if is_said:
            yield causes.forbidden(f"{path}.{keyword}", detail)


def _incomplete(part: Raw, structure: Raw, path: str, way: str) -> Iterator[Cause]:
    """Yield the fields that junctors at the root speak of and the schema itself does not."""
    for junctor, below in _parts_of(part):
        yield from _incomplete_part(below, structure, path, f"{way}.{junctor}")


def _incomplete_part(part: Raw, structure: Raw, path: str, way: str) -> Iterator[Cause]:
    yield from _incomplete(part, structure, path, way)
    specified = dict(_members_of(structure))
    for step, held in _members_of(part):
        if step not in specified:
            yield causes.required(f"{path}.{step}", f"because it is defined in {way}.{step}")
        else:
            yield from _incomplete_part(held, specified[step], f"{path}.{step}", f"{way}.{step}")


def _parts_of(raw: Raw) -> list[tuple[str, Raw]]:
    """Return the schemas under junctors, each with the way to it."""
    junctors = ("allOf[", "anyOf[", "oneOf[")
    return [
        found for found in subschemas(raw) if found[0] == "not" or found[0].startswith(junctors)
    ]


def _members_of(raw: Raw) -> list[tuple[str, Raw]]:
    """Return the schemas of fields and elements, each with the way to it."""
    return [
        found
        for found in subschemas(raw)
        if found[0] == "items" or found[0].startswith("properties[")
    ]


def _required_or_invalid(place: str, value: str, detail: str) -> Cause:
    return causes.invalid(place, value, detail) if value else causes.required(place, detail)
