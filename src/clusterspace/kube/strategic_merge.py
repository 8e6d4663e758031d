"""Strategic merge patch: like a merge patch, but the schema says how lists and maps come together.

The schema's `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key` decide: a list with
`merge` is merged element by element, by key or by value; any other list is replaced whole.

Keys with a `$` are directives, kept out of results:

    $patch: delete | replace | merge        what becomes of this map, or of the list it stands in
    $retainKeys: [name, ...]                every other field of this map goes
    $setElementOrder/<list>: [...]          the order the elements of the list shall have
    $deleteFromPrimitiveList/<list>: [...]  values that leave the list

https://git.k8s.io/community/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from clusterspace import errors
from clusterspace.kube.json_errors import cannot_unmarshal
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import ANYTHING, Schema

# The strategies a schema may name. `retainKeys` is not among them: it tells makers of patches to
# write `$retainKeys`, and that directive speaks for itself.
_MERGE: Final = "merge"
_REPLACE: Final = "replace"
_DELETE: Final = "delete"

_ACTION: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder"
_DELETIONS: Final = "$deleteFromPrimitiveList"

_GO_TYPES: Final[dict[Any, str]] = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}

_GONE: Final = object()
"""Stands for a field that the patch takes away."""


def apply_strategic_merge(original: Object, patch: Any, schema: Schema) -> Object:
    """Return the object with the patch merged in as its schema says; null changes nothing."""
    if patch is None:
        return original
    if not isinstance(patch, dict):
        problem = cannot_unmarshal(patch, into="Go value of type map[string]interface {}")
        raise errors.MalformedPatch(problem)
    try:
        return _merge_map(original, cast("Object", patch), _Spot(schema, ""))
    except RecursionError as error:
        raise errors.MalformedPatch("the patch is nested too deeply") from error


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place in the object: its schema, and its name in refusals."""

    schema: Schema
    place: str

    def field(self, key: str) -> "_Spot":
        return _Spot(self.schema.field(key) or ANYTHING, _place_of(key, self.place))


# Maps.


def _merge_map(original: Object, patch: Object, spot: _Spot) -> Object:
    if not patch:
        return original
    read = _read_map_patch(patch, spot.place)
    if read.action == _DELETE:
        return {}
    if read.action == _REPLACE:
        return _without_directives(patch)
    present = original
    if read.retained is not None:
        present = {key: value for key, value in original.items() if key in read.retained}
    merged = dict(present)
    for key, change in read.fields.items():
        merged[key] = _changed(present.get(key), change, spot.field(key))
    _set_element_orders(present, merged, read, spot)
    for key, doomed in read.deletions.items():
        if isinstance(merged.get(key), list):
            place = spot.field(key).place
            gone = {_identity(value, "", place) for value in doomed}
            merged[key] = [
                value for value in merged[key] if _identity(value, "", place) not in gone
            ]
    return {key: value for key, value in merged.items() if value is not _GONE}


def _changed(current: Any, change: Any, spot: _Spot) -> Any:
    """Return the new value of a field; what cannot be merged with the change gives way to it."""
    strategies = spot.schema.patch_strategies
    if isinstance(change, dict) and isinstance(current, dict):
        if _REPLACE in strategies:
            return _without_directives(change)
        return _merge_map(cast("Object", current), cast("Object", change), spot)
    if isinstance(change, list) and isinstance(current, list):
        if _MERGE not in strategies:
            return _without_directives(change)
        return _merge_lists(cast("list[Any]", current), cast("list[Any]", change), spot)
    if change is None or _acts_on_others(change):
        return _GONE
    return _without_directives(change)


def _set_element_orders(present: Object, merged: Object, read: "_MapPatch", spot: _Spot) -> None:
    """Sort the merged lists that have a `$setElementOrder`."""
    for key, order in read.orders.items():
        list_spot = spot.field(key)
        place, merge_key = list_spot.place, list_spot.schema.patch_merge_key
        current = _list_at(present, key, place)
        change = _list_at(read.fields, key, place)
        if change and order:
            # The patch's own list must be in the order that it asks for.
            remaining = iter([_identity(each, merge_key, place) for each in order])
            content = (each for each in change if not _acts_on_others(each))
            if not all(_identity(each, merge_key, place) in remaining for each in content):
                problem = (
                    f"The order in patch list:\n{go_text(change)}\n"
                    f" doesn't match $setElementOrder list:\n{go_text(order)}\n"
                )
                raise errors.UnmergeablePatch(problem, place=place)
        if not isinstance(merged.get(key), list):
            continue
        # The order the object's list counts as having once the patch is merged into it. Elements
        # that came in exchange for deleted ones stand at its end, one for one: Kubernetes fills the
        # freed slots of the list that way before it looks at the order. Any further new element
        # has no place in it. With `a b c`, of which b went and x and y came, it is `a c x`.
        before = _ranks(current, merge_key, place)
        after = _ranks(merged[key], merge_key, place)
        kept = [each for each in current if _identity(each, merge_key, place) in after]
        new = [each for each in merged[key] if _identity(each, merge_key, place) not in before]
        counted = [*kept, *new[: len(current) - len(kept)]]
        merged[key] = _ordered(
            merged[key], by=order, server_order=counted, merge_key=merge_key, place=place
        )


