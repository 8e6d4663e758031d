"""The objects of a hub moved from SQLite to etcd, or back; those in etcd backed up and restored.

Every object is copied as it is stored, sealed or not, in the order in which they were created.
Revisions go on far above those of the source, so every client lists again; none goes on from a
history that is not there. The target can be used when all is in it and was read back.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from clusterspace.apiserver.store import backups
from clusterspace.apiserver.store.backups import RESTORE_JUMP
from clusterspace.apiserver.store.encryption import HUB_IDENTITY
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.apiserver.store.etcd.snapshots import EtcdInspection, inspect, read_snapshot
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.files import STORE_FILE_NAME, StoreFile
from clusterspace.apiserver.store.interface import ABSENT, KeyValue, Revision, Store
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.errors import MalformedTimestamp, StoreUnreadable, UnusableConfiguration
from clusterspace.kube.objects import find_at
from clusterspace.kube.times import parse_time
from clusterspace.roots.hub_state import HUB_LEASE

_LEASE_KEY: Final = f"/registry/coordination.k8s.io/leases/{HUB_LEASE.namespace}/{HUB_LEASE.name}"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved, and what it is at its new place."""

    objects: int
    digest: str
    revision: Revision


def digest_of(items: Iterable[KeyValue]) -> str:
    """Return what is the same for two stores exactly when they have the same objects."""
    digest = hashlib.sha256()
    for item in sorted(items, key=lambda each: each.key):
        for part in (item.key.encode(), item.value):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


