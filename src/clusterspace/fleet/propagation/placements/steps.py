"""The steps of a placement: each reads, decides and writes, and can be repeated.

    ClusterPicker      policy to snapshot to clusters to bindings
    ResourceSnapshots  selectors to objects to snapshot
    Rollout            bindings moved on as the strategy allows, and handed to the engine

The decisions are in the modules beside this one, and know nothing of a hub.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.envelopes import opened
from clusterspace.apis.fleet_placements import (
    POLICY_INDEX,
    RESOURCE_INDEX,
    SCOPES,
    UNSCHEDULED,
    ResourceIdentifier,
    generation_of,
    identity_of,
    is_external,
    is_of,
    key_of_placement,
    manifest_hash,
    reports_only,
    scope_of,
)
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    manifests_of,
    preserves_resources,
    resource_for,
    template_of,
)
from clusterspace.apis.works import cluster_of as cluster_of_work
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.informers import HubCaches, OwnWrites
from clusterspace.errors import AlreadyExists, Conflict, MalformedSelector, NotFound
from clusterspace.fleet.propagation.bindings import OVERRIDE_FAILED, WORKS_WRITTEN, permanent_id
from clusterspace.fleet.propagation.placements.overrides import (
    ClusterOverrides,
    KnownOverrides,
    overridden_contents,
    overrides_of,
    plan_overrides,
    relevant_overrides,
)
from clusterspace.fleet.propagation.placements.picking import (
    Fleet,
    KnownMembers,
    Member,
    Picking,
    PickPolicy,
    member_of,
    pick,
    read_pick_policy,
)
from clusterspace.fleet.propagation.placements.rollout import (
    ClusterProgress,
    PlacedObject,
    Steps,
    cluster_of,
    current_picks,
    desired_binding,
    merge_states,
    obstacle_to,
    plan_bindings,
    plan_rollout,
    read_pace,
    read_period,
    rolled_out,
    snapshot_of,
    stale_bindings,
    state_of,
    was_bound,
)
from clusterspace.fleet.propagation.placements.selection import (
    NAMESPACE,
    NAMESPACES,
    Selection,
    history_limit,
    index_in,
    manifest_of,
    outdated,
    plan_policy_snapshot,
    plan_resource_snapshot,
    read_selectors,
    select,
    snapshot_name,
    still_means,
)
from clusterspace.fleet.propagation.placements.status import (
    AVAILABLE,
    ROLLOUT_STARTED,
    ClusterReport,
    ClusterView,
    cluster_conditions,
    diffed_placements,
    drifted_placements,
    exactly,
    failed_placements,
    report_cluster,
    scheduled_condition,
    with_envelopes,
)
from clusterspace.fleet.propagation.templates import (
    BY_PARENT,
    PARENT_INDEX,
    Contents,
    Revisions,
    TemplateInformers,
    is_on_every_cluster,
)
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time, parse_time

_EMPTY: Final[Contents] = {}
_STARTED: Final = "the newest state is rolled out to the cluster"
_NOT_STARTED: Final = "the cluster waits until enough others are available"
_NO_RUN: Final = "no update run has brought it anything yet"


def indexes_in_use(bindings: Iterable[Object]) -> frozenset[int]:
    """Return the numbers of the resource snapshots that bindings name."""
    indexes = (index_in(snapshot_of(each)) for each in bindings)
    return frozenset(each for each in indexes if each is not None)


class KnownFleetBindings:
    """The bindings of placements to clusters, our own latest writes included.

    Who went by a cache that has not seen the last rollout yet would take it back.
    """

    def __init__(self, caches: HubCaches) -> None:
        self._known = {
            each.bindings: OwnWrites(caches.informer(each.bindings, indexes=PARENT_INDEX))
            for each in SCOPES
        }

    def of(self, placement: Object) -> dict[str, Object]:
        """Return the bindings of a placement, by cluster."""
        known = self._known[scope_of(placement).bindings]
        bindings = known.objects_at(BY_PARENT, key_of_placement(placement))
        return {cluster_of(each): each for each in bindings if is_of(each, placement)}

    def find_for(self, resource: GroupVersionResource) -> OwnWrites | None:
        """Return where writes of such objects are noted; None if they are no such bindings."""
        return self._known.get(resource)


class PlacementWriter:
    """Writes what comes of placements; a write that somebody was faster with is a Conflict."""

    def __init__(self, hub: Client, fleet_bindings: KnownFleetBindings) -> None:
        self._hub = hub
        self.fleet_bindings = fleet_bindings

    async def find(self, path: ResourcePath) -> Object | None:
        """Read an object live, before something is done for good because it is not there."""
        return await self._hub.find(path)

    async def create(self, resource: GroupVersionResource, desired: Object) -> Object:
        """Create an object; one that is there already was made by us, and is on its way to us."""
        path = resource_path_of(resource, desired)
        try:
            stored = await self._hub.create(path.collection, desired)
        except AlreadyExists as error:
            raise Conflict(f"{path} is there already") from error
        if known := self.fleet_bindings.find_for(resource):
            known.note(stored)
        return stored

    async def change(self, resource: GroupVersionResource, before: Object, after: Object) -> Object:
        """Write what is different, if anything is."""
        stored = await commit(self._hub, resource_path_of(resource, before), before, after)
        if known := self.fleet_bindings.find_for(resource):
            known.note(stored)
        return stored

    async def remove(self, resource: GroupVersionResource, existing: Object) -> None:
        """Delete exactly this object."""
        try:
            path = resource_path_of(resource, existing)
            await self._hub.delete(path, DeleteOptions(uid=uid_of(existing)))
        except NotFound:
            pass
        if known := self.fleet_bindings.find_for(resource):
            known.note_deleted(existing)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which clusters a placement has, and its bindings to them and to those it is leaving."""

    picking: Picking
    policy: PickPolicy
    bindings: Mapping[str, Object]
    members: Mapping[str, Member]


