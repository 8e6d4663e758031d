"""Tasks that run for as long as their process: kept, started again, reported when they fail."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.tasks import Supervisor, Work
from clusterspace.errors import TaskFailed

_log = structlog.get_logger(__name__)

Tasks: TypeAlias = Mapping[str, Work]
"""Works that must never end, by the names they have in logs."""


def keep_all(supervisor: Supervisor, tasks: Tasks) -> None:
    """Keep every one of the tasks; one that fails is started again."""
    for name, work in tasks.items():
        supervisor.keep(name, work, restart=restarts)


def restarts() -> Iterator[float]:
    """Yield the delays before a task that failed is started again."""
    return backoff.exponential(0.5, 30)


def report(failure: TaskFailed) -> None:
    """Tell the log of a task that failed."""
    _log.error("task failed", reason=str(failure), exc_info=failure.__cause__)
