"""What a controller decides by is there before it decides: an empty cache says nothing."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Trust
from clusterspace.controllers.controller import Reconciler
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Informer
from clusterspace.fleet.propagation.dependencies import DependencyDistributor
from clusterspace.fleet.propagation.detector import Detector, PolicyLifecycle
from clusterspace.fleet.propagation.namespaces import NamespaceWorks
from clusterspace.fleet.propagation.placements.controller import PlacementController
from clusterspace.fleet.propagation.placements.evictions import PlacementEvictions
from clusterspace.fleet.propagation.placements.override_snapshots import OverrideSnapshots
from clusterspace.fleet.propagation.placements.staged_update_runs import StagedUpdateRuns
from clusterspace.fleet.propagation.rollouts.controller import PolicyRollouts
from clusterspace.fleet.propagation.scheduler.controller import Scheduler
from clusterspace.fleet.propagation.statuses import BindingStatuses
from clusterspace.fleet.propagation.works.controller import BindingWorks

CLOCK, RANDOM = SystemClock(), Random(1)
SETTINGS = ConnectionSettings("hub", "https://127.0.0.1:1", Trust(), AuthInfo())

NOT_WAITED_FOR = {
    "customresourcedefinitions": "templates of a kind have a source of their own, which is",
    "clusterresourcesnapshots": "works: one that is not known yet is a Conflict",
    "resourcesnapshots": "works: one that is not known yet is a Conflict",
    "clusterresourceoverridesnapshots": "works: one that is not known yet is a Conflict",
    "resourceoverridesnapshots": "works: one that is not known yet is a Conflict",
}
EXCEPT: dict[Callable[..., Reconciler], set[str]] = {
    BindingWorks: set(NOT_WAITED_FOR),
    # What it evicts it reads live; the cache is told of it.
    PlacementEvictions: {"clusterresourcebindings", "resourcebindings"},
    # By clusters it is judged whose credentials a Secret is, which nobody reports on.
    BindingStatuses: {"customresourcedefinitions", "clusters"},
}


class Listening(HubCaches):
    """Caches that know what somebody asked them for."""

    def __init__(self, hub: ClusterClient) -> None:
        super().__init__(hub)
        self.asked_for: list[Informer] = []

    def informer(self, *place: Any, **options: Any) -> Informer:
        found = super().informer(*place, **options)
        self.asked_for.append(found)
        return found


def hub() -> ClusterClient:
    return ClusterClient(Connection(SETTINGS, clock=CLOCK, random=RANDOM))


def made(kind: Callable[..., Reconciler], client: ClusterClient, caches: HubCaches) -> Reconciler:
    events = EventRecorder(client, component="test", clock=CLOCK)
    if kind is OverrideSnapshots:
        return kind(client, caches)
    if kind is NamespaceWorks:
        return kind(client, caches, events)
    if kind in (Detector, PolicyLifecycle, DependencyDistributor):
        return kind(client, caches, events, random=RANDOM)
    if kind is PlacementController:
        return kind(client, caches, events, CLOCK, random=RANDOM)
    return kind(client, caches, events, CLOCK)


@pytest.mark.parametrize(
    "kind",
    [
        Detector,
        PolicyLifecycle,
        DependencyDistributor,
        OverrideSnapshots,
        PlacementController,
        StagedUpdateRuns,
        PlacementEvictions,
        PolicyRollouts,
        Scheduler,
        BindingWorks,
        NamespaceWorks,
        BindingStatuses,
    ],
)
def test_a_controller_begins_when_all_it_reads_is_there(kind: Callable[..., Reconciler]) -> None:
    client = hub()
    caches = Listening(client)
    reconciler = made(kind, client, caches)
    awaited = {id(each.source) for each in reconciler.watches()}

    unseen = {each.path.resource.resource for each in caches.asked_for if id(each) not in awaited}
    assert unseen <= EXCEPT.get(kind, {"customresourcedefinitions"})
