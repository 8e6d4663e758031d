"""One priority level: its seats, its queues, and which request is served next.

Fair queueing: each flow is promised the same part of what the level serves. A flow's `next_r` is
how many seat-seconds it had when its next request begins, and `r` how many the flow had that was
last served. Of the heads of all queues, the one that would end first is next:

    r = 40              next_r  head       would end at
    queue 3, of carl    41      10 seats   41 + 10 x 0.003
    queue 9, of jane    40      1 seat     40 + 1 x 0.003       <- next, although it came last

Kubernetes has `r` grow with time, by the seats that each queue could have had. Here it is turns of
the loop that are scarce, and seats are free while requests wait: what could have been says nothing
about what was, and `r` would run ahead of everybody until those who came first are always first.

A request is counted with a guess when it begins, and with what it took when it is over. A flow
that was idle begins at the present `r`, so that nobody saves up, and no request begins before it
came.

Where requests wait is the hand of their flow, some queues dealt by a hash of its name (shuffle
sharding). With 128 queues and hands of 6, whoever fills all of theirs shares them all with one flow
in 5 billion. Kubernetes gives each queue a part, so that a flow which fills its hand has six; here
it is the flow that has one, however many queues it waits in.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

GUESSED_SECONDS: Final = 0.003
"""How long a request is taken to be served, until it has been."""


class Width:
    """How many seats a request takes while it is served, and for a while afterwards."""

    __slots__ = ("final_seats", "final_seconds", "most", "seats", "work")

    def __init__(self, seats: int = 1, final_seats: int = 0, final_seconds: float = 0.0) -> None:
        self.seats = seats
        self.final_seats = final_seats
        self.final_seconds = final_seconds
        self.most = max(seats, final_seats)
        """The seats that must be free before it begins."""
        self.work = seats * GUESSED_SECONDS + final_seats * final_seconds
        """The seat-seconds it is taken to cost."""


ONE_SEAT: Final = Width()

SEATS_BESIDE_OTHERS: Final = 2
"""What of `most_per_flow` a flow has while others ask as well. Whatever one flow has under way may
become ready in the same turn of the loop, when a commit is over: then others wait for all of it."""


class Queuing(NamedTuple):
    """How requests wait in a level."""

    queues: int
    hand_size: int
    length_limit: int


class Pace(Protocol):
    """Decides how much begins at once, whatever seats are free."""

    shared_until: float
    """Until then more than one flow counts as asking, in whatever levels they are."""

    def arrive(self, flow: object, now: float) -> None:
        """Take note of whose request comes."""
        ...

    def take(self, now: float) -> bool:
        """Whether one more request may begin now; if so, it is counted."""
        ...

    def wait(self, level: "FairQueues") -> None:
        """Call the level's `begin_next` when one may."""
        ...


class Tally:
    """What is counted of the requests of one schema in one level, for the metrics."""

    __slots__ = (
        "dispatched",
        "executing",
        "executing_seats",
        "level",
        "rejected",
        "schema",
        "unaccommodated",
        "waiting",
        "waiting_seats",
    )

    def __init__(self, level: str = "", schema: str = "") -> None:
        self.level = level
        self.schema = schema
        self.dispatched = self.executing = self.executing_seats = 0
        self.waiting = self.waiting_seats = self.unaccommodated = 0
        self.rejected: dict[str, int] = {}


class Flow:
    """The requests that share a fate: of one schema and, by its method, one user or namespace."""

    __slots__ = (
        "distinguisher",
        "executing",
        "hand",
        "next_r",
        "seats",
        "serving",
        "share",
        "tally",
        "waiting",
    )

    def __init__(
        self,
        tally: Tally,
        distinguisher: str = "",
        hand: tuple[int, ...] = (0,),
        share: int = 1,
    ) -> None:
        self.tally = tally
        self.distinguisher = distinguisher
        self.hand = hand
        """The queues its requests may wait in."""
        self.share = share
        """It has one part in so many of the level's seats at most; all of them when that is 1."""
        self.seats = self.executing = self.waiting = 0
        self.serving = 0
        """Of its seats, those of requests that are under way, and not what they take afterwards."""
        self.next_r = 0.0


