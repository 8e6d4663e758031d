"""`resume` put together: a person lets the deletions on a member go on."""

from dataclasses import dataclass

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis.clusters import conditions_of
from clusterspace.client.resources import Client
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.execution.deletion_budget import (
    APPROVED_UNTIL,
    is_paused,
    resumed_condition,
)
from clusterspace.fleet.membership import names
from clusterspace.kube.conditions import set_condition
from clusterspace.kube.objects import annotations_of, metadata_of, with_metadata, with_value
from clusterspace.roots.clients import open_client


@dataclass(frozen=True, slots=True)
class Resumed:
    """Whether there was a pause, and how many Works may be withdrawn now."""

    was_paused: bool
    waiting: int


async def resume_deletions(name: str, hub: ConnectionSettings) -> Resumed:
    """End the pause of a member; what waits to be deleted at this moment is approved."""
    async with open_client(hub) as hub_client:
        return await resume(hub_client, name, SystemClock())


async def resume(hub: Client, name: str, clock: Clock) -> Resumed:
    """End the pause: first what waits is approved, by its time, then the condition says so.

    The time is the hub's own, of the last Work that waits: whoever resumes may have a clock that
    is wrong, and must not approve of deletions that nobody has asked for yet.
    """
    place = names.cluster_place(name)
    cluster = await hub.get(place)
    works = await hub.list_objects(names.works_place(name))
    moments = [metadata_of(each)["deletionTimestamp"] for each in works if is_being_deleted(each)]
    if not is_paused(cluster):
        return Resumed(was_paused=False, waiting=len(moments))
    if moments:
        approved = {**annotations_of(cluster), APPROVED_UNTIL: max(moments)}
        cluster = await commit(hub, place, cluster, with_metadata(cluster, annotations=approved))
    conditions = set_condition(conditions_of(cluster), resumed_condition(), clock.now()).conditions
    await commit(hub, place, cluster, with_value(cluster, conditions, "status", "conditions"))
    return Resumed(was_paused=True, waiting=len(moments))
