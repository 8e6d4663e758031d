"""Metrics of API priority and fairness, by Kubernetes' names.

Every request changes a dozen of them. With a lock and a lookup for each that would cost more than
the request's way through the queues, so they are counted in plain numbers where it happens, and
only made into series when somebody reads them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from clusterspace.telemetry.metrics import REGISTRY

_SECONDS: Final = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_LENGTHS: Final = (0, 10, 25, 50, 100, 250, 500, 1000)
_SEATS: Final = (1, 2, 4, 8, 10)
_WATCHERS: Final = (0, 1, 10, 100, 1000, 10000)


class Histogram:
    """A distribution: how many values were at most as large as each bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Show it as one series of a family."""
        buckets, total = list[tuple[str, float]](), 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            name = "+Inf" if bound == float("inf") else repr(float(bound))
            buckets.append((name, float(total)))
        if total:
            family.add_metric(labels, buckets, self._sum)


def seconds_seen() -> Histogram:
    """Return a distribution of times."""
    return Histogram(_SECONDS)


def queue_lengths() -> Histogram:
    """Return a distribution of lengths of queues."""
    return Histogram(_LENGTHS)


def widths_seen() -> Histogram:
    """Return a distribution of widths."""
    return Histogram(_SEATS)


def watchers_seen() -> Histogram:
    """Return a distribution of how many watch."""
    return Histogram(_WATCHERS)


class Tallied(Protocol):
    """What is counted of one schema in one level."""

    level: str
    schema: str
    dispatched: int
    executing: int
    executing_seats: int
    waiting: int
    waiting_seats: int
    unaccommodated: int
    rejected: dict[str, int]
    waited: Histogram
    refused_after: Histogram
    executed: dict[str, Histogram]
    lengths: Histogram
    widths: Histogram
    watchers: Histogram | None


class Source(Protocol):
    """A server with priority levels."""

    def gauges(self) -> Iterable[tuple[str, Mapping[str, float]]]:
        """Return each level with the numbers that belong to it."""
        ...

    def tallies(self) -> Iterable[Tallied]:
        """Return what is counted of requests."""
        ...

    @property
    def fair_part(self) -> float:
        """The factor by which all levels had their targets when limits were last set."""
        ...


LEVEL_GAUGES: Final = {
    "apiserver_flowcontrol_nominal_limit_seats": "Seats of a priority level by its shares.",
    "apiserver_flowcontrol_lower_limit_seats": "Seats of a priority level that are never lent.",
    "apiserver_flowcontrol_upper_limit_seats": (
        "Seats that a priority level may have with all it may borrow."
    ),
    "apiserver_flowcontrol_current_limit_seats": "Seats that a priority level has at present.",
    "apiserver_flowcontrol_demand_seats_high_watermark": (
        "Most seats that could be used at once in the last period."
    ),
    "apiserver_flowcontrol_demand_seats_average": (
        "Seats that could be used in the last period, on average."
    ),
    "apiserver_flowcontrol_demand_seats_stdev": (
        "Seats that could be used in the last period, their deviation."
    ),
    "apiserver_flowcontrol_demand_seats_smoothed": "Seats that are expected to be of use.",
    "apiserver_flowcontrol_target_seats": (
        "Seats that a priority level asked for when limits were last set."
    ),
    "apiserver_flowcontrol_current_r": (
        "Seat-seconds that each queue of a priority level was entitled to so far."
    ),
}
_FLOW_GAUGES: Final = {
    "apiserver_flowcontrol_current_inqueue_requests": ("waiting", "Requests that wait in queues."),
    "apiserver_flowcontrol_current_inqueue_seats": (
        "waiting_seats",
        "Seats of requests that wait in queues.",
    ),
    "apiserver_flowcontrol_current_executing_requests": (
        "executing",
        "Requests that are served; of a watch, until it has begun.",
    ),
    "apiserver_flowcontrol_current_executing_seats": ("executing_seats", "Seats that are taken."),
}
_FLOW_COUNTERS: Final = {
    "apiserver_flowcontrol_dispatched_requests_total": (
        "dispatched",
        "Requests that were let through.",
    ),
    "apiserver_flowcontrol_request_dispatch_no_accommodation_total": (
        "unaccommodated",
        "Times at which the request whose turn it was found too few seats.",
    ),
}
_FLOW: Final = ("priority_level", "flow_schema")


class FlowControlCollector(Collector):
    """Makes series of what the servers of this process have counted."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Show a server's numbers too."""
        self._sources.append(source)

    def remove(self, source: Source) -> None:
        """Show a server's numbers no more: it has ended."""
        self._sources.remove(source)

    def describe(self) -> Iterator[Metric]:
        """Return the families without any series."""
        yield from self._families(())

    def collect(self) -> Iterator[Metric]:
        """Return all series."""
        # Two servers in one process, as in tests, have series of the same labels: the first counts.
        yield from self._families(self._sources[:1])

    def _families(self, sources: Iterable[Source]) -> Iterator[Metric]:
        listed = list(sources)
        tallies = [each for source in listed for each in source.tallies()]
        for name, meaning in LEVEL_GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=("priority_level",))
            for source in listed:
                for level, numbers in source.gauges():
                    family.add_metric([level], numbers[name])
            yield family
        part = GaugeMetricFamily(
            "apiserver_flowcontrol_seat_fair_frac",
            "What part of their targets all priority levels had when limits were last set.",
            labels=(),
        )
        for source in listed:
            part.add_metric([], source.fair_part)
        yield part
        for name, (field, meaning) in _FLOW_GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=_FLOW)
            for tally in tallies:
                family.add_metric([tally.level, tally.schema], getattr(tally, field))
            yield family
        for name, (field, meaning) in _FLOW_COUNTERS.items():
            counter = CounterMetricFamily(name, meaning, labels=_FLOW)
            for tally in tallies:
                counter.add_metric([tally.level, tally.schema], getattr(tally, field))
            yield counter
        rejected = CounterMetricFamily(
            "apiserver_flowcontrol_rejected_requests_total",
            "Requests that were refused: queue-full, concurrency-limit, time-out in a queue, or "
            "cancelled there.",
            labels=(*_FLOW, "reason"),
        )
        for tally in tallies:
            for reason, count in tally.rejected.items():
                rejected.add_metric([tally.level, tally.schema, reason], count)
        yield rejected
        yield from _histograms(tallies)