class Ticket:
    """One request in a level: waiting, then begun, then finished."""

    __slots__ = (
        "arrived",
        "arrived_r",
        "began",
        "description",
        "flow",
        "has_begun",
        "on_begin",
        "queue",
        "width",
    )

    def __init__(self, flow: Flow, width: Width, arrived: float, description: object) -> None:
        self.flow = flow
        self.width = width
        self.arrived = self.began = arrived
        self.arrived_r = 0.0
        self.queue: Queue | None = None
        self.has_begun = False
        self.on_begin: Callable[[], None] | None = None
        """Called when a request that had to wait begins."""
        self.description = description


class Queue:
    """One queue of a level."""

    __slots__ = ("executing", "index", "seats", "waiting", "work")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting: deque[Ticket] = deque()
        self.work = 0.0
        """Of those that wait, taken together."""
        self.executing: set[Ticket] = set()
        self.seats = 0

    @property
    def is_in_use(self) -> bool:
        """Whether anybody waits, is served or still has seats."""
        return bool(self.waiting or self.executing or self.seats)


def deal(name: str, queues: int, hand_size: int) -> tuple[int, ...]:
    """Return the queues of a flow: always the same for a name, and different ones for others."""
    deck, dealt = list(range(queues)), list[int]()
    entropy = int.from_bytes(hashlib.sha256(name.encode(errors="backslashreplace")).digest())
    for _ in range(min(hand_size, queues)):
        entropy, position = divmod(entropy, len(deck))
        dealt.append(deck.pop(position))
    return tuple(dealt)


