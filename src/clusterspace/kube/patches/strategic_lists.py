"""The lists of a strategic merge patch: which elements match, how they merge, in which order.

Order, by example. The object has `a b c d`, the patch brings `d x b`. What the patch names comes
in the patch's order; what only the object has keeps its own order and stays before whatever it
was before:  `a c d x b`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from clusterspace import errors
from clusterspace.kube.objects import Object
from clusterspace.kube.patches import directives, refusals

MergeElement: TypeAlias = Callable[[Object, Object, str], Object]
"""Merges a patch element into the element it names; the last argument is the place."""


@dataclass(frozen=True, slots=True)
class ListRule:
    """How one list is merged; without a merge key its elements are plain values."""

    merge_key: str
    merge_element: MergeElement


def merge_lists(present: list[Any], change: list[Any], rule: ListRule, place: str) -> list[Any]:
    """Merge a list of the patch into the object's, in the order the patch asks for."""
    if not present and not change:
        return present
    if _element_type(present, change, place) is dict:
        return _merge_maps(present, change, rule, place)
    merged = list({_identity(value, "", place): value for value in [*present, *change]}.values())
    return ordered(merged, by=change, server_order=present, merge_key="", place=place)


def ordered(
    elements: list[Any],
    *,
    by: Sequence[Any],
    server_order: Sequence[Any],
    merge_key: str,
    place: str,
) -> list[Any]:
    """Sort what `by` names like `by`, and fit in the rest where the object had it."""
    wanted = _ranks(by, merge_key, place)
    held = _ranks(server_order, merge_key, place)
    identities = [(_identity(element, merge_key, place), element) for element in elements]
    named = sorted((pair for pair in identities if pair[0] in wanted), key=lambda p: wanted[p[0]])
    others = [pair for pair in identities if pair[0] not in wanted]
    others.sort(key=lambda pair: held.get(pair[0], len(held)))
    result: list[Any] = []
    upcoming = 0
    for identity, element in named:
        rank = held.get(identity, -1)
        while upcoming < len(others) and held.get(others[upcoming][0], len(held)) < rank:
            result.append(others[upcoming][1])
            upcoming += 1
        result.append(element)
    return [*result, *(element for _, element in others[upcoming:])]


def order_after_merge(
    present: list[Any], merged: list[Any], merge_key: str, place: str
) -> list[Any]:
    """Return the order the object's list counts as having once the patch is merged into it.

    Elements that came in exchange for deleted ones stand at its end, one for one; Kubernetes
    fills the freed slots of the list that way before it looks at `$setElementOrder`. Any further
    new element has no place in it.
    """
    before = _ranks(present, merge_key, place)
    after = _ranks(merged, merge_key, place)
    kept = [element for element in present if _identity(element, merge_key, place) in after]
    new = [element for element in merged if _identity(element, merge_key, place) not in before]
    return [*kept, *new[: len(present) - len(kept)]]


def check_order(change: list[Any], order: list[Any], merge_key: str, place: str) -> None:
    """Refuse a patch whose list is not in the order its own `$setElementOrder` asks for."""
    if not change or not order:
        return
    remaining = iter([_identity(element, merge_key, place) for element in order])
    content = (element for element in change if not directives.acts_on_others(element))
    if not all(_identity(element, merge_key, place) in remaining for element in content):
        problem = (
            f"The order in patch list:\n{refusals.shown(change)}\n"
            f" doesn't match $setElementOrder list:\n{refusals.shown(order)}\n"
        )
        raise errors.UnmergeablePatch(problem, place=place)


def without_values(present: list[Any], doomed: list[Any], place: str) -> list[Any]:
    """Return the list of plain values without the doomed ones."""
    gone = {_identity(value, "", place) for value in doomed}
    return [value for value in present if _identity(value, "", place) not in gone]


def _merge_maps(present: list[Any], change: list[Any], rule: ListRule, place: str) -> list[Any]:
    if not rule.merge_key:
        problem = "cannot merge lists without merge key for struct"
        raise errors.UnmergeablePatch(problem, place=place)
    split = _split(change, rule.merge_key, place)
    if split.replaces:
        return [directives.without_directives(element) for element in split.content]
    kept = [
        element
        for element in present
        if _identity(element, rule.merge_key, place) not in split.doomed
    ]
    merged = _merge_content(kept, split.content, rule, place)
    return ordered(
        merged, by=split.content, server_order=kept, merge_key=rule.merge_key, place=place
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """The elements of a patch list, by what they ask for."""

    content: list[Object]
    doomed: frozenset[Hashable]
    replaces: bool


def _split(change: list[Object], merge_key: str, place: str) -> _Split:
    content: list[Object] = []
    doomed: set[Hashable] = set()
    replaces = False
    for index, element in enumerate(change):
        element_place = f"{place}[{index}]"
        action = directives.read_action(element, element_place)
        if action == directives.REPLACE:
            replaces = True
        elif action == directives.DELETE:
            doomed.add(_identity(element, merge_key, element_place))
        else:
            _identity(element, merge_key, element_place)
            content.append(element)
    return _Split(content, frozenset(doomed), replaces)


def _merge_content(
    kept: list[Object], content: list[Object], rule: ListRule, place: str
) -> list[Object]:
    merged = list(kept)
    positions = _ranks(kept, rule.merge_key, place)
    for element in content:
        identity = _identity(element, rule.merge_key, place)
        position = positions.get(identity)
        if position is None:
            positions[identity] = len(merged)
            merged.append(directives.without_directives(element))
        else:
            named = f"{place}[{rule.merge_key}={element[rule.merge_key]}]"
            merged[position] = rule.merge_element(merged[position], element, named)
    return merged


def _ranks(elements: Iterable[Any], merge_key: str, place: str) -> dict[Hashable, int]:
    """Return where each element first comes."""
    ranks: dict[Hashable, int] = {}
    for rank, element in enumerate(elements):
        ranks.setdefault(_identity(element, merge_key, place), rank)
    return ranks


def _identity(element: Any, merge_key: str, place: str) -> Hashable:
    """Return what makes two elements the same one: the merge key's value, or the value itself."""
    value = element
    if merge_key:
        if not isinstance(element, dict):
            raise errors.UnmergeablePatch(refusals.wrong_type(dict, element), place=place)
        fields = cast("Object", element)
        if merge_key not in fields:
            problem = (
                f"map: {refusals.shown(fields)} does not contain declared merge key: {merge_key}"
            )
            raise errors.UnmergeablePatch(problem, place=place)
        value = fields[merge_key]
    if isinstance(value, dict | list):
        problem = f"elements cannot be told apart by a {refusals.type_name(value)}"
        raise errors.UnmergeablePatch(problem, place=place)
    # With its type, for Python finds True equal to 1.
    return cast("Hashable", type(value)), value


def _element_type(present: list[Any], change: list[Any], place: str) -> Any:
    """Return the one type all elements have."""
    types: set[Any] = {type(element) for element in [*present, *change]}
    if list in types:
        raise errors.InapplicablePatch("lists of lists are not supported", place=place)
    if len(types) != 1 or type(None) in types:
        problem = f"list element types are not identical: {refusals.shown([present, change])}"
        raise errors.UnmergeablePatch(problem, place=place)
    return types.pop()
