"""Binding to one Work per cluster, and the removal of stale ones.

    binding ──template, overrides──> desired Works ──> create, update
                                     existing Works ─> orphans ──live read of binding──> delete

Removing a Work removes an object from a cluster, so it takes a positive answer: the binding, read
live, that does not name the cluster or is itself being deleted. A binding that cannot be read, or
is not there at all, keeps its Works. What is desired is written before the rest is removed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import uuid4

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import (
    CLUSTERS,
    DELETIONS_PAUSED,
    DRAIN_TAINT,
    EXECUTION_PREFIX,
    WORKS,
    conditions_of,
    taints_of,
)
from clusterspace.apis.exclusive import exclusiveness_of, failover_of
from clusterspace.apis.fleet_placements import hashes_of, is_placed
from clusterspace.apis.interpreters import REVISE_REPLICA
from clusterspace.apis.policies import CLUSTER_OVERRIDE_POLICIES, OVERRIDE_POLICIES, selectors_of
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    binding_key_of,
    cluster_of,
    preserves_resources,
    resource_for,
    template_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ListOptions
from clusterspace.controllers.commit import commit, ensure_finalizer, release
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, IndexKeys, Update
from clusterspace.errors import (
    ApiError,
    ClusterError,
    Conflict,
    InterpretationFailed,
    MalformedSelector,
    OverrideFailed,
    SnapshotAltered,
    StaysHome,
)
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.propagation.bindings import (
    OVERRIDE_FAILED,
    WORKS_WRITTEN,
    kept_clusters,
    targets_of,
)
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.placements.overrides import KnownOverrides
from clusterspace.fleet.propagation.scheduler.filters import KnownClusters, has_new_traits
from clusterspace.fleet.propagation.templates import (
    TemplateInformers,
    TemplateStates,
    find_live_template,
    is_older,
    staged_revision,
)
from clusterspace.fleet.propagation.works.exclusive import (
    LOOK_SECONDS,
    MARGIN_SECONDS,
    NOT_STOPPED,
    StopProofs,
    staying,
)
from clusterspace.fleet.propagation.works.rendering import (
    ALTERED,
    STAYS_HOME,
    SYNC_FAILED,
    WORK_INDEXES,
    Failure,
    KnownWorks,
    Outline,
    WorkWriter,
    find_orphans,
    find_share,
    is_free_for,
    outline_for_binding,
    plan_works,
)
from clusterspace.kube.conditions import FALSE, Condition, is_true, remove_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    finalizers_of,
    find_at,
    is_being_deleted,
    labels_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_value,
)

SYNC_SUCCEEDED: Final = "SyncWorkSucceed"
OVERRIDE_SUCCEEDED: Final = "ApplyOverridePolicySucceed"

REFUSED_SECONDS: Final = 30.0
"""When to try again what the hub refused: it is not a matter of moments."""

_NOT_CLEANED: Final = "CleanupWorkFailed"
_BY_CLUSTER: Final = "cluster"
_BY_KIND: Final = "template-kind"
_BY_NAMESPACE: Final = "namespace"


def by_cluster(binding: Object) -> Iterable[str]:
    """Index bindings by the clusters that have their object."""
    return kept_clusters(binding)


def by_template_kind(binding: Object) -> Iterable[str]:
    """Index bindings by the kind of their template."""
    template = template_of(binding)
    return (f"{template.api_version}/{template.kind}",)


def by_namespace(kube_object: Object) -> Iterable[str]:
    """Index objects by their namespace."""
    return (namespace_of(kube_object),)


_BINDING_INDEXES: Final[dict[str, IndexKeys]] = {
    _BY_CLUSTER: by_cluster,
    _BY_KIND: by_template_kind,
}


class BindingWorks(Reconciler):
    """Keeps the Works of bindings; a request without a namespace is a ClusterResourceBinding's."""

    name = "works"
    workers = 16

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        *,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        margin_seconds: float = MARGIN_SECONDS,
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._new_id = new_id
        self._bindings = caches.informer(RESOURCE_BINDINGS, indexes=_BINDING_INDEXES)
        self._cluster_bindings = caches.informer(
            CLUSTER_RESOURCE_BINDINGS, indexes=_BINDING_INDEXES
        )
        self._works = caches.informer(WORKS, indexes=WORK_INDEXES)
        self._clusters = caches.informer(CLUSTERS)
        self._overrides = caches.informer(OVERRIDE_POLICIES, indexes={_BY_NAMESPACE: by_namespace})
        self._cluster_overrides = caches.informer(CLUSTER_OVERRIDE_POLICIES)
        self._candidates = caches.shared(KnownClusters)
        self._known = caches.shared(KnownWorks)
        self._templates = TemplateStates(hub, caches)
        self._known_templates = caches.shared(TemplateInformers)
        self._interpreter = caches.shared(Interpreter)
        self._placed_overrides = caches.shared(KnownOverrides)
        self._writer = WorkWriter(hub, self._known)
        self._proofs = StopProofs(hub, caches, clock, margin_seconds)

    def watches(self) -> Iterable[Watch]:
        """Return all that Works are made of; and Works, which nobody else should change."""
        for bindings in (self._bindings, self._cluster_bindings):
            yield Watch(bindings, when=more_than_status_changed)
        yield self._proofs.heartbeats.watch
        yield Watch(self._works, to=binding_of_strayed)
        yield Watch(self._works, to=self.binding_of_misplaced)
        yield Watch(self._clusters, to=self.bindings_in_cluster, when=has_new_traits)
        yield Watch(self._clusters, to=self.bindings_in_cluster, when=pauses_or_resumes)
        for overrides in (self._overrides, self._cluster_overrides):
            yield Watch(overrides, to=self.bindings_overridden)
        for interpreters in self._interpreter.informers:
            yield Watch(interpreters, to=self.bindings_interpreted)

    async def reconcile(self, request: Request) -> Result:
        """Bring the Works of one binding to where they should be."""
        informer = self._bindings if request.namespace else self._cluster_bindings
        binding = informer.cache.find(request.key)
        if binding is None:
            return Done()
        if is_being_deleted(binding):
            await self._withdraw(request, binding)
            return Done()

        failures: tuple[Failure, ...] = ()
        if targets := targets_of(binding):
            try:
                template = await self._templates.find(binding)
            except StaysHome as error:
                # What is placed stays placed, by whatever rules it came there. It is said on the
                # binding alone: the object may be somebody else's.
                failures = tuple(Failure(each.name, STAYS_HOME, str(error)) for each in targets)
                await self._write_condition(request, binding, failures)
                self._events.record(binding, STAYS_HOME, str(error), is_warning=True)
                return Done()
            if template is None:
                # Gone: the binding goes after it. Made anew: it gets a new binding.
                return Done()
            binding, failures = await self._write_works(request, binding, template)
        await self._write_condition(request, binding, failures)
        if any(staged_revision(binding, each.name) is None for each in targets):
            return Done()  # which state these get is decided in the binding, and that wakes us
        if not failures:
            # Only now: an object that moves is on its new cluster before it leaves the old one.
            await self._remove_orphans(request, binding)
            return Done()
        if any(each.reason == NOT_STOPPED for each in failures):
            return RequeueAfter(LOOK_SECONDS)
        is_refused = any(each.reason in (SYNC_FAILED, ALTERED) for each in failures)
        return RequeueAfter(REFUSED_SECONDS) if is_refused else Done()

    async def _write_works(
        self, request: Request, binding: Object, template: Object
    ) -> tuple[Object, tuple[Failure, ...]]:
        """Write what is desired; return the binding, and the clusters that lack their Work."""
        outlines, failures, behind = await self._render(binding, template)
        existing = self._known.of_binding(request.key)
        for outline in outlines:
            if outline.cluster in existing:
                continue
            # Namespaces have Works before a policy claims them; those are taken over.
            free = self._known.find(outline.key)
            if free is not None and is_free_for(free, outline.template):
                existing[outline.cluster] = free
        for outline in outlines:
            # An earlier one that is on its way out is waited for. As long as a person has to say
            # that it may go, this is where whoever wonders about the new one looks.
            is_going = is_being_deleted(existing.get(outline.cluster, {}))
            if is_going and _is_paused(self._clusters.cache.find(outline.cluster)):
                waits = (
                    "an earlier copy is still to be withdrawn, and deletions are paused there"
                    f" until `clusterspace resume {outline.cluster}`"
                )
                failures = (*failures, Failure(outline.cluster, DELETIONS_PAUSED, waits))
        if exclusiveness_of(template, failover_of(binding)):
            new = {each.cluster for each in outlines} - existing.keys()
            if new and (why := await self._why_not_started(request, binding)):
                failures = (*failures, *(Failure(each, NOT_STOPPED, why) for each in sorted(new)))
                outlines = tuple(each for each in outlines if each.cluster not in new)
        changes = plan_works(outlines, existing, self._new_id)
        written: tuple[str, ...] = ()
        if changes:
            # First the finalizer, then the Works. Killed in between, a binding without Works is
            # held, and released when it goes. The other way round, a binding that is deleted at
            # this moment would be gone before its Works, and nobody would withdraw them.
            path, finalizer = _place_of(request), _finalizer_of(request)
            binding = await ensure_finalizer(self._hub, path, binding, finalizer)
            outcome = await self._writer.write(changes)
            written, failures = outcome.clusters, (*failures, *outcome.failures)
        if written:
            message = f"Works are written for {', '.join(written)}."
            self._events.record(template, SYNC_SUCCEEDED, message, is_routine=True)
            self._events.record(binding, SYNC_SUCCEEDED, message, is_routine=True)
        for outline in outlines:
            if outline.cluster in written:
                self._record_overrides(outline)
        for each in failures:
            message = f"{each.cluster}: {each.message}"
            self._events.record(template, each.reason, message, is_warning=True)
            self._events.record(binding, each.reason, message, is_warning=True)
        if behind is not None:
            raise behind
        return binding, failures

    async def _why_not_started(self, request: Request, binding: Object) -> str:
        """Withdraw the old copies of an exclusive workload; return why no new one may start yet.

        Empty when every old copy is proven to have stopped.
        """
        # Three steps, each of which is seen to be done before the next: the old Work is withdrawn;
        # the copy is proven to have stopped; the new Work is written. Killed anywhere, whoever
        # comes next finds the Works as they are, live, and goes on from there. A write of a deposed
        # leader is refused by the hub, so nobody writes the last step who has not done the others.
        live = await self._read_live(request, binding)
        if live is None or is_being_deleted(live):
            return "its binding is gone"
        label = stamps.BINDING_ID if request.namespace else stamps.CLUSTER_BINDING_ID
        selection = ListOptions(label_selector=f"{label}={labels_of(live)[label]}")
        targets = {each.name for each in targets_of(live)}
        kept = staying(find_at(live, "spec", "gracefulEvictionTasks") or ())
        reasons: list[str] = []
        for work in await self._hub.list_objects(ResourcePath(WORKS), selection):
            cluster = cluster_of(work)
            if cluster in targets:
                continue
            if cluster in kept:
                reasons.append(f"{cluster} keeps it until a person says that it may go")
            elif preserves_resources(live):
                why = "spec.preserveResourcesOnDeletion of its policy would have it run on"
                reasons.append(f"{cluster} runs it, and {why}")
            elif not is_being_deleted(work):
                is_asked = self._is_drained(cluster)
                await self._writer.remove(work, is_preserved=False, is_asked=is_asked)
                reasons.append(f"{cluster} is to stop it first")
            elif why := await self._proofs.why_not_stopped(work):
                reasons.append(why)
        return "; ".join(reasons)

    def _record_overrides(self, outline: Outline) -> None:
        overridden = outline.overridden
        if overridden is None:
            return
        words = ("cluster override policy", "override policy")
        for word, rules in zip(
            words, (overridden.cluster_wide, overridden.namespaced), strict=True
        ):
            for policy in sorted({each.policy for each in rules}):
                message = f"Apply {word}({policy}) for cluster({outline.cluster}) succeed."
                self._events.record(outline.template, OVERRIDE_SUCCEEDED, message, is_routine=True)

    async def _render(
        self, binding: Object, template: Object
    ) -> tuple[tuple[Outline, ...], tuple[Failure, ...], Conflict | None]:
        """Return the Works a binding calls for, and the clusters for which none can be made.

        And the conflict to be raised once those are written: a cluster is to have a state that is
        not in our cache yet, and nobody else waits for that.
        """
        behind: Conflict | None = None
        namespace = namespace_of(template)
        overrides = self._overrides.cache.objects_at(_BY_NAMESPACE, namespace) if namespace else ()
        present = OverridePolicies(
            cluster_wide=tuple(self._cluster_overrides.cache.objects()), namespaced=overrides
        )
        clusters = self._candidates.candidates()
        outlines: list[Outline] = []
        failures: list[Failure] = []
        for target in targets_of(binding):
            cluster = clusters.get(target.name)
            if cluster is None:
                failures.append(Failure(target.name, SYNC_FAILED, "there is no such cluster"))
                continue
            if cluster.is_leaving:
                continue  # its Works are being withdrawn, and nothing new goes there
            revision = staged_revision(binding, target.name)
            if revision is None:
                continue
            try:
                state = self._templates.state_for(binding, template, target.name)
                stored = self._templates.revision_for(binding, target.name)
                policies = present if stored is None else stored.overrides
                if is_placed(binding):
                    wanted = hashes_of(binding).get(target.name, "")
                    state = self._placed_overrides.override(state, wanted, cluster.traits)
                revised, share = None, find_share(binding, target)
                if share is not None and self._interpreter.customizes(REVISE_REPLICA, state):
                    revised = await self._interpreter.revised(state, share)
                outline = outline_for_binding(
                    binding, state, target, cluster.traits, policies, revised, revision
                )
            except InterpretationFailed as error:
                # Its Work stays as it is. In full, the object would run too often.
                failures.append(Failure(target.name, SYNC_FAILED, str(error)))
            except OverrideFailed as error:
                failures.append(Failure(target.name, OVERRIDE_FAILED, str(error)))
            except StaysHome as error:
                failures.append(Failure(target.name, STAYS_HOME, str(error)))
            except SnapshotAltered as error:
                # Its Work stays as it is: what the cluster has went through every check.
                failures.append(Failure(target.name, ALTERED, str(error)))
            except Conflict as error:
                behind = error
            else:
                outlines.append(outline)
        return tuple(outlines), tuple(failures), behind

    async def _remove_orphans(self, request: Request, binding: Object) -> None:
        """Remove the Works of clusters that the binding, read live, does not name."""
        existing = self._known.of_binding(request.key).values()
        if not find_orphans(existing, kept_clusters(binding)):
            return
        live = await self._read_live(request, binding)
        if live is None:
            return
        moved = annotations_of(live).get(stamps.MOVED_FROM, "").split(",")
        for work in find_orphans(existing, kept_clusters(live)):
            # What a person moves or drains off a cluster, and is placed elsewhere, is no accident.
            cluster = cluster_of(work)
            is_meant = cluster in moved or self._is_drained(cluster)
            is_asked, is_preserved = bool(targets_of(live)) and is_meant, preserves_resources(live)
            with self._events.reporting_failure(live, _NOT_CLEANED):
                await self._writer.remove(work, is_preserved=is_preserved, is_asked=is_asked)

    def _is_drained(self, cluster: str) -> bool:
        taints = taints_of(self._clusters.cache.find(cluster) or {})
        return any(each.get("key") == DRAIN_TAINT for each in taints)

    async def _withdraw(self, request: Request, binding: Object) -> None:
        """Remove all Works of a binding that is being deleted, then release it."""
        live, finalizer = await self._read_live(request, binding), _finalizer_of(request)
        if live is None or not is_being_deleted(live) or finalizer not in finalizers_of(live):
            return
        works = self._known.of_binding(request.key)
        # A process that was killed right after writing a Work leaves one that the cache of this
        # process may not have yet. Releasing the binding without it would orphan it for good.
        template = template_of(live)
        name = stamps.work_name(template.kind, template.namespace, template.name)
        for cluster in sorted(kept_clusters(live) - works.keys()):
            work = await self._writer.find(cluster, name)
            if work is not None and binding_key_of(work) == request.key:
                works[cluster] = work
        is_asked = await self._is_asked_for(live)
        for work in works.values():
            if not is_being_deleted(work):
                with self._events.reporting_failure(live, _NOT_CLEANED):
                    await self._writer.remove(
                        work, is_preserved=preserves_resources(live), is_asked=is_asked
                    )
            elif is_asked:
                # It went for another reason, and may wait for a person: here is one.
                await self._writer.mark_asked(work)
        await release(self._hub, _place_of(request), live, finalizer)

    async def _is_asked_for(self, binding: Object) -> bool:
        """Whether somebody deleted the template: the hub, asked for it by name, has it no more.

        A template that is there still is one that no policy claims any more.
        """
        reference = template_of(binding)
        try:
            live = await find_live_template(self._hub, self._known_templates, reference)
        except (ApiError, ClusterError):
            return False  # not known: counted as if nobody had asked
        return live is None or is_being_deleted(live)

    async def _read_live(self, request: Request, binding: Object) -> Object | None:
        """Return the binding as it is now; None when it is gone or another took its place.

        A hub that answers with a state from before the cached one is behind: Conflict, to be
        tried again, because nothing may be deleted by an old answer.
        """
        live = await self._hub.find(_place_of(request))
        if live is None or uid_of(live) != uid_of(binding):
            return None
        if is_older(live, resource_version_of(binding)):
            raise Conflict(f"the hub answered an older state of {request} than before")
        return live

    async def _write_condition(
        self, request: Request, binding: Object, failures: Sequence[Failure]
    ) -> None:
        desired = with_failures(binding, failures, self._clock.now())
        await commit(self._hub, _place_of(request), binding, desired)

    def bindings_interpreted(self, update: Update) -> Iterable[Request]:
        """Map a customization or a webhook to the bindings of the kinds it speaks of."""
        return self._known_templates.bindings_of_kinds(
            lambda kind: self._interpreter.concerns(update, kind)
        )

    def bindings_in_cluster(self, update: Update) -> Iterable[Request]:
        """Map a Cluster to the bindings whose object it has."""
        return self._requests_at(_BY_CLUSTER, update.key)

    def binding_of_misplaced(self, update: Update) -> Iterable[Request]:
        """Map a Work that has come to a cluster which its binding does not name to that binding.

        A leader that was frozen may have sent it long ago, to a hub that did not know better.
        """
        work = update.decode_after() if update.before is None else None
        key = "" if work is None else binding_key_of(work)
        if not key:
            return ()
        request = request_for(key)
        informer = self._bindings if request.namespace else self._cluster_bindings
        binding = informer.cache.find(key)
        cluster = request_for(update.key).namespace.removeprefix(EXECUTION_PREFIX)
        is_misplaced = binding is not None and cluster not in kept_clusters(binding)
        return (request,) if is_misplaced else ()

    def bindings_overridden(self, update: Update) -> Iterable[Request]:
        """Map an override policy to the bindings it selects, and to those it selected before.

        Labels are not looked at: they are when the policy is applied.
        """
        requests: set[Request] = set()
        for policy in (update.decode_before(), update.decode_after()):
            if policy is None:
                continue
            try:
                selectors = selectors_of(policy)
            except MalformedSelector:
                # What it selects cannot be told; every binding it may concern will say so.
                selectors = ()
            namespace = namespace_of(policy)
            selected = [
                request
                for each in selectors
                for request in self._requests_at(_BY_KIND, f"{each.api_version}/{each.kind}")
                if not each.namespace or request.namespace == each.namespace
            ]
            if not selectors:
                informers = (self._bindings, self._cluster_bindings)
                selected = [request_for(key) for informer in informers for key in informer.cache]
            requests.update(each for each in selected if namespace in ("", each.namespace))
        return requests

    def _requests_at(self, index: str, word: str) -> list[Request]:
        informers = (self._bindings, self._cluster_bindings)
        keys = (key for informer in informers for key in informer.cache.keys_at(index, word))
        return [request_for(key) for key in keys]


