"""A call: one request on its way through the chain, and the chain itself."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from clusterspace.errors import ApiError
from clusterspace.serving.messages import Response
from clusterspace.serving.request_info import RequestInfo
from clusterspace.serving.requests import Request
from clusterspace.serving.users import ANONYMOUS, User

if TYPE_CHECKING:
    from clusterspace.telemetry.metrics import RequestLabels


class Call:
    """One request, what was read from it, and who makes it."""

    __slots__ = (
        "guards",
        "info",
        "labels",
        "on_end",
        "received",
        "request",
        "request_id",
        "user",
        "warnings",
    )

    def __init__(self, request: Request, info: RequestInfo, request_id: str) -> None:
        self.request = request
        self.info = info
        self.request_id = request_id
        self.user: User = ANONYMOUS
        self.warnings: list[str] = []
        self.labels: RequestLabels | None = None
        """What the call is counted as, once it is known to be about something served."""
        self.received = request.headers
        """The headers as they came, with those that the chain takes away."""
        self.guards: list[Guard] = []
        """What else must still hold while a long answer goes on, beyond what the chain asks."""
        self.on_end: Callable[[ApiError], None] | None = None
        """How a long answer says why it ends, where it can."""

    def header(self, name: str) -> str:
        """Return the first value of a request header, or an empty string."""
        return self.request.headers.get(name) or ""

    def end(self, error: ApiError) -> None:
        """End a long answer before its time; one that cannot say why is cut."""
        if self.on_end is not None:
            self.on_end(error)
        else:
            self.request.cut()

    def warn(self, text: str) -> None:
        """Add a Warning header to the answer, once."""
        if text not in self.warnings:
            self.warnings.append(text)


Guard: TypeAlias = Callable[[], Awaitable[object]]
"""Asks whether something still holds; raises Unauthorized or Forbidden when it does not."""

CallHandler: TypeAlias = Callable[[Call], Awaitable[Response | None]]
"""Answers a call; None means that it has streamed or hijacked."""

Step: TypeAlias = Callable[[Call, CallHandler], Awaitable[Response | None]]
"""One link of the chain: does its one thing around the rest."""


def chain(steps: Sequence[Step], handler: CallHandler) -> CallHandler:
    """Put the steps around the handler; the first one listed meets a call first."""
    for step in reversed(steps):
        handler = _linked(step, handler)
    return handler


def _linked(step: Step, rest: CallHandler) -> CallHandler:
    def linked(call: Call) -> Awaitable[Response | None]:
        return step(call, rest)

    return linked
