"""The vocabulary of defaults: a rule takes a struct in normal form and returns it filled in."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from clusterspace.builtins import pods
from clusterspace.kube.objects import Object

Rule: TypeAlias = Callable[[Object], Object]
"""Returns the struct itself when there is nothing to fill in, else a copy with more in it."""

Rules: TypeAlias = dict[str, Rule]
"""Rules by the published name of the struct they are for."""


def rule_for(rules: dict[str, Rule], *names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that files a rule under the names of its structs."""

    def file(rule: Rule) -> Rule:
        rules.update(dict.fromkeys(names, rule))
        return rule

    return file


def missing(**values: Any) -> Rule:
    """Return a rule that sets fields that are absent."""
    return lambda struct: with_missing(struct, values)


def empty(**values: Any) -> Rule:
    """Return a rule that sets fields that are absent or empty: those that show even so."""

    def fill(struct: Object) -> Object:
        wanted = {key: value for key, value in values.items() if not struct.get(key)}
        return {**struct, **wanted} if wanted else struct

    return fill


def in_sequence(*rules: Rule) -> Rule:
    """Return a rule that applies several, each seeing what the one before it filled in."""

    def fill(struct: Object) -> Object:
        for rule in rules:
            struct = rule(struct)
        return struct

    return fill


def within(field: str, rule: Rule) -> Rule:
    """Return a rule that applies another to a field that is there."""

    def fill(struct: Object) -> Object:
        inner = struct.get(field)
        if inner is None:
            return struct
        filled = rule(cast("Object", inner))
        return struct if filled is inner else {**struct, field: filled}

    return fill


def rounded(*fields: str) -> Rule:
    """Return a rule that rounds the quantities of resource lists up to thousandths."""

    def fill(struct: Object) -> Object:
        changed: Object = {}
        for field in fields:
            given = cast("Object", struct.get(field) or {})
            finer = {key: pods.rounded_to_millis(text) for key, text in given.items()}
            if finer != given:
                changed[field] = finer
        return {**struct, **changed} if changed else struct

    return fill


def part_of(struct: Object, field: str) -> Object:
    """Return a struct or map in a field, empty when there is none."""
    return cast("Object", struct.get(field) or {})


def with_missing(struct: Object, values: Mapping[str, Any]) -> Object:
    """Return the struct with these values where it has none."""
    wanted = {key: value for key, value in values.items() if struct.get(key) is None}
    return {**struct, **wanted} if wanted else struct
