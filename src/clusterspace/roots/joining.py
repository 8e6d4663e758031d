"""`join` and `unjoin` put together: clients opened, steps carried out, progress told."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.member_clusters import FORCE_LEAVE, has_member_cluster
from clusterspace.client.endpoints import AddressRules, Network
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import CannotLeave
from clusterspace.fleet.membership import leave, names
from clusterspace.fleet.membership.connections import read_settings
from clusterspace.fleet.membership.leave import BeforeRemoval, Cleaner
from clusterspace.fleet.membership.member_access import refuse_expired
from clusterspace.fleet.membership.push_join import JoinRequest, PushJoin, steps_of
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.roots.clients import command_rules, open_client, read_pem

Tell: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class UnjoinRequest:
    """What is to leave, and how."""

    name: str
    member: ConnectionSettings | None = None
    """The member's administrator; without one the hub cleans up with its own rights."""
    keeps_resources: bool = False
    is_forced: bool = False
    wait_seconds: float = 60.0
    member_cidrs: tuple[Network, ...] = ()
    """Where the member may be, for when the hub's own way in is used from here."""


async def join_cluster(
    request: JoinRequest, hub: ConnectionSettings, tell: Tell, *, is_dry_run: bool = False
) -> None:
    """Join a cluster, or say what that would take."""

    def progress(sentence: str) -> None:
        tell(sentence)

    clock = SystemClock()
    refuse_expired(request.name, read_pem(request.member.identity.certificate), clock.now())
    async with open_client(hub) as hub_client, open_client(request.member) as member:
        joining = PushJoin(request, hub_client, member, open_client, progress)
        findings = await joining.look()
        if is_dry_run:
            for step in steps_of(request.name, findings):
                tell(f"would {step}")
            return
        joined = await joining.carry_out(findings)
    done = "joined" if joined.is_new else "had joined before; its credentials are fresh"
    tell(f"cluster {request.name} {done}")


async def unjoin_cluster(
    request: UnjoinRequest, hub: ConnectionSettings, tell: Tell, *, is_dry_run: bool = False
) -> None:
    """Take a cluster out, or say what that would remove."""
    async with AsyncExitStack() as stack:
        hub_client = await stack.enter_async_context(open_client(hub))
        cluster = await hub_client.get(names.cluster_place(request.name))
        _refuse_pull(cluster, request)
        await _list_placed(hub_client, request, tell)
        if is_dry_run:
            return
        if request.keeps_resources:
            await leave.keep_resources(hub_client, request.name)
        rules = command_rules(hub, request.member_cidrs)
        way_in = _WayIn(stack, hub_client, cluster, request.member, rules)
        leaving = leave.Leave(hub_client, request.name, _cleaning(way_in, tell))
        await leaving.begin()
        if request.is_forced:
            tell_left_behind(request.name, await leaving.force(), tell)
        else:
            tell("withdrawing, cleaning the member, forgetting")
            await leaving.finish(SystemClock(), request.wait_seconds)
    tell(f"cluster {request.name} has left")


def _refuse_pull(cluster: Object, request: UnjoinRequest) -> None:
    """Refuse to leave a running agent behind on a cluster that registered itself."""
    if has_member_cluster(cluster):
        why = (
            "it joined by a MemberCluster: delete that, "
            f"and if its agent is dead, annotate it with {FORCE_LEAVE}=true"
        )
        raise CannotLeave(request.name, why)
    if find_at(cluster, "spec", "syncMode") == "Pull" and not request.is_forced:
        why = "it registered itself: use `clusterspace unregister`, which ends its agent too"
        raise CannotLeave(request.name, why)


async def _list_placed(hub: ClusterClient, request: UnjoinRequest, tell: Tell) -> None:
    works = await hub.list_objects(names.works_place(request.name))
    placed = leave.placed_objects(works)
    if not placed:
        tell("nothing is placed on the member")
        return
    fate = "stay on the member" if request.keeps_resources else "are removed from the member"
    if request.is_forced and not request.keeps_resources:
        fate = "are abandoned where they are"
    tell(f"{len(placed)} placed objects {fate}:")
    for each in placed:
        tell(f"  {each}")


@dataclass(frozen=True, slots=True)
class _WayIn:
    """How to reach a member that leaves: as its administrator if we can, else as the hub."""

    stack: AsyncExitStack
    hub: ClusterClient
    cluster: Object
    administrator: ConnectionSettings | None
    rules: AddressRules

    async def open(self) -> Cleaner:
        settings = self.administrator
        if settings is None:
            settings = await read_settings(self.hub, self.cluster, self.rules)
        member = await self.stack.enter_async_context(open_client(settings))
        return Cleaner(member, is_administrator=self.administrator is not None)


def _cleaning(way_in: _WayIn, tell: Tell) -> leave.Clean:
    async def clean(hub_id: str, before_removal: BeforeRemoval) -> object:
        cleaner = await way_in.open()
        cleaned = await cleaner.clean(name_of(way_in.cluster), hub_id, before_removal)
        for each in cleaned.removed:
            tell(f"removed from the member: {each}")
        for each in cleaned.foreign:
            tell(f"kept on the member, for this hub did not make it: {each}")
        return cleaned

    return clean


def tell_left_behind(cluster_name: str, left: list[str], tell: Tell) -> None:
    """Say what a forced leave could not clean, and where that is written down."""
    if not left:
        return
    place = names.left_behind_place(cluster_name)
    tell(f"left behind, and written down in configmap {place.key}:")
    for each in left:
        tell(f"  {each}")
