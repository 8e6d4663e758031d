"""The connections of one server: who may have one, and what they share.

    admitted ──first byte──> waiting ──room──> newcomer ──authenticated──> trusted
                                                  └──too old while others wait──> evicted

A connection that has said nothing costs a socket. From its first byte on it costs TLS state and
buffers, 50 to 250 KiB, which is what a flood of half-sent requests is after. So only so many
newcomers (connections without an authenticated request) are there at once, and the others wait,
unread, for their turn. Nobody who is trusted is ever asked to leave.

Waiting in place of refusing is for the morning after a restart, when every agent behind one NAT
dials at the same moment: each needs its room for some milliseconds, and all of them get it.
"""

import asyncio
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.slices import Slices
from clusterspace.apiserver.http.messages import Handler
from clusterspace.apiserver.http.websocket_streams import streams_over_websockets
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels

KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server; the size of a body is each handler's own decision."""

    target_bytes: int = 64 * KIB
    """Request target, then 414. A resourceVersion of 500 clusters plus a long selector needs more
    than the usual 8 KiB."""

    header_bytes: int = 64 * KIB
    """All header lines of a request together, then 431. Tokens are 1 to 16 KiB and impersonated
    groups may be hundreds; kube-apiserver's 1 MiB is mostly an invitation."""

    header_count: int = 512
    """Header lines of a request, then 431. Each impersonated group is a line of its own."""

    body_ahead_bytes: int = 64 * KIB
    """Body bytes taken in before the handler asks for them; beyond, we stop reading the socket.
    Of a newcomer nothing is taken in: it has yet to show that it may send anything."""

    pipeline_bytes: int = 64 * KIB
    """Bytes of later requests kept, unparsed, while one is answered; beyond, we stop reading."""

    connections: int = 10_000
    """Open connections and handshakes together; beyond, a new one is closed as it comes. Every
    watch is a connection and costs about 41 KiB with TLS."""

    connections_per_address: int = 5_000
    """Of these, how many may come from one address (IPv6: one /64): whatever one place does, half
    of the server is left to the others. Behind a proxy everybody has the proxy's address."""

    newcomers: int = 500
    """Connections that have sent something and had no request authenticated yet; others wait for
    their room. Each may cost up to half a megabyte: this is all that strangers can take."""

    newcomers_per_address: int = 100
    """Of these, how many may come from one address. A login takes milliseconds, so an office, or a
    thousand agents, behind one NAT are through in the time that their handshakes take."""

    newcomer_seconds: float = 2.0
    """How long a newcomer keeps its room while others wait for it."""

    lingering_newcomers: int = 32
    """How many strangers at once are read out after a refusal: what they still send passes through
    half a megabyte of buffers each. The others get their answer, and their input is left alone."""

    handshake_seconds: float = 10.0
    """To the first byte, and again for the TLS handshake. A round trip around the world takes well
    under one second."""

    header_seconds: float = 32.0
    """From the first byte of a request (or from the connection's start, for its first) to the end
    of its headers, then 408. kube-apiserver's figure."""

    body_window_seconds: float = 10.0
    """How often the speed of an arriving body is looked at, then 408."""

    body_window_bytes: int = 10 * KIB
    """What must have arrived in each such window: 1 KiB/s. Only while the handler waits for it."""

    idle_seconds: float = 90.0
    """Between two requests of a connection. Go's clients drop theirs after 90 s as well."""

    write_stall_seconds: float = 30.0
    """Without one byte leaving a full write buffer, then the connection is cut."""

    linger_seconds: float = 1.0
    """How long input is read and dropped after a refusal. Closing at once would make the kernel
    send a reset, which can erase the answer before the client reads it."""

    tls_shutdown_seconds: float = 3.0
    """How long we wait for the peer's goodbye when closing TLS."""

    sweep_seconds: float = 1.0
    """How often deadlines are looked at, and so how late they may be noticed. One pass over all
    connections is cheaper than a timer for each request."""


_NETWORK_BYTES = 8
"""The half of an IPv6 address that names a network. The other half is the client's to choose."""

_TURNS = 16
"""How many addresses are looked at when one newcomer leaves; the server's sweep looks at all."""

_LOOK_AGAIN_SECONDS = 0.25

Guest = TypeVar("Guest", bound=Hashable)


def group_of(address: str) -> str:
    """Return the group that an address is counted in: an IPv4 host, or an IPv6 network of 64 bits.

    >>> group_of("192.0.2.7"), group_of("2001:db8:0:1:5::7"), group_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:0:1::', '192.0.2.7')
    """
    if ":" not in address:
        return address
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed[:_NETWORK_BYTES] + b"\0" * _NETWORK_BYTES)