def _list_at(fields: Object, key: str, place: str) -> list[Any]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise errors.UnmergeablePatch(_wrong_type(list, value), place=place)
    return cast("list[Any]", value)


# Lists: which elements match, how they merge, in which order.


def _merge_lists(present: list[Any], change: list[Any], spot: _Spot) -> list[Any]:
    """Merge a list of the patch into the object's, in the order the patch asks for."""
    place = spot.place
    if not present and not change:
        return present
    types: set[Any] = {type(element) for element in [*present, *change]}
    if list in types:
        raise errors.InapplicablePatch("lists of lists are not supported", place=place)
    if len(types) != 1 or type(None) in types:
        problem = f"list element types are not identical: {go_text([present, change])}"
        raise errors.UnmergeablePatch(problem, place=place)
    if dict in types:
        return _merge_map_lists(present, change, spot)
    values = {_identity(value, "", place): value for value in [*present, *change]}
    return _ordered(
        list(values.values()), by=change, server_order=present, merge_key="", place=place
    )


def _merge_map_lists(present: list[Any], change: list[Any], spot: _Spot) -> list[Any]:
    place, merge_key = spot.place, spot.schema.patch_merge_key
    if not merge_key:
        problem = "cannot merge lists without merge key for struct"
        raise errors.UnmergeablePatch(problem, place=place)

    content: list[Object] = []
    doomed: set[Hashable] = set()
    replaces = False
    for index, element in enumerate(change):
        element_place = f"{place}[{index}]"
        action = _read_action(element, element_place)
        if action == _REPLACE:
            replaces = True
            continue
        identity = _identity(element, merge_key, element_place)
        if action == _DELETE:
            doomed.add(identity)
        else:
            content.append(element)
    if replaces:
        return [_without_directives(element) for element in content]

    kept = [each for each in present if _identity(each, merge_key, place) not in doomed]
    merged = list(kept)
    positions = _ranks(kept, merge_key, place)
    items = spot.schema.items or ANYTHING
    for element in content:
        identity = _identity(element, merge_key, place)
        position = positions.get(identity)
        if position is None:
            positions[identity] = len(merged)
            merged.append(_without_directives(element))
        else:
            item = _Spot(items, f"{place}[{merge_key}={element[merge_key]}]")
            merged[position] = _merge_map(merged[position], element, item)
    return _ordered(merged, by=content, server_order=kept, merge_key=merge_key, place=place)


def _ordered(
    elements: list[Any],
    *,
    by: Sequence[Any],
    server_order: Sequence[Any],
    merge_key: str,
    place: str,
) -> list[Any]:
    """Sort what `by` names like `by`, and fit in the rest where the object had it.

    The object has `a b c d`, the patch brings `d x b`. What the patch names comes in the patch's
    order; what only the object has keeps its own order and stays before whatever it was before:
    `a c d x b`.
    """
    wanted = _ranks(by, merge_key, place)
    server = _ranks(server_order, merge_key, place)
    identities = [(_identity(element, merge_key, place), element) for element in elements]
    named = sorted((pair for pair in identities if pair[0] in wanted), key=lambda p: wanted[p[0]])
    others = [pair for pair in identities if pair[0] not in wanted]
    others.sort(key=lambda pair: server.get(pair[0], len(server)))
    result: list[Any] = []
    upcoming = 0
    for identity, element in named:
        rank = server.get(identity, -1)
        while upcoming < len(others) and server.get(others[upcoming][0], len(server)) < rank:
            result.append(others[upcoming][1])
            upcoming += 1
        result.append(element)
    return [*result, *(element for _, element in others[upcoming:])]


def _ranks(elements: Iterable[Any], merge_key: str, place: str) -> dict[Hashable, int]:
    """Return where each element first comes."""
    ranks: dict[Hashable, int] = {}
    for rank, element in enumerate(elements):
        ranks.setdefault(_identity(element, merge_key, place), rank)
    return ranks


def _identity(element: Any, merge_key: str, place: str) -> Hashable:
    """Return the identity of an element: the merge key's value, or without one the value itself."""
    value = element
    if merge_key:
        if not isinstance(element, dict):
            raise errors.UnmergeablePatch(_wrong_type(dict, element), place=place)
        fields = cast("Object", element)
        if merge_key not in fields:
            problem = f"map: {go_text(fields)} does not contain declared merge key: {merge_key}"
            raise errors.UnmergeablePatch(problem, place=place)
        value = fields[merge_key]
    if isinstance(value, dict | list):
        problem = f"elements cannot be told apart by a {_go_type(value)}"
        raise errors.UnmergeablePatch(problem, place=place)
    # With its type, for Python finds True equal to 1.
    return cast("Hashable", type(value)), value


