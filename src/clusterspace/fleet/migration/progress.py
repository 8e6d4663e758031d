"""What the hub keeps of a migration: how far it is, object by object, and how each was before.

    Migration        made first, with the digest of the plan: another plan of its name is refused
    MigrationItems   made next, all of them before the first object is taken
    Secrets          originals of a batch, written before anything of that batch is

Every write names the version it was made from. Of two that go on with one migration, one is told
Conflict and reads anew; whoever is killed leaves what the next one can go on from.
"""

import base64
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Final

import msgspec

from clusterspace.apis import migrations
from clusterspace.apis.migrations import ITEMS, MIGRATIONS, NAME_LABEL, ORIGINALS_NAMESPACE
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, ListOptions, PatchType
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import AlreadyExists, CannotMigrate, NotFound
from clusterspace.fleet.migration.plan import MigrationPlan, PlanItem
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time

CHUNK: Final = 200
MOST_ORIGINAL: Final = 1_000_000
"""Letters of base64 that a Secret of originals may have; a server takes a third more."""

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")


class State(Enum):
    """What became of an object of the plan."""

    PENDING = "Pending"
    TAKING = "Taking"
    """Its original is kept; its template may be on the hub."""
    TAKEN = "Taken"
    SKIPPED = "Skipped"
    """There was nothing to do."""
    REFUSED = "Refused"
    UNDONE = "Undone"


class Phase(Enum):
    """What is done with a migration, or was last."""

    APPLYING = "Applying"
    STOPPED = "Stopped"
    PAUSED = "Paused"
    APPLIED = "Applied"
    UNDOING = "Undoing"
    UNDONE = "Undone"


@dataclass(frozen=True, slots=True)
class Item:
    """An object of the plan, and what became of it."""

    plan: PlanItem
    state: State = State.PENDING
    reason: str = ""
    template_uid: str = ""
    originals: str = ""

    def now(self, state: State, reason: str = "", **fields: str) -> "Item":
        """Return the item in another state."""
        return replace(self, state=state, reason=reason, **fields)


@dataclass
class Chunk:
    """One MigrationItems, as it was last read or written."""

    number: int
    items: list[Item]
    states: list[Object]
    version: str


@dataclass(frozen=True, slots=True)
class Record:
    """A Migration as it is on the hub."""

    name: str
    cluster: str
    cluster_uid: str
    hub_uid: str
    digest: str
    items: int
    chunks: int
    is_paused: bool
    phase: str
    message: str
    counts: Mapping[str, int]
    made_at: str = ""
    source: str = ""


def read_record(migration: Object) -> Record:
    """Read a Migration."""
    status: Object = migration.get("status") or {}
    return Record(
        name=name_of(migration),
        cluster=str(find_at(migration, "spec", "cluster", "name") or ""),
        cluster_uid=str(find_at(migration, "spec", "cluster", "uid") or ""),
        hub_uid=str(find_at(migration, "spec", "hubUID") or ""),
        digest=str(find_at(migration, "spec", "planDigest") or ""),
        items=int(find_at(migration, "spec", "items") or 0),
        chunks=int(find_at(migration, "spec", "chunks") or 0),
        is_paused=find_at(migration, "spec", "paused") is True,
        phase=str(status.get("phase") or "Pending"),
        message=str(status.get("message") or ""),
        counts={each.value: int(status.get(each.value.lower()) or 0) for each in State},
        made_at=str(find_at(migration, "spec", "madeAt") or ""),
        source=str(find_at(migration, "spec", "source") or ""),
    )


