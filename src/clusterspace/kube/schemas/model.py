"""Schema: the rules of one place in an object, for built-in kinds and custom ones alike.

Beside it the schema of `metadata`, the one part that every kind shares, and the walk through a
value and its schema together.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from clusterspace.kube.field_paths import Key, Step, Steps

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
