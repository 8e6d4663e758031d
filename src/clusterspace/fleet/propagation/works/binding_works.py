"""Binding to one Work per cluster, and the removal of stale ones.

    binding ──template, overrides──> Works wanted ──> create, update
                                     Works present ─> orphans ──live read of the binding──> delete

Removing a Work removes an object from a cluster, so it takes a positive answer: the binding, read
live, that does not want the cluster or is itself being deleted. A binding that cannot be read, or
is not there at all, keeps its Works. What is wanted is written before the rest is removed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.bindings import preserves_resources, resource_for, template_of
from clusterspace.apis.works import binding_key_of
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import (
    ensure_finalizer,
    finalizers_of,
    is_being_deleted,
    release,
)
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter
from clusterspace.errors import Conflict, OverrideFailed, StaysHome
from clusterspace.fleet.propagation.scheduling.candidates import KnownClusters
from clusterspace.fleet.propagation.targets import kept_clusters, targets_of
from clusterspace.fleet.propagation.works.plans import find_orphans, is_free_for, plan_works
from clusterspace.fleet.propagation.works.rendering import Outline, outline_for_binding
from clusterspace.fleet.propagation.works.sources import WorkSources, is_older
from clusterspace.fleet.propagation.works.writing import SYNC_FAILED, Failure, WorkWriter, Written
from clusterspace.kube.conditions import FALSE, Condition, remove_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    resource_version_of,
    uid_of,
    with_value,
)

WORKS_WRITTEN: Final = "WorksWritten"
"""Condition of a binding: False while a cluster lacks its Work, and absent otherwise."""

OVERRIDE_FAILED: Final = "ApplyOverridePolicyFailed"
STAYS_HOME: Final = "PropagationForbidden"
SYNC_SUCCEEDED: Final = "SyncWorkSucceed"

REFUSED_SECONDS: Final = 30.0
"""When to try again what the hub refused: it is not a matter of moments."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The Works a binding calls for, and the clusters for which none could be made."""

    outlines: tuple[Outline, ...]
    failures: tuple[Failure, ...]


