"""Policies are held until nothing follows them, and carry an ID that never changes.

The hub gives both to every new policy. One that was made on another hub, or while the hub's
admission was not asked, gets them here.
"""

from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.policies import CLUSTER_PROPAGATION_POLICIES, PROPAGATION_POLICIES
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import (
    finalizers_of,
    is_being_deleted,
    release,
    with_finalizer,
)
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter
from clusterspace.fleet.propagation.claims import claim_of, permanent_id
from clusterspace.fleet.propagation.policies import read_policy
from clusterspace.fleet.propagation.triggers import Sources
from clusterspace.kube.objects import Object, labels_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource

UNSYNCED_SECONDS: Final = 1.0
RECHECK_SECONDS: Final = 10.0
"""Templates can vanish without an event: with their kind."""


def marked(policy: Object, namespace: str, random: Random) -> Object:
    """Return a policy with the ID and the finalizer every policy has."""
    label = stamps.POLICY_ID if namespace else stamps.CLUSTER_POLICY_ID
    held = with_finalizer(policy, finalizer_for(namespace))
    if labels_of(held).get(label):
        return held
    return with_metadata(held, labels={**labels_of(held), label: permanent_id(random)})


def finalizer_for(namespace: str) -> str:
    """Return what holds the policies of namespaces, or the cluster-wide ones for none."""
    return stamps.POLICY_FINALIZER if namespace else stamps.CLUSTER_POLICY_FINALIZER


class PolicyUpkeep:
    """Marks policies, and lets go of those that nothing follows any more."""

    def __init__(
        self,
        hub_client: Client,
        sources: Sources,
        events: EventRecorder,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._events = events
        self._random = random
        self._leaving: set[str] = set()
        """Keys of policies that wait for templates to stop following them."""
        self._controller = Controller("policies", self.reconcile, clock=clock, random=random)
        self._controller.watch(sources.policies)
        self._controller.watch(sources.cluster_policies)
        sources.templates.add_handler(self._template_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, request: Request) -> Outcome:
        """Mark a policy, or let it go."""
        policy = self._sources.policies_of(request.namespace).cache.find(request.key)
        if policy is None:
            self._leaving.discard(request.key)
            return Done()
        resource = PROPAGATION_POLICIES if request.namespace else CLUSTER_PROPAGATION_POLICIES
        place = Place(resource, request.namespace, request.name)
        if is_being_deleted(policy):
            return await self._let_go(place, policy)
        if problem := read_policy(policy).problem:
            self._events.record(policy, "InvalidResourceSelector", problem, is_warning=True)
        wanted = marked(policy, request.namespace, self._random)
        await commit(self._hub_client, place, policy, wanted)
        return Done()

    async def _let_go(self, place: Place, policy: Object) -> Outcome:
        finalizer = finalizer_for(place.namespace)
        if finalizer not in finalizers_of(policy):
            return Done()
        templates = self._sources.templates
        self._leaving.add(place.key)
        if not templates.has_synced:
            return RequeueAfter(UNSYNCED_SECONDS)
        if templates.claimed_by(place.key):
            return RequeueAfter(RECHECK_SECONDS)
        await release(self._hub_client, place, policy, finalizer)
        self._leaving.discard(place.key)
        return Done()

    def _template_changed(self, _: GroupVersionResource, update: Update) -> None:
        """Look at a leaving policy again when something that followed it changed."""
        if not self._leaving:
            return
        before = update.decode_before()
        claim = None if before is None else claim_of(before)
        if claim is not None and claim.key in self._leaving:
            self._controller.add(Request(claim.name, claim.namespace))