class ClusterPicker:
    """Picks the clusters of placements, and writes down which and why.

    A cluster loses a placement only after a live read of that cluster: one that is missing from a
    cache has not left.
    """

    def __init__(
        self, hub: Client, caches: HubCaches, writer: PlacementWriter, clock: Clock
    ) -> None:
        self._hub = hub
        self._writer = writer
        self._clock = clock
        self._policy_snapshots = {
            each: caches.informer(each.policy_snapshots, indexes=PARENT_INDEX) for each in SCOPES
        }
        self._members = caches.shared(KnownMembers)

    async def pick(self, placement: Object) -> Choice:
        """Pick clusters: snapshot the policy, decide, write bindings, say why."""
        scope = scope_of(placement)
        snapshot = await self._write_snapshot(placement)
        policy = read_pick_policy(find_at(placement, "spec", "policy"))
        bindings = self._writer.fleet_bindings.of(placement)
        current = current_picks(placement, name_of(snapshot), bindings)
        members = self._members.members()
        picking = pick(policy, Fleet(members, self._clock.now()), current)
        lost = {
            cluster
            for cluster, each in bindings.items()
            if cluster not in picking.picked and state_of(each) != UNSCHEDULED
        }
        if lost:
            # The cache does not know these, or knows them as unfit. It may be behind.
            found = {name: await self._hub.find(ResourcePath(CLUSTERS, "", name)) for name in lost}
            live = {name: member_of(each) for name, each in found.items() if each is not None}
            others = {name: each for name, each in members.items() if name not in lost}
            members = {**others, **live}
            picking = pick(policy, Fleet(members, self._clock.now()), current)

        # Killed among these, the rest follows at the next attempt: what is picked already counts as
        # picked by this policy, so the choice comes out the same.
        written = dict(bindings)
        for change in plan_bindings(placement, picking, name_of(snapshot), bindings):
            if change.before is None:
                stored = await self._writer.create(scope.bindings, change.after)
            else:
                stored = await self._writer.change(scope.bindings, change.before, change.after)
            written[change.cluster] = stored

        status: Object = snapshot.get("status") or {}
        condition = scheduled_condition(picking, generation_of(snapshot))
        decided = {
            **status,
            "observedCRPGeneration": generation_of(placement),
            "conditions": exactly(status.get("conditions"), [condition], self._clock.now()),
            "targetClusters": [each.to_object() for each in picking.decisions],
        }
        decided_on = {**snapshot, "status": decided}
        await self._writer.change(scope.policy_snapshots, snapshot, decided_on)
        return Choice(picking, policy, written, members)

    async def _write_snapshot(self, placement: Object) -> Object:
        resource = scope_of(placement).policy_snapshots
        cache = self._policy_snapshots[scope_of(placement)].cache
        cached = cache.objects_at(BY_PARENT, key_of_placement(placement))
        existing = [each for each in cached if is_of(each, placement)]
        plan = plan_policy_snapshot(placement, existing)
        latest = plan.latest
        for each in plan.new:
            latest = await self._writer.create(resource, each)
        for before, after in plan.changed:
            stored = await self._writer.change(resource, before, after)
            latest = stored if after is plan.latest else latest
        limit = history_limit(placement)
        for each in outdated(existing, POLICY_INDEX, limit, frozenset({plan.index})):
            await self._writer.remove(resource, each)
        return latest


