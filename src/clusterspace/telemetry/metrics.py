"""Metrics of servers, queues and controllers: their names, labels and buckets.

Those of member clusters are in fleet_metrics.py; both are in the one REGISTRY below.

Names are Kubernetes' own where the meaning is the same, so that existing dashboards work. Labels
take values from fixed or configured sets only: a client must not be able to make series.

To add one: declare it here with its help text, give it a function that says what happened, call
that where it happens, and generate the reference page (`make generate`). A test runs the product
and fails for any metric on that page that does not move: test_every_metric_moves.py.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from clusterspace import __version__

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

REGISTRY: Final = CollectorRegistry()

HEALTH_CHECKS: Final = CollectorRegistry()
"""What `/metrics/slis` shows: few series, to be read often."""

# A second series per counter, telling when it began, doubles the page and is read by nobody.
prometheus_client.disable_created_metrics()

ProcessCollector(registry=REGISTRY)

VERBS: Final = frozenset(
    {
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "connect",
        "proxy",
    }
)
OTHER: Final = "other"

_REQUEST_LABELS: Final = ("verb", "group", "version", "resource", "subresource", "scope")
_REQUEST_SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
)  # fmt: skip
_DISK_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5,
)  # fmt: skip
_BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_STALL_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_QUEUE_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)

_build_info = Gauge(
    "clusterspace_build_info",
    "Which build this is; always 1.",
    ("version", "python"),
    registry=REGISTRY,
)
_build_info.labels(__version__, platform.python_version()).set(1)

_health = Gauge(
    "kubernetes_healthcheck",
    "Result of a health check: 1 when it passed.",
    ("name", "type"),
    registry=HEALTH_CHECKS,
)
_health_checks = Counter(
    "kubernetes_healthchecks_total",
    "Results of health checks.",
    ("name", "status", "type"),
    registry=HEALTH_CHECKS,
)

_requests = Counter(
    "apiserver_request_total",
    "Requests answered.",
    (*_REQUEST_LABELS, "code"),
    registry=REGISTRY,
)
_request_seconds = Histogram(
    "apiserver_request_duration_seconds",
    "Time from the first byte of a request to the last byte of its answer; watches excluded.",
    _REQUEST_LABELS,
    buckets=_REQUEST_SECONDS,
    registry=REGISTRY,
)
_watchers = Gauge(
    "apiserver_longrunning_requests",
    "Watches being served.",
    ("group", "version", "resource"),
    registry=REGISTRY,
)
_watchers_evicted = Counter(
    "clusterspace_watchers_evicted_total",
    "Watches ended because their reader was too slow.",
    registry=REGISTRY,
)
_connections = Gauge(
    "clusterspace_connections",
    "Connections that have sent their first byte.",
    registry=REGISTRY,
)
_connections_refused = Counter(
    "clusterspace_connections_refused_total",
    "Connections closed by the server: over a limit (limit), cut for others who waited to show who "
    "they are (unauthenticated), failed or late TLS handshakes (handshake), peers that stopped "
    "reading (stalled).",
    ("reason",),
    registry=REGISTRY,
)
_logins_failed = Counter(
    "clusterspace_logins_failed_total",
    "Requests whose credentials were refused.",
    registry=REGISTRY,
)

_commits = Counter(
    "clusterspace_store_commits_total",
    "Batches of writes committed.",
    registry=REGISTRY,
)
_batch_size = Histogram(
    "clusterspace_store_batch_size",
    "Writes that shared one commit.",
    buckets=_BATCH_SIZES,
    registry=REGISTRY,
)
_fsync_seconds = Histogram(
    "clusterspace_store_fsync_seconds",
    "Time a commit waited for the disk.",
    buckets=_DISK_SECONDS,
    registry=REGISTRY,
)
_etcd_seconds = Histogram(
    "etcd_request_duration_seconds",
    "Time etcd took to answer; for a hub whose store is one.",
    ("operation",),
    buckets=_DISK_SECONDS,
    registry=REGISTRY,
)
_etcd_errors = Counter(
    "etcd_request_errors_total",
    "Requests that etcd refused or did not answer; those that can be are made again elsewhere.",
    ("operation",),
    registry=REGISTRY,
)
_store_reloads = Counter(
    "clusterspace_store_reloads_total",
    "Times everything was read from etcd anew, and watchers were told to list again: after a gap "
    "in its watch (gap), or because memory and etcd differed (difference).",
    ("reason",),
    registry=REGISTRY,
)

_queue_depth = Gauge(
    "workqueue_depth",
    "Keys ready to be worked on.",
    ("name",),
    registry=REGISTRY,
)
_queue_waited = Histogram(
    "workqueue_queue_duration_seconds",
    "Time a key was ready before a worker took it.",
    ("name",),
    buckets=_QUEUE_SECONDS,
    registry=REGISTRY,
)
_queue_worked = Histogram(
    "workqueue_work_duration_seconds",
    "Time a key was worked on.",
    ("name",),
    buckets=_QUEUE_SECONDS,
    registry=REGISTRY,
)
_queue_retries = Counter(
    "workqueue_retries_total",
    "Keys put back to be tried again.",
    ("name",),
    registry=REGISTRY,
)


_loop_stalls = Histogram(
    "clusterspace_event_loop_stall_seconds",
    "Time by which this process kept its own event loop from turning; looked at 40 times a second.",
    buckets=_STALL_SECONDS,
    registry=REGISTRY,
)

_reconciles = Counter(
    "controller_runtime_reconcile_total",
    "Attempts to bring something to its desired state, by how they ended.",
    ("controller", "result"),
    registry=REGISTRY,
)

_reconcile_seconds = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Time of an attempt.",
    ("controller",),
    buckets=_QUEUE_SECONDS,
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True)
class RequestLabels:
    """What a request was about.

    Group, version, resource and subresource are those of a resource the server serves, and
    empty when the request named none: what a client made up must not come here.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""

    def values(self) -> tuple[str, ...]:
        """Return the label values in the order declared."""
        verb = self.verb if self.verb in VERBS else OTHER
        return (verb, self.group, self.version, self.resource, self.subresource, self.scope)


