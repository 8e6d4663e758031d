"""What is seen of one member's objects: the kinds our Works hold, and what is in their way.

Each kind is followed once, for the objects that are managed; a change leads back to the Work by
the stamps on the object. Where an object of ours cannot be put because of another one, or because
its namespace is missing, the others are followed too.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from clusterspace.aio import backoff
from clusterspace.aio.tasks import Supervisor, Work
from clusterspace.apis import stamps
from clusterspace.apis.clusters import execution_namespace
from clusterspace.client.discovery import Discovery
from clusterspace.client.places import Place, place_of
from clusterspace.client.raw_objects import version_in
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.controllers.background import report
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import MalformedObject
from clusterspace.fleet.execution.bystanders import Bystanders
from clusterspace.fleet.execution.takeover import MANAGED
from clusterspace.kube.objects import Object, name_of, resource_version_of
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource, ResourceInfo

_log = structlog.get_logger(__name__)

_MANAGED: Final = ListOptions(label_selector=f"{stamps.MANAGED}={MANAGED}")
LIST_SECONDS: Final = 10.0
_WATCHED: Final = frozenset({"list", "watch"})


class _Metadata(msgspec.Struct, gc=False):
    annotations: dict[str, str] = {}


class _Stamped(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_stamped_decoder: Final = msgspec.json.Decoder(_Stamped)


class Sightings:
    """Follows one member's objects, and tells by Work when something happens to them."""

    def __init__(
        self,
        member: ClusterClient,
        cluster_name: str,
        tell: Callable[[str], None],
    ) -> None:
        self.cluster = cluster_name
        """What the hub calls the member; its agent knows it by another name."""
        self._member = member
        self._execution_namespace = execution_namespace(cluster_name)
        self._tell = tell
        self._tasks: Supervisor | None = None
        self._discovery = Discovery(member.connection)
        self._resources: dict[GroupVersionKind, ResourceInfo] = {}
        self._informers: dict[GroupVersionResource, Informer] = {}
        self._bystanders: dict[GroupVersionResource, Bystanders] = {}
        self._waiting: dict[Place, set[str]] = {}
        self._awaited_by: dict[str, set[Place]] = {}
        self._written: dict[Place, str] = {}

    async def run(self) -> None:
        """Follow whatever is asked for, until cancelled."""
        async with Supervisor(self._member.connection.clock, report) as tasks:
            self._tasks = tasks
            for resource, informer in self._informers.items():
                self._keep(f"{resource}", informer.run)
            for resource, bystanders in self._bystanders.items():
                self._keep(f"bystanders {resource}", bystanders.run)
            await asyncio.Event().wait()

    async def place_of(self, manifest: Object) -> Place:
        """Return where a manifest belongs; NotServed when the member knows no such kind.

        A manifest that names no object is Malformed: its place would be the whole collection.
        """
        if not name_of(manifest):
            raise MalformedObject("the manifest has no name", place="metadata.name")
        info = await self.info_of(manifest)
        return place_of(info.group_version_resource, manifest)

    async def info_of(self, manifest: Object) -> ResourceInfo:
        """Return what the member tells of a manifest's kind; NotServed when it knows none."""
        kind = GroupVersionKind.of(str(manifest.get("apiVersion")), str(manifest.get("kind")))
        found = self._resources.get(kind)
        if found is None:
            found = await self._discovery.get_resource(kind)
            self._resources[kind] = found
            if frozenset(found.verbs) >= _WATCHED:
                self._follow(found.group_version_resource)
        return found

    def forget_kinds(self) -> None:
        """Ask the member anew what it serves: it has just refused a kind it once had."""
        self._resources.clear()
        self._discovery.forget()

    def look(self, place: Place) -> Object | None:
        """Return an object as it was last seen; None says nothing about whether it is there."""
        informer = self._informers.get(place.resource)
        return None if informer is None else informer.cache.find(place.key)

    async def wait_listed(self, resource: GroupVersionResource) -> None:
        """Wait while objects of a kind are listed for the first time, but no longer than a while.

        After a start there may be thousands to look at, and one list is quicker than all of them.
        """
        informer = self._informers.get(resource)
        if self._tasks is None or informer is None or informer.trouble is not None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_SECONDS):
                await informer.wait_synced()

    def note_written(self, place: Place, stored: Object) -> None:
        """Remember what we wrote ourselves: being told of it is no news."""
        self._written[place] = resource_version_of(stored)

    def await_only(self, work_name: str, places: Iterable[Place]) -> bool:
        """Tell the Work when something happens at these places, and nowhere else.

        Returns whether one of them is new. It may have changed just before we began to listen, so
        whoever waits for a new one should look once more by himself.
        """
        wanted, held = set(places), self._awaited_by.get(work_name, set())
        for place in held - wanted:
            self._stop_waiting(place, work_name)
        for place in wanted - held:
            self._wait_for(place, work_name)
        if wanted:
            self._awaited_by[work_name] = wanted
        else:
            self._awaited_by.pop(work_name, None)
        return bool(wanted - held)

    def _wait_for(self, place: Place, work_name: str) -> None:
        self._waiting.setdefault(place, set()).add(work_name)
        self._follow(place.resource)
        bystanders = self._bystanders.get(place.resource)
        if bystanders is None:
            bystanders = self._start_bystanders(place.resource)
        bystanders.expect(place.key)

    def _stop_waiting(self, place: Place, work_name: str) -> None:
        names = self._waiting[place]
        names.discard(work_name)
        if not names:
            del self._waiting[place]
            self._bystanders[place.resource].forget(place.key)

    def _follow(self, resource: GroupVersionResource) -> None:
        if resource in self._informers:
            return
        informer = Informer(self._member, Place(resource), selection=_MANAGED)
        informer.add_handler(lambda update: self._take(resource, update))
        self._informers[resource] = informer
        self._keep(f"{resource}", informer.run)

    def _start_bystanders(self, resource: GroupVersionResource) -> Bystanders:
        bystanders = Bystanders(
            self._member, resource, lambda key: self._tell_waiting(Place(resource).at(key))
        )
        self._bystanders[resource] = bystanders
        self._keep(f"bystanders {resource}", bystanders.run)
        return bystanders

    def _keep(self, name: str, follow: Work) -> None:
        """Run something now, or as soon as we run ourselves."""
        if self._tasks is not None:
            self._tasks.keep(f"{self.cluster} {name}", follow, restart=_restarts)

    def _take(self, resource: GroupVersionResource, update: Update) -> None:
        place = Place(resource).at(update.key)
        written = self._written.get(place)
        if update.is_deletion:
            self._written.pop(place, None)
        if update.after is not None and version_in(update.after).resource_version == written:
            return
        for name in self._works_in(update):
            self._tell(name)
        self._tell_waiting(place)

    def _tell_waiting(self, place: Place) -> None:
        for name in tuple(self._waiting.get(place, ())):
            self._tell(name)

    def _works_in(self, update: Update) -> Iterable[str]:
        """Return the Works an object is stamped with, or was until somebody took the stamp off."""
        stamped = [_annotations_in(raw) for raw in (update.before, update.after) if raw]
        return {
            each[stamps.WORK_NAME]
            for each in stamped
            if each.get(stamps.WORK_NAMESPACE) == self._execution_namespace
            and stamps.WORK_NAME in each
        }


def _annotations_in(raw: bytes) -> dict[str, str]:
    return _stamped_decoder.decode(raw).metadata.annotations


def _restarts() -> Iterator[float]:
    return backoff.exponential(1.0, 30.0)
