"""Merging a configuration into the live object, and taking out what its applier gave up."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from clusterspace.kube.managed_fields.field_sets import FIELD, FieldSet
from clusterspace.kube.managed_fields.typed_values import (
    field_schema,
    is_granular_list,
    is_granular_map,
    item_element,
    item_schema,
    with_named_fields,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


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
