"""Objects that steer admission, as the store has them: read once, and again when one has changed.

A policy is in force before its write is answered: the store tells its subscribers of a commit
before it tells the writer, and what it told makes the next request read again. Nothing runs in
the background, and a hub without such objects pays for a look at a flag.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from clusterspace.apiserver import forms
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Event, Store, Subscription
from clusterspace.errors import StoreError
from clusterspace.kube.objects import Object

GROUP: Final = "admissionregistration.k8s.io"

Built = TypeVar("Built")

Build: TypeAlias = Callable[[Sequence[Sequence[Object]]], Built]
"""Makes of all objects, a sequence for each resource, what requests are judged by."""


class Followed(Generic[Built]):
    """What has been built of all objects of some resources in their present form."""

    def __init__(self, plurals: Sequence[str], build: Build[Built]) -> None:
        self._plurals = plurals
        self._build = build
        self._subscriptions: list[Subscription] = []
        self._store: Store | None = None
        self._changes = 0
        self._built_at = -1
        self._built: Built | None = None

    @property
    def current(self) -> Built | None:
        """What is in force; None when it must be read first."""
        return self._built if self._built_at == self._changes else None

    async def read(self, hub: HubState) -> Built:
        """Read what is in force now."""
        while True:
            if self._store is not hub.store or not self._subscriptions:
                self._subscribe(hub)
            # Counted before the read: a commit during one of the awaits below counts on, and what
            # was read is then read once more. Of two requests that read at the same time neither
            # can put what is older in the place of what is newer: only the last count is kept.
            at = self._changes
            found: list[list[Object]] = []
            for plural in self._plurals:
                try:
                    served = hub.catalog.get_storage(GROUP, plural)
                except KeyError:
                    found.append([])  # of a version that this server was not asked to serve
                    continue
                page = await hub.store.range(served.prefix())
                found.append([forms.decode_stored(entry, served.form) for entry in page.items])
            built = self._build(found)
            if at == self._changes:
                self._built, self._built_at = built, at
                return built

    def _subscribe(self, hub: HubState) -> None:
        for each in self._subscriptions:
            each.close()
        self._store = hub.store
        after = hub.store.current_revision
        self._subscriptions = [
            hub.store.subscribe(forms.collection_key(GROUP, plural), after=after, sink=self)
            for plural in self._plurals
        ]

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take note that something has changed."""
        self._changes += 1

    def end(self, reason: StoreError) -> None:
        """Read and subscribe again, when somebody asks next."""
        self._changes += 1
        self._subscriptions = []
