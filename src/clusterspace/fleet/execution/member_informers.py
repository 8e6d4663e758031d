"""Informers of one member: the objects our Works placed there, and what is in their way.

Each kind is followed once, for the objects that are managed; a change leads back to the Work by
the stamps on the object. Where an object of ours cannot be put because of another one, or because
its namespace is missing, the unmanaged objects of that kind are followed too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, KeysView
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

import msgspec

from clusterspace.aio import clocks
from clusterspace.aio.tasks import Supervisor, report
from clusterspace.apis import stamps
from clusterspace.apis.clusters import execution_namespace
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient, ListOptions, Version, version_in
from clusterspace.client.watch import EventType, ObjectChange, Reflector
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import MalformedObject
from clusterspace.fleet.execution.takeover import MANAGED
from clusterspace.kube.objects import Object, name_of, resource_version_of
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource, ResourceInfo

_MANAGED: Final = ListOptions(label_selector=f"{stamps.MANAGED}={MANAGED}")
_UNMANAGED: Final = ListOptions(label_selector=f"{stamps.MANAGED}!={MANAGED}")
_WATCHED: Final = frozenset({"list", "watch"})

_RESTARTS: Final = partial(clocks.exponential, 1.0, 30.0)

LIST_SECONDS: Final = 10.0
"""How long one look at an object waits for the first list of its kind."""


class _Metadata(msgspec.Struct, gc=False):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletionTimestamp: str = ""  # noqa: N815 - the name of the wire


class _Stamped(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_stamped_decoder: Final = msgspec.json.Decoder(_Stamped)


class MemberInformers:
    """Follows one member's objects, and enqueues the Work that a change concerns, by its name."""

    # Read and changed by the workers of one member and by the informers it runs, all in one event
    # loop, and never across an await: each method below leaves the maps whole before it returns.
    #
    # Caches may lag, and an object that is missing in one may well be there: one whose managed
    # label somebody took off leaves the selection, and is seen as deleted. So `find` answers "not
    # seen", never "not there". Whoever is about to create or delete asks the member itself.

    def __init__(
        self,
        member: ClusterClient,
        cluster_name: str,
        enqueue: Callable[[str], None],
        seen: Callable[[ResourcePath, str, str], None],
    ) -> None:
        self.cluster = cluster_name
        """What the hub calls the member; its agent knows it by another name."""
        self._member = member
        self._execution_namespace = execution_namespace(cluster_name)
        self._enqueue = enqueue
        self._seen = seen
        """Told of every object that is there, by its path, its Work's name and its Work's ID."""
        self._tasks: Supervisor | None = None
        self._discovery = Discovery(member.connection)
        self._resources: dict[GroupVersionKind, ResourceInfo] = {}
        self._informers: dict[GroupVersionResource, Informer] = {}
        self._blocker_watches: dict[GroupVersionResource, BlockerWatch] = {}
        # The same relation from both ends: a Work waits for places, a place holds up Works.
        # Invariant: a place is a key of `_works_waiting` exactly while its BlockerWatch expects it.
        self._works_waiting: dict[ResourcePath, set[str]] = {}
        self._blockers: dict[str, set[ResourcePath]] = {}
        # The versions of our own last writes. An entry goes with the deletion of its object, so
        # there are no more than objects we placed.
        self._written: dict[ResourcePath, str] = {}

    async def run(self) -> None:
        """Follow whatever is asked for, until cancelled."""
        async with Supervisor(self._member.connection.clock, report) as tasks:
            # No await from here to the end of the loops: what is asked for meanwhile would be
            # started twice, or never.
            self._tasks = tasks
            for resource, informer in self._informers.items():
                self._start(f"{resource}", informer.run)
            for resource, watch in self._blocker_watches.items():
                self._start(f"unmanaged {resource}", watch.run)
            await asyncio.Event().wait()

    async def resource_path_of(self, manifest: Object) -> ResourcePath:
        """Return where a manifest belongs; NotServed when the member knows no such kind.

        A manifest that names no object is Malformed: its place would be the whole collection.
        """
        if not name_of(manifest):
            raise MalformedObject("the manifest has no name", place="metadata.name")
        info = await self.resource_of(manifest)
        return resource_path_of(info.group_version_resource, manifest)

    async def resource_of(self, manifest: Object) -> ResourceInfo:
        """Return the member's resource for a manifest's kind; NotServed when it has none."""
        kind = GroupVersionKind.of(str(manifest.get("apiVersion")), str(manifest.get("kind")))
        known = self._resources.get(kind)
        if known is None:
            # Several workers may ask for a new kind at once: they store the same, and `_follow`
            # starts one informer, whoever comes first.
            known = await self._discovery.get_resource(kind)
            self._resources[kind] = known
            if frozenset(known.verbs) >= _WATCHED:
                self._follow(known.group_version_resource)
        return known

    def forget_resources(self) -> None:
        """Ask the member anew what it serves: it has just refused a kind it once had."""
        # Informers go on: the kind may come back, and one that cannot be listed waits and tries.
        self._resources.clear()
        self._discovery.forget()

    def find(self, path: ResourcePath) -> Object | None:
        """Return an object as it was last seen; None says nothing about whether it is there."""
        informer = self._informers.get(path.resource)
        return None if informer is None else informer.cache.find(path.key)

    async def wait_synced(self, resource: GroupVersionResource) -> None:
        """Wait while objects of a kind are listed for the first time, but no longer than a while.

        After a start there may be thousands to look at, and one list is quicker than all of them.
        """
        informer = self._informers.get(resource)
        if self._tasks is None or informer is None or informer.trouble is not None:
            return  # nothing lists it, or the member refuses to: waiting would be for nothing
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_SECONDS):
                await informer.wait_synced()

    def note_written(self, path: ResourcePath, stored: Object) -> None:
        """Remember what we wrote ourselves: the event that tells of it enqueues nothing."""
        # The event may also come before the answer to our write. Then the Work is enqueued once for
        # nothing: it finds the object as it should be. Whatever somebody writes after us has
        # another version, and enqueues the Work even if it comes in the same batch as ours.
        self._written[path] = resource_version_of(stored)

    def wait_for(self, work_name: str, blockers: Iterable[ResourcePath]) -> bool:
        """Enqueue the Work when something happens at these places, and at no others.

        Returns whether one of them is new. It may have changed just before we began to listen, so
        whoever waits for a new one should look once more by himself.
        """
        # Told by the member          we do               could be missed
        # object A is in the way      decide: conflict
        # A is deleted                                    by us: nobody listened yet
        #                             wait_for(A)         the first list has no A: enqueued at once;
        #                                                 a watch that ran already says nothing
        #                             look once more      finds the place free
        desired, current = set(blockers), self._blockers.get(work_name, set())
        for path in current - desired:
            waiting = self._works_waiting[path]
            waiting.discard(work_name)
            if not waiting:
                del self._works_waiting[path]
                self._blocker_watches[path.resource].forget(path.key)
        for path in desired - current:
            self._works_waiting.setdefault(path, set()).add(work_name)
            # What is in the way may be managed by somebody else, so both kinds are followed.
            self._follow(path.resource)
            self._blocker_watch(path.resource).expect(path.key)
        if desired:
            self._blockers[work_name] = desired
        else:
            self._blockers.pop(work_name, None)
        return bool(desired - current)

    def follow(self, resources: Iterable[GroupVersionResource]) -> None:
        """Follow these too, and say once more what is there of those that are followed."""
        for resource in resources:
            self._follow(resource)
        for resource, informer in self._informers.items():
            for key in tuple(informer.cache):
                self._note_seen(ResourcePath(resource).at(key), informer.cache.find_raw(key))

    def _follow(self, resource: GroupVersionResource) -> None:
        if resource in self._informers:
            return
        informer = Informer(self._member, ResourcePath(resource), selection=_MANAGED)
        informer.add_handler(lambda update: self._object_changed(resource, update))
        self._informers[resource] = informer
        self._start(f"{resource}", informer.run)

    def _blocker_watch(self, resource: GroupVersionResource) -> "BlockerWatch":
        watch = self._blocker_watches.get(resource)
        if watch is None:
            collection = ResourcePath(resource)
            watch = BlockerWatch(
                self._member, resource, lambda key: self._enqueue_waiting(collection.at(key))
            )
            self._blocker_watches[resource] = watch
            self._start(f"unmanaged {resource}", watch.run)
        return watch

    def _start(self, name: str, follow: Callable[[], Awaitable[None]]) -> None:
        """Run something now, or as soon as we run ourselves."""
        if self._tasks is not None:
            self._tasks.keep(f"{self.cluster} {name}", follow, restart=_RESTARTS)

    def _object_changed(self, resource: GroupVersionResource, update: Update) -> None:
        path = ResourcePath(resource).at(update.key)
        written = self._written.get(path)
        if update.is_deletion:
            self._written.pop(path, None)
        # Also for our own writes: a namespace that one Work creates is what others wait for, and
        # its event may come before or after the answer that was noted as written.
        self._enqueue_waiting(path)
        self._note_seen(path, update.after)
        if update.after is not None and version_in(update.after).resource_version == written:
            return
        # Both states count: the stamp says whose an object is, until somebody takes it off.
        for raw in filter(None, (update.before, update.after)):
            annotations = _stamped_decoder.decode(raw).metadata.annotations
            is_ours = annotations.get(stamps.WORK_NAMESPACE) == self._execution_namespace
            if is_ours and stamps.WORK_NAME in annotations:
                self._enqueue(annotations[stamps.WORK_NAME])

    def _note_seen(self, path: ResourcePath, raw: bytes | None) -> None:
        metadata = None if raw is None else _stamped_decoder.decode(raw).metadata
        if metadata is None or metadata.deletionTimestamp:
            return
        annotations, work_id = metadata.annotations, metadata.labels.get(stamps.WORK_ID)
        is_ours = annotations.get(stamps.WORK_NAMESPACE) == self._execution_namespace
        if is_ours and work_id and stamps.WORK_NAME in annotations:
            self._seen(path, annotations[stamps.WORK_NAME], work_id)

    def _enqueue_waiting(self, path: ResourcePath) -> None:
        for name in tuple(self._works_waiting.get(path, ())):
            self._enqueue(name)


