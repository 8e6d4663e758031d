"""Every placement of either kind, kept as it is meant to be: select, pick, roll out, report.

    selectors ──> objects ──> snapshot ─┐
                                        ├──> rollout ──> bindings of the engine ──> (Works)
    policy ──> clusters ──> bindings ───┘                                              │
                                  ▲  status <── reports <──────────────────────────────┘

Each step reads what the one before it wrote, so whoever is killed in between is followed by one
that goes on. What cannot be seen is never taken for gone.
"""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.cluster_properties import (
    Properties,
    properties_of,
    reported_properties,
)
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.fleet_overrides import CLUSTER_SNAPSHOTS, placement_named_by
from clusterspace.apis.fleet_overrides import RESOURCE_SNAPSHOTS as OVERRIDE_SNAPSHOTS
from clusterspace.apis.fleet_placements import (
    API_VERSION,
    PLACEMENT_FINALIZER,
    PLACEMENT_STATUSES,
    SCHEDULER_FINALIZER,
    SCOPES,
    STATUS_KIND,
    abandons,
    generation_of,
    is_external,
    is_of,
    key_of_placement,
    owner_reference,
    parent_labels,
    parent_of,
    reports_only,
    scope_at,
    scope_of,
    status_namespace_of,
)
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    controller_uid_of,
    preserves_resources,
    template_of,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
    nothing,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, IndexKeys, Update
from clusterspace.errors import Forbidden, MalformedSelector, NotFound
from clusterspace.fleet.propagation.placements.overrides import OVERRIDE_INDEXES, spec_of
from clusterspace.fleet.propagation.placements.picking import (
    Member,
    goes_by_properties,
    member_of,
)
from clusterspace.fleet.propagation.placements.selection import Selector, read_selectors
from clusterspace.fleet.propagation.placements.staged_update_runs import KnownRuns
from clusterspace.fleet.propagation.placements.status import (
    STATUS_SYNCED,
    Summary,
    placement_status,
    with_condition,
    with_invalid_selectors,
)
from clusterspace.fleet.propagation.placements.steps import (
    ClusterPicker,
    KnownFleetBindings,
    PlacementWriter,
    ResourceSnapshots,
    Rollout,
    indexes_in_use,
)
from clusterspace.fleet.propagation.templates import PARENT_INDEX, TemplateInformers, users_part
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_finalizer,
    with_value,
    without_finalizer,
)
from clusterspace.kube.times import format_time

_log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 0.2
"""Objects change by the dozen, and clusters answer at about the same time: one look serves all."""

BEHIND_SECONDS: Final = 0.5
"""When to look again while a cache is behind."""

UNSEEN_SECONDS: Final = 5.0
"""When to ask again for what should be there and is not in any cache."""

_WITHDRAWING_SECONDS: Final = 5.0
"""When to look again for bindings on their way out, in case no event comes of the last one."""

_BY_NAME: Final = "name"
_STATUS_INDEX: Final[dict[str, IndexKeys]] = {_BY_NAME: lambda each: (name_of(each),)}

_NOT_YET: Final = "Yet"
"""How reasons end that tell of progress, and not of trouble."""


