"""Templates: which objects they are, the caches that follow all of them, the states sent out.

Kinds come and go. A kind that discovery could not tell of just now is not gone: its informer
stays. One that is no longer served takes its informer with it, and no handler is called for its
objects: they were not deleted, they can only not be seen.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import structlog

from clusterspace.aio.clocks import Alarm
from clusterspace.apis import envelopes, stamps
from clusterspace.apis.clusters import CLUSTERS, SecretRef, impersonator_ref_of, secret_ref_of
from clusterspace.apis.fleet_placements import (
    RESOURCE_HASH,
    RESOURCE_INDEX,
    SCOPES,
    SUBINDEX,
    ResourceIdentifier,
    digest_of,
    hashes_of,
    identity_of,
    index_of,
    is_placed,
    manifest_hash,
    parent_of,
    read_state,
    scope_at,
)
from clusterspace.apis.kinds import SECRET, kind_of
from clusterspace.apis.migrations import GROUP as MIGRATIONS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICY,
    OVERRIDE_POLICY,
    ResourceSelector,
)
from clusterspace.apis.rollouts import (
    content_digest,
    revision_name,
    revisions_of,
    snapshots_for,
    strategy_name_of,
)
from clusterspace.apis.works import (
    TemplateReference,
    controller_uid_of,
    is_reserved_namespace,
    requirers_of,
    template_of,
    why_at_home,
    why_not_carried,
)
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import Reader, decode_object
from clusterspace.controllers.controller import Request, request_for
from clusterspace.controllers.informers import Handler, HubCaches, IndexKeys, Informer
from clusterspace.errors import (
    ApiError,
    ClusterError,
    Conflict,
    Malformed,
    NotServed,
    SnapshotAltered,
    StaysHome,
)
from clusterspace.fleet.propagation.bindings import binding_path, by_claim, is_marked
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import (
    GroupResource,
    GroupVersionKind,
    GroupVersionResource,
    ResourceInfo,
)

_log = structlog.get_logger(__name__)

DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")

REFRESH_SECONDS: Final = 60.0
"""Kinds that come without a definition, from aggregated API servers, are noticed after this."""

SETTLE_SECONDS: Final = 0.2
"""Definitions come by the dozen; one look serves them all."""

RETRY_SECONDS: Final = 2.0
_CLAIM: Final = "claim"

_OWN_GROUPS: Final = frozenset(
    f"{group}.karmada.io"
    for group in (
        "apps", "autoscaling", "cluster", "config", "networking", "policy", "remedy", "search",
        "work",
    )
) | {"cluster.kubernetes-fleet.io", "placement.kubernetes-fleet.io", MIGRATIONS}  # fmt: skip
"""Groups of the control plane itself."""

_SKIPPED: Final = frozenset(
    {
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
        GroupResource("coordination.k8s.io", "leases"),
    }
)
"""What every cluster writes for itself, all day long."""

_DEFAULT: Final = "default"
"""The namespace every cluster has from the beginning, with labels of its own."""

_NEEDED_VERBS: Final = frozenset({"list", "watch", "delete"})

_MADE_BY_EVERY_CLUSTER: Final = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "extension-apiserver-authentication"),
        ("ServiceAccount", "default"),
    }
)
"""Objects each API server makes for itself; sending ours would only fight with theirs."""

_OF_THE_API_SERVER: Final = frozenset({"Service", "Endpoints", "EndpointSlice"})
"""Kinds in which an API server says where it is, under the name `kubernetes` in `default`."""

_SERVERS: Final = frozenset({"managedFields", "resourceVersion", "generation"})
_OF_ONE_OBJECT: Final = frozenset({"uid", "creationTimestamp", "selfLink", "ownerReferences"})
"""What the server says of an object, and what is not told to members."""
_OURS: Final = ".karmada.io"
_USERS_KEYS: Final = frozenset(
    {stamps.CONFLICT_RESOLUTION, stamps.RETAIN_REPLICAS, stamps.TEMPLATE_CLAIMED_BY}
)
"""Labels and annotations with our prefix that users write."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class TemplateRequest(Request):
    """Bring one template of one kind to where it should be."""

    resource: GroupVersionResource

    @property
    def path(self) -> ResourcePath:
        """Where the template is."""
        return ResourcePath(self.resource, self.namespace, self.name)

    def __str__(self) -> str:
        return str(self.path)


