"""Every staged update run, from its initialization to its end.

    run ──initialized──> stages in its status ──state: Run──> bindings to clusters, stage by stage

A run writes which snapshot each cluster's binding names and nothing else: the PlacementController
hands it to the engine, and reports on the binding what became of it, which this one waits for. So a
run may be killed anywhere: whoever follows finds in the bindings how far it got.

Of two runs of one placement the newer one holds, from when it is told to run: a rollback is a run
that names an older snapshot, and ends the one it takes back.
"""

from collections.abc import Iterable
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.fleet_overrides import CLUSTER_SNAPSHOTS
from clusterspace.apis.fleet_overrides import RESOURCE_SNAPSHOTS as OVERRIDE_SNAPSHOTS
from clusterspace.apis.fleet_placements import (
    POLICY_INDEX,
    SCOPES,
    UNSCHEDULED,
    apply_strategy_of,
    generation_of,
    index_of,
    is_external,
    is_of,
    key_of_placement,
    parent_of,
    placement_text,
    scope_at,
)
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.apis.rollouts import policy_key_of
from clusterspace.apis.staged_updates import (
    INITIALIZE,
    PROGRESSING,
    STAGED_SCOPES,
    has_begun,
    is_approved,
    is_initialized,
    is_newer,
    is_over,
    placement_key_of,
    run_state_of,
    snapshot_index_used,
    staged_scope_at,
)
from clusterspace.apis.works import controller_uid_of
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import Client
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, IndexKeys, Informer, Update
from clusterspace.fleet.propagation.placements.overrides import (
    OVERRIDE_INDEXES,
    KnownOverrides,
    relevant_overrides,
)
from clusterspace.fleet.propagation.placements.picking import KnownMembers, Member
from clusterspace.fleet.propagation.placements.rollout import rolled_out, state_of, was_bound
from clusterspace.fleet.propagation.placements.run_writer import RunWriter
from clusterspace.fleet.propagation.placements.selection import snapshot_name
from clusterspace.fleet.propagation.placements.staged_updates import (
    InvalidRunError,
    PickedTarget,
    RunProgress,
    RunView,
    failed_initialization,
    failed_run,
    initial_status,
    shape_problem,
)
from clusterspace.fleet.propagation.placements.steps import (
    KnownFleetBindings,
    PlacementWriter,
    ResourceSnapshots,
    indexes_in_use,
)
from clusterspace.fleet.propagation.templates import (
    BY_PARENT,
    PARENT_INDEX,
    Contents,
    Revisions,
    TemplateInformers,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
    uid_of,
)

_SETTLE_SECONDS: Final = 0.1
_BEHIND_SECONDS: Final = 0.5
_MOST_STAGES: Final = 64
"""Stages that one look may end, which is more than a strategy has."""

_BY_PLACEMENT: Final = "placement-of-run"


def by_placement(run: Object) -> Iterable[str]:
    """Index runs by the placement they update; those of policies update none."""
    return () if policy_key_of(run) else (placement_key_of(run),)


_RUN_INDEXES: Final[dict[str, IndexKeys]] = {_BY_PLACEMENT: by_placement}


class KnownRuns:
    """The runs there are, by placement."""

    def __init__(self, caches: HubCaches) -> None:
        self._runs = {
            each.placements: caches.informer(each.runs, indexes=_RUN_INDEXES)
            for each in STAGED_SCOPES
        }

    @property
    def informers(self) -> tuple[Informer, ...]:
        """What has to be synced before anybody concludes that no run needs something."""
        return tuple(self._runs.values())

    def of(self, placement: str) -> list[Object]:
        """Return all runs of the placement with this key."""
        return self._runs[scope_at(placement)].cache.objects_at(_BY_PLACEMENT, placement)

    def indexes_for(self, placement: str) -> frozenset[int]:
        """Return the resource snapshots that runs of a placement still need."""
        used = (snapshot_index_used(each) for each in self.of(placement) if not is_over(each))
        return frozenset(each for each in used if each is not None)


