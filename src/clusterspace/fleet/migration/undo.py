"""A migration taken back: the member's objects without our marks, the hub without its templates.

    template deleted, by UID ──> binding and Work go, the member keeps its object ──> Undone

In the opposite order: what others need goes last. Nothing is deleted on the member: before a
template goes, its binding and its Work are looked at, and must say that the member keeps what it
has. Where they do not, because somebody changed the policy, nothing is done and the place is named.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.works import clusters_of, name_for, preserves_resources, resource_for
from clusterspace.client.discovery import ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, ListOptions, Propagation
from clusterspace.errors import (
    CannotMigrate,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
)
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.apply import (
    CarriedItems,
    Progress,
    all_of,
    is_of,
    write_selectors,
)
from clusterspace.fleet.migration.groups import policy_paths
from clusterspace.fleet.migration.plan import PlanItem
from clusterspace.fleet.migration.progress import (
    Chunk,
    Item,
    MigrationStore,
    Phase,
    Record,
    State,
    Tally,
)
from clusterspace.fleet.migration.selection import DEFINITION, NAMESPACE
from clusterspace.fleet.migration.waiting import FIRST_LOOK, Waiting
from clusterspace.fleet.propagation.templates import is_template
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource

_ROUNDS: Final = 5
_HEARTBEATS: Final = ("events", "leases")


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """How a migration is taken back."""

    at_once: int = 20
    only: str = ""
    """One object, as people call it: `Deployment shop/web`; all of them when empty."""
    restores: bool = False
    """Whether the member's objects become again what they were, instead of what they are now."""
    patience: float = 120.0


