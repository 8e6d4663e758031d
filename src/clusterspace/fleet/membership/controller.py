"""What every Cluster gets from the hub: its finalizer, its execution namespace, its taints.

A taint keeps new placements away. NoSchedule never removes what is placed, and nothing here ever
sets NoExecute by itself. And at its end, the way out: a Cluster that is being deleted leaves, step
by step, and is held by its finalizer until all of it is done.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTERS,
    CORDON_TAINT,
    FINALIZER,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    execution_namespace,
    taints_of,
)
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit, ensure_finalizer
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import AlreadyExists, CannotLeave, Malformed
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import MemberClients
from clusterspace.fleet.membership.leave import BeforeRemoval, Cleaner, Leave
from clusterspace.fleet.membership.status import ready_status
from clusterspace.kube.conditions import TRUE, UNKNOWN
from clusterspace.kube.names import label_value_problems, qualified_name_problems
from clusterspace.kube.objects import (
    Object,
    is_being_deleted,
    name_of,
    uid_of,
    with_value,
    without_value,
)
from clusterspace.kube.times import format_time

NO_SCHEDULE: Final = "NoSchedule"
EFFECTS: Final = (NO_SCHEDULE, "PreferNoSchedule", "NoExecute")
_TAINT = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^:]*))?(?::(?P<effect>[A-Za-z]*))?")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint by its key and effect; a removal without an effect means every effect."""

    key: str
    effect: str
    value: str = ""

    def to_object(self) -> Object:
        """Return the taint as a Cluster holds it."""
        body = {"key": self.key, "value": self.value, "effect": self.effect}
        return {key: text for key, text in body.items() if text}

    def names(self, taint: Object) -> bool:
        """Whether this is the taint's key and effect."""
        return taint.get("key") == self.key and self.effect in ("", taint.get("effect"))


@dataclass(frozen=True, slots=True)
class TaintEdit:
    """Taints to set and taints to take away."""

    added: tuple[Taint, ...] = ()
    removed: tuple[Taint, ...] = ()


CORDON: Final = Taint(CORDON_TAINT, NO_SCHEDULE)
_NOT_READY: Final = Taint(NOT_READY_TAINT, NO_SCHEDULE)
_UNREACHABLE: Final = Taint(UNREACHABLE_TAINT, NO_SCHEDULE)


def with_taints(cluster: Object, taints: Iterable[Object]) -> Object:
    """Return the Cluster with these taints, and no others."""
    desired = list(taints)
    if not desired:
        return without_value(cluster, "spec", "taints")
    return with_value(cluster, desired, "spec", "taints")


def edited_taints(taints: Sequence[Object], edit: TaintEdit) -> list[Object]:
    """Return the taints after an edit; what is there with the same value stays as it is."""
    kept = [taint for taint in taints if not any(each.names(taint) for each in edit.removed)]
    for each in edit.added:
        present = next((taint for taint in kept if each.names(taint)), None)
        if present is None:
            kept = [*kept, each.to_object()]
        elif (present.get("value") or "") != each.value:
            kept = [each.to_object() if taint is present else taint for taint in kept]
    return kept


def health_taints(cluster: Object, now: float) -> list[Object]:
    """Return the taints a Cluster is to have by its Ready condition; others' taints stay."""
    status = ready_status(cluster)
    desired = None if status == TRUE else _UNREACHABLE if status == UNKNOWN else _NOT_READY
    others = tuple(each for each in (_NOT_READY, _UNREACHABLE) if each is not desired)
    kept = edited_taints(taints_of(cluster), TaintEdit(removed=others))
    if desired is None or any(desired.names(taint) for taint in kept):
        return kept
    return [*kept, {**desired.to_object(), "timeAdded": format_time(now)}]


def parse_edit(words: Iterable[str]) -> TaintEdit:
    """Read `key=value:Effect`, `key:Effect`, and with a minus at the end their removals."""
    added: list[Taint] = []
    removed: list[Taint] = []
    for word in words:
        is_removal = word.endswith("-")
        found = _TAINT.fullmatch(word.removesuffix("-"))
        if found is None:
            raise _unreadable(word, "write key=value:Effect, or key:Effect- to remove it")
        taint = Taint(found["key"], found["effect"] or "", found["value"] or "")
        problems = (*qualified_name_problems(taint.key), *label_value_problems(taint.value))
        if problems:
            raise _unreadable(word, problems[0])
        if taint.effect not in EFFECTS and not (is_removal and not taint.effect):
            raise _unreadable(word, f"the effect must be one of {', '.join(EFFECTS)}")
        (removed if is_removal else added).append(taint)
    return TaintEdit(tuple(added), tuple(removed))


