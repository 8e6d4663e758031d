"""What must not change when a cluster is taken over, recorded: `proof.py` compares two of these.

    snapshot = await capture(member, Selection(("shop",)), clock)
    file.writelines(encode(snapshot))

A snapshot has identities only: UIDs, container IDs, restart counts, template hashes, addresses,
bindings of volumes. Objects are read page by page and forgotten, and identities are kept in a
spool: a snapshot takes little memory, however much runs, and holds nothing that is secret.

What could not be read is written down as not seen, and what was not seen is never called unchanged:
neither when it was forbidden before, nor when it is now, nor when an answer makes no sense.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions, RawObject
from clusterspace.errors import (
    ApiError,
    CannotProve,
    ClusterError,
    ClusterMisbehaved,
    Expired,
    Forbidden,
    NotFound,
)
from clusterspace.fleet.migration.spool import Spool
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import find_at, identity_of, uid_of
from clusterspace.kube.plain_text import line
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time

FORMAT: Final = "clusterspace.io/migration-snapshot"
VERSION: Final = 1

POD: Final = "Pod"
REPLICA_SET: Final = "ReplicaSet"
CONTROLLER_REVISION: Final = "ControllerRevision"
DEPLOYMENT: Final = "Deployment"
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
JOB: Final = "Job"
SERVICE: Final = "Service"
CLAIM: Final = "PersistentVolumeClaim"
AUTOSCALER: Final = "HorizontalPodAutoscaler"

_PAGE: Final = ListOptions(limit=250)
_ATTEMPTS: Final = 3
_FEW: Final = 5
_MOST_OBJECTS: Final = 1_000_000
"""Of one kind; Kubernetes' own limit for pods is 150,000."""
_MOST_TEXT: Final = 200
_NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
_WHO_AM_I: Final = GroupVersionResource("authentication.k8s.io", "v1", "selfsubjectreviews")
_SERVICE_NAME: Final = "kubernetes.io/service-name"
_AND: Final = " and "


@dataclass(frozen=True, slots=True)
class Selection:
    """What is looked at: these namespaces, or all."""

    namespaces: tuple[str, ...] = ()


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The controller of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""


_NO_OWNER: Final = Reference()


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object: what must stay as it is, and what only explains a difference."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    owner: Reference = _NO_OWNER
    facts: dict[str, str] = {}
    """What must not change, by a name that people understand."""
    info: dict[str, str] = {}
    """What may change, and why something else did."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    @property
    def text(self) -> str:
        """The object as a sentence names it."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Identities(Spool[Identity]):
    """Identities by their keys and by their UIDs, few of them in memory."""

    def __init__(self, identities: Iterable[Identity] = ()) -> None:
        super().__init__(Identity)
        for each in identities:
            self.keep(each)

    def keep(self, identity: Identity) -> None:
        """Add an identity; one that has its key gets its facts, for a Service has many slices."""
        key = _text_of(identity.key)
        if self.add(identity, key, group=identity.uid) is not None:
            other = self.by_key(identity.key)
            known = other.facts if other is not None else {}
            both = _with_targets(known, identity.facts)
            self.replace(key, msgspec.structs.replace(identity, facts=both))

    def by_key(self, key: tuple[str, str, str]) -> Identity | None:
        """Return the identity of an object, if it was seen."""
        return self.find(_text_of(key))

    def by_uid(self, uid: str) -> Identity | None:
        """Return the identity with a UID, if it was seen."""
        return next(self.of(uid), None) if uid else None


def _text_of(key: tuple[str, str, str]) -> str:
    # Names are somebody else's: whatever is in them, two keys are two texts.
    return msgspec.json.encode(key).decode()


class Unseen(msgspec.Struct, frozen=True):
    """Something that could not be looked at; without a name it is a whole collection."""

    kind: str
    namespace: str
    why: str
    name: str = ""


Seen = TypeVar("Seen")