class Undoing:
    """Takes one migration back, or one object of it, from wherever it stands."""

    def __init__(
        self,
        store: MigrationStore,
        member: Client,
        hub_serves: ServedResources,
        options: UndoOptions,
        clock: Clock,
        progress: Progress = lambda _counts, _total: None,
    ) -> None:
        self._store = store
        self._hub = store.hub
        self._member = member
        self._hub_serves = hub_serves
        self._options = options
        self._clock = clock
        self._progress = progress
        self._waiting = Waiting(clock, options.patience)
        self._tally = Tally()
        self._carried = CarriedItems()
        self._kept_in: set[str] = set()
        """Namespaces of which something stays on the hub."""
        self._cluster = ""

    async def run(self) -> Counter[State]:
        """Give back what was taken; CannotMigrate names what cannot be, after all else was."""
        record = await self._store.record()
        try:
            return await self._run(record)
        except (ClusterError, Forbidden) as error:
            undone = self._tally.counts[State.UNDONE]
            raise CannotMigrate(
                f"{error}; {undone} of {record.items} are given back, and nothing is lost: "
                f"`clusterspace migrate undo {record.name}` goes on"
            ) from error

    async def _run(self, record: Record) -> Counter[State]:
        self._cluster = record.cluster
        only = self._options.only
        is_there = not only
        with_namespaces: list[int] = []
        async for chunk in self._store.chunks(record):
            self._tally.note(chunk)
            self._carried.note(chunk)
            is_there |= any(self._is_meant(each) for each in chunk.items)
            if any(_is_namespace(each.plan) for each in chunk.items):
                with_namespaces.append(chunk.number)
        if not is_there:
            raise CannotMigrate(
                f"migration {record.name} has no {only}: `clusterspace migrate status "
                f"{record.name} -o yaml` shows what it has"
            )
        if not only:
            # From here on nobody takes anything further for this migration.
            await self._tell(Phase.UNDOING)
        for number in reversed(range(record.chunks)):
            chunk = await self._store.chunk(number)
            for batch in self._batches(chunk):
                results = await all_of(self._give_back(chunk.items[each]) for each in batch)
                for index, item in zip(batch, results, strict=True):
                    chunk.items[index] = item
                # A crash before this write leaves items that are Taken and have no template: the
                # next one finds nothing to give back, and says so.
                await self._store.write(chunk)
                self._tally.note(chunk)
                self._carried.drop_lost(chunk, batch)
                self._progress(self._tally.counts, record.items)
            self._kept_in |= {each.plan.namespace for each in chunk.items if _is_kept(each)}
        for path in self._carried.policies:
            # Those that name nothing any more go.
            for place in policy_paths(path):
                named = self._carried.by(path)
                await write_selectors(self._hub, place, self._store.name, named)
        for number in reversed(with_namespaces):
            chunk = await self._store.chunk(number)
            await self._give_back_namespaces(chunk)
            self._tally.note(chunk)
        last, count = await self._what_stays(record)
        if not only:
            reason = "" if last is None else last.reason
            await self._tell(Phase.UNDOING if last else Phase.UNDONE, reason)
        if last is not None:
            # The last of the plan was tried first; what others need often stays because they do.
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise CannotMigrate(f"{last.plan.title}{more} stays on the hub: {last.reason}")
        return self._tally.counts

    async def _what_stays(self, record: Record) -> tuple[Item | None, int]:
        """Return the last of the items that were not given back, of those meant, and how many."""
        last, count = None, 0
        async for chunk in self._store.chunks(record):
            for item in chunk.items:
                if _is_kept(item) and self._is_meant(item):
                    last, count = item, count + 1
        return last, count

    def _is_meant(self, item: Item) -> bool:
        kind, _, key = self._options.only.partition(" ")
        planned = item.plan
        return not kind or (planned.kind.lower(), planned.path.key) == (kind.lower(), key)

    async def _tell(self, phase: Phase, message: str = "") -> None:
        await self._store.tell(phase, self._tally.counts, self._clock.now(), message)

    def _batches(self, chunk: Chunk) -> list[list[int]]:
        """Return what is to be given back of a chunk, the last first, some at a time."""
        batches: list[list[int]] = []
        for index in reversed(range(len(chunk.items))):
            item = chunk.items[index]
            if not self._is_meant(item) or item.state is State.UNDONE or _is_namespace(item.plan):
                continue
            last = batches[-1] if batches else []
            is_full = len(last) >= self._options.at_once
            if not last or is_full or chunk.items[last[0]].plan.rank != item.plan.rank:
                batches.append([])
            batches[-1].append(index)
        return batches

    async def _give_back(self, item: Item) -> Item:
        """Give back one object; an item that is not Undone afterwards says why."""
        if item.state not in (State.TAKING, State.TAKEN):
            return item.now(State.UNDONE, item.reason)
        planned = item.plan
        try:
            template = await self._hub.find(planned.path)
        except NotServed:
            template = None
        if template is not None and is_of(template, self._store.name):
            if why := await self._why_it_stays(planned, template):
                return item.now(item.state, why)
            with suppress(NotFound):
                options = DeleteOptions(uid_of(template), propagation=Propagation.BACKGROUND)
                await self._hub.delete(planned.path, options)
        if why := await self._until_released(planned):
            return item.now(item.state, why)
        await self._clean(item)
        return item.now(State.UNDONE)

    async def _why_it_stays(self, planned: PlanItem, template: Object) -> str:
        """Return why a template may not be deleted; empty when the member surely keeps its own."""
        home, name = self._cluster, self._store.name
        cure = f"`clusterspace migrate move {name} --to {home}`"
        if why := await why_kept(self._hub, planned.path, template, (home,), cure):
            return why
        if planned.group_version_kind.group_kind == DEFINITION and not is_being_deleted(template):
            return await self._objects_of(template)
        return ""

    async def _objects_of(self, definition: Object) -> str:
        """Return why a definition stays on the hub: objects of it are there, and would go along."""
        versions: list[Object] = find_at(definition, "spec", "versions") or []
        served = next((str(each.get("name")) for each in versions if each.get("served")), "")
        resource = GroupVersionResource(
            str(find_at(definition, "spec", "group")),
            served,
            str(find_at(definition, "spec", "names", "plural")),
        )
        with suppress(NotServed, NotFound):
            found = await self._hub.list_objects(ResourcePath(resource), ListOptions(limit=500))
            if found:
                return f"the hub has {len(found)} objects of it, such as {name_of(found[0])}"
        return ""

    async def _until_released(self, planned: PlanItem) -> str:
        """Wait until hub and member have let go of an object; return why they have not."""

        async def released() -> bool | None:
            work = await self._hub.find(work_path(planned.kind, planned.path, self._cluster))
            if work is not None and _is_for(work, planned):
                return None
            live = await self._member.find(planned.path)
            is_ours = live is not None and is_managed(live) and is_of(live, self._store.name)
            return None if is_ours else True

        if await self._waiting.until_seen(released):
            return ""
        return "its Work was not withdrawn in time; does the cluster answer?"

    async def _clean(self, item: Item) -> None:
        """Take off what stamps do not cover, or put back the original, if that is asked for."""
        planned = item.plan
        original = await self._store.original(item)
        if original is None or not (self._options.restores or planned.retains_replicas):
            return
        for _ in range(_ROUNDS):
            live = await self._member.find(planned.path)
            if live is None or uid_of(live) != planned.uid or is_managed(live):
                return
            if self._options.restores:
                content = {k: v for k, v in original.items() if k not in ("metadata", "status")}
                status = {"status": live["status"]} if "status" in live else {}
                desired = with_metadata(
                    {**content, "metadata": live["metadata"], **status},
                    labels=dict(labels_of(original)) or None,
                    annotations=dict(annotations_of(original)) or None,
                )
            else:
                labels = dict(labels_of(live))
                if stamps.RETAIN_REPLICAS not in labels_of(original):
                    labels.pop(stamps.RETAIN_REPLICAS, None)
                desired = with_metadata(live, labels=labels or None)
            if desired == live:
                return
            with suppress(Conflict):
                await self._member.update(planned.path, desired)
                return
        raise CannotMigrate(f"somebody changes {planned.title} without a pause; undo it again")

    async def _give_back_namespaces(self, chunk: Chunk) -> None:
        """Delete the namespaces that were made on the hub and in which nothing is left.

        Deleting a namespace deletes what is in it. So all of it is looked at, and what cannot be
        looked at counts as something.
        """
        for index, item in enumerate(chunk.items):
            is_over = item.state is State.UNDONE
            if not self._is_meant(item) or not _is_namespace(item.plan) or is_over:
                continue
            namespace = await self._hub.find(item.plan.path)
            is_ours = namespace is not None and is_of(namespace, self._store.name)
            if namespace is None or not is_ours or item.state is State.SKIPPED:
                chunk.items[index] = item.now(State.UNDONE, item.reason)
            elif item.plan.name in self._kept_in:
                chunk.items[index] = item.now(State.TAKEN, "what is in it stays on the hub")
            elif why := await self._contents_of(item.plan.name):
                chunk.items[index] = item.now(State.UNDONE, f"it stays on the hub: {why}")
            else:
                with suppress(NotFound):
                    await self._hub.delete(item.plan.path, DeleteOptions(uid_of(namespace)))
                await self._until_gone(item.plan.path, uid_of(namespace))
                chunk.items[index] = item.now(State.UNDONE)
        await self._store.write(chunk)

    async def _until_gone(self, path: ResourcePath, uid: str) -> None:
        """Wait until an object of the hub is gone: a namespace takes a while to be emptied."""

        async def gone() -> bool | None:
            found = await self._hub.find(path)
            return True if found is None or uid_of(found) != uid else None

        await Waiting(self._clock, self._options.patience).until_seen(gone)

    async def _contents_of(self, namespace: str) -> str:
        """Return what is in a namespace of the hub, besides what every namespace has."""
        deadline = self._clock.monotonic() + self._options.patience
        for resource in self._hub_serves.resources:
            is_listed = resource.namespaced and "list" in resource.verbs
            if not is_listed or resource.plural in _HEARTBEATS:
                continue
            place = ResourcePath(resource.group_version_resource, namespace)
            while True:
                try:
                    found = await self._hub.list_objects(place)
                except (NotFound, NotServed):
                    break  # the kind went with its definition
                there = [each for each in found if is_template(each)]
                # What is on its way out is waited for: bindings and policies go a moment later.
                if not all(is_being_deleted(each) for each in there):
                    return f"{resource.kind} {name_of(there[0])} is in it"
                if not there:
                    break
                if self._clock.monotonic() > deadline:
                    return f"{resource.kind} {name_of(there[0])} does not go"
                await self._clock.sleep(FIRST_LOOK)
        return ""


