"""Merging an applied configuration into the live object: nothing is lost, what is applied wins."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusterspace.kube.managed_fields.typed_values import (
    field_schema,
    is_granular_list,
    is_granular_map,
    item_element,
    item_schema,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


def merge(live: Object, applied: Mapping[str, Any], schema: Schema) -> Object:
    """Return the live object with every applied field set as applied."""
    merged = {
        name: _merge_values(live[name], held, field_schema(schema, name)) if name in live else held
        for name, held in applied.items()
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
    positions = {element: place for place, element in reversed(list(enumerate(present)))}
    applied = set(wanted)
    cursor = 0
    for element, anchor in zip(wanted, _anchors(positions, wanted), strict=True):
        stop = anchor if anchor is not None and anchor >= cursor else len(present)
        yield from (place for place in range(cursor, stop) if present[place] not in applied)
        yield element
        cursor = stop + 1 if positions.get(element) == stop else stop
    yield from (place for place in range(cursor, len(present)) if present[place] not in applied)


def _anchors(positions: Mapping[str, int], wanted: Sequence[str]) -> list[int | None]:
    """Return, for each applied element, where the next shared one stands in the live list."""
    anchors: list[int | None] = []
    following: int | None = None
    for element in reversed(wanted):
        following = positions.get(element, following)
        anchors.append(following)
    return anchors[::-1]
