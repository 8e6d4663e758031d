"""Bindings to clusters moved on as the strategy allows, and handed to the engine.

What a cluster is to have is handed over only when its binding says so; what has become of it is
read from Works, and told on the binding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.bindings import resource_for
from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    Identity,
    generation_of,
    identity_of,
    is_external,
    is_of,
)
from clusterspace.apis.works import cluster_of as cluster_of_work
from clusterspace.apis.works import manifests_of
from clusterspace.client.resources import Client
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.propagation.claims import permanent_id
from clusterspace.fleet.propagation.placements.bindings import (
    cluster_of,
    rolled_out,
    snapshot_of,
    state_of,
    was_bound,
)
from clusterspace.fleet.propagation.placements.choosing import Choice
from clusterspace.fleet.propagation.placements.gathering import Gathered
from clusterspace.fleet.propagation.placements.handover import (
    Obstacle,
    Wish,
    merge_states,
    obstacle_to,
    stale_bindings,
    wanted_binding,
)
from clusterspace.fleet.propagation.placements.reports import (
    AVAILABLE,
    ClusterReport,
    cluster_conditions,
    failed_placements,
    report_cluster,
)
from clusterspace.fleet.propagation.placements.rollout import (
    Standing,
    Steps,
    plan_rollout,
    read_pace,
    read_period,
)
from clusterspace.fleet.propagation.placements.selection import NAMESPACE
from clusterspace.fleet.propagation.placements.snapshots import index_in, snapshot_name
from clusterspace.fleet.propagation.placements.sources import (
    Desk,
    KnownFleetBindings,
    PlacementSources,
    of_parent,
)
from clusterspace.fleet.propagation.placements.statuses import ROLLOUT_STARTED, ClusterView, exactly
from clusterspace.fleet.propagation.works.binding_works import WORKS_WRITTEN
from clusterspace.fleet.propagation.works.namespace_works import is_synced
from clusterspace.fleet.propagation.works.revisions import Contents
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of, uid_of
from clusterspace.kube.timestamps import format_time, parse_time

_EMPTY: Final[Contents] = {}


@dataclass(frozen=True, slots=True)
class Rolled:
    """What is told of every cluster, and when to look again although nothing happens."""

    views: tuple[ClusterView, ...]
    look_again: float | None = None


@dataclass(frozen=True, slots=True)
class _Scene:
    """A placement at one moment: what is wanted, and what is known of the engine's work on it."""

    placement: Object
    gathered: Gathered
    works: Mapping[str, Mapping[Identity, Object]]
    """By cluster."""
    obstacles: Mapping[Identity, str]
    problems: Mapping[Identity, str]

    def contents_of(self, binding: Object) -> Contents | None:
        """Return what a cluster is to have; None when nobody knows any more."""
        if not was_bound(binding):
            return _EMPTY
        index = index_in(snapshot_of(binding))
        return None if index is None else self.gathered.contents.get(index)

    def report(self, binding: Object) -> ClusterReport:
        """Return what became of it on the cluster."""
        works = self.works.get(cluster_of(binding), {})
        wanted = self.contents_of(binding) or _EMPTY
        return report_cluster(wanted, works, self.obstacles, self.problems)


