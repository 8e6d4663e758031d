"""The snapshot from before a migration, kept on the hub until the migration is forgotten.

It is cut into Secrets beside the originals, with the same label: `forget` takes them all. The first
one that is kept stays, for whatever is captured later may be of a cluster that is half taken.
"""

import base64
import hashlib
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from clusterspace.apis.migrations import GROUP, NAME_LABEL, ORIGINALS_NAMESPACE
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.errors import AlreadyExists, CannotProve
from clusterspace.fleet.migration.snapshots import Snapshot, decode, encode
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource

SNAPSHOT_TYPE: Final = f"{GROUP}/snapshot"
_SECRETS: Final = GroupVersionResource("", "v1", "secrets")
_PART_BYTES: Final = 512 * 1024


def _path(migration: str, part: str) -> ResourcePath:
    return ResourcePath(_SECRETS, ORIGINALS_NAMESPACE, f"{migration}-before{part}")


async def keep_snapshot(hub: Client, migration: str, snapshot: Snapshot) -> None:
    """Keep what ran before a migration, unless that is kept already."""
    packer = zlib.compressobj(6)
    packed = b"".join(packer.compress(each) for each in encode(snapshot)) + packer.flush()
    name = hashlib.sha256(packed).hexdigest()[:12]
    parts = [packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES)]
    names = [f"-{name}-{number:03d}" for number in range(len(parts))]
    # The parts first, by names that only these bytes have, then the Secret that names them. A crash
    # in between leaves parts that nobody reads; of two who keep, the first to write that one wins.
    for each, part in zip(names, parts, strict=True):
        with suppress(AlreadyExists):
            await _write(hub, migration, each, {"part": part})
    with suppress(AlreadyExists):
        await _write(hub, migration, "", {"parts": ",".join(names).encode()})


async def _write(hub: Client, migration: str, part: str, data: Mapping[str, bytes]) -> None:
    path = _path(migration, part)
    document: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": path.name,
            "namespace": path.namespace,
            "labels": {NAME_LABEL: migration},
        },
        "type": SNAPSHOT_TYPE,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    await hub.create(path.collection, document)


async def find_kept(hub: Client, migration: str) -> Snapshot | None:
    """Return what ran before a migration; None when nobody kept it."""
    first = await hub.find(_path(migration, ""))
    if first is None:
        return None
    packed = bytearray()
    try:
        for each in base64.b64decode(str(find_at(first, "data", "parts"))).decode().split(","):
            part = await hub.get(_path(migration, each))
            packed += base64.b64decode(str(find_at(part, "data", "part")))
        return decode(zlib.decompress(bytes(packed)))
    except (ValueError, zlib.error) as error:
        why = f"what ran before migration {migration} was kept, and cannot be read: {error}"
        raise CannotProve("", why) from error
