"""One write, decided: what it changes, or why it may not."""

from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.apiserver.store.revisions import ABSENT, Event, EventType, KeyValue, Revision
from clusterspace.errors import RevisionMismatch, Unstorable

MAXIMUM_KEY_BYTES = 4096
"""Five names of 253 bytes and their separators fit three times over."""

MAXIMUM_VALUE_BYTES = 16 * 1024 * 1024
"""A request body is 3 MiB at most; this is the fence behind that one."""


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key; `expected` is its mod revision, 0 for "not there", None for "whatever is"."""

    key: str
    value: bytes
    expected: Revision | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Take a key away, if it is still at the expected revision."""

    key: str
    expected: Revision


Write: TypeAlias = Put | Delete


def decide(write: Write, held: KeyValue | None, revision: Revision) -> Event:
    """Return the change this write makes at `revision`, given what the key holds.

    Raises `RevisionMismatch` when the key is not at the expected revision.
    """
    actual = held.mod_revision if held is not None else ABSENT
    if isinstance(write, Delete):
        if held is None or write.expected != actual:
            raise RevisionMismatch(write.key, write.expected, actual)
        gone = KeyValue(write.key, b"", create_revision=ABSENT, mod_revision=revision)
        return Event(EventType.DELETE, gone, previous=held)
    if write.expected is not None and write.expected != actual:
        raise RevisionMismatch(write.key, write.expected, actual)
    created = held.create_revision if held is not None else revision
    return Event(EventType.PUT, KeyValue(write.key, write.value, created, revision), previous=held)


def answer_to(event: Event) -> KeyValue:
    """Return what the caller of the write is told: the item put, or the last value deleted."""
    if event.type is EventType.PUT or event.previous is None:
        return event.item
    last = event.previous
    return KeyValue(last.key, last.value, last.create_revision, mod_revision=event.revision)


def checked(write: Write) -> Write:
    """Return the write, or raise `Unstorable` for what no store could keep and give back."""
    try:
        key_bytes = len(write.key.encode())
    except UnicodeEncodeError as error:
        raise Unstorable(f"the key {write.key!r} is not valid Unicode") from error
    if not 0 < key_bytes <= MAXIMUM_KEY_BYTES:
        raise Unstorable(f"a key of {key_bytes} bytes; 1 to {MAXIMUM_KEY_BYTES} are allowed")
    if isinstance(write, Put) and len(write.value) > MAXIMUM_VALUE_BYTES:
        size = len(write.value)
        raise Unstorable(f"{write.key}: {size} bytes; at most {MAXIMUM_VALUE_BYTES} are allowed")
    return write
