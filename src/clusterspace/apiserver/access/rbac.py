"""One rule of a role: what it allows, and whether the rules somebody owns cover it.

    Rule(verbs=("get",), groups=("",), resources=("pods", "*/log"), names=())
    Rule(verbs=("get",), paths=("/healthz", "/api/*"))

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import prod
from typing import Any, Final, TypeAlias, cast

from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.kube.objects import Object

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
EVERYTHING: Final = "*"


@dataclass(frozen=True)
class Rule:
    """Verbs on resources, or verbs on paths; never both."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @cached_property
    def _verb_set(self) -> frozenset[str]:
        return frozenset(self.verbs)

    @cached_property
    def _group_set(self) -> frozenset[str]:
        return frozenset(self.groups)

    @cached_property
    def _resource_set(self) -> frozenset[str]:
        return frozenset(self.resources)

    @cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self.names)

    def allows_verb(self, verb: str) -> bool:
        """Whether the verb is one of the rule's."""
        return verb in self._verb_set or EVERYTHING in self._verb_set

    def allows_group(self, group: str) -> bool:
        """Whether the API group is one of the rule's."""
        return group in self._group_set or EVERYTHING in self._group_set

    def allows_resource(self, resource: str, subresource: str = "") -> bool:
        """Whether the resource, or its subresource, is one of the rule's.

        `pods` does not include `pods/log`; `*` includes both, and `*/log` every log.
        """
        resources = self._resource_set
        if EVERYTHING in resources:
            return True
        if not subresource:
            return resource in resources
        return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources

    def allows_name(self, name: str) -> bool:
        """Whether the object's name is one of the rule's; a rule without names is about all."""
        return not self.names or name in self._name_set

    def allows_path(self, path: str) -> bool:
        """Whether the path is one of the rule's; a star at the end stands for any rest."""
        for pattern in self.paths:
            if pattern.endswith(EVERYTHING):
                if path.startswith(pattern.rstrip(EVERYTHING)):
                    return True
            elif pattern == path:
                return True
        return False

    def allows(self, info: RequestInfo, name: str) -> bool:
        """Whether the rule allows what a request asks for; `name` is the object it is about."""
        if not self.allows_verb(info.verb):
            return False
        if not info.is_resource:
            return self.allows_path(info.path)
        return (
            self.allows_group(info.group)
            and self.allows_resource(info.resource, info.subresource)
            and self.allows_name(name)
        )

    def shares_with(self, other: "Rule") -> bool:
        """Whether any verb, and for resources any group, is in both rules."""
        verbs, groups = self._verb_set, self._group_set
        if EVERYTHING not in verbs and verbs.isdisjoint(other.verbs):
            return False
        return not other.groups or EVERYTHING in groups or not groups.isdisjoint(other.groups)

    @property
    def size(self) -> int:
        """How many texts the rule is made of."""
        return sum(map(len, (self.verbs, self.groups, self.resources, self.names, self.paths)))

    def as_object(self) -> Object:
        """Return the rule as roles and reviews write it."""
        fields = {
            "verbs": self.verbs,
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.paths,
        }
        return {field: list(values) for field, values in fields.items() if values}


def read_rules(listed: Any) -> tuple[Rule, ...]:
    """Read `rules` of a role; what is not a rule is left out, and so grants nothing."""
    if not isinstance(listed, list):
        return ()
    return tuple(
        Rule(
            verbs=_texts(fields.get("verbs")),
            groups=_texts(fields.get("apiGroups")),
            resources=_texts(fields.get("resources")),
            names=_texts(fields.get("resourceNames")),
            paths=_texts(fields.get("nonResourceURLs")),
        )
        for fields in cast("list[Object]", listed)
        if isinstance(cast("object", fields), dict)
    )


def _texts(listed: Any) -> tuple[str, ...]:
    if not isinstance(listed, list):
        return ()
    return tuple(each for each in cast("list[object]", listed) if isinstance(each, str))


# -- coverage ----------------------------------------------------------------------------------
#
# A rule of 120 verbs, 120 groups and 120 resources gives 1.7 million permissions (an atom is one
# verb on one resource of one group, perhaps of one name). Each atom must be covered by one owned
# rule; two rules that each cover a half of it do not. Most atoms are alike: values that the same
# owned rules allow need to be looked at once.
#
#     owned      1 get,list on pods    2 * on pods/log
#     requested  get,list,watch on pods,pods/log
#     verbs      {get,list}: by 1 and 2    {watch}: by 2
#     resources  {pods}: by 1              {pods/log}: by 2
#     missing    {watch} on {pods}: no owned rule is in both
#
# Where even that is too much to look at, the answer is a refusal: nothing here calls covered what
# was not compared.

