"""allOf, anyOf, oneOf, not: checks made of the checks of other schemas."""

from collections.abc import Sequence
from typing import Any

from clusterspace.kube import causes
from clusterspace.kube.field_paths import quoted
from clusterspace.kube.schemas.checks.problems import NONE, Check, Found, Problem


def any_of(alternatives: Sequence[Check]) -> Check:
    """Return the check that at least one alternative holds."""

    def check(value: Any) -> Found:
        failures: list[Found] = []
        for alternative in alternatives:
            found = alternative(value)
            if not found:
                return NONE
            failures.append(found)
        return [_composite("must validate at least one schema (anyOf)"), *failures[0]]

    return check


def one_of(alternatives: Sequence[Check]) -> Check:
    """Return the check that exactly one alternative holds.

    When none does, Kubernetes adds what was wrong with the alternative that got furthest. Most
    schemas have alternatives that get equally far, and then it is the first; we always say it of
    the first.
    """
    rule = "must validate one and only one schema (oneOf)."

    def check(value: Any) -> Found:
        outcomes = [alternative(value) for alternative in alternatives]
        valid = sum(not found for found in outcomes)
        if valid == 1:
            return NONE
        if valid:
            return (_composite(f"{rule} Found {valid} valid alternatives"),)
        return [_composite(f"{rule} Found none valid"), *outcomes[0]]

    return check


def all_of(parts: Sequence[Check]) -> Check:
    """Return the check that every part holds."""

    def check(value: Any) -> Found:
        outcomes = [part(value) for part in parts]
        problems = [problem for found in outcomes for problem in found]
        if not problems:
            return NONE
        none_valid = ". None validated" if all(outcomes) else ""
        return [*problems, _composite(f"must validate all the schemas (allOf){none_valid}")]

    return check


def negation(part: Check) -> Check:
    """Return the check that the part does not hold."""

    def check(value: Any) -> Found:
        return NONE if part(value) else (_composite("must not validate the schema (not)"),)

    return check


def _composite(rule: str) -> Problem:
    """File the problem under the object as a whole, and name the place in the message."""
    return Problem(lambda where: causes.invalid(where.whole, "", f"{quoted(where.name)} {rule}"))
