"""Strategic merge patch: like a merge patch, but the schema says how lists and maps come together.

The schema's `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key` decide: a list with
`merge` is merged element by element, by key or by value; any other list is replaced whole.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace import errors
from clusterspace.kube.objects import Object
from clusterspace.kube.patches import directives, refusals, strategic_lists
from clusterspace.kube.patches.directives import MapPatch
from clusterspace.kube.patches.strategic_lists import ListRule
from clusterspace.kube.schemas.model import ANYTHING, Schema

# The strategies a schema may name. `retainKeys` is not among them: it tells makers of patches to
# write `$retainKeys`, and that directive speaks for itself.
_MERGE: Final = "merge"
_REPLACE: Final = "replace"


def apply_strategic_merge(original: Object, patch: Any, schema: Schema) -> Object:
    """Return the object with the patch merged in as its schema says; null changes nothing."""
    if patch is None:
        return original
    if not isinstance(patch, dict):
        wanted = "Go value of type map[string]interface {}"
        raise errors.MalformedPatch(refusals.cannot_read(patch, wanted=wanted))
    try:
        return _merge_map(original, cast("Object", patch), _Spot(schema, ""))
    except RecursionError as error:
        raise errors.MalformedPatch("the patch is nested too deeply") from error


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where in the object we are: what is known of the place, and what to call it."""

    schema: Schema
    place: str

    def field(self, key: str) -> "_Spot":
        return _Spot(self.schema.field(key) or ANYTHING, refusals.place_of(key, self.place))


def _merge_map(original: Object, patch: Object, spot: _Spot) -> Object:
    if not patch:
        return original
    read = directives.read_map_patch(patch, spot.place)
    if read.action == directives.DELETE:
        return {}
    if read.action == directives.REPLACE:
        return directives.without_directives(patch)
    present = _retained(original, read)
    merged = {**present, **_changed_fields(present, read, spot)}
    merged |= _sorted_lists(present, merged, read, spot)
    merged |= _thinned_lists(merged, read, spot)
    return {key: held for key, held in merged.items() if held is not _GONE}


_GONE: Final = object()
"""Stands for a field that the patch takes away."""


def _retained(original: Object, read: MapPatch) -> Object:
    if read.retained is None:
        return original
    return {key: held for key, held in original.items() if key in read.retained}


def _changed_fields(present: Object, read: MapPatch, spot: _Spot) -> Object:
    return {
        key: _changed(present.get(key), change, spot.field(key))
        for key, change in read.fields.items()
    }


def _changed(held: Any, change: Any, spot: _Spot) -> Any:
    """Return what a field becomes; whatever cannot be merged with the change gives way to it."""
    if isinstance(change, dict) and isinstance(held, dict):
        return _merge_map_field(cast("Object", held), cast("Object", change), spot)
    if isinstance(change, list) and isinstance(held, list):
        return _merge_list_field(cast("list[Any]", held), cast("list[Any]", change), spot)
    if change is None or directives.acts_on_others(change):
        return _GONE
    return directives.without_directives(change)


def _merge_map_field(held: Object, change: Object, spot: _Spot) -> Object:
    if _REPLACE in spot.schema.patch_strategies:
        return directives.without_directives(change)
    return _merge_map(held, change, spot)


def _merge_list_field(held: list[Any], change: list[Any], spot: _Spot) -> list[Any]:
    if _MERGE not in spot.schema.patch_strategies:
        return directives.without_directives(change)
    element_schema = spot.schema.items or ANYTHING

    def merge_element(element: Object, change: Object, place: str) -> Object:
        return _merge_map(element, change, _Spot(element_schema, place))

    rule = ListRule(spot.schema.patch_merge_key, merge_element)
    return strategic_lists.merge_lists(held, change, rule, spot.place)


def _sorted_lists(present: Object, merged: Object, read: MapPatch, spot: _Spot) -> Object:
    """Return the lists that have a `$setElementOrder`, in it."""
    result: Object = {}
    for key, order in read.orders.items():
        list_spot = spot.field(key)
        place, merge_key = list_spot.place, list_spot.schema.patch_merge_key
        held = _list_at(present, key, place)
        strategic_lists.check_order(_list_at(read.fields, key, place), order, merge_key, place)
        if isinstance(merged.get(key), list):
            counted = strategic_lists.order_after_merge(held, merged[key], merge_key, place)
            result[key] = strategic_lists.ordered(
                merged[key], by=order, server_order=counted, merge_key=merge_key, place=place
            )
    return result


def _thinned_lists(merged: Object, read: MapPatch, spot: _Spot) -> Object:
    """Return the lists that have a `$deleteFromPrimitiveList`, without those values."""
    return {
        key: strategic_lists.without_values(merged[key], doomed, spot.field(key).place)
        for key, doomed in read.deletions.items()
        if isinstance(merged.get(key), list)
    }


def _list_at(fields: Object, key: str, place: str) -> list[Any]:
    held = fields.get(key)
    if held is None:
        return []
    if not isinstance(held, list):
        raise errors.UnmergeablePatch(refusals.wrong_type(list, held), place=place)
    return cast("list[Any]", held)
