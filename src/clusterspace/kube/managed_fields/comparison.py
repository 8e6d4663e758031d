"""The fields that changed between two states of an object."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.kube.managed_fields.field_sets import (
    FIELD,
    OWNED,
    Fields,
    FieldSet,
    in_order,
    owned_with,
)
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