class StagedUpdateRuns(Reconciler):
    """Takes placements of strategy External to a snapshot, stage by stage."""

    name = "staged-updates"

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._runs = {
            each: caches.informer(each.runs, indexes=_RUN_INDEXES) for each in STAGED_SCOPES
        }
        self._strategies = {each: caches.informer(each.strategies) for each in STAGED_SCOPES}
        self._approvals = {each: caches.informer(each.approvals) for each in STAGED_SCOPES}
        self._placements = {
            each: caches.informer(each.placements.placements) for each in STAGED_SCOPES
        }
        self._policies = {
            each: caches.informer(each.placements.policy_snapshots, indexes=PARENT_INDEX)
            for each in STAGED_SCOPES
        }
        self._bindings = {
            each: caches.informer(each.placements.bindings, indexes=PARENT_INDEX)
            for each in STAGED_SCOPES
        }
        self._clusters = caches.informer(CLUSTERS)
        self._read = [
            *self._strategies.values(),
            *self._placements.values(),
            *(caches.informer(each.resource_snapshots, indexes=PARENT_INDEX) for each in SCOPES),
            *(
                caches.informer(each, indexes=OVERRIDE_INDEXES)
                for each in (CLUSTER_SNAPSHOTS, OVERRIDE_SNAPSHOTS)
            ),
            caches.informer(MEMBER_CLUSTERS),
        ]
        self._templates = caches.shared(TemplateInformers)
        self._members = caches.shared(KnownMembers)
        self._known_runs = caches.shared(KnownRuns)
        self._overrides = caches.shared(KnownOverrides)
        self._revisions = caches.shared(Revisions)
        self._writer = PlacementWriter(hub, caches.shared(KnownFleetBindings))
        self._run_writer = RunWriter(hub, events, clock)
        self._snapshots = ResourceSnapshots(hub, caches, self._writer)

    def watches(self) -> Iterable[Watch]:
        """Return runs, and all that may let one go on."""
        for scope in STAGED_SCOPES:
            yield Watch(self._runs[scope], to=self.runs_beside)
            yield Watch(self._approvals[scope], to=run_of_approval)
            yield Watch(
                self._bindings[scope], to=self.runs_of_binding, settle_seconds=_SETTLE_SECONDS
            )
            yield Watch(self._policies[scope], to=self.runs_of_binding)
        yield Watch(self._clusters, to=self.every_run, settle_seconds=_SETTLE_SECONDS)
        # What a run begins with is written down for good, so all that it is read from is there.
        for read in self._read:
            yield Watch(read, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Take one run as far as it goes now."""
        scope = staged_scope_at(request.namespace)
        run = self._runs[scope].cache.find(request.key)
        if run is None or is_being_deleted(run) or is_over(run) or policy_key_of(run):
            return Done()
        if self._clusters.is_stale or not self._templates.has_synced:
            return RequeueAfter(_BEHIND_SECONDS)
        placement = await self._find_placement(run)
        problem = self._why_not(run, placement)
        if placement is None or problem:
            return await self._fail(run, problem)
        if not is_initialized(run):
            initialized = await self._initialize(run, placement)
            if initialized is None:
                return RequeueAfter(_BEHIND_SECONDS)
            run = initialized
        if is_over(run) or (
            run_state_of(run) == INITIALIZE
            and find_condition(find_at(run, "status", "conditions"), PROGRESSING) is None
        ):
            return Done()

        return await self._advance(run, placement)

    async def _find_placement(self, run: Object) -> Object | None:
        """Return the placement of a run, read live where the cached one would end the run."""
        scope, key = staged_scope_at(namespace_of(run)), placement_key_of(run)
        cached = self._placements[scope].cache.find(key)
        if cached is not None and is_external(cached) and not is_being_deleted(cached):
            return cached
        namespace, _, name = key.rpartition("/")
        return await self._hub.find(ResourcePath(scope.placements.placements, namespace, name))

    def _why_not(self, run: Object, placement: Object | None) -> str:
        """Return why a run cannot be, or go on; an empty text when it can."""
        key, kind = placement_key_of(run), staged_scope_at(namespace_of(run)).run
        if placement is None or is_being_deleted(placement):
            return f"there is no {placement_text(key)}"
        if not is_external(placement):
            return f"strategy.type of {placement_text(key)} is not External"
        if is_initialized(run) and (problem := shape_problem(run)):
            return f"its status is not as it was written: {problem}"
        for each in self._known_runs.of(key):
            if is_newer(each, run) and is_initialized(each) and has_begun(each):
                return f"the newer {kind} {name_of(each)} holds"
        return ""

    async def _advance(self, run: Object, placement: Object) -> Result:
        """Bring clusters, stages and tasks on, and write down how far that is."""
        scope = staged_scope_at(namespace_of(run))
        waits: list[float] = []
        for _ in range(_MOST_STAGES):
            contents = self._contents(run, placement)
            altered = self._altered(run, placement)
            if altered:
                return await self._fail(run, f"{altered} is not as it was written")
            if contents is None:
                return RequeueAfter(_BEHIND_SECONDS)
            view = self._view(run, placement, contents)
            step = RunProgress(run, view, self._clock.now()).advance()
            # First what is to be done, then what is said of it. Killed in between, the bindings
            # and requests are there, and the next look counts them and says the same.
            resource = scope.placements.bindings
            bindings = self._writer.fleet_bindings.of(placement)
            for cluster, overrides in step.forward:
                before = bindings[cluster]
                after = rolled_out(before, view.snapshot, overrides)
                await self._writer.change(resource, before, after)
            for cluster in step.removed:
                await self._writer.remove(resource, bindings[cluster])
            for stage, is_before in step.requests:
                await self._run_writer.ask_for_approval(run, stage, is_before=is_before)
            for name in step.accepted:
                await self._run_writer.accept(run, name)
            run = await self._run_writer.write(run, step.status)
            waits = step.waits
            if not step.goes_on:
                break
        members = self._members.members().values()
        now = self._clock.now()
        silences = (each.turns_unhealthy_after(now) for each in members)
        waits += [each for each in silences if each is not None]
        return RequeueAfter(min(waits)) if waits and not is_over(run) else Done()

    async def _initialize(self, run: Object, placement: Object) -> Object | None:
        """Write down what a run brings, and to which clusters when; None if it is too early."""
        scope = staged_scope_at(namespace_of(run))
        strategy_name = str(find_at(run, "spec", "stagedRolloutStrategyName") or "")
        strategy = self._strategies[scope].cache.find(key_of(namespace_of(run), strategy_name))
        if strategy is None and strategy_name:
            # Made a moment before its run, and not in the cache yet: a run that could not begin
            # is over for good, so the hub itself is asked.
            path = ResourcePath(scope.strategies, namespace_of(run), strategy_name)
            strategy = await self._hub.find(path)
        policies = self._policies[scope].cache.objects_at(BY_PARENT, key_of_placement(placement))
        policies = [each for each in policies if is_of(each, placement)]
        policy = max(policies, key=lambda each: index_of(each, POLICY_INDEX), default=None)
        observed = find_at(policy or {}, "status", "observedCRPGeneration")
        if policy is None or observed != generation_of(placement):
            return None  # its clusters are being picked
        now, generation = self._clock.now(), generation_of(run)
        try:
            if strategy is None:
                raise InvalidRunError(f"there is no strategy {strategy_name}")
            selection = await self._snapshots.select(placement)
            if selection is None:
                return None
            if selection.problems:
                raise InvalidRunError("; ".join(selection.problems))
            # What is selected at this moment: a change made just before the run goes with it.
            bindings = self._writer.fleet_bindings.of(placement)
            in_use = indexes_in_use(bindings.values())
            in_use |= self._known_runs.indexes_for(key_of_placement(placement))
            asked = str(find_at(run, "spec", "resourceSnapshotIndex") or "")
            if asked.isdigit():
                in_use |= {int(asked)}
            selected = await self._snapshots.write(placement, selection, in_use)
            index = int(asked) if asked.isdigit() else selected.index
            altered = self._revisions.altered(key_of_placement(placement)).get(index)
            if altered:
                raise InvalidRunError(f"{altered} is not as it was written")
            if asked.isdigit() and index not in selected.contents:
                named = snapshot_name(name_of(placement), index)
                resource = scope.placements.resource_snapshots
                path = ResourcePath(resource, namespace_of(placement), named)
                if await self._hub.find(path) is not None:
                    return None  # it is on its way into the cache
            if (asked and not asked.isdigit()) or index not in selected.contents:
                known = ", ".join(str(each) for each in sorted(selected.contents))
                raise InvalidRunError(f"there is no resource snapshot {asked}; there are {known}")
            used = {
                "policySnapshotIndexUsed": str(index_of(policy, POLICY_INDEX)),
                "resourceSnapshotIndexUsed": str(index),
                "appliedStrategy": apply_strategy_of(placement),
            }
            begun: Object = {**run, "status": used}
            view = self._view(begun, placement, selected.contents[index])
            status = initial_status(strategy, view, used, generation, now)
        except InvalidRunError as error:
            status = failed_initialization(str(error), generation, now)
        return await self._run_writer.write(run, status)

    def _contents(self, run: Object, placement: Object) -> Contents | None:
        """Return the objects a run brings; None while their snapshot is not in the cache."""
        index = snapshot_index_used(run)
        contents = self._revisions.contents(key_of_placement(placement))
        return None if index is None else contents.get(index)

    def _altered(self, run: Object, placement: Object) -> str:
        """Return the snapshot of a run, if somebody changed it since it was written."""
        found = self._revisions.altered(key_of_placement(placement))
        return found.get(snapshot_index_used(run) or 0, "")

    def _view(self, run: Object, placement: Object, contents: Contents) -> RunView:
        scope, now = staged_scope_at(namespace_of(run)), self._clock.now()
        members = self._members.members()
        bindings = self._writer.fleet_bindings.of(placement)
        targets: dict[str, PickedTarget] = {}
        for name, binding in sorted(bindings.items()):
            if state_of(binding) == UNSCHEDULED or is_being_deleted(binding):
                continue
            member: Member | None = members.get(name)
            is_silent = member is None or member.problem(now) is not None
            targets[name] = PickedTarget(
                binding, {} if member is None else member.labels, is_silent
            )
        leaving = [n for n, each in bindings.items() if n not in targets and was_bound(each)]
        # One of an earlier run of the same name, which the hub has not collected yet, approves
        # nothing here.
        approvals = {
            name_of(each): is_approved(each)
            for each in self._approvals[scope].cache.objects()
            if controller_uid_of(each) == uid_of(run)
        }
        key = key_of_placement(placement)
        return RunView(
            snapshot=snapshot_name(name_of(placement), snapshot_index_used(run) or 0),
            targets=targets,
            leaving=sorted(leaving),
            approvals=approvals,
            overrides=relevant_overrides(key, contents, self._overrides.latest()),
        )

    async def _fail(self, run: Object, why: str) -> Result:
        now = self._clock.now()
        if is_initialized(run):
            status = failed_run(run, why, now)
        else:
            status = failed_initialization(why, generation_of(run), now)
        await self._run_writer.write(run, status)
        return Done()

    def runs_beside(self, update: Update) -> Iterable[Request]:
        """Map a run to itself and the others of its placement, which it may end."""
        states = (update.decode_before(), update.decode_after())
        keys = {key for each in states if each is not None for key in by_placement(each)}
        return {request_for(update.key), *self._running(keys)}

    def runs_of_binding(self, update: Update) -> Iterable[Request]:
        """Map what comes of a placement to the runs of it."""
        states = (update.decode_before(), update.decode_after())
        return self._running({parent_of(each) for each in states if each is not None})

    def every_run(self, _: Update) -> Iterable[Request]:
        """Map a change of a cluster to every run that is not over."""
        for informer in self._runs.values():
            for run in informer.cache.objects():
                if not is_over(run) and not policy_key_of(run):
                    yield Request(name_of(run), namespace_of(run))

    def _running(self, placements: Iterable[str]) -> list[Request]:
        return [
            Request(name_of(run), namespace_of(run))
            for placement in sorted(filter(None, placements))
            for run in self._known_runs.of(placement)
            if not is_over(run)
        ]


def run_of_approval(update: Update) -> Iterable[Request]:
    """Map a request for approval to its run."""
    namespace = update.key.rpartition("/")[0]
    states = (update.decode_before(), update.decode_after())
    names = {str(find_at(e, "spec", "parentStageRollout") or "") for e in states if e is not None}
    return [Request(name, namespace) for name in sorted(names) if name]
