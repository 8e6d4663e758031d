"""What was withdrawn from a member, noted there; and what was written to it too late, removed.

A write may reach a member long after it was meant: its sender was frozen between the last look at
its lease and the first byte, or the member itself was. When the Work was withdrawn meanwhile, an
object appears that no Work explains, stamped as ours, and nobody would ever look for it:

    first leader      finalizer on the Work ── frozen ─────────────────────────── creates the object
    second leader                              the Work goes: notes, looks, deletes, lets go

So before the looks of a withdrawal it is noted which objects are withdrawn, by the ID of the Work
and place. What appears at such a place under such an ID, and not in the Work as the hub has it now,
is removed. That takes the note: without one an object is kept, whatever it says of itself. It may
be another hub's, whose clusters have the same names, or of a Work that this hub, restored from a
backup, has forgotten.

The notes are a ConfigMap on the member, so they go back with it when it is restored: what a person
got back on purpose is then not taken for a late write.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    SYSTEM_NAMESPACE,
    WITHDRAWN_PREFIX,
    WORKS,
    execution_namespace,
    keeps_on_leave,
)
from clusterspace.apis.works import identifier_of, manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, Propagation, WriteOptions
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import AlreadyExists, ApiError, Conflict, NotFound
from clusterspace.fleet.execution.takeover import (
    FIELD_MANAGER,
    is_managed,
    managers_at,
    without_stamps,
)
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    resource_version_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time

_log = structlog.get_logger(__name__)

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")

MOST_NOTES: Final = 1000
"""Some 120 kB. The oldest go first: what they would have explained is kept, as without a note."""

LATE_WRITE: Final = "LateWriteRemoved"
"""Reason of the event on a Cluster: an object was removed that came after its Work had gone."""

_KEY: Final = "withdrawn"
_NAMESPACES: Final = (CLUSTER_NAMESPACE, SYSTEM_NAMESPACE, "kube-system")
"""Where the notes are: in the first of these that the member has. The last is everywhere."""

_AS_US: Final = WriteOptions(field_manager=FIELD_MANAGER)
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """An object that a Work had on the member, and was to have no longer."""

    work_id: str
    path: ResourcePath

    @property
    def text(self) -> str:
        """The object in a line of the notes."""
        version = self.path.resource.group_version
        return f"{self.work_id} {version}/{self.path.resource.resource} {self.path.key}"


def read_note(line: str) -> Withdrawn | None:
    """Read a line of the notes; None when it is none."""
    words = line.split(" ")
    if len(words) != 4:
        return None
    _, work_id, resource, key = words
    version, _, plural = resource.rpartition("/")
    if not (work_id and version and plural and key):
        return None
    group, _, version = version.rpartition("/")
    return Withdrawn(work_id, ResourcePath(GroupVersionResource(group, version, plural)).at(key))


class WithdrawnObjects:
    """The notes of one member: read once, then written by whoever withdraws something."""

    # Many workers note at once, and one of them writes for all who wait: `_writing` is that turn.
    # Invariant: `_lines` has everything that `_unwritten` has, from the moment `note` is called.
    # So an object that appears while its note is being written is recognized already.

    def __init__(self, member: Client, cluster_name: str, clock: Clock) -> None:
        self._member = member
        self._name = WITHDRAWN_PREFIX + cluster_name
        self._clock = clock
        self._lines: dict[Withdrawn, str] = {}
        self._unwritten: set[Withdrawn] = set()
        self._is_read = False
        self._writing = asyncio.Lock()

    def __contains__(self, withdrawn: Withdrawn) -> bool:
        return withdrawn in self._lines

    async def read(self) -> frozenset[GroupVersionResource]:
        """Read what was noted before our time; return the resources that are mentioned."""
        async with self._writing:
            await self._find()
        return frozenset(each.path.resource for each in self._lines)

    async def note(self, withdrawn: Iterable[Withdrawn]) -> None:
        """Note what is withdrawn, before anybody looks whether it is there."""
        moment = format_time(self._clock.now())
        new = [each for each in withdrawn if each not in self._lines or each in self._unwritten]
        for each in new:
            self._lines[each] = f"{moment} {each.text}"
            self._unwritten.add(each)
        async with self._writing:
            if any(each in self._unwritten for each in new):
                await self._write()

    async def _find(self) -> Object | None:
        """Return the notes as they are on the member, and take them in."""
        for namespace in _NAMESPACES:
            found = await self._member.find(ResourcePath(CONFIG_MAPS, namespace, self._name))
            if found is None:
                continue
            lines = str(find_at(found, "data", _KEY) or "").splitlines()
            known = {note: line for line in lines if (note := read_note(line)) is not None}
            self._lines = {**known, **self._lines}
            self._is_read = True
            return found
        self._is_read = True
        return None

    async def _write(self) -> None:
        written = frozenset(self._unwritten)
        try:
            for _ in range(_ROUNDS):
                # Another process may write, too, until it knows that it leads no longer. The
                # member refuses one of the two, who then takes in the other's lines.
                with suppress(Conflict, AlreadyExists):
                    await self._write_once(await self._find())
                    self._unwritten -= written
                    return
            raise Conflict(f"ConfigMap {self._name} changed too often to be written")
        except Conflict:
            raise
        except ApiError as error:
            # A member that does not let us note has its objects withdrawn all the same: the note
            # is for what may come later, and without it that is kept.
            _log.warning("withdrawal not noted", config_map=self._name, reason=str(error))
            self._unwritten -= written

    async def _write_once(self, existing: Object | None) -> None:
        for each in list(self._lines)[: max(0, len(self._lines) - MOST_NOTES)]:
            del self._lines[each]
        text = "".join(f"{line}\n" for line in self._lines.values())
        if existing is not None:
            namespace = str(find_at(existing, "metadata", "namespace"))
            path = ResourcePath(CONFIG_MAPS, namespace, self._name)
            await self._member.update(path, with_value(existing, text, "data", _KEY), _AS_US)
            return
        for namespace in _NAMESPACES:
            path = ResourcePath(CONFIG_MAPS, namespace, self._name)
            body: Object = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self._name, "namespace": namespace},
                "data": {_KEY: text},
            }
            try:
                await self._member.create(path.collection, body, _AS_US)
            except NotFound:
                if namespace == _NAMESPACES[-1]:
                    raise
                continue  # it has no such namespace
            return


class LateWrites:
    """Removes from one member what appeared there after it was withdrawn."""

    def __init__(
        self,
        hub: Client,
        member: Client,
        cluster_name: str,
        notes: WithdrawnObjects,
        events: EventRecorder,
        enqueue: Callable[[str], None],
    ) -> None:
        self._hub = hub
        self._member = member
        self._cluster_name = cluster_name
        self._notes = notes
        self._events = events
        self._enqueue = enqueue
        self._suspects: dict[str, set[ResourcePath]] = {}
        """By Work: what was seen under the ID of a Work from which it was withdrawn."""

    def object_seen(self, path: ResourcePath, work_name: str, work_id: str) -> None:
        """Take in that a member has an object; remember it if it should not."""
        if Withdrawn(work_id, path) in self._notes:
            self._suspects.setdefault(work_name, set()).add(path)
            self._enqueue(work_name)

    async def remove(self, work_name: str, cached: Object | None) -> None:
        """Remove what was seen too late of a Work; nothing while that Work is on its way out."""
        if cached is not None and is_being_deleted(cached):
            return  # what is withdrawn may be there still; we come again when the Work is gone
        # A suspect is dropped only when it was judged: what cannot be looked at now, because hub or
        # member do not answer, raises, and the Work's name is tried again.
        for path in tuple(self._suspects.get(work_name, ())):
            if await self._is_judged(path, work_name):
                suspects = self._suspects[work_name]
                suspects.discard(path)
                if not suspects:
                    del self._suspects[work_name]

    async def _is_judged(self, path: ResourcePath, work_name: str) -> bool:
        """Look at an object, its Work and its Cluster, live, and remove it if nothing explains it.

        Returns False when that has to wait.
        """
        live = await self._member.find(path)
        if live is None or is_being_deleted(live) or not self._is_late(path, live):
            return True
        work = await self._hub.find(
            ResourcePath(WORKS, execution_namespace(self._cluster_name), work_name)
        )
        if work is not None and is_being_deleted(work):
            return False
        if work is not None and _lists(work, live):
            return True
        cluster = await self._hub.find(ResourcePath(CLUSTERS, name=self._cluster_name))
        if cluster is None or (is_being_deleted(cluster) and keeps_on_leave(cluster)):
            return True
        # By UID and version: the Work may have been made anew since we looked, and have taken the
        # object over. Then the member refuses this, and all is looked at again.
        options = DeleteOptions(
            uid_of(live), resource_version_of(live), propagation=Propagation.BACKGROUND
        )
        is_made_by_us = _is_made_by_us(live)
        with suppress(NotFound):
            if is_made_by_us:
                await self._member.delete(path, options)
            else:
                await self._member.update(path, without_stamps(live), _AS_US)
        message = (
            f"{path} (uid {uid_of(live)}) was written after Work {work_name} had been withdrawn,"
            f" by a request that came too late: it {'is removed' if is_made_by_us else 'is let go'}"
        )
        self._events.record(cluster, LATE_WRITE, message, is_warning=True)
        _log.warning("late write undone", cluster=self._cluster_name, object=str(path))
        return True

    def _is_late(self, path: ResourcePath, live: Object) -> bool:
        """Whether an object bears a withdrawn Work's ID, and was put there by us."""
        # Somebody who copies an object of ours, stamps and all, is its manager then, and not us.
        managed = ("f:metadata", "f:labels", f"f:{stamps.MANAGED}")
        return (
            is_managed(live)
            and Withdrawn(labels_of(live).get(stamps.WORK_ID, ""), path) in self._notes
            and managers_at(live, managed) == (FIELD_MANAGER,)
        )


def withdrawn_of(work: Object, paths: Sequence[ResourcePath]) -> list[Withdrawn]:
    """Return what is withdrawn with a Work; nothing when it has no ID to know it by."""
    work_id = labels_of(work).get(stamps.WORK_ID)
    return [Withdrawn(work_id, path) for path in paths] if work_id else []


def _is_made_by_us(live: Object) -> bool:
    """Whether the one write by which we own an object is the one that made it.

    An object that was somebody's when a late write took it over is older than that.
    """
    entries: list[Object] = find_at(live, "metadata", "managedFields") or []
    ours = [each.get("time") for each in entries if each.get("manager") == FIELD_MANAGER]
    return ours == [find_at(live, "metadata", "creationTimestamp")]


def _lists(work: Object, live: Object) -> bool:
    """Whether an object is among the manifests of a Work, in whatever version."""
    words = ("group", "kind", "namespace", "name")
    actual = identifier_of(live, 0)
    return any(
        all(identifier_of(each, 0).get(word) == actual.get(word) for word in words)
        for each in manifests_of(work)
    )
