"""MemberClusters put together, for both ends: the hub's controller and the agent's."""

from random import SystemRandom
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.member_clusters import INTERNAL_MEMBER_CLUSTERS, MEMBER_CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.background import Tasks
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer
from clusterspace.controllers.reconcile import Watch
from clusterspace.fleet.membership.member_clusters.agent import MembershipAgent, when_asked
from clusterspace.fleet.membership.member_clusters.controller import (
    MemberClusterController,
    MemberClusterSettings,
    for_its_member,
    when_asked_anew,
)
from clusterspace.fleet.membership.member_clusters.manifests import internal_place

_LONGEST_RETRY_SECONDS: Final = 30.0
"""How late a heartbeat may be once a hub that was away is back."""


def member_cluster_tasks(
    hub: ClusterClient,
    clusters: Informer,
    events: EventRecorder,
    clock: Clock,
    settings: MemberClusterSettings,
) -> Tasks:
    """Return what looks after all MemberClusters; whoever made `clusters` runs it."""
    members = Informer(hub, ResourcePath(MEMBER_CLUSTERS))
    internals = Informer(hub, ResourcePath(INTERNAL_MEMBER_CLUSTERS))
    upkeep = MemberClusterController(hub, events, clock, settings)
    hard = ControllerSettings(longest_retry_seconds=_LONGEST_RETRY_SECONDS)
    controller = Controller(
        "member-clusters", upkeep.reconcile, clock=clock, random=SystemRandom(), settings=hard
    )
    controller.watch(Watch(members, to=when_asked_anew))
    controller.watch(Watch(internals, to=for_its_member))
    controller.watch(Watch(clusters, to=when_asked_anew))
    return {
        "member clusters": members.run,
        "internal member clusters": internals.run,
        "member cluster upkeep": controller.run,
    }


def membership_agent_tasks(
    hub: ClusterClient, cluster_name: str, member: ClusterClient, clock: Clock
) -> Tasks:
    """Return what does as the InternalMemberCluster of our cluster says, if there is one."""
    internals = Informer(hub, internal_place(cluster_name).collection)
    agent = MembershipAgent(hub, member, clock=clock, random=SystemRandom())
    hard = ControllerSettings(workers=1, longest_retry_seconds=_LONGEST_RETRY_SECONDS)
    controller = Controller(
        "membership-agent", agent.reconcile, clock=clock, random=SystemRandom(), settings=hard
    )
    controller.watch(Watch(internals, to=when_asked))
    return {"internal member cluster": internals.run, "membership": controller.run}