async def migrate(
    source: str, target: str, etcd: EtcdSettings, now: float, progress: Progress
) -> Moved:
    """Copy everything from one place to another: `sqlite:DIRECTORY` or `etcd:URL,…`.

    `etcd` says how that one is reached. Nothing is changed at the source. StoreUnreadable when a
    hub is at work there, when the target is not empty, or when the copy is not what was copied.
    """
    kinds = source.partition(":")[0], target.partition(":")[0]
    if kinds not in (("sqlite", "etcd"), ("etcd", "sqlite")):
        raise UnusableConfiguration(
            f"from {source} to {target}: it goes from sqlite:DIRECTORY to etcd:URL,… or back"
        )
    place = Path((source if kinds[0] == "sqlite" else target).partition(":")[2])
    servers = (target if kinds[0] == "sqlite" else source).partition(":")[2]
    etcd = replace(etcd, servers=tuple(each for each in servers.split(",") if each))
    file = place / STORE_FILE_NAME
    async with AsyncExitStack() as stack:
        if kinds[0] == "sqlite":
            if not file.is_file():
                raise StoreUnreadable(f"there is no store at {file}")
            origin = await SqliteStore.open(file)  # refused while a hub has it
            stack.push_async_callback(origin.close)
            items = await _objects_of(origin)
            return await _fill_etcd(etcd, items, origin.current_revision, progress)
        if file.exists():
            raise StoreUnreadable(f"{file} is there already and is not overwritten")
        shared = await EtcdStore.open(etcd)
        stack.push_async_callback(shared.close)
        await shared.sync()
        _refuse_working_hub(await shared.get(_LEASE_KEY), now)
        items = await _objects_of(shared)
        revision = Revision(shared.current_revision + RESTORE_JUMP)
        await asyncio.to_thread(place.mkdir, mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{STORE_FILE_NAME}.moving")
        draft.unlink(missing_ok=True)
        lone = await SqliteStore.open(draft)
        try:
            await _fill(lone, items, progress)
            moved = _compared(items, await _objects_of(lone), revision)
        finally:
            await lone.close()
        await shared.sync()
        if digest_of(await _objects_of(shared)) != moved.digest:
            raise StoreUnreadable("somebody wrote to etcd meanwhile: stop every hub, begin again")
        with closing(StoreFile.open(draft, create=False)) as opened:
            ahead_of_all = replace(opened.state, revision=revision, oldest=revision)
            opened.rewrite_state(ahead_of_all)
        # A crash before this line leaves a draft that no hub takes for its store.
        await asyncio.to_thread(_rename, draft, file)
        return moved


async def back_up(etcd: EtcdSettings, target: Path) -> Moved:
    """Write all that hubs have in etcd at one revision to a new file; they may go on meanwhile.

    Values are copied as they are stored, sealed or not. The file appears complete and read back, or
    not at all.
    """
    snapshot = await read_snapshot(etcd)
    await asyncio.to_thread(backups.write_backup, snapshot.items, snapshot.revision, target)
    return Moved(len(snapshot.items), digest_of(snapshot.items), snapshot.revision)


async def restore(backup: Path, etcd: EtcdSettings, progress: Progress) -> Moved:
    """Bring a backup, of whichever store, to an empty prefix of etcd.

    StoreUnreadable where a hub has its objects already, whether it runs or not.
    """
    items, state = await asyncio.to_thread(backups.read_backup, backup)
    in_order = sorted(items, key=lambda item: item.create_revision)
    return await _fill_etcd(etcd, in_order, state.revision, progress)


async def check(etcd: EtcdSettings) -> tuple[EtcdInspection, str]:
    """Verify what hubs have in etcd, member by member; return that and its digest."""
    found = await inspect(etcd)
    return found, digest_of(found.snapshot.items)


async def _fill_etcd(
    etcd: EtcdSettings, items: list[KeyValue], revision: int, progress: Progress
) -> Moved:
    """Put objects that were elsewhere, up to a revision, into an empty prefix of etcd."""
    copy = await EtcdStore.open(etcd, ahead=revision + RESTORE_JUMP)
    try:
        await _fill(copy, items, progress)
        await copy.sync()
        if await copy.verify():
            raise StoreUnreadable("etcd does not have what was written to it: begin again")
        moved = _compared(items, await _everything_in(copy), copy.current_revision)
        # A crash before this line leaves a prefix that no hub opens.
        await copy.finish_filling()
    finally:
        await copy.close()
    return moved


def _rename(draft: Path, file: Path) -> None:
    draft.rename(file)
    for leftover in draft.parent.glob(f"{draft.name}*"):
        leftover.unlink()


async def _everything_in(store: Store) -> list[KeyValue]:
    """Return what is stored, in the order in which it was created."""
    items = (await store.range("/registry/")).items
    return sorted(items, key=lambda item: item.create_revision)


async def _objects_of(store: Store) -> list[KeyValue]:
    # What hubs on one etcd have in common is in the data directory of each: it is no object.
    common = (HUB_IDENTITY, _LEASE_KEY)
    return [item for item in await _everything_in(store) if item.key not in common]


async def _fill(store: Store, items: list[KeyValue], progress: Progress) -> None:
    # One after the other: the order in which they were created is the order of their revisions.
    for number, item in enumerate(items, 1):
        await store.put(item.key, item.value, expected=ABSENT)
        progress(number, len(items))


def _compared(items: list[KeyValue], copied: list[KeyValue], revision: Revision) -> Moved:
    digest = digest_of(items)
    in_order = [item.key for item in copied] == [item.key for item in items]
    if digest_of(copied) != digest or not in_order:
        raise StoreUnreadable("the copy is not what was copied: it is not used, begin again")
    return Moved(len(items), digest, revision)


def _refuse_working_hub(lease: KeyValue | None, now: float) -> None:
    """Refuse while somebody renews the Lease of those who work on the store."""
    found: Any = None if lease is None else msgspec.json.decode(lease.value)
    holder = find_at(found, "spec", "holderIdentity") if found else ""
    if not holder:
        return
    try:
        renewed = parse_time(str(find_at(found, "spec", "renewTime")))
    except MalformedTimestamp:
        return
    lasts = float(find_at(found, "spec", "leaseDurationSeconds") or 15)
    if now < renewed + lasts:
        raise StoreUnreadable(
            f"the hub {holder} is at work on it: stop every hub, and wait {lasts:g} s"
        )
