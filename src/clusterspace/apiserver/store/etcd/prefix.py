"""The part of etcd that a store has: how its keys are called, whose it is, all that is in it.

clusterspace/registry     the marker: a hub's, "ahead N", or "filling N" until all is there
/registry/core/pods/...   the keys; revisions are etcd's own and N more
clusterspace-fence/registry/ID    a process's own: creates of its that came too late fail on it
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final
from uuid import uuid4

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import CALL_SECONDS, EtcdClient
from clusterspace.apiserver.store.etcd.messages import RangeAnswer, Stored
from clusterspace.apiserver.store.index import Index
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.errors import Compacted, StoreUnavailable, StoreUnreadable, Unstorable

PAGE: Final = 500
"""Keys per range when everything is read."""

HISTORY: Final = 100_000
"""How many revisions of the past are read at the start, where etcd still has them: a watch that a
client began at another hub goes on here."""


class KeyNames:
    """How keys and revisions of the store are called in etcd.

    Keys are under its prefix, instead of under `root`. Revisions are etcd's own and `ahead`: what
    was moved here from elsewhere goes on from a higher revision than it had there, and etcd chooses
    its own.
    """

    def __init__(self, prefix: str, root: str) -> None:
        self.ahead = 0
        self._prefix = prefix.encode()
        self._root = root
        self.first = self._prefix + b"/"
        self.end = self._prefix + b"0"
        """The first name behind all that begin with `first`."""
        self.marker = b"clusterspace" + self._prefix
        """Outside of the prefix: says whose the prefix is."""
        self.fence = b"clusterspace-fence" + self._prefix + b"/" + uuid4().hex.encode()
        """Outside of it, too, and nobody else's; absent until something has to be fenced off."""

    def to_etcd(self, key: str) -> bytes:
        """Return the name of a key in etcd; Unstorable where it has none."""
        if not key.startswith(f"{self._root}/"):
            raise Unstorable(f"the key {key!r} does not begin with {self._root}/")
        return self._prefix + key.removeprefix(self._root).encode()

    def in_store(self, revision: int) -> Revision:
        """Return what a revision of etcd is called here."""
        return Revision(revision + self.ahead)

    def in_etcd(self, revision: int) -> int:
        """Return what a revision is called in etcd; those from before are nobody's there."""
        return max(revision - self.ahead, 0)

    def from_etcd(self, key: bytes) -> str:
        """Return the key that has this name in etcd."""
        return self._root + key.removeprefix(self._prefix).decode()


def item_of(names: KeyNames, stored: Stored) -> KeyValue:
    """Return a key of etcd as the store calls it."""
    return KeyValue(
        names.from_etcd(stored.key),
        stored.value,
        names.in_store(stored.create_revision),
        names.in_store(stored.mod_revision),
    )


_FILLING: Final = b"filling "


async def claim(client: EtcdClient, names: KeyNames, prefix: str, ahead: int | None) -> int:
    """Make sure that the prefix is ours: marked so, or empty, and then marked.

    Return by how much its revisions are ahead of etcd's. With `ahead` it has to be empty, and is
    marked as being filled.
    """
    answer = await client.read(messages.RANGE, messages.range_request(names.marker))
    found = messages.read_range(answer).items
    if found and ahead is None:
        return marked_ahead(found[0].value, prefix)
    anything = messages.range_request(names.first, names.end, limit=1)
    others = messages.read_range(await client.read(messages.RANGE, anything)).items
    if found:
        raise StoreUnreadable(f"{prefix} in etcd is a hub's already: choose another --etcd-prefix")
    if others:
        raise StoreUnreadable(
            f"etcd has {others[0].key.decode(errors='replace')} under {prefix}, which no hub has"
            " written: another API server may live there. Choose another --etcd-prefix"
        )
    # Created twice by two hubs that start together, or by one whose answer was lost: the second
    # time it is there, and that is all that is wanted.
    mark = b"hub" if ahead is None else _FILLING + str(ahead).encode()
    await client.read(messages.TXN, messages.create_request(names.marker, mark))
    return ahead or 0


def marked_ahead(mark: bytes, prefix: str) -> int:
    """Return by how much the revisions of a marked prefix are ahead of etcd's."""
    if mark.startswith(_FILLING):
        raise StoreUnreadable(
            f"{prefix} in etcd was being filled from elsewhere, and that was not finished:"
            f" empty it (etcdctl del --prefix {prefix}/, etcdctl del clusterspace{prefix}),"
            " and begin again"
        )
    return int(mark.removeprefix(b"ahead ")) if mark.startswith(b"ahead ") else 0


async def finish_filling(client: EtcdClient, names: KeyNames) -> None:
    """Mark a prefix that was filled from elsewhere as a hub's."""
    answer = await client.read(messages.RANGE, messages.range_request(names.marker))
    (found,) = messages.read_range(answer).items
    mark = b"ahead " + str(names.ahead).encode()
    # Sent again after a lost answer it finds the revision changed, by itself.
    request = messages.update_request(names.marker, mark, found.mod_revision)
    await client.read(messages.TXN, request)


async def load(
    client: EtcdClient, names: KeyNames, *, at: int | None = None
) -> tuple[Index, Revision]:
    """Read everything as it was at a revision, and return it with the revision of the quorum.

    0 is the present; None as far back as etcd remembers, within reason, so that the watch which
    goes on from there brings the past along.
    """
    while True:
        marker = await client.read(messages.RANGE, messages.range_request(names.marker))
        present = messages.read_range(marker).revision
        base = max(1, present - HISTORY) if at is None else names.in_etcd(at) or present
        try:
            try:
                items = [item_of(names, each) async for each in _all(client, names, base)]
            except Compacted:
                base = await _oldest(client, names, base) or present
                items = [item_of(names, each) async for each in _all(client, names, base)]
        except Compacted:
            continue  # it was compacted while it was read
        return Index(items, revision=names.in_store(base)), names.in_store(present)


async def _oldest(client: EtcdClient, names: KeyNames, base: int) -> int:
    """Return the oldest revision etcd remembers, which it says to a watch from before it; or 0."""
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(CALL_SECONDS), client.watch() as stream:
            await stream.write(messages.watch_request(names.first, names.end, base))
            while (data := await stream.read()) is not None:
                answer = messages.read_watch(data)
                if answer.canceled or answer.changes:
                    return answer.compact_revision
    return 0


async def _all(client: EtcdClient, names: KeyNames, at: int) -> AsyncGenerator[Stored]:
    async for page in pages_at(client, names, at):
        for item in page.items:
            yield item


async def pages_at(
    client: EtcdClient,
    names: KeyNames,
    at: int,
    *,
    keys_only: bool = False,
    is_serializable: bool = False,
) -> AsyncGenerator[RangeAnswer]:
    """Read everything as it was at a revision of etcd; `Compacted` when it is forgotten.

    `is_serializable` has a member answer from its own data, without asking the others.
    """
    start = names.first
    while True:
        request = messages.range_request(
            start,
            names.end,
            limit=PAGE,
            revision=at,
            keys_only=keys_only,
            is_serializable=is_serializable,
        )
        page = messages.read_range(await client.read(messages.RANGE, request))
        yield page
        if not page.more or not page.items:
            return
        start = page.items[-1].key + b"\0"