class BindingWorks:
    """Keeps the Works of bindings; a request without a namespace is a ClusterResourceBinding's."""

    def __init__(
        self,
        hub_client: Client,
        sources: WorkSources,
        events: EventRecorder,
        *,
        clock: Clock,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._clusters = KnownClusters(sources.clusters.cache)
        self._writer = WorkWriter(hub_client, sources.works)
        self._events = events
        self._clock = clock
        self._new_id = new_id

    async def reconcile(self, request: Request) -> Outcome:
        """Bring the Works of one binding to where they should be."""
        binding = self._sources.find_binding(request.key)
        if binding is None:
            return Done()
        if is_being_deleted(binding):
            await self._withdraw(request, binding)
            return Done()
        return await self._provide(request, binding)

    async def _provide(self, request: Request, binding: Object) -> Outcome:
        """Write what is wanted; once all of it is written, remove what is not."""
        failures: tuple[Failure, ...] = ()
        if targets_of(binding):
            try:
                template = await self._sources.find_template(self._hub_client, binding)
            except StaysHome as error:
                # What is placed stays placed, by whatever rules it came there.
                return await self._refuse(request, binding, str(error))
            if template is None:
                # Gone: the binding goes after it. Made anew: it gets a new binding.
                return Done()
            rendered = self._render(binding, template)
            binding, written = await self._write(request, binding, rendered.outlines)
            failures = (*rendered.failures, *written.failures)
            self._tell(binding, template, written.clusters, failures)
        await self._note_failures(request, binding, failures)
        if not failures:
            await self._remove_orphans(request, binding)
            return Done()
        is_refused = any(each.reason == SYNC_FAILED for each in failures)
        return RequeueAfter(REFUSED_SECONDS) if is_refused else Done()

    async def _refuse(self, request: Request, binding: Object, why: str) -> Outcome:
        """Say on the binding alone why nothing comes of it: the object may be somebody else's."""
        failures = [Failure(each.name, STAYS_HOME, why) for each in targets_of(binding)]
        await self._note_failures(request, binding, failures)
        self._events.record(binding, STAYS_HOME, why, is_warning=True)
        return Done()

    async def _write(
        self, request: Request, binding: Object, outlines: Sequence[Outline]
    ) -> tuple[Object, Written]:
        present = self._present(request, outlines)
        changes = plan_works(outlines, present, self._new_id)
        if not changes:
            return binding, Written()
        # First the hold, then the Works: a binding must not go before they are withdrawn.
        place, finalizer = _place_of(request), _finalizer_of(request)
        held = await ensure_finalizer(self._hub_client, place, binding, finalizer)
        return held, await self._writer.write(changes)

    def _present(self, request: Request, outlines: Sequence[Outline]) -> dict[str, Object]:
        """Return the Works of the binding, and those of its template that are of no binding.

        Namespaces have Works before a policy claims them.
        """
        works = self._sources.works
        own = works.of_binding(request.key)
        free = (
            (outline.cluster, found)
            for outline in outlines
            if outline.cluster not in own
            and (found := works.find(outline.namespace, outline.name)) is not None
            and is_free_for(found, outline.template)
        )
        return {**own, **dict(free)}

    def _render(self, binding: Object, template: Object) -> Rendered:
        policies = self._sources.policies_for(template)
        clusters = self._clusters.candidates()
        outlines: list[Outline] = []
        failures: list[Failure] = []
        for target in targets_of(binding):
            cluster = clusters.get(target.name)
            if cluster is None:
                why = "there is no such cluster"
                failures.append(Failure(target.name, SYNC_FAILED, why))
                continue
            if cluster.is_leaving:
                continue  # its Works are being withdrawn, and nothing new goes there
            try:
                state = self._sources.state_for(binding, template, target.name)
                made = outline_for_binding(binding, state, target, cluster.traits, policies)
            except OverrideFailed as error:
                failures.append(Failure(target.name, OVERRIDE_FAILED, str(error)))
            except StaysHome as error:
                failures.append(Failure(target.name, STAYS_HOME, str(error)))
            else:
                outlines.append(made)
        return Rendered(tuple(outlines), tuple(failures))

    async def _remove_orphans(self, request: Request, binding: Object) -> None:
        """Remove the Works of clusters that the binding, asked now, does not want."""
        present = self._sources.works.of_binding(request.key).values()
        if not find_orphans(present, kept_clusters(binding)):
            return
        live = await self._read_live(request, binding)
        if live is None:
            return
        for work in find_orphans(present, kept_clusters(live)):
            await self._writer.remove(work, is_preserved=preserves_resources(live))

    async def _withdraw(self, request: Request, binding: Object) -> None:
        """Remove all Works of a binding that is being deleted, then let it go."""
        live, finalizer = await self._read_live(request, binding), _finalizer_of(request)
        if live is None or not is_being_deleted(live) or finalizer not in finalizers_of(live):
            return
        for work in await self._all_works(request, live):
            if not is_being_deleted(work):
                await self._writer.remove(work, is_preserved=preserves_resources(live))
        await release(self._hub_client, _place_of(request), live, finalizer)

    async def _all_works(self, request: Request, binding: Object) -> list[Object]:
        """Return the Works there are, also those that should be there and are not in the cache."""
        known = self._sources.works.of_binding(request.key)
        template = template_of(binding)
        name = stamps.work_name(template.kind, template.namespace, template.name)
        missing = sorted(kept_clusters(binding) - known.keys())
        found = [await self._writer.find(cluster, name) for cluster in missing]
        ours = [each for each in found if each and binding_key_of(each) == request.key]
        return [*known.values(), *ours]

    async def _read_live(self, request: Request, binding: Object) -> Object | None:
        """Return the binding as it is now; None when it is gone or another took its place.

        An answer from before what we know already is no answer: Conflict, and ask again.
        """
        live = await self._hub_client.find(_place_of(request))
        if live is None or uid_of(live) != uid_of(binding):
            return None
        if is_older(live, resource_version_of(binding)):
            raise Conflict(f"the hub told an older state of {request} than before")
        return live

    async def _note_failures(
        self, request: Request, binding: Object, failures: Sequence[Failure]
    ) -> None:
        noted = with_failures(binding, failures, self._clock.now())
        await commit(self._hub_client, _place_of(request), binding, noted)

    def _tell(
        self,
        binding: Object,
        template: Object,
        written: Sequence[str],
        failures: Sequence[Failure],
    ) -> None:
        if written:
            where = ", ".join(written)
            self._events.record(template, SYNC_SUCCEEDED, f"Works are written for {where}.")
        for each in failures:
            message = f"{each.cluster}: {each.message}"
            self._events.record(template, each.reason, message, is_warning=True)
            self._events.record(binding, each.reason, message, is_warning=True)


def with_failures(binding: Object, failures: Sequence[Failure], now: float) -> Object:
    """Return the binding with a condition that names what each cluster lacks, and why."""
    conditions: list[Object] = find_at(binding, "status", "conditions") or []
    if failures:
        message = "; ".join(f"{each.cluster}: {each.message}" for each in failures)
        wanted = Condition(WORKS_WRITTEN, FALSE, failures[0].reason, message)
        changed = set_condition(conditions, wanted, now)
    else:
        changed = remove_condition(conditions, WORKS_WRITTEN)
    if not changed.is_changed:
        return binding
    return with_value(binding, changed.conditions, "status", "conditions")


def _place_of(request: Request) -> Place:
    return Place(resource_for(request.namespace), request.namespace, request.name)


def _finalizer_of(request: Request) -> str:
    return stamps.BINDING_FINALIZER if request.namespace else stamps.CLUSTER_BINDING_FINALIZER
