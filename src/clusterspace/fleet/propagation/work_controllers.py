"""The controllers of Works, of namespaces and of statuses, each with what wakes it."""

from dataclasses import dataclass
from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.client.resources import Client
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer
from clusterspace.controllers.reconcile import Reconciler
from clusterspace.fleet.propagation.statuses import SETTLE_SECONDS, BindingStatuses, StatusSources
from clusterspace.fleet.propagation.works.binding_works import BindingWorks
from clusterspace.fleet.propagation.works.known_works import KnownWorks
from clusterspace.fleet.propagation.works.namespace_works import (
    NamespaceSources,
    NamespaceTriggers,
    NamespaceWorks,
    when_namespace_work_strays,
)
from clusterspace.fleet.propagation.works.revisions import Revisions
from clusterspace.fleet.propagation.works.sources import ClusterCredentials, Templates, WorkSources
from clusterspace.fleet.propagation.works.triggers import (
    BindingTriggers,
    when_more_than_status_changed,
    when_work_reports,
    when_work_strays,
)

WORKERS: Final = 16
"""Writes that may wait for the hub at once; more would only wait there."""


@dataclass(frozen=True, slots=True)
class WorkCaches:
    """What the three controllers read; somebody else runs the informers.

    bindings, cluster_bindings   with `works.triggers.BINDING_INDEXES`
    works                        with `works.known_works.WORK_INDEXES`
    override_policies            with `works.triggers.OVERRIDE_INDEXES`
    """

    bindings: Informer
    cluster_bindings: Informer
    works: Informer
    clusters: Informer
    namespaces: Informer
    override_policies: Informer
    cluster_override_policies: Informer
    templates: Templates
    snapshots: Informer | None = None
    """With `works.revisions.SNAPSHOT_INDEXES`; without it, placements are not served."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What every controller needs besides its caches."""

    hub_client: Client
    events: EventRecorder
    clock: Clock
    random: Random


def build_work_controllers(tools: Tools, caches: WorkCaches) -> tuple[Controller, ...]:
    """Return the controllers, ready to be run; each can run without the others."""
    known = KnownWorks(caches.works)
    return (
        works_controller(tools, caches, known),
        namespaces_controller(tools, caches, known),
        statuses_controller(tools, caches),
    )


def works_controller(tools: Tools, caches: WorkCaches, known: KnownWorks) -> Controller:
    """Return the controller that keeps the Works of bindings."""
    sources = WorkSources(
        bindings=caches.bindings,
        cluster_bindings=caches.cluster_bindings,
        clusters=caches.clusters,
        override_policies=caches.override_policies,
        cluster_override_policies=caches.cluster_override_policies,
        templates=caches.templates,
        works=known,
        credentials=ClusterCredentials(caches.clusters.cache),
        revisions=None if caches.snapshots is None else Revisions(caches.snapshots),
    )
    works = BindingWorks(tools.hub_client, sources, tools.events, clock=tools.clock)
    controller = _controller(tools, "works", works.reconcile)
    triggers = BindingTriggers(caches.bindings, caches.cluster_bindings)
    controller.watch(caches.bindings, when_more_than_status_changed)
    controller.watch(caches.cluster_bindings, when_more_than_status_changed)
    controller.watch(caches.works, when_work_strays)
    controller.watch(caches.clusters, triggers.when_cluster_changes)
    controller.watch(caches.override_policies, triggers.when_override_changes)
    controller.watch(caches.cluster_override_policies, triggers.when_override_changes)
    return controller


def namespaces_controller(tools: Tools, caches: WorkCaches, known: KnownWorks) -> Controller:
    """Return the controller that keeps the Works of namespaces."""
    sources = NamespaceSources(
        namespaces=caches.namespaces,
        clusters=caches.clusters,
        cluster_override_policies=caches.cluster_override_policies,
        works=known,
    )
    namespaces = NamespaceWorks(tools.hub_client, sources, tools.events)
    controller = _controller(tools, "namespaces", namespaces.reconcile)
    triggers = NamespaceTriggers(caches.namespaces)
    controller.watch(caches.namespaces)
    controller.watch(caches.works, when_namespace_work_strays)
    controller.watch(caches.clusters, triggers.when_cluster_changes)
    controller.watch(caches.cluster_override_policies, triggers.when_override_changes)
    return controller


def statuses_controller(tools: Tools, caches: WorkCaches) -> Controller:
    """Return the controller that shows what Works report."""
    sources = StatusSources(
        bindings=caches.bindings,
        cluster_bindings=caches.cluster_bindings,
        works=caches.works,
        clusters=caches.clusters,
        templates=caches.templates,
    )
    statuses = BindingStatuses(tools.hub_client, sources, tools.events, clock=tools.clock)
    controller = _controller(tools, "statuses", statuses.reconcile)
    for informer in (caches.bindings, caches.cluster_bindings):
        controller.watch(informer, when_more_than_status_changed, settle_seconds=SETTLE_SECONDS)
    controller.watch(caches.works, when_work_reports, settle_seconds=SETTLE_SECONDS)
    return controller


def _controller(tools: Tools, name: str, reconcile: Reconciler) -> Controller:
    return Controller(
        name,
        reconcile,
        clock=tools.clock,
        random=tools.random,
        settings=ControllerSettings(workers=WORKERS),
    )
