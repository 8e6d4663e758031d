"""Every placement, kept as it is meant to be: select, pick, roll out, hand over, tell.

    selectors ──> objects ──> snapshot ─┐
                                        ├──> rollout ──> bindings of the engine ──> (Works)
    policy ──> clusters ──> bindings ───┘                                              │
                                  ▲  status <── reports <──────────────────────────────┘

Each step reads what the one before it wrote, so whoever is killed in between is followed by one
that goes on. What cannot be seen is never taken for gone.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.fleet_placements import (
    PLACEMENT_FINALIZER,
    PLACEMENTS,
    SCHEDULER_FINALIZER,
    Identity,
    is_external,
)
from clusterspace.client.places import place_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted, with_finalizer
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter
from clusterspace.fleet.propagation.placements.bindings import snapshot_of
from clusterspace.fleet.propagation.placements.choosing import Choice, Choosing
from clusterspace.fleet.propagation.placements.gathering import Gathered, Gathering
from clusterspace.fleet.propagation.placements.rolling import Rolled, Rolling
from clusterspace.fleet.propagation.placements.snapshots import index_in
from clusterspace.fleet.propagation.placements.sources import (
    BEHIND_SECONDS,
    KnownFleetBindings,
    PlacementSources,
)
from clusterspace.fleet.propagation.placements.statuses import (
    Summary,
    summed_up,
    with_invalid_selectors,
)
from clusterspace.fleet.propagation.placements.withdrawing import Withdrawing
from clusterspace.kube.conditions import FALSE, find_condition
from clusterspace.kube.objects import Object, find_at, name_of

_log = structlog.get_logger(__name__)

UNSEEN_SECONDS: Final = 5.0
"""When to ask again for what should be there and is not in any cache."""

_NOT_YET: Final = "Yet"
"""How reasons end that tell of progress, and not of trouble."""


class PlacementUpkeep:
    """Keeps all ClusterResourcePlacements."""

    def __init__(
        self,
        hub_client: Client,
        sources: PlacementSources,
        events: EventRecorder,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._events = events
        self._clock = clock
        bindings = KnownFleetBindings(sources.own.fleet_bindings)
        self._gathering = Gathering(hub_client, sources)
        self._choosing = Choosing(hub_client, sources, bindings, clock)
        self._rolling = Rolling(hub_client, sources, bindings, clock=clock, random=random)
        self._withdrawing = Withdrawing(hub_client)
        self.namespaces: dict[str, frozenset[str]] = {}
        """Of each placement, the namespaces whose content goes along."""

    async def reconcile(self, request: Request) -> Outcome:
        """Bring one placement to where it should be."""
        placement = self._sources.own.placements.cache.find(request.key)
        if placement is None:
            self.namespaces.pop(request.name, None)
            return Done()
        if is_being_deleted(placement):
            return await self._withdrawing.withdraw(placement)
        if not self._sources.templates.has_synced or self._sources.clusters.is_stale:
            return RequeueAfter(BEHIND_SECONDS)
        return await self._keep(await self._hold(placement))

    async def _hold(self, placement: Object) -> Object:
        """Hold a placement before anything comes of it."""
        held = with_finalizer(with_finalizer(placement, PLACEMENT_FINALIZER), SCHEDULER_FINALIZER)
        return await commit(self._hub_client, place_of(PLACEMENTS, placement), placement, held)

    async def _keep(self, placement: Object) -> Outcome:
        selection = await self._gathering.select(placement)
        if selection is None:
            return RequeueAfter(UNSEEN_SECONDS)
        if selection.problems:
            now = self._clock.now()
            await self._tell(placement, with_invalid_selectors(placement, selection.problems, now))
            return Done()
        self.namespaces[name_of(placement)] = selection.namespaces
        choice = await self._choosing.choose(placement)
        in_use = _indexes_in(choice.bindings)
        gathered = await self._gathering.write_down(placement, selection, in_use)
        rolled = await self._rolling.roll(placement, choice, gathered)
        summary = _summary(placement, choice, gathered, rolled)
        await self._tell(placement, summed_up(placement, summary, self._clock.now()))
        return Done() if rolled.look_again is None else RequeueAfter(rolled.look_again)

    async def _tell(self, placement: Object, status: Object) -> None:
        place = place_of(PLACEMENTS, placement)
        await commit(self._hub_client, place, placement, {**placement, "status": status})
        before = find_at(placement, "status", "conditions")
        for each in status["conditions"]:
            known = find_condition(before, each["type"]) or {}
            if (known.get("status"), known.get("reason")) == (each["status"], each["reason"]):
                continue
            is_on_its_way = str(each["reason"]).endswith(_NOT_YET)
            is_warning = each["status"] == FALSE and not is_on_its_way
            self._events.record(placement, each["reason"], each["message"], is_warning=is_warning)
            _log.info("placement told", condition=each["type"], status=each["status"])


def _indexes_in(bindings: Mapping[str, Object]) -> frozenset[int]:
    found = (index_in(snapshot_of(each)) for each in bindings.values())
    return frozenset(each for each in found if each is not None)


def _summary(placement: Object, choice: Choice, gathered: Gathered, rolled: Rolled) -> Summary:
    picked = choice.picking.picked
    selected: list[Identity] = list(gathered.latest)
    return Summary(
        picking=choice.picking,
        placement_type=choice.policy.type,
        clusters=[view for view in rolled.views if view.cluster in picked],
        selected=selected,
        resource_index=str(gathered.index),
        is_external=is_external(placement),
    )
