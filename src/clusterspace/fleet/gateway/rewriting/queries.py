"""Selectors and resourceVersions of a URL, as one cluster must get them.

Values lose the suffix of that cluster. A value with another cluster's suffix stays: nothing in
this cluster is called that, so `=` matches nothing here and `!=` everything, which is the truth.
"""

from dataclasses import replace
from typing import Final

from clusterspace.apiserver.http.request_info import Query
from clusterspace.fleet.gateway.flow import Naming
from clusterspace.fleet.gateway.names import NAME_LABELS
from clusterspace.fleet.gateway.renaming.edits import Change
from clusterspace.fleet.gateway.renaming.places import unqualifier
from clusterspace.kube.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    SET_SIGNS,
    FieldSelector,
    Term,
    parse_field_selector,
    read_terms,
)

_ANY_VERSION: Final = ("", "0")


def rewrite(query: Query, naming: Naming, *, version_for: Change = str) -> Query:
    """Return the parameters in the words of `naming.cluster`; unknown ones pass untouched.

    Without `version_for` versions do too, for who has taken them out. Raises MalformedSelector for
    a selector that cannot be read, and whatever `version_for` raises.
    """
    unqualify = unqualifier(naming.cluster)
    changes: dict[str, Change] = {
        "fieldSelector": lambda text: _field_selector(text, unqualify),
        "labelSelector": lambda text: _label_selector(text, unqualify),
        "resourceVersion": lambda text: text if text in _ANY_VERSION else version_for(text),
    }
    return Query(
        tuple((key, changes[key](value) if key in changes else value) for key, value in query.pairs)
    )


def _field_selector(text: str, unqualify: Change) -> str:
    """Change the value of every field: which of them are names, only the cluster knows."""
    asked = parse_field_selector(text)
    changed = FieldSelector(
        tuple(replace(each, value=unqualify(each.value)) for each in asked.requirements)
    )
    return text if changed == asked else str(changed)


def _label_selector(text: str, unqualify: Change) -> str:
    """Change the values of the few labels that hold names; others may mean anything."""
    terms = list(read_terms(text))
    changed = [_changed_term(term, unqualify) for term in terms]
    return text if changed == terms else ",".join(map(_written, changed))


def _changed_term(term: Term, unqualify: Change) -> Term:
    if term.key not in NAME_LABELS:
        return term
    return replace(term, values=tuple(map(unqualify, term.values)))


def _written(term: Term) -> str:
    if term.sign == EXISTS:
        return term.key
    if term.sign == DOES_NOT_EXIST:
        return f"!{term.key}"
    if term.sign in SET_SIGNS:
        return f"{term.key} {term.sign} ({','.join(term.values)})"
    return f"{term.key}{term.sign}{term.values[0]}"
