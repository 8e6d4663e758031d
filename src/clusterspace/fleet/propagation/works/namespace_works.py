"""Every namespace of the hub, on every cluster: objects need one to be in.

    Namespace ──not reserved, not told to stay──> one Work per cluster, owned by the Namespace

Nothing is removed here: when a namespace goes, the hub's garbage collector takes its Works along.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from clusterspace.apis import stamps
from clusterspace.apis.confinement import is_reserved_namespace
from clusterspace.apis.policies import selectors_of
from clusterspace.apis.works import binding_key_of, manifests_of
from clusterspace.client.resources import Client
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter, request_for
from clusterspace.errors import MalformedSelector, OverrideFailed
from clusterspace.fleet.propagation.overrides.policies import OverridePolicies, override
from clusterspace.fleet.propagation.scheduling.affinities import Traits
from clusterspace.fleet.propagation.scheduling.candidates import KnownClusters
from clusterspace.fleet.propagation.works.known_works import KnownWorks
from clusterspace.fleet.propagation.works.plans import Change, plan_change
from clusterspace.fleet.propagation.works.rendering import Outline, notes_of
from clusterspace.fleet.propagation.works.triggers import has_new_traits
from clusterspace.fleet.propagation.works.writing import Failure, WorkWriter
from clusterspace.kube.objects import Object, labels_of, name_of, uid_of

OVERRIDE_FAILED: Final = "ApplyOverridePolicyFailed"
REFUSED_SECONDS: Final = 30.0
_KIND: Final = "Namespace"
_DEFAULT: Final = "default"
"""Every cluster has it from the beginning, with labels of its own."""


@dataclass(frozen=True, slots=True)
class NamespaceSources:
    """The caches that say which namespaces there are, and where they are to be."""

    namespaces: Informer
    clusters: Informer
    cluster_override_policies: Informer
    works: KnownWorks


class NamespaceWorks:
    """Keeps the Works of namespaces."""

    def __init__(
        self,
        hub_client: Client,
        sources: NamespaceSources,
        events: EventRecorder,
        *,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._sources = sources
        self._clusters = KnownClusters(sources.clusters.cache)
        self._writer = WorkWriter(hub_client, sources.works)
        self._events = events
        self._new_id = new_id

    async def reconcile(self, request: Request) -> Outcome:
        """Bring the Works of one namespace to where they should be."""
        namespace = self._sources.namespaces.cache.find(request.key)
        if namespace is None or not is_synced(namespace):
            return Done()
        changes: list[Change] = []
        failures: list[Failure] = []
        policies = tuple(self._sources.cluster_override_policies.cache.objects())
        for cluster in self._clusters.candidates().values():
            if cluster.is_leaving:
                continue
            try:
                changes.extend(self._plan(namespace, cluster.traits, policies))
            except OverrideFailed as error:
                failures.append(Failure(cluster.name, OVERRIDE_FAILED, str(error)))
        written = await self._writer.write(changes)
        self._tell(namespace, (*failures, *written.failures))
        return RequeueAfter(REFUSED_SECONDS) if written.failures else Done()

    def _plan(
        self, namespace: Object, cluster: Traits, policies: tuple[Object, ...]
    ) -> tuple[Change, ...]:
        """Return what to write for one cluster; what a policy placed there is left to it."""
        outline = outline_for_namespace(namespace, cluster, policies)
        present = self._sources.works.find(outline.namespace, outline.name)
        if present is not None and (binding_key_of(present) or is_being_deleted(present)):
            return ()
        change = plan_change(outline, present, self._new_id)
        return (change,) if change.is_needed else ()

    def _tell(self, namespace: Object, failures: Iterable[Failure]) -> None:
        for each in failures:
            message = f"{each.cluster}: {each.message}"
            self._events.record(namespace, each.reason, message, is_warning=True)


def is_synced(namespace: Object) -> bool:
    """Whether a namespace is to be on every cluster."""
    name = name_of(namespace)
    is_told_to_stay = labels_of(namespace).get(stamps.SKIP_AUTO_PROPAGATION) == "true"
    is_own = name == _DEFAULT or is_reserved_namespace(name)
    return not (is_own or is_told_to_stay or is_being_deleted(namespace))


def outline_for_namespace(
    namespace: Object, cluster: Traits, policies: tuple[Object, ...]
) -> Outline:
    """Return the Work of a namespace in one cluster; OverrideFailed when it cannot be made."""
    overridden = override(namespace, cluster, OverridePolicies(cluster_wide=policies))
    owner = {
        "apiVersion": "v1",
        "kind": _KIND,
        "name": name_of(namespace),
        "uid": uid_of(namespace),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return Outline(
        cluster=cluster.name,
        template=namespace,
        manifest=overridden.manifest,
        notes=notes_of(overridden),
        owners=(owner,),
    )


def when_namespace_work_strays(update: Update) -> Iterable[Request]:
    """Look at the namespace of a Work that is gone, or that says something else than before."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or (after is not None and before.get("spec") == after.get("spec")):
        return ()
    named = (each for each in manifests_of(before) if each.get("kind") == _KIND)
    return [request_for(name_of(each)) for each in named]


class NamespaceTriggers:
    """Finds the namespaces that something else bears on."""

    def __init__(self, namespaces: Informer) -> None:
        self._namespaces = namespaces

    def when_cluster_changes(self, update: Update) -> Iterable[Request]:
        """Look at all namespaces when a cluster is new, or is told by other traits than before."""
        return self._all() if has_new_traits(update) else ()

    def when_override_changes(self, update: Update) -> Iterable[Request]:
        """Look at all namespaces when a policy means some of them, or did."""
        policies = (update.decode_before(), update.decode_after())
        is_meant = any(_may_mean_namespaces(each) for each in policies if each is not None)
        return self._all() if is_meant else ()

    def _all(self) -> list[Request]:
        return [request_for(key) for key in self._namespaces.cache]


def _may_mean_namespaces(policy: Object) -> bool:
    try:
        selectors = selectors_of(policy)
    except MalformedSelector:
        return True
    return not selectors or any(each.kind == _KIND for each in selectors)
