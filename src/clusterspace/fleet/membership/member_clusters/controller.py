"""Every MemberCluster, as it is meant to be: invited, heard, enlisted, let go.

    namespace ──> Role ──> binding ──> InternalMemberCluster
    our agent says it is in ──> Cluster, lease, rights on these and on Works
    KubeFleet's agent does  ──> Cluster, whose status is written for it; no right beyond its own

What somebody changed is put back. What somebody else made under one of these names is not taken
over, unless it is in the member's own namespace, where everything is ours.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    DELETIONS_PAUSED,
    execution_namespace,
    id_of,
)
from clusterspace.apis.member_clusters import (
    FINALIZER,
    HEARTBEAT,
    INTERNAL_MEMBER_CLUSTERS,
    JOIN,
    JOINED,
    MEMBER_CLUSTERS,
    NAME_LABEL,
    cluster_id_of,
    conditions_of,
    has_kubefleet_agent,
    heartbeat_of,
    is_owned_by,
    is_registered_agent,
    member_namespace,
    whose_agent,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import AlreadyExists, CannotJoin, CannotLeave, Invalid
from clusterspace.fleet.membership.leases import lease_object
from clusterspace.fleet.membership.manifests import (
    cluster_path,
    lease_path,
    namespace,
    namespace_path,
)
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.leaving import FORCE_SECONDS, MemberLeave
from clusterspace.fleet.membership.member_clusters.manifests import mirrored, restored
from clusterspace.fleet.membership.member_clusters.status import (
    JOINED_REASON,
    Heartbeats,
    Pulse,
    cluster_status,
    generation_of,
    has_joined,
    next_status,
    ready_condition,
    seconds_to_silence,
    with_conditions,
)
from clusterspace.fleet.membership.status import ready_status, record_transition
from clusterspace.kube.conditions import FALSE, TRUE, find_condition
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    is_being_deleted,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
    with_finalizer,
    with_metadata,
    with_value,
)
from clusterspace.telemetry import fleet_metrics

_REQUEUE_SECONDS: Final = 2.0

_CREATED: Final = "Created"
_CHANGED: Final = {"Namespace": "Patched", "InternalMemberCluster": "SpecUpdated"}
"""KubeFleet's words for it; everything else is Updated."""


@dataclass(frozen=True, slots=True)
class MemberClusterSettings:
    """How MemberClusters are reconciled."""

    force_seconds: float = FORCE_SECONDS
    """How long the agent of a leaving member may take."""
    requeue_seconds: float = _REQUEUE_SECONDS
    """How soon to look again at what stands in somebody's way."""


class MemberClusterController(Reconciler):
    """Gives every member what it needs on the hub, says how it is, and lets it go."""

    name = "member-clusters"
    longest_retry_seconds = 30.0  # how late silence may be noticed after trouble of our own

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        settings: MemberClusterSettings | None = None,
    ) -> None:
        self._hub = hub
        self._member_clusters = caches.informer(MEMBER_CLUSTERS)
        self._internals = caches.informer(INTERNAL_MEMBER_CLUSTERS)
        self._clusters = caches.informer(CLUSTERS)
        self._events = events
        self._clock = clock
        self._settings = settings or MemberClusterSettings()
        # By our own clock, and lost with the process: everybody has the whole time anew then.
        self._heartbeats = Heartbeats()

    def watches(self) -> Iterable[Watch]:
        """Return MemberClusters and Clusters, but for echoes of our own writes, and all reports.

        Of a Cluster's status the pause of its deletions counts, which is told of here too.
        """
        yield Watch(self._member_clusters, when=more_than_status_changed)
        yield Watch(self._internals, to=member_of)
        yield Watch(self._clusters, when=_says_something_new)

    async def reconcile(self, request: Request) -> Result:
        """Give a member what it needs and say how it is, or let it go."""
        path = manifests.member_cluster_path(request.name)
        current = await self._hub.find(path)
        if current is None:
            self._heartbeats.forget(request.name)
            return Done()
        if is_being_deleted(current):
            return await self._let_go(current)

        # Its finalizer before the first thing is made for it: it cannot go without a leave then.
        labels = {**labels_of(current), NAME_LABEL: request.name}
        claimed = with_finalizer(with_metadata(current, labels=labels), FINALIZER)
        member_cluster = await commit(self._hub, path, current, claimed)

        # Read before the invitation is made: an agent is heard only in what was there already. What
        # it reports while we are here is an event, and brings us back.
        internal = await self._hub.find(manifests.internal_path(request.name))
        provider = Provider(self._hub, member_cluster, self._events)
        try:
            await provider.invite()
        except CannotJoin as obstacle:
            condition = ready_condition(generation_of(member_cluster), obstacle.why)
            status: Object = member_cluster.get("status") or {}
            self._events.record(member_cluster, condition.reason, obstacle.why, is_warning=True)
            after = with_conditions(status, (condition,), self._clock.now())
            await commit(self._hub, path, member_cluster, {**member_cluster, "status": after})
            return RequeueAfter(self._settings.requeue_seconds)

        pulse, is_enlisted, refusal = Pulse(), True, ""
        if internal is not None:
            pulse = self._heartbeats.see(internal, self._clock.monotonic())
            try:
                is_enlisted = await provider.enlist(internal, self._clock)
            except CannotJoin as obstacle:
                is_enlisted, refusal = False, obstacle.why
        cluster = self._clusters.cache.find(request.name)
        now = self._clock.now()
        status = next_status(member_cluster, internal, pulse, now, refusal, cluster=cluster)
        after = await commit(self._hub, path, member_cluster, {**member_cluster, "status": status})
        self._record_changes(member_cluster, after)
        if not is_enlisted:
            return RequeueAfter(self._settings.requeue_seconds)
        silent_in = seconds_to_silence(pulse, member_cluster)
        return Done() if silent_in is None else RequeueAfter(silent_in)

    async def _let_go(self, member_cluster: Object) -> Result:
        if FINALIZER not in finalizers_of(member_cluster):
            return Done()
        leave = MemberLeave(
            self._hub,
            member_cluster,
            self._events,
            self._clock,
            force_seconds=self._settings.force_seconds,
        )
        try:
            await leave.step()
        except CannotLeave as waiting:
            self._events.record(member_cluster, "MemberClusterLeaving", waiting.why)
            return RequeueAfter(self._settings.requeue_seconds)
        return Done()

    def _record_changes(self, before: Object, after: Object) -> None:
        if _changed_to(before, after, JOINED, TRUE):
            self._events.record(after, JOINED_REASON, "the member has joined")
            fleet_metrics.member_joined()
        if _changed_to(before, after, HEARTBEAT, FALSE):
            lost = find_condition(conditions_of(after), HEARTBEAT) or {}
            reason, message = str(lost.get("reason")), str(lost.get("message"))
            self._events.record(after, reason, message, is_warning=True)
        if _changed_to(before, after, DELETIONS_PAUSED, TRUE):
            paused = find_condition(conditions_of(after), DELETIONS_PAUSED) or {}
            message = str(paused.get("message"))
            self._events.record(after, DELETIONS_PAUSED, message, is_warning=True)


