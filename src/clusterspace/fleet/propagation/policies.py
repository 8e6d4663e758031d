"""Policies stay until nothing follows them, and carry an ID that never changes.

The hub gives finalizer and ID to every new policy. One that was created on another hub, or while
the hub's admission was off, gets them here.
"""

from collections.abc import Iterable
from random import Random
from typing import Final

from clusterspace.apis import stamps
from clusterspace.apis.policies import CLUSTER_PROPAGATION_POLICIES, PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit, release
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.fleet.propagation.bindings import claim_of, permanent_id, read_policy
from clusterspace.fleet.propagation.templates import TemplateInformers
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    is_being_deleted,
    labels_of,
    with_finalizer,
    with_metadata,
)

UNSYNCED_SECONDS: Final = 1.0
RECHECK_SECONDS: Final = 10.0
"""Templates can vanish without an event: with their kind."""


def marked(policy: Object, namespace: str, random: Random) -> Object:
    """Return a policy with the ID and the finalizer every policy has."""
    label = stamps.POLICY_ID if namespace else stamps.CLUSTER_POLICY_ID
    finalized = with_finalizer(policy, finalizer_for(namespace))
    labels = labels_of(finalized)
    if labels.get(label):
        return finalized
    return with_metadata(finalized, labels={**labels, label: permanent_id(random)})


def finalizer_for(namespace: str) -> str:
    """Return the finalizer of policies in namespaces, or of cluster-wide ones for none."""
    return stamps.POLICY_FINALIZER if namespace else stamps.CLUSTER_POLICY_FINALIZER


class PolicyLifecycle(Reconciler):
    """Marks policies, and releases those that nothing follows any more."""

    name = "policies"

    def __init__(
        self, hub: Client, caches: HubCaches, events: EventRecorder, *, random: Random
    ) -> None:
        self._hub = hub
        self._events = events
        self._random = random
        self._templates = caches.shared(TemplateInformers)
        self._policies = caches.informer(PROPAGATION_POLICIES)
        self._cluster_policies = caches.informer(CLUSTER_PROPAGATION_POLICIES)
        self._leaving: set[str] = set()
        """Keys of policies that wait for templates to stop following them."""

    def watches(self) -> Iterable[Watch]:
        """Return the policies, and the templates that a leaving policy waits for."""
        yield Watch(self._policies)
        yield Watch(self._cluster_policies)
        yield Watch(self._templates, to=self.leaving_policy)

    async def reconcile(self, request: Request) -> Result:
        """Mark a policy, or let it go."""
        policies = self._policies if request.namespace else self._cluster_policies
        policy = policies.cache.find(request.key)
        if policy is None:
            self._leaving.discard(request.key)
            return Done()
        path = policies.path.at(request.key)
        if is_being_deleted(policy):
            return await self._let_go(path, policy)
        if problem := read_policy(policy).problem:
            self._events.record(policy, "InvalidResourceSelector", problem, is_warning=True)
        await commit(self._hub, path, policy, marked(policy, request.namespace, self._random))
        return Done()

    async def _let_go(self, path: ResourcePath, policy: Object) -> Result:
        """Remove the finalizer of a policy, unless a template may still carry its marks."""
        finalizer = finalizer_for(path.namespace)
        if finalizer not in finalizers_of(policy):
            return Done()
        self._leaving.add(path.key)
        # A policy that goes while a template still follows it would leave the template marked
        # for ever. Until every kind has been listed, nobody can say that none does.
        if not self._templates.has_synced:
            return RequeueAfter(UNSYNCED_SECONDS)
        # The detector claims nothing for a policy that it sees leaving. Where its cache is behind
        # it may claim one more template after this look, for a policy that is then gone: the
        # marks it wrote come back to it as a change, and it removes them after a live read.
        if self._templates.claimed_by(path.key):
            return RequeueAfter(RECHECK_SECONDS)
        await release(self._hub, path, policy, finalizer)
        self._leaving.discard(path.key)
        return Done()

    def leaving_policy(self, update: Update) -> Iterable[Request]:
        """Map a template to the policy it followed, if that one is leaving."""
        if not self._leaving:
            return ()
        before = update.decode_before()
        claim = None if before is None else claim_of(before)
        if claim is None or claim.key not in self._leaving:
            return ()
        return (Request(claim.name, claim.namespace),)
