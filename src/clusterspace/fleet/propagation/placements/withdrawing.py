"""The end of a placement: its objects are taken off the clusters, then it is let go.

bindings of the engine deleted ──gone──> snapshots, bindings to clusters ──> finalizers
"""

from typing import Final

from clusterspace.apis.bindings import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    preserves_resources,
)
from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    PARENT,
    PLACEMENT_FINALIZER,
    PLACEMENTS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
    SCHEDULER_FINALIZER,
    abandons,
    is_of,
)
from clusterspace.client.places import Place, place_of
from clusterspace.client.resources import Client, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted, without_finalizer
from clusterspace.controllers.reconcile import Done, Outcome, RequeueAfter
from clusterspace.fleet.propagation.placements.sources import Desk
from clusterspace.kube.objects import Object, name_of, uid_of, with_value
from clusterspace.kube.resources import GroupVersionResource

_LOOK_AGAIN_SECONDS: Final = 5.0
"""In case nobody tells us that the last binding is gone."""

_ENGINE: Final = (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
_OWN: Final = (FLEET_BINDINGS, RESOURCE_SNAPSHOTS, POLICY_SNAPSHOTS)


class Withdrawing:
    """Ends placements that are being deleted; all it goes by is read live."""

    def __init__(self, hub_client: Client) -> None:
        self._hub_client = hub_client
        self._desk = Desk(hub_client)

    async def withdraw(self, placement: Object) -> Outcome:
        """Go as far as possible with a placement that is on its way out."""
        place = place_of(PLACEMENTS, placement)
        live = await self._hub_client.find(place)
        if live is None or uid_of(live) != uid_of(placement) or not is_being_deleted(live):
            return Done()
        waits = False
        for resource in _ENGINE:
            for each in await self._list(resource, live):
                waits = True
                await self._take_back(resource, each, keeps=abandons(live))
        if waits:
            return RequeueAfter(_LOOK_AGAIN_SECONDS)
        for resource in _OWN:
            for each in await self._list(resource, live):
                await self._desk.remove(resource, each)
        freed = without_finalizer(without_finalizer(live, SCHEDULER_FINALIZER), PLACEMENT_FINALIZER)
        await commit(self._hub_client, place, live, freed)
        return Done()

    async def _take_back(
        self, resource: GroupVersionResource, binding: Object, *, keeps: bool
    ) -> None:
        if is_being_deleted(binding):
            return
        if keeps and not preserves_resources(binding):
            kept = with_value(binding, True, "spec", "preserveResourcesOnDeletion")
            await self._desk.change(resource, binding, kept)
        await self._desk.remove(resource, binding)

    async def _list(self, resource: GroupVersionResource, placement: Object) -> list[Object]:
        named = ListOptions(label_selector=f"{PARENT}={name_of(placement)}")
        held = await self._hub_client.list_objects(Place(resource), named)
        return [each for each in held if is_of(each, placement)]
