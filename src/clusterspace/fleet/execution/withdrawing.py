"""What a Work held, taken off the member or handed over to it, when the Work goes."""

from collections.abc import Sequence
from typing import Final

import structlog

from clusterspace.apis.clusters import CLUSTERS, WORK_FINALIZER, WORKS, keeps_on_leave
from clusterspace.apis.works import manifests_of, preserves_resources
from clusterspace.client.places import Place, place_of
from clusterspace.client.resources import Client
from clusterspace.controllers.finalizers import finalizers_of, is_being_deleted, release
from clusterspace.errors import Malformed, NotServed
from clusterspace.fleet.execution import prune
from clusterspace.fleet.execution.guard import DeletionGuard
from clusterspace.fleet.execution.sightings import Sightings
from clusterspace.kube.objects import Object, metadata_of, name_of, uid_of
from clusterspace.kube.timestamps import parse_time

_log = structlog.get_logger(__name__)

_NEVER: Final = float("inf")


class Withdrawer:
    """Carries out the end of Works, and of manifests that a Work no longer lists."""

    def __init__(
        self, hub: Client, member: Client, sightings: Sightings, guard: DeletionGuard
    ) -> None:
        self._hub = hub
        self._member = member
        self._sightings = sightings
        self._guard = guard

    async def withdraw(self, work: Object) -> bool:
        """Let a Work go that was deleted on the hub; return whether it is done with.

        The Work is asked for live: nothing is deleted on the word of a cache.
        """
        fresh = await self._read_live(work)
        if fresh is None or not is_being_deleted(fresh):
            return True
        if WORK_FINALIZER not in finalizers_of(fresh):
            return True
        manifests = (*manifests_of(fresh), *prune.dropped_manifests(fresh))
        if preserves_resources(fresh) or await self._is_kept_on_leave():
            await self._hand_over(manifests)
        else:
            left = await self._delete(fresh, manifests)
            if left is None:
                return False
            fresh = left
        await release(self._hub, place_of(WORKS, work), fresh, WORK_FINALIZER)
        _log.info("work withdrawn", cluster=self._sightings.cluster, work=name_of(work))
        return True

    async def drop_unlisted(self, work: Object) -> bool:
        """Delete what a living Work no longer lists; return whether all of it could go."""
        if not prune.dropped_manifests(work):
            return True
        fresh = await self._read_live(work)
        if fresh is None:
            return True
        return await self._delete(fresh, prune.dropped_manifests(fresh)) is not None

    async def _is_kept_on_leave(self) -> bool:
        """Whether the cluster is to keep what it has; its Works may not have heard of it yet."""
        cluster = await self._hub.find(Place(CLUSTERS, name=self._sightings.cluster))
        return cluster is not None and is_being_deleted(cluster) and keeps_on_leave(cluster)

    async def _read_live(self, work: Object) -> Object | None:
        """Return the Work as it is now; None when it is gone, or another took its place."""
        fresh = await self._hub.find(place_of(WORKS, work))
        return fresh if fresh is not None and uid_of(fresh) == uid_of(work) else None

    async def _hand_over(self, manifests: Sequence[Object]) -> None:
        for manifest in manifests:
            place = await self._find_place(manifest)
            if place is not None:
                await prune.hand_over(self._member, place, manifest)

    async def _delete(self, work: Object, manifests: Sequence[Object]) -> Object | None:
        """Delete objects of ours; return the Work as it is now, or None when that has to wait."""
        found = [await self._find_doomed(work, each) for each in manifests]
        doomed = [each for each in found if each is not None]
        if not doomed:
            return work
        goes_since = deleted_at(work)
        if not await self._guard.permits(goes_since):
            return None
        noted = await prune.record(self._hub, work, doomed)
        for each in doomed:
            await prune.delete(self._member, each)
            self._guard.note_deletion(goes_since)
        return noted

    async def _find_doomed(self, work: Object, manifest: Object) -> prune.Doomed | None:
        place = await self._find_place(manifest)
        if place is None:
            return None
        return await prune.find_doomed(self._member, place, manifest, work)

    async def _find_place(self, manifest: Object) -> Place | None:
        """Return where a manifest is; None when the member knows no such kind, or it names nothing.

        Then there is nothing to delete, and if the member was wrong about that, it keeps it.
        """
        try:
            return await self._sightings.place_of(manifest)
        except (NotServed, Malformed) as error:
            self._sightings.forget_kinds()
            _log.warning("nothing withdrawn", cluster=self._sightings.cluster, reason=str(error))
            return None


def deleted_at(work: Object) -> float:
    """Return when somebody asked for a Work to go; later than ever when nobody did."""
    moment = metadata_of(work).get("deletionTimestamp")
    return parse_time(str(moment)) if moment else _NEVER