def binding_of_strayed(update: Update) -> Iterable[Request]:
    """Map a Work that is gone, or says something else than before, to its binding."""
    before = update.decode_before()
    if before is None or not more_than_status_changed(update):
        return ()
    key = binding_key_of(before)
    return (request_for(key),) if key else ()


def with_failures(binding: Object, failures: Sequence[Failure], now: float) -> Object:
    """Return the binding with a condition that names what each cluster lacks, and why."""
    conditions: list[Object] = find_at(binding, "status", "conditions") or []
    if failures:
        message = "; ".join(f"{each.cluster}: {each.message}" for each in failures)
        desired = Condition(WORKS_WRITTEN, FALSE, failures[0].reason, message)
        changed = set_condition(conditions, desired, now)
    else:
        changed = remove_condition(conditions, WORKS_WRITTEN)
    if not changed.is_changed:
        return binding
    return with_value(binding, changed.conditions, "status", "conditions")


def pauses_or_resumes(update: Update) -> bool:
    """Whether deletions on a cluster wait for a person since this change, or no longer do."""
    return _is_paused(update.decode_before()) != _is_paused(update.decode_after())


def _is_paused(cluster: Object | None) -> bool:
    return cluster is not None and is_true(conditions_of(cluster), DELETIONS_PAUSED)


def _place_of(request: Request) -> ResourcePath:
    return ResourcePath(resource_for(request.namespace), request.namespace, request.name)


def _finalizer_of(request: Request) -> str:
    return stamps.BINDING_FINALIZER if request.namespace else stamps.CLUSTER_BINDING_FINALIZER
