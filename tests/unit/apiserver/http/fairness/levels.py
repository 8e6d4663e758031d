"""A priority level whose clock a test turns by hand."""

from collections.abc import Callable
from heapq import heappop, heappush

from clusterspace.apiserver.http.fairness.fair_queues import (
    ONE_SEAT,
    SEATS_BESIDE_OTHERS,
    FairQueues,
    Flow,
    Queuing,
    Tally,
    Ticket,
    Width,
    deal,
)


class Time:
    """A clock with callbacks, and a pace that lets everything begin at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._flows = set[int]()
        self.shared_until = 0.0

    def monotonic(self) -> float:
        return self.now

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._later, (self.now + seconds, self._count, act))

    def pass_(self, seconds: float) -> None:
        until = self.now + seconds
        while self._later and self._later[0][0] <= until:
            self.now, _, act = heappop(self._later)
            act()
        self.now = until

    def arrive(self, flow: object, now: float) -> None:
        self._flows.add(id(flow))
        if len(self._flows) > 1:
            self.shared_until = now + 1

    def take(self, now: float) -> bool:
        return True

    def wait(self, level: FairQueues) -> None:
        raise AssertionError("everything begins at once")


class Stage:
    """One level, and flows by name."""

    def __init__(
        self,
        seats: int,
        *,
        queues: int = 128,
        hand: int = 6,
        length: int = 50,
        most_per_flow: int | None = None,
        beside_others: int = SEATS_BESIDE_OTHERS,
        share: int = 1,
    ) -> None:
        self.time = Time()
        self.queuing = Queuing(queues, hand, length)
        self.level = FairQueues(
            "test",
            self.time,
            self.time.monotonic,
            self.time.later,
            most_per_flow=most_per_flow,
            beside_others=beside_others,
        )
        self.level.configure(self.queuing)
        self.level.set_limit(seats)
        self._share = share
        self._flows: dict[str, Flow] = {}
        self.tally = Tally("test", "schema")

    def flow(self, name: str) -> Flow:
        if name not in self._flows:
            hand = deal(name, self.queuing.queues, self.queuing.hand_size)
            self._flows[name] = Flow(self.tally, name, hand, self._share)
        return self._flows[name]

    def ask(self, name: str, width: Width = ONE_SEAT) -> Ticket | None:
        return self.level.start(self.flow(name), width)

    def serve(self, clients: dict[str, tuple[int, float, Width]], seconds: float) -> dict[str, int]:
        """Serve clients that always have so many requests under way, each taking so long."""
        served = dict.fromkeys(clients, 0)

        def ask(name: str) -> None:
            _, takes, width = clients[name]
            ticket = self.level.start(self.flow(name), width)
            assert ticket is not None

            def begun() -> None:
                self.time.later(takes, over)

            def over() -> None:
                served[name] += 1
                self.level.finish(ticket)
                ask(name)

            if ticket.has_begun:
                begun()
            else:
                ticket.on_begin = begun

        for name, (at_once, _, _) in clients.items():
            for _ in range(at_once):
                ask(name)
        self.time.pass_(seconds)
        return served
