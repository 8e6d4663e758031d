"""Whether the rules somebody holds cover the rules they write, without looking at every pair.

A rule of 120 verbs, 120 groups and 120 resources gives 1.7 million permissions (an atom is one
verb on one resource of one group, perhaps of one name). Each atom must be covered by one held
rule. Most of them are alike: values that the same held rules allow need to be looked at once.

    held     1 get,list on pods    2 * on pods/log
    wanted   get,list,watch on pods,pods/log
    verbs    {get,list}: by 1 and 2    {watch}: by 2
    things   {pods}: by 1              {pods/log}: by 2
    missing  {watch} on {pods}: no held rule is in both

Where even that is too much to look at, the answer is a refusal: nothing here calls covered what
was not compared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Final, TypeAlias

from clusterspace.apiserver.access.rbac import Rule, path_matches

LISTED: Final = 10_000
"""Up to this many atoms are looked at one by one, and every missing one is named."""

SHOWN: Final = 100
"""How many missing atoms of larger rules are named."""

STEPS: Final = 2_000_000
"""Comparisons of one value with one held rule, for all rules of a role: about half a second."""

_Holders: TypeAlias = int
"""Which held rules allow a value: one bit for each."""


class TooManyPermissions(Exception):
    """More was asked for than can be compared in reasonable time."""


def missing_atoms(wanted: Iterable[Rule], held: Iterable[Rule]) -> Iterator[Rule]:
    """Yield what the wanted rules give and the held ones do not; for large ones, part of it.

    Yields nothing only when every permission is covered. Raises TooManyPermissions when that
    cannot be found out within STEPS.
    """
    comparison = _Comparison(tuple(held))
    for rule in wanted:
        yield from comparison.missing(rule)


class _Comparison:
    """One comparison, and how much of its time is left."""

    def __init__(self, held: tuple[Rule, ...]) -> None:
        self._about_resources = tuple(each for each in held if each.resources)
        self._about_paths = tuple(each for each in held if each.paths)
        self._steps = STEPS
        self._atoms = LISTED
        self._to_show = SHOWN

    def missing(self, rule: Rule) -> Iterator[Rule]:
        """Yield what one rule gives beyond the held ones."""
        if not self._to_show:
            return  # the answer is no, and long enough
        if rule.groups and rule.resources and rule.verbs:
            # Those that share no verb and no group with the rule cover none of it.
            held = self._sharing(rule, self._about_resources)
            names = rule.names or ("",)
            yield from self._uncovered(
                (
                    self._held_by(rule.groups, held, Rule.allows_group),
                    self._held_by(rule.resources, held, _allows_thing),
                    self._held_by(rule.verbs, held, Rule.allows_verb),
                    self._held_by(names, held, _covers_name),
                ),
                _resource_atom,
            )
        if rule.paths and rule.verbs:
            held = self._sharing(rule, self._about_paths)
            self._spend(len(rule.paths) * sum(len(each.paths) for each in held))
            yield from self._uncovered(
                (
                    self._held_by(rule.paths, held, _covers_path),
                    self._held_by(rule.verbs, held, Rule.allows_verb),
                ),
                _path_atom,
            )

    def _sharing(self, rule: Rule, held: tuple[Rule, ...]) -> list[Rule]:
        self._spend(len(held))
        return [each for each in held if each.shares_with(rule)]

    def _held_by(
        self, values: Sequence[str], held: list[Rule], allows: Callable[[Rule, str], bool]
    ) -> dict[str, _Holders]:
        """Return which held rules allow each value."""
        self._spend(len(values) * len(held))
        return {
            value: sum(1 << bit for bit, each in enumerate(held) if allows(each, value))
            for value in values
        }

    def _uncovered(
        self, parts: tuple[dict[str, _Holders], ...], atom_of: Callable[..., Rule]
    ) -> Iterator[Rule]:
        count = 1
        for part in parts:
            count *= len(part)
        if count <= self._atoms:
            self._atoms -= count
            for chosen in product(*(part.items() for part in parts)):
                if not _common(holders for _, holders in chosen):
                    yield atom_of(*(value for value, _ in chosen))
            return
        classes = [_by_holders(part) for part in parts]
        for chosen in product(*(each.items() for each in classes)):
            self._spend(1)
            if _common(holders for holders, _ in chosen):
                continue
            alike = product(*(values for _, values in chosen))
            for values in islice(alike, self._to_show):
                self._to_show -= 1
                yield atom_of(*values)
            if not self._to_show:
                return

    def _spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise TooManyPermissions


def _resource_atom(group: str, resource: str, verb: str, name: str) -> Rule:
    return Rule((verb,), (group,), (resource,), (name,) if name else ())


def _path_atom(path: str, verb: str) -> Rule:
    return Rule((verb,), paths=(path,))


def _by_holders(part: dict[str, _Holders]) -> dict[_Holders, list[str]]:
    """Put values together that the same held rules allow."""
    classes: dict[_Holders, list[str]] = {}
    for value, holders in part.items():
        classes.setdefault(holders, []).append(value)
    return classes


def _common(holders: Iterable[_Holders]) -> _Holders:
    """Return which held rules allow all of the values, and so cover the atom they make."""
    common = -1
    for each in holders:
        common &= each
    return common


def _allows_thing(held: Rule, resource: str) -> bool:
    name, _, subresource = resource.partition("/")
    return held.allows_resource(name, subresource)


def _covers_name(held: Rule, name: str) -> bool:
    """Whether a held rule covers this name; no name means all of them."""
    return not held.names or (bool(name) and held.allows_name(name))


def _covers_path(held: Rule, path: str) -> bool:
    return any(path_matches(each, path) for each in held.paths)
