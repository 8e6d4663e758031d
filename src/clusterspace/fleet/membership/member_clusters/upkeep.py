"""Every MemberCluster, kept as it is meant to be: invited, heard, enlisted, let go."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.member_clusters import (
    FINALIZER,
    HEARTBEAT,
    JOINED,
    NAME_LABEL,
    conditions_of,
)
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted, with_finalizer
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Done, Request, RequeueAfter, Result, request_for
from clusterspace.errors import CannotJoin, CannotLeave
from clusterspace.fleet.membership.member_clusters import places
from clusterspace.fleet.membership.member_clusters.enlisting import Enlistment
from clusterspace.fleet.membership.member_clusters.heartbeats import (
    Heartbeats,
    Pulse,
    seconds_to_silence,
)
from clusterspace.fleet.membership.member_clusters.inviting import Provider
from clusterspace.fleet.membership.member_clusters.leaving import FORCE_SECONDS, MemberLeave
from clusterspace.fleet.membership.member_clusters.reports import (
    JOINED_REASON,
    generation_of,
    next_status,
    ready_condition,
    with_conditions,
)
from clusterspace.kube.conditions import FALSE, TRUE, find_condition
from clusterspace.kube.objects import Object, labels_of, metadata_of, name_of, with_metadata
from clusterspace.telemetry import fleet_metrics

_LOOK_AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class MemberClusterSettings:
    """How MemberClusters are looked after."""

    force_seconds: float = FORCE_SECONDS
    """How long the agent of a leaving member may take."""
    look_again_seconds: float = _LOOK_AGAIN_SECONDS
    """How soon to look again at what stands in somebody's way."""


@dataclass(frozen=True, slots=True)
class _Enlisted:
    """How far a member's Cluster is."""

    is_whole: bool = True
    refusal: str = ""


class MemberClusterUpkeep:
    """Reconciles MemberClusters."""

    def __init__(
        self,
        hub: Client,
        events: EventRecorder,
        clock: Clock,
        settings: MemberClusterSettings | None = None,
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._settings = settings or MemberClusterSettings()
        self._heartbeats = Heartbeats()

    async def reconcile(self, request: Request) -> Result:
        """Give a member what it needs and say how it is, or let it go."""
        member_cluster = await self._hub.find(places.member_cluster_place(request.name))
        if member_cluster is None:
            self._heartbeats.forget(request.name)
            return Done()
        if is_being_deleted(member_cluster):
            return await self._let_go(member_cluster)
        held = await self._hold(member_cluster)
        internal = await self._hub.find(places.internal_place(request.name))
        provider = Provider(self._hub, held, self._events)
        try:
            await provider.invite()
        except CannotJoin as obstacle:
            return await self._not_ready(held, obstacle.why)
        return await self._hear(held, internal, provider)

    async def _let_go(self, member_cluster: Object) -> Result:
        if FINALIZER not in (metadata_of(member_cluster).get("finalizers") or ()):
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
            return RequeueAfter(self._settings.look_again_seconds)
        return Done()

    async def _hold(self, member_cluster: Object) -> Object:
        """Hold the MemberCluster and label it, before the first thing is made for it."""
        name = name_of(member_cluster)
        labelled = with_metadata(
            member_cluster, labels={**labels_of(member_cluster), NAME_LABEL: name}
        )
        held = with_finalizer(labelled, FINALIZER)
        return await commit(self._hub, places.member_cluster_place(name), member_cluster, held)

    async def _not_ready(self, member_cluster: Object, why: str) -> Result:
        condition = ready_condition(generation_of(member_cluster), why)
        held: Object = member_cluster.get("status") or {}
        status = with_conditions(held, (condition,), self._clock.now())
        self._events.record(member_cluster, condition.reason, why, is_warning=True)
        await self._write(member_cluster, status)
        return RequeueAfter(self._settings.look_again_seconds)

    async def _hear(
        self, member_cluster: Object, internal: Object | None, provider: Provider
    ) -> Result:
        """Say what the agent told; `internal` is None when it was made just now."""
        pulse, enlisted = Pulse(), _Enlisted()
        if internal is not None:
            pulse = self._heartbeats.see(internal, self._clock.monotonic())
            enlisted = await self._enlist(member_cluster, internal, provider)
        status = next_status(member_cluster, internal, pulse, self._clock.now(), enlisted.refusal)
        after = await self._write(member_cluster, status)
        self._tell_changes(member_cluster, after)
        if not enlisted.is_whole:
            return RequeueAfter(self._settings.look_again_seconds)
        silent_in = seconds_to_silence(pulse, member_cluster)
        return Done() if silent_in is None else RequeueAfter(silent_in)

    async def _enlist(
        self, member_cluster: Object, internal: Object, provider: Provider
    ) -> _Enlisted:
        try:
            enlistment = Enlistment(self._hub, member_cluster, provider)
            return _Enlisted(is_whole=await enlistment.enlist(internal, self._clock))
        except CannotJoin as obstacle:
            return _Enlisted(is_whole=False, refusal=obstacle.why)

    async def _write(self, member_cluster: Object, status: Object) -> Object:
        place = places.member_cluster_place(name_of(member_cluster))
        return await commit(self._hub, place, member_cluster, {**member_cluster, "status": status})

    def _tell_changes(self, before: Object, after: Object) -> None:
        if _changed_to(before, after, JOINED, TRUE):
            self._events.record(after, JOINED_REASON, "the member has joined")
            fleet_metrics.member_joined()
        if _changed_to(before, after, HEARTBEAT, FALSE):
            lost = find_condition(conditions_of(after), HEARTBEAT) or {}
            reason, message = str(lost.get("reason")), str(lost.get("message"))
            self._events.record(after, reason, message, is_warning=True)


def _changed_to(before: Object, after: Object, condition_type: str, status: str) -> bool:
    held = find_condition(conditions_of(before), condition_type) or {}
    found = find_condition(conditions_of(after), condition_type) or {}
    return found.get("status") == status != held.get("status")


def when_asked_anew(update: Update) -> Iterable[Request]:
    """Look when what a MemberCluster or its Cluster asks for changed; their statuses are echoes."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None or _asked(before) != _asked(after):
        yield request_for(update.key)


def for_its_member(update: Update) -> Iterable[Request]:
    """Look at the MemberCluster whose InternalMemberCluster changed."""
    yield Request(request_for(update.key).name)


_NOISE: Final = frozenset({"resourceVersion", "managedFields", "generation"})


def _asked(kube_object: Object) -> tuple[object, object]:
    metadata = {key: each for key, each in metadata_of(kube_object).items() if key not in _NOISE}
    return metadata, kube_object.get("spec")