LISTED: Final = 10_000
"""Up to this many atoms are looked at one by one, and every missing one is named."""

SHOWN: Final = 100
"""How many missing atoms of larger rules are named."""

STEPS: Final = 2_000_000
"""Comparisons of one value with one owned rule, for all rules of a role: about half a second."""

_Owners: TypeAlias = int
"""Which owned rules allow a value: one bit for each."""


class TooManyPermissions(Exception):
    """More was asked for than can be compared in reasonable time."""


def missing_atoms(requested: Iterable[Rule], owned: Iterable[Rule]) -> Iterator[Rule]:
    """Yield what the requested rules give and the owned ones do not; for large ones, part of it.

    Yields nothing only when every permission is covered. Raises TooManyPermissions when that
    cannot be found out within STEPS.
    """
    comparison = _Comparison(tuple(owned))
    for rule in requested:
        yield from comparison.missing(rule)


class _Comparison:
    """One comparison, and how much of its time is left."""

    def __init__(self, owned: tuple[Rule, ...]) -> None:
        self._about_resources = tuple(each for each in owned if each.resources)
        self._about_paths = tuple(each for each in owned if each.paths)
        self._steps = STEPS
        self._atoms = LISTED
        self._to_show = SHOWN

    def missing(self, rule: Rule) -> Iterator[Rule]:
        """Yield what one rule gives beyond the owned ones."""
        if not self._to_show:
            return  # the answer is no, and long enough
        if rule.groups and rule.resources and rule.verbs:
            owned = self._sharing(rule, self._about_resources)
            dimensions = (
                self._owners_of(rule.groups, owned, Rule.allows_group),
                self._owners_of(rule.resources, owned, _allows_slashed),
                self._owners_of(rule.verbs, owned, Rule.allows_verb),
                # No name means all of them: only a rule without names covers that.
                self._owners_of(rule.names or ("",), owned, _covers_name),
            )
            for group, resource, verb, name in self._uncovered(dimensions):
                yield Rule((verb,), (group,), (resource,), (name,) if name else ())
        if rule.paths and rule.verbs:
            owned = self._sharing(rule, self._about_paths)
            self._spend(len(rule.paths) * sum(len(each.paths) for each in owned))
            dimensions = (
                self._owners_of(rule.paths, owned, Rule.allows_path),
                self._owners_of(rule.verbs, owned, Rule.allows_verb),
            )
            for path, verb in self._uncovered(dimensions):
                yield Rule((verb,), paths=(path,))

    def _sharing(self, rule: Rule, owned: tuple[Rule, ...]) -> list[Rule]:
        """Return the owned rules that share a verb and a group: the others cover none of it."""
        self._spend(len(owned))
        return [each for each in owned if each.shares_with(rule)]

    def _owners_of(
        self, values: Sequence[str], owned: list[Rule], allows: Callable[[Rule, str], bool]
    ) -> dict[str, _Owners]:
        """Return which owned rules allow each value."""
        self._spend(len(values) * len(owned))
        return {
            value: sum(1 << bit for bit, each in enumerate(owned) if allows(each, value))
            for value in values
        }

    def _uncovered(self, dimensions: tuple[dict[str, _Owners], ...]) -> Iterator[tuple[str, ...]]:
        """Yield the atoms that no single owned rule allows in every dimension."""
        count = prod(map(len, dimensions))
        if count <= self._atoms:
            self._atoms -= count
            for chosen in product(*(each.items() for each in dimensions)):
                if not _common(owners for _, owners in chosen):
                    yield tuple(value for value, _ in chosen)
            return
        # Too many to look at one by one: values that the same owned rules allow are one class,
        # and whatever holds for one member of a class holds for all.
        classes: list[dict[_Owners, list[str]]] = []
        for dimension in dimensions:
            alike: dict[_Owners, list[str]] = {}
            for value, owners in dimension.items():
                alike.setdefault(owners, []).append(value)
            classes.append(alike)
        for chosen in product(*(each.items() for each in classes)):
            self._spend(1)
            if _common(owners for owners, _ in chosen):
                continue
            for values in islice(product(*(values for _, values in chosen)), self._to_show):
                self._to_show -= 1
                yield values
            if not self._to_show:
                return

    def _spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise TooManyPermissions


def _common(owners: Iterable[_Owners]) -> _Owners:
    """Return which owned rules allow all of the values, and so cover the atom they make."""
    common = -1
    for each in owners:
        common &= each
    return common


def _allows_slashed(rule: Rule, resource: str) -> bool:
    name, _, subresource = resource.partition("/")
    return rule.allows_resource(name, subresource)


def _covers_name(rule: Rule, name: str) -> bool:
    return not rule.names or (bool(name) and rule.allows_name(name))
