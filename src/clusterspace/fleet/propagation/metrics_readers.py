"""The right to read metrics of Pull clusters, placed where a FederatedHPA has pods.

    FederatedHPA ──binding──> its Pull clusters ──> ClusterRole and ClusterRoleBinding: Works

The controllers reach such a cluster through `clusters/NAME/proxy` of the hub, by the tunnel that
its agent keeps, and are there a user with these rights and no others. They stay when the autoscaler
goes, and are withdrawn with all else when the cluster leaves.
"""

from collections.abc import Callable, Iterable
from typing import Final, cast
from uuid import uuid4

from clusterspace.apis.autoscalers import FEDERATED_HPAS
from clusterspace.apis.clusters import CLUSTERS, WORKS, is_pull
from clusterspace.apis.identities import CONTROLLERS_ON_MEMBERS
from clusterspace.apis.member_clusters import has_kubefleet_agent
from clusterspace.apis.stamps import binding_name
from clusterspace.apis.works import RESOURCE_BINDINGS, binding_key_of, clusters_of
from clusterspace.client.requests import key_of
from clusterspace.client.resources import Client
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
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.fleet.propagation.watchdogs import is_another_mode
from clusterspace.fleet.propagation.works.rendering import (
    Change,
    KnownWorks,
    Outline,
    WorkWriter,
    plan_change,
)
from clusterspace.kube.objects import Object, find_at, is_being_deleted, namespace_of, uid_of

NAME: Final = "clusterspace:metrics-reader"
"""The role and its binding on the member."""
_RBAC: Final = "rbac.authorization.k8s.io"
_REFUSED_SECONDS: Final = 30.0
_BY_TARGET: Final = "target"


def manifests_for() -> tuple[Object, ...]:
    """Return what lets the controllers see pods, and what the metrics APIs say; nothing more."""
    rules: list[Object] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
        # What these call their resources is for whoever measures: each metric is one.
        {
            "apiGroups": ["custom.metrics.k8s.io", "external.metrics.k8s.io"],
            "resources": ["*"],
            "verbs": ["get", "list"],
        },
    ]
    metadata, version = {"name": NAME}, f"{_RBAC}/v1"
    return (
        {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": CONTROLLERS_ON_MEMBERS}],
        },
    )


def by_target(autoscaler: Object) -> Iterable[str]:
    """Index autoscalers by the key of the binding that their target would have."""
    named = cast("Object", find_at(autoscaler, "spec", "scaleTargetRef") or {})
    name = binding_name(str(named.get("kind")), str(named.get("name")))
    return (key_of(namespace_of(autoscaler), name),)


class MetricsReaders(Reconciler):
    """Keeps the Works that let the controllers read metrics of the Pull clusters that have pods."""

    name = "metrics-readers"
    workers = 1

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        *,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._new_id = new_id
        self._autoscalers = caches.informer(FEDERATED_HPAS, indexes={_BY_TARGET: by_target})
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._clusters = caches.informer(CLUSTERS)
        self._works = caches.informer(WORKS)
        self._known = caches.shared(KnownWorks)
        self._writer = WorkWriter(hub, self._known)

    def watches(self) -> Iterable[Watch]:
        """Return autoscalers, bindings of what they scale, and Clusters whose mode changes."""
        yield Watch(self._autoscalers, when=more_than_status_changed)
        yield Watch(self._bindings, to=self._autoscalers_of, when=more_than_status_changed)
        yield Watch(self._clusters, to=self._all_autoscalers, when=is_another_mode)
        yield Watch(self._works, to=nothing)

    def _autoscalers_of(self, update: Update) -> Iterable[Request]:
        found = self._autoscalers.cache.keys_at(_BY_TARGET, update.key)
        return [request_for(each) for each in found]

    def _all_autoscalers(self, _: Update) -> Iterable[Request]:
        return [request_for(each) for each in sorted(self._autoscalers.cache.keys())]

    async def reconcile(self, request: Request) -> Result:
        """Place the rights on the Pull clusters that one autoscaler has pods in."""
        autoscaler = self._autoscalers.cache.find(request.key)
        if autoscaler is None or is_being_deleted(autoscaler):
            return Done()
        changes: list[Change] = []
        for key in by_target(autoscaler):
            for target in clusters_of(self._bindings.cache.find(key) or {}):
                cluster = self._clusters.cache.find(target.name)
                if cluster is not None and is_pull(cluster) and not has_kubefleet_agent(cluster):
                    changes.extend(self._changes(target.name, uid_of(cluster)))
        written = await self._writer.write(changes)
        return RequeueAfter(_REFUSED_SECONDS) if written.failures else Done()

    def _changes(self, cluster: str, uid: str) -> Iterable[Change]:
        for manifest in manifests_for():
            made = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
            outline = Outline(cluster=cluster, template=made, manifest=made)
            existing = self._known.find(outline.key)
            if existing is not None and (binding_key_of(existing) or is_being_deleted(existing)):
                continue  # a policy's, which is left to it
            change = plan_change(outline, existing, self._new_id)
            if change.is_needed:
                yield change
