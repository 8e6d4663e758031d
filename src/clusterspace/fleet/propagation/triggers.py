"""Which templates to look at again when a template, a policy, an override or a binding changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.bindings import template_of
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.informers import Informer, Update
from clusterspace.fleet.propagation.claims import claim_of
from clusterspace.fleet.propagation.policies import Policy, PolicyBook, read_policy
from clusterspace.fleet.propagation.template_informers import TemplateInformers
from clusterspace.fleet.propagation.templates import TemplateRequest, template_request, users_part
from clusterspace.kube.objects import Object, namespace_of
from clusterspace.kube.resources import GroupVersionResource

OWN_MARKS_SECONDS: Final = 1.0
"""When marks changed it was most likely us; by then the binding we made is in the cache, too."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the detector follows; all of it is run by somebody else."""

    templates: TemplateInformers
    policies: Informer
    cluster_policies: Informer
    overrides: Informer
    cluster_overrides: Informer
    bindings: Informer
    cluster_bindings: Informer

    def policies_of(self, namespace: str) -> Informer:
        """Return the policies of namespaces, or the cluster-wide ones for none."""
        return self.policies if namespace else self.cluster_policies

    def overrides_of(self, namespace: str) -> Informer:
        """Return the overrides of namespaces, or the cluster-wide ones for none."""
        return self.overrides if namespace else self.cluster_overrides

    def bindings_of(self, namespace: str) -> Informer:
        """Return the bindings of templates in namespaces, or of those in none."""
        return self.bindings if namespace else self.cluster_bindings


class Triggers:
    """Keeps the book of policies, and asks for templates to be looked at."""

    def __init__(self, sources: Sources) -> None:
        self.book = PolicyBook()
        self.news: set[TemplateRequest] = set()
        """Templates in which users wrote something that their binding has not heard of."""
        self._sources = sources

    def connect(self, controller: Controller) -> None:
        """Let a controller reconcile templates; it begins when all but they have synced."""
        sources = self._sources
        for informer in (sources.policies, sources.cluster_policies):
            controller.watch(informer, self._policy_changed)
        for informer in (sources.overrides, sources.cluster_overrides):
            controller.watch(informer, self._override_changed)
        for informer in (sources.bindings, sources.cluster_bindings):
            controller.watch(informer, self._binding_changed)
        # Kinds come and go, so no controller can wait for all of them: each template on its own.
        sources.templates.add_handler(
            lambda resource, update: self._template_changed(controller, resource, update)
        )

    def _template_changed(
        self, controller: Controller, resource: GroupVersionResource, update: Update
    ) -> None:
        if update.is_deletion:
            return  # its binding goes with it: it owns it
        request = template_request(resource, update.key)
        before, after = update.decode_before(), update.decode_after() or {}
        if before is None or users_part(before) != users_part(after):
            self.news.add(request)
            controller.add(request)
        elif claim_of(before) != claim_of(after):
            controller.add(request, after_seconds=OWN_MARKS_SECONDS)

    def _policy_changed(self, update: Update) -> Iterable[TemplateRequest]:
        before, after = _read(update.decode_before()), _read(update.decode_after())
        if after is None:
            self.book.remove(update.key)
        else:
            self.book.put(after)
        if before == after:
            return ()
        return {*self._sources.templates.claimed_by(update.key), *self._selected_by(after)}

    def _override_changed(self, update: Update) -> Iterable[TemplateRequest]:
        after = update.decode_after()
        if after is None or update.before is not None:
            return ()
        name, namespace = update.key.rpartition("/")[2], namespace_of(after)
        waiting = [
            policy
            for policy in self.book
            if name in policy.awaited_overrides and policy.claim.namespace == namespace
        ]
        return {request for policy in waiting for request in self._selected_by(policy)}

    def _binding_changed(self, update: Update) -> Iterable[TemplateRequest]:
        before = update.decode_before()
        if not update.is_deletion or before is None:
            return ()
        template = template_of(before)
        resource = self._sources.templates.find_resource(template.group_version_kind)
        if resource is None:
            return ()
        request = TemplateRequest(
            name=template.name, namespace=template.namespace, resource=resource
        )
        self.news.add(request)
        return (request,)

    def _selected_by(self, policy: Policy | None) -> Iterable[TemplateRequest]:
        if policy is None or policy.is_leaving:
            return ()
        templates, namespace = self._sources.templates, policy.claim.namespace
        return [
            request
            for selector in policy.selectors
            for request in templates.selected_by(selector, namespace)
        ]


def _read(policy: Object | None) -> Policy | None:
    return None if policy is None else read_policy(policy)
