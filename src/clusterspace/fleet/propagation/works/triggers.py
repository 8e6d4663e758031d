"""Whose Works and statuses have to be looked at, because something changed."""

from collections.abc import Iterable
from typing import Any, Final

from clusterspace.apis.bindings import template_of
from clusterspace.apis.policies import ResourceSelector, selectors_of
from clusterspace.apis.works import binding_key_of
from clusterspace.controllers.caches import IndexKeys
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.reconcile import Request, request_for
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.scheduling.affinities import traits_of
from clusterspace.fleet.propagation.targets import kept_clusters
from clusterspace.fleet.propagation.works.revisions import BY_PARENT, by_parent
from clusterspace.kube.objects import Object, metadata_of, namespace_of

BY_CLUSTER: Final = "cluster"
BY_KIND: Final = "template-kind"
BY_NAMESPACE: Final = "namespace"


def by_cluster(binding: Object) -> Iterable[str]:
    """Index bindings by the clusters that have their object."""
    return kept_clusters(binding)


def by_template_kind(binding: Object) -> Iterable[str]:
    """Index bindings by the kind of their template."""
    template = template_of(binding)
    return (_kind_word(template.api_version, template.kind),)


def by_namespace(kube_object: Object) -> Iterable[str]:
    """Index objects by their namespace."""
    return (namespace_of(kube_object),)


BINDING_INDEXES: Final[dict[str, IndexKeys]] = {
    BY_CLUSTER: by_cluster,
    BY_KIND: by_template_kind,
    BY_PARENT: by_parent,
}
"""What informers of bindings must have."""

OVERRIDE_INDEXES: Final[dict[str, IndexKeys]] = {BY_NAMESPACE: by_namespace}
"""What an informer of OverridePolicies must have."""


def when_more_than_status_changed(update: Update) -> Iterable[Request]:
    """Look at a binding again, unless nothing but its status is new."""
    before, after = update.decode_before(), update.decode_after()
    if before is not None and after is not None and _but_status(before) == _but_status(after):
        return ()
    return (request_for(update.key),)


def when_work_strays(update: Update) -> Iterable[Request]:
    """Look at the binding of a Work that is gone, or that says something else than before."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or (after is not None and _but_status(before) == _but_status(after)):
        return ()
    return _binding_requests(before)


def has_new_traits(update: Update) -> bool:
    """Whether a cluster is new, or is told by other traits than before."""
    before, after = update.decode_before(), update.decode_after()
    return after is not None and (before is None or traits_of(before) != traits_of(after))


def when_work_reports(update: Update) -> Iterable[Request]:
    """Look at the binding of a Work of which something new is known."""
    before, after = update.decode_before(), update.decode_after()
    if before is not None and after is not None and _told(before) == _told(after):
        return ()
    known = after or before
    return () if known is None else _binding_requests(known)


class BindingTriggers:
    """Finds the bindings that something else bears on, in the caches of both kinds of bindings."""

    def __init__(self, *bindings: Informer) -> None:
        self._bindings = bindings

    def when_cluster_changes(self, update: Update) -> Iterable[Request]:
        """Look at what is in a cluster that is new, or is told by other traits than before."""
        return self._at(BY_CLUSTER, update.key) if has_new_traits(update) else ()

    def when_override_changes(self, update: Update) -> Iterable[Request]:
        """Look at what an override policy means, and at what it meant before."""
        requests: set[Request] = set()
        for policy in (update.decode_before(), update.decode_after()):
            if policy is not None:
                requests.update(self._meant_by(policy))
        return requests

    def _meant_by(self, policy: Object) -> Iterable[Request]:
        """Return the bindings a policy may mean; labels are looked at when it is applied."""
        namespace = namespace_of(policy)
        try:
            selectors = selectors_of(policy)
        except MalformedSelector:
            # It means nothing that can be told; every binding it may bear on will say so.
            selectors = ()
        meant = self._selected_by(selectors) if selectors else self._all()
        return [each for each in meant if not namespace or each.namespace == namespace]

    def _selected_by(self, selectors: Iterable[ResourceSelector]) -> list[Request]:
        return [
            request
            for each in selectors
            for request in self._at(BY_KIND, _kind_word(each.api_version, each.kind))
            if not each.namespace or request.namespace == each.namespace
        ]

    def _at(self, index: str, word: str) -> list[Request]:
        return [
            request_for(key)
            for informer in self._bindings
            for key in informer.cache.keys_at(index, word)
        ]

    def _all(self) -> list[Request]:
        return [request_for(key) for informer in self._bindings for key in informer.cache]


def _binding_requests(work: Object) -> Iterable[Request]:
    key = binding_key_of(work)
    return (request_for(key),) if key else ()


def _but_status(kube_object: Object) -> Any:
    metadata = metadata_of(kube_object)
    marks = ("labels", "annotations", "finalizers", "deletionTimestamp", "uid")
    return kube_object.get("spec"), [metadata.get(each) for each in marks]


def _told(work: Object) -> Any:
    return work.get("status"), metadata_of(work).get("deletionTimestamp")


def _kind_word(api_version: str, kind: str) -> str:
    return f"{api_version}/{kind}"
