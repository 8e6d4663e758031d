"""The entries of `metadata.managedFields`: who owns which fields, since when, how they wrote."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.timestamps import parse_time

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
    updates = sorted(
        (entry for entry in entries.values() if entry.operation == UPDATE),
        key=lambda entry: (_seconds(entry), entry.identity),
    )
    surplus = len(updates) - MOST_UPDATE_MANAGERS
    if surplus <= 0:
        return entries
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
