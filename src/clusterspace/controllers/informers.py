"""Collections of a cluster, cached: list, then watch; handlers are called for every change.

Cache       objects as bytes under their keys, with indexes
Informer    keeps a cache equal to one collection
OwnWrites   our own latest writes on top of a cache that lags behind them
HubCaches   the informers that all controllers of a process share
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import structlog

from clusterspace.aio.clocks import Alarm
from clusterspace.aio.tasks import Tasks
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import (
    ClusterClient,
    ListOptions,
    RawObject,
    Version,
    decode_object,
    version_in,
)
from clusterspace.client.watch import Batch, EventType, Reflector
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.selectors import LabelSelector

IndexKeys: TypeAlias = Callable[[Object], Iterable[str]]
"""Under which words an object is to be found."""


# What may be believed, and when, of one collection:
#
#     hub        web@5 ............... web@6 .......... (deleted at 7)
#     stream     ....... web@5 ................ web@6 ............... DELETED web@7
#     cache      (empty)  web@5                 web@6                 (empty)
#     handlers            hear of web@5         web@5 to web@6        web@7 gone
#
# The cache is the past of the hub: a while ago it was all of it, and nothing that never was. Each
# object goes through some of its states, in their order, and never back; two objects may be shown
# from moments that were not the same. So what the cache has may be gone, and what it lacks may be
# there. Whoever is about to delete, unmark or give up something for what is in here, or is not,
# asks the hub first.
#
# There is one task that writes (`Informer.run`) and many that read, all in one loop; the turns of
# the loop are the only lock. A reader that awaits between two looks has looked at two states.
class Cache:
    """The objects of one collection, undecoded, by key and by index.

    They are kept as the JSON they came in: a decoded one takes five times the memory, and most are
    never read. Reading decodes, so everyone gets an object of their own.
    """

    def __init__(self, indexes: Mapping[str, IndexKeys] | None = None) -> None:
        self._objects: dict[str, bytes] = {}
        self._index_keys: dict[str, IndexKeys] = {}
        self._indexes: dict[str, dict[str, set[str]]] = {}
        self.add_indexes(indexes or {})

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def add_indexes(self, indexes: Mapping[str, IndexKeys]) -> None:
        """Keep these indexes as well; one that is kept already may be asked for again."""
        for name, keys_of in indexes.items():
            known = self._index_keys.get(name)
            if known is not None and known is not keys_of:
                raise ValueError(f"there is another index called {name}")
            if known is None:
                self._index_keys[name] = keys_of
                index = self._indexes[name] = {}
                for key, raw in self._objects.items():
                    for word in keys_of(decode_object(raw)):
                        index.setdefault(word, set()).add(key)

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects."""
        return self._objects.keys()

    def find(self, key: str) -> Object | None:
        """Return an object, or None."""
        raw = self._objects.get(key)
        return None if raw is None else decode_object(raw)

    def find_raw(self, key: str) -> bytes | None:
        """Return the bytes of an object, or None."""
        return self._objects.get(key)

    def find_version(self, key: str) -> Version | None:
        """Return the version of an object, or None."""
        raw = self._objects.get(key)
        return None if raw is None else version_in(raw)

    def objects(self, selector: LabelSelector | None = None) -> Iterator[Object]:
        """Yield the objects, or those whose labels match."""
        # A copy: whoever goes through them may await between two, and the informer goes on.
        for raw in list(self._objects.values()):
            kube_object = decode_object(raw)
            if selector is None or selector.matches(labels_of(kube_object)):
                yield kube_object

    def keys_at(self, index: str, word: str) -> frozenset[str]:
        """Return the keys an index has under a word."""
        return frozenset(self._indexes[index].get(word, ()))

    def objects_at(self, index: str, word: str) -> list[Object]:
        """Return the objects an index has under a word, in the order of their keys."""
        return [decode_object(self._objects[key]) for key in sorted(self.keys_at(index, word))]

    def words_of(self, index: str, kube_object: Object) -> Iterable[str]:
        """Return the words under which an index would have an object."""
        return self._index_keys[index](kube_object)

    def put(self, item: RawObject) -> None:
        """Add an object or replace it."""
        # The words of the old state are worked out again from its bytes, so an index must be a
        # function of the object alone: one that looked at a clock or at another cache would leave
        # words behind that nothing takes away. Objects that cannot be decoded raise here, before
        # anything is changed.
        if self._indexes:
            before, after = self.find(item.key), item.decode()
            self._reindex(item.key, before, after)
        self._objects[item.key] = item.raw

    def remove(self, key: str) -> bytes | None:
        """Forget an object; return what was known of it."""
        raw = self._objects.pop(key, None)
        if raw is not None and self._indexes:
            self._reindex(key, decode_object(raw), None)
        return raw

    def _reindex(self, key: str, before: Object | None, after: Object | None) -> None:
        for name, keys_of in self._index_keys.items():
            index = self._indexes[name]
            old = set(keys_of(before)) if before is not None else set[str]()
            new = set(keys_of(after)) if after is not None else set[str]()
            for word in old - new:
                index[word].discard(key)
                if not index[word]:
                    del index[word]
            for word in new - old:
                index.setdefault(word, set()).add(key)


