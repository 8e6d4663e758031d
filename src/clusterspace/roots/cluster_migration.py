"""`migrate` put together: clients opened, a lease for whoever applies or undoes, one run.

Of several that apply or undo one migration, one works and the others wait for their turn; when it
dies the next goes on. Whose rights are used is the operator's own: on the hub those of the given
kubeconfig, on the member those of --cluster-kubeconfig, else the hub's. That is why no controller
does it: whoever could write a Migration could have it do anything.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import Any, Final, TypeVar

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import is_pull
from clusterspace.apis.migrations import MIGRATIONS, ORIGINALS_NAMESPACE
from clusterspace.client.discovery import Discovery
from clusterspace.client.endpoints import Network
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit_change
from clusterspace.controllers.leases import LEASES, Candidacy, LeaderElection, LeaseTimings
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    CannotMigrate,
    CannotPromote,
    ClusterError,
    NotFound,
)
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import read_settings
from clusterspace.fleet.migration import apply as applying
from clusterspace.fleet.migration import hub_planning, kubefleet, planning, spreading, undo
from clusterspace.fleet.migration.groups import Group, Spread
from clusterspace.fleet.migration.karmada_handover import KarmadaHandover
from clusterspace.fleet.migration.kept_snapshots import find_kept, keep_snapshot
from clusterspace.fleet.migration.kubefleet_handover import KubeFleetHandover
from clusterspace.fleet.migration.kubefleet_planning import KUBEFLEET, plan_fleet
from clusterspace.fleet.migration.plan import MigrationPlan
from clusterspace.fleet.migration.planning import (
    NAMESPACES,
    PlanRequest,
    make_judge,
    plan_cluster,
    require_cluster,
    uid_of_cluster,
)
from clusterspace.fleet.migration.progress import (
    Item,
    MigrationStore,
    Phase,
    Record,
    State,
    read_record,
)
from clusterspace.fleet.migration.snapshots import Selection, capture
from clusterspace.fleet.migration.spreading import Spreading, SpreadRequest
from clusterspace.fleet.migration.undo import Undoing, UndoOptions
from clusterspace.kube.objects import with_value
from clusterspace.roots.clients import command_rules, connect, open_client
from clusterspace.roots.interpreting import interpreting
from clusterspace.roots.processes import process_identity

_TIMINGS: Final = LeaseTimings()

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Member:
    """How a command reaches the member."""

    settings: ConnectionSettings | None = None
    """As its administrator; without these the hub's own way in is used."""
    cidrs: tuple[Network, ...] = ()
    other: ConnectionSettings | None = None
    """The hub that has it today, for what is taken over from one."""


@asynccontextmanager
async def open_member(
    hub: ClusterClient,
    name: str,
    settings: ConnectionSettings | None,
    cidrs: tuple[Network, ...] = (),
    election: LeaderElection | None = None,
) -> AsyncGenerator[ClusterClient]:
    """Open a client of a member; one with an election writes only while it is won.

    A Pull cluster is reached by way of the hub, through the tunnel that its agent keeps, as whoever
    runs the command: what it lets them do is what its own RBAC says.
    """
    path = manifests.cluster_path(name)
    cluster = await hub.get(path)
    is_by_tunnel = settings is None and is_pull(cluster)
    if is_by_tunnel:
        known = hub.connection.settings
        settings = replace(known, cluster=name, server=f"{known.server}{path.path}/proxy")
    elif settings is None:
        settings = await read_settings(hub, cluster, command_rules(hub.connection.settings, cidrs))
    guard = None if election is None else election.fence(settings.cluster)
    client = connect(settings, guard=guard)
    try:
        if is_by_tunnel:
            try:
                await uid_of_cluster(client)
            except (ClusterError, ApiError) as error:
                why = f"{name} cannot be asked through its tunnel: {error}"
                raise CannotPromote(f"{why}; --cluster-kubeconfig gives another way") from error
        yield client
    finally:
        await client.connection.close()