class Arrivals(Generic[Guest]):
    """Counts connections, and gives newcomers their room in turn.

    `start` is called when a waiting guest has room; `evict` when a newcomer loses it, after it has
    been forgotten here.
    """

    def __init__(
        self, limits: Limits, start: Callable[[Guest], None], evict: Callable[[Guest], None]
    ) -> None:
        self._limits = limits
        self._start = start
        self._evict = evict
        # A guest is in `_addresses` from `admit` to `leave` or its eviction, whichever is first. In
        # between it is in `_waiting`, then in `_newcomers`, then in neither, and never in both:
        # every step takes it out of one before it puts it into the next. `_start` and `_evict` are
        # called with the counts in order, so that they may come back here.
        self._addresses: dict[Guest, str] = {}
        self._counts: Counter[str] = Counter()
        self._newcomers: dict[str, dict[Guest, float]] = {}
        """By address and then by age, the oldest first: when each was given its room."""
        self._newcomer_count = 0
        self._full_until = 0.0
        self._waiting: OrderedDict[str, dict[Guest, None]] = OrderedDict()
        """By address, those whose turn comes next first; within one, first come, first served."""

    @property
    def newcomer_count(self) -> int:
        """How many connections have room and no authenticated request yet."""
        return self._newcomer_count

    def admit(self, guest: Guest, address: str) -> bool:
        """Count a connection in, unless its address or the server has too many."""
        group = group_of(address)
        limits = self._limits
        if len(self._addresses) >= limits.connections:
            return False
        if self._counts[group] >= limits.connections_per_address:
            return False
        self._addresses[guest] = group
        self._counts[group] += 1
        return True

    def wait(self, guest: Guest, now: float) -> None:
        """Give a guest that has begun to speak its room: now, or when its turn comes."""
        group = self._addresses[guest]
        self._waiting.setdefault(group, {})[guest] = None
        self._start_from(group, now)

    def give_room(self, now: float, *, turns: int | None = None) -> None:
        """Start whoever can be started, one address after the other, for so many turns."""
        for group in tuple(islice(self._waiting, turns)):
            is_full = self._newcomer_count >= self._limits.newcomers
            has_started = self._start_from(group, now)
            # Who got something, or waits for its own address, lets the next one have a turn. Who
            # waits for the server keeps its place.
            if group in self._waiting and (has_started or not is_full):
                self._waiting.move_to_end(group)

    def _start_from(self, group: str, now: float) -> bool:
        """Start the guests of one address for as long as there is room; say if any was started."""
        has_started = False
        while (guests := self._waiting.get(group)) and self._has_room(group, now):
            guest = next(iter(guests))
            self._stop_waiting(group, guest)
            self._newcomers.setdefault(group, {})[guest] = now
            self._newcomer_count += 1
            self._start(guest)
            has_started = True
        return has_started

    def _has_room(self, group: str, now: float) -> bool:
        """Whether one more of an address may start; makes the room if somebody outstayed theirs."""
        limits = self._limits
        if len(self._newcomers.get(group, ())) >= limits.newcomers_per_address:
            return self._evict_oldest(group, now)
        if self._newcomer_count < limits.newcomers:
            return True
        if now < self._full_until:
            return False
        # The server is full, but this address has less than its share: the one with the most pays.
        greediest = max(self._newcomers, key=lambda each: len(self._newcomers[each]))
        if self._evict_oldest(greediest, now):
            return True
        # A flood from many addresses asks this thousands of times a second: look once in a while.
        self._full_until = now + _LOOK_AGAIN_SECONDS
        return False

    def _evict_oldest(self, group: str, now: float) -> bool:
        oldest, since = next(iter(self._newcomers[group].items()))
        if now - since < self._limits.newcomer_seconds:
            return False
        # Forgotten first: cutting the connection calls `leave`, which then finds nothing to do,
        # and gives the room to nobody else before we have.
        self._forget(oldest)
        self._evict(oldest)
        return True

    def trust(self, guest: Guest, now: float) -> None:
        """Take a guest for somebody: it gives its room to the next, and is never evicted."""
        if self._leave_newcomers(guest):
            self.give_room(now, turns=_TURNS)

    def leave(self, guest: Guest, now: float) -> None:
        """Forget a connection that has ended; one that is not known any more is no mistake."""
        if guest in self._addresses:
            self._forget(guest)
            self.give_room(now, turns=_TURNS)

    def _forget(self, guest: Guest) -> None:
        self._leave_newcomers(guest)
        group = self._addresses.pop(guest)
        self._stop_waiting(group, guest)
        self._counts[group] -= 1
        if not self._counts[group]:
            del self._counts[group]

    def _leave_newcomers(self, guest: Guest) -> bool:
        group = self._addresses.get(guest, "")
        newcomers = self._newcomers.get(group)
        if newcomers is None or newcomers.pop(guest, None) is None:
            return False
        self._newcomer_count -= 1
        if not newcomers:
            del self._newcomers[group]
        return True

    def _stop_waiting(self, group: str, guest: Guest) -> None:
        waiting = self._waiting.get(group)
        if waiting is not None:
            waiting.pop(guest, None)
            if not waiting:
                del self._waiting[group]


