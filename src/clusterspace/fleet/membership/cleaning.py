"""What a membership leaves on the member, removed: by its administrator or by the hub itself.

Only what our hub made goes, each object by its UID. What several memberships share stays while
another one is there. ClusterProperties stay: who a cluster is does not end with a membership.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.apis.clusters import CLUSTER_NAMESPACE
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import Conflict, NotFound
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.journal import is_of_hub, others_in
from clusterspace.kube.objects import Object, uid_of

BeforeRemoval: TypeAlias = Callable[[], Awaitable[object]]
"""Awaited when it is clear that we are let in, just before the first thing is removed."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed from a member, each with its UID, and what is not ours to remove."""

    removed: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def own_places(cluster_name: str) -> tuple[Place, ...]:
    """Return what one membership alone uses on the member."""
    role = names.role(cluster_name)
    return (
        names.role_binding_place(role),
        names.account_place(names.service_account(cluster_name)),
        names.role_place(role),
    )


def shared_places() -> tuple[Place, ...]:
    """Return what all memberships of one member share."""
    return (
        names.role_binding_place(names.IMPERSONATOR),
        names.account_place(names.IMPERSONATOR),
        names.role_place(names.IMPERSONATOR),
        names.namespace_place(CLUSTER_NAMESPACE),
    )


def plan_removals(
    cluster_name: str, *, is_shared: bool, as_administrator: bool
) -> tuple[Place, ...]:
    """Return what to remove, in order.

    The hub removes its own role and nothing else, for with the role its rights end; the member's
    garbage collector removes what the role owns.
    """
    if not as_administrator:
        return (names.role_place(names.role(cluster_name)),)
    return (*own_places(cluster_name), *(() if is_shared else shared_places()))


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Somebody who may remove things from a member."""

    member: Client
    is_administrator: bool
    """Or else the hub itself, with the rights the membership gave it."""

    async def clean(self, cluster_name: str, hub_id: str, before_removal: BeforeRemoval) -> Cleaned:
        """Remove what our hub made on a member; what others made stays."""
        others = await others_in(self.member, cluster_name)
        places = plan_removals(
            cluster_name, is_shared=bool(others), as_administrator=self.is_administrator
        )
        found = [(place, await self.member.find(place)) for place in places]
        present = [(place, held) for place, held in found if held and not is_being_deleted(held)]
        ours = [(place, held) for place, held in present if is_of_hub(held, hub_id)]
        foreign = tuple(str(place) for place, held in present if not is_of_hub(held, hub_id))
        await before_removal()
        removed = [await self._remove(place, held) for place, held in ours]
        return Cleaned(tuple(removed), foreign)

    async def _remove(self, place: Place, present: Object) -> str:
        # One that is gone, or replaced by another, was removed by somebody else just now.
        with suppress(NotFound, Conflict):
            await self.member.delete(place, DeleteOptions(uid_of(present)))
        return f"{place} (uid {uid_of(present)})"