async def plan(
    request: PlanRequest,
    hub: ConnectionSettings,
    member: Member,
    progress: planning.Progress = lambda _count, _resource: None,
) -> MigrationPlan:
    """Look at a member and say what taking it in would do."""
    async with (
        open_client(hub) as hub_client,
        open_member(hub_client, request.cluster, member.settings, member.cidrs) as member_client,
        interpreting(hub_client) as interpreter,
    ):
        now = SystemClock().now()
        return await plan_cluster(hub_client, member_client, request, now, progress, interpreter)


async def plan_hub(
    request: PlanRequest,
    kind: str,
    hub: ConnectionSettings,
    other: ConnectionSettings,
    cidrs: tuple[Network, ...] = (),
    progress: planning.Progress = lambda _count, _resource: None,
) -> MigrationPlan:
    """Look at another hub and say what taking over what it places would do."""
    look = plan_fleet if kind == KUBEFLEET else hub_planning.plan_hub
    async with (
        open_client(hub) as hub_client,
        _open_source(hub_client, kind, other, cidrs) as source,
        interpreting(hub_client) as interpreter,
    ):
        now = SystemClock().now()
        there = source.other, source.members
        return await look(hub_client, *there, request, now, progress, interpreter)


@dataclass(frozen=True, slots=True)
class _Source:
    """The hub that objects come from, and the members that both hubs have."""

    other: ClusterClient
    members: dict[str, ClusterClient]


@asynccontextmanager
async def _open_source(
    hub: ClusterClient,
    kind: str,
    settings: ConnectionSettings,
    cidrs: tuple[Network, ...],
    election: LeaderElection | None = None,
) -> AsyncGenerator[_Source]:
    """Open clients of another hub, and of those of its members that are members here, too."""
    guard = None if election is None else election.fence(settings.cluster)
    async with AsyncExitStack() as stack:
        other = connect(settings, guard=guard)
        stack.push_async_callback(other.connection.close)
        members: dict[str, ClusterClient] = {}
        source = kubefleet if kind == KUBEFLEET else hub_planning
        for name in await source.clusters_in_use(other):
            # What is no member here, or cannot be reached from here, is said of its objects.
            with suppress(NotFound, CannotPromote):
                opened = open_member(hub, name, None, cidrs, election)
                members[name] = await stack.enter_async_context(opened)
        yield _Source(other, members)


async def _hand_over(
    record: Record,
    hub: ConnectionSettings,
    member: Member,
    options: applying.ApplyOptions,
    progress: applying.Progress,
    say: Say,
    *,
    is_undo: bool,
) -> Counter[State]:
    """Take over what another hub places, or hand it back."""
    other = _required_source(record.name, member)

    async def work(hub_client: ClusterClient, source: _Source) -> Counter[State]:
        await _require_planned(record.cluster_uid, source.other)
        store = MigrationStore(hub_client, record.name)
        clock = SystemClock()
        if record.source == KUBEFLEET:
            serves = await Discovery(source.other.connection).served()
            handover = KubeFleetHandover(
                store, source.other, source.members, serves, options, clock, progress
            )
        else:
            handover = KarmadaHandover(
                store, source.other, source.members, options, clock, progress
            )
        return await (handover.give_back() if is_undo else handover.take())

    return await _in_turn(
        record,
        hub,
        lambda client, election: _open_source(client, record.source, other, member.cidrs, election),
        work,
        say,
    )


def _required_source(name: str, member: Member) -> ConnectionSettings:
    if member.other is None:
        raise CannotMigrate(
            f"migration {name} is about another hub: --hub-kubeconfig says where that is"
        )
    return member.other


