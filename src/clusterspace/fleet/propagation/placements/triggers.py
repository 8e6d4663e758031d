"""Which placements to look at again when something changed; and the controller that looks."""

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.bindings import template_of
from clusterspace.apis.fleet_placements import parent_of
from clusterspace.client.resources import Client
from clusterspace.controllers.background import Tasks
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Request, request_for
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.placements.members import Member, member_of
from clusterspace.fleet.propagation.placements.selection import Selector, read_selectors
from clusterspace.fleet.propagation.placements.sources import PlacementSources
from clusterspace.fleet.propagation.placements.upkeep import PlacementUpkeep
from clusterspace.fleet.propagation.templates import users_part
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.resources import GroupVersionResource

SETTLE_SECONDS: Final = 0.2
"""Objects change by the dozen, and clusters answer at about the same time: one look serves all."""


def placement_tasks(
    hub_client: Client,
    sources: PlacementSources,
    events: EventRecorder,
    *,
    clock: Clock,
    random: Random,
) -> Tasks:
    """Return what looks after all placements, their own informers among it."""
    upkeep = PlacementUpkeep(hub_client, sources, events, clock=clock, random=random)
    controller = Controller("placements", upkeep.reconcile, clock=clock, random=random)
    PlacementTriggers(sources, upkeep).connect(controller)
    own = sources.own
    return {
        "placements": own.placements.run,
        "policy snapshots": own.policy_snapshots.run,
        "resource snapshots": own.resource_snapshots.run,
        "bindings of placements": own.fleet_bindings.run,
        "placement upkeep": controller.run,
    }


class PlacementTriggers:
    """Finds the placements that something bears on."""

    def __init__(self, sources: PlacementSources, upkeep: PlacementUpkeep) -> None:
        self._sources = sources
        self._upkeep = upkeep
        self._selectors: dict[str, tuple[Selector, ...]] = {}

    def connect(self, controller: Controller) -> None:
        """Let a controller reconcile placements."""
        sources, own = self._sources, self._sources.own
        controller.watch(own.placements, self._placement_changed)
        for informer in (own.policy_snapshots, own.resource_snapshots, own.fleet_bindings):
            controller.watch(informer, _parent_of_stray, settle_seconds=SETTLE_SECONDS)
        for informer in (sources.bindings, sources.cluster_bindings):
            controller.watch(informer, self._binding_changed, settle_seconds=SETTLE_SECONDS)
        controller.watch(sources.works, self._work_changed, settle_seconds=SETTLE_SECONDS)
        controller.watch(sources.clusters, self._cluster_changed, settle_seconds=SETTLE_SECONDS)
        sources.templates.add_handler(
            lambda resource, update: self._template_changed(controller, resource, update)
        )

    def _placement_changed(self, update: Update) -> Iterable[Request]:
        before, after = update.decode_before(), update.decode_after()
        if after is None:
            self._selectors.pop(update.key, None)
        elif before is None or before.get("spec") != after.get("spec"):
            self._selectors[update.key] = _selectors_of(after)
        if before is not None and after is not None and _but_status(before) == _but_status(after):
            return ()
        return (request_for(update.key),)

    def _binding_changed(self, update: Update) -> Iterable[Request]:
        """Look at a placement when its binding strays, or an object it selects comes free."""
        if not self._selectors:
            return ()
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is None:
            return {*_parents(before), *self._waiting_for(before)}
        if before is None or after is None:
            return _parents(before, after)
        is_alike = _but_status(before) == _but_status(after)
        return () if is_alike and _noted(before) == _noted(after) else _parents(before, after)

    def _work_changed(self, update: Update) -> Iterable[Request]:
        """Look at the placement of a Work of which something new is known."""
        if not self._selectors:
            return ()
        before, after = update.decode_before(), update.decode_after()
        if before is None or after is None:
            return _parents(before, after)
        is_alike = before.get("status") == after.get("status") and _marks(before) == _marks(after)
        return () if is_alike else _parents(before, after)

    def _cluster_changed(self, update: Update) -> Iterable[Request]:
        before, after = update.decode_before(), update.decode_after()
        was = None if before is None else member_of(before)
        is_now = None if after is None else member_of(after)
        return self._all() if wakes(was, is_now) else ()

    def _template_changed(
        self, controller: Controller, resource: GroupVersionResource, update: Update
    ) -> None:
        if not self._selectors:
            return
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is not None and users_part(before) == users_part(after):
            return
        namespace = update.key.rpartition("/")[0]
        for request in self._selecting(namespace, before, after):
            controller.add(request, after_seconds=SETTLE_SECONDS)

    def _waiting_for(self, binding: Object) -> Iterable[Request]:
        """Find the placements that may have an object now that this binding of it is gone."""
        about = template_of(binding)
        kind, namespace = about.group_version_kind, about.namespace
        template = self._sources.templates.find(kind, namespace, about.name)
        return self._selecting(namespace, template)

    def _selecting(self, namespace: str, *states: Object | None) -> Iterable[Request]:
        """Find the placements that select an object, in any of its states."""
        for name, selectors in self._selectors.items():
            is_inside = namespace and namespace in self._upkeep.namespaces.get(name, ())
            if is_inside or any(_mean(selectors, each) for each in states):
                yield Request(name)

    def _all(self) -> list[Request]:
        return [request_for(key) for key in self._sources.own.placements.cache]


def wakes(was: Member | None, is_now: Member | None) -> bool:
    """Tell whether a change of a cluster may change where something is placed.

    A new taint, or health that is lost, drives nothing out; so nobody has to look.
    """
    if was is None or is_now is None:
        return was is not is_now
    is_better = (was.unready_since is not None and is_now.unready_since is None) or (
        is_now.has_reported and not was.has_reported
    )
    has_fewer_taints = any(taint not in is_now.taints for taint in was.taints)
    is_relabelled = was.labels != is_now.labels
    return is_better or has_fewer_taints or is_relabelled or was.is_leaving != is_now.is_leaving


def _selectors_of(placement: Object) -> tuple[Selector, ...]:
    try:
        return read_selectors(placement)
    except MalformedSelector:
        return ()  # the placement says so itself


def _mean(selectors: Iterable[Selector], template: Object | None) -> bool:
    if template is None:
        return False
    held = template.get("apiVersion"), template.get("kind")
    return any(
        (each.kind.api_version, each.kind.kind) == held and each.means(template)
        for each in selectors
    )


def _parent_of_stray(update: Update) -> Iterable[Request]:
    """Look at the placement of something of its own that is gone, or that somebody changed."""
    before, after = update.decode_before(), update.decode_after()
    if before is not None and after is not None and _but_status(before) == _but_status(after):
        return ()
    return _parents(before, after)


def _parents(*states: Object | None) -> Iterable[Request]:
    names = {parent_of(each) for each in states if each is not None}
    return [Request(name) for name in sorted(names) if name]


def _but_status(kube_object: Object) -> Any:
    return kube_object.get("spec"), _marks(kube_object)


def _marks(kube_object: Object) -> Any:
    metadata = metadata_of(kube_object)
    held = [metadata.get(each) for each in ("labels", "annotations", "finalizers", "uid")]
    return held, is_being_deleted(kube_object)


def _noted(binding: Object) -> Any:
    """Return what the engine notes of its own trouble."""
    conditions: list[Object] = find_at(binding, "status", "conditions") or []
    return [(e.get("type"), e.get("status"), e.get("message")) for e in conditions]
