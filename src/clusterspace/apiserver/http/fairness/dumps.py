"""What is going on in the levels, as kube-apiserver shows it to who may read these paths.

    /debug/api_priority_and_fairness/dump_priority_levels
    /debug/api_priority_and_fairness/dump_queues
    /debug/api_priority_and_fairness/dump_requests[?includeRequestDetails=1]

Rows of values with commas, in columns that line up; the names of columns are Kubernetes'.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.fairness.controller import FlowController
from clusterspace.apiserver.http.fairness.fair_queues import FairQueues, Ticket
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import text_response
from clusterspace.kube import plain_text
from clusterspace.kube.times import format_micro_time

_ROOT: Final = "/debug/api_priority_and_fairness/"
_LEVEL_COLUMNS: Final = (
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
)
_QUEUE_COLUMNS: Final = (
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
)
_REQUEST_COLUMNS: Final = (
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",  # sic
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
    "StartTime",
)
_DETAIL_COLUMNS: Final = (
    "UserName",
    "Verb",
    "APIPath",
    "Namespace",
    "Name",
    "APIVersion",
    "Resource",
    "SubResource",
)
_NEVER: Final = "0001-01-01T00:00:00Z"
_LONGEST: Final = 253


class FlowDumps:
    """Answers the three paths."""

    def __init__(self, controller: FlowController, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock

    def answer(self, context: RequestContext) -> Response | None:
        """Return the dump that is asked for; None for any other path."""
        path = context.info.path
        if not path.startswith(_ROOT):
            return None
        what = path.removeprefix(_ROOT)
        if what == "dump_priority_levels":
            return text_response(context, 200, _table(_LEVEL_COLUMNS, self._levels()))
        if what == "dump_queues":
            return text_response(context, 200, _table(_QUEUE_COLUMNS, self._queues()))
        if what == "dump_requests":
            in_detail = bool(context.info.query.get("includeRequestDetails"))
            columns = (*_REQUEST_COLUMNS, *(_DETAIL_COLUMNS if in_detail else ()))
            return text_response(context, 200, _table(columns, self._requests(in_detail=in_detail)))
        return None

    def _levels(self) -> Iterator[Sequence[object]]:
        for name, level in sorted(self._controller.levels.items()):
            queues = level.queues
            active = sum(bool(each.waiting) for each in queues.queues.values())
            yield (
                *(name, active, _shown(queues.is_idle), _shown(level.is_leaving)),
                *(queues.waiting, queues.executing, queues.dispatched, queues.rejected),
                *(queues.timed_out, queues.cancelled),
            )

    def _queues(self) -> Iterator[Sequence[object]]:
        for name, level in sorted(self._controller.levels.items()):
            for index, queue in sorted(level.queues.queues.items()):
                widths = [ticket.width for ticket in queue.waiting]
                yield (
                    *(name, index, len(queue.waiting), len(queue.executing), queue.seats),
                    f"{queue.waiting[0].flow.next_r if queue.waiting else 0.0:.8f}ss",
                    sum(width.seats for width in widths),
                    sum(width.most for width in widths),
                    f"{queue.work:.8f}ss",
                )

    def _requests(self, *, in_detail: bool) -> Iterator[Sequence[object]]:
        offset = self._clock.now() - self._clock.monotonic()
        for name, level in sorted(self._controller.levels.items()):
            for queue, position, ticket in _tickets(level.queues):
                width = ticket.width
                began = format_micro_time(ticket.began + offset) if ticket.has_begun else _NEVER
                row: list[object] = [
                    *(name, ticket.flow.tally.schema, queue, position, ticket.flow.distinguisher),
                    format_micro_time(ticket.arrived + offset),
                    *(width.seats, width.final_seats, f"{width.final_seconds:g}s", began),
                ]
                context = ticket.description
                if in_detail and isinstance(context, RequestContext):
                    info = context.info
                    version = f"{info.group}/{info.version}" if info.group else info.version
                    row += (context.user.name, info.verb, info.path, info.namespace, info.name)
                    row += (version, info.resource, info.subresource)
                yield row


def _tickets(queues: FairQueues) -> Iterator[tuple[int, int, Ticket]]:
    """Yield requests with their queue and their place in it; -1 for what has neither."""
    for index, queue in sorted(queues.queues.items()):
        yield from ((index, place, ticket) for place, ticket in enumerate(queue.waiting))
        yield from ((index, -1, ticket) for ticket in queue.executing)
    yield from ((-1, -1, ticket) for ticket in queues.without_queue)


def _shown(value: bool) -> str:
    return str(value).lower()


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    # What users are called and what they ask for is theirs to choose: it must not look like a row.
    cells = [
        list(columns),
        *([plain_text.line(str(each), _LONGEST) for each in row] for row in rows),
    ]
    widths = [max(len(row[at]) for row in cells if at < len(row)) + 2 for at in range(len(columns))]
    lines = (
        " ".join(
            [f"{value},".ljust(width) for value, width in zip(row[:-1], widths, strict=False)]
            + row[-1:]
        )
        for row in cells
    )
    return "\n".join(lines) + "\n"
