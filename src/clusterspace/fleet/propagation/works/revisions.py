"""Finds the state of a template that each cluster is to have: the template, or a snapshot of it.

A policy's Works hold the template as it is. A placement brings its clusters from one state of an
object to the next one after another, so its Works hold the state that each cluster is to have,
and that state is in a snapshot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from clusterspace.apis.bindings import template_of
from clusterspace.apis.clusters import CLUSTERS, SecretRef, impersonator_ref_of, secret_ref_of
from clusterspace.apis.confinement import why_at_home
from clusterspace.apis.fleet_placements import (
    RESOURCE_INDEX,
    RESOURCE_SNAPSHOTS,
    ResourceIdentifier,
    hashes_of,
    identity_of,
    index_of,
    is_placed,
    manifest_hash,
    parent_of,
)
from clusterspace.apis.interpreter.kinds import SECRET, kind_of
from clusterspace.client.resources import Reader, decode_object
from clusterspace.controllers.informers import HubCaches, IndexKeys
from clusterspace.errors import Conflict, StaysHome
from clusterspace.fleet.propagation.templates import (
    TemplateInformers,
    find_live_template,
    is_older,
    why_not_carried_here,
)
from clusterspace.kube.objects import Object, name_of, namespace_of, uid_of, with_metadata

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
    manifests: Mapping[tuple[ResourceIdentifier, str], bytes]


class Revisions:
    """All resource snapshots; each is read once, for they never change."""

    def __init__(self, caches: HubCaches) -> None:
        self._cache = caches.informer(RESOURCE_SNAPSHOTS, indexes=PARENT_INDEX).cache
        self._pages: dict[str, _Page] = {}

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
        for page in self._pages_of(parent):
            found[page.index] = {**found.get(page.index, {}), **dict(page.manifests.keys())}
        return found

    def _pages_of(self, parent: str) -> list[_Page]:
        keys = self._cache.keys_at(BY_PARENT, parent)
        for gone in [key for key in self._pages if key not in self._cache]:
            del self._pages[gone]
        return [self._page(key) for key in sorted(keys)]

    def _page(self, key: str) -> _Page:
        # The cache hands out the very bytes it stores, so the same bytes are the same state.
        raw, page = self._cache.find_raw(key) or b"{}", self._pages.get(key)
        if page is not None and page.raw is raw:
            return page
        manifests: dict[tuple[ResourceIdentifier, str], bytes] = {}
        for each in _decoder.decode(raw).spec.selectedResources:
            manifest = decode_object(bytes(each))
            manifests[identity_of(manifest), manifest_hash(manifest)] = bytes(each)
        self._pages[key] = _Page(raw, index_of(decode_object(raw), RESOURCE_INDEX), manifests)
        return self._pages[key]


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


class TemplateStates:
    """Finds the state of its template that each cluster of a binding is to have.

    A binding is checked for what it may carry before anything is read for it: who writes one may
    have rights in its namespace and nowhere else, and we read with rights on everything.
    """

    def __init__(self, hub: Reader, caches: HubCaches) -> None:
        self._hub = hub
        self._templates = caches.shared(TemplateInformers)
        self._revisions = caches.shared(Revisions)
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

        Conflict when it is in a snapshot that is not in the cache yet, to be tried again.
        """
        if not is_placed(binding):
            return template
        identity, state = identity_of(template), hashes_of(binding).get(cluster, "")
        found = self._revisions.find(parent_of(binding), identity, state)
        if found is None:
            raise Conflict(f"no snapshot is known yet of {identity} as {cluster} is to have it")
        self._require_may_leave(found)
        return with_metadata(found, uid=uid_of(template))

    def _require_may_leave(self, template: Object) -> None:
        problem = why_at_home(template)
        if problem:
            raise StaysHome(problem)
        if kind_of(template) == SECRET and self._credentials.include(template):
            raise StaysHome("the Secret is a cluster's credentials")
