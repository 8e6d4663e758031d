"""Write: who writes to an object, through which door, and when."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from clusterspace.kube.managed_fields.comparison import Comparison
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.managers import Entries, Entry, Identity
from clusterspace.kube.managed_fields.path_elements import FIELD
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import ANYTHING, Schema

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

    `reset` names what this door does not change (`spec` for a status write, `metadata.labels`):
    the server puts it back, so the writer cannot come to own it. `blank` is what an object of
    this kind looks like before anybody has written to it: see `blanks`.
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
        """Return what of these fields this door lets through."""
        return fields.without(_fields_named(self.reset))

    def seen_in(self, comparison: Comparison) -> Comparison:
        """Return what of these changes this door lets through."""
        return comparison.without(_fields_named(self.reset))

    def ownable(self, fields: FieldSet) -> FieldSet:
        """Return what of these fields the writer can come to own."""
        return self.seen(fields) - NEVER_OWNED


@lru_cache(maxsize=256)
def _fields_named(names: frozenset[str]) -> FieldSet:
    """Return the fields with these dotted names."""
    return FieldSet.of(*(tuple(FIELD + step for step in name.split(".")) for name in names))


def surrendered(entries: Entries, comparison: Comparison) -> dict[Identity, Entry]:
    """Return what everybody still owns after somebody else set these fields or took them away."""
    kept: dict[Identity, Entry] = {}
    for identity, entry in entries.items():
        fields = entry.fields.losing(comparison.changed).losing(comparison.removed)
        if fields:
            kept[identity] = replace(entry, fields=fields)
    return kept
