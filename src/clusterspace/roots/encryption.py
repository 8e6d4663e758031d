"""The keys a hub encrypts with: read from a file, again when it changes, and put to use."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog
import yaml

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.store.encryption import EncryptedStore, Encryption, read_encryption
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import (
    Conflict,
    NotFound,
    NotServed,
    StoreUnreadable,
    UnusableConfiguration,
)
from clusterspace.roots.clients import open_client

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
"""How soon a changed file counts; kube-apiserver takes a minute."""


def load_encryption(file: Path | None) -> Encryption:
    """Read an EncryptionConfiguration; without a file nothing is encrypted."""
    if file is None:
        return Encryption()
    try:
        return read_encryption(yaml.safe_load(file.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableConfiguration(f"{file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # What the parser cites of the file could be a key.
        raise UnusableConfiguration(f"{file} is no YAML") from error
    except UnusableConfiguration as error:
        raise UnusableConfiguration(f"{file}: {error}") from None


async def follow_encryption(file: Path, store: EncryptedStore, clock: Clock) -> None:
    """Take the keys of the file whenever it changes, until cancelled.

    A file that cannot be used, or that lacks a key something is encrypted with, changes nothing.
    """
    known, trouble = _content(file), ""
    while True:
        await clock.sleep(LOOK_SECONDS)
        found = _content(file)
        if found == known:
            trouble = await _refresh(store, trouble)
            continue
        known = found
        try:
            await store.replace_keys(load_encryption(file))
        except (UnusableConfiguration, StoreUnreadable) as error:
            _log.error("encryption keys are as before", reason=str(error))
        else:
            _log.info("encryption keys are replaced", file=str(file))


async def _refresh(store: EncryptedStore, known_trouble: str) -> str:
    """Ask services for another key; return what the trouble is, which is said when it is new."""
    try:
        if await store.refresh_keys():
            _log.info("a key management service has another key, which is used from now on")
    except StoreUnreadable as error:
        if str(error) != known_trouble:
            # What there is can be read and written on: the keys for it are in memory.
            _log.warning("encryption keys are not asked for", reason=str(error))
        return str(error)
    return ""


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


def _content(file: Path) -> bytes | None:
    """Return what is in the file; None when it cannot be read just now."""
    try:
        return file.read_bytes()
    except OSError:
        return None
