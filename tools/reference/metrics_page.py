"""docs/reference/metrics.md: every metric, its labels and what it tells."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as Family
from tools.reference.condition_sites import SOURCE
from tools.reference.markdown import cell, table

from clusterspace.telemetry.flow_metrics import FlowControlCollector

_INTRODUCTION: Final = """\
# Metrics

`/metrics` of the hub and of the fleet API server, and `controllers --metrics-port N`, serve these
in Prometheus' format. Names that Karmada has are Karmada's, so that its dashboards work.
[Alerts](../guides/alerts.md) has rules and a dashboard made of them.

Of each process there are also `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds` and
`process_start_time_seconds`.
"""


@dataclass(frozen=True, slots=True, order=True)
class Metric:
    """One metric, as a program that scrapes it sees it."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


def page() -> str:
    """Return the whole page."""
    rows = [
        (
            f"`{each.name}`",
            each.type,
            ", ".join(f"`{label}`" for label in each.labels),
            cell(each.meaning),
        )
        for each in sorted(set(find_metrics()))
    ]
    return f"{_INTRODUCTION}\n{table(('metric', 'type', 'labels', 'meaning'), rows)}\n"


def find_metrics() -> Iterator[Metric]:
    """Yield the metrics of every module that makes some."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "from prometheus_client" not in path.read_text():
            continue
        module = import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))
        for held in vars(module).values():
            if isinstance(held, MetricWrapperBase):
                yield _described(next(iter(held.describe())), held)
            elif isinstance(held, FlowControlCollector):
                for family in held.describe():
                    yield _described(family, family)


def _described(family: Family, labelled: object) -> Metric:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: tuple[str, ...] = getattr(labelled, "_labelnames")  # noqa: B009 - there is no other way
    return Metric(name, family.type, tuple(labels), family.documentation)
