"""Room that was given away and that no cluster has reported yet.

A cluster says how much is free every few seconds, and what was placed since is not in it. Fifteen
workloads that are placed within one such time would all find the same cluster the emptiest:

    reported free ──minus what was placed since──> what the next one is placed by

What was placed is taken off until the report has shrunk by as much of everything it asks for, or
for a minute at most: by then it is counted, or it came to nothing. Pods of components are made by
an operator on the member, which may have to start first; those have five, and what the report
shrinks by is somebody else's who waits for less. A cluster that is not heard of counts nothing:
what was placed there is taken off for as long as its last report is what is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import attrgetter, is_
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.estimates import Claim, Estimate, bounded, read_claim
from clusterspace.apis.works import HEALTHY, clusters_of, template_of
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
from clusterspace.kube.times import parse_time

RESERVED_SECONDS: Final = 60.0
COMPONENTS_SECONDS: Final = 300.0
"""As long as Karmada takes room off for anything that is not healthy yet."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    request: Request
    replicas: int
    claim: Claim
    until: float
    amounts: Mapping[str, Quantity]
    """What all replicas take."""


class _Reduced(KnownEstimate):
    """What a cluster estimates, without what was placed since; worked out if somebody asks."""

    def __init__(
        self,
        known: KnownEstimate,
        placed: Sequence[_Reservation],
        before: "_Reduced | None",
        asker: Request | None = None,
    ) -> None:
        super().__init__(known.written)
        self._known = known
        self._asker = asker
        """Whose own are left out, if it has some."""
        # More may be placed, behind these, before anybody asks.
        self._placed, self._number = placed, len(placed)
        # The last one that was worked out; not a chain of all that nobody has asked.
        if before is not None and before._left is None:
            before = before._before
        self._before = before
        self._left: Estimate | None = None

    def read(self) -> Estimate | None:
        """Return what is left of the estimate; None when there is none."""
        if self._left is None and (left := self._known.read()) is not None:
            placed, before = self._placed[: self._number], self._before
            if self._asker is not None:
                placed = [each for each in placed if each.request != self._asker]
            # Most often one more was placed, and the rest is known; else there is a new report.
            if (
                before is not None
                and before._left is not None
                and before._known is self._known
                and before._number <= len(placed)
                and all(map(is_, before._placed[: before._number], placed))
            ):
                left, placed = before._left, placed[before._number :]
            for each in placed:
                # Every one splits rooms. A cluster may claim to have any number of nodes, and what
                # was placed before a restart is counted all at once.
                left = bounded(left.without(each.claim, each.replicas))
            self._left = left
        self._before = None
        return self._left


@dataclass(slots=True)
class _Taken:
    """What was placed on one cluster, and not seen in its reports."""

    # Thousands may be placed between two reports, and each is decided by what the others leave:
    # what that is must not be counted anew every time.

    before: dict[str, Quantity]
    """What was reported free before any that is left."""
    placed: list[_Reservation] = field(default_factory=list[_Reservation])
    """The oldest first; it is added to, and another list once something is over."""
    together: dict[str, Quantity] = field(default_factory=dict[str, Quantity])
    """What all of them take."""
    by_request: dict[Request, list[_Reservation]] = field(
        default_factory=dict[Request, list[_Reservation]]
    )
    first: _Reservation | None = None
    """The one that is over before the others."""
    reduced: _Reduced | None = None

    def add(self, reservation: _Reservation) -> None:
        """Take room for one more."""
        self.placed.append(reservation)
        self.by_request.setdefault(reservation.request, []).append(reservation)
        if self.first is None or reservation.until < self.first.until:
            self.first = reservation
        for resource, amount in reservation.amounts.items():
            self.together[resource] = self.together.get(resource, ZERO) + amount

    def release(self, request: Request) -> None:
        """Give back what one binding had."""
        self._give_back(self.by_request.get(request, ()))

    def see(self, room: Room, now: float) -> None:
        """Give back what is over, and what a report shows."""
        free = room.free
        # A report that nobody renews shows nothing of what was placed, however long ago.
        now = float("-inf") if room.stale_since else now
        if self.first is None or (self.first.until > now and not self._shows(free, self.first)):
            return
        gone: list[_Reservation] = []
        for each in sorted(self.placed, key=attrgetter("until")):
            if each.until > now:
                if not self._shows(free, each):
                    break
                _subtract(self.before, each.amounts)
            gone.append(each)
        self._give_back(gone)

    def taken_by_others(self, request: Request) -> Mapping[str, Quantity]:
        """Return what all take but one binding."""
        together = dict(self.together)
        for each in self.by_request.get(request, ()):
            _subtract(together, each.amounts)
        return together

    def _shows(self, free: Mapping[str, Quantity], reservation: _Reservation) -> bool:
        # The report has shrunk by as much as it takes: then it is in the report. Pods that ask for
        # less are others'.
        return all(
            self.before.get(resource, ZERO).nanos - free.get(resource, ZERO).nanos >= amount.nanos
            for resource, amount in reservation.amounts.items()
            if resource == PODS or resource in self.before
        )

    def _give_back(self, gone: Sequence[_Reservation]) -> None:
        if not gone:
            return
        for each in gone:
            _subtract(self.together, each.amounts)
        known = set(map(id, gone))
        for request in {each.request for each in gone}:
            left = [each for each in self.by_request.pop(request) if id(each) not in known]
            if left:
                self.by_request[request] = left
        self.placed = [each for each in self.placed if id(each) not in known]
        if id(self.first) in known:
            self.first = min(self.placed, key=attrgetter("until"), default=None)


