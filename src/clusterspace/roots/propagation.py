"""Everything that carries templates to members, put together around one client of the hub."""

from dataclasses import dataclass
from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.bindings import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.client.places import Place
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.background import Tasks
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer
from clusterspace.fleet.execution.controller import Executors, HubView, Reach
from clusterspace.fleet.membership import names
from clusterspace.fleet.propagation import dependencies
from clusterspace.fleet.propagation.detector import Detector
from clusterspace.fleet.propagation.distributor import DependencyDistributor
from clusterspace.fleet.propagation.placements.sources import PlacementInformers, PlacementSources
from clusterspace.fleet.propagation.placements.triggers import placement_tasks
from clusterspace.fleet.propagation.policy_upkeep import PolicyUpkeep
from clusterspace.fleet.propagation.scheduling.scheduler import Scheduler, SchedulerSources
from clusterspace.fleet.propagation.template_informers import DEFINITIONS, TemplateInformers
from clusterspace.fleet.propagation.triggers import Sources
from clusterspace.fleet.propagation.work_controllers import (
    Tools,
    WorkCaches,
    build_work_controllers,
)
from clusterspace.fleet.propagation.works import triggers
from clusterspace.fleet.propagation.works.known_works import WORK_INDEXES

_SCHEDULERS: Final = 8


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What propagation shares with the other controllers of the process."""

    hub: ClusterClient
    clusters: Informer
    events: EventRecorder
    clock: Clock
    random: Random


class Propagation:
    """Template to policy to binding to work to member, and statuses back."""

    def __init__(self, around: Surroundings, reach: Reach) -> None:
        hub = around.hub
        self._around = around
        self._reach = reach
        self._definitions = Informer(hub, Place(DEFINITIONS))
        self._templates = TemplateInformers(hub, self._definitions, clock=around.clock)
        self._policies = Informer(hub, Place(PROPAGATION_POLICIES))
        self._cluster_policies = Informer(hub, Place(CLUSTER_PROPAGATION_POLICIES))
        self._overrides = Informer(hub, Place(OVERRIDE_POLICIES), indexes=triggers.OVERRIDE_INDEXES)
        self._cluster_overrides = Informer(hub, Place(CLUSTER_OVERRIDE_POLICIES))
        indexes = {**dependencies.BINDING_INDEXES, **triggers.BINDING_INDEXES}
        self._bindings = Informer(hub, Place(RESOURCE_BINDINGS), indexes=indexes)
        self._cluster_bindings = Informer(hub, Place(CLUSTER_RESOURCE_BINDINGS), indexes=indexes)
        self._works = Informer(hub, Place(WORKS), indexes=WORK_INDEXES)
        self._namespaces = Informer(hub, Place(names.NAMESPACES))
        self._placements = PlacementInformers.of(hub)

    def tasks(self) -> Tasks:
        """Return everything that is to run, by name."""
        return {
            **self._followers(),
            **self._claiming(),
            **self._placing(),
            **self._scheduling(),
            **self._working(),
        }

    def _followers(self) -> Tasks:
        return {
            "definitions": self._definitions.run,
            "templates": self._templates.run,
            "policies": self._policies.run,
            "cluster policies": self._cluster_policies.run,
            "overrides": self._overrides.run,
            "cluster overrides": self._cluster_overrides.run,
            "bindings": self._bindings.run,
            "cluster bindings": self._cluster_bindings.run,
            "works": self._works.run,
            "namespaces": self._namespaces.run,
        }

    def _claiming(self) -> Tasks:
        around = self._around
        sources = Sources(
            self._templates,
            policies=self._policies,
            cluster_policies=self._cluster_policies,
            overrides=self._overrides,
            cluster_overrides=self._cluster_overrides,
            bindings=self._bindings,
            cluster_bindings=self._cluster_bindings,
        )
        hub, events, clock, random = around.hub, around.events, around.clock, around.random
        return {
            "detector": Detector(hub, sources, events, clock=clock, random=random).run,
            "policy upkeep": PolicyUpkeep(hub, sources, events, clock=clock, random=random).run,
            "dependencies": DependencyDistributor(
                hub, sources, events, clock=clock, random=random
            ).run,
        }

    def _placing(self) -> Tasks:
        around = self._around
        sources = PlacementSources(
            own=self._placements,
            bindings=self._bindings,
            cluster_bindings=self._cluster_bindings,
            works=self._works,
            clusters=around.clusters,
            templates=self._templates,
        )
        return placement_tasks(
            around.hub, sources, around.events, clock=around.clock, random=around.random
        )

    def _scheduling(self) -> Tasks:
        around = self._around
        sources = SchedulerSources(self._bindings, self._cluster_bindings, around.clusters)
        scheduler = Scheduler(around.hub, sources, around.events, around.clock)
        controller = Controller(
            "scheduler",
            scheduler.reconcile,
            clock=around.clock,
            random=around.random,
            settings=ControllerSettings(workers=_SCHEDULERS),
        )
        controller.watch(self._bindings)
        controller.watch(self._cluster_bindings)
        controller.watch(around.clusters, scheduler.affected_by)
        return {"scheduler": controller.run}

    def _working(self) -> Tasks:
        around = self._around
        tools = Tools(around.hub, around.events, around.clock, around.random)
        caches = WorkCaches(
            bindings=self._bindings,
            cluster_bindings=self._cluster_bindings,
            works=self._works,
            clusters=around.clusters,
            namespaces=self._namespaces,
            override_policies=self._overrides,
            cluster_override_policies=self._cluster_overrides,
            templates=self._templates,
            snapshots=self._placements.resource_snapshots,
        )
        works, namespaces, statuses = build_work_controllers(tools, caches)
        view = HubView(
            around.hub, around.clusters, self._works, around.events, around.clock, around.random
        )
        return {
            "works of bindings": works.run,
            "works of namespaces": namespaces.run,
            "statuses": statuses.run,
            "execution": Executors(view, self._reach).run,
        }