def template_request(resource: GroupVersionResource, key: str) -> TemplateRequest:
    """Return the request for the template with this key."""
    namespace, _, name = key.rpartition("/")
    return TemplateRequest(name=name, namespace=namespace, resource=resource)


def template_resources(served: ServedResources) -> tuple[ResourceInfo, ...]:
    """Return the resources whose objects may be templates, each at its preferred version."""
    chosen: dict[GroupResource, ResourceInfo] = {}
    for resource in served.resources:
        is_own = resource.group in _OWN_GROUPS and resource.plural not in envelopes.RESOURCES
        is_own = is_own or resource.group_resource in _SKIPPED
        if not is_own and frozenset(resource.verbs) >= _NEEDED_VERBS:
            chosen.setdefault(resource.group_resource, resource)
    return tuple(chosen.values())


def is_template(kube_object: Object) -> bool:
    """Whether policies may claim an object at all."""
    named = str(kube_object.get("kind")), name_of(kube_object)
    if why_at_home(kube_object) or named in _MADE_BY_EVERY_CLUSTER:
        return False
    if envelopes.is_envelope(kube_object):
        return False  # members would not know what to do with it: placements open it
    if named[1] == "kubernetes" and named[0] in _OF_THE_API_SERVER:
        # Placed on a member, it would lead every pod there to the hub.
        return namespace_of(kube_object) != _DEFAULT
    return stamps.TEMPLATE_CLAIMED_BY not in labels_of(kube_object)


def is_on_every_cluster(namespace: Object) -> bool:
    """Whether a namespace goes to every cluster: not reserved, and not labelled to stay."""
    name = name_of(namespace)
    stays = labels_of(namespace).get(stamps.SKIP_AUTO_PROPAGATION) == "true"
    is_own = name == _DEFAULT or is_reserved_namespace(name)
    return not (is_own or stays or is_being_deleted(namespace))


def users_part(template: Object) -> Object:
    """Return a template without its status and without what the control plane adds."""
    metadata = {key: each for key, each in metadata_of(template).items() if key not in _SERVERS}
    rest = {key: each for key, each in template.items() if key not in ("status", "metadata")}
    theirs: Object = {}
    for field, pairs in (
        ("labels", labels_of(template)),
        ("annotations", annotations_of(template)),
    ):
        theirs[field] = {k: v for k, v in pairs.items() if _OURS not in k or k in _USERS_KEYS}
    return {**rest, "metadata": {**metadata, **theirs}}


def keys_in(keys: Iterable[str], *, namespace: str = "", name: str = "") -> list[str]:
    """Return the keys of one namespace, of one name, or both."""
    return [
        key
        for key in keys
        if (not namespace or key.startswith(f"{namespace}/"))
        and (not name or key == name or key.endswith(f"/{name}"))
    ]


