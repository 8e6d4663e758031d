"""`migrate snapshot` and `prove` put together: what runs on a member, now and before."""

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import CannotProve
from clusterspace.fleet.migration.kept_snapshots import find_kept
from clusterspace.fleet.migration.progress import MigrationStore
from clusterspace.fleet.migration.proof import Report, compare
from clusterspace.fleet.migration.snapshots import (
    Selection,
    Snapshot,
    capture,
    require_namespaces,
)
from clusterspace.roots.clients import open_client
from clusterspace.roots.cluster_migration import Member, open_member


async def take_snapshot(
    cluster: str,
    selection: Selection,
    hub: ConnectionSettings,
    member: Member,
    *,
    is_first: bool = True,
) -> Snapshot:
    """Record what runs on a member; the first time its namespaces must be there."""
    async with (
        open_client(hub) as hub_client,
        open_member(hub_client, cluster, member.settings, member.cidrs) as member_client,
    ):
        if is_first:
            await require_namespaces(member_client, selection)
        return await capture(member_client, selection, SystemClock())


async def prove(cluster: str, before: Snapshot, hub: ConnectionSettings, member: Member) -> Report:
    """Compare what runs on a member with what ran there before."""
    # A namespace that is gone by now is a finding, and no mistake of whoever asks.
    after = await take_snapshot(cluster, before.selection, hub, member, is_first=False)
    return compare(before, after)


async def prove_migration(name: str, hub: ConnectionSettings, member: Member) -> Report:
    """Compare what runs on a member with what ran there before a migration."""
    async with open_client(hub) as hub_client:
        record = await MigrationStore(hub_client, name).record()
        before = await find_kept(hub_client, name)
    if before is None:
        why = f"nobody kept what ran before migration {name}: give a snapshot with --before"
        raise CannotProve("", why)
    return await prove(record.cluster, before, hub, member)