def work_path(kind: str, path: ResourcePath, cluster: str) -> ResourcePath:
    """Return where the Work of an object is, on this hub or on another: the names are the same."""
    name = stamps.work_name(kind, path.namespace, path.name)
    return ResourcePath(WORKS, execution_namespace(cluster), name)


async def why_kept(
    hub: Client, path: ResourcePath, template: Object, clusters: Sequence[str], cure: str = ""
) -> str:
    """Return why a template may not be deleted; empty when members surely keep their objects.

    `clusters` are those it may be on: given back is what is where it came from, and nowhere else.
    `cure` says how it gets there.
    """
    place = ResourcePath(resource_for(path.namespace), path.namespace, name_for(template))
    binding, kind = await hub.find(place), str(template.get("kind"))
    for each in (binding, *[await hub.find(work_path(kind, path, name)) for name in clusters]):
        if each is not None and not preserves_resources(each):
            return (
                f"{each.get('kind')} {name_of(each)} says that members lose it with the "
                "template: set preserveResourcesOnDeletion in its policy first"
            )
    elsewhere = [each.name for each in clusters_of(binding or {}) if each.name not in clusters]
    if elsewhere:
        back = cure or f"change its policy back to {', '.join(clusters)} alone"
        return f"it is on {', '.join(elsewhere)} as well: {back} first"
    return ""


def _is_namespace(planned: PlanItem) -> bool:
    return planned.group_version_kind.group_kind == NAMESPACE


def _is_for(work: Object, planned: PlanItem) -> bool:
    """Whether a Work holds this object; its name does not tell groups of kinds apart."""
    manifests: list[Object] = find_at(work, "spec", "workload", "manifests") or []
    return any(
        (each.get("kind"), name_of(each)) == (planned.kind, planned.name) for each in manifests
    )


def _is_kept(item: Item) -> bool:
    return item.state in (State.TAKING, State.TAKEN)