class FairQueues:
    """The seats and queues of one level.

    Everything happens in one thread, and nothing here awaits: what is counted always fits what is
    in the queues. `later` calls back after some seconds.
    """

    def __init__(
        self,
        name: str,
        pace: Pace,
        monotonic: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        *,
        most_per_flow: int | None = None,
        beside_others: int = SEATS_BESIDE_OTHERS,
    ) -> None:
        self.name = name
        self._pace = pace
        self._monotonic = monotonic
        self._later = later
        self._most_per_flow = most_per_flow
        self._beside_others = beside_others
        self.is_exempt = False
        self.queuing: Queuing | None = None
        self.limit = 0
        self.weight = 1.0
        self.progress = 0.0
        self.on_demand: Callable[[int], None] | None = None
        """Told how many seats could be used, whenever that changes."""
        self.executing = self.seats_in_use = 0
        self.waiting = self.seats_waiting = 0
        self.dispatched = self.rejected = self.timed_out = self.cancelled = 0
        self.without_queue: set[Ticket] = set()
        """Begun requests of a level that has no queues."""
        self.queues: dict[int, Queue] = {}
        """Those that were ever used, by index."""
        self._nonempty: dict[Queue, None] = {}
        """Queues in which somebody waits, the one longest without a turn first."""
        self._enqueued = 0
        self.r = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits or is served."""
        return not self.waiting and not self.executing

    def configure(self, queuing: Queuing | None, *, is_exempt: bool = False) -> None:
        """Have so many queues, or none; those that are too many serve out who is in them."""
        self.is_exempt, self.queuing = is_exempt, queuing
        desired = 0 if queuing is None else queuing.queues
        for index in [each for each in self.queues if each >= desired]:
            if not self.queues[index].is_in_use:
                del self.queues[index]

    def set_limit(self, seats: int) -> None:
        """Have so many seats from now on; those that are taken are given back as requests end."""
        self.limit = seats
        self.begin_all()

    # -- a request ---------------------------------------------------------------------------------

    def start(self, flow: Flow, width: Width, description: object = None) -> Ticket | None:
        """Begin a request or let it wait; None when there is room for neither."""
        now = self._monotonic()
        self._pace.arrive(flow, now)
        ticket = Ticket(flow, width, now, description)
        if self.queuing is None:
            if not self.is_exempt and not self._has_seats(width.most):
                self._reject(flow, "concurrency-limit")
                return None
            self._begin(ticket, None, now)
            return ticket
        hand = flow.hand
        self._enqueued += 1
        offset = self._enqueued % len(hand)
        if not self.waiting and self._fits(ticket) and self._pace.take(now):
            # The way of nearly every request: nobody waits, so there is nobody to be unfair to.
            self._activate(flow)
            self._begin(ticket, self._queue(hand[offset]), now)
            return ticket
        queue = min(
            (self._queue(index) for index in (*hand[offset:], *hand[:offset])),
            key=_waiting_work,
        )
        if len(queue.waiting) >= self.queuing.length_limit:
            self._reject(flow, "queue-full")
            return None
        self._enqueue(ticket, queue)
        self.begin_all()
        return ticket

    def finish(self, ticket: Ticket) -> None:
        """Take the seats of a request that was served, now or when its time afterwards is over."""
        now = self._monotonic()
        width, queue, flow = ticket.width, ticket.queue, ticket.flow
        self.executing -= 1
        flow.serving -= width.seats
        flow.tally.executing -= 1
        if queue is None:
            self.without_queue.discard(ticket)
        else:
            queue.executing.discard(ticket)
            flow.executing -= 1
            # Counted with a guess when it began, and from here on with what it took.
            flow.next_r += width.seats * (now - ticket.began - GUESSED_SECONDS)
        if width.final_seconds > 0:
            self._later(width.final_seconds, lambda: self._release(ticket))
        else:
            self._release(ticket)

    def leave(self, ticket: Ticket, *, is_late: bool) -> None:
        """Take a request out of its queue: its time is over, or nobody wants it any more."""
        queue = ticket.queue
        if ticket.has_begun or queue is None or ticket not in queue.waiting:
            return
        queue.waiting.remove(ticket)
        self._dequeued(ticket, queue)
        if is_late:
            self.timed_out += 1
            self._reject(ticket.flow, "time-out")
        else:
            self.cancelled += 1
            self._reject(ticket.flow, "cancelled")
        self._note_demand()

    # -- who is next -------------------------------------------------------------------------------

    def begin_all(self) -> None:
        """Begin requests for as long as there are seats and turns for them."""
        while (queue := self._next()) is not None:
            if not self._pace.take(self._monotonic()):
                self._pace.wait(self)
                return
            self._begin_from(queue)

    def begin_next(self) -> bool:
        """Begin the next request, if there is one that can."""
        queue = self._next()
        if queue is None:
            return False
        self._begin_from(queue)
        return True

    def _next(self) -> Queue | None:
        """Return the queue whose head is next, if there are seats for it.

        A wide request whose turn it is gets its seats by waiting for them: while it does, nobody
        behind it begins, or it would wait for ever. One whose flow has all the seats it may have
        is passed over: others must not wait for what only its own requests can end.
        """
        best, best_end = None, 0.0
        for queue in self._nonempty:
            head = queue.waiting[0]
            if not self._flow_has_room(head):
                head.flow.tally.unaccommodated += 1
                continue
            end = _start_of(head) + head.width.work
            # Between equals, who waits with fewer is first.
            is_equal = best is not None and end == best_end
            if (
                best is None
                or end < best_end
                or (is_equal and head.flow.waiting < best.waiting[0].flow.waiting)
            ):
                best, best_end = queue, end
        if best is None:
            return None
        head = best.waiting[0]
        if not self._has_seats(head.width.most):
            head.flow.tally.unaccommodated += 1
            return None
        return best

    def _fits(self, ticket: Ticket) -> bool:
        return self._has_seats(ticket.width.most) and self._flow_has_room(ticket)

    def _has_seats(self, seats: int) -> bool:
        if seats > self.limit:
            # It will never have as many as it would take, so it has them all. Where there are none,
            # who waits waits for ever, and without queues one is served at a time: so Kubernetes.
            return self.executing == 0 and (self.limit > 0 or self.queuing is None)
        return self.seats_in_use + seats <= self.limit

    def _flow_has_room(self, ticket: Ticket) -> bool:
        flow = ticket.flow
        if flow.seats == 0 or flow.share == 1:
            return True
        if flow.seats + ticket.width.most > self.limit // flow.share:
            return False
        if flow.serving == 0 or self._most_per_flow is None:
            return True
        # Of these bounds only what is under way counts: who writes one thing after the other would
        # wait for what the last write has yet to cost.
        serving = flow.serving + ticket.width.seats
        if serving > self._beside_others and self._pace.shared_until > self._monotonic():
            return False
        return serving <= self._most_per_flow

    # -- counting ----------------------------------------------------------------------------------

    def _activate(self, flow: Flow) -> None:
        if not flow.executing and not flow.waiting:
            # What took less than was guessed puts a flow back behind `r`: who comes now begins
            # where the one begins that is next, and not behind all that it has got back.
            starts = (_start_of(queue.waiting[0]) for queue in self._nonempty)
            flow.next_r = min(self.r, min(starts, default=self.r))

    def _enqueue(self, ticket: Ticket, queue: Queue) -> None:
        width, flow = ticket.width, ticket.flow
        self._activate(flow)
        if not queue.waiting:
            self._nonempty[queue] = None
        ticket.queue, ticket.arrived_r = queue, min(self.r, flow.next_r)
        queue.waiting.append(ticket)
        queue.work += width.work
        self.waiting += 1
        self.seats_waiting += width.most
        flow.waiting += 1
        flow.tally.waiting += 1
        flow.tally.waiting_seats += width.most
        self._note_demand()

    def _dequeued(self, ticket: Ticket, queue: Queue) -> None:
        width, flow = ticket.width, ticket.flow
        queue.work -= width.work
        self.waiting -= 1
        self.seats_waiting -= width.most
        flow.waiting -= 1
        flow.tally.waiting -= 1
        flow.tally.waiting_seats -= width.most
        if not queue.waiting:
            del self._nonempty[queue]
            queue.work = 0.0  # and not what rounding left of it

    def _begin_from(self, queue: Queue) -> None:
        now = self._monotonic()
        ticket = queue.waiting.popleft()
        self._dequeued(ticket, queue)
        if queue.waiting:
            del self._nonempty[queue]  # behind those whose heads would end at the same time
            self._nonempty[queue] = None
        self._begin(ticket, queue, now)
        if ticket.on_begin is not None:
            ticket.on_begin()

    def _begin(self, ticket: Ticket, queue: Queue | None, now: float) -> None:
        flow, seats = ticket.flow, ticket.width.most
        tally = flow.tally
        ticket.queue, ticket.began, ticket.has_begun = queue, now, True
        self.executing += 1
        self.dispatched += 1
        self.seats_in_use += seats
        flow.seats += seats
        flow.serving += ticket.width.seats
        tally.executing += 1
        tally.executing_seats += seats
        tally.dispatched += 1
        self.progress += seats / self.weight
        if queue is None:
            self.without_queue.add(ticket)
        else:
            queue.executing.add(ticket)
            queue.seats += seats
            flow.executing += 1
            self.r = _start_of(ticket)
            flow.next_r = self.r + ticket.width.work
        self._note_demand()

    def _release(self, ticket: Ticket) -> None:
        flow, seats = ticket.flow, ticket.width.most
        if ticket.queue is not None:
            ticket.queue.seats -= seats
        self.seats_in_use -= seats
        flow.seats -= seats
        flow.tally.executing_seats -= seats
        self._note_demand()
        if self.waiting:
            self.begin_all()

    def _reject(self, flow: Flow, reason: str) -> None:
        self.rejected += 1
        flow.tally.rejected[reason] = flow.tally.rejected.get(reason, 0) + 1

    def _note_demand(self) -> None:
        if self.on_demand is not None:
            self.on_demand(self.seats_in_use + self.seats_waiting)

    def _queue(self, index: int) -> Queue:
        queue = self.queues.get(index)
        if queue is None:
            queue = self.queues[index] = Queue(index)
        return queue


def _start_of(ticket: Ticket) -> float:
    return max(ticket.flow.next_r, ticket.arrived_r)


def _waiting_work(queue: Queue) -> float:
    return queue.work