def by_owner_uid(kube_object: Object) -> Iterable[str]:
    """Index objects by the UIDs of their owners."""
    owners = find_at(kube_object, "metadata", "ownerReferences") or ()
    return [str(owner["uid"]) for owner in owners if owner.get("uid")]


def by_uid(kube_object: Object) -> Iterable[str]:
    """Index objects by their UID."""
    return (uid_of(kube_object),)


def by_label(label: str) -> IndexKeys:
    """Return an index of objects by the value of one label."""

    def keys_of(kube_object: Object) -> Iterable[str]:
        value = labels_of(kube_object).get(label)
        return () if value is None else (value,)

    return keys_of


_log = structlog.get_logger(__name__)

STALE_SECONDS: Final = 300.0
"""Twice the silence after which a watch is opened anew: by now somebody should look."""

_CHECK_SECONDS: Final = STALE_SECONDS / 10
_UNNAMED: Final = GroupVersionResource("", "", "")


@dataclass(frozen=True)
class Update:
    """A change of one object; `before` and `after` are undecoded, and None when absent.

    The last known state of a deleted object is `before`. Each is decoded once at most, however
    many handlers want to know: they share what they get.
    """

    key: str
    before: bytes | None
    after: bytes | None
    resource: GroupVersionResource = _UNNAMED
    """The collection it is in, for handlers that follow several."""

    @property
    def is_deletion(self) -> bool:
        """Whether the object is gone."""
        return self.after is None

    def decode_before(self) -> Object | None:
        """Return the object as it was, or None."""
        return self._decoded_before

    def decode_after(self) -> Object | None:
        """Return the object as it is, or None."""
        return self._decoded_after

    @cached_property
    def _decoded_before(self) -> Object | None:
        return None if self.before is None else decode_object(self.before)

    @cached_property
    def _decoded_after(self) -> Object | None:
        return None if self.after is None else decode_object(self.after)


Handler: TypeAlias = Callable[[Update], None]
"""Told of every change, in order; it must not wait."""


