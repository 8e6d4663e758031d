"""MemberClusters put together, for both ends: the hub's controller and the agent's."""

import asyncio
from collections.abc import Iterator
from random import SystemRandom

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor
from clusterspace.api.member_clusters import INTERNAL_MEMBER_CLUSTERS, MEMBER_CLUSTERS
from clusterspace.client.places import Place
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import TaskFailed
from clusterspace.membership.member_clusters import places
from clusterspace.membership.member_clusters.agent import MembershipAgent, when_told_anew
from clusterspace.membership.member_clusters.upkeep import (
    MemberClusterSettings,
    MemberClusterUpkeep,
    for_its_member,
    when_asked_anew,
)
from clusterspace.runtime.controllers import Controller, ControllerSettings
from clusterspace.runtime.events import EventRecorder
from clusterspace.runtime.informers import Informer

_log = structlog.get_logger(__name__)

_LONGEST_RETRY_SECONDS = 30.0
"""How late a heartbeat may be after a hub was away: upstream's retries grow to a quarter hour."""


async def run_member_clusters(
    hub: ClusterClient,
    clusters: Informer,
    events: EventRecorder,
    clock: Clock,
    settings: MemberClusterSettings,
) -> None:
    """Look after all MemberClusters until cancelled; whoever made `clusters` runs it."""
    members = Informer(hub, Place(MEMBER_CLUSTERS))
    internals = Informer(hub, Place(INTERNAL_MEMBER_CLUSTERS))
    upkeep = MemberClusterUpkeep(hub, events, clock, settings)
    controller = Controller(
        "member-clusters",
        upkeep.reconcile,
        clock=clock,
        random=SystemRandom(),
        settings=ControllerSettings(longest_retry_seconds=_LONGEST_RETRY_SECONDS),
    )
    controller.watch(members, when_asked_anew)
    controller.watch(internals, for_its_member)
    controller.watch(clusters, when_asked_anew)
    await _run(clock, controller, members, internals)


async def run_membership_agent(
    hub: ClusterClient, cluster_name: str, member: ClusterClient, clock: Clock
) -> None:
    """Do what the InternalMemberCluster of our cluster says, if there is one, until cancelled."""
    internals = Informer(hub, places.internal_place(cluster_name).collection)
    agent = MembershipAgent(hub, member, clock=clock, random=SystemRandom())
    controller = Controller(
        "membership-agent",
        agent.reconcile,
        clock=clock,
        random=SystemRandom(),
        settings=ControllerSettings(workers=1, longest_retry_seconds=_LONGEST_RETRY_SECONDS),
    )
    controller.watch(internals, when_told_anew)
    await _run(clock, controller, internals)


async def _run(clock: Clock, controller: Controller, *informers: Informer) -> None:
    async with Supervisor(clock, _report) as tasks:
        for each in informers:
            tasks.keep(str(each.place), each.run, restart=_restarts)
        tasks.keep(controller.name, controller.run, restart=_restarts)
        await asyncio.Event().wait()


def _restarts() -> Iterator[float]:
    return backoff.exponential(0.5, 30)


def _report(failure: TaskFailed) -> None:
    _log.error("task failed", reason=str(failure), exc_info=failure.__cause__)
