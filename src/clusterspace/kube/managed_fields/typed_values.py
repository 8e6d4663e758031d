"""Typed values: a value and its schema say which fields it has, what changed, and how two merge.

A value is owned whole, or granular: in pieces that have path elements of their own. Without a
schema, objects are granular and lists are owned whole. Everything here rests on that one
distinction, and so walks a value the same way: the fields of a map, the named elements of a
granular list, anything else as one leaf.

    owned_fields      the fields of a configuration: what its applier will own
    compare           two states of an object to the fields that changed and went
    merge             a configuration into a live object
    given_up, remove  out of the live object what an applier no longer applies
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.field_sets import (
    FIELD,
    OWNED,
    Fields,
    FieldSet,
    in_order,
    key_element,
    owned_with,
    value_element,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import ANYTHING, OBJECT_META, Schema

_TEXT: Final = Schema({"type": "string"})


class _ObjectSchema(Schema):
    """A schema with the fields every object has, whatever a custom schema says of them."""

    def __init__(self, kind_schema: Schema) -> None:
        super().__init__(kind_schema.raw)
        self._kind_schema = kind_schema

    @cached_property
    def properties(self) -> Mapping[str, Schema]:
        """The kind's own fields, and those of every object."""
        own = self._kind_schema.properties
        return {**own, "apiVersion": _TEXT, "kind": _TEXT, "metadata": OBJECT_META}

    @cached_property
    def additional(self) -> Schema | None:
        """Whatever the kind says."""
        return self._kind_schema.additional


# Kept by the identity of the kind's schema, which has no equality of its own: a definition that
# changes gets a new Schema, and an old one leaves with the least used.
@lru_cache(maxsize=1024)
def object_schema(kind_schema: Schema) -> Schema:
    """Return the schema of a whole object, its metadata included."""
    return _ObjectSchema(kind_schema)


def field_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of one field; of anything when it is not known."""
    return schema.field(name) or ANYTHING


def item_schema(schema: Schema) -> Schema:
    """Return the schema of the elements of a list."""
    return schema.items or ANYTHING


def is_granular_map(value: Any, schema: Schema) -> bool:
    """Return whether the value is an object whose fields have owners of their own."""
    return isinstance(value, dict) and not schema.map_is_atomic


def is_granular_list(value: Any, schema: Schema) -> bool:
    """Return whether the value is a list whose elements have owners of their own."""
    return isinstance(value, list) and schema.list_type != "atomic"


def item_element(item: Any, list_schema: Schema) -> str:
    """Return the path element that names an element of a granular list."""
    if list_schema.list_type != "map":
        if isinstance(item, dict):
            raise MalformedObject("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise MalformedObject("not supported: associative list with lists as elements")
        if item is None:
            raise MalformedObject(
                "associative list without keys has an element that's an explicit null"
            )
        return value_element(item)

    if not isinstance(item, dict):
        elements = "a null element" if item is None else "non-map elements"
        raise MalformedObject(f"associative list with keys may not have {elements}")
    keys: dict[str, Any] = {}
    for name in list_schema.list_map_keys:
        if name in item:
            keys[name] = cast("Object", item)[name]
        # A key that was left out counts with its default, if it has one.
        elif (default := field_schema(item_schema(list_schema), name).default) is not None:
            keys[name] = default
    if not keys:
        named = " ".join(f'"{name}"' for name in list_schema.list_map_keys)
        raise MalformedObject(
            f"associative list with keys has an element that omits all key fields [{named}]"
            " (and doesn't have default values for any key fields)"
        )
    return key_element(keys)


def owned_fields(configuration: Object, schema: Schema) -> FieldSet:
    """Return the fields of a configuration that fits its schema: those its applier will own.

    A field with a name of its own is owned by its parts; a key of a free map, or an element of a
    list, is also owned itself: that is what lets an applier take it away again whole. Applying
    `spec: {ports: [80]}` owns `.spec.ports[=80]`, and neither `.spec` nor `.spec.ports`;
    applying `labels: {a: x}` owns `.labels.a`.
    """
    return FieldSet(_fields_of_map(configuration, schema))


def _fields_of_map(value: Object, schema: Schema) -> Fields | None:
    """Return the fields of an object: it is a leaf when empty, and None when none is owned."""
    fields: Fields = {}
    for name, part in value.items():
        below = _fields_below(part, field_schema(schema, name))
        if below and name in schema.properties:
            fields[FIELD + name] = below
        elif below is not None:
            fields[FIELD + name] = owned_with(below)
        elif name not in schema.properties:
            fields[FIELD + name] = OWNED
    return in_order(fields) if fields or not value else None


def _fields_below(value: Any, schema: Schema) -> Fields | None:
    """Return the fields owned inside a value: none inside a leaf, and None where none is owned."""
    if is_granular_map(value, schema):
        return _fields_of_map(cast("Object", value), schema)
    if is_granular_list(value, schema):
        inner = item_schema(schema)
        fields: Fields = {}
        for item in cast("list[Any]", value):
            fields[item_element(item, schema)] = owned_with(_fields_below(item, inner) or OWNED)
        return in_order(fields) or None
    return OWNED


def with_named_fields(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set with every field of a name of its own on the way to an owned one."""
    named: Fields = {}
    for element in fields.elements():
        name = element.removeprefix(FIELD)
        is_field = element.startswith(FIELD)
        inner = field_schema(schema, name) if is_field else item_schema(schema)
        below = with_named_fields(fields.below(element), inner).to_json()
        if fields.owns(element) or (is_field and name in schema.properties):
            below = owned_with(below)
        named[element] = below
    return FieldSet(named)