class MigrationStore:
    """Reads and writes what the hub keeps of one migration."""

    def __init__(self, hub: Client, name: str) -> None:
        self.hub = hub
        self.name = name
        self.path = ResourcePath(MIGRATIONS, name=name)

    async def record(self) -> Record:
        """Return the Migration; CannotMigrate when there is none of this name."""
        found = await self.hub.find(self.path)
        if found is None:
            raise CannotMigrate(
                f"the hub has no migration {self.name}: `clusterspace migrate status` shows "
                "those there are"
            )
        return read_record(found)

    async def begin(self, plan: MigrationPlan) -> Record:
        """Make the Migration and all its items, or find them as they were made."""
        count, digest = plan.takes, plan.digest
        labels = {NAME_LABEL: plan.name}
        migration: Object = {
            "apiVersion": migrations.API_VERSION,
            "kind": migrations.MIGRATION,
            "metadata": {"name": plan.name, "labels": labels},
            "spec": {
                "cluster": {"name": plan.spec.cluster.name, "uid": plan.spec.cluster.uid},
                "hubUID": plan.spec.hub_uid,
                "planDigest": digest,
                "madeAt": plan.spec.made_at,
                **({"source": plan.spec.source} if plan.spec.source else {}),
                "items": count,
                "chunks": -(-count // CHUNK),
            },
        }
        with suppress(AlreadyExists):
            await self.hub.create(self.path.collection, migration)
        record = await self.record()
        if record.digest != digest:
            raise CannotMigrate(
                f"migration {plan.name} was begun with another plan: go on with that by "
                f"`clusterspace migrate apply {plan.name}`, or plan anew under another name"
            )
        # A crash from here on leaves some chunks missing. Whoever has the file makes them.
        taken = plan.taken
        for number in range(record.chunks):
            part = list(islice(taken, CHUNK))
            document: Object = {
                "apiVersion": migrations.API_VERSION,
                "kind": migrations.MIGRATION_ITEMS,
                "metadata": {"name": migrations.items_name(plan.name, number), "labels": labels},
                "spec": {"items": msgspec.to_builtins(part)},
            }
            with suppress(AlreadyExists):
                await self.hub.create(ResourcePath(ITEMS), document)
        return record

    async def chunks(self, record: Record) -> AsyncGenerator[Chunk]:
        """Read all parts, one after the other: no two have to be in memory."""
        for number in range(record.chunks):
            yield await self.chunk(number)

    async def chunk(self, number: int) -> Chunk:
        """Read a part of the items."""
        path = ResourcePath(ITEMS, name=migrations.items_name(self.name, number))
        stored = await self.hub.find(path)
        if stored is None:
            raise CannotMigrate(
                f"migration {self.name} was not begun to the end: {path} is missing; apply the "
                "file of the plan again"
            )
        try:
            planned = msgspec.convert(find_at(stored, "spec", "items"), list[PlanItem])
        except msgspec.ValidationError as error:
            raise CannotMigrate(f"{path} cannot be read: {error}") from error
        states: list[Object] = find_at(stored, "status", "items") or []
        items: list[Item] = []
        for index, each in enumerate(planned):
            said = states[index] if index < len(states) else {}
            items.append(
                Item(
                    each,
                    State(said.get("state") or State.PENDING.value),
                    str(said.get("reason") or ""),
                    str(said.get("templateUID") or ""),
                    str(said.get("originals") or ""),
                )
            )
        return Chunk(number, items, states, resource_version_of(stored))

    async def write(self, chunk: Chunk) -> None:
        """Write what became of the items; Conflict when somebody else did so meanwhile."""
        states = [
            {
                key: value
                for key, value in {
                    "state": each.state.value,
                    "reason": each.reason,
                    "templateUID": each.template_uid,
                    "originals": each.originals,
                }.items()
                if value
            }
            for each in chunk.items
        ]
        if states == chunk.states:
            return
        path = ResourcePath(ITEMS, name=migrations.items_name(self.name, chunk.number))
        patch = {"metadata": {"resourceVersion": chunk.version}, "status": {"items": states}}
        written = await self.hub.patch(path, PatchType.MERGE, patch)
        chunk.states, chunk.version = states, resource_version_of(written)

    async def tell(
        self, phase: Phase, counts: Counter[State], now: float, message: str = ""
    ) -> None:
        """Say how far it is, in the status of the Migration."""
        status: Object = {
            "phase": phase.value,
            "updatedAt": format_time(now),
            **{each.value.lower(): counts[each] for each in State},
        }
        if message:
            status["message"] = message[:1000]
        await commit_change(self.hub, self.path, lambda found: {**found, "status": status})

    # -- originals --------------------------------------------------------------------------------

    async def keep(self, name: str, originals: Iterable[Object]) -> dict[str, str]:
        """Keep objects as they are, in Secrets: encryption at rest covers them, whatever they are.

        Returns the names of the Secrets by the UIDs of the objects; one that is too large for a
        Secret of its own is not among them.
        """
        kept: dict[str, str] = {}
        packed: dict[str, str] = {}
        size = 0
        for each in originals:
            text = base64.b64encode(zlib.compress(msgspec.json.encode(each))).decode()
            if len(text) > MOST_ORIGINAL:
                continue
            if size + len(text) > MOST_ORIGINAL:
                await self._keep_packed(name, packed)
                name, packed, size = f"{name}x", {}, 0
            packed[uid_of(each)], kept[uid_of(each)] = text, name
            size += len(text)
        if packed:
            await self._keep_packed(name, packed)
        return kept

    async def _keep_packed(self, name: str, packed: Mapping[str, str]) -> None:
        document: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": ORIGINALS_NAMESPACE,
                "labels": {NAME_LABEL: self.name},
            },
            "type": migrations.ORIGINALS_TYPE,
            "data": packed,
        }
        path = ResourcePath(SECRETS, ORIGINALS_NAMESPACE)
        try:
            await self.hub.create(path, document)
        except NotFound:
            own: Object = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": ORIGINALS_NAMESPACE},
            }
            with suppress(AlreadyExists):
                await self.hub.create(ResourcePath(NAMESPACES), own)
            await self._keep_packed(name, packed)
        except AlreadyExists:
            # Left from an attempt that was killed before it took anything with it.
            present = await self.hub.get(path.named(name))
            replaced = {**document, "metadata": metadata_of(present)}
            await self.hub.update(path.named(name), replaced)

    async def original(self, item: Item) -> Object | None:
        """Return an object as it was before it was taken; None when that was not kept."""
        if not item.originals:
            return None
        found = await self.hub.find(ResourcePath(SECRETS, ORIGINALS_NAMESPACE, item.originals))
        packed = find_at(found, "data", item.plan.uid)
        if not isinstance(packed, str):
            return None
        decoded: Object = msgspec.json.decode(zlib.decompress(base64.b64decode(packed)))
        return decoded

    async def forget(self) -> None:
        """Delete all that is kept; the Migration goes last, so that this can be repeated."""
        mine = ListOptions(label_selector=f"{NAME_LABEL}={self.name}")
        for path in (ResourcePath(SECRETS, ORIGINALS_NAMESPACE), ResourcePath(ITEMS)):
            for each in await self.hub.list_objects(path, mine):
                with suppress(NotFound):
                    await self.hub.delete(path.named(name_of(each)), DeleteOptions(uid_of(each)))
        found = await self.hub.find(self.path)
        if found is not None:
            with suppress(NotFound):
                await self.hub.delete(self.path, DeleteOptions(uid_of(found)))


class Tally:
    """How many items of a migration are in which state, of which one chunk is at hand at a time."""

    def __init__(self) -> None:
        self._chunks: dict[int, Counter[State]] = {}

    def note(self, chunk: Chunk) -> None:
        """Count a chunk as it is now."""
        self._chunks[chunk.number] = count_states((chunk,))

    @property
    def counts(self) -> Counter[State]:
        """What all chunks come to."""
        return sum(self._chunks.values(), Counter[State]())

    def has(self, number: int, *states: State) -> bool:
        """Whether a chunk has items in one of these states."""
        return any(self._chunks[number][each] for each in states)


def count_states(chunks: Iterable[Chunk]) -> Counter[State]:
    """Return how many items are in which state."""
    return Counter(item.state for chunk in chunks for item in chunk.items)