class Observer:
    """Hears of what happens to connections; override what you need."""

    def connection_opened(self) -> None:
        """Count a connection that is ready for its first request."""

    def connection_closed(self) -> None:
        """Count the end of a connection that had been opened."""

    def connection_rejected(self) -> None:
        """Count a connection over the limit of its address or the server, closed as it came."""

    def newcomer_evicted(self) -> None:
        """Count a connection that was cut for others who waited to show who they are."""

    def handshake_failed(self) -> None:
        """Count a TLS handshake that failed or took too long."""

    def request_refused(self, code: int) -> None:
        """Count a message that broke HTTP or a limit: it was answered without a handler."""

    def connection_stalled(self) -> None:
        """Count a peer that did not take its bytes and was cut."""


class CountedConnections(Observer):
    """Counts connections in the metrics of the process."""

    def connection_opened(self) -> None:
        """Count one more."""
        metrics.connections_changed(1)

    def connection_closed(self) -> None:
        """Count one less."""
        metrics.connections_changed(-1)

    def connection_rejected(self) -> None:
        """Count it as over a limit."""
        metrics.connection_refused("limit")

    def newcomer_evicted(self) -> None:
        """Count it as cut for others."""
        metrics.connection_refused("unauthenticated")

    def handshake_failed(self) -> None:
        """Count it as one that said nothing, or nothing that could be understood."""
        metrics.connection_refused("handshake")

    def request_refused(self, code: int) -> None:
        """Count it among the requests, of which it was none."""
        metrics.request_finished(RequestLabels(""), code, 0.0)

    def connection_stalled(self) -> None:
        """Count it as one that did not read."""
        metrics.connection_refused("stalled")


class Tenant(Protocol):
    """A connection, as the server calls it: to enforce deadlines, to drain, to cut it."""

    @property
    def is_long_running(self) -> bool:
        """Whether it carries a stream or has been hijacked."""
        ...

    def sweep(self, now: float) -> None:
        """Enforce the deadlines that have passed."""
        ...

    def start_draining(self) -> None:
        """Leave now if idle; otherwise the answer in progress is the last one."""
        ...

    def cancel(self) -> None:
        """End the handler and cut the connection."""
        ...


@dataclass(slots=True)
class Site:
    """The state that all connections of one server share: handler, limits, sets of connections."""

    handler: Handler
    upgrades: Handler = field(init=False)
    """Answers what wants to leave HTTP."""
    arrivals: Arrivals[Any]
    """Who may connect. Its guests are connections, from their first packet to their last."""
    limits: Limits = field(default_factory=Limits)
    observer: Observer = field(default_factory=Observer)
    clock: Clock = field(default_factory=SystemClock)
    """By which deadlines are set and looked at."""
    arriving: set[Tenant] = field(default_factory=set[Tenant])
    """Accepted, but not yet through their handshake."""
    connections: set[Tenant] = field(default_factory=set[Tenant])
    lingering_newcomers: int = 0
    """How many strangers are being read out after a refusal."""
    unattended: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Handlers that go on although their client has gone."""
    slices: Slices = field(default_factory=Slices)
    """Long answers are made and sent in them."""
    is_leaving: bool = False
    """Whether every answer is the last one of its connection."""
    is_draining: bool = False
    date_line: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something that a drain waits for may have happened."""

    def __post_init__(self) -> None:
        self.upgrades = streams_over_websockets(self.handler, self.clock)

    def refresh_date(self) -> None:
        """Bring the Date header up to the second."""
        self.date_line = f"Date: {formatdate(usegmt=True)}\r\n".encode()

    def adopt(self, task: asyncio.Task[None]) -> None:
        """Keep a handler alive whose connection has gone."""

        def forget(ended: asyncio.Task[None]) -> None:
            self.unattended.discard(ended)
            self.changed.set()

        self.unattended.add(task)
        task.add_done_callback(forget)
