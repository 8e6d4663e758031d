"""What the simulation asks of the API it lives behind, and nothing more."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, parse_api_version


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind the simulation works with, and where it is served."""

    name: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def group_version(self) -> GroupVersion:
        """The group and version it is served in."""
        return parse_api_version(self.api_version)


POD: Final = Kind("Pod", "v1", "pods")
NODE: Final = Kind("Node", "v1", "nodes", namespaced=False)
NAMESPACE: Final = Kind("Namespace", "v1", "namespaces", namespaced=False)
CONFIG_MAP: Final = Kind("ConfigMap", "v1", "configmaps")
CLAIM: Final = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
LEASE: Final = Kind("Lease", "coordination.k8s.io/v1", "leases")
DEPLOYMENT: Final = Kind("Deployment", "apps/v1", "deployments")
REPLICA_SET: Final = Kind("ReplicaSet", "apps/v1", "replicasets")
STATEFUL_SET: Final = Kind("StatefulSet", "apps/v1", "statefulsets")
DAEMON_SET: Final = Kind("DaemonSet", "apps/v1", "daemonsets")
CONTROLLER_REVISION: Final = Kind("ControllerRevision", "apps/v1", "controllerrevisions")
JOB: Final = Kind("Job", "batch/v1", "jobs")

KINDS: Final = {
    kind.name: kind
    for kind in (
        POD,
        NODE,
        NAMESPACE,
        CONFIG_MAP,
        CLAIM,
        LEASE,
        DEPLOYMENT,
        REPLICA_SET,
        STATEFUL_SET,
        DAEMON_SET,
        CONTROLLER_REVISION,
        JOB,
    )
}
"""Every kind the simulation reads or writes, by the name its objects carry."""


FOLLOWED: Final = (
    NODE,
    POD,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    CONTROLLER_REVISION,
    JOB,
    CLAIM,
)
"""The kinds whose objects controllers look at."""


def kind_of(kube_object: Object) -> Kind:
    """Return the kind of an object the simulation made or was told of."""
    return KINDS[kube_object["kind"]]


class Listener(Protocol):
    """Told what there is and how it changes; called in the event loop, between two steps."""

    def replace(self, kind: Kind, objects: Iterable[Object]) -> None:
        """Learn everything there is of a kind; what was known before is void."""
        ...

    def changed(self, kube_object: Object) -> None:
        """Learn of an object that is new or different."""
        ...

    def removed(self, kube_object: Object) -> None:
        """Learn of an object that is gone, as it last was."""
        ...


class SimApi(Protocol):
    """The API as the simulation's controllers use it; refusals are ApiErrors.

    An implementation must let the listener know of a write before the write returns, or a
    controller would act twice on what it does not see yet.
    """

    async def create(self, kube_object: Object) -> Object:
        """Create an object and return it as stored."""
        ...

    async def update(self, kube_object: Object) -> Object:
        """Replace an object at the version it carries."""
        ...

    async def update_status(self, kube_object: Object) -> Object:
        """Replace the status of an object at the version it carries."""
        ...

    async def delete(self, kube_object: Object, *, grace_seconds: int | None = None) -> None:
        """Delete exactly this object, by UID; an object that is gone already is no error."""
        ...

    async def bind(self, pod: Object, node: str) -> None:
        """Put a pod on a node."""
        ...

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> None:
        """Tell the listener what there is, then of every change, until cancelled."""
        ...