class Reservations:
    """What the scheduler has placed on each cluster, and not seen in its reports."""

    # No method awaits: a decision and what it takes are one step of the event loop, so that two
    # workers never give away the same room.

    def __init__(self, clock: Clock, seconds: float = RESERVED_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._taken: dict[str, _Taken] = {}
        """By cluster; only where there is something."""

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
        seconds: float | None = None,
    ) -> None:
        # Those of one second are over together: giving back looks at all there are.
        until = ceil(self._clock.monotonic() + (self._seconds if seconds is None else seconds))
        for name, replicas in more.items():
            if replicas > 0 and name in candidates:
                wanted = {PODS: Quantity(10**9), **claim.each}
                amounts = {resource: each * replicas for resource, each in wanted.items()}
                taken = self._taken.get(name)
                if taken is None:
                    taken = self._taken[name] = _Taken(dict(candidates[name].room.free))
                taken.add(_Reservation(request, replicas, claim, until, amounts))

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
            # That they were applied says nothing of their pods: an operator makes those, which has
            # its time from when they were placed.
            reporting = {
                str(each.get("clusterName"))
                for each in reports
                if each.get("status") or each.get("health") == HEALTHY
            }
            seconds = COMPONENTS_SECONDS
            if last := find_at(binding, "status", "lastScheduledTime"):
                elapsed = self._clock.now() - parse_time(str(last))
                seconds = min(seconds - elapsed, seconds)
            if seconds > 0:
                for claim, replicas in components:
                    unseen = dict.fromkeys(sorted(placed.keys() - reporting), replicas)
                    self._add(request, unseen, claim, candidates, seconds)
        elif any(count > 0 for count in more.values()):
            requirements = find_at(binding, "spec", "replicaRequirements")
            claim = read_claim(requirements, template_of(binding).namespace)
            self.take(request, more, claim, candidates)

    def release(self, request: Request) -> None:
        """Give back what was reserved for a binding."""
        for name, taken in list(self._taken.items()):
            taken.release(request)
            if not taken.placed:
                del self._taken[name]

    def apply(
        self, candidates: Mapping[str, Candidate], request: Request
    ) -> Mapping[str, Candidate]:
        """Return clusters with the room that is left when others have taken theirs."""
        if not self._taken:
            return candidates
        now, left = self._clock.monotonic(), dict(candidates)
        for name, taken in list(self._taken.items()):
            if name in candidates:
                taken.see(candidates[name].room, now)
            if name not in candidates or not taken.placed:
                del self._taken[name]
                continue
            room = candidates[name].room
            free = dict(room.free)
            _subtract(free, taken.taken_by_others(request))
            estimate = room.estimate
            if estimate is not None:
                asker = request if request in taken.by_request else None
                estimate = _Reduced(estimate, taken.placed, taken.reduced, asker)
                # One that leaves out the asker's own is of no use to the next.
                if asker is None:
                    taken.reduced = estimate
            room = replace(room, free=free, estimate=estimate)
            left[name] = replace(candidates[name], room=room)
        return left


def _subtract(free: dict[str, Quantity], amounts: Mapping[str, Quantity]) -> None:
    for resource, amount in amounts.items():
        if resource in free:
            free[resource] = free[resource] - amount
