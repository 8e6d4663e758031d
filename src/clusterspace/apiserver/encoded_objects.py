"""Stored objects as protobuf: encoded once, kept for whoever reads the same version next.

JSON answers are spliced from stored bytes; for protobuf an object has to be decoded and written
anew, which takes a hundred times as long. But most objects are read far more often than they are
written, by informers that list them after a reconnect and by watchers that all get the same event.
So the message of an object is kept until the object has another version, or until it is the one
that nobody has asked for in the longest time when all of them together have grown too large.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.forms import Form
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.kube.protobuf.encoding import encode_message

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of messages that are kept: 40,000 Pods of 1.5 KB."""

_OVERHEAD: Final = 200
"""Bytes that keeping a message takes beside it, roughly."""


class EncodedObjects:
    """The messages of stored objects, by key and served version; for the event loop only.

    What is kept is what a pure function of a stored object returned, and the store gives every
    version of an object a revision of its own. So nothing here can be out of date: a version that
    nobody reads any more is merely in the way, and goes in its turn. That holds for entries of the
    store only, not for ones that were made up for an event.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], tuple[Revision, bytes]] = OrderedDict()

    def find(self, entry: KeyValue, form: Form) -> bytes | None:
        """Return the message of this very version of an object, if it is kept."""
        key = (form.api_version, entry.key)
        kept = self._kept.get(key)
        if kept is None or kept[0] != entry.mod_revision:
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def keep(self, entry: KeyValue, form: Form, message: bytes) -> None:
        """Keep a message, in place of any older version of the same object."""
        key = (form.api_version, entry.key)
        last = self._kept.get(key)
        if last is not None:
            if last[0] >= entry.mod_revision:
                return  # a look into the past: what is read next is what there is now
            self._bytes -= len(last[1]) + _OVERHEAD
        self._kept[key] = (entry.mod_revision, message)
        self._kept.move_to_end(key)
        self._bytes += len(message) + _OVERHEAD
        while self._bytes > self._most_bytes:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= len(oldest) + _OVERHEAD

    def message(self, entry: KeyValue, form: Form) -> bytes:
        """Return the message of an object, encoded here and now if it is not kept."""
        found = self.find(entry, form)
        if found is None:
            found = encode_entry(entry, form)
            self.keep(entry, form, found)
        return found


def encode_entry(entry: KeyValue, form: Form) -> bytes:
    """Return the message of a stored object as it is served."""
    return encode_message(forms.decode_stored(entry, form), form.api_version, form.kind)


def encode_entries(entries: Sequence[KeyValue], form: Form) -> list[bytes]:
    """Return the messages of many stored objects; long work, for wherever that is done."""
    return [encode_entry(entry, form) for entry in entries]
