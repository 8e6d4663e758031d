"""The rules of label selectors and node selectors."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.metadata import check_labels
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    each,
    inside,
    of_form,
    problems_at,
    struct_in,
    structs_in,
    texts_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import label_key_problems, label_value_problems
from clusterspace.kube.objects import Object

_NEEDS_VALUES: Final = "must be specified when `operator` is 'In' or 'NotIn'"
_TAKES_NO_VALUES: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_NEEDS_ONE_VALUE: Final = "must be specified single value when `operator` is 'Lt' or 'Gt'"


def _check_values(requirement: Object, path: str) -> Iterator[Cause]:
    for index, value in enumerate(texts_in(requirement, "values")):
        yield from problems_at(f"{path}.values[{index}]", value, label_value_problems(value))


def _check_operator(requirement: Object, path: str) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), texts_in(requirement, "values")
    if operator in ("In", "NotIn"):
        if not values:
            yield causes.required(at(path, "values"), _NEEDS_VALUES)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield causes.forbidden(at(path, "values"), _TAKES_NO_VALUES)
    else:
        yield causes.invalid(at(path, "operator"), operator, "not a valid selector operator")


def _check_node_operator(requirement: Object, path: str) -> Iterator[Cause]:
    if requirement.get("operator") not in ("Gt", "Lt"):
        yield from _check_operator(requirement, path)
    elif len(texts_in(requirement, "values")) != 1:
        yield causes.required(at(path, "values"), _NEEDS_ONE_VALUE)


def labels(field: str) -> Check:
    """Check a map of labels."""
    return lambda struct, path: check_labels(struct.get(field) or {}, at(path, field))


SELECTOR: Final = (
    labels("matchLabels"),
    each("matchExpressions", _check_operator, of_form("key", label_key_problems), _check_values),
)
"""The checks of a LabelSelector."""


def selector(field: str) -> Check:
    """Check a label selector that is there."""
    return inside(field, *SELECTOR)


NODE_TERM: Final = (
    each(
        "matchExpressions",
        _check_node_operator,
        of_form("key", label_key_problems),
        _check_values,
    ),
)
"""The checks of a NodeSelectorTerm."""


def _check_terms(node_selector: Object, path: str) -> Iterator[Cause]:
    if not node_selector.get("nodeSelectorTerms"):
        why = "must have at least one node selector term"
        yield causes.required(at(path, "nodeSelectorTerms"), why)


NODE_SELECTOR: Final = (_check_terms, each("nodeSelectorTerms", *NODE_TERM))
"""The checks of a NodeSelector."""


def is_empty(label_selector: Object) -> bool:
    """Whether a selector has no requirement, and so picks everything."""
    return not label_selector.get("matchLabels") and not label_selector.get("matchExpressions")


def is_readable(label_selector: Object) -> bool:
    """Whether every requirement makes sense, so that the selector can pick anything."""
    return not any(True for check in SELECTOR for _ in check(label_selector, ""))


def matches(label_selector: Object, held: Object) -> bool:
    """Whether a well-formed label selector picks these labels."""
    wanted = struct_in(label_selector, "matchLabels")
    if any(held.get(key) != value for key, value in wanted.items()):
        return False
    expressions = structs_in(label_selector, "matchExpressions")
    return all(_meets(expression, held) for expression in expressions)


def _meets(requirement: Object, held: Object) -> bool:
    key, operator = requirement.get("key"), requirement.get("operator")
    values = texts_in(requirement, "values")
    if operator == "In":
        return key in held and held[key] in values
    if operator == "NotIn":
        return key not in held or held[key] not in values
    return (key in held) == (operator == "Exists")


def ordered(label_selector: Object) -> Object:
    """Return a selector with its fields in the order messages show them."""
    expressions = [
        {field: each[field] for field in ("key", "operator", "values") if field in each}
        for each in structs_in(label_selector, "matchExpressions")
    ]
    parts = {"matchLabels": label_selector.get("matchLabels"), "matchExpressions": expressions}
    return {field: held for field, held in parts.items() if held}
