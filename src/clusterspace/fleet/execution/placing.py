"""One manifest of a Work, put on the member: decided, paced, applied, told."""

from dataclasses import dataclass, replace
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.confinement import why_not_ordered
from clusterspace.apis.works import APPLIED
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    Malformed,
    MethodNotAllowed,
    NotFound,
    NotServed,
    RequestEntityTooLarge,
)
from clusterspace.fleet.execution.apply import Action, Applied, Update, apply, plan_update
from clusterspace.fleet.execution.observe import conflict_text, drift_text, shape_of
from clusterspace.fleet.execution.pace import RepairPace
from clusterspace.fleet.execution.report import Finding
from clusterspace.fleet.execution.sightings import Sightings
from clusterspace.fleet.execution.takeover import is_ours, subject_text
from clusterspace.fleet.execution.telling import Teller
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import GroupVersionResource

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")

CALM_SECONDS: Final = 300.0
"""When to look again at what the member tells us of by itself; in case it does not."""

_REFUSALS: Final = (
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotServed,
    RequestEntityTooLarge,
)
"""What a member says about a manifest; all else is about the member, and passes.

An internal error is often about the manifest: its webhook is not there, its size is too much.
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of a manifest, and what to do about it later."""

    finding: Finding
    retry_seconds: float = 0.0
    awaited: Place | None = None
    """What has to go, or to come, before the manifest can be put there."""
    refusal: ApiError | None = None
    """Why the member would not have it: to be tried again, later and later."""


@dataclass(frozen=True, slots=True)
class _Order:
    """One manifest of a Work, where it belongs, and what was last seen there."""

    work: Object
    manifest: Object
    ordinal: int
    place: Place
    live: Object | None

    @property
    def key(self) -> tuple[str, int]:
        return name_of(self.work), self.ordinal

    @property
    def generation(self) -> int:
        return int(metadata_of(self.work).get("generation") or 0)


@dataclass(frozen=True, slots=True)
class _Settled:
    """Which order was carried out, and what the object looked like then."""

    generation: int
    shape: int


@dataclass(frozen=True, slots=True)
class _Drift:
    """What somebody on the member did to an object of ours; an update of None: it is gone."""

    update: Update | None
    text: str


class Placer:
    """Puts manifests on one member, and remembers which of them are as they should be."""

    def __init__(self, member: Client, sightings: Sightings, teller: Teller, clock: Clock) -> None:
        self._member = member
        self._sightings = sightings
        self._cluster = sightings.cluster
        self._teller = teller
        self._pace = RepairPace(clock)
        self._settled: dict[tuple[str, int], _Settled] = {}

    def forget(self, work_name: str) -> None:
        """Forget a Work that is gone."""
        for key in [each for each in self._settled if each[0] == work_name]:
            del self._settled[key]
            self._pace.forget(key)

    async def place(self, work: Object, manifest: Object, ordinal: int) -> Placed:
        """Bring the member to one manifest of a Work."""
        try:
            place = await self._sightings.place_of(manifest)
            info = await self._sightings.info_of(manifest)
            why = why_not_ordered(work, manifest, is_namespaced=info.namespaced)
            if why:
                # Not touched either way: what such a Work placed before stays, and is told of.
                found = await self.observe(work, manifest)
                return Placed(replace(found, problem=f"{subject_text(manifest)} is refused: {why}"))
            live = await self._look(work, place)
            return await self._carry_out(_Order(work, manifest, ordinal, place, live))
        except _REFUSALS as refusal:
            if isinstance(refusal, NotServed):
                self._sightings.forget_kinds()
            problem = f"{subject_text(manifest)} was refused: {refusal.message}"
            return Placed(Finding(manifest, problem=problem), refusal=refusal)

    async def observe(self, work: Object, manifest: Object) -> Finding:
        """Look at an object without touching it."""
        try:
            place = await self._sightings.place_of(manifest)
        except (NotServed, Malformed):
            return Finding(manifest)
        live = await self._look(work, place)
        is_seen = live is not None and is_ours(manifest, live)
        return Finding(manifest, live=live if is_seen else None)

    async def _look(self, work: Object, place: Place) -> Object | None:
        """Return the object as far as it is known; asked for only when it may well be there."""
        seen = self._sightings.look(place)
        if seen is not None:
            return seen
        conditions = find_at(work, "status", "conditions")
        if find_condition(conditions, APPLIED) is None:
            return None  # never tried before
        await self._sightings.wait_listed(place.resource)
        return self._sightings.look(place) or await self._member.find(place)

    async def _carry_out(self, order: _Order) -> Placed:
        if self._is_as_it_should_be(order):
            return Placed(Finding(order.manifest, live=order.live))
        drift = self._drift(order)
        if drift is not None:
            wait = self._pace.wait_seconds(order.key)
            if wait > 0:
                return Placed(Finding(order.manifest, live=order.live), retry_seconds=wait)
        try:
            applied = await apply(self._member, order.place, order.manifest, order.live)
        except NotFound:
            return self._without_namespace(order)
        if not applied.is_in_force:
            return self._in_the_way(order, applied)
        self._sightings.note_written(order.place, applied.live)
        self._settled[order.key] = _Settled(order.generation, shape_of(applied.live))
        is_recreated = drift is not None and drift.update is None
        if drift is not None and applied.action in (Action.UPDATED, Action.CREATED):
            self._teller.tell_drift(order.work, order.manifest, drift.text)
        return Placed(Finding(order.manifest, live=applied.live, is_recreated=is_recreated))

    def _is_as_it_should_be(self, order: _Order) -> bool:
        settled = self._settled.get(order.key)
        if settled is None or order.live is None:
            return False
        return settled == _Settled(order.generation, shape_of(order.live))

    def _drift(self, order: _Order) -> _Drift | None:
        """Return what happened to an object behind our back.

        Once an order is carried out, whatever is different was done by somebody on the member.
        """
        settled = self._settled.get(order.key)
        if settled is None or settled.generation != order.generation:
            return None
        if order.live is None:
            return _Drift(None, "the whole object (deleted in the cluster)")
        update = plan_update(order.manifest, order.live)
        if update is None or not is_ours(order.manifest, order.live):
            return None
        return _Drift(update, drift_text(update, order.live))

    def _in_the_way(self, order: _Order, applied: Applied) -> Placed:
        """Say what is in the way of a manifest."""
        self._settled.pop(order.key, None)
        if applied.action is Action.WAITS:
            subject = subject_text(order.manifest)
            problem = f"{subject} is being deleted in the cluster {self._cluster}"
        else:
            update = plan_update(order.manifest, applied.live)
            problem = conflict_text(order.manifest, applied.live, self._cluster, update)
        return _awaiting(order, order.place, problem)

    def _without_namespace(self, order: _Order) -> Placed:
        namespace = namespace_of(order.manifest)
        problem = (
            f"{subject_text(order.manifest)} cannot be created: namespace {namespace}"
            f" does not exist in the cluster {self._cluster}"
        )
        return _awaiting(order, Place(NAMESPACES, name=namespace), problem)


def _awaiting(order: _Order, awaited: Place, problem: str) -> Placed:
    return Placed(
        Finding(order.manifest, problem=problem), retry_seconds=CALM_SECONDS, awaited=awaited
    )