async def apply(
    source: MigrationPlan | str,
    hub: ConnectionSettings,
    member: Member,
    options: applying.ApplyOptions,
    progress: applying.Progress,
    say: Say,
) -> Counter[State]:
    """Carry out a plan, or go on with one that was begun, by its name."""
    name = source if isinstance(source, str) else source.name
    async with open_client(hub) as reader:
        store = MigrationStore(reader, name)
        if isinstance(source, MigrationPlan):
            # Before the first write: a plan for another hub or cluster leaves no trace.
            if (hub_uid := await uid_of_cluster(reader)) != source.spec.hub_uid:
                raise CannotMigrate(
                    f"the plan was made for hub {source.spec.hub_uid}, and this is {hub_uid}: "
                    "plan again with this hub"
                )
            async with AsyncExitStack() as stack:
                if source.spec.source:
                    opened = open_client(_required_source(name, member))
                else:
                    planned = source.spec.cluster.name
                    opened = open_member(reader, planned, member.settings, member.cidrs)
                client = await stack.enter_async_context(opened)
                await _require_planned(source.spec.cluster.uid, client)
                await _ensure_own_namespace(reader)
                if not source.spec.source and await find_kept(reader, name) is None:
                    places = {each.namespace for each in source.spec.items if each.namespace}
                    seen = await capture(client, Selection(tuple(sorted(places))), SystemClock())
                    await keep_snapshot(reader, name, seen)
            # A crash before this line leaves what ran before, which the next attempt finds.
            await store.begin(source)
        record = await store.record()
        if record.is_paused:
            await commit_change(
                reader, store.path, lambda found: with_value(found, False, "spec", "paused")
            )

    if record.source:
        return await _hand_over(record, hub, member, options, progress, say, is_undo=False)

    async def work(hub_client: ClusterClient, member_client: ClusterClient) -> Counter[State]:
        await _require_planned(record.cluster_uid, member_client)
        cluster, _ = await require_cluster(hub_client, member_client, record.cluster)
        store = MigrationStore(hub_client, name)
        async with interpreting(hub_client) as interpreter:
            judge = await make_judge(
                hub_client, member_client, cluster, name, options.at_once, interpreter
            )
            application = applying.Application(
                store, member_client, judge, options, SystemClock(), progress
            )
            return await application.run()

    return await _in_turn(record, hub, _way_into(record, member), work, say)


async def take_back(
    name: str,
    hub: ConnectionSettings,
    member: Member,
    options: UndoOptions,
    progress: undo.Progress,
    say: Say,
) -> Counter[State]:
    """Give back what a migration took, or one object of it."""
    async with open_client(hub) as reader:
        record = await MigrationStore(reader, name).record()
    if record.source:
        if options.only or options.restores:
            raise CannotMigrate(f"migration {name} is about another hub: it is undone as a whole")
        handing = applying.ApplyOptions(at_once=options.at_once, patience=options.patience)
        return await _hand_over(record, hub, member, handing, progress, say, is_undo=True)

    async def work(hub_client: ClusterClient, member_client: ClusterClient) -> Counter[State]:
        await _require_planned(record.cluster_uid, member_client)
        served = await Discovery(hub_client.connection).served()
        store = MigrationStore(hub_client, name)
        return await Undoing(store, member_client, served, options, SystemClock(), progress).run()

    return await _in_turn(record, hub, _way_into(record, member), work, say)


async def spread(
    name: str,
    hub: ConnectionSettings,
    member: Member,
    request: SpreadRequest,
    approve: Callable[[list[Spread]], bool],
    progress: spreading.Progress,
    say: Say,
) -> Counter[Group]:
    """Bring what a migration took to other clusters, if whoever is shown the plan approves."""
    async with open_client(hub) as reader:
        record = await MigrationStore(reader, name).record()
    if member.settings is not None and len(request.to) > 1:
        raise CannotMigrate("--cluster-kubeconfig is of one cluster, and --to names several")

    @asynccontextmanager
    async def targets(
        client: ClusterClient, election: LeaderElection
    ) -> AsyncGenerator[dict[str, ClusterClient]]:
        async with AsyncExitStack() as stack:
            opened: dict[str, ClusterClient] = {}
            for each in request.to:
                # What is no member is said by the plan, with the way to make it one.
                with suppress(NotFound):
                    way = open_member(client, each, member.settings, member.cidrs, election)
                    opened[each] = await stack.enter_async_context(way)
            yield opened

    async def work(client: ClusterClient, opened: dict[str, ClusterClient]) -> Counter[Group]:
        store = MigrationStore(client, name)
        spreader = Spreading(store, opened, request, SystemClock(), progress)
        planned = await spreader.plan()
        if not await asyncio.to_thread(approve, planned):
            return Counter()
        return await spreader.run(planned)

    return await _in_turn(record, hub, targets, work, say)