class _Recorded(msgspec.Struct, Generic[Seen], frozen=True):
    """The fields of a snapshot; a file has its identities as text, until each is looked at."""

    cluster: str
    cluster_uid: str
    taken_by: str
    began: str
    ended: str
    namespaces: tuple[str, ...]
    """Those that were asked for; none is all."""
    identities: Seen
    unseen: tuple[Unseen, ...] = ()


class Snapshot(_Recorded[Sequence[Identity]], frozen=True):
    """What was running, on which cluster, and who saw it when."""

    @property
    def selection(self) -> Selection:
        """What to look at for a comparison."""
        return Selection(self.namespaces)

    def counts(self) -> Counter[str]:
        """Return how many objects of each kind were seen."""
        return Counter(each.kind for each in self.identities)


# -- what of an object is its identity -------------------------------------------------------------

# Read by types, not as plain objects: decoding a Pod for the eight fields that count takes a tenth
# of the time and memory of decoding all of it, and what is of another type is refused in one place.


class _Wire(msgspec.Struct, gc=False, rename="camel"):
    pass


class _OwnerReference(_Wire):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(_Wire):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[_OwnerReference] | None = None


class _ContainerStatus(_Wire):
    name: str
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0


class _PodStatus(_Wire):
    phase: str = ""
    start_time: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _PodSpec(_Wire):
    node_name: str = ""


class _Pod(_Wire):
    metadata: _Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _WorkloadSpec(_Wire):
    replicas: int | None = None
    template: Any = None
    ttl_seconds_after_finished: int | None = None


class _WorkloadStatus(_Wire):
    start_time: str | None = None
    completion_time: str | None = None
    failed: int | None = None
    conditions: list[dict[str, Any]] | None = None


class _Workload(_Wire):
    metadata: _Metadata
    spec: _WorkloadSpec = msgspec.field(default_factory=_WorkloadSpec)
    status: _WorkloadStatus = msgspec.field(default_factory=_WorkloadStatus)


class _Revision(_Wire):
    metadata: _Metadata
    data: Any = None


class _TargetReference(_Wire):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Endpoint(_Wire):
    addresses: list[str] | None = None
    target_ref: _TargetReference | None = None


class _Slice(_Wire):
    metadata: _Metadata
    endpoints: list[_Endpoint] | None = None


class _ClaimSpec(_Wire):
    volume_name: str = ""


class _Claim(_Wire):
    metadata: _Metadata
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)


class _AutoscalerSpec(_Wire):
    scale_target_ref: _TargetReference = msgspec.field(default_factory=_TargetReference)


class _AutoscalerStatus(_Wire):
    current_replicas: int | None = None
    desired_replicas: int | None = None
    last_scale_time: str | None = None


class _Autoscaler(_Wire):
    metadata: _Metadata
    spec: _AutoscalerSpec = msgspec.field(default_factory=_AutoscalerSpec)
    status: _AutoscalerStatus = msgspec.field(default_factory=_AutoscalerStatus)


