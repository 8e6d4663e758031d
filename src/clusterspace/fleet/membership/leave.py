"""Withdraw works, clean or keep, revoke, forget; a dead cluster never blocks.

    Works withdrawn ──> member cleaned ──> credentials, lease, execution namespace ──> Cluster gone

The Cluster's finalizer holds the order. Every step looks at what is there, so that it can be
repeated by whoever comes next: the controllers, `clusterspace unjoin`, or both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias, cast

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    FINALIZER,
    KEEP_ON_LEAVE,
    WORK_FINALIZER,
    execution_namespace,
    is_pull,
)
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import (
    ensure_finalizer,
    is_being_deleted,
    release,
    without_finalizer,
)
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    CannotLeave,
    ClusterError,
    ClusterspaceError,
    Conflict,
    Forbidden,
    NotFound,
    Unauthorized,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.cleaning import BeforeRemoval, own_places, shared_places
from clusterspace.fleet.membership.pull_leave import agent_places
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)

CLEANED: Final = "clusterspace.io/member-cleaned"
"""Annotation of a leaving Cluster: how far the cleaning of its member is.

Cleaning ends the hub's own rights. Whoever goes on after it was begun and is refused therefore
knows that it was done.
"""

_BEGUN: Final = "begun"
_DONE: Final = "true"

FORCED_SECONDS: Final = 4.0
"""How long a forced leave tries to clean a member that may be dead; the whole takes under ten."""

_MOST_NAMED: Final = 5
_LOOK_AGAIN_SECONDS: Final = 0.5

Clean: TypeAlias = Callable[[str, BeforeRemoval], Awaitable[object]]
"""Cleans the member of what the hub with this ID made there."""


class Leave:
    """One cluster on its way out of the fleet."""

    def __init__(self, hub: Client, cluster_name: str, clean: Clean) -> None:
        self._hub = hub
        self._name = cluster_name
        self._clean = clean
        self._place = names.cluster_place(cluster_name)

    async def begin(self) -> None:
        """Say that the cluster is leaving: from now on nothing new is placed there."""
        cluster = await self._hub.get(self._place)
        if not is_being_deleted(cluster):
            held = await ensure_finalizer(self._hub, self._place, cluster, FINALIZER)
            await _delete(self._hub, self._place, held)

    async def finish(self, clock: Clock, wait_seconds: float) -> None:
        """Step until the cluster is gone; CannotLeave when that takes too long."""
        until = clock.monotonic() + wait_seconds
        while await self._hub.find(self._place) is not None:
            try:
                await self.step()
            except (CannotLeave, Conflict, NotFound) as obstacle:
                # A conflict or something gone means that the controllers took the step first.
                if clock.monotonic() >= until:
                    raise self._late(obstacle, wait_seconds) from obstacle
                await clock.sleep(_LOOK_AGAIN_SECONDS)

    def _late(self, obstacle: CannotLeave | ApiError, waited: float) -> CannotLeave:
        why = obstacle.why if isinstance(obstacle, CannotLeave) else obstacle.message
        return CannotLeave(self._name, f"{why}; waited {waited:g}s, and --force would not wait")

    async def step(self) -> None:
        """Go as far as possible; CannotLeave says what it waits for, returning means it is gone."""
        await self._withdraw_works()
        await self._clean_member()
        await self._forget_on_hub()
        gone = await self._remove_execution_namespace()
        if not gone:
            namespace = execution_namespace(self._name)
            raise CannotLeave(self._name, f"namespace {namespace} on the hub is going away")
        await self._release()

    async def force(self) -> list[str]:
        """Let the cluster go whatever stands in the way; return what could not be cleaned."""
        # Asked first: once its Works are gone, the controllers may let the Cluster go any moment.
        on_member = await self._places_on_member()
        left = await self._abandon_works()
        left += await self._try_to_clean(on_member)
        await self._forget_on_hub()
        await self._remove_execution_namespace()
        if left:
            await self._write_down(left)
        await self._release()
        return left

    async def _withdraw_works(self) -> None:
        place = names.works_place(self._name)
        for work in await self._hub.list_objects(place):
            if not is_being_deleted(work):
                await _delete(self._hub, place.named(name_of(work)), work)
        remaining = await self._hub.list_objects(place)
        if remaining:
            why = f"{_named(remaining)} not withdrawn from the member yet"
            raise CannotLeave(self._name, why)

    async def _clean_member(self) -> None:
        cluster = await self._hub.get(self._place)
        progress = annotations_of(cluster).get(CLEANED)
        if progress == _DONE or is_pull(cluster):
            # The agent of a Pull cluster was set up from inside, and is taken down from there.
            return
        try:
            await self._clean(await self._hub_id(), self._mark_begun)
        except (Unauthorized, Forbidden) as error:
            if progress != _BEGUN:
                raise self._uncleaned(error) from error
        except (ApiError, ClusterError, UnusableKubeconfig) as error:
            raise self._uncleaned(error) from error
        await self._mark(_DONE)

    def _uncleaned(self, error: ClusterspaceError) -> CannotLeave:
        return CannotLeave(self._name, f"the member cannot be cleaned: {error}")

    async def _mark_begun(self) -> None:
        await self._mark(_BEGUN)

    async def _mark(self, progress: str) -> None:
        cluster = await self._hub.get(self._place)
        marks = {**annotations_of(cluster), CLEANED: progress}
        await commit(self._hub, self._place, cluster, with_metadata(cluster, annotations=marks))

    async def _hub_id(self) -> str:
        return uid_of(await self._hub.get(names.namespace_place("kube-system")))

    async def _forget_on_hub(self) -> None:
        secrets = (self._name, names.impersonator_secret(self._name))
        places = (*map(names.secret_place, secrets), names.lease_place(self._name))
        for place in places:
            present = await self._hub.find(place)
            if present is not None:
                await _delete(self._hub, place, present)

    async def _remove_execution_namespace(self) -> bool:
        place = names.namespace_place(execution_namespace(self._name))
        present = await self._hub.find(place)
        if present is None:
            return True
        if not is_being_deleted(present):
            await _delete(self._hub, place, present)
        return await self._hub.find(place) is None

    async def _release(self) -> None:
        cluster = await self._hub.find(self._place)
        if cluster is not None and is_being_deleted(cluster):
            await release(self._hub, self._place, cluster, FINALIZER)

    async def _abandon_works(self) -> list[str]:
        """Let go of Works that nobody withdraws; what they placed stays where it is."""
        place = names.works_place(self._name)
        works = await self._hub.list_objects(place)
        for work in works:
            target = place.named(name_of(work))
            freed = without_finalizer(work, WORK_FINALIZER)
            try:
                stored = await commit(self._hub, target, work, freed)
                await _delete(self._hub, target, stored)
            except NotFound:
                continue
        return [f"placed: {each}" for each in placed_objects(works)]

    async def _try_to_clean(self, on_member: tuple[Place, ...]) -> list[str]:
        try:
            async with asyncio.timeout(FORCED_SECONDS):
                await self._clean(await self._hub_id(), self._mark_begun)
        except (ClusterspaceError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            left = [f"on the member: {each}" for each in on_member]
            return [f"the member could not be cleaned: {why}", *left]
        return []

    async def _places_on_member(self) -> tuple[Place, ...]:
        """Return what a membership of this kind makes on a member."""
        cluster = await self._hub.find(self._place)
        if cluster is not None and is_pull(cluster):
            return agent_places()
        return (*own_places(self._name), *shared_places())

    async def _write_down(self, left: list[str]) -> None:
        place = names.left_behind_place(self._name)
        body: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": place.name, "namespace": place.namespace},
            "data": {"left-behind": "\n".join(left) + "\n"},
        }
        try:
            await self._hub.create(place.collection, body)
        except AlreadyExists:
            present = await self._hub.get(place)
            await commit(self._hub, place, present, {**present, "data": body["data"]})


def placed_objects(works: Iterable[Object]) -> list[str]:
    """Return what Works hold on the member, as `Kind namespace/name`."""
    manifests = [
        each
        for work in works
        for each in cast("list[Object]", find_at(work, "spec", "workload", "manifests") or [])
    ]
    return sorted(
        f"{each.get('kind')} {'/'.join(filter(None, (namespace_of(each), name_of(each))))}"
        for each in manifests
    )


async def keep_resources(hub: Client, cluster_name: str) -> int:
    """Let what Works placed stay on the member when they are withdrawn; return how many Works.

    The Cluster says so first: Works may be written anew while it leaves.
    """
    cluster_place = names.cluster_place(cluster_name)
    cluster = await hub.get(cluster_place)
    marks = {**annotations_of(cluster), KEEP_ON_LEAVE: "true"}
    await commit(hub, cluster_place, cluster, with_metadata(cluster, annotations=marks))
    place = names.works_place(cluster_name)
    works = await hub.list_objects(place)
    for work in works:
        kept = with_value(work, True, "spec", "preserveResourcesOnDeletion")
        await commit(hub, place.named(name_of(work)), work, kept)
    return len(works)


async def _delete(owner: Client, place: Place, present: Object) -> None:
    try:
        await owner.delete(place, DeleteOptions(uid_of(present)))
    except (NotFound, Conflict):
        return  # gone, or replaced by another: not ours to remove


def _named(works: list[Object]) -> str:
    shown = ", ".join(sorted(name_of(each) for each in works)[:_MOST_NAMED])
    more = f" and {len(works) - _MOST_NAMED} more" if len(works) > _MOST_NAMED else ""
    if len(works) == 1:
        return f"Work {shown} is"
    return f"{len(works)} Works ({shown}{more}) are"
