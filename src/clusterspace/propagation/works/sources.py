"""The caches that say which Works there should be, and which there are."""

from dataclasses import dataclass
from typing import Protocol

from clusterspace.api.bindings import TemplateReference, template_of
from clusterspace.api.fleet_placements import hashes_of, identity_of, is_placed, parent_of
from clusterspace.client.places import Place
from clusterspace.client.resources import Reader
from clusterspace.errors import Conflict, NotServed
from clusterspace.kube.objects import (
    Object,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource
from clusterspace.propagation.overrides.policies import OverridePolicies
from clusterspace.propagation.works.known_works import KnownWorks
from clusterspace.propagation.works.revisions import Revisions
from clusterspace.propagation.works.triggers import BY_NAMESPACE
from clusterspace.runtime.informers import Informer


class Templates(Protocol):
    """What is known of the objects that bindings are about."""

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        """Return a template from the cache, or None."""
        ...

    def find_resource(self, kind: GroupVersionKind) -> GroupVersionResource | None:
        """Return how URLs name a kind, or None when it is not served."""
        ...


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
        template only the name counts: its states were written down, and outlive it.
        """
        wanted = template_of(binding)
        if is_placed(binding):
            return wanted.outline
        cached = self.templates.find(wanted.group_version_kind, wanted.namespace, wanted.name)
        if cached is not None and not is_older(cached, wanted.resource_version):
            return cached if uid_of(cached) == wanted.uid else None
        return await find_live_template(hub, self.templates, wanted)

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
        return with_metadata(found, uid=uid_of(template))


async def find_live_template(
    hub: Reader, templates: Templates, wanted: TemplateReference
) -> Object | None:
    """Return a template as the hub has it now; None when it is gone or another took its place.

    A kind that is not known may be about to be: NotServed, and ask again.
    """
    resource = templates.find_resource(wanted.group_version_kind)
    if resource is None:
        raise NotServed(f"the hub does not serve {wanted.group_version_kind}, as far as we know")
    live = await hub.find(Place(resource, wanted.namespace, wanted.name))
    return live if live is not None and uid_of(live) == wanted.uid else None


def is_older(kube_object: Object, version: str) -> bool:
    """Whether an object is in a state from before a version; the hub's versions are numbers."""
    return bool(version) and int(resource_version_of(kube_object)) < int(version)
