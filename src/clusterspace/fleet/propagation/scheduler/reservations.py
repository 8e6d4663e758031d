"""Room that was given away and that no cluster has reported yet.

A cluster says how much is free every few seconds, and what was placed since is not in it. Fifteen
workloads that are placed within one such time would all find the same cluster the emptiest:

    reported free ──minus what was placed since──> what the next one is placed by

What was placed is taken off until the report has shrunk by as much, or for a minute at most: by
then it is counted, or it came to nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.works import clusters_of
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.scheduler.demands import Amounts, read_amounts
from clusterspace.fleet.propagation.scheduler.filters import PODS, Candidate, Room
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, Quantity

RESERVED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Reservation:
    request: Request
    replicas: int
    each: Amounts
    until: float


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

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(
        self,
        request: Request,
        more: Mapping[str, int],
        each: Amounts,
        candidates: Mapping[str, Candidate],
    ) -> None:
        """Reserve room for so many replicas more on each cluster, instead of what it had before."""
        self.release(request)
        until = self._clock.monotonic() + self._seconds
        for name, replicas in more.items():
            if replicas > 0 and name in candidates:
                self._free.setdefault(name, _free_pods(candidates[name].room))
                made = _Reservation(request, replicas, each, until)
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
        if any(count > 0 for count in more.values()):
            needs = find_at(binding, "spec", "replicaRequirements", "resourceRequest")
            self.take(request, more, read_amounts(needs), candidates)

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
        if any(count > 0 for count in more.values()):
            needs = find_at(binding, "spec", "replicaRequirements", "resourceRequest")
            self.take(request, more, read_amounts(needs), candidates)

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
            outstanding = [each for each in self._taken[name] if each.until > now]
            # The report has shrunk by as much as the oldest took: then it is in the report.
            while outstanding and self._free[name] - _free_pods(room) >= outstanding[0].replicas:
                self._free[name] -= outstanding.pop(0).replicas
            self._keep(name, outstanding)
            free = dict(room.free)
            for each in outstanding:
                if each.request != request:
                    _subtract(free, each)
            left[name] = replace(candidates[name], room=Room(free, room.nodes))
        return left

    def _keep(self, name: str, reservations: list[_Reservation]) -> None:
        if reservations:
            self._taken[name] = reservations
        else:
            self._taken.pop(name, None)
            self._free.pop(name, None)


def _free_pods(room: Room) -> int:
    return room.free.get(PODS, ZERO).nanos // 10**9


def _subtract(free: dict[str, Quantity], reservation: _Reservation) -> None:
    wanted = {PODS: Quantity(10**9), **reservation.each}
    for resource, amount in wanted.items():
        if resource in free:
            free[resource] = free[resource] - amount * reservation.replicas
