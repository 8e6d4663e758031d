"""Objects of one kind that are not ours, followed for as long as one of them is in the way.

A conflict ends when the object in the way goes, or is handed to us. Nobody is asked again and
again: the member tells. Of what it tells only versions are kept, since a kind may have very many
objects that are none of our business.
"""

import asyncio
from collections.abc import Callable, KeysView
from contextlib import aclosing
from typing import Final

from clusterspace.apis import stamps
from clusterspace.client.changes import Change
from clusterspace.client.following import Follower
from clusterspace.client.places import Place
from clusterspace.client.raw_objects import Version
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.watch import EventType
from clusterspace.fleet.execution.takeover import MANAGED
from clusterspace.kube.resources import GroupVersionResource

_NOT_OURS: Final = ListOptions(label_selector=f"{stamps.MANAGED}!={MANAGED}")


class Versions:
    """Which objects there are, and in which version."""

    def __init__(self) -> None:
        self._versions: dict[str, Version] = {}

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects."""
        return self._versions.keys()

    def find_version(self, key: str) -> Version | None:
        """Return the version of an object, or None."""
        return self._versions.get(key)

    def take(self, change: Change) -> None:
        """Note what happened to an object."""
        if change.type is EventType.DELETED:
            self._versions.pop(change.item.key, None)
        else:
            self._versions[change.item.key] = change.item.version


class Bystanders:
    """Tells when objects change that are in our way, while there are any."""

    def __init__(
        self,
        member: ClusterClient,
        resource: GroupVersionResource,
        tell: Callable[[str], None],
    ) -> None:
        self._member = member
        self._resource = resource
        self._tell = tell
        self._awaited: set[str] = set()
        self._is_wanted = asyncio.Event()

    def expect(self, key: str) -> None:
        """Tell when something happens to this object; it may be absent still, or already."""
        self._awaited.add(key)
        self._is_wanted.set()

    def forget(self, key: str) -> None:
        """Do not tell of this object any more."""
        self._awaited.discard(key)

    async def run(self) -> None:
        """Follow the objects whenever one is awaited, until cancelled."""
        while True:
            await self._is_wanted.wait()
            await self._follow()
            self._is_wanted.clear()
            if self._awaited:
                self._is_wanted.set()

    async def _follow(self) -> None:
        """Follow until nobody is awaited any more: the member's next word ends it."""
        known = Versions()
        follower = Follower(self._member, Place(self._resource), known, _NOT_OURS)
        is_whole = False
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                changed = {change.item.key for change in batch.changes}
                for change in batch.changes:
                    known.take(change)
                if batch.is_whole and not is_whole:
                    # What was awaited may have gone before we began to listen.
                    is_whole, changed = True, set(self._awaited)
                for key in changed & self._awaited:
                    self._tell(key)
                if not self._awaited:
                    return
