"""Schema: the rules of one place in an object, for built-in kinds and custom ones alike.

Beside it the schema of `metadata`, the one part that every kind shares; the walk through a value
and its schema together; and the reading of raw JSON, which refuses what is no schema at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from clusterspace.errors import MalformedSchema
from clusterspace.kube.causes import Key, Step, Steps
from clusterspace.kube.schemas.strings import compile_pattern

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

Resolve = Callable[[str], "Schema"]
"""Turns the target of a `$ref` into its Schema."""


def _no_references(name: str) -> "Schema":
    raise LookupError(f"no schema named {name!r}: this schema has no definitions beside it")


class Schema:
    """One node of a schema, read lazily: children are built when first looked at.

    The raw form is OpenAPI v3 as Kubernetes writes it, extensions included. A `$ref`
    is followed when the node is made, so recursive definitions (JSONSchemaProps)
    cost nothing until somebody descends into them.
    """

    def __init__(self, raw: Mapping[str, Any], resolve: Resolve = _no_references) -> None:
        self.raw = raw
        self._resolve = resolve
        self.memo: dict[type, Any] = {}
        """What readers of this schema worked out once, kept with it; keyed by their own type.

        Validators, compiled rules and readers of values live here and as long as the schema: a
        definition that changes gets a new Schema, and with it an empty memo.
        """

    def _child(self, raw: Mapping[str, Any]) -> "Schema":
        reference = raw.get("$ref")
        if reference is None:
            return Schema(raw, self._resolve)
        target = self._resolve(str(reference).rpartition("/")[2])
        beside = {key: value for key, value in raw.items() if key != "$ref"}
        # Extensions beside a $ref (patch strategy, default) describe this place, not the target.
        return Schema({**target.raw, **beside}, target._resolve) if beside else target

    def _children(self, keyword: str) -> tuple["Schema", ...]:
        return tuple(self._child(raw) for raw in self.raw.get(keyword) or ())

    @cached_property
    def type(self) -> str:
        """`object`, `array`, `string`, `integer`, `number`, `boolean`, or empty for anything."""
        return str(self.raw.get("type") or "")

    @cached_property
    def properties(self) -> Mapping[str, "Schema"]:
        """Schemas of the named fields."""
        named: Mapping[str, Mapping[str, Any]] = self.raw.get("properties") or {}
        return {name: self._child(raw) for name, raw in named.items()}

    @cached_property
    def additional(self) -> "Schema | None":
        """Schema of the values of a map with free keys."""
        raw = self.raw.get("additionalProperties")
        if raw is None or raw is False:
            return None
        return ANYTHING if raw is True else self._child(raw)

    @cached_property
    def items(self) -> "Schema | None":
        """Schema of the elements of a list."""
        raw = self.raw.get("items")
        return self._child(cast("Mapping[str, Any]", raw)) if isinstance(raw, dict) else None

    @cached_property
    def all_of(self) -> tuple["Schema", ...]:
        """Schemas that must all hold as well."""
        return self._children("allOf")

    @cached_property
    def any_of(self) -> tuple["Schema", ...]:
        """Schemas of which at least one must hold."""
        return self._children("anyOf")

    @cached_property
    def one_of(self) -> tuple["Schema", ...]:
        """Schemas of which exactly one must hold."""
        return self._children("oneOf")

    @cached_property
    def negated(self) -> "Schema | None":
        """Schema that must not hold."""
        raw = self.raw.get("not")
        return None if raw is None else self._child(raw)

    @cached_property
    def list_type(self) -> str:
        """`atomic`, `set` or `map`; a list that says nothing is atomic."""
        return str(self.raw.get("x-kubernetes-list-type") or "atomic")

    @cached_property
    def list_map_keys(self) -> tuple[str, ...]:
        """Which fields of an element name it in a `map` list."""
        return tuple(self.raw.get("x-kubernetes-list-map-keys") or ())

    @cached_property
    def map_is_atomic(self) -> bool:
        """Whether the object is owned and replaced as one value."""
        return self.raw.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def patch_strategies(self) -> frozenset[str]:
        """`merge`, `replace`, `retainKeys`, as strategic merge patch uses them."""
        return frozenset(
            filter(None, str(self.raw.get("x-kubernetes-patch-strategy") or "").split(","))
        )

    @cached_property
    def patch_merge_key(self) -> str:
        """Which field names an element when strategic merge patch merges the list."""
        return str(self.raw.get("x-kubernetes-patch-merge-key") or "")

    @cached_property
    def required(self) -> frozenset[str]:
        """Fields that must be there."""
        return frozenset(self.raw.get("required") or ())

    @cached_property
    def is_int_or_string(self) -> bool:
        """Whether both integers and strings are right here (ports, percentages)."""
        return bool(self.raw.get("x-kubernetes-int-or-string")) or (
            self.raw.get("format") == "int-or-string"
        )

    @cached_property
    def preserves_unknown_fields(self) -> bool:
        """Whether fields the schema does not name are kept."""
        return bool(self.raw.get("x-kubernetes-preserve-unknown-fields"))

    @cached_property
    def is_embedded_resource(self) -> bool:
        """Whether this place holds a whole Kubernetes object of its own."""
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @cached_property
    def is_nullable(self) -> bool:
        """Whether an explicit null is a value here."""
        return bool(self.raw.get("nullable"))

    @property
    def has_default(self) -> bool:
        """Whether a missing value is filled in; Kubernetes takes a null default for none."""
        return self.raw.get("default") is not None

    @cached_property
    def defaulted(self) -> Mapping[str, "Schema"]:
        """The named fields that are filled in when missing."""
        return {name: field for name, field in self.properties.items() if field.has_default}

    @property
    def default(self) -> Any:
        """The value that is filled in; never edited in place."""
        return self.raw.get("default")

    def field(self, name: str) -> "Schema | None":
        """Return the schema of one field, named or free; None when it is not known."""
        named = self.properties.get(name)
        return named if named is not None else self.additional


ANYTHING: Final = Schema({"x-kubernetes-preserve-unknown-fields": True})
"""Knows nothing and keeps everything."""

NOTHING: Final = Schema({})
"""Knows nothing and keeps nothing."""


# ObjectMeta.

_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer", "format": "int64"}
_FLAG: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}

_OWNER_REFERENCE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": _TEXT,
        "blockOwnerDeletion": _FLAG,
        "controller": _FLAG,
        "kind": _TEXT,
        "name": _TEXT,
        "uid": _TEXT,
    },
}

_MANAGED_FIELDS_ENTRY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "apiVersion": _TEXT,
        "fieldsType": _TEXT,
        "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "manager": _TEXT,
        "operation": _TEXT,
        "subresource": _TEXT,
        "time": _TIME,
    },
}

OBJECT_META: Final = Schema(
    {
        "type": "object",
        "properties": {
            "annotations": _TEXTS,
            "creationTimestamp": _TIME,
            "deletionGracePeriodSeconds": _COUNT,
            "deletionTimestamp": _TIME,
            "finalizers": {
                "type": "array",
                "items": _TEXT,
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "generateName": _TEXT,
            "generation": _COUNT,
            "labels": _TEXTS,
            "managedFields": {
                "type": "array",
                "items": _MANAGED_FIELDS_ENTRY,
                "x-kubernetes-list-type": "atomic",
            },
            "name": _TEXT,
            "namespace": _TEXT,
            "ownerReferences": {
                "type": "array",
                "items": _OWNER_REFERENCE,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
            "resourceVersion": _TEXT,
            "selfLink": _TEXT,
            "uid": _TEXT,
        },
    }
)
"""The same facts as the published definition; a test compares the two."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value, its schema, and the way to it."""

    value: Any
    schema: Schema
    steps: Steps = ()

    def below(self, step: Step, value: Any, schema: Schema) -> "Place":
        """Return the place one step down."""
        return Place(value, schema, (*self.steps, step))


