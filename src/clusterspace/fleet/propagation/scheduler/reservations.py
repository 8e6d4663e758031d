"""Room that was given away and that no cluster has reported yet.

A cluster says how much is free every few seconds, and what was placed since is not in it. Fifteen
workloads that are placed within one such time would all find the same cluster the emptiest:

    reported free ──minus what was placed since──> what the next one is placed by

What was placed is taken off until the report has shrunk by as much, or for a minute at most: by
then it is counted, or it came to nothing. Pods of components are made by an operator on the member,
which may have to start first; those have five. A cluster that is not heard of counts nothing: what
was placed there is taken off for as long as its last report is what is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.estimates import Claim, Estimate, bounded, read_claim
from clusterspace.apis.works import clusters_of, template_of
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.scheduler.demands import components_of
from clusterspace.fleet.propagation.scheduler.filters import (
    PODS,
    Candidate,
    KnownEstimate,
    Room,
)
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, Quantity

RESERVED_SECONDS: Final = 60.0
COMPONENTS_SECONDS: Final = 300.0
"""As long as Karmada takes room off for anything that is not healthy yet."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    request: Request
    replicas: int
    claim: Claim
    until: float


class _Reduced(KnownEstimate):
    """What a cluster estimates, without what was placed since; worked out if somebody asks."""

    def __init__(
        self, known: KnownEstimate, placed: Sequence[_Reservation], before: "_Reduced | None"
    ) -> None:
        super().__init__(known.written)
        self._known = known
        self._placed = placed
        # The last one that was worked out; not a chain of all that nobody has asked.
        if before is not None and before._left is None:
            before = before._before
        self._before = before
        self._left: Estimate | None = None

    def read(self) -> Estimate | None:
        """Return what is left of the estimate; None when there is none."""
        if self._left is None and (left := self._known.read()) is not None:
            placed, before = self._placed, self._before
            # Most often one more was placed, and the rest is known; else there is a new report.
            if (
                before is not None
                and before._left is not None
                and before._known is self._known
                and len(before._placed) <= len(placed)
                and all(map(is_, before._placed, placed))
            ):
                left, placed = before._left, placed[len(before._placed) :]
            for each in placed:
                # Every one splits rooms. A cluster may claim to have any number of nodes, and what
                # was placed before a restart is counted all at once.
                left = bounded(left.without(each.claim, each.replicas))
            self._left = left
        self._before = None
        return self._left


class Reservations:
    """What the scheduler has placed on each cluster, and not seen in its reports."""

    # No method awaits: a decision and what it takes are one step of the event loop, so that two
    # workers never give away the same room.

    def __init__(self, clock: Clock, seconds: float = RESERVED_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._taken: dict[str, list[_Reservation]] = {}
        """By cluster, the oldest first."""
        self._free: dict[str, int] = {}
        """How many pods were reported free before the oldest that is left."""
        self._reduced: dict[str, _Reduced] = {}

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(
        self,
        request: Request,
        more: Mapping[str, int],
        claim: Claim,
        candidates: Mapping[str, Candidate],
    ) -> None:
        """Reserve room for so many replicas more on each cluster, instead of what it had before."""
        self.release(request)
        self._add(request, more, claim, candidates)

    def _add(
        self,
        request: Request,
        more: Mapping[str, int],
        claim: Claim,
        candidates: Mapping[str, Candidate],
        seconds: float = 0.0,
    ) -> None:
        until = self._clock.monotonic() + max(seconds, self._seconds)
        for name, replicas in more.items():
            if replicas > 0 and name in candidates:
                self._free.setdefault(name, _free_pods(candidates[name].room))
                made = _Reservation(request, replicas, claim, until)
                self._taken.setdefault(name, []).append(made)

    def reserve(
        self,
        request: Request,
        binding: Object,
        targets: Mapping[str, int],
        candidates: Mapping[str, Candidate],
    ) -> None:
        """Reserve what a binding is to have on each cluster besides what it has there."""
        placed = {each.name: each.replicas for each in clusters_of(binding)}
        more = {name: count - placed.get(name, 0) for name, count in targets.items()}
        added = targets.keys() - placed.keys()
        if components := components_of(binding) if added else ():
            self.release(request)
            for claim, replicas in components:
                more = dict.fromkeys(sorted(added), replicas)
                self._add(request, more, claim, candidates, COMPONENTS_SECONDS)
        elif any(count > 0 for count in more.values()):
            requirements = find_at(binding, "spec", "replicaRequirements")
            claim = read_claim(requirements, template_of(binding).namespace)
            self.take(request, more, claim, candidates)

    def inherit(
        self, request: Request, binding: Object, candidates: Mapping[str, Candidate]
    ) -> None:
        """Reserve what a binding is to have on each cluster, and the cluster has not reported."""
        reports: list[Object] = find_at(binding, "status", "aggregatedStatus") or []
        running = {
            str(each.get("clusterName")): int(find_at(each, "status", "replicas") or 0)
            for each in reports
        }
        placed = {each.name: each.replicas for each in clusters_of(binding)}
        more = {name: count - running.get(name, 0) for name, count in placed.items()}
        if components := components_of(binding):
            for claim, replicas in components:
                unseen = dict.fromkeys(sorted(placed.keys() - running.keys()), replicas)
                self._add(request, unseen, claim, candidates, COMPONENTS_SECONDS)
        elif any(count > 0 for count in more.values()):
            requirements = find_at(binding, "spec", "replicaRequirements")
            claim = read_claim(requirements, template_of(binding).namespace)
            self.take(request, more, claim, candidates)

    def release(self, request: Request) -> None:
        """Give back what was reserved for a binding."""
        for name in list(self._taken):
            self._keep(name, [each for each in self._taken[name] if each.request != request])

    def apply(
        self, candidates: Mapping[str, Candidate], request: Request
    ) -> Mapping[str, Candidate]:
        """Return clusters with the room that is left when others have taken theirs."""
        if not self._taken:
            return candidates
        now, left = self._clock.monotonic(), dict(candidates)
        for name in list(self._taken):
            if name not in candidates:
                self._keep(name, [])
                continue
            room = candidates[name].room
            # A report that nobody renews shows nothing of what was placed, however long ago.
            outstanding = [
                each for each in self._taken[name] if each.until > now or room.stale_since
            ]
            # The report has shrunk by as much as the oldest took: then it is in the report.
            while outstanding and self._free[name] - _free_pods(room) >= outstanding[0].replicas:
                self._free[name] -= outstanding.pop(0).replicas
            self._keep(name, outstanding)
            free = dict(room.free)
            others = [each for each in outstanding if each.request != request]
            for each in others:
                _subtract(free, each)
            estimate = room.estimate
            if estimate is not None:
                reduced = _Reduced(estimate, others, self._reduced.get(name))
                # One that leaves out the asker's own is of no use to the next.
                if len(others) == len(outstanding):
                    self._reduced[name] = reduced
                estimate = reduced
            room = replace(room, free=free, estimate=estimate)
            left[name] = replace(candidates[name], room=room)
        return left

    def _keep(self, name: str, reservations: list[_Reservation]) -> None:
        if reservations:
            self._taken[name] = reservations
        else:
            self._taken.pop(name, None)
            self._free.pop(name, None)
            self._reduced.pop(name, None)


def _free_pods(room: Room) -> int:
    return room.free.get(PODS, ZERO).nanos // 10**9


def _subtract(free: dict[str, Quantity], reservation: _Reservation) -> None:
    wanted = {PODS: Quantity(10**9), **reservation.claim.each}
    for resource, amount in wanted.items():
        if resource in free:
            free[resource] = free[resource] - amount * reservation.replicas
