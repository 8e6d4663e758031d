"""Levels made of objects, flows found again from request to request, limits adjusted."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.fairness.fair_queues import (
    SEATS_BESIDE_OTHERS,
    FairQueues,
    Flow,
    Tally,
    deal,
)
from clusterspace.apiserver.http.fairness.flow_schemas import (
    FlowSchema,
    PriorityLevel,
    read_flow_schema,
    read_level,
)
from clusterspace.apiserver.http.fairness.turns import Turns
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import UNAUTHENTICATED, User
from clusterspace.kube.objects import Object
from clusterspace.telemetry.flow_metrics import Histogram, queue_lengths, seconds_seen, widths_seen

# -- seats that levels lend each other -------------------------------------------------------------
#
# Every level is promised its nominal seats. Of these some may be lent while it has no use for them,
# and it may borrow from others. Every ten seconds the limits are set anew: to each level as many as
# it has lately used, all stretched or shrunk by one factor, within its bounds. A level that comes
# back from rest has at least its own within ten seconds, whoever had borrowed them.
# https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#seats

ADJUST_SECONDS: Final = 10.0

_SMOOTHING: Final = 0.977
"""A peak of demand is half forgotten after five minutes."""
_LEAST_TARGET: Final = 0.001
_MOST_SEATS: Final = 10


class Demand:
    """How many seats a level could have used, over the time since it was last asked."""

    __slots__ = ("_at", "_integral", "_monotonic", "_seconds", "_squares", "_value", "highest")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at = monotonic()
        self._value = self.highest = 0
        self._seconds = self._integral = self._squares = 0.0

    def set(self, seats: int) -> None:
        """Note that so many can be used from now on."""
        self._integrate()
        self._value = seats
        if seats > self.highest:
            self.highest = seats

    def _integrate(self) -> None:
        now = self._monotonic()
        seconds, value = now - self._at, self._value
        self._at = now
        self._seconds += seconds
        self._integral += value * seconds
        self._squares += value * value * seconds

    def take(self) -> "Usage":
        """Return what was seen, and begin anew."""
        self._integrate()
        usage = Usage(self.highest)
        if self._seconds > 0:
            average = self._integral / self._seconds
            variance = max(0.0, self._squares / self._seconds - average * average)
            usage = Usage(self.highest, average, math.sqrt(variance))
        self.highest = self._value
        self._seconds = self._integral = self._squares = 0.0
        return usage


@dataclass(frozen=True, slots=True)
class Usage:
    """The seats a level could have used in a period."""

    highest: int
    average: float = 0.0
    deviation: float = 0.0

    def smoothed(self, before: float) -> float:
        """Return what to expect of it: its envelope, or what is left of a higher one before."""
        envelope = self.average + self.deviation
        return max(envelope, _SMOOTHING * before + (1 - _SMOOTHING) * envelope)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a level asks for, and between which bounds it may have it."""

    least: float
    most: float
    target: float


def allocate(seats: int, claims: Sequence[Claim]) -> tuple[list[float], float]:
    """Divide seats: to each its target times one factor, within its bounds; and that factor.

    When the bounds leave no choice, they are what each has.
    """
    targets = [max(claim.target, _LEAST_TARGET) for claim in claims]

    def divided(factor: float) -> list[float]:
        return [
            min(claim.most, max(claim.least, factor * target))
            for claim, target in zip(claims, targets, strict=True)
        ]

    # What is divided grows with the factor, in straight lines between the factors at which some
    # level reaches a bound. So it is enough to look at those, and to interpolate in between.
    bends = sorted(
        {
            bound / target
            for claim, target in zip(claims, targets, strict=True)
            for bound in (claim.least, claim.most)
        }
    )
    below = 0.0
    for above in bends:
        if sum(divided(above)) >= seats:
            low, high = sum(divided(below)), sum(divided(above))
            part = 0.0 if high <= low else max(0.0, (seats - low) / (high - low))
            factor = below + (above - below) * part
            return divided(factor), factor
        below = above
    return divided(below), below


_log = structlog.get_logger(__name__)

