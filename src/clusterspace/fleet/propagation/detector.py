"""Template to policy to binding: every template follows the policy that claims it.

    free ──a policy means it──> stamped ──> bound          two writes; killed between them, the
      ^                                       │            next life finds a template without
      └── unmarked <── binding unmarked <─────┘            its binding, and makes it
          the policy goes, or no longer means it

Nothing is written when nothing changed. A claim ends only after a live look at its policy, and
ending it removes marks alone: what is placed stays placed.
"""

from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.fleet_placements import is_placed, parent_of
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter
from clusterspace.errors import AlreadyExists
from clusterspace.fleet.propagation.bindings import binding_place, bound, is_own, new_binding
from clusterspace.fleet.propagation.claims import (
    Claim,
    claim_of,
    is_marked,
    permanent_id,
    with_claim,
    without_claim,
)
from clusterspace.fleet.propagation.policies import Policy, policy_place, read_policy
from clusterspace.fleet.propagation.templates import TemplateRequest, is_template
from clusterspace.fleet.propagation.triggers import Sources, Triggers
from clusterspace.kube.objects import Object, namespace_of

WORKERS: Final = 16

BEHIND_SECONDS: Final = 1.0
"""How long to wait for a cache that the hub has just shown to be behind."""

_APPLIED: Final = "ApplyPolicySucceed"
_FAILED: Final = "ApplyPolicyFailed"


class Detector:
    """Claims templates for policies, and keeps one binding for each.

    detector = Detector(hub_client, sources, events, clock=clock, random=random)
    tasks.keep("detector", detector.run)
    """

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
        self._triggers = Triggers(sources)
        hard = ControllerSettings(workers=WORKERS)
        self._controller = Controller(
            "detector", self.reconcile, clock=clock, random=random, settings=hard
        )
        self._triggers.connect(self._controller)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, request: Request) -> Outcome:
        """Bring one template, its marks and its binding to where they should be."""
        if not isinstance(request, TemplateRequest):
            raise TypeError(f"{request} is no request for a template")
        news = self._triggers.news
        is_news = request in news
        # Taken out before the work: what users write meanwhile is news again.
        news.discard(request)
        is_done = False
        try:
            outcome = await self._settle(request, is_news=is_news)
            is_done = isinstance(outcome, Done)
            return outcome
        finally:
            if is_news and not is_done:
                news.add(request)

    async def _settle(self, request: TemplateRequest, *, is_news: bool) -> Outcome:
        template = self._sources.templates.find_at(request.place)
        if template is None or is_being_deleted(template) or not is_template(template):
            return Done()
        binding = self._find_binding(template)
        held = claim_of(template) or _claim_beside(template, binding)
        policy = self._triggers.book.settle(template, held)
        stays = policy is not None and held is not None and policy.key == held.key
        if held is not None and not stays and not await self._is_over(held, template):
            return RequeueAfter(BEHIND_SECONDS)
        if policy is None:
            return await self._release(request.place, template, binding)
        if not stays and self._waits_for_override(template, policy):
            return Done()
        claimed = with_claim(template, policy.claim)
        stamped = await commit(self._hub_client, request.place, template, claimed)
        if policy.is_lazy and not is_news:
            return Done()
        return await self._bind(stamped, policy, binding, takes_version=is_news)

    async def _bind(
        self, template: Object, policy: Policy, binding: Object | None, *, takes_version: bool
    ) -> Outcome:
        """Make the binding, or bring it up to date."""
        place = binding_place(template)
        if binding is None:
            binding = await self._create(place, template, policy)
        if binding is None:
            return Done()
        if is_being_deleted(binding) or not is_own(binding, template):
            # Its deletion is an event for this template.
            self._complain(template, policy, _whose(place, binding))
            return Done()
        wanted = bound(binding, template, policy, takes_version=takes_version)
        written = await commit(self._hub_client, place, binding, wanted)
        if written is not wanted:
            self._report(template, policy)
        return Done()

    async def _create(self, place: Place, template: Object, policy: Policy) -> Object | None:
        """Make the binding; return the one that is there if our cache did not know of it."""
        empty = new_binding(template, permanent_id(self._random))
        wanted = bound(empty, template, policy, takes_version=True)
        try:
            await self._hub_client.create(place.collection, wanted)
        except AlreadyExists:
            return await self._hub_client.get(place)
        self._report(template, policy)
        return None

    async def _release(self, place: Place, template: Object, binding: Object | None) -> Outcome:
        """Take the marks away: the binding's first, so that nobody acts on it any more."""
        is_bound = binding is not None and is_own(binding, template) and is_marked(binding)
        if not is_marked(template) and not is_bound:
            return Done()
        held_at = binding_place(template)
        live = await self._hub_client.find(held_at)
        if live is not None and is_own(live, template) and is_marked(live):
            await commit(self._hub_client, held_at, live, without_claim(live))
        if is_marked(template):
            await commit(self._hub_client, place, template, without_claim(template))
        return Done()

    async def _is_over(self, held: Claim, template: Object) -> bool:
        """Make sure that a policy is gone, is going, or no longer means a template."""
        live = await self._hub_client.find(policy_place(held))
        return live is None or not read_policy(live).keeps(template)

    def _find_binding(self, template: Object) -> Object | None:
        bindings = self._sources.bindings_of(namespace_of(template))
        return bindings.cache.find(binding_place(template).key)

    def _waits_for_override(self, template: Object, policy: Policy) -> bool:
        namespace = policy.claim.namespace
        present = self._sources.overrides_of(namespace).cache
        prefix = f"{namespace}/" if namespace else ""
        missing = [name for name in policy.awaited_overrides if prefix + name not in present]
        if missing:
            self._complain(template, policy, f"waits for the override policy {missing[0]}")
        return bool(missing)

    def _report(self, template: Object, policy: Policy) -> None:
        self._events.record(template, _APPLIED, f"Apply policy({policy.key}) succeed")

    def _complain(self, template: Object, policy: Policy, why: str) -> None:
        message = f"Apply policy({policy.key}) failed: {why}"
        self._events.record(template, _FAILED, message, is_warning=True)


def _whose(place: Place, binding: Object) -> str:
    """Return whom a binding belongs to that a policy cannot have."""
    if is_placed(binding):
        return f"ClusterResourcePlacement {parent_of(binding)} places it"
    return f"{place} is another object's, which must go first"


def _claim_beside(template: Object, binding: Object | None) -> Claim | None:
    """Return the claim of the template's own binding: somebody replaced the template's marks."""
    if binding is None or not is_own(binding, template):
        return None
    return claim_of(binding)
