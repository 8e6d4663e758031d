"""Ownership after a create, an update or a patch: whoever changes a field owns it.

Write says who writes and how, for these and for apply.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from clusterspace.errors import Malformed, MalformedObject
from clusterspace.kube.managed_fields.comparison import Comparison, compare
from clusterspace.kube.managed_fields.field_sets import FIELD, FieldSet
from clusterspace.kube.managed_fields.managers import (
    UPDATE,
    Entries,
    Entry,
    Identity,
    capped,
    is_reset,
    raw_entries,
    read_entries,
    with_entries,
    without_entries,
)
from clusterspace.kube.managed_fields.typed_values import object_schema
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import ANYTHING, Schema

SCALE: Final = "scale"
UNKNOWN_MANAGER: Final = "unknown"

# What the server itself sets, or what says which object this is, is nobody's to own.
NEVER_OWNED: Final = FieldSet.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", FIELD + name)
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one object, as far as ownership is concerned.

    `reset` names the fields that this kind of write does not change (`spec` for a status write,
    `metadata.labels`): the server puts them back, so the writer cannot come to own them.

    `blank` is an object of the kind before anybody has written to it. Kubernetes compares a new
    object with an empty one of its Go type, and an empty struct is written out unless a pointer
    leads to it: an empty Deployment has a `spec` with a `strategy`. Whoever creates the object
    therefore owns the fields in those places, but not the places themselves. Custom objects have
    no Go type; their blank is empty.
    """

    manager: str
    api_version: str
    now: str
    schema: Schema = ANYTHING
    subresource: str = ""
    reset: frozenset[str] = frozenset()
    blank: Object = field(default_factory=dict[str, object])

    def entry(self, operation: str, fields: FieldSet, time: str | None) -> Entry:
        """Return the writer's entry."""
        return Entry(
            manager=self.manager or UNKNOWN_MANAGER,
            operation=operation,
            api_version=self.api_version,
            subresource=self.subresource,
            time=time,
            fields=fields,
        )

    def seen(self, fields: FieldSet) -> FieldSet:
        """Return those of these fields that this kind of write can change."""
        return fields.without(_fields_named(self.reset))

    def seen_in(self, comparison: Comparison) -> Comparison:
        """Return those of these changes that this kind of write can make."""
        return comparison.without(_fields_named(self.reset))

    def ownable(self, fields: FieldSet) -> FieldSet:
        """Return those of these fields that the writer can come to own."""
        return self.seen(fields) - NEVER_OWNED


@lru_cache(maxsize=256)
def _fields_named(names: frozenset[str]) -> FieldSet:
    """Return the fields with these dotted names."""
    return FieldSet.of(*(tuple(FIELD + step for step in name.split(".")) for name in names))


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


def surrendered(entries: Entries, comparison: Comparison) -> dict[Identity, Entry]:
    """Return the entries of all others after somebody set these fields or took them away."""
    kept: dict[Identity, Entry] = {}
    for identity, entry in entries.items():
        fields = entry.fields.losing(comparison.changed).losing(comparison.removed)
        if fields:
            kept[identity] = replace(entry, fields=fields)
    return kept


def taken_over(entries: Entries, comparison: Comparison, write: Write) -> Entries:
    """Return the entries after the writer made these changes without asking anybody."""
    # Ownership follows change, not presence. Alice set `replicas: 2`; Bob puts the object with
    # `replicas: 2, paused: true`. Only `paused` differs, so Bob owns that and Alice keeps
    # replicas. Had Bob put 3, replicas would be his; had he left it out, nobody's.
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
        current = entries.get(entry.identity)
        entry = replace(entry, time=current and current.time)
    return {**kept, entry.identity: entry}


def _entries_before(live: Object | None, new: Object, write: Write) -> Entries:
    """Return the owners to start from: those the writer sent, if they make sense.

    A write to a subresource does not rewrite owners, and a client that knows nothing of them
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