# -- levels, and the flows of requests in them -----------------------------------------------------

_FLOW_SCHEMA_UID: Final = "X-Kubernetes-Pf-Flowschema-Uid"
_LEVEL_UID: Final = "X-Kubernetes-Pf-Prioritylevel-Uid"

_MOST_REMEMBERED: Final = 8192
"""Kinds of requests whose way is remembered. Anybody can make up paths: then all are forgotten."""

_USERS_SHARE: Final = 2
"""One flow has at most half of a level's seats. A request keeps its seat while its body is on the
way, or while a member takes its time: who fills theirs must not keep all others out."""

_COMPONENTS_LEVELS: Final = frozenset({"leader-election", "node-high", "system", "workload-high"})
_COMPONENTS_SEATS: Final = 4
"""What one flow has beside others in the levels of controllers and agents: each of them is one user
that works for everybody, and its writes share commits when several are under way."""

_STRANGERS_SHARE: Final = 8
"""All who are not authenticated have an eighth of them together: they can make up any name."""


class Refusals:
    """When those who are refused should come back: later, while many are, as Kubernetes says it."""

    __slots__ = ("_changed", "_counts", "_now", "seconds")

    _LONGEST: Final = 32

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.seconds = 1
        self._changed = 0
        self._counts: dict[int, int] = {}
        """By second; only of the last ones."""

    def note(self) -> int:
        """Count one, and return how many there were in this second."""
        second = int(self._now())
        if second not in self._counts:
            before = sum(
                count for at, count in self._counts.items() if second - self.seconds <= at < second
            )
            if before >= 3 * self.seconds and second - self._changed >= self.seconds:
                self.seconds, self._changed = min(self.seconds * 2, self._LONGEST), second
            elif before < self.seconds and self.seconds > 1:
                self.seconds -= 1
            oldest = second - 2 * self._LONGEST
            self._counts = {at: count for at, count in self._counts.items() if at > oldest}
        self._counts[second] = self._counts.get(second, 0) + 1
        return self._counts[second]


class Level:
    """A priority level at work: its configuration, its queues, and its limits."""

    def __init__(
        self, config: PriorityLevel, queues: FairQueues, demand: Demand, clock: Clock
    ) -> None:
        self.config = config
        self.queues = queues
        self.demand = demand
        self.refusals = Refusals(clock.now)
        self.is_leaving = False
        """Its object is gone; it goes once nobody is in it."""
        self.nominal = self.lower = self.upper = self.current = 0
        self.usage = Usage(0)
        self.smoothed = self.target = 0.0
        self.most_seats = 1
        self.tallies: dict[str, Measured] = {}
        """By schema."""


class Measured(Tally):
    """A tally with distributions."""

    __slots__ = ("executed", "lengths", "refused_after", "waited", "watchers", "widths")

    def __init__(self, level: str, schema: str) -> None:
        super().__init__(level, schema)
        self.waited: Histogram = seconds_seen()
        self.refused_after: Histogram = seconds_seen()
        self.executed: dict[str, Histogram] = {}
        self.lengths: Histogram = queue_lengths()
        self.widths: Histogram = widths_seen()
        self.watchers: Histogram | None = None


class Route:
    """What the requests of a user for a kind of thing come to."""

    __slots__ = ("flow", "headers", "level", "schema", "tally")

    def __init__(self, schema: FlowSchema, level: Level, tally: Measured, flow: Flow) -> None:
        self.schema = schema
        self.level = level
        self.tally = tally
        self.flow = flow
        self.headers = [(_LEVEL_UID, level.config.uid), (_FLOW_SCHEMA_UID, schema.uid)]
        """What answers say of it: not the names, which may tell more than people should know."""