def fitted(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set as the schema has it now: what is inside a value owned whole is that value.

    Schemas of custom resources change, and what was owned piece by piece may have become atomic.
    """
    fit: Fields = {}
    for element in fields.elements():
        is_field = element.startswith(FIELD)
        inner = field_schema(schema, element[2:]) if is_field else item_schema(schema)
        is_atomic_list = inner.type == "array" and inner.list_type == "atomic"
        is_atomic = inner.map_is_atomic or is_atomic_list
        below = OWNED if is_atomic else fitted(fields.below(element), inner).to_json()
        fit[element] = owned_with(below) if fields.owns(element) else below
    return FieldSet(fit)


# Comparing: the fields that changed between two states of an object.

_write: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Comparison:
    """The fields a write added or changed, and those it took away."""

    changed: FieldSet
    removed: FieldSet

    def without(self, ignored: FieldSet) -> "Comparison":
        """Return the comparison as if nothing in or below `ignored` had been looked at."""
        return Comparison(self.changed.without(ignored), self.removed.without(ignored))

    def __bool__(self) -> bool:
        return bool(self.changed) or bool(self.removed)


def compare(before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema) -> Comparison:
    """Return the fields that differ between one state of an object and the next."""
    changes = _Changes()
    if not same(before, after):
        changes.compare_maps(before, after, schema)
    return Comparison(FieldSet(in_order(changes.changed)), FieldSet(in_order(changes.removed)))


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON, where 1 is 1.0 and True is neither.

    Python compares fast but takes True for 1; the written form tells them apart as fast, but
    tells 1 from 1.0 as well. Only where they disagree is it worth looking closer.
    """
    if left is right:
        return True
    if left != right:
        return False
    if type(left) is str or _write(left) == _write(right):
        return True
    # Python calls them equal; what is left to find is true or false in the place of a number.
    if isinstance(left, dict):
        others = cast("dict[str, Any]", right)
        return all(same(part, others[key]) for key, part in cast("dict[str, Any]", left).items())
    if isinstance(left, list):
        return all(map(same, cast("list[Any]", left), cast("list[Any]", right)))
    return isinstance(left, bool) == isinstance(right, bool)


def everything_below(value: Any, schema: Schema) -> Fields:
    """Return every field of a value that was not there before, or is not there any more."""
    if is_granular_map(value, schema):
        return in_order(
            {
                FIELD + name: owned_with(everything_below(part, field_schema(schema, name)))
                for name, part in cast("dict[str, Any]", value).items()
            }
        )
    if is_granular_list(value, schema):
        inner = item_schema(schema)
        grouped = _by_element(cast("list[Any]", value), schema)
        # Elements with one name between them are owned together, as one value.
        return in_order(
            {
                element: owned_with(everything_below(items[0], inner)) if len(items) == 1 else OWNED
                for element, items in grouped.items()
            }
        )
    return OWNED


class _Changes:
    """The two sets while they grow: one level of the object, and the levels below it."""

    __slots__ = ("changed", "removed")

    def __init__(self) -> None:
        self.changed: Fields = {}
        self.removed: Fields = {}

    def compare_maps(
        self, before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema
    ) -> None:
        """Compare field by field."""
        for name, value in after.items():
            inner = field_schema(schema, name)
            if name in before:
                self._compare_values(FIELD + name, before[name], value, inner)
            else:
                self.changed[FIELD + name] = owned_with(everything_below(value, inner))
        for name in before.keys() - after.keys():
            gone = everything_below(before[name], field_schema(schema, name))
            self.removed[FIELD + name] = owned_with(gone)

    def _compare_lists(self, before: Sequence[Any], after: Sequence[Any], schema: Schema) -> None:
        """Compare element by element; elements are found by name, wherever they stand."""
        inner = item_schema(schema)
        old_items, new_items = _by_element(before, schema), _by_element(after, schema)
        for element in old_items.keys() | new_items.keys():
            old, new = old_items.get(element, []), new_items.get(element, [])
            if len(old) == 1 and len(new) == 1:
                self._compare_values(element, old[0], new[0], inner)
            # Several elements of one name have no partners on the other side: they are one value.
            elif len(old) > 1 and len(new) > 1:
                if not same(old, new):
                    self.changed[element] = OWNED
            else:
                # They came, went, or became several of one name or one of several.
                if old:
                    gone = everything_below(old[0], inner) if len(old) == 1 else OWNED
                    self.removed[element] = owned_with(gone)
                if new:
                    come = everything_below(new[0], inner) if len(new) == 1 else OWNED
                    self.changed[element] = owned_with(come)

    def _compare_values(self, element: str, before: Any, after: Any, schema: Schema) -> None:
        """Compare two values that are both there: part by part, or whole if they have no parts."""
        if same(before, after):
            return
        # Null stands for an empty object or list: the place is there, with nothing in it. From
        # `ports: null` to `ports: [80]` changes `.ports[=80]` alone, so whoever owns `.ports` keeps
        # it. From `ports: null` to `ports: []`, which have no parts at all, changes `.ports`.
        is_map = all(each is None or is_granular_map(each, schema) for each in (before, after))
        is_list = all(each is None or is_granular_list(each, schema) for each in (before, after))
        below = _Changes()
        if is_map and (before or after):
            below.compare_maps(before or {}, after or {}, schema)
        elif is_list and (before or after):
            below._compare_lists(before or [], after or [], schema)
        else:
            self.changed[element] = owned_with(everything_below(after, schema))
            below.removed = everything_below(before, schema)
        if below.changed:
            self.changed[element] = in_order(below.changed)
        if below.removed:
            self.removed[element] = in_order(below.removed)


def _by_element(items: Iterable[Any], schema: Schema) -> dict[str, list[Any]]:
    """Return the elements of a granular list by name; a name may be borne by several."""
    grouped: dict[str, list[Any]] = {}
    for item in items:
        grouped.setdefault(item_element(item, schema), []).append(item)
    return grouped


# Merging a configuration into the live object, and taking out what its applier gave up.


def merge(live: Object, applied: Mapping[str, Any], schema: Schema) -> Object:
    """Return the live object with every applied field set as applied; nothing else is lost."""
    merged = {
        name: _merge_values(live[name], part, field_schema(schema, name)) if name in live else part
        for name, part in applied.items()
    }
    return {**live, **merged}


def _merge_values(live: Any, applied: Any, schema: Schema) -> Any:
    """Merge two values part by part; where they have no parts in common the applied one wins.

    Null applied to an object or list that has parts says nothing about them.
    """
    if is_granular_map(live, schema) and (applied is None or is_granular_map(applied, schema)):
        return merge(live, applied or {}, schema) if live else applied
    if is_granular_list(live, schema) and (applied is None or is_granular_list(applied, schema)):
        return _merge_lists(live, applied or [], schema) if live else applied
    return applied


def _merge_lists(live: Sequence[Any], applied: Sequence[Any], schema: Schema) -> list[Any]:
    # Elements are matched by path element, never by position: `[{name: a}, {name: b}]` with
    # `[{name: b, image: x}]` applied changes the image of b, and a stays.
    present = [item_element(item, schema) for item in live]
    wanted = {item_element(item, schema): item for item in applied}
    # Live elements that share a name have no single partner: the applied one replaces them all.
    alone = {element for element, count in Counter(present).items() if count == 1}
    shared = {
        element: item
        for element, item in zip(present, live, strict=True)
        if element in wanted and element in alone
    }
    inner = item_schema(schema)

    def merged_item(element: str) -> Any:
        item = wanted[element]
        return _merge_values(shared[element], item, inner) if element in shared else item

    return [
        live[slot] if isinstance(slot, int) else merged_item(slot)
        for slot in _merged_order(present, list(wanted))
    ]


def _merged_order(present: Sequence[str], wanted: Sequence[str]) -> Iterator[int | str]:
    """Put live elements (by position) and applied ones (by name) into one order.

    Applied elements stand as applied. What only the live list has stays in front of the next
    element that both lists share, or at the end of the live list when none is left ahead.

        live a x b y, applied b c a   gives   x b y c a
    """
    positions: dict[str, int] = {}
    for place, element in enumerate(present):
        positions.setdefault(element, place)
    # For each applied element, where it or else the next shared one stands in the live list.
    anchors: list[int | None] = []
    following: int | None = None
    for element in reversed(wanted):
        if element in positions:
            following = positions[element]
        anchors.append(following)
    anchors.reverse()

    applied = set(wanted)
    cursor = 0
    for element, anchor in zip(wanted, anchors, strict=True):
        stop = anchor if anchor is not None and anchor >= cursor else len(present)
        yield from (place for place in range(cursor, stop) if present[place] not in applied)
        yield element
        cursor = stop + 1 if positions.get(element) == stop else stop
    yield from (place for place in range(cursor, len(present)) if present[place] not in applied)


def given_up(once_owned: FieldSet, still_owned: FieldSet, schema: Schema) -> FieldSet:
    """Return the fields an applier owned and nobody owns any more.

    A field with a name of its own (`spec`, `labels`) counts as owned by whoever owns anything
    in it, so the last one to leave takes the empty shell along.
    """
    if not once_owned - still_owned:
        return FieldSet()
    return with_named_fields(once_owned, schema) - with_named_fields(still_owned, schema)


def remove(value: Object, gone: FieldSet, schema: Schema) -> Object:
    """Return the object without these fields, and all that was in them."""
    return {
        name: _remove_below(part, gone.below(FIELD + name), field_schema(schema, name))
        for name, part in value.items()
        if not gone.owns(FIELD + name)
    }


def _remove_below(value: Any, gone: FieldSet, schema: Schema) -> Any:
    if not gone:
        return value
    if is_granular_map(value, schema):
        return remove(cast("Object", value), gone, schema)
    if is_granular_list(value, schema):
        inner = item_schema(schema)
        named = ((item_element(item, schema), item) for item in cast("list[Any]", value))
        return [
            _remove_below(item, gone.below(element), inner)
            for element, item in named
            if not gone.owns(element)
        ]
    return value
