"""The caches that say which Works there should be, and which there are.

A binding is asked for what it may carry before anything is read for it: who writes one may have
rights in its namespace and nowhere else, and we read with rights on everything.
"""

from dataclasses import dataclass
from typing import Protocol

from clusterspace.apis.bindings import TemplateReference, template_of
from clusterspace.apis.clusters import SecretRef, impersonator_ref_of, secret_ref_of
from clusterspace.apis.confinement import why_at_home, why_not_carried
from clusterspace.apis.fleet_placements import hashes_of, identity_of, is_placed, parent_of
from clusterspace.apis.interpreter.kinds import SECRET, kind_of
from clusterspace.client.places import Place
from clusterspace.client.resources import Reader
from clusterspace.controllers.caches import Cache
from clusterspace.controllers.informers import Informer
from clusterspace.errors import Conflict, Malformed, NotServed, StaysHome
from clusterspace.fleet.propagation.overrides.policies import OverridePolicies
from clusterspace.fleet.propagation.works.known_works import KnownWorks
from clusterspace.fleet.propagation.works.revisions import Revisions
from clusterspace.fleet.propagation.works.triggers import BY_NAMESPACE
from clusterspace.kube.objects import (
    Object,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionKind, ResourceInfo


class Templates(Protocol):
    """What is known of the objects that bindings are about."""

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        """Return a template from the cache, or None."""
        ...

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        """Return what is known of a kind, or None when it is not served."""
        ...


class ClusterCredentials:
    """The Secrets that Clusters name as their credentials; each state of a Cluster is read once."""

    def __init__(self, clusters: Cache) -> None:
        self._clusters = clusters
        self._read: dict[str, tuple[bytes | None, tuple[SecretRef | None, ...]]] = {}

    def include(self, secret: Object) -> bool:
        """Whether a Secret is some cluster's credentials."""
        self._read = {key: self._refs_in(key) for key in self._clusters}
        named = SecretRef(namespace_of(secret), name_of(secret))
        return any(named in refs for _, refs in self._read.values())

    def _refs_in(self, key: str) -> tuple[bytes | None, tuple[SecretRef | None, ...]]:
        raw, held = self._clusters.find_raw(key), self._read.get(key)
        if held is not None and held[0] is raw:
            return held
        cluster = self._clusters.find(key) or {}
        return raw, (secret_ref_of(cluster), impersonator_ref_of(cluster))


@dataclass(frozen=True, slots=True)
class WorkSources:
    """The caches that say which Works there should be, and which there are."""

    bindings: Informer
    cluster_bindings: Informer
    clusters: Informer
    override_policies: Informer
    cluster_override_policies: Informer
    templates: Templates
    works: KnownWorks
    credentials: ClusterCredentials
    revisions: Revisions | None = None
    """What placements wrote down; without it only policies are served."""

    def find_binding(self, key: str) -> Object | None:
        """Return a binding of either kind, or None; only namespaced ones have a slash."""
        informer = self.bindings if "/" in key else self.cluster_bindings
        return informer.cache.find(key)

    def policies_for(self, template: Object) -> OverridePolicies:
        """Return the override policies that may mean a template."""
        namespace = namespace_of(template)
        own = self.override_policies.cache.objects_at(BY_NAMESPACE, namespace) if namespace else ()
        return OverridePolicies(
            cluster_wide=tuple(self.cluster_override_policies.cache.objects()), namespaced=own
        )

    async def find_template(self, hub: Reader, binding: Object) -> Object | None:
        """Return the template in the state the binding knows, or a later one; None if it is gone.

        A cache that is behind is no proof of anything: then the hub is asked. Of a placement's
        template only the name counts: its states were written down, and outlive it. StaysHome
        when the binding may not carry it, or nobody may.
        """
        problem = why_not_carried_here(self.templates, binding)
        if problem:
            raise StaysHome(problem)
        wanted = template_of(binding)
        if is_placed(binding):
            return wanted.outline
        cached = self.templates.find(wanted.group_version_kind, wanted.namespace, wanted.name)
        if cached is None or is_older(cached, wanted.resource_version):
            cached = await find_live_template(hub, self.templates, wanted)
        if cached is None or uid_of(cached) != wanted.uid:
            return None
        self._require_may_leave(cached)
        return cached

    def state_for(self, binding: Object, template: Object, cluster: str) -> Object:
        """Return the state of the template that a cluster is to have.

        One that was written down and is not in the cache will be: Conflict, and ask again.
        """
        if not is_placed(binding):
            return template
        identity, wanted = identity_of(template), hashes_of(binding).get(cluster, "")
        found = self.revisions and self.revisions.find(parent_of(binding), identity, wanted)
        if not found:
            raise Conflict(f"no snapshot is known yet of {identity} as {cluster} is to have it")
        self._require_may_leave(found)
        return with_metadata(found, uid=uid_of(template))

    def _require_may_leave(self, template: Object) -> None:
        problem = why_at_home(template)
        if problem:
            raise StaysHome(problem)
        if kind_of(template) == SECRET and self.credentials.include(template):
            raise StaysHome("the Secret is a cluster's credentials")


def why_not_carried_here(templates: Templates, binding: Object) -> str:
    """Return why a binding may not carry what it names, as far as the hub tells of kinds."""
    try:
        info = templates.find_info(template_of(binding).group_version_kind)
    except Malformed as error:
        return f"spec.resource names no kind: {error}"
    return why_not_carried(binding, is_namespaced=None if info is None else info.namespaced)


async def find_live_template(
    hub: Reader, templates: Templates, wanted: TemplateReference
) -> Object | None:
    """Return a template as the hub has it now; None when it is gone or another took its place.

    A kind that is not known may be about to be: NotServed, and ask again.
    """
    info = templates.find_info(wanted.group_version_kind)
    if info is None:
        raise NotServed(f"the hub does not serve {wanted.group_version_kind}, as far as we know")
    live = await hub.find(Place(info.group_version_resource, wanted.namespace, wanted.name))
    return live if live is not None and uid_of(live) == wanted.uid else None


def is_older(kube_object: Object, version: str) -> bool:
    """Whether an object is in a state from before a version; the hub's versions are numbers."""
    return version.isdecimal() and int(resource_version_of(kube_object)) < int(version)
