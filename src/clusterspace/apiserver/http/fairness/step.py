"""The step of the chain that lets a request through when it is its turn, or refuses it.

It comes when it is known who asks, and before it is decided whether they may: a refusal costs work
too. What it leaves alone are streams into what runs somewhere (exec, logs, proxies): they may stay
open for days, and only how many one user has is bounded. A watch has seats while it is sent what
there is; from then on it costs whoever writes.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.chain import REQUEST_SECONDS, is_long_running
from clusterspace.apiserver.http.context import RequestContext, RequestHandler, headers_for
from clusterspace.apiserver.http.fairness.controller import FlowController, Measured, Route
from clusterspace.apiserver.http.fairness.fair_queues import ONE_SEAT, Ticket, Width
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.errors import MalformedDuration
from clusterspace.kube.times import seconds_of
from clusterspace.telemetry.flow_metrics import seconds_seen, watchers_seen

_WAIT_PART: Final = 4
"""A request waits for at most a quarter of the time it has, as kube-apiserver's do: the client is
told to come back while it still listens."""

_LOOK_SECONDS: Final = 1.0
"""How often those who wait are looked after: a client that has gone keeps no place in a queue."""

_PATIENCE: Final = 50
"""Refusals in a second, of one level, after which they are slow. Saying no costs a tenth of saying
yes, so that clients which ask again at once would otherwise take what the queues save."""

_SLOW_SECONDS: Final = 0.25

LONG_RUNNING_PER_USER: Final = 2500
"""Watches and streams that one user may have open: a quarter of a server's connections."""

_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


CountObjects: TypeAlias = Callable[[RequestInfo], Awaitable[int | None]]
"""Returns how many objects there are of what a request lists; None when that is not known."""


