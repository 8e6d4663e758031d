"""Ownership after a create, an update or a patch: whoever changes a field owns it."""

from dataclasses import replace

from clusterspace.errors import Malformed, MalformedObject
from clusterspace.kube.managed_fields.comparison import Comparison, compare
from clusterspace.kube.managed_fields.managers import (
    UPDATE,
    Entries,
    capped,
    is_reset,
    raw_entries,
    read_entries,
    with_entries,
    without_entries,
)
from clusterspace.kube.managed_fields.typed_values import object_schema
from clusterspace.kube.managed_fields.writes import Write, surrendered
from clusterspace.kube.objects import Object

SCALE = "scale"


def track_update(live: Object | None, new: Object, write: Write) -> Object:
    """Return the new object with `metadata.managedFields` as this write leaves it.

    `live` is None for a create. Fields that were added or changed become the writer's, fields
    that went are nobody's, and whoever owned the rest still does. An object whose owners were
    forgotten stays without until somebody applies to it.
    """
    entries = _entries_before(live, new, write)
    bare = without_entries(new)
    if live is not None and not entries:
        return bare
    before = write.blank if live is None else without_entries(live)
    try:
        comparison = write.seen_in(compare(before, bare, object_schema(write.schema)))
    except MalformedObject:
        # An element that its list cannot name is for validation to refuse; nobody's ownership
        # changes over it.
        return with_entries(bare, entries)
    return with_entries(bare, capped(taken_over(entries, comparison, write)))


def taken_over(entries: Entries, comparison: Comparison, write: Write) -> Entries:
    """Return the entries after the writer made these changes without asking anybody."""
    kept = surrendered(entries, comparison)
    fields = write.ownable(comparison.changed)
    if not fields:
        return kept
    entry = write.entry(UPDATE, fields, write.now)
    former = kept.get(entry.identity)
    if former is not None:
        entry = replace(entry, fields=former.fields | fields)
    if write.subresource == SCALE:
        # Kubernetes works these out on the Scale object and carries no time back from it.
        held = entries.get(entry.identity)
        entry = replace(entry, time=held and held.time)
    return {**kept, entry.identity: entry}


def _entries_before(live: Object | None, new: Object, write: Write) -> Entries:
    """Return the owners to start from: those the writer sent, if they make sense.

    A subresource is no door for rewriting owners, and a client that knows nothing of them
    must not wipe them out by leaving them away.
    """
    present = _entries_or_none(live or {})
    sent = raw_entries(new)
    if write.subresource or sent is None:
        return present
    if is_reset(sent):
        return {}
    if live is not None and sent == raw_entries(live):
        return present
    return _entries_or_none(new) or present


def _entries_or_none(kube_object: Object) -> Entries:
    try:
        return read_entries(raw_entries(kube_object))
    except Malformed:
        return {}