def _unreadable(word: str, why: str) -> Malformed:
    return Malformed(f"{word!r} is no taint: {why}", place=word)


_log = structlog.get_logger(__name__)

_REQUEUE_SECONDS: Final = 2.0


class ClusterController(Reconciler):
    """Gives every Cluster its finalizer, its execution namespace and its taints; lets it leave."""

    name = "clusters"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        members: MemberClients,
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._clusters = caches.informer(CLUSTERS)
        self._events = events
        self._members = members
        self._clock = clock

    def watches(self) -> Iterable[Watch]:
        """Return Clusters."""
        yield Watch(self._clusters)

    async def reconcile(self, request: Request) -> Result:
        """Give a Cluster what it needs, or let it go."""
        path = manifests.cluster_path(request.name)
        # Read live: taints are written by the Ready condition that others write just now.
        cluster = await self._hub.find(path)
        if cluster is None:
            return Done()
        if is_being_deleted(cluster):
            try:
                with self._events.reporting_failure(cluster, "RemoveExecutionSpaceFailed"):
                    await self._leave(cluster)
            except CannotLeave as waiting:
                _log.debug("cluster is leaving", cluster=request.name, waits_for=waiting.why)
                self._events.record(cluster, "ClusterLeaving", waiting.why)
                return RequeueAfter(_REQUEUE_SECONDS)
            return Done()

        # Before the first thing is made for it: from now on it cannot go without a leave.
        cluster = await ensure_finalizer(self._hub, path, cluster, FINALIZER)
        with self._events.reporting_failure(cluster, "CreateExecutionSpaceFailed"):
            await self._ensure_execution_namespace(cluster)
        taints = health_taints(cluster, self._clock.now())
        if taints != list(taints_of(cluster)):
            with self._events.reporting_failure(cluster, "TaintClusterFailed"):
                await commit(self._hub, path, cluster, with_taints(cluster, taints))
            described = ", ".join(f"{each['key']}:{each['effect']}" for each in taints) or "none"
            self._events.record(cluster, "TaintClusterSucceed", f"taints are now: {described}")
        return Done()

    async def _ensure_execution_namespace(self, cluster: Object) -> None:
        name = execution_namespace(name_of(cluster))
        path = manifests.namespace_path(name)
        if await self._hub.find(path) is not None:
            return
        try:
            created = await self._hub.create(path.collection, manifests.namespace(name))
        except AlreadyExists:
            return
        # A command may have begun the leave, or carried it through, since we read the Cluster, and
        # removed the namespace before we made it anew: then nobody would ever remove this one. It
        # is empty, so it goes at once; a leave that is still to come finds it gone.
        current = await self._hub.find(manifests.cluster_path(name_of(cluster)))
        if current is None or is_being_deleted(current) or uid_of(current) != uid_of(cluster):
            await self._hub.delete(path, DeleteOptions(uid_of(created)))
            return
        message = f"created execution namespace {name}"
        self._events.record(cluster, "CreateExecutionSpaceSucceed", message)

    async def _leave(self, cluster: Object) -> None:
        """Take the next steps of a Cluster on its way out; CannotLeave says what it waits for."""
        name = name_of(cluster)

        async def clean(hub_id: str, before_removal: BeforeRemoval) -> object:
            cleaner = Cleaner(await self._members.reach(cluster), is_administrator=False)
            cleaned = await cleaner.clean(name, hub_id, before_removal)
            _log.info("member cleaned", cluster=name, removed=cleaned.removed, kept=cleaned.foreign)
            return cleaned

        await Leave(self._hub, name, clean).step()
        message = f"removed execution namespace {execution_namespace(name)}"
        self._events.record(cluster, "RemoveExecutionSpaceSucceed", message)
        await self._members.forget(name)