@dataclass(frozen=True, slots=True)
class SelectedResources:
    """What a placement selects now, and every state of it that is in a snapshot."""

    templates: Mapping[ResourceIdentifier, Object]
    index: int
    contents: Mapping[int, Contents]
    """By number of the snapshot; the newest is at `index`."""
    envelopes: Mapping[ResourceIdentifier, ResourceIdentifier]
    """Which envelope objects are in, that are in one."""

    @property
    def latest(self) -> Contents:
        """The objects selected now, each with its state."""
        return self.contents[self.index]

    def selected(self, contents: Contents) -> list[ResourceIdentifier]:
        """Return the objects of the hub that contents come of: envelopes, and not what is in."""
        return list(dict.fromkeys(self.envelopes.get(each, each) for each in contents))


class ResourceSnapshots:
    """Keeps what placements select in snapshots."""

    def __init__(self, hub: Client, caches: HubCaches, writer: PlacementWriter) -> None:
        self._hub = hub
        self._writer = writer
        self._templates = caches.shared(TemplateInformers)
        self._snapshots = {
            each: caches.informer(each.resource_snapshots, indexes=PARENT_INDEX) for each in SCOPES
        }
        self._revisions = caches.shared(Revisions)

    async def select(self, placement: Object) -> Selection | None:
        """Return the selected objects, or None while they cannot be told yet.

        An object goes from a placement only when the hub itself says that it is gone or no longer
        selected: one that was in the last snapshot and is missing from a cache is read live.
        """
        try:
            selectors = read_selectors(placement)
        except MalformedSelector as error:
            return Selection(problems=(error.message,))
        selection = select(selectors, self._templates, namespace_of(placement))
        if selection.problems:
            return selection
        contents = self._revisions.contents(key_of_placement(placement))
        known: Contents = contents[max(contents)] if contents else {}
        envelopes = self._revisions.envelopes(key_of_placement(placement))
        for missing in sorted(known.keys() - selection.identities()):
            # Of what came in an envelope that envelope is asked for: it is no object of the hub.
            identity = envelopes.get(missing, missing)
            info = self._templates.find_info(identity.group_version_kind)
            if info is None:
                return None  # a kind that cannot be seen: what was placed of it stays
            path = ResourcePath(info.group_version_resource, identity.namespace, identity.name)
            live = await self._hub.find(path)
            if live is None or not still_means(selectors, live, selection):
                continue
            if missing in map(identity_of, opened(live)):
                return None
        return selection

    async def write(
        self, placement: Object, selection: Selection, in_use: frozenset[int]
    ) -> SelectedResources:
        """Write a snapshot of what is selected, if it is not what was selected last."""
        manifests = [manifest_of(each) for each in selection.templates]
        resource = scope_of(placement).resource_snapshots
        cache = self._snapshots[scope_of(placement)].cache
        cached = cache.objects_at(BY_PARENT, key_of_placement(placement))
        existing = [each for each in cached if is_of(each, placement)]
        altered = frozenset(self._revisions.altered(key_of_placement(placement)))
        plan = plan_resource_snapshot(placement, manifests, existing, altered)
        # New snapshots first, the master among them last; then the labels of the old ones. Killed
        # anywhere in between, the master with the highest number is the one that counts.
        for each in plan.new:
            await self._writer.create(resource, each)
        for before, after in plan.changed:
            await self._writer.change(resource, before, after)
        # A snapshot that some cluster still has is what its objects are compared with; without it
        # nobody could tell what to take back from there.
        kept = in_use | {plan.index}
        for each in outdated(existing, RESOURCE_INDEX, history_limit(placement), kept):
            await self._writer.remove(resource, each)
        placed = [each for manifest in manifests for each in opened(manifest)]
        latest = {identity_of(each): manifest_hash(each) for each in placed}
        contents = {**self._revisions.contents(key_of_placement(placement)), plan.index: latest}
        enveloped = {
            **self._revisions.envelopes(key_of_placement(placement)),
            **selection.envelopes(),
        }
        return SelectedResources(selection.placed(), plan.index, contents, enveloped)