class BlockerWatch:
    """Follows the unmanaged objects of one kind, for as long as one of them is in the way."""

    # A conflict ends when the object in the way goes, or is handed to us. Nobody is asked again and
    # again: the member's watch tells. Of that only versions are kept, since a kind may have very
    # many objects that are none of our business. An object that is given the managed label leaves
    # this watch, as if deleted, and enters the informer of managed ones: either event will do.

    def __init__(
        self, member: ClusterClient, resource: GroupVersionResource, enqueue: Callable[[str], None]
    ) -> None:
        self._member = member
        self._resource = resource
        self._enqueue = enqueue
        self._awaited: set[str] = set()
        self._is_needed = asyncio.Event()

    def expect(self, key: str) -> None:
        """Report when something happens to this object; it may be absent still, or already."""
        self._awaited.add(key)
        self._is_needed.set()

    def forget(self, key: str) -> None:
        """Report nothing of this object any more."""
        self._awaited.discard(key)

    async def run(self) -> None:
        """Follow the objects whenever one is awaited, until cancelled."""
        while True:
            await self._is_needed.wait()
            await self._follow()
            self._is_needed.clear()
            # Closing the watch takes a moment, in which somebody may have begun to wait: `expect`
            # had set the event then, and we have just cleared it.
            if self._awaited:
                self._is_needed.set()

    async def _follow(self) -> None:
        """Follow until nothing is awaited any more: the member's next event ends it."""
        known = Versions()
        follower = Reflector(self._member, ResourcePath(self._resource), known, _UNMANAGED)
        is_synced = False
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                changed = {change.item.key for change in batch.changes}
                for change in batch.changes:
                    known.take(change)
                if batch.is_whole and not is_synced:
                    # What was awaited may have gone before we began to listen.
                    is_synced, changed = True, set(self._awaited)
                for key in changed & self._awaited:
                    self._enqueue(key)
                if not self._awaited:
                    return


class Versions:
    """Which objects there are, and in which version: as much as a Reflector needs."""

    def __init__(self) -> None:
        self._versions: dict[str, Version] = {}

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects."""
        return self._versions.keys()

    def find_version(self, key: str) -> Version | None:
        """Return the version of an object, or None."""
        return self._versions.get(key)

    def take(self, change: ObjectChange) -> None:
        """Know of a change."""
        if change.type is EventType.DELETED:
            self._versions.pop(change.item.key, None)
        else:
            self._versions[change.item.key] = change.item.version
