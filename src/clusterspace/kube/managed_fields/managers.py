"""The entries of `metadata.managedFields`, and what a create, an update or a patch makes of them.

An entry says who owns which fields, since when, and how they wrote. Whoever changes a field by an
update owns it from then on, without asking. Write says who writes and how, for these and for apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, cast

from clusterspace.errors import Malformed, MalformedObject
from clusterspace.kube.managed_fields.field_sets import FIELD, FieldSet
from clusterspace.kube.managed_fields.typed_values import Comparison, compare, object_schema
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.schemas.model import ANYTHING, Schema
from clusterspace.kube.times import parse_time

APPLY: Final = "Apply"
UPDATE: Final = "Update"

ANCIENT_CHANGES: Final = "ancient-changes"
"""Owns what the oldest update managers owned, when there are too many to keep apart."""

MOST_UPDATE_MANAGERS: Final = 10
"""Kubernetes' number: controllers that name themselves anew each time must not fill an object."""

_TEXTS: Final = ("manager", "operation", "apiVersion", "subresource", "fieldsType")


class Identity(NamedTuple):
    """The key of an entry; that of an applier has no version, so it may change versions."""

    manager: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager, and the fields it owns."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str | None
    fields: FieldSet

    @property
    def identity(self) -> Identity:
        """The key of this entry."""
        version = "" if self.operation == APPLY else self.api_version
        return Identity(self.manager, self.operation, version, self.subresource)


Entries: TypeAlias = Mapping[Identity, Entry]


def raw_entries(kube_object: Mapping[str, Any]) -> Any:
    """Return `metadata.managedFields` as it stands, or None."""
    return metadata_of(kube_object).get("managedFields")


def is_reset(raw: Any) -> bool:
    """Return whether somebody asks to forget all owners: an empty list, or one empty entry."""
    return raw in ([], [{}])


def read_entries(raw: Any) -> dict[Identity, Entry]:
    """Read `metadata.managedFields`; nothing is no entries."""
    if raw is None:
        return {}
    if not isinstance(raw, list):
        raise MalformedObject(
            "metadata.managedFields is not a list", place="metadata.managedFields"
        )
    entries: dict[Identity, Entry] = {}
    for index, each in enumerate(cast("list[Any]", raw)):
        where = f"metadata.managedFields[{index}]"
        if not isinstance(each, dict):
            raise MalformedObject(f"{where} is not an object", place=where)
        body = cast("Object", each)
        texts = {name: body.get(name) or "" for name in _TEXTS}
        time = body.get("time")
        if not all(isinstance(text, str) for text in (*texts.values(), time or "")):
            raise MalformedObject(f"{where} has a value that is not a string", place=where)
        if texts["operation"] not in (APPLY, UPDATE):
            raise MalformedObject(f"{where}.operation must be `Apply` or `Update`", place=where)
        if not texts["apiVersion"]:
            raise MalformedObject(f"{where}.apiVersion must not be empty", place=where)
        if texts["fieldsType"] != "FieldsV1":
            raise MalformedObject(f"{where}.fieldsType must be `FieldsV1`", place=where)
        entry = Entry(
            manager=texts["manager"],
            operation=texts["operation"],
            api_version=texts["apiVersion"],
            subresource=texts["subresource"],
            time=time or None,
            fields=FieldSet.from_json(body.get("fieldsV1")),
        )
        _seconds(entry)  # a time nobody can read is refused here, not when entries are sorted
        entries[entry.identity] = entry
    return entries


def with_entries(kube_object: Object, entries: Entries) -> Object:
    """Return the object with these entries, or none, as its `metadata.managedFields`."""
    # An entry without fields is not written: whoever lost the last field is no manager any more.
    # Kubernetes' order: appliers first, then by age, then by name.
    owners = sorted(
        (entry for entry in entries.values() if entry.fields),
        key=lambda entry: (
            entry.operation,
            _seconds(entry),
            entry.manager,
            entry.api_version,
            entry.subresource,
        ),
    )
    written: list[Object] = []
    for entry in owners:
        body = {
            "manager": entry.manager,
            "operation": entry.operation,
            "apiVersion": entry.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields.to_json(),
            "subresource": entry.subresource,
        }
        written.append({name: value for name, value in body.items() if value not in (None, "")})
    metadata = {**metadata_of(kube_object), "managedFields": written}
    if not written:
        del metadata["managedFields"]
    return {**kube_object, "metadata": metadata}


def without_entries(kube_object: Object) -> Object:
    """Return the object without `metadata.managedFields`."""
    metadata = metadata_of(kube_object)
    if "managedFields" not in metadata:
        return kube_object
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**kube_object, "metadata": kept}


def are_alike_but_for_times(left: Object, right: Object) -> bool:
    """Return whether two states of an object differ in nothing but the times of their entries."""
    if without_entries(left) != without_entries(right):
        return False
    return _without_times(raw_entries(left)) == _without_times(raw_entries(right))


def capped(entries: Entries) -> Entries:
    """Return the entries with the oldest update managers made one, version by version."""
    updates = [entry for entry in entries.values() if entry.operation == UPDATE]
    surplus = len(updates) - MOST_UPDATE_MANAGERS
    if surplus <= 0:
        return entries
    updates.sort(key=lambda entry: (_seconds(entry), entry.identity))
    kept = dict(entries)
    oldest: dict[str, Entry] = {}
    for entry in updates:
        if surplus == 0:
            break
        first = oldest.setdefault(entry.api_version, entry)
        if first is entry:
            continue
        # Into the bucket of its version, which the oldest entry of that version becomes at first.
        # Each step turns two entries into one: by age m1 m2 m3 … of v1 become (m1+m2) m3 …, then
        # (m1+m2+m3) …, until ten are left.
        bucket = replace(entry, manager=ANCIENT_CHANGES, subresource="")
        folded = {entry.identity, bucket.identity} & kept.keys()
        if len(folded) == 1:
            folded.add(first.identity)
        fields = FieldSet()
        for identity in folded:
            fields = fields | kept.pop(identity).fields
        kept[bucket.identity] = replace(bucket, fields=fields)
        surplus -= 1
    return kept


def _seconds(entry: Entry) -> float:
    """Return the entry's time in whole seconds; without one it is as old as can be."""
    return 0 if entry.time is None else parse_time(entry.time) // 1


def _without_times(raw: Any) -> Any:
    if not isinstance(raw, list):
        return raw
    return [
        {name: value for name, value in entry.items() if name != "time"}
        for entry in cast("list[Object]", raw)
    ]


# Ownership after a create, an update or a patch: whoever changes a field owns it.

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
        # Its owners were reset, or never recorded. An entry for this writer alone would leave all
        # other fields without an owner for good: the next apply gives what it finds to
        # `before-first-apply`, but only if there is no entry at all.
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