async def pause(name: str, hub: ConnectionSettings) -> None:
    """Have whoever applies a migration stop after the batch it is at."""
    async with open_client(hub) as client:
        store = MigrationStore(client, name)
        await store.record()
        await commit_change(
            client, store.path, lambda found: with_value(found, True, "spec", "paused")
        )


async def forget(name: str, hub: ConnectionSettings) -> None:
    """Delete what is kept of a migration; what it took stays taken."""
    async with open_client(hub) as client:
        store = MigrationStore(client, name)
        record = await store.record()
        if record.phase in (Phase.APPLYING.value, Phase.UNDOING.value):
            raise CannotMigrate(
                f"migration {name} is {record.phase.lower()}: apply or undo it to its end first"
            )
        await store.forget()


async def records(hub: ConnectionSettings) -> list[Record]:
    """Return the migrations there are."""
    async with open_client(hub) as client:
        return [read_record(each) for each in await client.list_objects(ResourcePath(MIGRATIONS))]


async def details(name: str, hub: ConnectionSettings) -> tuple[Record, list[Item]]:
    """Return a migration with all of its items."""
    async with open_client(hub) as client:
        store = MigrationStore(client, name)
        record = await store.record()
        chunks = [await store.chunk(each) for each in range(record.chunks)]
        return record, [item for chunk in chunks for item in chunk.items]


async def _require_planned(uid: str, member: ClusterClient) -> None:
    found = await uid_of_cluster(member)
    if found != uid:
        raise CannotMigrate(
            f"the plan was made for the cluster with UID {uid}, and these credentials lead to "
            f"{found}: plan again for that one"
        )


async def _ensure_own_namespace(hub: ClusterClient) -> None:
    """Make the namespace for leases, originals and snapshots, where the hub has none yet."""
    own: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": ORIGINALS_NAMESPACE},
    }
    if await hub.find(ResourcePath(NAMESPACES, name=ORIGINALS_NAMESPACE)) is None:
        with suppress(AlreadyExists):
            await hub.create(ResourcePath(NAMESPACES), own)


Opened = TypeVar("Opened")
Counted = TypeVar("Counted", State, Group)
Reach = Callable[[ClusterClient, LeaderElection], AbstractAsyncContextManager[Opened]]
"""Opens what a migration works on, by a client of the hub; it writes only while it is our turn."""


def _way_into(record: Record, member: Member) -> Reach[ClusterClient]:
    return lambda hub, election: open_member(
        hub, record.cluster, member.settings, member.cidrs, election
    )


async def _in_turn(
    record: Record,
    hub: ConnectionSettings,
    reach: Reach[Opened],
    work: Callable[[ClusterClient, Opened], Awaitable[Counter[Counted]]],
    say: Say,
) -> Counter[Counted]:
    """Work while we hold the lease of the migration; wait for it as long as another has it."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        lease_client = await stack.enter_async_context(open_client(hub))
        await _ensure_own_namespace(lease_client)
        path = ResourcePath(LEASES, ORIGINALS_NAMESPACE, f"migration-{record.name}")
        candidacy = Candidacy(path, process_identity(), _TIMINGS)
        election = LeaderElection(lease_client, candidacy, clock=clock, random=SystemRandom())
        hub_client = connect(hub, clock, guard=election.fence(hub.cluster, is_leases=True))
        stack.push_async_callback(hub_client.connection.close)
        opened = await stack.enter_async_context(reach(hub_client, election))
        done: list[Counter[Counted]] = []

        async def lead(_epoch: int) -> None:
            done.append(await work(hub_client, opened))

        async def tell_of_waiting() -> None:
            await clock.sleep(1.0)
            if not election.is_leader:
                say(f"somebody else is at work on migration {record.name}; waiting for our turn")

        try:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(tell_of_waiting(), name="tell of waiting")
                try:
                    await election.lead(lead)
                finally:
                    waiting.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason
        return done[0]