class Informer:
    """Keeps a cache equal to one collection of one cluster.

        pods = Informer(member_client, ResourcePath(PODS), indexes={"owner": by_owner_uid})
        pods.add_handler(note_change)
        tasks.keep("pods", pods.run)
        await pods.wait_synced()

    Until it is synced the cache may lack objects; afterwards it may lag, never lie. Ask `trouble`
    and `silent_seconds` how far to trust it.
    """

    def __init__(
        self,
        cluster_client: ClusterClient,
        path: ResourcePath,
        *,
        selection: ListOptions | None = None,
        indexes: Mapping[str, IndexKeys] | None = None,
    ) -> None:
        self.cluster = cluster_client.cluster
        self.cluster_client = cluster_client
        self.path = path
        self.selection = selection
        self.cache = Cache(indexes)
        self._clock = cluster_client.connection.clock
        self._follower = Reflector(cluster_client, path, self.cache, selection)
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._alarm = Alarm(self._clock, self._check_staleness)
        self._was_stale = False

    def add_handler(self, handler: Handler) -> None:
        """Tell a handler of every change from now on, and of what is there already as added."""
        # No await in here: between being told of what is there and being told of what comes there
        # is nothing for a change to fall into.
        self._handlers.append(handler)
        for key in list(self.cache.keys()):
            handler(Update(key, None, self.cache.find_raw(key), self.path.resource))

    @property
    def has_synced(self) -> bool:
        """Whether the cache has held the whole collection once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the cache holds the whole collection."""
        await self._synced.wait()

    @property
    def trouble(self) -> Exception | None:
        """Why nothing is heard from the cluster at the moment, if that is so."""
        return self._follower.trouble

    @property
    def silent_seconds(self) -> float:
        """For how long the cluster has not said anything about this collection."""
        return self._clock.monotonic() - self._follower.last_heard

    @property
    def is_stale(self) -> bool:
        """Whether the silence is so long that something must be wrong."""
        return self.silent_seconds >= STALE_SECONDS

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        self._alarm.set(_CHECK_SECONDS)
        try:
            async with aclosing(self._follower.batches()) as batches:
                async for batch in batches:
                    self._take(batch)
        finally:
            self._alarm.cancel()

    def _take(self, batch: Batch) -> None:
        """Bring the cache to a batch of changes, and call the handlers for each."""
        # No await in here: whoever reads the cache between two turns of the loop sees whole
        # batches, and a handler that looks at the cache finds what it was called for.
        for change in batch.changes:
            key, resource = change.item.key, self.path.resource
            if change.type is EventType.DELETED:
                before = self.cache.remove(key)
                # The event of a deletion carries the last state; absence in a list does not.
                update = Update(key, change.item.raw or before, None, resource)
            else:
                before = self.cache.find_raw(key)
                self.cache.put(change.item)
                update = Update(key, before, change.item.raw, resource)
            for handler in self._handlers:
                try:
                    handler(update)
                except Exception as error:  # noqa: BLE001 - whatever it is, others must hear the rest
                    # An object that somebody wrote so that one cannot read it. Ended here, this
                    # informer would begin again, and the other handlers had missed the change.
                    _log.error(
                        "change not understood",
                        cluster=self.cluster,
                        resource=str(self.path),
                        object=key,
                        exc_info=error,
                    )
        # After the handlers: who waits for the sync may rely on every one of them having heard of
        # every object that was in the first list. It is never taken back. A stream that breaks and
        # is listed again brings what was missed as changes, and the cache is whole all the while,
        # only older.
        if batch.is_whole and not self._synced.is_set():
            self._synced.set()
            _log.debug(
                "synced", cluster=self.cluster, resource=str(self.path), objects=len(self.cache)
            )

    def _check_staleness(self) -> None:
        """Log once when the cluster falls silent, and once when it speaks again."""
        self._alarm.set(_CHECK_SECONDS)
        if self.is_stale == self._was_stale:
            return
        self._was_stale = self.is_stale
        _log.warning(
            "informer is stale" if self._was_stale else "informer is fresh again",
            cluster=self.cluster,
            resource=str(self.path),
            silent_seconds=round(self.silent_seconds),
            reason=str(self.trouble or ""),
        )