def request_finished(labels: RequestLabels, code: int, seconds: float) -> None:
    """Count a request and, unless it was a watch, its time.

    A message that was no request at all has no verb, and is counted as `other`.
    """
    values = labels.values()
    _requests.labels(*values, str(code) if 100 <= code < 600 else OTHER).inc()
    if labels.verb != "watch":
        _request_seconds.labels(*values).observe(seconds)


def watch_started(group: str, version: str, resource: str) -> None:
    """Count one more watch being served."""
    _watchers.labels(group, version, resource).inc()


def watch_ended(group: str, version: str, resource: str) -> None:
    """Count one watch less being served."""
    _watchers.labels(group, version, resource).dec()


def watcher_evicted() -> None:
    """Count a watch ended because its reader was too slow."""
    _watchers_evicted.inc()


def connections_changed(difference: int) -> None:
    """Count connections that opened, or closed."""
    _connections.inc(difference)


def connection_refused(reason: str) -> None:
    """Count a connection that the server closed."""
    _connections_refused.labels(reason).inc()


def login_failed() -> None:
    """Count a request whose credentials were refused."""
    _logins_failed.inc()


def commit_finished(batch_size: int, fsync_seconds: float) -> None:
    """Count a batch of writes that reached the disk."""
    _commits.inc()
    _batch_size.observe(batch_size)
    _fsync_seconds.observe(fsync_seconds)


def etcd_call_finished(method: str, seconds: float) -> None:
    """Measure a call that etcd answered; the method is gRPC's path."""
    _etcd_seconds_of(method).observe(seconds)


@cache
def _etcd_seconds_of(method: str) -> Histogram:
    """Return the series of a method: to look one up takes longer than to add to it."""
    return _etcd_seconds.labels(method.rpartition("/")[2].lower())


def etcd_call_failed(method: str) -> None:
    """Count a call that etcd refused or did not answer."""
    _etcd_errors.labels(method.rpartition("/")[2].lower()).inc()


def store_reloaded(reason: str) -> None:
    """Count that everything was read anew."""
    _store_reloads.labels(reason).inc()


def loop_stalled(seconds: float) -> None:
    """Measure how long the event loop was kept from turning."""
    _loop_stalls.observe(seconds)


class QueueMetrics:
    """Counts what a work queue tells its observer, under the queue's name."""

    def __init__(self, name: str) -> None:
        self._depth = _queue_depth.labels(name)
        self._waited = _queue_waited.labels(name)
        self._worked = _queue_worked.labels(name)
        self._retries = _queue_retries.labels(name)

    def depth_changed(self, depth: int) -> None:
        """Set how many keys are ready."""
        self._depth.set(depth)

    def taken(self, waited_seconds: float) -> None:
        """Measure how long a key was ready."""
        self._waited.observe(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        """Measure how long a key was worked on."""
        self._worked.observe(worked_seconds)

    def retried(self) -> None:
        """Count a retry."""
        self._retries.inc()


class ReconcileMetrics:
    """Counts the attempts of one controller."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._seconds = _reconcile_seconds.labels(controller)

    def attempted(self, result: Enum, seconds: float) -> None:
        """Count an attempt and its time."""
        _reconciles.labels(self._controller, str(result.value)).inc()
        self._seconds.observe(seconds)


def health_checked(name: str, path: str, *, passed: bool) -> None:
    """Count one look at one check of `/healthz`, `/livez` or `/readyz`."""
    _health.labels(name, path).set(passed)
    _health_checks.labels(name, "success" if passed else "error", path).inc()


def render_health_checks() -> bytes:
    """Return what was seen at health checks, as Prometheus reads it from `/metrics/slis`."""
    return prometheus_client.generate_latest(HEALTH_CHECKS)


def render() -> bytes:
    """Return everything measured so far, as Prometheus reads it."""
    return prometheus_client.generate_latest(REGISTRY)


def render_together(pages: Mapping[int, bytes]) -> bytes:
    """Return what several workers of one server have measured, each series with its worker.

    >>> pages = {1: b"# TYPE a gauge\\na 1\\n", 2: b'# TYPE a gauge\\na{b="c"} 2\\n'}
    >>> print(render_together(pages).decode(), end="")
    # TYPE a gauge
    a{worker="1"} 1
    a{worker="2",b="c"} 2
    """
    heads: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for worker, page in pages.items():
        family, seen = "", set[str]()
        for line in page.decode().splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                if family not in heads or family in seen:
                    seen.add(family)
                    heads.setdefault(family, []).append(line)
                continue
            name, brace, labels = line.partition("{")
            if not brace or " " in name:
                name, _, value = line.partition(" ")
                series.setdefault(family, []).append(f'{name}{{worker="{worker}"}} {value}')
            else:
                series.setdefault(family, []).append(f'{name}{{worker="{worker}",{labels}')
    # All of a family together, as the format demands, whoever told of it.
    lines = (line for family in heads for line in (*heads[family], *series.get(family, ())))
    return "".join(f"{line}\n" for line in lines).encode()