class PriorityAndFairness:
    """Serves requests in the order that the queues of their levels say."""

    def __init__(
        self,
        controller: FlowController,
        clock: Clock,
        count_objects: CountObjects,
        *,
        long_running_per_user: int = LONG_RUNNING_PER_USER,
    ) -> None:
        self.controller = controller
        self._clock = clock
        self._count_objects = count_objects
        self._watches = Watches()
        self._long_running: Counter[str] = Counter()
        self._long_running_per_user = long_running_per_user

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Serve the request when it is its turn, else answer 429 with a time to come back."""
        info = context.info
        if info.is_watch or is_long_running(context):
            return await self._serve_long(context, rest)
        route = self.controller.route(context.user, info)
        context.answer_headers = [*context.answer_headers, *route.headers]
        level, width = route.level, ONE_SEAT
        if info.verb == "list":
            width = list_width(info, await self._count_objects(info), level.most_seats)
        elif info.verb in _WRITES:
            width = self._write_width(info, route)
        queues = level.queues
        ticket = queues.start(route.flow, width, context)
        if ticket is None or not (ticket.has_begun or await self._wait(context, route, ticket)):
            return await self._refuse(context, route)
        try:
            return await rest(context)
        finally:
            queues.finish(ticket)
            self._measure(route.tally, ticket, "regular")

    def _write_width(self, info: RequestInfo, route: Route) -> Width:
        # A token is no change of its account.
        is_change = info.subresource != "token"
        interested = self._watches.interested(info) if is_change else Interested(0, 0)
        tally = route.tally
        if tally.watchers is None:
            tally.watchers = watchers_seen()
        tally.watchers.observe(interested.watchers)
        return write_width(interested.prompt, route.level.most_seats)

    async def _serve_long(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        info, user = context.info, context.user.name
        route = self.controller.route(context.user, info)
        if info.is_watch:
            context.answer_headers = [*context.answer_headers, *route.headers]
        is_bounded = not route.level.config.is_exempt
        if is_bounded and self._long_running[user] >= self._long_running_per_user:
            return await self._refuse(context, route)
        self._long_running[user] += 1
        try:
            if info.is_watch:
                return await self._watch(context, rest, route)
            return await rest(context)
        finally:
            self._long_running[user] -= 1
            if not self._long_running[user]:
                del self._long_running[user]

    async def _watch(
        self, context: RequestContext, rest: RequestHandler, route: Route
    ) -> Response | None:
        info, queues = context.info, route.level.queues
        width = ONE_SEAT
        if is_from_start(info):
            stored = await self._count_objects(info)
            width = list_width(info, stored, route.level.most_seats)
        ticket = queues.start(route.flow, width, context)
        if ticket is None or not (ticket.has_begun or await self._wait(context, route, ticket)):
            return await self._refuse(context, route)
        seated: list[Ticket] = [ticket]

        def initialized() -> None:
            if seated:
                queues.finish(seated.pop())
                self._measure(route.tally, ticket, "watch")

        context.on_initialized = initialized
        remove = self._watches.add(info, context.user.name)
        try:
            return await rest(context)
        finally:
            initialized()
            remove()

    async def _wait(self, context: RequestContext, route: Route, ticket: Ticket) -> bool:
        """Wait for the request's turn; False when it does not come in time."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not begun.done():
                begun.set_result(None)

        ticket.on_begin = begin
        if ticket.queue is not None:
            route.tally.lengths.observe(len(ticket.queue.waiting))
        clock, request = self._clock, context.request
        until = clock.monotonic() + _waits_for(context.info)
        try:
            while not begun.done() and not request.is_disconnected:
                left = until - clock.monotonic()
                if left <= 0:
                    break
                await asyncio.wait((begun,), timeout=min(left, _LOOK_SECONDS))
        except asyncio.CancelledError:
            self._give_up(route, ticket, is_late=False)
            raise
        is_gone = request.is_disconnected
        if ticket.has_begun and not is_gone:
            return True
        self._give_up(route, ticket, is_late=not is_gone)
        return False

    def _give_up(self, route: Route, ticket: Ticket, *, is_late: bool) -> None:
        # Seats that came in the same step of the loop must go on to the next.
        if ticket.has_begun:
            route.level.queues.finish(ticket)
        else:
            route.level.queues.leave(ticket, is_late=is_late)
            route.tally.refused_after.observe(self._clock.monotonic() - ticket.arrived)

    def _measure(self, tally: Measured, ticket: Ticket, kind: str) -> None:
        tally.widths.observe(ticket.width.most)
        tally.waited.observe(ticket.began - ticket.arrived)
        executed = tally.executed.get(kind)
        if executed is None:
            executed = tally.executed[kind] = seconds_seen()
        executed.observe(self._clock.monotonic() - ticket.began)

    async def _refuse(self, context: RequestContext, route: Route) -> Response:
        refusals = route.level.refusals
        if not context.request.is_disconnected and refusals.note() > _PATIENCE:
            await self._clock.sleep(_SLOW_SECONDS)
        # As kube-apiserver says it: no Status, since whatever makes one may be what is overloaded.
        headers = (
            *headers_for(context, "text/plain; charset=utf-8"),
            ("Retry-After", str(refusals.seconds)),
            ("X-Content-Type-Options", "nosniff"),
        )
        return Response(429, headers, b"Too many requests, please try again later.\n")

    # -- what the metrics show ---------------------------------------------------------------------

    @property
    def fair_part(self) -> float:
        """The factor by which all levels had their targets when limits were last set."""
        return self.controller.fair_part

    def gauges(self) -> Iterable[tuple[str, Mapping[str, float]]]:
        """Return each level with the numbers that belong to it."""
        for name, level in self.controller.levels.items():
            yield (
                name,
                {
                    "apiserver_flowcontrol_nominal_limit_seats": level.nominal,
                    "apiserver_flowcontrol_lower_limit_seats": level.lower,
                    "apiserver_flowcontrol_upper_limit_seats": level.upper,
                    "apiserver_flowcontrol_current_limit_seats": level.current,
                    "apiserver_flowcontrol_demand_seats_high_watermark": level.usage.highest,
                    "apiserver_flowcontrol_demand_seats_average": level.usage.average,
                    "apiserver_flowcontrol_demand_seats_stdev": level.usage.deviation,
                    "apiserver_flowcontrol_demand_seats_smoothed": level.smoothed,
                    "apiserver_flowcontrol_target_seats": level.target,
                    "apiserver_flowcontrol_current_r": level.queues.r,
                },
            )

    def tallies(self) -> Iterable[Measured]:
        """Return what is counted of requests, by level and schema."""
        for level in self.controller.levels.values():
            yield from level.tallies.values()


def _waits_for(info: RequestInfo) -> float:
    """Return how long a request may wait in a queue."""
    seconds, asked = REQUEST_SECONDS, info.query.first.get("timeout")
    if asked and not info.is_watch:
        with suppress(MalformedDuration):  # `deadlines` has refused it
            seconds = min(seconds_of(asked) or seconds, seconds)
    return max(seconds, 0.0) / _WAIT_PART


