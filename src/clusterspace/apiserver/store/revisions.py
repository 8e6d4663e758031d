"""Revision, KeyValue, Event, Page: the words the log is written in.

A store's life, told in these words (a new store is at revision 1, with nothing in it):

    put /pods/web "a"      revision 2   PUT     item (create 2, mod 2)   previous none
    put /pods/web "b"      revision 3   PUT     item (create 2, mod 3)   previous (create 2, mod 2)
    delete /pods/web       revision 4   DELETE  item (create 0, mod 4)   previous (create 2, mod 3)
    put /pods/web "c"      revision 5   PUT     item (create 5, mod 5)   previous none
"""

import enum
from dataclasses import dataclass
from typing import NewType

Revision = NewType("Revision", int)
"""A moment in the life of the whole store; every change makes the next one."""

ABSENT = Revision(0)
"""The revision of a key that is not there: what `put` expects when it must create."""

FIRST_REVISION = Revision(1)
"""Where a new store starts: 0 is taken, Kubernetes clients read it as "any version"."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key with its value, when it came to be and when it last changed."""

    key: str
    value: bytes
    create_revision: Revision
    mod_revision: Revision


class EventType(enum.Enum):
    """What happened to a key."""

    PUT = "PUT"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `previous` is what the key held just before, or None."""

    type: EventType
    item: KeyValue
    previous: KeyValue | None

    @property
    def key(self) -> str:
        """The key that changed."""
        return self.item.key

    @property
    def value(self) -> bytes:
        """The value put; empty for a delete."""
        return self.item.value

    @property
    def revision(self) -> Revision:
        """The revision this change made."""
        return self.item.mod_revision

    @property
    def is_create(self) -> bool:
        """Whether the key was not there before."""
        return self.previous is None

    @property
    def is_delete(self) -> bool:
        """Whether the key is gone."""
        return self.type is EventType.DELETE


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the keys of a range, in key order, all as they were at `revision`."""

    items: tuple[KeyValue, ...]
    revision: Revision
    remaining: int
    """How many keys of the range come after the last item."""

    @property
    def more(self) -> bool:
        """Whether the limit cut the range short; go on with `start_after=items[-1].key`."""
        return self.remaining > 0


@dataclass(frozen=True, slots=True)
class HistorySize:
    """How much of the past a store still holds."""

    events: int
    value_bytes: int
    oldest: Revision
    newest: Revision