def _says_something_new(update: Update) -> bool:
    before, after = update.decode_before(), update.decode_after()
    pauses = [find_condition(conditions_of(e or {}), DELETIONS_PAUSED) for e in (before, after)]
    return pauses[0] != pauses[1] or more_than_status_changed(update)


def _changed_to(before: Object, after: Object, condition_type: str, status: str) -> bool:
    old = find_condition(conditions_of(before), condition_type) or {}
    new = find_condition(conditions_of(after), condition_type) or {}
    return new.get("status") == status != old.get("status")


def member_of(update: Update) -> Iterable[Request]:
    """Map an InternalMemberCluster to its MemberCluster, which has the same name."""
    return (Request(request_for(update.key).name),)


@dataclass(frozen=True, slots=True)
class Provision:
    """One object a member is to have, and where."""

    path: ResourcePath
    desired: Object

    @property
    def kind(self) -> str:
        """What it is."""
        return str(self.desired["kind"])


def invitation(member_cluster: Object) -> tuple[Provision, ...]:
    """Return the objects a member needs before its agent can join, in the order to make them."""
    name = name_of(member_cluster)
    inside = member_namespace(name)
    return (
        Provision(manifests.member_namespace_path(name), manifests.namespace(member_cluster)),
        Provision(manifests.role_path(name, inside), manifests.member_role(member_cluster)),
        Provision(
            manifests.binding_path(name, inside), manifests.role_binding(member_cluster, inside)
        ),
        Provision(manifests.internal_path(name), manifests.internal(member_cluster, JOIN)),
    )


def rights_of_ours(member_cluster: Object) -> tuple[Provision, ...]:
    """Return what our own agent may do beyond the invitation, whose Works are not there yet."""
    name = name_of(member_cluster)
    return (
        Provision(
            manifests.role_path(name, CLUSTER_NAMESPACE), manifests.lease_role(member_cluster)
        ),
        Provision(
            manifests.binding_path(name, CLUSTER_NAMESPACE),
            manifests.role_binding(member_cluster, CLUSTER_NAMESPACE),
        ),
        Provision(manifests.cluster_role_path(name), manifests.cluster_role(member_cluster)),
        Provision(
            manifests.cluster_binding_path(name), manifests.cluster_role_binding(member_cluster)
        ),
    )


