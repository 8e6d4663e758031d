"""Saying whose fields an apply would have changed."""

import json
from collections.abc import Mapping
from itertools import groupby

from clusterspace.errors import Cause, Conflict, Details
from clusterspace.kube.managed_fields.comparison import Comparison
from clusterspace.kube.managed_fields.field_sets import FieldSet, path_text
from clusterspace.kube.managed_fields.managers import APPLY, Entries, Entry, Identity

Conflicts = Mapping[Identity, FieldSet]
"""What is contested, by the owner it would be taken from."""


def find_conflicts(entries: Entries, comparison: Comparison) -> dict[Identity, FieldSet]:
    """Return which fields of which owners these changes would take over."""
    contested = {identity: entry.fields & comparison.changed for identity, entry in entries.items()}
    return {identity: fields for identity, fields in contested.items() if fields}


def conflict_error(conflicts: Conflicts, entries: Entries) -> Conflict:
    """Return the refusal, with one cause for each contested field."""
    causes = tuple(
        Cause(
            "FieldManagerConflict", f"conflict with {_owner_text(entries[owner])}", path_text(path)
        )
        for owner in sorted(conflicts)
        for path in conflicts[owner].paths()
    )
    return Conflict(_message(causes), Details(causes=causes))


def _message(causes: tuple[Cause, ...]) -> str:
    if len(causes) == 1:
        return f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    lines: list[str] = []
    for message, group in groupby(causes, key=lambda cause: cause.message):
        lines.append(f"{message.replace('conflict', 'conflicts', 1)}:")
        lines.extend(f"- {cause.field}" for cause in group)
    return f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)


def _owner_text(entry: Entry) -> str:
    """Return an owner as messages name it; an updater's fields are known by version as well."""
    text = _quoted(entry.manager)
    if entry.subresource:
        text = f"{text} with subresource {_quoted(entry.subresource)}"
    return text if entry.operation == APPLY else f"{text} using {entry.api_version}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