# A create, and the two orders in which its answer and its event may come:
#
#     create web ──> answer web@9: noted    find: web@9 (noted)    event web@9: let go, find: cache
#     create web ──> event web@9: cached    answer web@9: the cache has it, nothing is noted
#
# Noted versions only ever give way to the same or later ones. Should the event never come, because
# the object was deleted before the stream saw it and the stream was broken meanwhile, the list that
# follows says nothing of the key, and so does no handler: `forget` is for whoever then asks the hub
# and is told that there is none.
class OwnWrites:
    """A cache with our own latest writes on top of it.

    A cache lags behind our own writes. Who plans by it alone creates an object twice, takes back
    what was written a moment ago, or lets go of an object while one that it owns is on its way
    into the cache. So what the hub answered to a write is kept here until the informer has seen
    that version or a later one. The two may come in any order: an event can be faster than the
    answer to the write that caused it, and then there is nothing to keep.
    """

    def __init__(self, informer: Informer) -> None:
        self._cache = informer.cache
        self._unseen: dict[str, Object | None] = {}
        """Objects as written, by key; None for one that we deleted."""
        informer.add_handler(self._see)

    def find(self, key: str) -> Object | None:
        """Return the latest known state of an object, or None."""
        return self._unseen[key] if key in self._unseen else self._cache.find(key)

    def objects_at(self, index: str, word: str) -> list[Object]:
        """Return the objects an index of the cache has under a word, in the order of their keys."""
        keys = set(self._cache.keys_at(index, word))
        keys |= {
            key
            for key, each in self._unseen.items()
            if each is not None and word in self._cache.words_of(index, each)
        }
        objects = (self.find(key) for key in sorted(keys))
        return [each for each in objects if each is not None]

    def note(self, written: Object) -> None:
        """Remember an object as the hub answered it, until the cache is as far."""
        key = key_of(namespace_of(written), name_of(written))
        # Versions are compared as numbers: both are of one collection of one hub, which counts up.
        cached = self._cache.find_version(key)
        if cached is None or int(cached.resource_version) < int(resource_version_of(written)):
            self._unseen[key] = written

    def note_deleted(self, deleted: Object) -> None:
        """Remember that we deleted an object, until the cache is as far."""
        key = key_of(namespace_of(deleted), name_of(deleted))
        if key in self._cache:
            self._unseen[key] = None
        else:
            self._unseen.pop(key, None)

    def forget(self, key: str) -> None:
        """Drop what was noted of an object: the hub says that there is none."""
        self._unseen.pop(key, None)

    def _see(self, update: Update) -> None:
        if update.key not in self._unseen:
            return
        noted = self._unseen[update.key]
        if update.after is None:
            # Of the object that was noted, or of one that had its name before. Then what was noted
            # is let go too early: a plan that misses it creates again, and is refused.
            del self._unseen[update.key]
        elif noted is not None:
            seen = int(version_in(update.after).resource_version)
            if seen >= int(resource_version_of(noted)):
                del self._unseen[update.key]


T = TypeVar("T")


@runtime_checkable
class _Runnable(Protocol):
    async def run(self) -> None: ...


class HubCaches:
    """The informers of the hub that the controllers of a process share.

        clusters = caches.informer(CLUSTERS)
        bindings = caches.informer(RESOURCE_BINDINGS, indexes={"cluster": by_cluster})
        templates = caches.shared(TemplateInformers)

    Whoever asks for a collection first has its informer made; everybody gets the same one, and
    a collection nobody asks for is not watched. Reconcilers ask in their constructors: what is
    asked for once the caches run would never sync.
    """

    def __init__(self, hub: ClusterClient) -> None:
        self.hub = hub
        self._informers: dict[tuple[ResourcePath, ListOptions | None], Informer] = {}
        self._shared: dict[Callable[[HubCaches], Any], Any] = {}
        self._is_running = False

    def informer(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        selection: ListOptions | None = None,
        indexes: Mapping[str, IndexKeys] | None = None,
    ) -> Informer:
        """Return the informer of a collection, with these indexes among others."""
        path = ResourcePath(resource, namespace)
        informer = self._informers.get((path, selection))
        if informer is None:
            self._require_not_running(path)
            informer = Informer(self.hub, path, selection=selection)
            self._informers[path, selection] = informer
        # Informers run only after all reconcilers are made, so no index and no handler is late.
        informer.cache.add_indexes(indexes or {})
        return informer

    def shared(self, make: "Callable[[HubCaches], T]") -> T:
        """Return the view that `make` builds of these caches, one for all who ask.

        It is for views that several controllers must share to be right, such as Works that were
        written and have not come back yet, or to be cheap. If the view has
        `run`, it runs with the caches.
        """
        if make not in self._shared:
            self._require_not_running(make)
            self._shared[make] = make(self)
        return self._shared[make]

    def tasks(self) -> Tasks:
        """Return the tasks that keep the caches up to date; no informer can be added after this."""
        self._is_running = True
        informers = {f"informer {key[0]}": each.run for key, each in self._informers.items()}
        views = {
            f"informer {type(each).__name__}": each.run
            for each in self._shared.values()
            if isinstance(each, _Runnable)
        }
        return {**informers, **views}

    def _require_not_running(self, asked: object) -> None:
        if self._is_running:
            raise RuntimeError(f"{asked} was asked for too late: ask in the constructor")