def _identity(
    kind: str, metadata: _Metadata, facts: Mapping[str, Any], info: Mapping[str, Any]
) -> Identity:
    ruling = (each for each in metadata.owner_references or () if each.controller)
    owner = next((Reference(each.kind, each.name, each.uid) for each in ruling), _NO_OWNER)
    return Identity(
        kind,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        owner,
        {key: str(value) for key, value in facts.items() if value not in (None, "")},
        {key: str(value) for key, value in info.items() if value not in (None, "")},
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(identity_of(value)).hexdigest()[:16] if value is not None else ""


def _pod(seen: _Pod) -> Identity:
    facts: dict[str, Any] = {"start time": seen.status.start_time, "node": seen.spec.node_name}
    statuses = seen.status
    for each in (*(statuses.init_container_statuses or ()), *(statuses.container_statuses or ())):
        facts[f"container {each.name}"] = each.container_id
        facts[f"restarts of {each.name}"] = each.restart_count
    return _identity(POD, seen.metadata, facts, {"phase": statuses.phase, **_hash_of(seen)})


def _hash_of(seen: "_Pod | _Workload | _Revision") -> dict[str, str]:
    labels = seen.metadata.labels or {}
    names = ("pod-template-hash", "controller-revision-hash", "controller.kubernetes.io/hash")
    return {"template hash": next((labels[each] for each in names if labels.get(each)), "")}


def _workload(kind: str) -> Callable[[_Workload], Identity]:
    def read(seen: _Workload) -> Identity:
        facts = {"pod template": _digest(seen.spec.template)}
        return _identity(kind, seen.metadata, facts, {"replicas": seen.spec.replicas})

    return read


def _replica_set(seen: _Workload) -> Identity:
    facts = {**_hash_of(seen), "pod template": _digest(seen.spec.template)}
    return _identity(REPLICA_SET, seen.metadata, facts, {"replicas": seen.spec.replicas})


def _revision(seen: _Revision) -> Identity:
    facts = {**_hash_of(seen), "data": _digest(seen.data)}
    return _identity(CONTROLLER_REVISION, seen.metadata, facts, {})


def _job(seen: _Workload) -> Identity:
    ended = any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in seen.status.conditions or ()
    )
    info = {
        "finished": "yes" if ended or seen.status.completion_time else "",
        "kept for": seen.spec.ttl_seconds_after_finished,
    }
    return _identity(JOB, seen.metadata, {"start time": seen.status.start_time}, info)


def _claim(seen: _Claim) -> Identity:
    return _identity(CLAIM, seen.metadata, {"volume": seen.spec.volume_name}, {})


def _autoscaler(seen: _Autoscaler) -> Identity:
    target = seen.spec.scale_target_ref
    info = {
        "target": f"{target.kind}/{target.name}",
        "current replicas": seen.status.current_replicas,
        "desired replicas": seen.status.desired_replicas,
        "last scaled": seen.status.last_scale_time,
    }
    return _identity(AUTOSCALER, seen.metadata, {}, info)


def _slice(seen: _Slice) -> Identity:
    """Return the part of a Service's endpoints that is in one slice.

    Which slice an address is in says nothing: the controller packs them anew as it likes.
    """
    service = (seen.metadata.labels or {}).get(_SERVICE_NAME) or seen.metadata.name
    facts: dict[str, str] = {}
    for each in seen.endpoints or ():
        target = each.target_ref
        to = f"{target.kind} {target.name} {target.uid}" if target else "an address of its own"
        more = {f"endpoint {address}": to for address in each.addresses or ()}
        facts = _with_targets(facts, more)
    return Identity(SERVICE, seen.metadata.namespace, service, facts=facts)


def targets_of(endpoint: str) -> set[str]:
    """Return what is behind an endpoint, each with its UID as the last word.

    Pods in the network of their node share its address, so that it can be several.
    """
    return set(endpoint.split(_AND)) if endpoint else set()