class TemplateInformers:
    """Caches of everything on the hub that may be a template; made by `caches.shared`."""

    def __init__(self, caches: HubCaches) -> None:
        self._hub = caches.hub
        self._discovery = Discovery(caches.hub.connection)
        self._clock = caches.hub.connection.clock
        self._informers: dict[GroupVersionResource, Informer] = {}
        self._kinds: dict[GroupVersionKind, ResourceInfo] = {}
        self._running: dict[GroupVersionResource, asyncio.Task[None]] = {}
        self._handlers: list[Handler] = []
        self._is_discovery_due = asyncio.Event()
        self._is_discovered = asyncio.Event()
        self._alarm = Alarm(self._clock, self._is_discovery_due.set)
        # Any change of any definition: which kinds are served is decided by the hub, and asked.
        caches.informer(DEFINITIONS).add_handler(lambda _: self._is_discovery_due.set())

    def add_handler(self, handler: Handler) -> None:
        """Call a handler for every change from now on, and for what is known already as added."""
        self._handlers.append(handler)
        for informer in self._informers.values():
            informer.add_handler(handler)

    @property
    def has_synced(self) -> bool:
        """Whether every kind has been listed; one that cannot be listed is not waited for."""
        # A kind that the hub cannot list at all, because what serves it is down, would otherwise
        # keep every policy and every placement waiting.
        informers = self._informers.values()
        is_listed = (each.has_synced or each.trouble is not None for each in informers)
        return self._is_discovered.is_set() and all(is_listed)

    async def wait_synced(self) -> None:
        """Wait until the served kinds are known; their objects may not be.

        Kinds come and go, and one that cannot be listed must not keep the templates of others
        waiting. Who takes the absence of a template for an answer asks `has_synced` first.
        """
        await self._is_discovered.wait()

    def find_resource(self, kind: GroupVersionKind) -> GroupVersionResource | None:
        """Return how URLs name a kind; None when none of its objects may be templates."""
        found = self._kinds.get(kind)
        return None if found is None else found.group_version_resource

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        """Return all that is known of a kind; None when none of its objects may be templates."""
        return self._kinds.get(kind)

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        """Return a template from the cache, or None; ask the hub before acting on a None."""
        resource = self.find_resource(kind)
        return None if resource is None else self.find_at(ResourcePath(resource, namespace, name))

    def find_at(self, path: ResourcePath) -> Object | None:
        """Return the template at a place from the cache, or None."""
        informer = self._informers.get(path.resource)
        if informer is None:
            return None
        return informer.cache.find(key_of(path.namespace, path.name))

    def claimed_by(self, policy_key: str) -> list[TemplateRequest]:
        """Return the templates that follow a policy."""
        return [
            template_request(resource, key)
            for resource, informer in self._informers.items()
            for key in informer.cache.keys_at(_CLAIM, policy_key)
        ]

    def selected_by(self, selector: ResourceSelector, namespace: str = "") -> list[TemplateRequest]:
        """Return the templates a selector may mean, labels not looked at."""
        resource = self.find_resource(GroupVersionKind.of(selector.api_version, selector.kind))
        if resource is None:
            return []
        keys = self._informers[resource].cache.keys()
        selected = keys_in(keys, namespace=selector.namespace or namespace, name=selector.name)
        return [template_request(resource, key) for key in selected]

    def of_kinds(self, is_meant: Callable[[GroupVersionKind], bool]) -> list[TemplateRequest]:
        """Return everything of some kinds that may be a template."""
        return [
            template_request(info.group_version_resource, key)
            for kind, info in self._kinds.items()
            if is_meant(kind)
            for key in self._informers[info.group_version_resource].cache
        ]

    def bindings_of_kinds(self, is_meant: Callable[[GroupVersionKind], bool]) -> list[Request]:
        """Return the bindings, of policies, that everything of some kinds has or may have."""
        found = (self.find_at(each.path) for each in self.of_kinds(is_meant))
        return [request_for(binding_path(each).key) for each in found if each is not None]

    def within(self, namespace: str) -> list[TemplateRequest]:
        """Return everything in a namespace that may be a template."""
        return [
            template_request(resource, key)
            for resource, informer in self._informers.items()
            for key in keys_in(informer.cache.keys(), namespace=namespace)
        ]

    async def run(self) -> None:
        """Follow every kind until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    # Cleared before discovery: a definition that comes during it is due again.
                    self._is_discovery_due.clear()
                    self._alarm.set(await self._discover(group))
                    await self._is_discovery_due.wait()
                    await self._clock.sleep(SETTLE_SECONDS)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason
        finally:
            self._alarm.cancel()
            self._running.clear()

    async def _discover(self, group: asyncio.TaskGroup) -> float:
        """Start and stop informers by what is served; return when to discover again at latest."""
        # A definition that was just written is served a moment later: what discovery remembers of
        # before is of no use here.
        self._discovery.forget()
        try:
            served = await self._discovery.served()
        except (ApiError, ClusterError) as error:
            _log.warning("kinds not discovered", reason=str(error))
            return RETRY_SECONDS
        desired = {each.group_version_resource: each for each in template_resources(served)}
        unsure = set(served.failed)
        for resource in list(self._informers):
            if resource in desired or resource.group_version in unsure:
                continue
            _log.info("kind is no longer served", resource=str(resource))
            # No handler hears of its objects. To a controller a deletion would mean that somebody
            # wants them gone, and what is placed of them would be withdrawn everywhere.
            del self._informers[resource]
            self._kinds = {
                kind: info
                for kind, info in self._kinds.items()
                if info.group_version_resource != resource
            }
            self._running.pop(resource).cancel()
        for resource, info in desired.items():
            if resource in self._running:
                continue
            # After a restart of this task the informer is there and not running: its cache goes
            # on from where it was.
            informer = self._informers.get(resource)
            if informer is None:
                informer = Informer(self._hub, ResourcePath(resource), indexes={_CLAIM: by_claim})
                for handler in self._handlers:
                    informer.add_handler(handler)
                self._informers[resource] = informer
            self._kinds[info.group_version_kind] = info
            self._running[resource] = group.create_task(
                informer.run(), name=f"templates {resource}"
            )
        self._is_discovered.set()
        return REFRESH_SECONDS


def why_not_carried_here(templates: TemplateInformers, binding: Object) -> str:
    """Return why a binding may not carry what it names, as far as the hub tells of kinds."""
    try:
        info = templates.find_info(template_of(binding).group_version_kind)
    except Malformed as error:
        return f"spec.resource names no kind: {error}"
    return why_not_carried(binding, is_namespaced=None if info is None else info.namespaced)


async def find_live_template(
    hub: Reader, templates: TemplateInformers, reference: TemplateReference
) -> Object | None:
    """Return a template as the hub has it now; None when it is gone or another took its place.

    NotServed when its kind is not known: it may be about to be, so try again.
    """
    info = templates.find_info(reference.group_version_kind)
    if info is None:
        raise NotServed(f"the hub does not serve {reference.group_version_kind}, as far as we know")
    live = await hub.find(
        ResourcePath(info.group_version_resource, reference.namespace, reference.name)
    )
    return live if live is not None and uid_of(live) == reference.uid else None


def is_older(kube_object: Object, version: str) -> bool:
    """Whether an object is in a state from before a version; versions of the hub are numbers."""
    return version.isdecimal() and int(resource_version_of(kube_object)) < int(version)


# -- the state of a template that each cluster is to have --------------------------------------

# A policy's Works hold the template as it is, unless the policy has a rollout. That, and every
# placement, brings clusters from one state of an object to the next one after another, so their
# Works hold the state that each cluster is to have, and that state is in a snapshot.


BY_PARENT: Final = "placement"

Contents: TypeAlias = Mapping[ResourceIdentifier, str]
"""Objects, each with the hash of its state."""


def by_parent(kube_object: Object) -> Iterable[str]:
    """Index objects by the placement they come of."""
    parent = parent_of(kube_object)
    return (parent,) if parent else ()


PARENT_INDEX: Final[dict[str, IndexKeys]] = {BY_PARENT: by_parent}


class _Spec(msgspec.Struct):
    selectedResources: list[msgspec.Raw] = []  # noqa: N815 - the name on the wire


class _Snapshot(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder: Final = msgspec.json.Decoder(_Snapshot)


@dataclass(frozen=True, slots=True)
class _Page:
    """One snapshot that was read: its number, and its manifests undecoded."""

    raw: bytes
    index: int
    name: str
    place: int
    """Which page of its number it is; the master is the first."""
    recorded: str
    """What all pages of its number said when they were written, if it is the master."""
    manifests: Mapping[tuple[ResourceIdentifier, str], bytes]
    """What is in envelopes, and not these."""
    envelopes: Mapping[ResourceIdentifier, ResourceIdentifier]
    """Which envelope an object is in."""


class Revisions:
    """All resource snapshots; each is read once, for they never change.

    Their contents are compared with the hash in the master of their number. Where they differ,
    somebody changed them since: such a number has no contents, and is brought nowhere.
    """

    def __init__(self, caches: HubCaches) -> None:
        self._caches = {
            each: caches.informer(each.resource_snapshots, indexes=PARENT_INDEX).cache
            for each in SCOPES
        }
        self._pages: dict[str, _Page] = {}
        """By key; only those of ResourcePlacements have a namespace in it."""
        self._compared: dict[tuple[str, int], tuple[tuple[bytes, ...], bool]] = {}
        """Whether a number of a placement says what was written, by what it says."""

    def find(self, parent: str, identity: ResourceIdentifier, state_hash: str) -> Object | None:
        """Return an object in a certain state, or None when no snapshot is known that has it."""
        for page in self._pages_of(parent):
            raw = page.manifests.get((identity, state_hash))
            if raw is not None:
                return decode_object(raw)
        return None

    def contents(self, parent: str) -> dict[int, Contents]:
        """Return the contents of every snapshot of a placement, by number."""
        found: dict[int, Contents] = {}
        altered = self.altered(parent)
        for page in self._pages_of(parent):
            if page.index not in altered:
                found[page.index] = {**found.get(page.index, {}), **dict(page.manifests.keys())}
        return found

    def altered(self, parent: str) -> dict[int, str]:
        """Return the numbers of a placement whose snapshots were changed, and what is said of it.

        One without a master was never finished, and nothing was written down of it.
        """
        by_index: dict[int, list[_Page]] = {}
        for page in self._pages_of(parent):
            by_index.setdefault(page.index, []).append(page)
        found: dict[int, str] = {}
        for index, pages in by_index.items():
            ordered = sorted(pages, key=lambda each: each.place)
            master = ordered[0]
            raws = tuple(each.raw for each in ordered)
            known = self._compared.get((parent, index))
            if known is None or known[0] != raws:
                digest = digest_of(
                    [
                        decode_object(bytes(each))
                        for raw in raws
                        for each in _decoder.decode(raw).spec.selectedResources
                    ]
                )
                is_same = not master.recorded or digest == master.recorded
                known = self._compared[parent, index] = (raws, is_same)
            if not known[1]:
                found[index] = f"{scope_at(parent).resource_snapshot} {master.name}"
        for gone in [k for k in self._compared if k[0] == parent and k[1] not in by_index]:
            del self._compared[gone]
        return found

    def envelopes(self, parent: str) -> dict[ResourceIdentifier, ResourceIdentifier]:
        """Return which envelope objects of a placement are in, or were in last."""
        pages = sorted(self._pages_of(parent), key=lambda each: each.index)
        return {key: each for page in pages for key, each in page.envelopes.items()}

    def _pages_of(self, parent: str) -> list[_Page]:
        cache = self._caches[scope_at(parent)]
        keys = cache.keys_at(BY_PARENT, parent)
        for gone in [key for key in self._pages if key not in self._caches[scope_at(key)]]:
            del self._pages[gone]
        return [self._page(key) for key in sorted(keys)]

    def _page(self, key: str) -> _Page:
        # The cache hands out the very bytes it stores, so the same bytes are the same state.
        raw = self._caches[scope_at(key)].find_raw(key) or b"{}"
        page = self._pages.get(key)
        if page is not None and page.raw is raw:
            return page
        manifests: dict[tuple[ResourceIdentifier, str], bytes] = {}
        enveloped: dict[ResourceIdentifier, ResourceIdentifier] = {}
        for each in _decoder.decode(raw).spec.selectedResources:
            manifest = decode_object(bytes(each))
            if not envelopes.is_envelope(manifest):
                manifests[identity_of(manifest), manifest_hash(manifest)] = bytes(each)
                continue
            for inner in envelopes.contents_of(manifest):
                enveloped[identity_of(inner)] = identity_of(manifest)
                manifests[identity_of(inner), manifest_hash(inner)] = msgspec.json.encode(inner)
        snapshot = decode_object(raw)
        notes = annotations_of(snapshot)
        place = notes.get(SUBINDEX, "")
        self._pages[key] = _Page(
            raw,
            index_of(snapshot, RESOURCE_INDEX),
            key,
            int(place) if place.isdecimal() else -1,
            notes.get(RESOURCE_HASH, ""),
            manifests,
            enveloped,
        )
        return self._pages[key]


@dataclass(frozen=True, slots=True)
class TemplateRevision:
    """One state of a template, and the override policies that were about it then."""

    template: Object
    overrides: OverridePolicies


class TemplateRevisions:
    """The states of templates whose policies have a rollout; made by `caches.shared`."""

    def __init__(self, caches: HubCaches) -> None:
        self._snapshots = {
            is_namespaced: caches.informer(snapshots_for("any" if is_namespaced else ""))
            for is_namespaced in (True, False)
        }
        self._read: dict[str, tuple[bytes, Object, str]] = {}
        """Snapshots as they are stored, decoded, and their digests: for a thousand clusters a
        state is asked for a thousand times."""

    @property
    def informers(self) -> tuple[Informer, ...]:
        """What has to be synced before anybody concludes that a state is not there."""
        return tuple(self._snapshots.values())

    def find(self, binding: Object, revision: str) -> TemplateRevision | None:
        """Return a state of the template of a binding, or None when it is not in the cache.

        SnapshotAltered when it says something else than what the binding has written down of it.
        """
        namespace = namespace_of(binding)
        key = key_of(namespace, revision_name(name_of(binding), revision))
        cache = self._snapshots[bool(namespace)].cache
        raw = cache.find_raw(key)
        if raw is None:
            self._read.pop(key, None)
            return None
        known = self._read.get(key)
        if known is None or known[0] is not raw:
            decoded = decode_object(raw)
            known = self._read[key] = (raw, decoded, content_digest(decoded))
        _, snapshot, digest = known
        if controller_uid_of(snapshot) != uid_of(binding):
            return None
        revisions = revisions_of(binding)
        recorded = "" if revisions is None else revisions.digests.get(revision, "")
        if recorded and recorded != digest:
            raise SnapshotAltered(altered_text(snapshot))
        stored: list[Object] = find_at(snapshot, "spec", "selectedResources") or []
        # Who may write bindings and snapshots of a namespace says of this object what it is like
        # there, and of no other.
        if not stored or not _is_about(stored[0], template_of(binding)):
            return None
        wide = tuple(e for e in stored[1:] if e.get("kind") == CLUSTER_OVERRIDE_POLICY)
        own = tuple(e for e in stored[1:] if e.get("kind") == OVERRIDE_POLICY)
        return TemplateRevision(stored[0], OverridePolicies(cluster_wide=wide, namespaced=own))


def altered_text(snapshot: Object) -> str:
    """Return what is said of a snapshot whose contents are not those that were stored."""
    key = key_of(namespace_of(snapshot), name_of(snapshot))
    return f"{snapshot.get('kind')} {key} is not as it was written, so it is brought nowhere"


def _is_about(manifest: Object, reference: TemplateReference) -> bool:
    kind = kind_of(manifest)
    named = (kind.group, kind.kind, namespace_of(manifest), name_of(manifest))
    return named == reference.subject


def snapshot_part(template: Object) -> Object:
    """Return what is stored of a template: its author's part, and which of its states it is."""
    part = users_part(template)
    kept = {k: v for k, v in metadata_of(part).items() if k not in _OF_ONE_OBJECT and v != {}}
    generation = metadata_of(template).get("generation")
    return {**part, "metadata": {**kept, **({"generation": generation} if generation else {})}}


