"""Watchdogs for the Push clusters that need one: whoever runs there stops copies by a lease.

    leased Work on a Push cluster ──an image is set──> account, role, binding, Deployment: Works

They stay when the last leased copy goes, and are withdrawn with all else when the cluster leaves.
"""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import uuid4

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, WORKS, is_pull
from clusterspace.apis.exclusive import EXCLUSIVE, LEASED, exclusiveness_of_work
from clusterspace.apis.member_clusters import has_kubefleet_agent
from clusterspace.apis.works import binding_key_of, cluster_of
from clusterspace.client.resources import Client
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.fleet.propagation.works.rendering import (
    Change,
    KnownWorks,
    Outline,
    WorkWriter,
    plan_change,
)
from clusterspace.kube.objects import Object, is_being_deleted, uid_of

_NAME: Final = "clusterspace-watchdog"
_RBAC: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/name": _NAME}
_REFUSED_SECONDS: Final = 30.0
_BY_LEASED: Final = "leased-on"
_MARK: Final = EXCLUSIVE.encode()
_RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def manifests_for(image: str) -> tuple[Object, ...]:
    """Return what a watchdog is on its cluster: it may stop workloads, and keep its Lease."""
    here = {"name": _NAME, "namespace": CLUSTER_NAMESPACE}
    stop = ["get", "list", "update"]
    rules: list[Object] = [
        {
            "apiGroups": ["apps"],
            "resources": ["deployments", "replicasets", "statefulsets"],
            "verbs": stop,
        },
        {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": stop},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [_NAME],
            "verbs": ["get", "update"],
        },
        # A right to create cannot be for one name.
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    ]
    container = {
        "name": "watchdog",
        "image": image,
        "command": ["clusterspace", "watchdog", "--log-format", "json"],
        "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}},
        "securityContext": _RESTRICTED,
        # Certificates are loaded through a file that is gone at once.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - in the container
    }
    pod = {
        "serviceAccountName": _NAME,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }
    rbac = f"{_RBAC}/v1"
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": _NAME}, "rules": rules},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _NAME},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NAME},
            "subjects": [{"kind": "ServiceAccount", **here}],
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": here, "spec": spec},
    )


def by_leased(work: Object) -> Iterable[str]:
    """Index the Works of leased copies by their cluster."""
    return (cluster_of(work),) if exclusiveness_of_work(work) == LEASED else ()


def cluster_of_leased(update: Update) -> Iterable[Request]:
    """Map a Work of a leased copy to its cluster; most Works are not decoded."""
    if _MARK not in (update.after or b""):
        return ()
    return [Request(each) for each in by_leased(update.decode_after() or {})]


class WatchdogWorks(Reconciler):
    """Keeps the Works of watchdogs, where an image of one is set."""

    name = "watchdog-works"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        image: str,
        *,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._image = image
        self._new_id = new_id
        self._clusters = caches.informer(CLUSTERS)
        self._works = caches.informer(WORKS, indexes={_BY_LEASED: by_leased})
        self._known = caches.shared(KnownWorks)
        self._writer = WorkWriter(hub, self._known)

    def watches(self) -> Iterable[Watch]:
        """Return Clusters, whose mode may change, and the Works of leased copies."""
        yield Watch(self._clusters, when=is_another_mode)
        yield Watch(self._works, to=cluster_of_leased)

    async def reconcile(self, request: Request) -> Result:
        """Place a watchdog on one cluster, if it needs one."""
        cluster = self._clusters.cache.find(request.name)
        if not self._image or cluster is None or is_being_deleted(cluster):
            return Done()
        if is_pull(cluster) or has_kubefleet_agent(cluster):
            return Done()
        if not self._works.cache.objects_at(_BY_LEASED, request.name):
            return Done()
        changes: list[Change] = []
        for manifest in manifests_for(self._image):
            made = {**manifest, "metadata": {**manifest["metadata"], "uid": uid_of(cluster)}}
            outline = Outline(cluster=request.name, template=made, manifest=made)
            existing = self._known.find(outline.key)
            if existing is not None and (binding_key_of(existing) or is_being_deleted(existing)):
                continue  # a policy's, which is left to it
            change = plan_change(outline, existing, self._new_id)
            if change.is_needed:
                changes.append(change)
        written = await self._writer.write(changes)
        return RequeueAfter(_REFUSED_SECONDS) if written.failures else Done()


def is_another_mode(update: Update) -> bool:
    """Whether a Cluster is new, or is worked for by somebody else than before."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return after is not None
    return is_pull(before) != is_pull(after)
