"""All that a prefix of etcd holds at one revision, for a backup or a check; nothing is written.

etcd keeps every revision until it is compacted, so hubs may go on writing meanwhile.
"""

from dataclasses import dataclass, replace
from typing import Final

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient, EtcdSettings
from clusterspace.apiserver.store.etcd.messages import StatusAnswer
from clusterspace.apiserver.store.etcd.prefix import KeyNames, item_of, marked_ahead, pages_at
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.errors import Compacted, StoreCorrupt, StoreError, StoreUnreadable

_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one revision, in the order of keys."""

    items: list[KeyValue]
    revision: Revision


@dataclass(frozen=True, slots=True)
class EtcdInspection:
    """What a sound prefix of etcd holds, and what each of its members said of itself."""

    snapshot: Snapshot
    members: dict[str, StatusAnswer | StoreError]


async def read_snapshot(settings: EtcdSettings, *, root: str = "/registry") -> Snapshot:
    """Read everything at the quorum's present revision.

    Raises `StoreUnreadable` where no hub has its objects, `StoreCorrupt` for what no hub wrote.
    """
    client = await EtcdClient.open(settings)
    try:
        snapshot, _ = await _read(client, settings, root)
    finally:
        await client.close()
    return snapshot


async def inspect(settings: EtcdSettings, *, root: str = "/registry") -> EtcdInspection:
    """Read everything, and compare what each member has at that revision.

    Raises `StoreCorrupt`, which names the member and the key. A member that does not answer is
    returned with its error: the others may be sound.
    """
    client = await EtcdClient.open(settings)
    try:
        snapshot, names = await _read(client, settings, root)
        members = await client.statuses()
        is_etcd = client.is_etcd
    finally:
        await client.close()
    for server, status in members.items():
        if isinstance(status, StoreError):
            continue
        if corrupt := [each for each in status.errors if "CORRUPT" in each]:
            raise StoreCorrupt(f"{server}: {'; '.join(corrupt)}")
        if is_etcd:  # kine has no members: what is behind it was asked already
            await _compare(replace(settings, servers=(server,)), snapshot, names)
    return EtcdInspection(snapshot, members)


async def _compare(member: EtcdSettings, snapshot: Snapshot, names: KeyNames) -> None:
    """Raise StoreCorrupt unless a member has exactly what the quorum has."""
    expected = {item.key: item for item in snapshot.items}
    client = await EtcdClient.open(member)
    try:
        at = names.in_etcd(snapshot.revision)
        async for page in pages_at(client, names, at, is_serializable=True):
            for each in page.items:
                found = item_of(names, each)
                if expected.pop(found.key, None) != found:
                    raise StoreCorrupt(
                        f"{member.servers[0]} has another {found.key} than the quorum at revision"
                        f" {snapshot.revision}: take the member out, and let it begin anew"
                    )
    finally:
        await client.close()
    for missing in expected:
        raise StoreCorrupt(
            f"{member.servers[0]} lacks {missing} at revision {snapshot.revision}: take the member"
            " out, and let it begin anew"
        )


async def _read(client: EtcdClient, settings: EtcdSettings, root: str) -> tuple[Snapshot, KeyNames]:
    names = KeyNames(settings.prefix, root)
    for attempt in range(1, _ATTEMPTS + 1):
        answer = await client.read(messages.RANGE, messages.range_request(names.marker))
        marker = messages.read_range(answer)
        if not marker.items:
            raise StoreUnreadable(
                f"no hub has its objects under {settings.prefix} in this etcd: see --etcd-prefix"
            )
        names.ahead = marked_ahead(marker.items[0].value, settings.prefix)
        try:
            items = [
                _sound(names, each, marker.revision)
                async for page in pages_at(client, names, marker.revision)
                for each in page.items
            ]
        except Compacted:
            # It was compacted while it was read, which takes minutes: begin again at the present.
            if attempt == _ATTEMPTS:
                raise
            continue
        return Snapshot(items, names.in_store(marker.revision)), names
    raise AssertionError("the last attempt returns or raises")


def _sound(names: KeyNames, stored: messages.Stored, revision: int) -> KeyValue:
    try:
        item = item_of(names, stored)
    except UnicodeDecodeError as error:
        raise StoreCorrupt(f"the key {stored.key!r} in etcd is not text") from error
    if not 0 < stored.create_revision <= stored.mod_revision <= revision:
        raise StoreCorrupt(f"the revisions of {item.key} in etcd do not follow from each other")
    return item
