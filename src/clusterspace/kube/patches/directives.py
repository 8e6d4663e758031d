"""The `$` keys of a strategic merge patch: read out of a map, and kept out of results.

    $patch: delete | replace | merge        what becomes of this map, or of the list it stands in
    $retainKeys: [name, ...]                every other field of this map goes
    $setElementOrder/<list>: [...]          the order the elements of the list shall have
    $deleteFromPrimitiveList/<list>: [...]  values that leave the list

https://git.k8s.io/community/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from clusterspace import errors
from clusterspace.kube.objects import Object
from clusterspace.kube.patches import refusals

ACTION: Final = "$patch"
DELETE: Final = "delete"
REPLACE: Final = "replace"
MERGE: Final = "merge"

_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder"
_DELETIONS: Final = "$deleteFromPrimitiveList"


@dataclass(frozen=True, slots=True)
class MapPatch:
    """A patch of one map, with the directives taken out of its fields."""

    fields: Object
    action: str = MERGE
    retained: frozenset[str] | None = None
    orders: Mapping[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    deletions: Mapping[str, list[Any]] = field(default_factory=dict[str, list[Any]])


def read_map_patch(patch: Object, place: str) -> MapPatch:
    """Split a patch of a map into what changes and how."""
    if not any(key.startswith("$") for key in patch):
        return MapPatch(fields=patch)
    fields = {key: change for key, change in patch.items() if not is_directive(key)}
    return MapPatch(
        fields=fields,
        action=read_action(patch, place),
        retained=_read_retained(patch, fields, place),
        orders=_read_orders(patch, place),
        deletions=_read_deletions(patch, place),
    )


def read_action(patch: Object, place: str) -> str:
    """Return what `$patch` says; a patch that does not say merges."""
    action = patch.get(ACTION, MERGE)
    if action not in (DELETE, REPLACE, MERGE):
        problem = f"unknown patch type: {refusals.shown(action)} in map: {refusals.shown(patch)}"
        raise errors.UnmergeablePatch(problem, place=place)
    return action


def is_directive(key: str) -> bool:
    """Return whether a key of a patch is an instruction and not a field."""
    return key.startswith("$") and (
        key in (ACTION, _RETAIN_KEYS) or key.startswith((_ORDER, _DELETIONS))
    )


def without_directives(change: Any) -> Any:
    """Return what a change amounts to where there is nothing to merge it with.

    No nulls and no directives are left. A map that asks to be deleted or replaced is left out:
    there is nothing for it to act on.
    """
    if isinstance(change, dict):
        fields = cast("Object", change)
        return {
            key: without_directives(value)
            for key, value in fields.items()
            if value is not None and not is_directive(key) and not acts_on_others(value)
        }
    if isinstance(change, list):
        elements = cast("list[Any]", change)
        return [without_directives(one) for one in elements if not acts_on_others(one)]
    return change


def acts_on_others(change: Any) -> bool:
    """Return whether a change is an instruction about what is there, with no content of its own."""
    return isinstance(change, dict) and cast("Object", change).get(ACTION, MERGE) != MERGE


def _read_retained(patch: Object, fields: Object, place: str) -> frozenset[str] | None:
    if _RETAIN_KEYS not in patch:
        return None
    retained = _texts(patch[_RETAIN_KEYS])
    # What the patch sets it must also retain: anything else contradicts itself.
    if retained is None or any(
        change is not None and key not in retained for key, change in fields.items()
    ):
        raise errors.MalformedPatch("invalid patch format of retainKeys", place=place)
    return retained


def _texts(value: Any) -> frozenset[str] | None:
    """Return a list of strings as a set, or None when it is anything else."""
    if not isinstance(value, list):
        return None
    elements = cast("list[Any]", value)
    return frozenset(elements) if all(isinstance(one, str) for one in elements) else None


def _read_orders(patch: Object, place: str) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, order in patch.items():
        if not key.startswith(_ORDER):
            continue
        if not isinstance(order, list):
            problem = refusals.wrong_type(list, order)
            raise errors.UnmergeablePatch(problem, place=refusals.place_of(key, place))
        found[_list_of(key, _ORDER, "setElementOrder list", place)] = cast("list[Any]", order)
    return found


def _read_deletions(patch: Object, place: str) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, doomed in patch.items():
        if not key.startswith(_DELETIONS):
            continue
        name = _list_of(key, _DELETIONS, "primitive list", place)
        if not isinstance(doomed, list):
            problem = "invalid patch format of primitive list"
            raise errors.MalformedPatch(problem, place=refusals.place_of(key, place))
        found[name] = cast("list[Any]", doomed)
    return found


def _list_of(key: str, directive: str, what: str, place: str) -> str:
    """Return the list that `$directive/list` is about."""
    written, slash, name = key.partition("/")
    if written != directive or not slash:
        raise errors.MalformedPatch(
            f"invalid patch format of {what}", place=refusals.place_of(key, place)
        )
    return name