class FlowController:
    """All levels of a server, as the objects say.

    Until it is configured, it has what is `mandatory`: two schemas and their levels.
    """

    def __init__(
        self,
        clock: Clock,
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
        *,
        seats: int,
        mandatory: tuple[Iterable[Object], Iterable[Object]],
        most_per_flow: int | None = None,
    ) -> None:
        self._clock = clock
        self._later = later
        self.seats = seats
        self._most_per_flow = most_per_flow
        self._turns = Turns(clock.monotonic, soon)
        schemas, levels = mandatory
        self._mandatory_schemas = [read_flow_schema(each) for each in schemas]
        self._mandatory_levels = [each for each in map(read_level, levels) if each is not None]
        self.levels: dict[str, Level] = {}
        self._schemas: list[FlowSchema] = []
        self._namespaces: frozenset[str] = frozenset()
        self._routes: dict[tuple[object, ...], Route] = {}
        self._flows: dict[tuple[str, str, bool], Flow] = {}
        self.fair_part = 0.0
        self.configure((), ())

    def configure(self, schemas: Iterable[Object], levels: Iterable[Object]) -> None:
        """Take over the objects there are; what is mandatory is there without them.

        Requests that wait or are served stay where they are: a level that is gone serves out those
        in it, and has its seats until then.
        """
        configs = {each.name: each for each in map(read_level, levels) if each is not None}
        for mandatory in self._mandatory_levels:
            configs.setdefault(mandatory.name, mandatory)
        for name, config in configs.items():
            level = self.levels.get(name)
            if level is None:
                demand = Demand(self._clock.monotonic)
                queues = FairQueues(
                    name,
                    self._turns,
                    self._clock.monotonic,
                    self._later,
                    most_per_flow=self._most_per_flow,
                    beside_others=(
                        _COMPONENTS_SEATS if name in _COMPONENTS_LEVELS else SEATS_BESIDE_OTHERS
                    ),
                )
                queues.on_demand = demand.set
                level = self.levels[name] = Level(config, queues, demand, self._clock)
            level.config, level.is_leaving = config, False
            level.queues.configure(config.queuing, is_exempt=config.is_exempt)
        for name, level in tuple(self.levels.items()):
            if name not in configs:
                level.is_leaving = True
                if level.queues.is_idle:
                    del self.levels[name]
        self._read_schemas(schemas, configs)
        self._divide()

    def _read_schemas(self, schemas: Iterable[Object], configs: dict[str, PriorityLevel]) -> None:
        read = {each.name: each for each in map(read_flow_schema, schemas)}
        usable = [each for each in read.values() if each.level in configs]
        for mandatory in self._mandatory_schemas:
            if mandatory.name not in {each.name for each in usable}:
                usable.append(mandatory)
        self._schemas = sorted(usable, key=lambda each: (each.precedence, each.name))
        self._namespaces = frozenset[str]().union(*(each.namespaces for each in usable))
        # Requests on their way keep the flows they have. Those that come find theirs anew, in the
        # queues there are now; the seats of a flow that is forgotten with requests on their way
        # are counted for the level, and no more for the flow.
        self._routes.clear()
        self._flows.clear()

    def is_idle(self) -> bool:
        """Whether no request is served or waits, in any level."""
        return all(level.queues.is_idle for level in self.levels.values())

    def has_level(self, name: str) -> bool:
        """Whether there is such a level, and not only what is left of it."""
        level = self.levels.get(name)
        return level is not None and not level.is_leaving

    # -- which way a request goes ------------------------------------------------------------------

    def route(self, user: User, info: RequestInfo) -> Route:
        """Return the level and the flow of a request."""
        namespace = info.namespace
        key = (
            user.name,
            user.groups,
            info.verb,
            info.group,
            info.resource if info.is_resource else info.path,
            info.subresource,
            namespace if namespace in self._namespaces else bool(namespace),
        )
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= _MOST_REMEMBERED:
                self._forget()
            route = self._routes[key] = self._find(user, info)
        if route.schema.distinguisher == "ByNamespace":
            # Remembered without the namespace, of which there are many.
            flow = self._flow(route.level, route.schema, route.tally, namespace, user)
            return Route(route.schema, route.level, route.tally, flow)
        return route

    def _find(self, user: User, info: RequestInfo) -> Route:
        # The last one is for everybody, whoever they are.
        schema = next(
            (each for each in self._schemas if each.matches(user, info)), self._schemas[-1]
        )
        level = self.levels[schema.level]
        tally = level.tallies.get(schema.name)
        if tally is None:
            tally = level.tallies[schema.name] = Measured(schema.level, schema.name)
        return Route(
            schema,
            level,
            tally,
            self._flow(level, schema, tally, schema.distinguish(user, info), user),
        )

    def _flow(
        self, level: Level, schema: FlowSchema, tally: Measured, distinguisher: str, user: User
    ) -> Flow:
        is_stranger = UNAUTHENTICATED in user.groups
        key = (schema.name, distinguisher, is_stranger)
        flow = self._flows.get(key)
        if flow is None:
            hand, queuing = (0,), level.config.queuing
            if queuing is not None:
                name = f"{schema.name}/{distinguisher}"
                hand = deal(name, queuing.queues, queuing.hand_size)
            # Without a method all that match are one flow: it is for the schema to bound them.
            share = 1 if not schema.distinguisher else _USERS_SHARE
            flow = self._flows[key] = Flow(
                tally, distinguisher, hand, _STRANGERS_SHARE if is_stranger else share
            )
        return flow

    def _forget(self) -> None:
        """Forget the ways of requests, but no flow that has any on their way."""
        self._routes.clear()
        self._flows = {key: flow for key, flow in self._flows.items() if flow.seats or flow.waiting}

    # -- how many seats each level has -------------------------------------------------------------

    def _divide(self) -> None:
        """Divide the server's seats by shares, and begin with what that gives each level."""
        total = sum(level.config.shares for level in self.levels.values()) or 1
        for level in self.levels.values():
            config = level.config
            is_new = not level.nominal and not level.current
            level.nominal = math.ceil(self.seats * config.shares / total)
            lendable = round(level.nominal * config.lendable_percent / 100)
            borrowed = self.seats
            if config.borrowing_percent is not None:
                borrowed = round(level.nominal * config.borrowing_percent / 100)
            level.lower, level.upper = level.nominal - lendable, level.nominal + borrowed
            if config.queuing is not None:
                # One request must not fill a level: what is as wide as this fits several times.
                part = math.ceil(level.nominal * 0.15)
                wide = min(part, level.nominal // config.queuing.hand_size)
                level.most_seats = max(1, min(wide, _MOST_SEATS))
            level.queues.weight = max(1, level.nominal)
            if is_new:
                level.current = level.nominal - lendable // 2
        self.adjust()

    def adjust(self) -> None:
        """Set the limits anew, by what each level has lately had use for."""
        claims: dict[str, Claim] = {}
        least = lower = 0
        remaining = nominal = sum(level.nominal for level in self.levels.values())
        for name, level in self.levels.items():
            level.usage = level.demand.take()
            level.smoothed = level.usage.smoothed(level.smoothed)
            if level.config.is_exempt:
                level.current = max(level.lower, level.usage.highest)
                level.target = float(level.current)
                remaining -= level.current
                continue
            wanted = max(level.lower, min(level.nominal, level.usage.highest))
            level.target = max(wanted, level.smoothed)
            claims[name] = Claim(wanted, level.upper, level.target)
            least += wanted
            lower += level.lower
        if remaining <= lower:
            # Those who are exempt have it all: the others have what nobody can borrow.
            self.fair_part = 0.0
            limits = {name: self.levels[name].lower for name in claims}
        elif remaining <= least:
            self.fair_part = 0.0
            part = (remaining - lower) / (least - lower)
            limits = {
                name: level.lower + round((claims[name].least - level.lower) * part)
                for name, level in self.levels.items()
                if name in claims
            }
        else:
            divided, self.fair_part = allocate(nominal, tuple(claims.values()))
            limits = {name: round(seats) for name, seats in zip(claims, divided, strict=True)}
        for name, seats in limits.items():
            self.levels[name].current = seats
        for name, level in tuple(self.levels.items()):
            level.queues.set_limit(level.current)
            if level.is_leaving and level.queues.is_idle:
                del self.levels[name]

    async def run(self) -> None:
        """Adjust the limits again and again, until cancelled."""
        while True:
            await self._clock.sleep(ADJUST_SECONDS)
            self.adjust()
