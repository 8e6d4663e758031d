"""Every namespace of the hub, on every cluster: objects need one to be in.

    Namespace ──not reserved, not labelled to stay──> one Work per cluster, owned by the Namespace

Nothing is removed here: when a namespace goes, the hub's garbage collector takes its Works along.
"""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import uuid4

from clusterspace.apis import stamps
from clusterspace.apis.affinities import Traits
from clusterspace.apis.clusters import CLUSTERS, WORKS, execution_namespace
from clusterspace.apis.policies import CLUSTER_OVERRIDE_POLICIES, selectors_of
from clusterspace.apis.works import binding_key_of, manifests_of
from clusterspace.client.requests import key_of
from clusterspace.client.resources import Client
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import MalformedSelector, OverrideFailed
from clusterspace.fleet.propagation.bindings import OVERRIDE_FAILED
from clusterspace.fleet.propagation.overrides import OverridePolicies, override
from clusterspace.fleet.propagation.scheduler.filters import KnownClusters, has_new_traits
from clusterspace.fleet.propagation.templates import is_on_every_cluster
from clusterspace.fleet.propagation.works.rendering import (
    Change,
    Failure,
    KnownWorks,
    Outline,
    WorkWriter,
    notes_of,
    plan_change,
)
from clusterspace.kube.objects import Object, is_being_deleted, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource

REFUSED_SECONDS: Final = 30.0
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
_KIND: Final = "Namespace"


class NamespaceWorks(Reconciler):
    """Keeps the Works of namespaces."""

    name = "namespaces"
    workers = 16

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        *,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._events = events
        self._new_id = new_id
        self._namespaces = caches.informer(NAMESPACES)
        self._works = caches.informer(WORKS)
        self._clusters = caches.informer(CLUSTERS)
        self._overrides = caches.informer(CLUSTER_OVERRIDE_POLICIES)
        self._candidates = caches.shared(KnownClusters)
        self._known = caches.shared(KnownWorks)
        self._writer = WorkWriter(hub, self._known)

    def watches(self) -> Iterable[Watch]:
        """Return namespaces, their Works, and what decides where those are and what is in them."""
        yield Watch(self._namespaces)
        yield Watch(self._works, to=namespace_of_strayed)
        yield Watch(self._clusters, to=self.every_namespace, when=has_new_traits)
        yield Watch(self._overrides, to=self.every_namespace, when=may_override_namespaces)

    async def reconcile(self, request: Request) -> Result:
        """Bring the Works of one namespace to where they should be."""
        namespace = self._namespaces.cache.find(request.key)
        if namespace is not None and is_being_deleted(namespace):
            # Its Works go with it, by the hub's garbage collector: it is theirs to say beforehand
            # that somebody asked for this. One that comes too late is counted, and may pause.
            await self._mark_asked(namespace)
            return Done()
        if namespace is None or not is_on_every_cluster(namespace):
            return Done()
        changes: list[Change] = []
        failures: list[Failure] = []
        policies = tuple(self._overrides.cache.objects())
        for cluster in self._candidates.candidates().values():
            if cluster.is_leaving:
                continue
            try:
                outline = outline_for_namespace(namespace, cluster.traits, policies)
            except OverrideFailed as error:
                failures.append(Failure(cluster.name, OVERRIDE_FAILED, str(error)))
                continue
            existing = self._known.find(outline.key)
            if existing is not None and (binding_key_of(existing) or is_being_deleted(existing)):
                # What a policy placed there is left to it. A binding may take over a Work of ours
                # at this moment: then our write is planned on a version from before, a Conflict.
                continue
            change = plan_change(outline, existing, self._new_id)
            if change.is_needed:
                changes.append(change)
        written = await self._writer.write(changes)
        for each in (*failures, *written.failures):
            message = f"{each.cluster}: {each.message}"
            self._events.record(namespace, each.reason, message, is_warning=True)
        return RequeueAfter(REFUSED_SECONDS) if written.failures else Done()

    async def _mark_asked(self, namespace: Object) -> None:
        name = stamps.work_name(_KIND, "", name_of(namespace))
        for cluster in self._candidates.candidates():
            work = self._known.find(key_of(execution_namespace(cluster), name))
            if work is not None and not binding_key_of(work):
                await self._writer.mark_asked(work)

    def every_namespace(self, _: Update) -> Iterable[Request]:
        """Map a change to all namespaces."""
        return [request_for(key) for key in self._namespaces.cache]


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


def namespace_of_strayed(update: Update) -> Iterable[Request]:
    """Map a Work that is gone, or says something else than before, to its namespace."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or (after is not None and before.get("spec") == after.get("spec")):
        return ()
    manifests = (each for each in manifests_of(before) if each.get("kind") == _KIND)
    return [request_for(name_of(each)) for each in manifests]


def may_override_namespaces(update: Update) -> bool:
    """Whether an override policy may select namespaces, or did before."""
    for policy in (update.decode_before(), update.decode_after()):
        if policy is None:
            continue
        try:
            selectors = selectors_of(policy)
        except MalformedSelector:
            return True  # the namespaces it may concern will say so
        if not selectors or any(each.kind == _KIND for each in selectors):
            return True
    return False