def _everywhere(_: Schema) -> bool:
    return True


def places(
    value: Any, schema: Schema, where: Callable[[Schema], bool] = _everywhere
) -> Iterator[Place]:
    """Yield the value itself and every value below it that has a schema, parents first.

    What `where` says is not of interest is left out, and so is everything below it.
    """
    waiting = [Place(value, schema)] if where(schema) else []
    while waiting:
        place = waiting.pop()
        yield place
        below: list[Place] = []
        items = place.schema.items
        if isinstance(place.value, dict):
            named, free = place.schema.properties, place.schema.additional
            for name, inner in cast("Object", place.value).items():
                if name in named:
                    if where(named[name]):
                        below.append(place.below(name, inner, named[name]))
                elif free is not None and where(free):
                    below.append(place.below(Key(name), inner, free))
        elif isinstance(place.value, list) and items is not None and where(items):
            elements = cast("list[Any]", place.value)
            below = [place.below(index, inner, items) for index, inner in enumerate(elements)]
        waiting.extend(reversed(below))


class _Embedding:
    """Whether there are whole objects at or below a schema; worked out once, kept with it."""

    def __init__(self, schema: Schema) -> None:
        below = [*schema.properties.values(), schema.additional, schema.items]
        self.exists = schema.is_embedded_resource or any(
            holds_objects(each) for each in below if each is not None
        )


def holds_objects(schema: Schema) -> bool:
    """Tell whether whole Kubernetes objects may be at or below a schema."""
    cached = schema.memo.get(_Embedding)
    if cached is None:
        cached = schema.memo[_Embedding] = _Embedding(schema)
    return bool(cached.exists)


# Reading raw JSON: what is no schema at all is refused, with the place named. Whether a schema is
# one that a CustomResourceDefinition may have is the question of structural.py; this is the one
# before it, and Kubernetes answers it when it decodes the definition.

DEEPEST: Final = 100
"""How deep a schema may nest: far deeper than any real one, far from the interpreter's limit."""

_Check = Callable[[Any, str, int], None]


