"""One request on its way through the chain, and what every answer to it has in common."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from clusterspace.aio.lanes import HEAVY, LARGE_OBJECTS, LaneIsFull
from clusterspace.apiserver.http.bodies import BODY_LIMIT, is_large, media_type_of
from clusterspace.apiserver.http.messages import HeaderPairs, Request, Response
from clusterspace.apiserver.http.request_info import JSON, RequestInfo
from clusterspace.apiserver.http.users import ANONYMOUS, User
from clusterspace.errors import (
    ApiError,
)
from clusterspace.kube import statuses

if TYPE_CHECKING:
    from clusterspace.telemetry.metrics import RequestLabels

Result = TypeVar("Result")

_OWN_ANNOTATIONS: Final = "audit.clusterspace.io/"
"""What begins like this tells whether the audit log is whole."""


class RequestContext:
    """One request, what was read from it, and who makes it.

    The URL is read once, into `info`, before the chain begins: what was authorized is what is
    handled. Steps of the chain fill in the rest; hub and gateway hand the same value on to whatever
    answers.
    """

    __slots__ = (
        "_has_turn",
        "annotations",
        "answer_headers",
        "authorization",
        "authorization_reason",
        "cluster",
        "guards",
        "info",
        "is_heavy",
        "labels",
        "new_name",
        "on_end",
        "on_initialized",
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
        self.annotations: dict[str, str] = {}
        """What admission says of the request to those who read the audit log."""
        self.authorization = ""
        """What was decided on it, in the words of an audit event: allow or forbid."""
        self.authorization_reason = ""
        self.cluster = ""
        """The one cluster that a call at the gateway is for, once that is known."""
        self.answer_headers: HeaderPairs = []
        """What the answer says besides what every answer does."""
        self.new_name = ""
        """What the body of a create calls the new object, where the body was read for it."""
        self.labels: RequestLabels | None = None
        """What the request is counted as, once it is known to be about something served."""
        self.received = request.headers
        """The headers as they came, with those that the chain takes away."""
        self.guards: list[Guard] = []
        """What else must still hold while a long answer goes on, beyond what the chain asks."""
        self.on_end: Callable[[ApiError | None], None] | None = None
        """How a long answer says why it ends, where it can."""
        self.on_initialized: Callable[[], None] | None = None
        """Who waits for a long answer to have begun: until then it costs what a list does."""
        self.is_heavy = False
        """Whether its steps may take longer than the event loop should wait for one of them."""
        self._has_turn = False

    def header(self, name: str) -> str:
        """Return the first value of a request header, or an empty string."""
        return self.request.headers.get(name) or ""

    def end(self, error: ApiError | None) -> None:
        """End a long answer before its time, without an error if its client may come again.

        One that cannot say why is cut.
        """
        if self.on_end is not None:
            self.on_end(error)
        else:
            self.request.cut()

    def initialized(self) -> None:
        """Say that a long answer has begun: what there was is sent, and changes are to follow."""
        if self.on_initialized is not None:
            self.on_initialized()

    async def read_body(self) -> bytes:
        """Return the body, and take note when working on it may take long."""
        raw = await self.request.read_body(BODY_LIMIT)
        self.weigh(raw, media_type_of(self.header("content-type")))
        return raw

    def weigh(self, raw: bytes, media_type: str = JSON) -> None:
        """Take note when an object that the request is about makes its steps long ones."""
        self.is_heavy = self.is_heavy or is_large(raw, media_type)

    async def take_turn(self) -> None:
        """Wait, if the request is a heavy one, until it may go on with a large object in hand."""
        if self.is_heavy and not self._has_turn:
            try:
                await LARGE_OBJECTS.take(self.user.name)
            except LaneIsFull as error:
                raise statuses.too_many_requests() from error
            self._has_turn = True

    def end_turn(self) -> None:
        """Let the next one go on: this request is answered."""
        if self._has_turn:
            self._has_turn = False
            LARGE_OBJECTS.give_back()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Carry out one step: at once, or off the event loop when the request is a heavy one.

        The work has no effects but its result, and reads nothing that others change meanwhile.
        """
        return await off_loop(self.user.name, work) if self.is_heavy else work()

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the audit log's line of the request; the first of a key stays.

        Policies and webhooks choose the names of theirs: those the log itself writes are not taken.
        """
        if not key.startswith(_OWN_ANNOTATIONS):
            self.annotations.setdefault(key, value)

    def warn(self, text: str) -> None:
        """Add a Warning header to the answer, once."""
        if text not in self.warnings:
            self.warnings.append(text)


Guard: TypeAlias = Callable[[], Awaitable[object]]
"""Asks whether something still holds; raises Unauthorized or Forbidden when it does not."""


async def off_loop(owner: str, work: Callable[[], Result]) -> Result:
    """Carry out long work beside the event loop, in turns with that of others; 429 when full."""
    try:
        return await HEAVY.run(owner, work)
    except LaneIsFull as error:
        raise statuses.too_many_requests() from error


async def off_loop_if_large(owner: str, raw: bytes, work: Callable[[], Result]) -> Result:
    """Work on one stored object: at once, or beside the event loop when it is a large one."""
    return await off_loop(owner, work) if is_large(raw) else work()


_WARNING_TOTAL: Final = 4096
"""Headers have limits everywhere on the way; kube-apiserver stops at the same size."""

RequestHandler: TypeAlias = Callable[[RequestContext], Awaitable[Response | None]]
"""Answers a request; None means that it has streamed or hijacked."""


def headers_for(context: RequestContext, content_type: str) -> HeaderPairs:
    """Return the headers every answer has."""
    headers = [
        ("Audit-Id", context.request_id),
        ("Cache-Control", "no-cache, private"),
        ("Content-Type", content_type),
    ]
    headers += context.answer_headers
    if context.warnings:
        headers += warning_headers(context.warnings)
    return headers


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Return Warning headers as kubectl shows them, up to a total size."""
    headers: list[tuple[str, str]] = []
    room = _WARNING_TOTAL
    for text in warnings:
        room -= len(text)
        if room < 0:
            break
        clean = "".join(each if each.isprintable() else " " for each in text)
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        headers.append(("Warning", f'299 - "{escaped}"'))
    return headers