def rolled_out_state(state: Object, template: Object) -> Object:
    """Return a stored state with the marks that the template has today."""
    marks: Object = {}
    for field, stored, present in (
        ("labels", labels_of(state), labels_of(template)),
        ("annotations", annotations_of(state), annotations_of(template)),
    ):
        ours = {k: v for k, v in present.items() if _OURS in k and k not in _USERS_KEYS}
        marks[field] = {**stored, **ours} or None
    return with_metadata(state, uid=uid_of(template), **marks)


class ClusterCredentials:
    """The Secrets that Clusters name as their credentials; each state of a Cluster is read once."""

    def __init__(self, caches: HubCaches) -> None:
        self._clusters = caches.informer(CLUSTERS).cache
        self._read: dict[str, tuple[bytes | None, tuple[SecretRef | None, ...]]] = {}

    def include(self, secret: Object) -> bool:
        """Whether a Secret is some cluster's credentials."""
        self._read = {key: self._refs_in(key) for key in self._clusters}
        named = SecretRef(namespace_of(secret), name_of(secret))
        return any(named in refs for _, refs in self._read.values())

    def _refs_in(self, key: str) -> tuple[bytes | None, tuple[SecretRef | None, ...]]:
        raw, known = self._clusters.find_raw(key), self._read.get(key)
        if known is not None and known[0] is raw:
            return known
        cluster = self._clusters.find(key) or {}
        return raw, (secret_ref_of(cluster), impersonator_ref_of(cluster))


