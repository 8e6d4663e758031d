"""What changed between two states of an object, as sets of fields."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.kube.managed_fields.field_sets import (
    OWNED,
    Fields,
    FieldSet,
    in_order,
    owned_with,
)
from clusterspace.kube.managed_fields.path_elements import FIELD
from clusterspace.kube.managed_fields.typed_values import (
    field_schema,
    is_granular_list,
    is_granular_map,
    item_element,
    item_schema,
)
from clusterspace.kube.schemas.model import Schema

_write: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a write put there, and what it took away."""

    changed: FieldSet
    removed: FieldSet

    def without(self, ignored: FieldSet) -> "Comparison":
        """Return the comparison as if nothing in or below `ignored` had been looked at."""
        return Comparison(self.changed.without(ignored), self.removed.without(ignored))

    def __bool__(self) -> bool:
        return bool(self.changed) or bool(self.removed)


def compare(before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema) -> Comparison:
    """Return what it takes to come from one state of an object to another."""
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
    return type(left) is str or _write(left) == _write(right) or _same_closely(left, right)


def _same_closely(left: Any, right: Any) -> bool:
    """Compare values that Python calls equal, true or false against numbers only."""
    if isinstance(left, dict):
        others = cast("dict[str, Any]", right)
        return all(same(held, others[key]) for key, held in cast("dict[str, Any]", left).items())
    if isinstance(left, list):
        return all(map(same, cast("list[Any]", left), cast("list[Any]", right)))
    return isinstance(left, bool) == isinstance(right, bool)


def everything_below(value: Any, schema: Schema) -> Fields:
    """Return every field of a value that was not there before, or is not there any more."""
    if is_granular_map(value, schema):
        return in_order(
            {
                FIELD + name: owned_with(everything_below(held, field_schema(schema, name)))
                for name, held in cast("dict[str, Any]", value).items()
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
        for name, held in after.items():
            inner = field_schema(schema, name)
            if name in before:
                self.compare_values(FIELD + name, before[name], held, inner)
            else:
                self.add(FIELD + name, held, inner)
        for name in before.keys() - after.keys():
            self.remove(FIELD + name, before[name], field_schema(schema, name))

    def compare_lists(self, before: Sequence[Any], after: Sequence[Any], schema: Schema) -> None:
        """Compare element by element; elements are found by name, wherever they stand."""
        inner = item_schema(schema)
        old, new = _by_element(before, schema), _by_element(after, schema)
        for element in old.keys() | new.keys():
            self._compare_items(element, old.get(element, ()), new.get(element, ()), inner)

    def compare_values(self, element: str, before: Any, after: Any, schema: Schema) -> None:
        """Compare two values that are both there."""
        if same(before, after):
            return
        below = _Changes()
        if not below.compare_parts(before, after, schema):
            self.changed[element] = owned_with(everything_below(after, schema))
            self._put_removed(element, everything_below(before, schema))
            return
        if below.changed:
            self.changed[element] = in_order(below.changed)
        self._put_removed(element, below.removed)

    def compare_parts(self, before: Any, after: Any, schema: Schema) -> bool:
        """Compare two values part by part; say no when they have no parts to compare.

        Null stands for an empty object or list: the place is there, with nothing in it.
        """
        if not before and not after:
            return False
        old, new = _emptied(before, {}), _emptied(after, {})
        if is_granular_map(old, schema) and is_granular_map(new, schema):
            self.compare_maps(old, new, schema)
            return True
        old, new = _emptied(before, []), _emptied(after, [])
        if is_granular_list(old, schema) and is_granular_list(new, schema):
            self.compare_lists(old, new, schema)
            return True
        return False

    def add(self, element: str, value: Any, schema: Schema) -> None:
        """Note a value that was not there, with all its parts."""
        self.changed[element] = owned_with(everything_below(value, schema))

    def remove(self, element: str, value: Any, schema: Schema) -> None:
        """Note a value that is gone, with all its parts."""
        self.removed[element] = owned_with(everything_below(value, schema))

    def _put_removed(self, element: str, below: Fields) -> None:
        if below:
            self.removed[element] = in_order(below)

    def _compare_items(
        self, element: str, before: Sequence[Any], after: Sequence[Any], schema: Schema
    ) -> None:
        """Compare the elements of one name: usually one on each side, or on one side only."""
        if len(before) == 1 and len(after) == 1:
            self.compare_values(element, before[0], after[0], schema)
        elif len(before) > 1 and len(after) > 1:
            if not same(list(before), list(after)):
                self.changed[element] = OWNED
        else:
            self._swap_items(element, before, after, schema)

    def _swap_items(
        self, element: str, before: Sequence[Any], after: Sequence[Any], schema: Schema
    ) -> None:
        """Note elements that came, went, or became several of one name or one of several."""
        if before:
            gone = everything_below(before[0], schema) if len(before) == 1 else OWNED
            self.removed[element] = owned_with(gone)
        if after:
            come = everything_below(after[0], schema) if len(after) == 1 else OWNED
            self.changed[element] = owned_with(come)


def _emptied(value: Any, empty: Any) -> Any:
    return empty if value is None else value


def _by_element(items: Iterable[Any], schema: Schema) -> dict[str, list[Any]]:
    """Return the elements of a granular list by name; a name may be borne by several."""
    grouped: dict[str, list[Any]] = {}
    for item in items:
        grouped.setdefault(item_element(item, schema), []).append(item)
    return grouped
