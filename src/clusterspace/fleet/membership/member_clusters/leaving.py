"""How a MemberCluster that is being deleted leaves, in four steps.

    1. announce   a condition and an event on the MemberCluster list what will be removed or kept
    2. ask        the InternalMemberCluster gets state Leave, and the Cluster is deleted
    3. withdraw   the agent removes what was placed, releases its Works and reports that it left;
                  KubeFleet's removes nothing after it was asked, and is asked when all is withdrawn
    4. forget     rights, namespace and at last the MemberCluster itself are removed

Every step looks at what is there, so it can be repeated. An agent that does not report within the
time set is given up: the member keeps what it has, and that is written down on the hub.
"""

from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.member_clusters import (
    FINALIZER,
    JOINED,
    LEAVE,
    LEAVING,
    READY_TO_JOIN,
    conditions_of,
    find_agent_status,
    has_kubefleet_agent,
    is_forced_out,
    is_owned_by,
    is_registered_agent,
    keeps_resources,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit, release
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import CannotLeave, Conflict, NotFound
from clusterspace.fleet.membership.leave import (
    BeforeRemoval,
    Leave,
    keep_resources,
    placed_objects,
    unreported_objects,
)
from clusterspace.fleet.membership.manifests import cluster_path, left_behind_path, works_path
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.status import (
    LEFT_REASON,
    generation_of,
    has_left,
    joined_condition,
    left_text,
    ready_condition,
    relayed_status,
    with_conditions,
)
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    is_being_deleted,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.times import parse_time
from clusterspace.telemetry import fleet_metrics

FORCE_SECONDS: Final = 900.0
"""How long an agent may take to clean up before it is given up: KubeFleet's quarter of an hour."""

REMOVING: Final = "RemovingResources"
KEEPING: Final = "KeepingResources"
_MOST_NAMED: Final = 5


def leaving_condition(placed: list[str], *, keeps: bool, generation: int) -> Condition:
    """Return the Leaving condition, which lists the objects that will go or stay."""
    shown = ", ".join(placed[:_MOST_NAMED])
    more = f" and {len(placed) - _MOST_NAMED} more" if len(placed) > _MOST_NAMED else ""
    named = f": {shown}{more}" if placed else ""
    count = f"{len(placed)} placed objects" if len(placed) != 1 else "1 placed object"
    if keeps:
        return Condition(LEAVING, TRUE, KEEPING, f"{count} stay on the member{named}", generation)
    message = f"{count} will be removed from the member{named}"
    return Condition(LEAVING, TRUE, REMOVING, message, generation)


def is_overdue(member_cluster: Object, now: float, force_seconds: float) -> bool:
    """Whether an agent had its time; it runs from when the leave was said, not from the deletion.

    So controllers that were away do not begin by giving up a healthy agent.
    """
    said = find_condition(conditions_of(member_cluster), LEAVING)
    if said is None:
        return False
    if is_forced_out(member_cluster):
        return True
    return now - parse_time(str(said["lastTransitionTime"])) >= force_seconds


@dataclass(frozen=True, slots=True)
class _Found:
    """The objects of a member that are still on the hub."""

    namespace: Object | None
    internal: Object | None
    cluster: Object | None
    falls_silent: bool
    """Whether the hub no longer lets the agent in once the Cluster is gone."""

    @property
    def is_nothing(self) -> bool:
        """Whether all is gone."""
        return self.namespace is None and self.cluster is None

    @property
    def has_namespace(self) -> bool:
        """Whether the agent can still be told anything."""
        return self.namespace is not None and not is_being_deleted(self.namespace)

    @property
    def withdraws_first(self) -> bool:
        """Whether the agent carries out nothing any more once it is asked to leave.

        KubeFleet's lets go of all Works then, and leaves what they placed.
        """
        return self.cluster is not None and has_kubefleet_agent(self.cluster)

    @property
    def was_never_in(self) -> bool:
        """Whether no agent was ever heard and nothing was ever placed."""
        is_unheard = self.internal is None or find_agent_status(self.internal) is None
        return self.cluster is None and is_unheard

    @property
    def has_left(self) -> bool:
        """Whether the agent has cleaned up, and said so if it still can.

        The Cluster goes when all Works are withdrawn, so that much is known without it.
        """
        if self.cluster is not None:
            return False
        return self.falls_silent or self.internal is None or has_left(self.internal)


class MemberLeave:
    """One member on its way out."""

    def __init__(
        self,
        hub: Client,
        member_cluster: Object,
        events: EventRecorder,
        clock: Clock,
        *,
        force_seconds: float = FORCE_SECONDS,
    ) -> None:
        self._hub = hub
        self._member_cluster = member_cluster
        self._name = name_of(member_cluster)
        self._events = events
        self._clock = clock
        self._force_seconds = force_seconds

    async def step(self) -> None:
        """Go as far as possible; CannotLeave says what it waits for, returning means it is gone."""
        # Three ends are at work: this one; the cluster controller, which takes the same steps of
        # the Cluster's own leave; and the agent, which withdraws and says so. All they share is in
        # the API, so each looks first, and a step that somebody else took is not needed any more.
        found = await self._look()
        if found.is_nothing:
            for path in manifests.shared_rights(self._name):
                await self._remove(path)
            path = manifests.member_cluster_path(self._name)
            present = await self._hub.find(path)
            if present is not None and uid_of(present) == uid_of(self._member_cluster):
                await release(self._hub, path, present, FINALIZER)
            return
        # Said before anything is done, so that people can read what will go, and so that the time
        # an agent has runs from a moment that outlives us.
        await self._announce(found)
        if found.was_never_in:
            await self._forget(found)
            raise CannotLeave(self._name, "it never joined; what was made for it is going away")
        if found.has_namespace and not found.withdraws_first:
            desired = manifests.internal(self._member_cluster, LEAVE)
            path = manifests.internal_path(self._name)
            if found.internal is None:
                await self._hub.create(path.collection, desired)
            else:
                restored = manifests.restored(found.internal, desired)
                await commit(self._hub, path, found.internal, restored)
        obstacle = await self._withdraw(found.cluster)

        # Looked at anew: the step before may have been the last one that was missing.
        found = await self._look()
        if found.has_left:
            await self._record_left(found.internal)
            await self._forget(found)
            raise CannotLeave(self._name, "its namespace on the hub is going away")
        if is_overdue(self._member_cluster, self._clock.now(), self._force_seconds):
            await self._abandon(found.cluster)
            await self._forget(found)
            raise CannotLeave(self._name, "its agent is silent, and is left where it is")
        agent = find_condition(conditions_of(self._member_cluster), JOINED) or {}
        says = f" ({agent.get('message')})" if agent.get("status") not in (TRUE, FALSE) else ""
        raise CannotLeave(self._name, f"{obstacle or 'its agent has yet to say it left'}{says}")

    async def _look(self) -> _Found:
        namespace = await self._hub.find(manifests.member_namespace_path(self._name))
        cluster = await self._hub.find(cluster_path(self._name))
        return _Found(
            self._if_ours(namespace),
            await self._hub.find(manifests.internal_path(self._name)),
            self._if_ours(cluster),
            falls_silent=is_registered_agent(self._member_cluster),
        )

    def _if_ours(self, found: Object | None) -> Object | None:
        is_ours = found is not None and is_owned_by(found, self._member_cluster)
        return found if is_ours else None

    async def _announce(self, found: _Found) -> None:
        """Say what will happen, once, before anything does; then what the agent says of it."""
        conditions: list[Condition] = []
        generation = generation_of(self._member_cluster)
        if find_condition(conditions_of(self._member_cluster), LEAVING) is None:
            works = await self._hub.list_objects(works_path(self._name))
            keeps = keeps_resources(self._member_cluster)
            placed = sorted([*placed_objects(works), *unreported_objects(works)])
            leaving = leaving_condition(placed, keeps=keeps, generation=generation)
            self._events.record(self._member_cluster, "MemberClusterLeaving", leaving.message)
            conditions.append(leaving)
        if found.internal is not None and find_agent_status(found.internal) is not None:
            conditions.append(joined_condition(found.internal, generation))
        await self._write(found.internal, conditions)

    async def _write(self, internal: Object | None, conditions: list[Condition]) -> None:
        before = self._member_cluster
        relayed = relayed_status(before, internal) if internal else before.get("status") or {}
        status = with_conditions(relayed, conditions, self._clock.now())
        path = manifests.member_cluster_path(self._name)
        self._member_cluster = await commit(self._hub, path, before, {**before, "status": status})

    async def _withdraw(self, cluster: Object | None) -> str:
        """Let the Cluster go: nothing new is placed there; return what its leave waits for."""
        if cluster is None:
            return ""
        leave = Leave(self._hub, self._name, _leave_alone)
        if not is_being_deleted(cluster):
            if keeps_resources(self._member_cluster):
                await keep_resources(self._hub, self._name)
            await leave.begin()
        try:
            await leave.step()
        except CannotLeave as waiting:
            return waiting.why
        except (Conflict, NotFound):
            return "its Cluster is being let go"  # the controllers took the step first
        return ""

    async def _record_left(self, internal: Object | None) -> None:
        generation = generation_of(self._member_cluster)
        before = find_condition(conditions_of(self._member_cluster), READY_TO_JOIN) or {}
        said = left_text(keeps=keeps_resources(self._member_cluster))
        left = Condition(JOINED, FALSE, LEFT_REASON, said, generation)
        await self._write(internal, [left, ready_condition(generation, "the member has left")])
        if before.get("status") != FALSE:
            self._events.record(self._member_cluster, LEFT_REASON, "the member has left")
            fleet_metrics.member_left("left")

    async def _forget(self, found: _Found) -> None:
        """Take the agent's rights and its namespace away."""
        for path in manifests.shared_rights(self._name):
            await self._remove(path)
        # Finalizers go with them, so that nothing of a silent agent holds the namespace.
        for path in (
            manifests.fleet_works_path(self._name),
            manifests.internal_path(self._name).collection,
        ):
            for each in await self._hub.list_objects(path):
                if finalizers_of(each):
                    freed = with_metadata(each, finalizers=None)
                    await commit(self._hub, path.named(name_of(each)), each, freed)
        if found.has_namespace:
            await self._remove(manifests.member_namespace_path(self._name))

    async def _abandon(self, cluster: Object | None) -> None:
        """Take the Cluster out by force, and write down what stays on the member."""
        left: list[str] = []
        if cluster is not None:
            left = await Leave(self._hub, self._name, self._refuse_silent).force()
        path = left_behind_path(self._name)
        message = f"its agent is silent; {len(left)} things left behind are in configmap {path.key}"
        self._events.record(
            self._member_cluster, "MemberClusterForceLeft", message, is_warning=True
        )
        fleet_metrics.member_left("forced")

    async def _refuse_silent(self, _hub_id: str, _before_removal: BeforeRemoval) -> None:
        raise CannotLeave(self._name, "its agent did not clean up in the time it had")

    async def _remove(self, path: ResourcePath) -> None:
        present = await self._hub.find(path)
        if present is None or not is_owned_by(present, self._member_cluster):
            return
        try:
            await self._hub.delete(path, DeleteOptions(uid_of(present)))
        except (NotFound, Conflict):
            return  # gone, or somebody else's by now


async def _leave_alone(_hub_id: str, _before_removal: BeforeRemoval) -> None:
    """Leave the member alone: its agent cleans it, and its operator takes the agent down."""
