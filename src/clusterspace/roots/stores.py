"""The store of a hub: opened with its keys, given other keys while it runs, rewritten on demand."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.store.compaction import CompactionPolicy, compact_forever
from clusterspace.apiserver.store.encryption import (
    HUB_IDENTITY,
    EncryptedStore,
    Encryption,
    read_encryption,
)
from clusterspace.apiserver.store.etcd.compaction import Compactor, OwnPast
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.interface import ABSENT, Store
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import (
    Conflict,
    NotFound,
    NotServed,
    RevisionMismatch,
    StoreUnreadable,
)
from clusterspace.roots.clients import open_client
from clusterspace.roots.config_files import LOOK_SECONDS, follow_file, read_document
from clusterspace.roots.installation import IDENTITY_FILES, PUBLIC_FILES, Installation
from clusterspace.roots.settings import HubSettings

_log = structlog.get_logger(__name__)


OpenedStore: TypeAlias = MemoryStore | SqliteStore | EtcdStore | EncryptedStore


async def open_store(settings: HubSettings) -> OpenedStore:
    """Open the store the settings name, with the keys they name.

    StoreUnreadable when something in it is encrypted that these keys do not open.
    """
    encryption = load_encryption(settings.encryption_file)
    store: MemoryStore | SqliteStore | EtcdStore = MemoryStore()
    if settings.etcd is not None:
        store = await EtcdStore.open(settings.etcd)
    elif settings.store != "memory":
        installation = Installation(settings.data_dir)
        installation.refuse_emptied()
        store = await SqliteStore.open(installation.store_file)
    try:
        encrypted = await EncryptedStore.over(store, encryption)
    except BaseException:
        await store.close()
        raise
    # Without keys nothing is encrypted, as was just seen: then there is nothing to open either.
    return store if settings.encryption_file is None else encrypted


def store_tasks(store: OpenedStore, clock: Clock) -> Tasks:
    """Return what a store needs done while it is open: its past forgotten, and compared."""
    inner = store.inner if isinstance(store, EncryptedStore) else store
    policy = CompactionPolicy()
    if not isinstance(inner, EtcdStore):
        return {"compaction": lambda: compact_forever(store, clock, policy)}
    compactor = Compactor(inner.client)
    return {
        "compaction": lambda: compact_forever(OwnPast(inner), clock, policy),
        "compaction of etcd": lambda: compactor.run(clock),
        "comparison with etcd": inner.verify_forever,
    }


_IDENTITY_SECONDS: Final = 1.0

# -- what makes several hubs one -------------------------------------------------------------------


async def share_identity(store: Store, installation: Installation, now: float) -> None:
    """Have the authority and the signing key that all hubs on this store have.

    The first hub notes its own, the others take them from there; private keys are noted only where
    the store encrypts them. StoreUnreadable when this data directory belongs to other hubs, or has
    to be given the keys by hand.
    """
    if not store.is_shared:
        return
    is_sealed = isinstance(store, EncryptedStore) and store.seals(HUB_IDENTITY)
    await store.sync()
    while True:
        entry = await store.get(HUB_IDENTITY)
        if entry is None:
            expected = ABSENT
        else:
            noted = {
                name: content.encode()
                for name, content in _identity_decoder.decode(entry.value).files.items()
            }
            installation.take_identity(noted)
            if set(noted) >= set(IDENTITY_FILES) or not is_sealed:
                await _seal_identity_anew(store)
                return
            expected = entry.mod_revision
        record = _Identity(_noted_files(installation, now, is_sealed=is_sealed))
        with suppress(RevisionMismatch):  # another hub was quicker, and that one's count
            await store.put(HUB_IDENTITY, msgspec.json.encode(record), expected=expected)


def _noted_files(installation: Installation, now: float, *, is_sealed: bool) -> dict[str, str]:
    """Return the files of a hub that others on its store get to know.

    Without encryption only what everybody may know: it is enough to notice a stranger.
    """
    if is_sealed and not installation.authority_file.exists():
        # Hubs that start together for the first time all get here, and one of them is quicker. So
        # nothing is kept of a new identity before the store has it: what is on the disk of the
        # others, or of one that is killed right here, would make strangers of them for good.
        with TemporaryDirectory() as scratch:
            files = Installation(Path(scratch)).identity(now)
    else:
        files = installation.identity(now)
    shown = files if is_sealed else {name: files[name] for name in PUBLIC_FILES}
    return {name: content.decode() for name, content in shown.items()}


async def _seal_identity_anew(store: Store) -> None:
    """Seal what hubs have in common with the first key there is now.

    No request writes it, so `store rewrite` cannot: an old key would never be needless.
    """
    entry = await store.get(HUB_IDENTITY) if store.is_shared else None
    if entry is not None and await store.is_stale(HUB_IDENTITY):
        with suppress(RevisionMismatch):  # another hub was quicker, and has the same keys
            await store.put(HUB_IDENTITY, entry.value, expected=entry.mod_revision)


def hub_store_tasks(
    settings: HubSettings, store: OpenedStore, installation: Installation, clock: Clock
) -> Tasks:
    """Return all that a hub does for its store: its past, its keys, what hubs have in common."""
    return {
        **store_tasks(store, clock),
        **identity_tasks(store, installation, clock),
        **encryption_tasks(settings.encryption_file, store, clock),
    }


def identity_tasks(store: Store, installation: Installation, clock: Clock) -> Tasks:
    """Return the task that keeps what hubs have in common the same while it changes.

    Where `certs rotate` runs, files change and are noted; the other hubs take over what is noted.
    """
    if not store.is_shared:
        return {}
    is_sealed = isinstance(store, EncryptedStore) and store.seals(HUB_IDENTITY)

    def own_files() -> dict[str, str]:
        return _noted_files(installation, clock.now(), is_sealed=is_sealed)

    async def follow() -> None:
        agreed, known = own_files(), installation.key_files()
        while True:
            await clock.sleep(_IDENTITY_SECONDS)
            entry = await store.get(HUB_IDENTITY)
            if entry is None:
                continue
            noted = _identity_decoder.decode(entry.value).files
            if noted != agreed:
                # Whoever noted it was quicker, should we have changed as well: each step of a
                # rotation waits for this hub, so that there is one who changes.
                try:
                    installation.take_identity({k: v.encode() for k, v in noted.items()})
                except (StoreUnreadable, OSError) as error:
                    _log.error("the identity of the hubs is not taken over", reason=str(error))
                    continue
                agreed, known = noted, installation.key_files()
            elif installation.key_files() != known:
                found, files = installation.key_files(), own_files()
                with suppress(RevisionMismatch):
                    body = msgspec.json.encode(_Identity(files))
                    await store.put(HUB_IDENTITY, body, expected=entry.mod_revision)
                    agreed, known = files, found

    return {"identity of the hubs": follow}


class _Identity(msgspec.Struct):
    files: dict[str, str]
    metadata: dict[str, str] = {}  # whoever looks through all that is stored finds an object


_identity_decoder: Final = msgspec.json.Decoder(_Identity)


def load_encryption(file: Path | None) -> Encryption:
    """Read an EncryptionConfiguration; without a file nothing is encrypted."""
    return Encryption() if file is None else read_document(file, read_encryption)


def encryption_tasks(file: Path | None, store: Store, clock: Clock) -> Tasks:
    """Return the tasks that take other keys: of the file when it changes, of services by asking."""
    if file is None or not isinstance(store, EncryptedStore):
        return {}

    async def take() -> None:
        await store.replace_keys(load_encryption(file))
        await _seal_identity_anew(store)

    return {
        "encryption keys": lambda: follow_file(file, clock, take, "encryption keys"),
        "key management": lambda: follow_services(store, clock),
    }


async def follow_services(store: EncryptedStore, clock: Clock) -> None:
    """Ask key management services for another key over and over, until cancelled."""
    trouble = ""
    while True:
        await clock.sleep(LOOK_SECONDS)
        try:
            if await store.refresh_keys():
                _log.info("a key management service has another key, which is used from now on")
            trouble = ""
        except StoreUnreadable as error:
            if str(error) != trouble:
                # What there is can be read and written on: the keys for it are in memory.
                _log.warning("encryption keys are not asked for", reason=str(error))
            trouble = str(error)


async def rewrite(
    hub: ConnectionSettings, resources: Iterable[str], progress: Callable[[str, int, int], None]
) -> None:
    """Write every object of these resources once more, as it is: the hub encrypts it anew.

    `progress` is told the resource, how many are done and how many there are. NotServed when the
    hub has no such resource.
    """
    async with open_client(hub) as client:
        served = await Discovery(client.connection).served()
        known = {str(each.group_resource): each for each in reversed(served.resources)}
        for name in resources:
            info = known.get(name)
            if info is None:
                raise NotServed(
                    f"the hub serves no {name}; `kubectl api-resources` says what it does"
                )
            collection = ResourcePath(info.group_version_resource)
            objects = await client.list_objects(collection)
            progress(name, 0, len(objects))
            for number, each in enumerate(objects, 1):
                await _write_again(client, resource_path_of(info.group_version_resource, each))
                progress(name, number, len(objects))


async def _write_again(client: ClusterClient, path: ResourcePath) -> None:
    while (present := await client.find(path)) is not None:
        try:
            await client.update(path, present)
        except Conflict:
            continue  # somebody was quicker: then it is written already, or is read once more
        except NotFound:
            pass
        return