# -- how many seats a request takes ----------------------------------------------------------------
#
#     list, watch from the start   a seat for each 100 objects that are read for it
#     a write                      a seat, and when many watch, some more while they are told
#     everything else              a seat
#
# Kubernetes' rules, but for what telling a watcher costs: there 5 ms of a seat for each ten, here
# 0.25 ms, which is what it takes. One of many levels must not be filled by one request, so a
# request has at most 10 seats, and at most what fits into a level several times over.

OBJECTS_PER_SEAT: Final = 100
WATCHES_PER_SEAT: Final = 10
PROMPT_WATCHERS: Final = 32
"""Watchers of one user and resource that hear of a write before it is answered: 0.7 ms of writing.
The others are told in a part of the loop's time that is theirs, however much is written
(`apiserver/feeds.py`): seats of the write for them would count work that nobody waits for, and have
whoever writes wait for somebody else's watches."""
_EVENT_SECONDS: Final = 0.00025
"""For ten watchers, one seat, while an event is written to them."""
_MOST_DIGITS: Final = 20


async def count_nothing(_info: RequestInfo) -> int | None:
    """Return None: what members have stored is not known at a gateway."""
    return None


class Interested(NamedTuple):
    """How many hear of a write: in all, and of those before it is answered."""

    watchers: int
    prompt: int


class Watches:
    """Who watches what."""

    def __init__(self) -> None:
        self._watched: dict[tuple[str, str, str, str], Counter[str]] = {}
        self._counts: dict[tuple[str, str, str, str], Interested] = {}

    def add(self, info: RequestInfo, user: str) -> Callable[[], None]:
        """Count a watch, until what is returned is called."""
        key = (info.group, info.resource, info.namespace, info.name)

        def count(change: int) -> None:
            by_user = self._watched.setdefault(key, Counter())
            before = by_user[user]
            by_user[user] += change
            prompt = min(by_user[user], PROMPT_WATCHERS) - min(before, PROMPT_WATCHERS)
            watchers, were_prompt = self._counts.get(key, (0, 0))
            self._counts[key] = Interested(watchers + change, were_prompt + prompt)
            if not by_user[user]:
                del by_user[user]
            if not by_user:
                del self._watched[key], self._counts[key]

        count(1)
        return lambda: count(-1)

    def interested(self, info: RequestInfo) -> Interested:
        """Return how many hear of what a write changes."""
        watchers = prompt = 0
        kind = (info.group, info.resource)
        # Of all namespaces, of this one, and of this object.
        for place in {("", ""), (info.namespace, ""), (info.namespace, info.name)}:
            found = self._counts.get(kind + place)
            if found is not None:
                watchers += found.watchers
                prompt += found.prompt
        return Interested(watchers, prompt)


def is_from_start(info: RequestInfo) -> bool:
    """Whether a watch begins with all there is."""
    query = info.query
    if query.is_true("sendInitialEvents"):
        return True
    return query.get("resourceVersion") in ("", "0")


def list_width(info: RequestInfo, stored: int | None, most: int) -> Width:
    """Return the width of a list, or of a watch that begins with one."""
    if info.name or not stored:
        return ONE_SEAT
    query = info.query
    limit = stored
    said = query.get("limit")
    # What is no number, or none that anybody counts to, is refused behind the queues: `int` would
    # fail here for other scripts' digits and for thousands of them.
    if said.isascii() and said.isdigit() and len(said) < _MOST_DIGITS:
        limit = min(int(said), stored) or stored
    # Only a page without selectors is read alone; `resourceVersion=0` asks for everything.
    is_page = limit < stored and query.get("resourceVersion") != "0" and not info.is_watch
    if is_page and not query.get("labelSelector") and not query.get("fieldSelector"):
        stored = limit
    seats = math.ceil(stored / OBJECTS_PER_SEAT)
    return Width(min(seats, most)) if seats > 1 else ONE_SEAT


def write_width(watchers: int, most: int) -> Width:
    """Return the width of a write that so many watchers hear of."""
    if watchers < WATCHES_PER_SEAT:
        return ONE_SEAT
    seats = math.ceil(watchers / WATCHES_PER_SEAT)
    final = min(seats, most)
    # The same work in fewer seats takes longer.
    return Width(1, final, _EVENT_SECONDS * seats / final)
