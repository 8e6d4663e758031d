"""What the simulation asks of the API it lives behind, and the objects in it as it sees them."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from clusterspace.kube.objects import Object, metadata_of, name_of, namespace_of, uid_of
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
DISRUPTION_BUDGET: Final = Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
AUTOSCALER: Final = Kind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers")
SERVICE: Final = Kind("Service", "v1", "services")
ENDPOINTS: Final = Kind("Endpoints", "v1", "endpoints")
ENDPOINT_SLICE: Final = Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
CLAIM: Final = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
VOLUME: Final = Kind("PersistentVolume", "v1", "persistentvolumes", namespaced=False)
STORAGE_CLASS: Final = Kind("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False)
LEASE: Final = Kind("Lease", "coordination.k8s.io/v1", "leases")
DEPLOYMENT: Final = Kind("Deployment", "apps/v1", "deployments")
REPLICA_SET: Final = Kind("ReplicaSet", "apps/v1", "replicasets")
REPLICATION_CONTROLLER: Final = Kind("ReplicationController", "v1", "replicationcontrollers")
STATEFUL_SET: Final = Kind("StatefulSet", "apps/v1", "statefulsets")
DAEMON_SET: Final = Kind("DaemonSet", "apps/v1", "daemonsets")
CONTROLLER_REVISION: Final = Kind("ControllerRevision", "apps/v1", "controllerrevisions")
JOB: Final = Kind("Job", "batch/v1", "jobs")
CRON_JOB: Final = Kind("CronJob", "batch/v1", "cronjobs")

FOLLOWED: Final = (
    LEASE,
    NODE,
    POD,
    DEPLOYMENT,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    DAEMON_SET,
    CONTROLLER_REVISION,
    JOB,
    CRON_JOB,
    DISRUPTION_BUDGET,
    AUTOSCALER,
    SERVICE,
    ENDPOINTS,
    ENDPOINT_SLICE,
    STORAGE_CLASS,
    VOLUME,
    CLAIM,
)
"""The kinds whose objects controllers look at."""

KINDS: Final = {kind.name: kind for kind in (*FOLLOWED, NAMESPACE, CONFIG_MAP)}
"""Every kind the simulation reads or writes, by the name its objects carry."""


def kind_of(kube_object: Object) -> Kind:
    """Return the kind of an object the simulation reads or writes."""
    return KINDS[kube_object["kind"]]


class Listener(Protocol):
    """Hears what there is and how it changes; called in the event loop, between two steps."""

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


# -- the objects as controllers see them: by name, and by owner --------------------------------


class Key(NamedTuple):
    """Which object; the items of work queues."""

    kind: str
    namespace: str
    name: str


class Change(NamedTuple):
    """One object before and after; None where there was none, or is none any more."""

    before: Object | None
    after: Object | None

    @property
    def latest(self) -> Object:
        """The object as it was last seen."""
        latest = self.before if self.after is None else self.after
        if latest is None:
            raise AssertionError("a change of nothing into nothing")
        return latest

    @property
    def kind(self) -> str:
        """What kind the object is of."""
        return str(self.latest["kind"])

    @property
    def versions(self) -> tuple[Object, ...]:
        """The object as it was and as it is: whoever cares for either is concerned."""
        return tuple(each for each in self if each is not None)


Watcher: TypeAlias = Callable[[Change], None]
"""Called with every change, between two steps of the loop."""


def key_of(kube_object: Object) -> Key:
    """Return the key of an object."""
    return Key(kube_object["kind"], namespace_of(kube_object), name_of(kube_object))


def controller_of(kube_object: Object) -> Object | None:
    """Return the owner reference of the controller, if there is one."""
    references = cast("list[Object]", metadata_of(kube_object).get("ownerReferences") or [])
    return next((each for each in references if each.get("controller")), None)


class Mirror:
    """A Listener that remembers. Objects are shared: nobody edits them."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self._in_namespace: defaultdict[tuple[str, str], dict[Key, Object]] = defaultdict(dict)
        """Kind and namespace to what is there."""
        self._owned: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        """Controller UID to what it controls."""
        self._orphans: defaultdict[tuple[str, str], dict[Key, Object]] = defaultdict(dict)
        """Kind and namespace to what nobody controls."""
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> None:
        """Call back on every change from now on."""
        self._watchers.append(watcher)

    def find(self, key: Key) -> Object | None:
        """Return an object, or None."""
        return self._objects[key.kind].get(key)

    def all(self, kind: Kind) -> Iterator[Object]:
        """Return every object of a kind, in no order that means anything."""
        return iter(tuple(self._objects[kind.name].values()))

    def in_namespace(self, kind: Kind, namespace: str) -> tuple[Object, ...]:
        """Return the objects of one kind in a namespace."""
        return tuple(self._in_namespace.get((kind.name, namespace), {}).values())

    def owned_by(self, owner: Object, kind: Kind) -> tuple[Object, ...]:
        """Return the objects of one kind that an object controls."""
        owned = self._owned.get(uid_of(owner), {})
        return tuple(each for key, each in owned.items() if key.kind == kind.name)

    def orphans(self, kind: Kind, namespace: str) -> tuple[Object, ...]:
        """Return the objects of one kind in a namespace that nobody controls."""
        return tuple(self._orphans.get((kind.name, namespace), {}).values())

    # -- as a Listener -------------------------------------------------------------------------

    def replace(self, kind: Kind, objects: Iterable[Object]) -> None:
        """Know exactly these objects of a kind."""
        present = {key_of(each): each for each in objects}
        for key, known in tuple(self._objects[kind.name].items()):
            if key not in present:
                self.removed(known)
        for each in present.values():
            self.changed(each)

    def changed(self, kube_object: Object) -> None:
        """Remember an object."""
        key = key_of(kube_object)
        before = self._take_out(key)
        self._objects[key.kind][key] = kube_object
        for index, place in self._places(kube_object):
            index[place][key] = kube_object
        self._notify(Change(before, kube_object))

    def removed(self, kube_object: Object) -> None:
        """Forget an object."""
        key = key_of(kube_object)
        self._take_out(key)
        self._notify(Change(kube_object, None))

    def _take_out(self, key: Key) -> Object | None:
        known = self._objects[key.kind].pop(key, None)
        if known is not None:
            for index, place in self._places(known):
                index[place].pop(key, None)
                if not index[place]:
                    del index[place]
        return known

    def _places(
        self, kube_object: Object
    ) -> tuple[tuple[defaultdict[Any, dict[Key, Object]], Hashable], ...]:
        """Return where an object stands in the indexes."""
        place = (str(kube_object["kind"]), namespace_of(kube_object))
        owner = controller_of(kube_object)
        if owner is None:
            return ((self._in_namespace, place), (self._orphans, place))
        return ((self._in_namespace, place), (self._owned, str(owner["uid"])))

    def _notify(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher(change)