class PlacementController(Reconciler):
    """Compiles placements into the engine's bindings."""

    name = "placements"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        *,
        random: Random,
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._templates = caches.shared(TemplateInformers)
        self._placements = {each: caches.informer(each.placements) for each in SCOPES}
        self._owned = tuple(
            caches.informer(each, indexes=PARENT_INDEX)
            for scope in SCOPES
            for each in (scope.policy_snapshots, scope.resource_snapshots, scope.bindings)
        )
        self._engine_bindings = tuple(
            caches.informer(each, indexes=PARENT_INDEX)
            for each in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
        )
        self._works = caches.informer(WORKS, indexes=PARENT_INDEX)
        self._statuses = caches.informer(PLACEMENT_STATUSES, indexes=_STATUS_INDEX)
        self._clusters = caches.informer(CLUSTERS)
        self._member_clusters = caches.informer(MEMBER_CLUSTERS)
        self._override_snapshots = tuple(
            caches.informer(each, indexes=OVERRIDE_INDEXES)
            for each in (CLUSTER_SNAPSHOTS, OVERRIDE_SNAPSHOTS)
        )
        writer = PlacementWriter(hub, caches.shared(KnownFleetBindings))
        self._runs = caches.shared(KnownRuns)
        self._writer = writer
        self._snapshots = ResourceSnapshots(hub, caches, writer)
        self._picker = ClusterPicker(hub, caches, writer, clock)
        self._rollout = Rollout(caches, writer, clock, random=random)
        self._selectors: dict[str, tuple[Selector, ...]] = {}
        """Of each placement, as its spec was seen last.

        While it is empty no change concerns any placement, and the many that come at a start cost
        nothing. A placement that is listed after them is reconciled for itself, and reads them all.
        """
        self._by_properties: set[str] = set()
        """The placements to which properties of clusters matter: clusters report these often."""
        self._namespaces: dict[str, frozenset[str]] = {}
        """Of each placement, the namespaces whose content goes along."""

    def watches(self) -> Iterable[Watch]:
        """Return placements, what they own, and everything they select, pick and report on."""
        for placements in self._placements.values():
            yield Watch(placements, to=self.itself_selecting)
        for owned in self._owned:
            yield Watch(
                owned,
                to=placements_of,
                when=more_than_status_changed,
                settle_seconds=SETTLE_SECONDS,
            )
        yield Watch(self._statuses, to=placement_of_copy, when=was_deleted)
        for bindings in self._engine_bindings:
            yield Watch(bindings, to=self.placements_of_binding, settle_seconds=SETTLE_SECONDS)
        yield Watch(self._works, to=self.placements_of_work, settle_seconds=SETTLE_SECONDS)
        yield Watch(
            self._clusters,
            to=self.every_placement,
            when=may_change_picks,
            settle_seconds=SETTLE_SECONDS,
        )
        for reporting, read in (
            (self._clusters, properties_of),
            (self._member_clusters, reported_properties),
        ):
            yield Watch(
                reporting,
                to=self.placements_by_properties,
                when=partial(properties_changed, read),
                settle_seconds=SETTLE_SECONDS,
            )
        yield Watch(self._templates, to=self.placements_selecting, settle_seconds=SETTLE_SECONDS)
        for snapshots in self._override_snapshots:
            yield Watch(snapshots, to=self.placements_overridden, settle_seconds=SETTLE_SECONDS)
        for runs in self._runs.informers:  # snapshots that a run needs are kept
            yield Watch(runs, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Bring one placement to where it should be."""
        placement = self._placements[scope_at(request.key)].cache.find(request.key)
        if placement is None:
            self._namespaces.pop(request.key, None)
            return Done()
        if is_being_deleted(placement):
            return await self._withdraw(placement)
        # An object or a cluster that is missing from a cache would look as if it were gone.
        if not self._templates.has_synced or self._clusters.is_stale:
            return RequeueAfter(BEHIND_SECONDS)
        # The finalizers first: whatever comes of a placement can be withdrawn with it.
        desired = with_finalizer(
            with_finalizer(placement, PLACEMENT_FINALIZER), SCHEDULER_FINALIZER
        )
        path = resource_path_of(scope_of(placement).placements, placement)
        placement = await commit(self._hub, path, placement, desired)

        selection = await self._snapshots.select(placement)
        if selection is None:
            return RequeueAfter(UNSEEN_SECONDS)
        now = self._clock.now()
        if selection.problems:
            status = with_invalid_selectors(placement, selection.problems, now)
            await self._write_status(placement, status)
            return Done()
        self._namespaces[request.key] = selection.namespaces

        choice = await self._picker.pick(placement)
        in_use = indexes_in_use(choice.bindings.values()) | self._runs.indexes_for(request.key)
        snapshot = await self._snapshots.write(placement, selection, in_use)
        rolled = await self._rollout.roll(placement, choice, snapshot)
        views = [each for each in rolled.views if each.cluster in choice.picking.picked]
        index = str(snapshot.index)
        if is_external(placement):
            # What clusters have is what runs brought them, if all have the same.
            brought = {each.resource_index for each in views}
            index = brought.pop() if len(brought) == 1 else ""
        contents = snapshot.contents.get(int(index)) if index else None
        summary = Summary(
            picking=choice.picking,
            placement_type=choice.policy.type,
            clusters=views,
            selected=snapshot.selected(snapshot.latest if contents is None else contents),
            resource_index=index,
            is_external=is_external(placement),
            is_compared=reports_only(placement),
        )
        await self._write_status(placement, placement_status(placement, summary, self._clock.now()))
        return Done() if rolled.look_again is None else RequeueAfter(rolled.look_again)

    async def _write_status(self, placement: Object, status: Object) -> None:
        status = await self._tell_in_namespace(placement, status)
        path = resource_path_of(scope_of(placement).placements, placement)
        await commit(self._hub, path, placement, {**placement, "status": status})
        before = find_at(placement, "status", "conditions")
        for each in status["conditions"]:
            known = find_condition(before, each["type"]) or {}
            if (known.get("status"), known.get("reason")) == (each["status"], each["reason"]):
                continue
            is_on_its_way = str(each["reason"]).endswith(_NOT_YET)
            is_warning = each["status"] == FALSE and not is_on_its_way
            self._events.record(placement, each["reason"], each["message"], is_warning=is_warning)
            _log.info("placement condition changed", condition=each["type"], status=each["status"])

    async def _tell_in_namespace(self, placement: Object, status: Object) -> Object:
        """Write the status where users of the placed namespace read it, if they may.

        Return it with whether that worked. Copies in namespaces that are no longer selected go.
        """
        name, namespace = name_of(placement), status_namespace_of(placement)
        for each in self._statuses.cache.objects_at(_BY_NAME, name):
            is_ours = controller_uid_of(each) == uid_of(placement)
            if is_ours and namespace_of(each) != namespace:
                await self._writer.remove(PLACEMENT_STATUSES, each)
        if not namespace:
            return status
        condition = Condition(
            STATUS_SYNCED,
            TRUE,
            "StatusSyncSucceeded",
            f"the status is told in namespace {namespace}, too",
            generation_of(placement),
        )
        before = find_at(placement, "status", "conditions")
        synced = with_condition(status, condition, before, self._clock.now())
        metadata = {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [owner_reference(placement)],
        }
        head: Object = {"apiVersion": API_VERSION, "kind": STATUS_KIND}
        existing = await self._hub.find(ResourcePath(PLACEMENT_STATUSES, namespace, name))
        try:
            if existing is None:
                now = {"lastUpdatedTime": format_time(self._clock.now())}
                made = {**head, "metadata": metadata, "sourceStatus": synced, **now}
                await self._writer.create(PLACEMENT_STATUSES, made)
            elif controller_uid_of(existing) != uid_of(placement):
                raise Forbidden(f"{STATUS_KIND} {namespace}/{name} is somebody else's")
            elif existing.get("sourceStatus") != synced:
                now = {"lastUpdatedTime": format_time(self._clock.now())}
                changed = {**existing, "sourceStatus": synced, **now}
                await self._writer.change(PLACEMENT_STATUSES, existing, changed)
        except (NotFound, Forbidden) as error:
            # The namespace is not there, or not any more; the placement itself is not held up.
            why = f"the status is not told in namespace {namespace}: {error.message}"
            condition = Condition(
                STATUS_SYNCED, FALSE, "StatusSyncFailed", why, generation_of(placement)
            )
            return with_condition(status, condition, before, self._clock.now())
        return synced

    async def _withdraw(self, placement: Object) -> Result:
        """Take a placement's objects off the clusters, then let it go.

        bindings of the engine deleted ──gone──> snapshots, bindings to clusters ──> finalizers

        Everything is listed live: a binding that a cache has not seen yet would stay behind with
        its objects. The engine's bindings go first, because they hold what knows the clusters.
        """
        path = resource_path_of(scope_of(placement).placements, placement)
        live = await self._hub.find(path)
        if live is None or uid_of(live) != uid_of(placement) or not is_being_deleted(live):
            return Done()
        labels = parent_labels(key_of_placement(live))
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        of_placement = ListOptions(label_selector=selector)
        scope, namespace = scope_of(live), namespace_of(live)
        waits = False
        # A ResourcePlacement has none but in its own namespace.
        engine = (
            (RESOURCE_BINDINGS,) if namespace else (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
        )
        for resource in engine:
            place = ResourcePath(resource, namespace)
            for each in await self._hub.list_objects(place, of_placement):
                if not is_of(each, live):
                    continue
                waits = True
                if is_being_deleted(each):
                    continue
                if abandons(live) and not preserves_resources(each):
                    # Said before the deletion: after it, the Works are withdrawn as they are.
                    kept = with_value(each, True, "spec", "preserveResourcesOnDeletion")
                    await self._writer.change(resource, each, kept)
                await self._writer.remove(resource, each)
        if waits:
            return RequeueAfter(_WITHDRAWING_SECONDS)
        for resource in (scope.bindings, scope.resource_snapshots, scope.policy_snapshots):
            place = ResourcePath(resource, namespace)
            for each in await self._hub.list_objects(place, of_placement):
                if is_of(each, live):
                    await self._writer.remove(resource, each)
        for each in self._statuses.cache.objects_at(_BY_NAME, name_of(live)):
            if controller_uid_of(each) == uid_of(live):
                await self._writer.remove(PLACEMENT_STATUSES, each)
        freed = without_finalizer(without_finalizer(live, SCHEDULER_FINALIZER), PLACEMENT_FINALIZER)
        await commit(self._hub, path, live, freed)
        return Done()

    def itself_selecting(self, update: Update) -> Iterable[Request]:
        """Map a placement to itself, and remember what it selects."""
        before, after = update.decode_before(), update.decode_after()
        if after is None:
            self._selectors.pop(update.key, None)
            self._by_properties.discard(update.key)
        elif before is None or before.get("spec") != after.get("spec"):
            try:
                self._selectors[update.key] = read_selectors(after)
            except MalformedSelector:
                self._selectors[update.key] = ()  # the placement says so itself
            self._by_properties.discard(update.key)
            if goes_by_properties(find_at(after, "spec", "policy")):
                self._by_properties.add(update.key)
        return (request_for(update.key),) if more_than_status_changed(update) else ()

    def placements_of_binding(self, update: Update) -> Iterable[Request]:
        """Map a binding of the engine to the placement it is of, or that waited for its object."""
        if not self._selectors:
            return ()
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is None:
            # Its object is free now, and may be another placement's.
            about = template_of(before)
            kind, namespace = about.group_version_kind, about.namespace
            template = self._templates.find(kind, namespace, about.name)
            return {*placements_of(update), *self._selecting(namespace, template)}
        if more_than_status_changed(update) or _conditions(before) != _conditions(after):
            return placements_of(update)
        return ()

    def placements_of_work(self, update: Update) -> Iterable[Request]:
        """Map a Work to its placement, unless nothing but its spec changed, which we wrote."""
        if not self._selectors:
            return ()
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is not None:
            is_same_status = before.get("status") == after.get("status")
            if is_same_status and _marks(before) == _marks(after):
                return ()
        return placements_of(update)

    def placements_selecting(self, update: Update) -> Iterable[Request]:
        """Map a template that users changed to the placements that select it, or did."""
        if not self._selectors:
            return ()
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is not None and users_part(before) == users_part(after):
            return ()
        return self._selecting(update.key.rpartition("/")[0], before, after)

    def _selecting(self, namespace: str, *states: Object | None) -> Iterable[Request]:
        """Yield the placements that select an object, in any of its states."""
        known = [(each.get("apiVersion"), each.get("kind"), each) for each in states if each]
        for placement, selectors in self._selectors.items():
            own = placement.rpartition("/")[0]
            if own and own != namespace:
                continue
            is_inside = bool(namespace) and namespace in self._namespaces.get(placement, ())
            is_selected = any(
                (each.kind.api_version, each.kind.kind) == (api_version, kind) and each.means(state)
                for each in selectors
                for api_version, kind, state in known
            )
            if is_inside or is_selected:
                yield request_for(placement)

    def placements_overridden(self, update: Update) -> Iterable[Request]:
        """Map a snapshot of an override to the placement it names; one that names none to all."""
        states = (update.decode_before(), update.decode_after())
        namespace = update.key.rpartition("/")[0]
        named = {placement_named_by(spec_of(e), namespace) for e in states if e is not None}
        if None not in named:
            return [request_for(str(name)) for name in sorted(filter(None, named))]
        return self.every_placement(update)

    def placements_by_properties(self, _: Update) -> Iterable[Request]:
        """Map a change of properties to the placements that go by such."""
        return [request_for(key) for key in sorted(self._by_properties)]

    def every_placement(self, _: Update) -> Iterable[Request]:
        """Map a change to all placements."""
        return [request_for(key) for each in self._placements.values() for key in each.cache]


def placement_of_copy(update: Update) -> Iterable[Request]:
    """Map the copy of a status to the placement of its name."""
    return (request_for(update.key.rpartition("/")[2]),)


def was_deleted(update: Update) -> bool:
    """Whether an object is gone: what we wrote ourselves is no news."""
    return update.after is None


def wakes(was: Member | None, is_now: Member | None) -> bool:
    """Whether placements have to look at a cluster that changed from one state to another.

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


def may_change_picks(update: Update) -> bool:
    """Whether a change of a cluster may change where something is placed."""
    before, after = update.decode_before(), update.decode_after()
    was = None if before is None else member_of(before)
    return wakes(was, None if after is None else member_of(after))


def properties_changed(read: Callable[[Object], Properties], update: Update) -> bool:
    """Whether a cluster has other properties than before."""
    before, after = update.decode_before(), update.decode_after()
    return read(before or {}) != read(after or {})


def placements_of(update: Update) -> Iterable[Request]:
    """Map something that comes of a placement to it; both, if it changed hands."""
    states = (update.decode_before(), update.decode_after())
    names = {parent_of(each) for each in states if each is not None}
    return [request_for(name) for name in sorted(names) if name]


def _marks(kube_object: Object) -> tuple[object, ...]:
    metadata = metadata_of(kube_object)
    marks = ("labels", "annotations", "finalizers", "uid", "deletionTimestamp")
    return tuple(metadata.get(each) for each in marks)


def _conditions(binding: Object | None) -> list[tuple[object, ...]]:
    """Return type, status and message of a binding's conditions, to see whether they changed."""
    conditions: list[Object] = find_at(binding, "status", "conditions") or []
    return [(e.get("type"), e.get("status"), e.get("message")) for e in conditions]