def _with_targets(facts: dict[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the endpoints of both, each with all that is behind it, in an order of its own."""
    joined = {
        each: _AND.join(sorted(targets_of(target) | targets_of(facts.get(each, ""))))
        for each, target in more.items()
    }
    return {**facts, **joined}


class _Collection(msgspec.Struct, frozen=True):
    kind: str
    resource: GroupVersionResource
    decode: Callable[[bytes], Any]
    identify: Callable[[Any], Identity]


def _collection(
    kind: str, group: str, plural: str, wire: type[_Wire], identify: Callable[[Any], Identity]
) -> _Collection:
    version = "v2" if group == "autoscaling" else "v1"
    decoder = msgspec.json.Decoder(wire)
    return _Collection(kind, GroupVersionResource(group, version, plural), decoder.decode, identify)


_COLLECTIONS: Final = (
    # What explains a difference is read before what may differ: an autoscaler that scales between
    # the two reads has said so already.
    _collection(AUTOSCALER, "autoscaling", "horizontalpodautoscalers", _Autoscaler, _autoscaler),
    _collection(DEPLOYMENT, "apps", "deployments", _Workload, _workload(DEPLOYMENT)),
    _collection(STATEFUL_SET, "apps", "statefulsets", _Workload, _workload(STATEFUL_SET)),
    _collection(DAEMON_SET, "apps", "daemonsets", _Workload, _workload(DAEMON_SET)),
    _collection(JOB, "batch", "jobs", _Workload, _job),
    _collection(REPLICA_SET, "apps", "replicasets", _Workload, _replica_set),
    _collection(CONTROLLER_REVISION, "apps", "controllerrevisions", _Revision, _revision),
    _collection(POD, "", "pods", _Pod, _pod),
    _collection(SERVICE, "discovery.k8s.io", "endpointslices", _Slice, _slice),
    _collection(CLAIM, "", "persistentvolumeclaims", _Claim, _claim),
)
KINDS: Final = tuple(each.kind for each in _COLLECTIONS)
"""The kinds that are compared; a Service stands for its endpoints."""


# -- capture ---------------------------------------------------------------------------------------


async def capture(member: ClusterClient, selection: Selection, clock: Clock) -> Snapshot:
    """Record the identities of what runs on a cluster; CannotProve when that would mean nothing.

    A collection that cannot be read is recorded as not seen. The cluster's UID must be readable:
    without it nobody knows which cluster a snapshot is of.
    """
    began = format_time(clock.now())
    try:
        system = await member.get(ResourcePath(_NAMESPACES, name="kube-system"))
    except ApiError as error:
        why = f"its UID, which is that of the namespace kube-system, cannot be read: {error}"
        raise CannotProve(member.cluster, why) from error
    identities = Identities()
    unseen: list[Unseen] = []
    for collection in _COLLECTIONS:
        for namespace in await _places(member, collection, selection):
            try:
                seen, unreadable = await _read_all(member, collection, namespace)
            except (ApiError, ClusterError) as error:
                why = line(str(error), _MOST_TEXT)
                unseen.append(Unseen(collection.kind, namespace, why))
            else:
                wanted = selection.namespaces or None
                for each in seen:
                    if wanted is None or each.namespace in wanted:
                        identities.keep(each)
                unseen += (
                    each for each in unreadable if wanted is None or each.namespace in wanted
                )
    return Snapshot(
        cluster=member.cluster,
        cluster_uid=uid_of(system),
        taken_by=await _whoami(member),
        began=began,
        ended=format_time(clock.now()),
        namespaces=selection.namespaces,
        identities=identities,
        unseen=tuple(unseen),
    )


async def require_namespaces(member: ClusterClient, selection: Selection) -> None:
    """Raise CannotProve for a namespace that is not there.

    A list in one that is misspelt is empty, and of nothing nothing changes.
    """
    for each in selection.namespaces:
        try:
            await member.get(ResourcePath(_NAMESPACES, name=each))
        except NotFound as error:
            raise CannotProve(member.cluster, f"there is no namespace {each}") from error
        except Forbidden:
            continue  # who may not look at namespaces may still list what is in them


async def _places(
    member: ClusterClient, collection: _Collection, selection: Selection
) -> tuple[str, ...]:
    """Return the namespaces to list one by one; an empty one is all at once.

    A list for each of many namespaces takes longer than one of them all, which not everybody may
    have.
    """
    if len(selection.namespaces) <= _FEW:
        return selection.namespaces or ("",)
    try:
        async for _ in member.list_raw(ResourcePath(collection.resource), ListOptions(limit=1)):
            break
    except (ApiError, ClusterError):
        return selection.namespaces
    return ("",)


async def _read_all(
    member: ClusterClient, collection: _Collection, namespace: str
) -> tuple[Identities, list[Unseen]]:
    place = ResourcePath(collection.resource, namespace)
    for attempt in range(1, _ATTEMPTS + 1):
        seen, count = Identities(), 0
        unreadable: list[Unseen] = []
        try:
            async for page in member.pages(place, _PAGE):
                for item in page.items:
                    _read_one(collection, item, seen, unreadable)
                count += len(page.items)
                is_endless = page.head.continue_token and not page.items
                if is_endless or count > _MOST_OBJECTS:
                    raise ClusterMisbehaved(member.cluster, f"its list of {place} has no end")
        except Expired:
            # The cluster forgot the moment of the first page while we read. What was read so far
            # is of another moment than what would follow, so all of it is read again.
            if attempt == _ATTEMPTS:
                raise
        else:
            return seen, unreadable
    raise AssertionError("the last attempt returns or raises")


def _read_one(
    collection: _Collection, item: RawObject, seen: Identities, unreadable: list[Unseen]
) -> None:
    try:
        seen.keep(collection.identify(collection.decode(item.raw)))
    except UNREADABLE as error:
        namespace, _, name = item.key.rpartition("/")
        why = line(f"it is no {collection.kind} as Kubernetes has them: {error}", _MOST_TEXT)
        unreadable.append(Unseen(collection.kind, namespace, why, name))


async def _whoami(member: ClusterClient) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await member.create(ResourcePath(_WHO_AM_I), review)
    except (ApiError, ClusterError):
        return ""  # clusters before 1.28 do not say
    return line(str(find_at(answer, "status", "userInfo", "username") or ""), _MOST_TEXT)


# -- files -----------------------------------------------------------------------------------------


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


class _File(msgspec.Struct, frozen=True):
    format: str
    version: int
    digest: str
    snapshot: msgspec.Raw


def encode(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield a snapshot as the text of a file, with a digest of itself."""
    file = _File(FORMAT, VERSION, digest_of(snapshot), msgspec.Raw(b"null"))
    yield msgspec.json.encode(file).removesuffix(b"null}")
    yield from _pieces_of(snapshot)
    yield b"}\n"


def _pieces_of(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the JSON of a snapshot; identities are encoded as they are asked for."""
    head = msgspec.json.encode(msgspec.structs.replace(snapshot, identities=()))
    # Inside of texts the quotation marks would have backslashes.
    first, key, rest = head.partition(b'"identities":[')
    yield first + key
    for index, each in enumerate(snapshot.identities):
        yield (b"," if index else b"") + msgspec.json.encode(each)
    yield rest


def digest_of(snapshot: Snapshot) -> str:
    """Return what is the same for two snapshots exactly when they say the same."""
    digest = hashlib.sha256()
    for piece in _pieces_of(snapshot):
        digest.update(piece)
    return digest.hexdigest()


def decode(text: bytes) -> Snapshot:
    """Read a snapshot; CannotProve says what is wrong with the file."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except UNREADABLE as error:
        why = f"the file is not a whole snapshot of `clusterspace migrate snapshot`: {error}"
        raise CannotProve("", why) from error
    if head.format != FORMAT:
        raise CannotProve("", "the file is no snapshot of `clusterspace migrate snapshot`")
    if head.version > VERSION:
        why = f"the file has version {head.version}, and this program reads up to {VERSION}"
        raise CannotProve("", f"{why}: take the program that wrote it, or a newer one")
    try:
        file = msgspec.json.decode(text, type=_File)
        recorded = msgspec.json.decode(file.snapshot, type=_Recorded[list[msgspec.Raw]])
        read = msgspec.json.Decoder(Identity)
        identities = Identities(read.decode(each) for each in recorded.identities)
        fields: dict[str, Any] = msgspec.structs.asdict(recorded)
        fields["identities"] = identities
        snapshot = Snapshot(**fields)
    except UNREADABLE as error:
        raise CannotProve("", f"the file was changed since it was written: {error}") from error
    if digest_of(snapshot) != file.digest:
        raise CannotProve("", "the file was changed since it was written: its digest is another")
    return snapshot
