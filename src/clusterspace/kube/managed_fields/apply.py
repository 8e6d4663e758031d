"""Server-side apply: one applier's configuration, merged into an object that others own too.

configuration ─ fits the schema? ─ merge into live ─ drop what the applier gave up
              ─ does that change what others own? ─ no, or forced: the applier owns its fields
"""

from dataclasses import replace
from typing import Final

from clusterspace.errors import ApiError, BadRequest, Malformed
from clusterspace.kube.managed_fields import last_applied
from clusterspace.kube.managed_fields.checking import check_fits
from clusterspace.kube.managed_fields.comparison import Comparison, compare, same
from clusterspace.kube.managed_fields.conflicts import conflict_error, find_conflicts
from clusterspace.kube.managed_fields.extraction import fitted, owned_fields
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.managers import (
    APPLY,
    Entries,
    raw_entries,
    read_entries,
    with_entries,
    without_entries,
)
from clusterspace.kube.managed_fields.merging import merge
from clusterspace.kube.managed_fields.removal import given_up, remove
from clusterspace.kube.managed_fields.typed_values import object_schema
from clusterspace.kube.managed_fields.update import taken_over
from clusterspace.kube.managed_fields.writes import NEVER_OWNED, Write, surrendered
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.schemas.model import Schema

BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""Owns what was there when an object without owners is first applied to."""

# Manifests made by Go programs carry these as null; that says nothing about them.
_SYSTEM_METADATA: Final = frozenset(
    {"creationTimestamp", "deletionTimestamp", "generation", "resourceVersion", "selfLink", "uid"}
)


def apply(live: Object | None, applied: Object, write: Write, *, force: bool = False) -> Object:
    """Return the object after the apply; the live object itself when nothing is different.

    `live` is None when the apply creates the object. Raises `Conflict` when the apply would
    change what others own, unless it is forced: then the others lose those fields.
    """
    _check_configuration(applied, write)
    schema = object_schema(write.schema)
    configuration = _without_system_nulls(applied)
    check_fits(configuration, schema, "patch")

    entries = _entries_before(live, schema, write)
    before = without_entries(live or {})
    claimed = write.seen(owned_fields(configuration, schema))
    own = write.entry(APPLY, write.ownable(claimed), write.now)
    former = entries.get(own.identity)
    others = {identity: entry for identity, entry in entries.items() if entry is not former}

    after = merge(before, configuration, schema)
    if former is not None:
        after = remove(after, given_up(former.fields, _kept(claimed, others), schema), schema)
    comparison = write.seen_in(compare(before, after, schema))
    if not force:
        _check_conflicts(others, comparison, before, write)
    if live is not None and same(before, after):
        own = replace(own, time=former and former.time)
    result = with_entries(after, {**surrendered(others, comparison), own.identity: own})
    if own.manager == last_applied.KUBECTL:
        result = last_applied.with_annotation_renewed(result, applied)
    return live if live is not None and same(live, result) else result


def _check_configuration(applied: Object, write: Write) -> None:
    if applied.get("apiVersion") != write.api_version:
        named = f"{applied.get('apiVersion')}, Kind={applied.get('kind')}"
        raise BadRequest(f"invalid object type: {named}")
    if not isinstance(applied.get("metadata", {}), dict):
        raise BadRequest("metadata must be an object")
    if raw_entries(applied) is not None:
        raise BadRequest("metadata.managedFields must be nil")


def _without_system_nulls(applied: Object) -> Object:
    metadata = metadata_of(applied)
    unsaid = [name for name in _SYSTEM_METADATA if name in metadata and metadata[name] is None]
    if not unsaid:
        return applied
    said = {name: held for name, held in metadata.items() if name not in unsaid}
    return {**applied, "metadata": said}


def _entries_before(live: Object | None, schema: Schema, write: Write) -> Entries:
    """Return the owners before the apply; what nobody was said to own gets one now."""
    if live is None:
        return {}
    try:
        entries = read_entries(raw_entries(live))
    except Malformed as error:
        raise ApiError(f"failed to decode managed fields: {error.message}") from error
    if entries:
        return {
            identity: replace(entry, fields=fitted(entry.fields, schema))
            for identity, entry in entries.items()
        }
    found = write.seen_in(compare(write.blank, without_entries(live), schema))
    return taken_over({}, found, replace(write, manager=BEFORE_FIRST_APPLY))


def _kept(claimed: FieldSet, others: Entries) -> FieldSet:
    """Return what has an owner, or needs none, after the apply."""
    kept = claimed | NEVER_OWNED
    for entry in others.values():
        kept = kept | entry.fields
    return kept


def _check_conflicts(others: Entries, comparison: Comparison, before: Object, write: Write) -> None:
    conflicts = find_conflicts(others, comparison)
    if conflicts and write.manager == last_applied.KUBECTL:
        schema = object_schema(write.schema)
        mine = last_applied.fields_still_as_applied(before, schema, write.api_version)
        conflicts = {owner: rest for owner, held in conflicts.items() if (rest := held - mine)}
    if conflicts:
        raise conflict_error(conflicts, others)
