"""What a join has made so far, so that a failure half-way can take it back.

Each entry names the object by its UID: what somebody else made meanwhile under the same name is
left alone. Things that members of several hubs share go only when nobody else uses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clusterspace.apis.clusters import CLUSTERS, FINALIZER
from clusterspace.client.places import Place
from clusterspace.client.resources import Client, Reader
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted, without_finalizer
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    CannotJoin,
    ClusterError,
    Conflict,
    NotFound,
)
from clusterspace.fleet.membership import names
from clusterspace.kube.objects import Object, annotations_of, name_of, uid_of


@dataclass(frozen=True, slots=True)
class Made:
    """An object that was not there before."""

    side: str
    owner: Client
    place: Place
    uid: str
    is_shared: bool = False

    def __str__(self) -> str:
        return f"{self.place} on {self.side}"


class Journal:
    """Creates objects and remembers which ones it made."""

    def __init__(self, cluster_name: str) -> None:
        self._cluster_name = cluster_name
        self._made: list[Made] = []

    @property
    def made(self) -> Sequence[Made]:
        """What was made, in order."""
        return tuple(self._made)

    async def ensure(
        self, side: str, owner: Client, place: Place, wanted: Object, *, is_shared: bool = False
    ) -> Object:
        """Return the object that is there, or make it; one that is going away is refused."""
        present = await owner.find(place)
        if present is None:
            try:
                return await self.create(side, owner, place, wanted, is_shared=is_shared)
            except AlreadyExists:
                present = await owner.get(place)
        if is_being_deleted(present):
            why = f"{place} on {side} is being deleted: join again when it is gone"
            raise CannotJoin(self._cluster_name, why)
        return present

    async def create(
        self, side: str, owner: Client, place: Place, wanted: Object, *, is_shared: bool = False
    ) -> Object:
        """Make the object, and remember it."""
        stored = await owner.create(place.collection, wanted)
        self._made.append(Made(side, owner, place, uid_of(stored), is_shared))
        return stored

    async def take_back(self) -> list[str]:
        """Remove what was made, the latest first; return what could not be removed, and why."""
        left: list[str] = []
        unreachable: dict[str, ClusterError] = {}
        for each in reversed(self._made):
            try:
                if each.side in unreachable:
                    raise unreachable[each.side]
                await self._remove(each)
            except ClusterError as error:
                # Asking a dead cluster for every object in turn would take minutes.
                unreachable[each.side] = error
                left.append(f"{each} ({error})")
            except ApiError as error:
                left.append(f"{each} ({error})")
        self._made.clear()
        return left

    async def _remove(self, made: Made) -> None:
        if made.is_shared and await others_in(made.owner, self._cluster_name):
            return
        try:
            await _let_go(made)
            await made.owner.delete(made.place, DeleteOptions(made.uid))
        except (NotFound, Conflict):
            # Gone already, or another object has its name now.
            return


async def _let_go(made: Made) -> None:
    """Take the finalizer of a Cluster that never really joined off, so that it can go."""
    if made.place.resource != CLUSTERS:
        return
    present = await made.owner.get(made.place)
    if uid_of(present) == made.uid:
        await commit(made.owner, made.place, present, without_finalizer(present, FINALIZER))


async def others_in(member: Reader, cluster_name: str) -> list[str]:
    """Return the accounts on a member through which other memberships than this one work."""
    ours = {names.service_account(cluster_name), names.IMPERSONATOR}
    accounts = await member.list_objects(names.account_place("").collection)
    return sorted(
        name_of(each)
        for each in accounts
        if name_of(each).startswith("karmada-") and name_of(each) not in ours
    )


def is_of_hub(kube_object: Object, hub_id: str) -> bool:
    """Whether our hub made an object on a member."""
    return annotations_of(kube_object).get(names.HUB_MARK) == hub_id


def foreign_hub(kube_object: Object, hub_id: str) -> str:
    """Return the ID of the other hub that made an object, or an empty text."""
    mark = annotations_of(kube_object).get(names.HUB_MARK, "")
    return "" if mark == hub_id else mark
