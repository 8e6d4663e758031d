"""`register` and `unregister` put together: clients opened, progress told."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis.clusters import is_pull
from clusterspace.apis.member_clusters import has_member_cluster
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import ApiError, CannotLeave, ClusterError
from clusterspace.fleet.membership import leave, names
from clusterspace.fleet.membership.leave import (
    BeforeRemoval,
    refuse_other_registration,
    remove_agent,
)
from clusterspace.fleet.membership.member_access import refuse_expired
from clusterspace.fleet.membership.pull_join import PullJoin, RegisterRequest
from clusterspace.roots.clients import open_client, read_pem
from clusterspace.roots.joining import tell_left_behind
from clusterspace.roots.tokens import authority_pins

Tell: TypeAlias = Callable[[str], object]

_CHECK_SECONDS: Final = 2.0
"""How long a member that is to leave by force may take to say whose it is."""


@dataclass(frozen=True, slots=True)
class UnregisterRequest:
    """What is to be unregistered, and how."""

    name: str
    member: ConnectionSettings | None
    """The member's administrator; a dead member may do without."""
    is_forced: bool = False
    wait_seconds: float = 60.0


async def register_cluster(
    request: RegisterRequest, member: ConnectionSettings, tell: Tell
) -> None:
    """Register a cluster with a hub, from the cluster's side."""

    def progress(sentence: str) -> None:
        tell(sentence)

    clock: Clock = SystemClock()
    refuse_expired(request.name, read_pem(member.identity.certificate), clock.now())
    async with open_client(member) as member_client:
        await PullJoin(request, member_client, open_client, progress).register()
    tell(f"cluster {request.name} is registered")


async def unregister_cluster(
    request: UnregisterRequest, hub: ConnectionSettings, tell: Tell
) -> None:
    """Take a Pull cluster out of the fleet, and its agent down."""
    marks = set(authority_pins(hub))
    async with AsyncExitStack() as stack:
        hub_client = await stack.enter_async_context(open_client(hub))
        member = request.member and await stack.enter_async_context(open_client(request.member))
        taking_down = _TakingDown(request, member, marks, tell)
        await taking_down.check()
        if request.is_forced:
            await _force(hub_client, taking_down, tell)
        else:
            await _leave_hub(hub_client, request, tell)
            await taking_down.remove()
    tell(f"cluster {request.name} is unregistered")


@dataclass(frozen=True, slots=True)
class _TakingDown:
    """The member's end of an unregistration."""

    request: UnregisterRequest
    member: ClusterClient | None
    marks: set[str]
    tell: Tell

    async def check(self) -> None:
        """Refuse the wrong member before anything is touched; a dead one cannot be asked."""
        if self.member is None:
            return
        try:
            async with asyncio.timeout(_CHECK_SECONDS if self.request.is_forced else None):
                await refuse_other_registration(self.member, self.request.name, self.marks)
        except (ApiError, ClusterError, TimeoutError):
            if not self.request.is_forced:
                raise

    async def remove(self) -> None:
        """Remove the agent and what was made for it, and say so."""
        if self.member is None:
            raise CannotLeave(self.request.name, "no kubeconfig of the member was given")
        outcome = await remove_agent(self.member, self.marks)
        for each in outcome.removed:
            self.tell(f"removed from the member: {each}")
        for each in outcome.kept:
            self.tell(f"kept on the member, for this hub did not make it: {each}")


async def _leave_hub(hub: ClusterClient, request: UnregisterRequest, tell: Tell) -> None:
    if not await _is_known(hub, request.name, tell):
        return
    leaving = leave.Leave(hub, request.name, _nothing_to_clean)
    await leaving.begin()
    tell("withdrawing what was placed, and forgetting the cluster on the hub")
    await leaving.finish(SystemClock(), request.wait_seconds)


async def _force(hub: ClusterClient, taking_down: _TakingDown, tell: Tell) -> None:
    name = taking_down.request.name
    if not await _is_known(hub, name, tell):
        await taking_down.remove()
        return

    async def clean(_hub_id: str, _before_removal: BeforeRemoval) -> None:
        await taking_down.remove()

    leaving = leave.Leave(hub, name, clean)
    await leaving.begin()
    tell_left_behind(name, await leaving.force(), tell)


async def _is_known(hub: ClusterClient, cluster_name: str, tell: Tell) -> bool:
    cluster = await hub.find(names.cluster_place(cluster_name))
    if cluster is None:
        tell("the hub does not know the cluster any more")
    elif not is_pull(cluster):
        raise CannotLeave(cluster_name, "the hub reaches it by itself (Push): use unjoin")
    elif has_member_cluster(cluster):
        raise CannotLeave(cluster_name, "it joined by a MemberCluster: delete that first")
    return cluster is not None


async def _nothing_to_clean(_hub_id: str, _before_removal: BeforeRemoval) -> None:
    """Leave the member alone: its agent is taken down once the hub has forgotten it."""
