"""Policy to snapshot to clusters to bindings: where a placement is to be, written down.

A cluster loses a placement only after a live look at that cluster: one that a cache has lost sight
of has not left.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    POLICY_INDEX,
    POLICY_SNAPSHOTS,
    UNSCHEDULED,
    generation_of,
    is_of,
)
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.fleet.propagation.placements.bindings import (
    held_by,
    plan_bindings,
    state_of,
)
from clusterspace.fleet.propagation.placements.members import KnownMembers, Member, member_of
from clusterspace.fleet.propagation.placements.picking import Fleet, Picking, pick
from clusterspace.fleet.propagation.placements.policies import PickPolicy, read_pick_policy
from clusterspace.fleet.propagation.placements.snapshots import (
    history_limit,
    outdated,
    plan_policy_snapshot,
)
from clusterspace.fleet.propagation.placements.sources import (
    Desk,
    KnownFleetBindings,
    PlacementSources,
    of_parent,
)
from clusterspace.fleet.propagation.placements.statuses import exactly, scheduled_condition
from clusterspace.kube.objects import Object, find_at, name_of


@dataclass(frozen=True, slots=True)
class Choice:
    """Which clusters a placement has, and its bindings to them and to those it is leaving."""

    picking: Picking
    policy: PickPolicy
    bindings: Mapping[str, Object]
    members: Mapping[str, Member]


class Choosing:
    """Picks the clusters of placements."""

    def __init__(
        self,
        hub_client: Client,
        sources: PlacementSources,
        bindings: KnownFleetBindings,
        clock: Clock,
    ) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._desk = Desk(hub_client)
        self._bindings = bindings
        self._members = KnownMembers(sources.clusters.cache)
        self._clock = clock

    async def choose(self, placement: Object) -> Choice:
        """Pick clusters, and write down which and why."""
        snapshot = await self._settle_snapshot(placement)
        policy = read_pick_policy(find_at(placement, "spec", "policy"))
        present = {
            cluster: each
            for cluster, each in self._bindings.of(name_of(placement)).items()
            if is_of(each, placement)
        }
        held = [held_by(each, name_of(snapshot)) for each in present.values()]
        members = self._members.members()
        picking = pick(policy, Fleet(members, self._clock.now()), held)
        lost = [c for c, each in present.items() if c not in picking.picked and _is_used(each)]
        if lost:
            members = await self._confirmed(members, lost)
            picking = pick(policy, Fleet(members, self._clock.now()), held)
        bindings = await self._write(placement, picking, name_of(snapshot), present)
        await self._tell(placement, snapshot, picking)
        return Choice(picking, policy, bindings, members)

    async def _settle_snapshot(self, placement: Object) -> Object:
        held = of_parent(self._sources.own.policy_snapshots, name_of(placement))
        present = [each for each in held if is_of(each, placement)]
        plan = plan_policy_snapshot(placement, present)
        latest = plan.latest
        for each in plan.new:
            latest = await self._desk.create(POLICY_SNAPSHOTS, each)
        for before, after in plan.changed:
            stored = await self._desk.change(POLICY_SNAPSHOTS, before, after)
            latest = stored if after is plan.latest else latest
        limit = history_limit(placement)
        for each in outdated(present, POLICY_INDEX, limit, frozenset({plan.index})):
            await self._desk.remove(POLICY_SNAPSHOTS, each)
        return latest

    async def _confirmed(self, members: Mapping[str, Member], lost: list[str]) -> dict[str, Member]:
        """Return the clusters, those about to be left as they are at this moment."""
        found = {name: await self._hub_client.find(Place(CLUSTERS, "", name)) for name in lost}
        live = {name: member_of(each) for name, each in found.items() if each is not None}
        return {**{name: each for name, each in members.items() if name not in lost}, **live}

    async def _write(
        self,
        placement: Object,
        picking: Picking,
        snapshot_name: str,
        present: Mapping[str, Object],
    ) -> dict[str, Object]:
        written = dict(present)
        for change in plan_bindings(placement, picking, snapshot_name, present):
            if change.before is None:
                stored = await self._desk.create(FLEET_BINDINGS, change.after)
            else:
                stored = await self._desk.change(FLEET_BINDINGS, change.before, change.after)
            self._bindings.note(stored)
            written[change.cluster] = stored
        return written

    async def _tell(self, placement: Object, snapshot: Object, picking: Picking) -> None:
        """Write what was decided about each cluster where people look for it."""
        status: Object = snapshot.get("status") or {}
        condition = scheduled_condition(picking, generation_of(snapshot))
        told = {
            **status,
            "observedCRPGeneration": generation_of(placement),
            "conditions": exactly(status.get("conditions"), [condition], self._clock.now()),
            "targetClusters": [each.to_object() for each in picking.decisions],
        }
        await self._desk.change(POLICY_SNAPSHOTS, snapshot, {**snapshot, "status": told})


def _is_used(binding: Object) -> bool:
    return state_of(binding) != UNSCHEDULED