def read_schema(raw: Any, *, place: str = "openAPIV3Schema") -> Schema:
    """Return the Schema of a raw one; raise MalformedSchema, naming the place, if it is none.

    References and unreadable patterns are refused too: nobody could follow or match them later.
    """
    check_shape(raw, place=place)
    _refuse_unusable(cast("Mapping[str, Any]", raw), place)
    return Schema(cast("Mapping[str, Any]", raw))


def check_shape(raw: Any, *, place: str) -> None:
    """Raise MalformedSchema unless every keyword, at every depth, has the type it must have."""
    _check_schema(raw, place, 0)


def _check_schema(raw: Any, place: str, depth: int) -> None:
    if not isinstance(raw, dict):
        raise MalformedSchema(f"{place} must be an object", place=place)
    if depth > DEEPEST:
        raise MalformedSchema(f"{place} is nested more than {DEEPEST} deep", place=place)
    for keyword, value in cast("dict[str, Any]", raw).items():
        check = _KEYWORDS.get(keyword)
        if check is not None and value is not None:
            check(value, f"{place}.{keyword}", depth + 1)


def _of_type(name: str, *types: type) -> _Check:
    def check(value: Any, place: str, _: int) -> None:
        # JSON tells true from 1, Python's isinstance does not.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise MalformedSchema(f"{place} must be {name}", place=place)

    return check


_check_text: Final = _of_type("a string", str)
_check_flag: Final = _of_type("true or false", bool)
_check_count: Final = _of_type("an integer", int)
_check_number: Final = _of_type("a number", int, float)
_check_list: Final = _of_type("a list", list)
_check_object: Final = _of_type("an object", dict)


def _list_of(check_one: _Check) -> _Check:
    def check(value: Any, place: str, depth: int) -> None:
        _check_list(value, place, depth)
        for index, element in enumerate(value):
            check_one(element, f"{place}[{index}]", depth)

    return check


def _object_of(check_one: _Check) -> _Check:
    def check(value: Any, place: str, depth: int) -> None:
        _check_object(value, place, depth)
        for name, inner in value.items():
            check_one(inner, f"{place}[{name}]", depth)

    return check


def _either(other: type, check_other: _Check) -> _Check:
    """Accept a schema, or something of another type."""

    def check(value: Any, place: str, depth: int) -> None:
        (check_other if isinstance(value, other) else _check_schema)(value, place, depth)

    return check


_KEYWORDS: Final[Mapping[str, _Check]] = {
    **dict.fromkeys(
        (
            "$ref",
            "$schema",
            "description",
            "format",
            "id",
            "pattern",
            "title",
            "type",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ),
        _check_text,
    ),
    **dict.fromkeys(
        (
            "exclusiveMaximum",
            "exclusiveMinimum",
            "nullable",
            "uniqueItems",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
        ),
        _check_flag,
    ),
    **dict.fromkeys(
        ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"),
        _check_count,
    ),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _check_number),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _list_of(_check_text)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _list_of(_check_schema)),
    **dict.fromkeys(("properties", "patternProperties", "definitions"), _object_of(_check_schema)),
    **dict.fromkeys(("additionalItems", "additionalProperties"), _either(bool, _check_flag)),
    "dependencies": _object_of(_either(list, _list_of(_check_text))),
    "enum": _check_list,
    "externalDocs": _check_object,
    "items": _either(list, _list_of(_check_schema)),
    "not": _check_schema,
    "x-kubernetes-validations": _list_of(_check_object),
}


_WITH_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "definitions", "dependencies")
_WITH_SCHEMAS: Final = (
    *_WITH_NAMED_SCHEMAS,
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "items",
    "not",
    "oneOf",
)


def _refuse_unusable(raw: Mapping[str, Any], place: str) -> None:
    if raw.get("$ref") is not None:
        raise MalformedSchema(f"{place}.$ref is not supported", place=f"{place}.$ref")
    if raw.get("pattern"):
        try:
            compile_pattern(raw["pattern"])
        except MalformedSchema as error:
            raise MalformedSchema(str(error), place=f"{place}.pattern") from error
    for keyword, child in subschemas(raw):
        _refuse_unusable(child, f"{place}.{keyword}")


def subschemas(raw: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the schemas directly below a well-shaped one, each with the way to it."""
    if raw.keys().isdisjoint(_WITH_SCHEMAS):
        return []  # as most are: a large definition has thousands of leaves
    found: list[tuple[str, Any]] = []
    for keyword in _WITH_SCHEMAS:
        value = raw.get(keyword)
        if value is None:
            continue
        if keyword in _WITH_NAMED_SCHEMAS:
            named = cast("Mapping[str, Any]", value)
            found += ((f"{keyword}[{name}]", child) for name, child in named.items())
        elif isinstance(value, list):
            listed = cast("list[Any]", value)
            found += ((f"{keyword}[{index}]", child) for index, child in enumerate(listed))
        else:
            found.append((keyword, value))
    return [
        (way, cast("Mapping[str, Any]", child)) for way, child in found if isinstance(child, dict)
    ]