def _histograms(tallies: Iterable[Tallied]) -> Iterator[Metric]:
    waited = HistogramMetricFamily(
        "apiserver_flowcontrol_request_wait_duration_seconds",
        "Time in a queue, of those that were let through and of those that were not.",
        labels=(*_FLOW, "execute"),
    )
    executed = HistogramMetricFamily(
        "apiserver_flowcontrol_request_execution_seconds",
        "Time from when a request was let through to its answer; of a watch, until it has begun.",
        labels=(*_FLOW, "type"),
    )
    lengths = HistogramMetricFamily(
        "apiserver_flowcontrol_request_queue_length_after_enqueue",
        "How long a queue was once a request had joined it.",
        labels=_FLOW,
    )
    widths = HistogramMetricFamily(
        "apiserver_flowcontrol_work_estimated_seats", "Seats of requests.", labels=_FLOW
    )
    watchers = HistogramMetricFamily(
        "apiserver_flowcontrol_watch_count_samples",
        "How many watch what a write changes.",
        labels=_FLOW,
    )
    for tally in tallies:
        labels = [tally.level, tally.schema]
        tally.waited.add_to(waited, [*labels, "true"])
        tally.refused_after.add_to(waited, [*labels, "false"])
        for kind, histogram in tally.executed.items():
            histogram.add_to(executed, [*labels, kind])
        tally.lengths.add_to(lengths, labels)
        tally.widths.add_to(widths, labels)
        if tally.watchers is not None:
            tally.watchers.add_to(watchers, labels)
    yield from (waited, executed, lengths, widths, watchers)


FLOW_CONTROL: Final = FlowControlCollector()
REGISTRY.register(FLOW_CONTROL)
