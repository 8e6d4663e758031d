"""The Works there are, our own writes included; and how Works are written and removed.

What the hub refuses is returned as a Failure, one cluster at a time, and not raised.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.works import binding_key_of, cluster_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.informers import HubCaches, IndexKeys, OwnWrites
from clusterspace.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
)
from clusterspace.fleet.propagation.works.rendering import Change, plan_farewell
from clusterspace.kube.objects import Object, uid_of

OVERRIDE_FAILED: Final = "ApplyOverridePolicyFailed"
STAYS_HOME: Final = "PropagationForbidden"
SYNC_FAILED: Final = "SyncWorkFailed"
"""Why a cluster lacks its Work, as conditions and events say it."""

_REFUSALS: Final = (BadRequest, Forbidden, Invalid, RequestEntityTooLarge)
"""What trying again will not change before somebody changes something."""


BY_BINDING: Final = "binding"


def by_binding(work: Object) -> Iterable[str]:
    """Index Works by the key of the binding they are from."""
    key = binding_key_of(work)
    return (key,) if key else ()


WORK_INDEXES: Final[dict[str, IndexKeys]] = {BY_BINDING: by_binding}


class KnownWorks(OwnWrites):
    """All Works of the hub, our own latest writes included; made by `caches.shared`."""

    def __init__(self, caches: HubCaches) -> None:
        super().__init__(caches.informer(WORKS, indexes=WORK_INDEXES))

    def of_binding(self, binding_key: str) -> dict[str, Object]:
        """Return the Works of a binding by cluster, in the order of their clusters."""
        works = {cluster_of(work): work for work in self.objects_at(BY_BINDING, binding_key)}
        return dict(sorted(works.items()))


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

    def __init__(self, hub: Client, works: KnownWorks) -> None:
        self._hub = hub
        self._works = works

    async def write(self, changes: Iterable[Change]) -> Written:
        """Write all changes, in order; one that is refused does not hold up the others.

        A cluster that is new has no execution space yet: NotFound, after all others were written.
        """
        clusters: list[str] = []
        failures: list[Failure] = []
        # A cluster gets its namespace from another controller, a moment after it joined. Raised at
        # once it would keep all clusters behind it waiting; swallowed, nobody would try again.
        missing: NotFound | None = None
        for change in changes:
            cluster = cluster_of(change.after)
            try:
                if change.before is None:
                    await self._create(change.after)
                else:
                    await self._update(change, change.before)
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
        return await self._hub.find(ResourcePath(WORKS, execution_namespace(cluster), name))

    async def remove(self, work: Object, *, is_preserved: bool) -> None:
        """Delete exactly this Work, having it say first whether its cluster keeps the object.

        Two writes, in this order: an executor that sees the Work leaving reads from it whether to
        delete the object. Killed between them, the Work says the right thing and is deleted later.
        """
        with suppress(NotFound):
            await self._update(plan_farewell(work, is_preserved=is_preserved), work)
            await self._hub.delete(resource_path_of(WORKS, work), DeleteOptions(uid=uid_of(work)))

    async def _create(self, work: Object) -> None:
        place = resource_path_of(WORKS, work)
        try:
            written = await self._hub.create(place.collection, work)
        except AlreadyExists as error:
            # Names of Works do not tell API groups apart, so two objects may claim the same one.
            existing = await self._hub.find(place)
            if existing is not None and binding_key_of(existing) != binding_key_of(work):
                owner = binding_key_of(existing) or "somebody else"
                raise Forbidden(f"{place} is of {owner}, and one cannot be two") from error
            # It is ours, of before a restart, and the cache has not seen it: plan again with it.
            if existing is not None:
                self._works.note(existing)
            raise Conflict(f"{place} is there already") from error
        self._works.note(written)

    async def _update(self, change: Change, existing: Object) -> None:
        if not change.is_needed:
            return
        place = resource_path_of(WORKS, existing)
        try:
            written = await commit(self._hub, place, existing, change.after)
        except NotFound:
            # Deleted under us. What we noted of it would hide that from the next attempt, which
            # has to create it anew.
            self._works.forget(place.key)
            raise
        self._works.note(written)