@dataclass(frozen=True, slots=True)
class RolledOut:
    """What is reported of every cluster, and when to look again although nothing happens."""

    views: tuple[ClusterView, ...]
    look_again: float | None = None


@dataclass(frozen=True, slots=True)
class _Observed:
    """A placement at one moment: what is desired, and what is known of the engine's work on it."""

    placement: Object
    resources: SelectedResources
    works: Mapping[str, Mapping[ResourceIdentifier, Object]]
    """By cluster."""
    obstacles: Mapping[ResourceIdentifier, str]
    problems: Mapping[ResourceIdentifier, str]
    """Why the engine cannot hand objects to clusters, as it notes on its bindings."""
    overrides: KnownOverrides
    labels: Mapping[str, Mapping[str, str]]
    """Of clusters, by which overrides are for them."""
    latest_snapshots: Sequence[Object]
    """Of the overrides that are about something of this placement."""
    override_problems: Mapping[ResourceIdentifier, str]
    """Why overrides cannot be applied, each cluster named."""
    ended: frozenset[str] = frozenset()
    """Namespaces in older snapshots that were deleted: nothing of them can be handed over."""

    @property
    def latest_snapshot(self) -> str:
        """The name of the newest snapshot."""
        return snapshot_name(name_of(self.placement), self.resources.index)

    def contents_of(self, binding: Object) -> Contents | None:
        """Return the objects a cluster is to have; None when their snapshot is gone."""
        if not was_bound(binding):
            return _EMPTY
        index = index_in(snapshot_of(binding))
        contents = None if index is None else self.resources.contents.get(index)
        overrides = overrides_of(binding)
        if contents is None or not overrides.keys:
            return contents
        snapshots = self.overrides.find_all(overrides.keys)
        if snapshots is None:
            return None
        return overridden_contents(contents, snapshots, self.labels_of(binding))

    def labels_of(self, binding: Object) -> Mapping[str, str]:
        """Return the labels of the binding's cluster."""
        return self.labels.get(cluster_of(binding), {})

    def latest_overrides(self, binding: Object) -> ClusterOverrides:
        """Return the overrides that the binding's cluster would have if it were rolled out now."""
        return plan_overrides(self.latest_snapshots, self.labels_of(binding))

    def is_latest(self, binding: Object) -> bool:
        """Whether the binding's cluster is to have the newest state of everything."""
        is_newest = snapshot_of(binding) == self.latest_snapshot
        return is_newest and overrides_of(binding) == self.latest_overrides(binding)

    def is_lost(self, identity: ResourceIdentifier) -> bool:
        """Whether an object went with its namespace, and is only in an older snapshot any more."""
        return identity.namespace in self.ended and identity not in self.resources.templates

    def report(self, binding: Object) -> ClusterReport:
        """Return the report about the binding's cluster."""
        works = self.works.get(cluster_of(binding), {})
        desired = self.contents_of(binding) or _EMPTY
        own = f"{cluster_of(binding)}: "
        failed = {key: each for key, each in self.override_problems.items() if own in each}
        return report_cluster(
            desired,
            works,
            self.obstacles,
            self.problems,
            failed,
            is_compared=reports_only(self.placement),
        )


