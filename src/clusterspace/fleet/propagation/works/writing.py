"""Writing and removing Works, one at a time; what the hub refuses is told, not raised."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.works import binding_key_of, cluster_of
from clusterspace.client.places import Place, place_of
from clusterspace.client.resources import Client
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
)
from clusterspace.fleet.propagation.works.known_works import KnownWorks
from clusterspace.fleet.propagation.works.plans import Change, plan_farewell
from clusterspace.kube.objects import Object, namespace_of, uid_of

SYNC_FAILED: Final = "SyncWorkFailed"

_REFUSALS: Final = (BadRequest, Forbidden, Invalid, RequestEntityTooLarge)
"""What trying again will not change before somebody changes something."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cluster does not have the Work it should have."""

    cluster: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Written:
    """The clusters whose Works were written, and those whose were refused."""

    clusters: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


class WorkWriter:
    """Writes Works to the hub, and keeps what is known of them up to date."""

    def __init__(self, hub_client: Client, works: KnownWorks) -> None:
        self._hub_client = hub_client
        self._works = works

    async def write(self, changes: Iterable[Change]) -> Written:
        """Write all changes, in order; one that is refused does not hold up the others.

        A cluster that is new has no execution space yet: NotFound, after all others were written.
        """
        clusters: list[str] = []
        failures: list[Failure] = []
        missing: NotFound | None = None
        for change in changes:
            cluster = cluster_of(change.after)
            try:
                await self._write(change)
            except _REFUSALS as error:
                failures.append(Failure(cluster, SYNC_FAILED, error.message))
            except NotFound as error:
                missing = error
            else:
                clusters.append(cluster)
        if missing is not None:
            raise missing
        return Written(tuple(clusters), tuple(failures))

    async def find(self, cluster: str, name: str) -> Object | None:
        """Return a Work as the hub has it now, or None."""
        return await self._hub_client.find(Place(WORKS, execution_namespace(cluster), name))

    async def remove(self, work: Object, *, is_preserved: bool) -> None:
        """Delete exactly this Work, having it say first whether its cluster keeps the object."""
        place = place_of(WORKS, work)
        with suppress(NotFound):
            await self._update(plan_farewell(work, is_preserved=is_preserved), work)
            await self._hub_client.delete(place, DeleteOptions(uid=uid_of(work)))

    async def _write(self, change: Change) -> None:
        if change.before is None:
            await self._create(change.after)
        else:
            await self._update(change, change.before)

    async def _create(self, work: Object) -> None:
        try:
            written = await self._hub_client.create(Place(WORKS, namespace_of(work)), work)
        except AlreadyExists as error:
            await self._settle(work, error)
        else:
            self._works.note(written)

    async def _update(self, change: Change, present: Object) -> None:
        if not change.is_needed:
            return
        place = place_of(WORKS, present)
        try:
            written = await commit(self._hub_client, place, present, change.after)
        except NotFound:
            self._works.forget(place)
            raise
        self._works.note(written)

    async def _settle(self, work: Object, error: AlreadyExists) -> None:
        """Find out whose the Work is that is there; ours is looked at again, with care.

        Names of Works do not tell API groups apart, so two objects may want the same one.
        """
        place = place_of(WORKS, work)
        present = await self._hub_client.find(place)
        if present is not None and binding_key_of(present) != binding_key_of(work):
            owner = binding_key_of(present) or "somebody else"
            raise Forbidden(f"{place} is of {owner}, and one cannot be two") from error
        if present is not None:
            self._works.note(present)
        raise Conflict(f"{place} is there already") from error