def staged_revision(binding: Object, cluster: str) -> str | None:
    """Return which stored state a cluster is to have: empty for the template as it is.

    None while that is still to be decided. What no policy claims any more stays as it is, so a
    cluster that gets it then gets what went through every stage.
    """
    if not strategy_name_of(binding):
        return ""
    revisions = revisions_of(binding)
    if revisions is None:
        return None if is_marked(binding) or requirers_of(binding) else ""
    return revisions.of(cluster) or (None if is_marked(binding) else revisions.stable)


class TemplateStates:
    """Finds the state of its template that each cluster of a binding is to have.

    A binding is checked for what it may carry before anything is read for it: who writes one may
    have rights in its namespace and nowhere else, and we read with rights on everything.
    """

    def __init__(self, hub: Reader, caches: HubCaches) -> None:
        self._hub = hub
        self._templates = caches.shared(TemplateInformers)
        self._revisions = caches.shared(Revisions)
        self._rolled_out = caches.shared(TemplateRevisions)
        self._credentials = caches.shared(ClusterCredentials)

    async def find(self, binding: Object) -> Object | None:
        """Return the template in the state the binding knows, or a later one; None if it is gone.

        Of a placement's template only the name counts: its states are in snapshots, and outlive
        it. StaysHome when the binding may not carry it, or nobody may.
        """
        problem = why_not_carried_here(self._templates, binding)
        if problem:
            raise StaysHome(problem)
        reference = template_of(binding)
        if is_placed(binding):
            return reference.outline
        kind, namespace = reference.group_version_kind, reference.namespace
        template = self._templates.find(kind, namespace, reference.name)
        # The detector wrote into the binding which version it is about. Rendering an older one
        # would send members back in time, until the cache catches up.
        if template is None or is_older(template, reference.resource_version):
            # The cache is behind the binding, which proves nothing about the template.
            template = await find_live_template(self._hub, self._templates, reference)
        if template is None or uid_of(template) != reference.uid:
            return None
        self._require_may_leave(template)
        return template

    def state_for(self, binding: Object, template: Object, cluster: str) -> Object:
        """Return the state of the template that a cluster is to have.

        Conflict when it is in a snapshot that is not in the cache yet, to be tried again;
        SnapshotAltered when that does not say any more what was stored in it.
        """
        if not is_placed(binding):
            revision = self.revision_for(binding, cluster)
            if revision is None:
                return template
            self._require_may_leave(revision.template)
            return rolled_out_state(revision.template, template)
        identity, state = identity_of(template), hashes_of(binding).get(cluster, "")
        found = self._revisions.find(parent_of(binding), identity, read_state(state).hash)
        if found is None:
            raise Conflict(f"no snapshot is known yet of {identity} as {cluster} is to have it")
        self._require_may_leave(found)
        return with_metadata(found, uid=uid_of(template))

    def revision_for(self, binding: Object, cluster: str) -> TemplateRevision | None:
        """Return the stored state that a cluster is to have; None for the template as it is.

        Conflict when it is in a snapshot that is not in the cache yet, to be tried again.
        """
        revision = staged_revision(binding, cluster)
        if not revision:
            return None
        found = self._rolled_out.find(binding, revision)
        if found is None:
            name = revision_name(name_of(binding), revision)
            raise Conflict(f"the snapshot {name}, which {cluster} is to have, is not known yet")
        return found

    def _require_may_leave(self, template: Object) -> None:
        problem = why_at_home(template)
        if problem:
            raise StaysHome(problem)
        if kind_of(template) == SECRET and self._credentials.include(template):
            raise StaysHome("the Secret is a cluster's credentials")