class Provider:
    """Makes what one member is to have on the hub."""

    def __init__(self, hub: Client, member_cluster: Object, events: EventRecorder) -> None:
        self._hub = hub
        self._member_cluster = member_cluster
        self._name = name_of(member_cluster)
        self._events = events

    async def invite(self) -> None:
        """Make or put back all of the invitation; CannotJoin when something stands in the way."""
        shared = namespace_path(CLUSTER_NAMESPACE)
        if await self._hub.find(shared) is None:
            with suppress(AlreadyExists):
                await self._hub.create(shared.collection, namespace(CLUSTER_NAMESPACE))
        for provision in invitation(self._member_cluster):
            await self._provide(provision)

    async def enlist(self, internal: Object, clock: Clock) -> bool:
        """Make the Cluster of a member whose agent was heard, and keep it as it should be.

        A Cluster is made when the agent has said that it is in and who its cluster is, so that the
        same cluster under two names is refused before anything is placed there. Returns whether
        all is there that the agent needs; CannotJoin when it may not be.
        """
        path, cluster_id = cluster_path(self._name), cluster_id_of(internal)
        cluster = await self._hub.find(path)
        # Whose agent it is decides who carries out Works, and is settled when the Cluster is made:
        # two agents of two kinds would fight over what is placed. The identity of a registration is
        # ours whatever it has reported so far.
        agent = "" if is_registered_agent(self._member_cluster) else whose_agent(internal)
        try:
            if cluster is None:
                if not has_joined(internal) or agent is None:
                    return True  # nothing is needed yet
                cluster = await self._create_cluster(path, cluster_id, agent)
            if not is_owned_by(cluster, self._member_cluster):
                why = "a Cluster of this name joined by another door, and has to leave first"
                raise CannotJoin(self._name, why)
            if is_being_deleted(cluster):
                why = "its Cluster was deleted: it is made anew once it is gone"
                raise CannotJoin(self._name, why)
            desired = mirrored(cluster, self._member_cluster)
            if cluster_id and not id_of(cluster):
                desired = with_value(desired, cluster_id, "spec", "id")
            cluster = await commit(self._hub, path, cluster, desired)
        except Invalid as error:
            raise CannotJoin(self._name, error.message) from error

        if has_kubefleet_agent(cluster):
            if agent == "":
                why = "its Cluster was made for KubeFleet's agent: let it leave, and join it anew"
                raise CannotJoin(self._name, why)
            # Once for each heartbeat: after a restart an old one says nothing of how it is now.
            if heartbeat_of(internal) != heartbeat_of(self._member_cluster) or not ready_status(
                cluster
            ):
                status = cluster_status(cluster, internal, clock.now())
                after = await commit(self._hub, path, cluster, {**cluster, "status": status})
                record_transition(self._events, cluster, after)
            return True

        for provision in rights_of_ours(self._member_cluster):
            await self._provide(provision)

        # The agent may renew the lease, and may not create any.
        path_of_lease = lease_path(self._name)
        if await self._hub.find(path_of_lease) is None:
            with suppress(AlreadyExists):
                lease = lease_object(cluster, clock.now())
                await self._hub.create(path_of_lease.collection, lease)

        # Every Cluster gets the namespace of its Works from the cluster controller: until it is
        # there, rights in it have to wait.
        inside = execution_namespace(self._name)
        if await self._hub.find(manifests.works_namespace_path(self._name)) is None:
            return False
        role = manifests.role_path(self._name, inside)
        await self._provide(Provision(role, manifests.works_role(self._member_cluster)))
        binding = manifests.binding_path(self._name, inside)
        bound = manifests.role_binding(self._member_cluster, inside)
        await self._provide(Provision(binding, bound))
        return True

    async def _create_cluster(self, path: ResourcePath, cluster_id: str, agent: str) -> Object:
        desired = manifests.cluster(self._member_cluster, cluster_id, agent)
        try:
            return await self._hub.create(path.collection, mirrored(desired, self._member_cluster))
        except AlreadyExists:
            return await self._hub.get(path)

    async def _provide(self, provision: Provision) -> None:
        """Make an object, or put it back as it is to be; CannotJoin when it is not ours."""
        path, desired = provision.path, provision.desired
        present = await self._hub.find(path)
        if present is not None:
            if is_being_deleted(present):
                raise CannotJoin(self._name, f"{path} is still going away")
            is_inside = path.namespace == member_namespace(self._name)
            if not is_inside and not is_owned_by(present, self._member_cluster):
                why = f"{path} is there already, and was not made for this MemberCluster"
                raise CannotJoin(self._name, why)
            if "roleRef" not in desired or desired["roleRef"] == present.get("roleRef"):
                stored = await commit(self._hub, path, present, restored(present, desired))
                if resource_version_of(stored) != resource_version_of(present):
                    changed = _CHANGED.get(provision.kind, "Updated")
                    self._record(provision, changed, "put back as it was")
                return
            # A binding cannot be turned to another role. A crash between the two leaves none, which
            # gives nobody rights; it is made when the MemberCluster is reconciled after a start.
            await self._hub.delete(path, DeleteOptions(uid_of(present)))
        try:
            await self._hub.create(path.collection, desired)
        except AlreadyExists as error:
            raise CannotJoin(self._name, f"{path} was made just now") from error
        self._record(provision, _CREATED, "made")

    def _record(self, provision: Provision, reason: str, verb: str) -> None:
        message = f"{verb}: {provision.path}"
        self._events.record(self._member_cluster, provision.kind + reason, message)
