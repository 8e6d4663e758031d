"""Rollouts of policies: a change of templates reaches their clusters stage by stage.

    template, overrides ──changed──> snapshot ──> binding.spec.revisions.latest
                                                        │  a StagedUpdateRun of the policy
    BindingWorks <── binding.spec.revisions.clusters <──┘  takes its clusters on, as it may

A run of a policy goes on by the decisions that runs of placements go by: stages, tasks, how many
at a time. All that a policy claims goes in one run, with what its templates need. The template of
the moment is what is brought: a newer change supersedes the run before it, and to roll back is to
put the old template back. What went through every stage before needs no stage again, so such a run
asks for no approval and waits for nothing.

Nothing is remembered here. A state is stored before a binding names it, a binding names its run
before there is one, and which clusters are in change is read from bindings and Works. Whoever is
killed between two writes is followed by one that goes on from there.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORKS, conditions_of, execution_namespace
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_OVERRIDE_POLICY,
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    OVERRIDE_POLICY,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.rollouts import (
    ROLLED_OUT,
    BindingRevisions,
    content_digest,
    deadline_of,
    is_run_of,
    new_run,
    new_snapshot,
    policy_key_of,
    revision_in,
    revision_name,
    revisions_of,
    run_name,
    run_number,
    snapshots_for,
    strategy_name_of,
    with_revisions,
    without_revisions,
)
from clusterspace.apis.staged_updates import (
    PROGRESSING,
    STAGED_SCOPES,
    is_approved,
    is_initialized,
    is_over,
    staged_scope_at,
)
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    binding_key_of,
    controller_uid_of,
    replicas_of,
    requirers_of,
    resource_for,
    template_of,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions
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
from clusterspace.controllers.informers import HubCaches, IndexKeys, OwnWrites, Update
from clusterspace.errors import (
    AlreadyExists,
    Conflict,
    InterpretationFailed,
    NotFound,
    SnapshotAltered,
    StaysHome,
)
from clusterspace.fleet.interpretation.interpreter import RETRY_SECONDS, Interpreter
from clusterspace.fleet.propagation.bindings import (
    by_claim,
    claim_of,
    is_marked,
    is_needed_by,
    kept_clusters,
    targets_of,
)
from clusterspace.fleet.propagation.placements.picking import KnownMembers
from clusterspace.fleet.propagation.placements.run_writer import RunWriter
from clusterspace.fleet.propagation.placements.staged_updates import (
    InvalidRunError,
    RunProgress,
    RunView,
    failed_run,
    initial_status,
    shape_problem,
)
from clusterspace.fleet.propagation.rollouts.decisions import (
    PolicyTarget,
    StagedCopy,
    at_once,
    changing_part,
    has_brought,
    known_revisions,
    last_number,
    overrides_about,
    problem_of,
    revision_for_newcomer,
)
from clusterspace.fleet.propagation.templates import (
    TemplateInformers,
    TemplateRevisions,
    TemplateStates,
    snapshot_part,
)
from clusterspace.fleet.propagation.works.rendering import WORK_INDEXES
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    Condition,
    find_condition,
    remove_condition,
    set_condition,
)
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_value,
)

_CLAIM: Final = "claim"
_REQUIRER: Final = "rollout-requirer"
_OWNER: Final = "snapshot-owner"
_STAGED: Final = "staged"
_POLICY: Final = "policy-of-run"
_YES: Final = "yes"

_SETTLE_SECONDS: Final = 0.2
"""Several templates are written in one go, mostly, and change together."""

_BEHIND_SECONDS: Final = 0.5
_MOST_STAGES: Final = 64
"""Stages that one look may end, which is more than a strategy has."""

_HISTORY: Final = 10
"""Runs of a policy that are kept after they are over."""


_NOT_STAGED: Final = "RolloutNotStaged"
_NO_LABELS: Final[Mapping[str, str]] = {}
_ONE_BY_ONE: Final[Object] = {"spec": {"stages": [{"name": "every-cluster", "labelSelector": {}}]}}
"""How to go back to what was good, if there is no strategy any more that could say."""

_EVERYWHERE: Final = "every cluster has the newest state"


def by_requirer(binding: Object) -> Iterable[str]:
    """Index bindings that are brought along by the bindings that require them."""
    return [key_of(each.namespace, each.name) for each in requirers_of(binding)]


def by_staged(holder: Object) -> Iterable[str]:
    """Index policies and bindings that have a rollout, and bindings that had one."""
    is_staged = strategy_name_of(holder) or revisions_of(holder) is not None
    return (_YES,) if is_staged else ()


def by_policy(run: Object) -> Iterable[str]:
    """Index runs by the policy they are of."""
    key = policy_key_of(run)
    return (key,) if key else ()


def by_owner(snapshot: Object) -> Iterable[str]:
    """Index snapshots by the binding whose template they hold."""
    uid = controller_uid_of(snapshot)
    return (uid,) if uid else ()


_STAGED_INDEX: Final[dict[str, IndexKeys]] = {_STAGED: by_staged}
_BINDING_INDEXES: Final[dict[str, IndexKeys]] = {
    _CLAIM: by_claim,
    _REQUIRER: by_requirer,
}


@dataclass(slots=True)
class _Member:
    """One binding of a rollout."""

    binding: Object
    revisions: BindingRevisions
    altered: tuple[str, ...] = ()
    """What is said of its states whose snapshots somebody changed."""

    @property
    def key(self) -> str:
        return key_of(namespace_of(self.binding), name_of(self.binding))

    @property
    def path(self) -> ResourcePath:
        return resource_path_of(resource_for(namespace_of(self.binding)), self.binding)

    @property
    def is_settled(self) -> bool:
        return self.revisions.is_settled(each.name for each in targets_of(self.binding))


def goes_back(members: Sequence[_Member]) -> bool:
    """Whether what a run brings went through every stage before.

    Read from the bindings, and not from what the run says of itself: whoever may write runs, and
    nothing else, must not get around an approval.
    """
    return all(each.revisions.latest == each.revisions.stable for each in members)


class PolicyRollouts(Reconciler):
    """Brings changes to the clusters of policies that have a rollout, stage by stage.

    A request without a namespace is a ClusterPropagationPolicy's.
    """

    name = "rollouts"

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._policies = caches.informer(PROPAGATION_POLICIES, indexes=_STAGED_INDEX)
        self._cluster_policies = caches.informer(
            CLUSTER_PROPAGATION_POLICIES, indexes=_STAGED_INDEX
        )
        self._bindings = caches.informer(RESOURCE_BINDINGS, indexes=_BINDING_INDEXES)
        self._cluster_bindings = caches.informer(
            CLUSTER_RESOURCE_BINDINGS, indexes=_BINDING_INDEXES
        )
        # A cache that has not seen the last step yet would have it taken back, or taken twice.
        self._known = {True: OwnWrites(self._bindings), False: OwnWrites(self._cluster_bindings)}
        self._overrides = caches.informer(OVERRIDE_POLICIES)
        self._cluster_overrides = caches.informer(CLUSTER_OVERRIDE_POLICIES)
        self._works = caches.informer(WORKS, indexes=WORK_INDEXES)
        self._clusters = caches.informer(CLUSTERS)
        self._member_clusters = caches.informer(MEMBER_CLUSTERS)
        self._snapshots = {
            is_namespaced: caches.informer(
                snapshots_for("any" if is_namespaced else ""), indexes={_OWNER: by_owner}
            )
            for is_namespaced in (True, False)
        }
        self._runs = {
            each: caches.informer(each.runs, indexes={_POLICY: by_policy}) for each in STAGED_SCOPES
        }
        self._known_runs = {each: OwnWrites(informer) for each, informer in self._runs.items()}
        self._strategies = {each: caches.informer(each.strategies) for each in STAGED_SCOPES}
        self._approvals = {each: caches.informer(each.approvals) for each in STAGED_SCOPES}
        self._templates = caches.shared(TemplateInformers)
        self._states = TemplateStates(hub, caches)
        self._revisions = caches.shared(TemplateRevisions)
        self._members = caches.shared(KnownMembers)
        self._interpreter = caches.shared(Interpreter)
        self._run_writer = RunWriter(hub, events, clock)

    def watches(self) -> Iterable[Watch]:
        """Return policies, all that may be new about their templates, and all a run waits for.

        A template that its users changed is in its binding a moment later, so that is watched.
        """
        for policies in (self._policies, self._cluster_policies):
            yield Watch(policies)
        for bindings in (self._bindings, self._cluster_bindings):
            yield Watch(
                bindings,
                to=self.policies_of_binding,
                when=more_than_status_changed,
                settle_seconds=_SETTLE_SECONDS,
            )
        for overrides in (self._overrides, self._cluster_overrides):
            yield Watch(overrides, to=self.every_policy, settle_seconds=_SETTLE_SECONDS)
        for interpreters in self._interpreter.informers:
            yield Watch(interpreters, to=self.every_policy, settle_seconds=_SETTLE_SECONDS)
        for scope in STAGED_SCOPES:
            yield Watch(self._runs[scope], to=policy_of_run)
            yield Watch(self._approvals[scope], to=self.policy_of_approval)
            yield Watch(self._strategies[scope], to=self.every_policy)
        yield Watch(self._works, to=self.policies_of_work, settle_seconds=_SETTLE_SECONDS)
        yield Watch(
            self._clusters,
            to=self.every_policy,
            when=stands_elsewhere,
            settle_seconds=_SETTLE_SECONDS,
        )
        # What a cluster has is compared with these, so all of them must be there.
        for read in (*self._snapshots.values(), self._member_clusters):
            yield Watch(read, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Take the rollout of one policy as far as it goes now."""
        policies = self._policies if request.namespace else self._cluster_policies
        policy = policies.cache.find(request.key)
        if policy is None or is_being_deleted(policy):
            return Done()  # its runs go with it, and what is placed stays as it is
        runs = {
            name_of(each): each
            for each in self._known_runs[staged_scope_at(request.namespace)].objects_at(
                _POLICY, request.key
            )
            if is_run_of(each, policy)
        }
        bindings = self._bindings_of(request.key)
        if not strategy_name_of(policy):
            await self._end(bindings, runs)
            return Done()
        if self._clusters.is_stale or not self._templates.has_synced:
            return RequeueAfter(_BEHIND_SECONDS)
        named = (each.run for b in bindings if (each := known_revisions(b, runs)))
        last = last_number([*runs, *named])
        members: list[_Member] = []
        is_known = True
        for binding in bindings:
            if not strategy_name_of(binding):
                continue  # the detector has yet to say so on it
            try:
                member = await self._bring_up_to_date(policy, binding, runs, last)
            except InterpretationFailed as failure:
                self._events.record(binding, "RolloutFailed", str(failure), is_warning=True)
                is_known, known = False, known_revisions(binding, runs)
                member = None if known is None else _Member(binding, known)
            if member is not None:
                members.append(member)
        result = await self._roll_out(policy, members, runs)
        for member in members:
            await self._forget_states(member.binding, member.revisions.in_use)
        over = sorted((name for name, each in runs.items() if is_over(each)), key=run_number)
        for name in over[:-_HISTORY]:
            path = resource_path_of(staged_scope_at(request.namespace).runs, runs[name])
            await self._delete(path, runs[name])
        return result if is_known else RequeueAfter(RETRY_SECONDS)

    def _bindings_of(self, policy_key: str) -> list[Object]:
        """Return the bindings that a policy brings on: those it claims, and what those need."""
        claimed: dict[str, Object] = {}
        for known in self._known.values():
            for binding in known.objects_at(_CLAIM, policy_key):
                claimed[key_of(namespace_of(binding), name_of(binding))] = binding
        found = dict(claimed)
        for key in [each for each in claimed if "/" in each]:
            for binding in self._known[True].objects_at(_REQUIRER, key):
                found.setdefault(key_of(namespace_of(binding), name_of(binding)), binding)
        return [
            each
            for _, each in sorted(found.items())
            if policy_key in self._policy_keys_of(each)[:1] and not is_being_deleted(each)
        ]

    def _policy_keys_of(self, binding: Object) -> list[str]:
        """Return the policies that may bring a binding on; the first one does.

        One that follows no policy of its own is brought on with what needs it. Who may write
        bindings in a namespace writes what they say of that: they join no rollout of another one.
        """
        if is_marked(binding):
            claim = claim_of(binding)
            is_here = claim is not None and claim.namespace in ("", namespace_of(binding))
            return [claim.key] if claim is not None and is_here else []
        keys: set[tuple[bool, str]] = set()
        for each in requirers_of(binding):
            requirer = self._known[True].find(key_of(each.namespace, each.name))
            claim = None if requirer is None else claim_of(requirer)
            if requirer is None or claim is None or not is_needed_by(binding, requirer):
                continue
            if claim.namespace in ("", namespace_of(requirer)):
                keys.add((not strategy_name_of(requirer), claim.key))
        return [key for _, key in sorted(keys)]

    # -- the state that each template is in --------------------------------------------------------

    async def _bring_up_to_date(
        self, policy: Object, binding: Object, runs: Mapping[str, Object], last: int
    ) -> _Member | None:
        """Store the state that a template is in now, and have its binding say so.

        `last` is the number of the last run that any binding names. None when there is nothing to
        be brought anywhere: the template goes, or stays at home.
        """
        try:
            template = await self._states.find(binding)
        except StaysHome:
            return None  # whoever writes the Works says so
        known = known_revisions(binding, runs)
        targets = {each.name for each in targets_of(binding)}
        if known is not None and has_brought(runs.get(known.run, {}), known, targets):
            # Before anything newer is: what it brought everywhere is what one goes back to.
            known = replace(known, stable=known.latest)
        if template is None or is_being_deleted(template):
            return None if known is None else _Member(binding, known)

        namespace = namespace_of(template)
        own = [e for e in self._overrides.cache.objects() if namespace_of(e) == namespace]
        wide = self._cluster_overrides.cache.objects()
        overrides = [
            *overrides_about(template, wide, CLUSTER_OVERRIDE_POLICY),
            *(overrides_about(template, own, OVERRIDE_POLICY) if namespace else ()),
        ]
        compared = template
        if replicas_of(binding) or find_at(binding, "spec", "replicaRequirements") is not None:
            # Replicas are shared out by the scheduler, at once: to scale is not to roll out.
            compared = await self._interpreter.revised(template, 0)
        revision = revision_in([changing_part(compared), overrides])

        # The state is stored before anything names it. Killed in between, the snapshot is found
        # by its name, which is made of what it says.
        recorded = "" if known is None else known.digests.get(revision, "")
        digest = recorded
        altered: list[str] = []
        for each in sorted(known.in_use if known else ()):
            try:
                is_stored = self._revisions.find(binding, each) is not None
            except SnapshotAltered as error:
                is_stored = False
                altered += [str(error)] if each != revision else []
            if each == revision and not is_stored:
                digest = ""
        if not digest:
            made = new_snapshot(binding, revision, snapshot_part(template), overrides)
            digest = await self._store_state(binding, made, recorded)

        if known is None or not targets:
            # The first state goes everywhere at once: nobody has one that could be kept.
            everywhere = dict.fromkeys(targets, revision)
            known = BindingRevisions(revision, revision, everywhere, digests={revision: digest})
            return await self._write(_Member(binding, known))
        if known.latest != revision:
            # A run that others named and nobody began yet takes this along. One that is there may
            # have asked somebody already to approve what it brings.
            name = run_name(name_of(policy), last)
            if name in runs or known.run == name or not last:
                name = run_name(name_of(policy), last + 1)
            known = replace(known, latest=revision, run=name)
        kept = {n: e for n, e in known.clusters.items() if n in kept_clusters(binding)}
        members = self._members.members()
        for name in sorted(targets - kept.keys()):
            labels = members[name].labels if name in members else _NO_LABELS
            kept[name] = revision_for_newcomer(runs.get(known.run), labels, known)
        known = replace(known, clusters=kept)
        stored = {**known.digests, revision: digest}
        digests = {each: stored[each] for each in known.in_use if each in stored}
        member = _Member(binding, replace(known, digests=digests), tuple(altered))
        return await self._write(member)

    async def _store_state(self, binding: Object, made: Object, recorded: str) -> str:
        """Store the snapshot of a state, and return what it says; one that differs is replaced.

        The binding, which says what clusters get anyway, writes that down: who may write snapshots
        and not bindings has no say about what is in them, before they are named or after.
        """
        path = resource_path_of(snapshots_for(namespace_of(binding)), made)
        try:
            return content_digest(await self._hub.create(path.collection, made))
        except AlreadyExists:
            live = await self._hub.find(path)
        if live is None or controller_uid_of(live) != uid_of(binding):
            raise Conflict(f"{path} is another binding's, and must go first")
        if content_digest(live) not in (recorded, content_digest(made)):
            await self._delete(path, live)
            raise Conflict(f"{path} says something else, and is made anew")
        return content_digest(live)

    async def _write(self, member: _Member) -> _Member:
        """Write what a member says of its clusters into its binding, if it does not say so yet."""
        if revisions_of(member.binding) == member.revisions:
            return member
        desired = with_revisions(member.binding, member.revisions)
        written = await commit(self._hub, member.path, member.binding, desired)
        self._known[bool(namespace_of(written))].note(written)
        member.binding = written
        return member

    # -- the run of a policy -----------------------------------------------------------------------

    async def _roll_out(
        self, policy: Object, members: Sequence[_Member], runs: dict[str, Object]
    ) -> Result:
        """Take the newest run on, or begin it; and say on every binding how far it is."""
        unsettled = [each for each in members if not each.is_settled]
        # Everybody may be told to go back already, and be on the way there.
        going = [name for name, each in runs.items() if not is_over(each)]
        named = [*going, *(each.revisions.run for each in unsettled)]
        name = max(named, key=run_number, default="")
        run = runs.get(name)
        if run is not None and is_over(run):
            # Killed before this, the next attempt finds a run that succeeded, and ends up here.
            for member in unsettled:
                revisions = member.revisions
                if has_brought(run, revisions, (e.name for e in targets_of(member.binding))):
                    member.revisions = replace(revisions, stable=revisions.latest)
                    await self._write(member)
            unsettled = [each for each in members if not each.is_settled]
        if not unsettled and not going:
            for member in members:
                await self._say(member, Condition(ROLLED_OUT, TRUE, "RolledOut", _EVERYWHERE))
            return Done()
        try:
            run = await self._begin(policy, members, runs, name)
        except InvalidRunError as error:
            for member in unsettled:
                await self._say(member, Condition(ROLLED_OUT, FALSE, _NOT_STAGED, str(error)))
            self._events.record(policy, _NOT_STAGED, str(error), is_warning=True)
            return Done()
        for older in [each for each in runs.values() if not is_over(each)]:
            if run_number(name_of(older)) < run_number(name_of(run)):
                why = f"the newer {run.get('kind')} {name_of(run)} holds"
                await self._write_run(older, failed_run(older, why, self._clock.now()), runs)
        run, waits = await self._advance(policy, run, members, runs)
        if is_over(run):
            return RequeueAfter(_SETTLE_SECONDS)  # what is stable now is written next
        progress = find_condition(find_at(run, "status", "conditions"), PROGRESSING) or {}
        message = f"{run.get('kind')} {name_of(run)}: {progress.get('message') or 'goes on'}"
        for member in members:
            said = Condition(ROLLED_OUT, FALSE, str(progress.get("reason")), message)
            if member.is_settled and member.revisions.run != name_of(run):
                said = Condition(ROLLED_OUT, TRUE, "RolledOut", _EVERYWHERE)
            await self._say(member, said)
        now = self._clock.now()
        silences = (e.turns_unhealthy_after(now) for e in self._members.members().values())
        waits += [each for each in silences if each is not None]
        return RequeueAfter(min(waits)) if waits else Done()

    async def _advance(
        self, policy: Object, run: Object, members: Sequence[_Member], runs: dict[str, Object]
    ) -> tuple[Object, list[float]]:
        """Bring clusters, stages and tasks on; return the run, and when to look again."""
        waits: list[float] = []
        for _ in range(_MOST_STAGES):
            step = RunProgress(
                run,
                self._view(run, members),
                self._clock.now(),
                stuck_seconds=deadline_of(policy),
                is_at_once=goes_back(members),
            ).advance()
            # First what is to be done, then what is said of it. Killed in between, bindings and
            # requests are there, and the next look counts them and says the same.
            forward = {cluster for cluster, _ in step.forward}
            for member in members:
                revisions = member.revisions
                brought = dict.fromkeys(forward & revisions.clusters.keys(), revisions.latest)
                clusters = {**revisions.clusters, **brought}
                member.revisions = replace(revisions, clusters=clusters)
                await self._write(member)
            for stage, is_before in step.requests:
                await self._run_writer.ask_for_approval(run, stage, is_before=is_before)
            for each in step.accepted:
                await self._run_writer.accept(run, each)
            run = await self._write_run(run, step.status, runs)
            waits = step.waits
            if not step.goes_on:
                break
        return run, waits

    async def _begin(
        self, policy: Object, members: Sequence[_Member], runs: dict[str, Object], name: str
    ) -> Object:
        """Return the run that brings the newest states, begun; InvalidRunError says why not."""
        scope, namespace = staged_scope_at(namespace_of(policy)), namespace_of(policy)
        run = runs.get(name)
        if run is not None and is_being_deleted(run):
            raise Conflict(f"the run {name} goes, and is made anew")
        if run is not None and not is_over(run) and is_initialized(run):
            problem = shape_problem(run)
            if not problem:
                return run
            # What it has done cannot be told any more: the next run does it all again, and what
            # is there already is found in the bindings.
            why = f"its status is not as it was written: {problem}"
            run = await self._write_run(run, failed_run(run, why, self._clock.now()), runs)
        is_foreign = name != run_name(name_of(policy), run_number(name))
        if is_foreign or (run is not None and is_over(run)):
            # Over, and something is left: a cluster that was in no stage, or the policy had no
            # rollout for a while. Or it is the run of a policy that had the template before.
            named = (each.revisions.run for each in members)
            name, run = run_name(name_of(policy), 1 + last_number([*runs, *named])), None
        strategy_name = strategy_name_of(policy)
        path = ResourcePath(scope.strategies, namespace, strategy_name)
        strategy = self._strategies[scope].cache.find(path.key)
        if strategy is None:
            strategy = await self._hub.find(path)  # it may have been made a moment ago
        made = run or new_run(policy, name, is_rollback=goes_back(members))
        used = {"resourceSnapshotIndexUsed": str(run_number(name))}
        view, now = self._view(made, members), self._clock.now()
        try:
            if strategy is None:
                kind = "StagedUpdateStrategy" if namespace else "ClusterStagedUpdateStrategy"
                raise InvalidRunError(f"there is no {kind} {strategy_name}")
            stages = at_once(strategy) if goes_back(members) else strategy
            status = initial_status(stages, view, used, 1, now)
        except InvalidRunError:
            if not goes_back(members):
                raise
            # No way forward is known, but the way back needs none.
            status = initial_status(_ONE_BY_ONE, view, used, 1, now)
        # First its name on the bindings, then the run: what names no run would be brought by the
        # next one again.
        for member in members:
            if not member.is_settled and run_number(member.revisions.run) < run_number(name):
                member.revisions = replace(member.revisions, run=name)
                await self._write(member)
        if run is None:
            run = await self._create_run(policy, made, members)
        return await self._write_run(run, status, runs)

    async def _create_run(self, policy: Object, made: Object, members: Sequence[_Member]) -> Object:
        """Create a run; one that is there already is ours, of before a restart, or another's."""
        path = resource_path_of(staged_scope_at(namespace_of(policy)).runs, made)
        try:
            return await self._hub.create(path.collection, made)
        except AlreadyExists:
            run = await self._hub.get(path)
        if not is_run_of(run, policy):
            # Somebody else's, of our name: the next number is tried.
            for member in [each for each in members if each.revisions.run == path.name]:
                following = run_name(name_of(policy), run_number(path.name) + 1)
                member.revisions = replace(member.revisions, run=following)
                await self._write(member)
            raise Conflict(f"the name {path.name} is taken by another run")
        if is_initialized(run):
            self._known_runs[staged_scope_at(namespace_of(policy))].note(run)
            raise Conflict(f"the run {path.name} had begun already")
        return run

    async def _write_run(self, run: Object, status: Object, runs: dict[str, Object]) -> Object:
        written = await self._run_writer.write(run, status)
        self._known_runs[staged_scope_at(namespace_of(run))].note(written)
        runs[name_of(written)] = written
        return written

    def _view(self, run: Object, members: Sequence[_Member]) -> RunView:
        """Return every cluster that a policy's templates are on, and how they are there."""
        copies: dict[str, list[StagedCopy]] = {}
        for member in members:
            about, revisions = template_of(member.binding), member.revisions
            # A policy of the whole hub brings objects of many: whose it is tells whom to ask.
            named = about.name if namespace_of(run) else about.key
            for target in targets_of(member.binding):
                revision = revisions.clusters.get(target.name, revisions.stable)
                copy = StagedCopy(
                    name=f"{about.kind} {named}",
                    revision=revision,
                    latest=revisions.latest,
                    stable=revisions.stable,
                    find_problem=cache(partial(self._problem_on, target.name, member, revision)),
                )
                copies.setdefault(target.name, []).append(copy)
        now, known = self._clock.now(), self._members.members()
        targets: dict[str, PolicyTarget] = {}
        for name, placed in sorted(copies.items()):
            found = known.get(name)
            is_silent = found is None or found.problem(now) is not None
            labels = _NO_LABELS if found is None else found.labels
            targets[name] = PolicyTarget(tuple(placed), labels, is_silent)
        # One of an earlier run of the same name, which the hub has not collected yet, approves
        # nothing here.
        approvals = {
            name_of(each): is_approved(each)
            for each in self._approvals[staged_scope_at(namespace_of(run))].cache.objects()
            if uid_of(run) and controller_uid_of(each) == uid_of(run)
        }
        return RunView(snapshot=name_of(run), targets=targets, approvals=approvals)

    def _problem_on(self, cluster: str, member: _Member, revision: str) -> str:
        about = template_of(member.binding)
        name = stamps.work_name(about.kind, about.namespace, about.name)
        work = self._works.cache.find(key_of(execution_namespace(cluster), name))
        is_ours = work is not None and binding_key_of(work) == member.key
        return problem_of(work if is_ours else None, revision)

    # -- what is said, and what is cleared away ----------------------------------------------------

    async def _say(self, member: _Member, condition: Condition | None) -> None:
        conditions: list[Object] = find_at(member.binding, "status", "conditions") or []
        if condition is not None and member.altered:
            said = "; ".join((member.altered[0], condition.message))
            condition = Condition(ROLLED_OUT, FALSE, "SnapshotAltered", said)
        if condition is None:
            changed = remove_condition(conditions, ROLLED_OUT)
        else:
            changed = set_condition(conditions, condition, self._clock.now())
        if not changed.is_changed:
            return
        said = with_value(member.binding, changed.conditions, "status", "conditions")
        member.binding = await commit(self._hub, member.path, member.binding, said)
        self._known[bool(namespace_of(member.binding))].note(member.binding)

    async def _end(self, bindings: Iterable[Object], runs: dict[str, Object]) -> None:
        """Clear away what is left of a rollout that the policy does not have any more."""
        for run in [each for each in runs.values() if not is_over(each)]:
            why = "the policy has no rollout any more"
            await self._write_run(run, failed_run(run, why, self._clock.now()), runs)
        for binding in bindings:
            revisions = revisions_of(binding)
            if revisions is None or strategy_name_of(binding):
                continue  # the detector has yet to say so on it
            member = _Member(binding, revisions)
            await self._say(member, None)
            bare = without_revisions(member.binding)
            written = await commit(self._hub, member.path, member.binding, bare)
            self._known[bool(namespace_of(written))].note(written)
            await self._forget_states(written, frozenset())

    async def _forget_states(self, binding: Object, in_use: frozenset[str]) -> None:
        """Delete the snapshots of states that no cluster is to have any more."""
        name, namespace = name_of(binding), namespace_of(binding)
        stored = self._snapshots[bool(namespace)].cache.objects_at(_OWNER, uid_of(binding))
        used = {revision_name(name, each) for each in in_use}
        stale = [each for each in stored if name_of(each) not in used]
        if not stale:
            return
        # A state that went while a cluster is to have it could never be brought there again, so
        # the hub itself is asked which ones are in use.
        live = await self._hub.find(resource_path_of(resource_for(namespace), binding))
        if live is None or uid_of(live) != uid_of(binding):
            return
        named = revisions_of(live)
        used = {revision_name(name, each) for each in (named.in_use if named else ())}
        for each in stale:
            if name_of(each) not in used:
                await self._delete(resource_path_of(snapshots_for(namespace), each), each)

    async def _delete(self, path: ResourcePath, existing: Object) -> None:
        with suppress(NotFound):
            await self._hub.delete(path, DeleteOptions(uid=uid_of(existing)))

    # -- what wakes it -----------------------------------------------------------------------------

    def policies_of_binding(self, update: Update) -> Iterable[Request]:
        """Map a binding that has a rollout, or had one, to the policy that brings it on."""
        states = [each for each in (update.decode_before(), update.decode_after()) if each]
        if not any(any(by_staged(each)) for each in states):
            return ()
        return {request_for(key) for each in states for key in self._policy_keys_of(each)}

    def policies_of_work(self, update: Update) -> Iterable[Request]:
        """Map a Work of which something new is known to the policy that waits for it."""
        informers = (self._policies, self._cluster_policies)
        if not any(each.cache.keys_at(_STAGED, _YES) for each in informers):
            return ()
        key = binding_key_of(update.decode_after() or update.decode_before() or {})
        binding = self._known["/" in key].find(key) if key else None
        if binding is None or not strategy_name_of(binding):
            return ()
        return [request_for(each) for each in self._policy_keys_of(binding)[:1]]

    def policy_of_approval(self, update: Update) -> Iterable[Request]:
        """Map a request for approval to the policy whose run asked for it."""
        namespace = update.key.rpartition("/")[0]
        approval = update.decode_after() or update.decode_before() or {}
        name = str(find_at(approval, "spec", "parentStageRollout") or "")
        run = self._runs[staged_scope_at(namespace)].cache.find(key_of(namespace, name))
        key = "" if run is None else policy_key_of(run)
        return (request_for(key),) if key else ()

    def every_policy(self, _: Update) -> Iterable[Request]:
        """Map a change that may concern any rollout to every policy that has one."""
        for informer in (self._policies, self._cluster_policies):
            for key in informer.cache.keys_at(_STAGED, _YES):
                yield request_for(key)


def policy_of_run(update: Update) -> Iterable[Request]:
    """Map a run to the policy it is of."""
    states = (update.decode_before(), update.decode_after())
    keys = {policy_key_of(each) for each in states if each is not None}
    return [request_for(key) for key in sorted(keys) if key]


def stands_elsewhere(update: Update) -> bool:
    """Whether a cluster came or went, has other labels, or is ready, or silent, since this."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return True
    was, is_now = (
        (
            labels_of(each),
            is_being_deleted(each),
            (find_condition(conditions_of(each), "Ready") or {}).get("status"),
        )
        for each in (before, after)
    )
    return was != is_now