class Rollout:
    """Rolls out what placements select to the clusters they picked.

    What a cluster is to have is handed over only when its binding says so; what has become of it
    is read from Works, and reported on the binding.
    """

    def __init__(
        self, caches: HubCaches, writer: PlacementWriter, clock: Clock, *, random: Random
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._random = random
        self._bindings = caches.informer(RESOURCE_BINDINGS, indexes=PARENT_INDEX)
        self._cluster_bindings = caches.informer(CLUSTER_RESOURCE_BINDINGS, indexes=PARENT_INDEX)
        self._works = caches.informer(WORKS, indexes=PARENT_INDEX)
        self._overrides = caches.shared(KnownOverrides)

    async def roll(
        self, placement: Object, choice: Choice, resources: SelectedResources
    ) -> RolledOut:
        """Take the steps that may be taken now, and report how far every cluster is."""
        resource = scope_of(placement).bindings
        labels = {name: each.labels for name, each in choice.members.items()}
        observed = self._observe(placement, resources, labels)
        older = {
            each.namespace
            for binding in choice.bindings.values()
            for each in observed.contents_of(binding) or _EMPTY
            if each.namespace and each not in resources.templates
        }
        ended = {each for each in sorted(older) if await self._has_ended(each)}
        observed = replace(observed, ended=frozenset(ended))
        progress = [self._progress(observed, choice, each) for each in choice.bindings.values()]
        pace = read_pace(placement, len(choice.picking.picked))
        if is_external(placement):
            # An update run moves clusters on, and lets go of those that are picked no longer: all
            # but those that have nothing, or are gone themselves.
            idle = (
                e for e in progress if e.state == UNSCHEDULED and (e.is_gone or not e.was_bound)
            )
            steps = Steps(removed=tuple(each.cluster for each in idle))
        else:
            steps = plan_rollout(progress, pace)
        bindings = dict(choice.bindings)
        for cluster in steps.removed:
            await self._writer.remove(resource, bindings.pop(cluster))
        for cluster in steps.forward:
            before = bindings[cluster]
            overrides = observed.latest_overrides(before)
            after = rolled_out(before, observed.latest_snapshot, overrides)
            bindings[cluster] = await self._writer.change(resource, before, after)
        # Killed here, the bindings say what each cluster is to have and the engine does not know.
        # The next attempt hands over by the bindings, so nothing is rolled out twice or skipped.
        await self._hand_over(observed, bindings)
        views = [await self._report(observed, each, steps) for each in bindings.values()]

        # Objects that cannot say so themselves count as available after a while.
        period, now = read_period(placement), self._clock.now()
        waits: list[float] = []
        for each in bindings.values():
            report = observed.report(each)
            if report.is_trackable or not report.is_applied or not was_bound(each):
                continue
            since = _available_since(each) or now
            if since + period > now:
                waits.append(since + period - now)
        return RolledOut(tuple(views), min(waits, default=None))

    def _observe(
        self,
        placement: Object,
        resources: SelectedResources,
        labels: Mapping[str, Mapping[str, str]],
    ) -> _Observed:
        works: dict[str, dict[ResourceIdentifier, Object]] = {}
        for work in self._works.cache.objects_at(BY_PARENT, key_of_placement(placement)):
            for manifest in manifests_of(work):
                works.setdefault(cluster_of_work(work), {})[identity_of(manifest)] = work
        obstacles: dict[ResourceIdentifier, str] = {}
        for identity in sorted({each for known in resources.contents.values() for each in known}):
            placed, template = _placed(resources, identity, {}), resources.templates.get(identity)
            obstacle = obstacle_to(placed, placement, self._find_existing(placed), template)
            if obstacle is not None:
                obstacles[obstacle.identity] = obstacle.message
        problems: dict[ResourceIdentifier, str] = {}
        override_problems: dict[ResourceIdentifier, str] = {}
        for binding in self._engine_bindings(placement):
            conditions = find_at(binding, "status", "conditions")
            condition = find_condition(conditions, WORKS_WRITTEN) or {}
            if condition.get("status") == FALSE:
                reference: Object = find_at(binding, "spec", "resource") or {}
                about = identity_of({**reference, "metadata": reference})
                is_override = condition.get("reason") == OVERRIDE_FAILED
                known = override_problems if is_override else problems
                known[about] = str(condition.get("message"))
        return _Observed(
            placement,
            resources,
            works,
            obstacles,
            problems,
            self._overrides,
            labels,
            relevant_overrides(
                key_of_placement(placement), resources.latest, self._overrides.latest()
            ),
            override_problems,
        )

    def _engine_bindings(self, placement: Object) -> list[Object]:
        informers = (self._bindings, self._cluster_bindings)
        # The label alone is anybody's to write who may write bindings in some namespace.
        return [
            each
            for informer in informers
            for each in informer.cache.objects_at(BY_PARENT, key_of_placement(placement))
            if is_of(each, placement)
        ]

    def _find_existing(self, placed: PlacedObject) -> Object | None:
        """Return the engine's binding of an object, whoever made it."""
        informer = self._bindings if placed.identity.namespace else self._cluster_bindings
        return informer.cache.find(placed.path.key)

    def _progress(self, observed: _Observed, choice: Choice, binding: Object) -> ClusterProgress:
        report = observed.report(binding)
        is_known = observed.contents_of(binding) is not None
        is_bound = was_bound(binding)
        is_through = report.is_reported if report.is_compared else report.is_applied
        is_ready = is_known and is_bound and is_through and not report.unavailable
        if is_ready and not report.is_trackable:
            since, period = _available_since(binding), read_period(observed.placement)
            is_ready = since is not None and self._clock.now() - since >= period
        is_useless = report.is_applied and bool(report.unavailable)
        # What went with its namespace comes back nowhere: a cluster that is to have it would wait
        # for ever to be ready, and the others for it.
        has_lost = any(map(observed.is_lost, observed.contents_of(binding) or _EMPTY))
        is_refused = bool(report.failed or report.sync_problem or report.override_problem)
        has_failed = is_refused or is_useless or has_lost
        member = choice.members.get(cluster_of(binding))
        return ClusterProgress(
            cluster=cluster_of(binding),
            state=state_of(binding),
            is_latest=is_known and observed.is_latest(binding),
            is_ready=is_ready,
            has_failed=has_failed or not is_known,
            is_gone=member is None or member.is_leaving,
            was_bound=is_bound,
        )

    async def _hand_over(self, observed: _Observed, bindings: Mapping[str, Object]) -> None:
        """Bring the engine's bindings to what each cluster is to have."""
        by_cluster = {name: observed.contents_of(each) for name, each in bindings.items()}
        known = {name: each for name, each in by_cluster.items() if each is not None}
        if len(known) < len(by_cluster):
            return  # what a cluster has is not known: nothing is taken from it
        placement = observed.placement
        desired = [
            _placed(observed.resources, identity, states)
            for identity, states in merge_states(known).items()
            if identity not in observed.obstacles and not observed.is_lost(identity)
        ]
        # First what is to be somewhere, then away with what is to be nowhere: a snapshot that
        # renames an object brings the new one before it takes the old one.
        lost = ""
        for each in desired:
            placed = each
            is_selected = each.identity in observed.resources.templates
            if each.keeps and not is_selected and await self._has_ended(each.identity.name):
                placed = replace(each, keeps=False)
            existing = self._find_existing(placed)
            # Other placements are handed over at the same time. An object that was free when this
            # one was observed may have become theirs since: writing their binding as ours would
            # leave it with the label of one and the owner of another, and nobody's.
            template = observed.resources.templates.get(placed.identity)
            obstacle = obstacle_to(placed, placement, existing, template)
            if obstacle is not None:
                lost = lost or f"{placed.path.key}: {obstacle.message}"
                continue
            if existing is not None and is_being_deleted(existing):
                continue  # an earlier one that is on its way out; its end wakes us
            new_id = permanent_id(self._random)
            binding = desired_binding(placed, placement, existing, new_id)
            if existing is None:
                await self._writer.create(placed.path.resource, binding)
            else:
                await self._writer.change(placed.path.resource, existing, binding)
        for stale in stale_bindings(desired, placement, self._engine_bindings(placement)):
            resource, left = resource_for(namespace_of(stale)), stale
            about = template_of(stale)
            is_namespace = about.group_version_kind == NAMESPACE
            if is_namespace and preserves_resources(stale) and await self._has_ended(about.name):
                left = with_value(stale, False, "spec", "preserveResourcesOnDeletion")
            await self._writer.remove(resource, await self._writer.change(resource, stale, left))
        if lost:
            raise Conflict(lost)  # observed anew, it is an obstacle that the status tells of

    async def _has_ended(self, namespace: str) -> bool:
        """Ask the hub whether a namespace is gone, and not merely selected no longer.

        One that is still there stays on clusters, where policies need it. One that was deleted
        goes from them with its binding, unless they have something in it that is not ours.
        """
        live = await self._writer.find(ResourcePath(NAMESPACES, "", namespace))
        return live is None or is_being_deleted(live)

    async def _report(self, observed: _Observed, binding: Object, steps: Steps) -> ClusterView:
        """Write on a binding how far its cluster is."""
        report, generation = observed.report(binding), generation_of(binding)
        overrides = overrides_of(binding)
        is_started = cluster_of(binding) not in steps.blocked and was_bound(binding)
        why_not = _NO_RUN if is_external(observed.placement) else _NOT_STARTED
        started = Condition(
            ROLLOUT_STARTED,
            TRUE if is_started else FALSE,
            "RolloutStarted" if is_started else "RolloutNotStartedYet",
            _STARTED if is_started else why_not,
            generation,
        )
        conditions: Sequence[Condition] = (
            started,
            *(cluster_conditions(report, generation, overrides) if was_bound(binding) else ()),
        )
        now = self._clock.now()
        before: Object = binding.get("status") or {}
        shown = exactly(before.get("conditions"), conditions, now)
        applied = find_condition(shown, "Applied") or {}
        since = str(applied.get("lastTransitionTime") or format_time(now))
        envelopes = observed.resources.envelopes
        failed = with_envelopes(failed_placements(report, since), envelopes)
        diffed = with_envelopes(diffed_placements(report), envelopes)
        drifted = with_envelopes(drifted_placements(report), envelopes)
        listed = {
            "failedPlacements": failed,
            "diffedPlacements": diffed,
            "driftedPlacements": drifted,
        }
        status: Object = {"conditions": shown, **{k: v for k, v in listed.items() if v}}
        resource = scope_of(observed.placement).bindings
        await self._writer.change(resource, binding, {**binding, "status": status})
        index = index_in(snapshot_of(binding))
        observed_index = "" if index is None else str(index)
        return ClusterView(
            cluster_of(binding),
            tuple(conditions),
            observed_index,
            failed,
            overrides,
            diffed,
            drifted,
        )


def _placed(
    resources: SelectedResources, identity: ResourceIdentifier, states: Mapping[str, str]
) -> PlacedObject:
    template = resources.templates.get(identity)
    is_namespace = identity.group_version_kind == NAMESPACE
    # Namespaces of the hub are on every cluster; one that goes would take along what others
    # placed in it.
    keeps = is_namespace and (template is None or is_on_every_cluster(template))
    return PlacedObject(identity, states, uid_of(template or {}), keeps)


def _available_since(binding: Object) -> float | None:
    condition = find_condition(find_at(binding, "status", "conditions"), AVAILABLE) or {}
    since = condition.get("lastTransitionTime")
    return parse_time(str(since)) if since and condition.get("status") == TRUE else None
