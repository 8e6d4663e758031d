"""Schema: what is known of one place in an object, for built-in kinds and custom ones alike."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, cast

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
        """What readers of this schema worked out once, kept with it; keyed by their own type."""

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
        return {name: held for name, held in self.properties.items() if held.has_default}

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