class Rolling:
    """Rolls out what placements select to the clusters they picked."""

    def __init__(
        self,
        hub_client: Client,
        sources: PlacementSources,
        bindings: KnownFleetBindings,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._sources = sources
        self._desk = Desk(hub_client)
        self._bindings = bindings
        self._clock = clock
        self._random = random

    async def roll(self, placement: Object, choice: Choice, gathered: Gathered) -> Rolled:
        """Take the steps that may be taken now, and tell how far every cluster is."""
        scene = self._scene(placement, gathered)
        standings = [self._standing(scene, choice, each) for each in choice.bindings.values()]
        pace = read_pace(placement, len(choice.picking.picked))
        steps = Steps() if is_external(placement) else plan_rollout(standings, pace)
        bindings = await self._step(scene, choice.bindings, steps)
        await self._hand_over(scene, bindings)
        views = [await self._tell(scene, each, steps) for each in bindings.values()]
        return Rolled(tuple(views), self._look_again(scene, bindings))

    def _scene(self, placement: Object, gathered: Gathered) -> _Scene:
        works: dict[str, dict[Identity, Object]] = {}
        for work in of_parent(self._sources.works, name_of(placement)):
            for manifest in manifests_of(work):
                works.setdefault(cluster_of_work(work), {})[identity_of(manifest)] = work
        identities = {each for contents in gathered.contents.values() for each in contents}
        wishes = [self._wish(gathered, each, {}) for each in sorted(identities)]
        found = [self._obstacle(placement, gathered, each) for each in wishes]
        obstacles = {each.identity: each.message for each in found if each is not None}
        return _Scene(placement, gathered, works, obstacles, self._problems(placement))

    def _problems(self, placement: Object) -> dict[Identity, str]:
        """Return why the engine cannot hand objects to clusters, as it notes it on bindings."""
        found: dict[Identity, str] = {}
        for binding in self._engine_bindings(placement):
            conditions = find_at(binding, "status", "conditions")
            trouble = find_condition(conditions, WORKS_WRITTEN) or {}
            if trouble.get("status") == FALSE:
                reference: Object = find_at(binding, "spec", "resource") or {}
                about = identity_of({**reference, "metadata": reference})
                found[about] = str(trouble.get("message"))
        return found

    def _engine_bindings(self, placement: Object) -> list[Object]:
        sources, name = self._sources, name_of(placement)
        named = [*of_parent(sources.bindings, name), *of_parent(sources.cluster_bindings, name)]
        # The label alone is anybody's to write who may write bindings in some namespace.
        return [each for each in named if is_of(each, placement)]

    def _obstacle(self, placement: Object, gathered: Gathered, wish: Wish) -> Obstacle | None:
        present = self._find_present(wish)
        return obstacle_to(wish, placement, present, gathered.templates.get(wish.identity))

    def _find_present(self, wish: Wish) -> Object | None:
        informer = self._sources.bindings_of(wish.identity.namespace)
        return informer.cache.find(wish.place.key)

    def _wish(self, gathered: Gathered, identity: Identity, states: Mapping[str, str]) -> Wish:
        template = gathered.templates.get(identity)
        is_namespace = identity.group_version_kind == NAMESPACE
        # Namespaces of the hub are on every cluster; one that goes would take along what others
        # placed in it.
        keeps = is_namespace and (template is None or is_synced(template))
        return Wish(identity, states, uid_of(template or {}), keeps)

    def _standing(self, scene: _Scene, choice: Choice, binding: Object) -> Standing:
        cluster = cluster_of(binding)
        is_known = scene.contents_of(binding) is not None
        report = scene.report(binding)
        member = choice.members.get(cluster)
        latest = snapshot_name(name_of(scene.placement), scene.gathered.index)
        return Standing(
            cluster=cluster,
            state=state_of(binding),
            is_latest=is_known and snapshot_of(binding) == latest,
            is_ready=is_known and was_bound(binding) and self._is_ready(scene, binding, report),
            has_failed=not is_known or _has_failed(report),
            is_gone=member is None or member.is_leaving,
            was_bound=was_bound(binding),
        )

    def _is_ready(self, scene: _Scene, binding: Object, report: ClusterReport) -> bool:
        if not report.is_applied or report.unavailable:
            return False
        if report.is_trackable:
            return True
        since = _available_since(binding)
        period = read_period(scene.placement)
        return since is not None and self._clock.now() - since >= period

    async def _step(
        self, scene: _Scene, bindings: Mapping[str, Object], steps: Steps
    ) -> dict[str, Object]:
        """Write what was decided on the bindings; return those that are left."""
        written = dict(bindings)
        latest = snapshot_name(name_of(scene.placement), scene.gathered.index)
        for cluster in steps.removed:
            gone = written.pop(cluster)
            await self._desk.remove(FLEET_BINDINGS, gone)
            self._bindings.forget(gone)
        for cluster in steps.forward:
            before = written[cluster]
            stored = await self._desk.change(FLEET_BINDINGS, before, rolled_out(before, latest))
            self._bindings.note(stored)
            written[cluster] = stored
        return written

    async def _hand_over(self, scene: _Scene, bindings: Mapping[str, Object]) -> None:
        """Bring the engine's bindings to what each cluster is to have."""
        by_cluster = {name: scene.contents_of(each) for name, each in bindings.items()}
        known = {name: each for name, each in by_cluster.items() if each is not None}
        if len(known) < len(by_cluster):
            return  # what a cluster has is not known: nothing is taken from it
        wishes = [
            self._wish(scene.gathered, identity, states)
            for identity, states in merge_states(known).items()
            if identity not in scene.obstacles
        ]
        for wish in wishes:
            await self._hand_over_one(scene.placement, wish)
        present = self._engine_bindings(scene.placement)
        for stale in stale_bindings(wishes, scene.placement, present):
            await self._desk.remove(resource_for(namespace_of(stale)), stale)

    async def _hand_over_one(self, placement: Object, wish: Wish) -> None:
        present = self._find_present(wish)
        if present is not None and is_being_deleted(present):
            return  # an earlier one that is on its way out; its end is an event
        wanted = wanted_binding(wish, placement, present, permanent_id(self._random))
        if present is None:
            await self._desk.create(wish.place.resource, wanted)
        else:
            await self._desk.change(wish.place.resource, present, wanted)

    async def _tell(self, scene: _Scene, binding: Object, steps: Steps) -> ClusterView:
        """Write on a binding how far its cluster is."""
        report, generation = scene.report(binding), generation_of(binding)
        conditions: Sequence[Condition] = (
            _started(binding, steps, generation),
            *(cluster_conditions(report, generation) if was_bound(binding) else ()),
        )
        now = self._clock.now()
        held: Object = binding.get("status") or {}
        told = exactly(held.get("conditions"), conditions, now)
        applied = find_condition(told, "Applied") or {}
        failed = failed_placements(
            report, str(applied.get("lastTransitionTime") or format_time(now))
        )
        status: Object = {"conditions": told, **({"failedPlacements": failed} if failed else {})}
        stored = await self._desk.change(FLEET_BINDINGS, binding, {**binding, "status": status})
        self._bindings.note(stored)
        index = index_in(snapshot_of(binding))
        shown = "" if index is None else str(index)
        return ClusterView(cluster_of(binding), tuple(conditions), shown, failed)

    def _look_again(self, scene: _Scene, bindings: Mapping[str, Object]) -> float | None:
        """Return when an object that cannot tell will count as available."""
        period, now = read_period(scene.placement), self._clock.now()
        waits: list[float] = []
        for each in bindings.values():
            report = scene.report(each)
            if report.is_trackable or not report.is_applied or not was_bound(each):
                continue
            since = _available_since(each) or now
            if since + period > now:
                waits.append(since + period - now)
        return min(waits, default=None)


def _available_since(binding: Object) -> float | None:
    held = find_condition(find_at(binding, "status", "conditions"), AVAILABLE) or {}
    since = held.get("lastTransitionTime")
    return parse_time(str(since)) if since and held.get("status") == TRUE else None


def _has_failed(report: ClusterReport) -> bool:
    is_useless = report.is_applied and bool(report.unavailable)
    return bool(report.failed or report.sync_problem) or is_useless


def _started(binding: Object, steps: Steps, generation: int) -> Condition:
    if cluster_of(binding) not in steps.blocked and was_bound(binding):
        message = "the newest state is rolled out to the cluster"
        return Condition(ROLLOUT_STARTED, TRUE, "RolloutStarted", message, generation)
    message = "the cluster waits until enough others are available"
    return Condition(ROLLOUT_STARTED, FALSE, "RolloutNotStartedYet", message, generation)
