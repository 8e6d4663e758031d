"""Whose the fields of a member object are, by what the member itself keeps of it.

A cluster notes in `managedFields` who set which field. Three kinds of owners matter to us:

    we        set it when we last wrote the object
    authors   own a field that the manifest sets, too: they made the object before it was ours, or
              go on applying it to the member; their say over it is what the manifest replaces
    others    share nothing with the manifest: injectors, autoscalers, controllers, people who
              added something. So do fields with no owner, which admission added

What we and authors set and the manifest does not is taken out; what others set stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.kube.managed_fields.field_sets import FIELD, FieldSet, Path
from clusterspace.kube.managed_fields.managers import Entry, raw_entries, read_entries
from clusterspace.kube.managed_fields.typed_values import (
    field_schema,
    is_granular_list,
    is_granular_map,
    item_element,
    item_schema,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema

APART: Final = FieldSet.of(("f:metadata",), ("f:status",), ("f:apiVersion",), ("f:kind",))
"""Not content: names and stamps have rules of their own, a status is its controllers'."""

NOBODY: Final = "somebody"


@dataclass(frozen=True, slots=True)
class Owners:
    """The content of an object, divided by whose word on it counts."""

    replaced: FieldSet
    """What we set, or authors did: it goes unless the manifest sets it."""
    others: FieldSet


def owners_of(live: Object, told: FieldSet, ourselves: str) -> Owners | None:
    """Return who owns the content of an object; None when the member kept no record.

    `told` are the fields the manifest sets, `ourselves` is the name we write under.
    """
    entries = read_entries(raw_entries(live)).values()
    if not entries:
        return None
    replaced, others = FieldSet(), FieldSet()
    for entry in entries:
        content = entry.fields.without(APART)
        if entry.manager == ourselves or _is_author(entry, content, told):
            replaced = replaced | content
        else:
            others = others | content
    return Owners(replaced, others)


def _is_author(entry: Entry, content: FieldSet, told: FieldSet) -> bool:
    """Whether the manifest says what this manager said before.

    A field in common makes an author, and so does a map at the top, such as `data`, which the
    manager made and the manifest writes to: its keys may all differ. Deeper down a map may well be
    an injector's that both happen to add to.
    """
    if entry.subresource:
        return False
    if content & told:
        return True
    return any(content.owns(each) for each in told.elements())


def managers_at(live: Object, path: Path) -> tuple[str, ...]:
    """Return who owns a field, or something in it, by name."""
    entries = read_entries(raw_entries(live)).values()
    return tuple(sorted({entry.manager for entry in entries if _holds(entry.fields, path)}))


def _holds(fields: FieldSet, path: Path) -> bool:
    below = fields
    for element in path[:-1]:
        below = below.below(element)
    return below.owns(path[-1]) or bool(below.below(path[-1]))


def without_untold(content: Object, told: FieldSet, owners: Owners, schema: Schema) -> Object:
    """Return the content without what we or authors set and the manifest does not set any more."""
    return _Taking(told, owners.replaced, owners.others).from_map(content, schema)


@dataclass(frozen=True, slots=True)
class _Taking:
    """The three sets at one place of the object, and what to take out below it."""

    told: FieldSet
    replaced: FieldSet
    others: FieldSet

    def at(self, element: str) -> "_Taking":
        return _Taking(
            self.told.below(element), self.replaced.below(element), self.others.below(element)
        )

    def from_map(self, value: Object, schema: Schema) -> Object:
        kept: Object = {}
        for name, held in value.items():
            left = self._field(FIELD + name, held, field_schema(schema, name))
            if left is not _GONE:
                kept[name] = left
        return kept

    def _field(self, element: str, held: Any, schema: Schema) -> Any:
        """Return what is left of a field: maps lose what is ours in them, other values go whole."""
        below = self.at(element)
        if not _mentions(self.replaced, element):
            return held
        is_told = _mentions(self.told, element)
        if is_granular_map(held, schema) and (held or is_told):
            left = below.from_map(cast("Object", held), schema)
            return left if left or is_told else _GONE
        if is_granular_list(held, schema) and (held or is_told):
            items = below.from_list(cast("list[Any]", held), schema)
            return items if items or is_told else _GONE
        return held if is_told or _mentions(self.others, element) else _GONE

    def from_list(self, items: list[Any], schema: Schema) -> list[Any]:
        inner = item_schema(schema)
        left = (self._item(item_element(item, schema), item, inner) for item in items)
        return [item for item in left if item is not _GONE]

    def _item(self, element: str, item: Any, schema: Schema) -> Any:
        """Return what is left of an element: it goes whole, unless others have a part in it."""
        below = self.at(element)
        if not _mentions(self.replaced, element):
            return item
        is_kept = _mentions(self.told, element) or _mentions(self.others, element)
        if not is_kept:
            return _GONE
        return below.from_map(item, schema) if is_granular_map(item, schema) else item


_GONE: Final = object()


def _mentions(fields: FieldSet, element: str) -> bool:
    return fields.owns(element) or bool(fields.below(element))


def names_of(managers: Iterable[str]) -> str:
    """Return managers as a sentence names them."""
    return ", ".join(managers) or NOBODY
