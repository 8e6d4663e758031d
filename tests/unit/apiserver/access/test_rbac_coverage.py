"""What somebody writes against what they hold: exactly the missing permissions, and in time."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.access import rbac
from clusterspace.apiserver.access.rbac import SHOWN, Rule, TooManyPermissions, missing_atoms


def texts(*choices: str, at_least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    chosen = st.lists(st.sampled_from(choices), unique=True, min_size=at_least, max_size=3)
    return chosen.map(tuple)


RESOURCE_RULES = st.builds(
    Rule,
    verbs=texts("get", "list", "watch", "*"),
    groups=texts("", "apps", "*"),
    resources=texts("pods", "pods/log", "*/log", "*", "a/b/c", "pods/", "jobs"),
    names=texts("web", "db", ""),
)
PATH_RULES = st.builds(
    Rule,
    verbs=texts("get", "post", "*", at_least=1),
    paths=texts("/healthz", "/healthz/*", "/*", "*", "/api", "/api/v1"),
)
RULES = st.lists(RESOURCE_RULES | PATH_RULES, max_size=4)


def covers(held: Rule, atom: Rule) -> bool:
    """Whether one held rule gives one permission, by the letter of Kubernetes' rules."""

    def has(listed: tuple[str, ...], wanted: str) -> bool:
        return wanted in listed or "*" in listed

    def path_has(listed: str) -> bool:
        starred = listed.endswith("*")
        return atom.paths[0].startswith(listed.rstrip("*")) if starred else listed == atom.paths[0]

    if not has(held.verbs, atom.verbs[0]):
        return False
    if atom.paths:
        return any(map(path_has, held.paths))
    resource, _, part = atom.resources[0].partition("/")
    is_held = (
        has(held.resources, f"{resource}/{part}") or f"*/{part}" in held.resources
        if part
        else has(held.resources, resource)
    )
    is_named = not held.names or (bool(atom.names) and atom.names[0] in held.names)
    return is_held and has(held.groups, atom.groups[0]) and is_named


def one_by_one(wanted: list[Rule], held: list[Rule]) -> set[Rule]:
    atoms = {
        Rule((verb,), (group,), (resource,), (name,) if name else ())
        for rule in wanted
        for verb, group, resource in product(rule.verbs, rule.groups, rule.resources)
        for name in rule.names or ("",)
    }
    atoms |= {
        Rule((verb,), paths=(path,))
        for rule in wanted
        for verb, path in product(rule.verbs, rule.paths)
    }
    return {atom for atom in atoms if not any(covers(each, atom) for each in held)}


@given(RULES, RULES)
def test_exactly_what_no_held_rule_covers_is_missing(wanted: list[Rule], held: list[Rule]) -> None:
    assert set(missing_atoms(wanted, held)) == one_by_one(wanted, held)


@given(RULES, RULES)
def test_large_rules_are_compared_as_exactly_as_small_ones(
    wanted: list[Rule], held: list[Rule]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rbac, "LISTED", 0)

        missing = set(missing_atoms(wanted, held))

    truly = one_by_one(wanted, held)
    assert missing == truly if len(truly) < SHOWN else missing <= truly


def many(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{index}" for index in range(120))


def test_a_role_of_millions_of_permissions_is_refused_with_some_of_them() -> None:
    huge = Rule(many("verb"), many("group"), many("resource"))

    missing = list(missing_atoms([huge], [Rule(("get",), ("",), ("pods",))]))

    assert len(missing) == SHOWN


def test_one_permission_among_millions_that_is_not_held_is_found() -> None:
    huge = Rule(many("verb"), many("group"), many("resource"))
    all_but_one_verb = Rule(many("verb")[:-1], ("*",), ("*",))
    all_but_one_group = Rule(("*",), many("group")[:-1], ("*",))
    all_but_one_resource = Rule(("*",), ("*",), many("resource")[:-1])

    missing = list(
        missing_atoms([huge], [all_but_one_verb, all_but_one_group, all_but_one_resource])
    )

    assert missing == [Rule(("verb119",), ("group119",), ("resource119",))]


def test_millions_of_permissions_that_are_held_are_granted() -> None:
    huge = Rule(many("verb"), many("group"), many("resource"))

    assert list(missing_atoms([huge], [huge])) == []


def test_what_cannot_be_compared_in_time_is_no_yes() -> None:
    each_its_own = [Rule((f"verb{i}",), ("*",), ("*",)) for i in range(120)]
    each_its_own += [Rule(("*",), (f"group{i}",), ("*",)) for i in range(120)]
    each_its_own += [Rule(("*",), ("*",), (f"resource{i}",)) for i in range(120)]
    names = tuple(f"name{i}" for i in range(10_000))
    huge = Rule(many("verb"), many("group"), many("resource"), names)

    with pytest.raises(TooManyPermissions):
        list(missing_atoms([huge], each_its_own))