# Directives: read out of a map, and kept out of results.


@dataclass(frozen=True, slots=True)
class _MapPatch:
    """A patch of one map, with the directives taken out of its fields."""

    fields: Object
    action: str = _MERGE
    retained: frozenset[str] | None = None
    orders: Mapping[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    deletions: Mapping[str, list[Any]] = field(default_factory=dict[str, list[Any]])


def _read_map_patch(patch: Object, place: str) -> _MapPatch:
    """Split a patch of a map into the fields that change and the directives."""
    if not any(key.startswith("$") for key in patch):
        return _MapPatch(fields=patch)
    fields = {key: change for key, change in patch.items() if not _is_directive(key)}
    action = _read_action(patch, place)

    retained: frozenset[str] | None = None
    if _RETAIN_KEYS in patch:
        listed: Any = patch[_RETAIN_KEYS]
        is_right = isinstance(listed, list) and all(
            isinstance(name, str) for name in cast("list[Any]", listed)
        )
        retained = frozenset(cast("list[str]", listed)) if is_right else frozenset()
        # What the patch sets it must also retain: anything else contradicts itself.
        if not is_right or any(
            change is not None and key not in retained for key, change in fields.items()
        ):
            raise errors.MalformedPatch("invalid patch format of retainKeys", place=place)

    orders: dict[str, list[Any]] = {}
    for key, order in patch.items():
        if key.startswith(_ORDER):
            if not isinstance(order, list):
                problem = _wrong_type(list, order)
                raise errors.UnmergeablePatch(problem, place=_place_of(key, place))
            name = _list_of(key, _ORDER, "setElementOrder list", place)
            orders[name] = cast("list[Any]", order)

    deletions: dict[str, list[Any]] = {}
    for key, doomed in patch.items():
        if key.startswith(_DELETIONS):
            name = _list_of(key, _DELETIONS, "primitive list", place)
            if not isinstance(doomed, list):
                problem = "invalid patch format of primitive list"
                raise errors.MalformedPatch(problem, place=_place_of(key, place))
            deletions[name] = cast("list[Any]", doomed)
    return _MapPatch(fields, action, retained, orders, deletions)


def _list_of(key: str, directive: str, what: str, place: str) -> str:
    """Return the list that `$directive/list` is about."""
    written, slash, name = key.partition("/")
    if written != directive or not slash:
        raise errors.MalformedPatch(f"invalid patch format of {what}", place=_place_of(key, place))
    return name


def _read_action(patch: Object, place: str) -> str:
    """Return the value of `$patch`; a patch without one merges."""
    action = patch.get(_ACTION, _MERGE)
    if action not in (_DELETE, _REPLACE, _MERGE):
        problem = f"unknown patch type: {go_text(action)} in map: {go_text(patch)}"
        raise errors.UnmergeablePatch(problem, place=place)
    return action


def _is_directive(key: str) -> bool:
    return key.startswith("$") and (
        key in (_ACTION, _RETAIN_KEYS) or key.startswith((_ORDER, _DELETIONS))
    )


def _without_directives(change: Any) -> Any:
    """Return the result of a change where there is nothing to merge it with.

    No nulls and no directives are left. A map that asks to be deleted or replaced is left out:
    there is nothing for it to act on.
    """
    if isinstance(change, dict):
        fields = cast("Object", change)
        return {
            key: _without_directives(value)
            for key, value in fields.items()
            if value is not None and not _is_directive(key) and not _acts_on_others(value)
        }
    if isinstance(change, list):
        elements = cast("list[Any]", change)
        return [_without_directives(one) for one in elements if not _acts_on_others(one)]
    return change


def _acts_on_others(change: Any) -> bool:
    """Return whether a change is an instruction about what is there, with no content of its own."""
    return isinstance(change, dict) and cast("Object", change).get(_ACTION, _MERGE) != _MERGE


# Refusals name types and values the way Go prints them.


def _wrong_type(expected: type, received: Any) -> str:
    return f"expected a {_GO_TYPES[expected]}, but received a {_go_type(received)}"


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(type(value), "nil")


def go_text(value: Any) -> str:
    """Return a decoded JSON value as Go's `%v` prints it: `map[image:nginx ports:[80 443]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            pairs = sorted(cast("Object", value).items())
            return f"map[{' '.join(f'{key}:{go_text(part)}' for key, part in pairs)}]"
        case list():
            return f"[{' '.join(go_text(element) for element in cast('list[Any]', value))}]"
        case _:
            return str(value)


def _place_of(key: str, above: str) -> str:
    """Return the name of a field of the map at `above`, which is empty for the whole patch."""
    return f"{above}.{key}" if above else key
