"""One request passed on to another API server, and its answer passed back as the bytes it is.

Neither body is read, but for what is printed: refusals, and Tables. `responses` lists what goes
along: who we are, and who the caller claimed to be, is never among it; and what comes back.
Exec, attach and port-forward leave HTTP, and are carried as a stream of bytes each way.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.apiserver.http.bodies import BODY_LIMIT
from clusterspace.apiserver.http.chain import is_long_running
from clusterspace.apiserver.http.context import RequestContext, off_loop
from clusterspace.apiserver.http.guards import refusal
from clusterspace.apiserver.http.messages import BODILESS_STATUSES, Hijacked, Response
from clusterspace.apiserver.http.request_info import STREAMS, RequestInfo, text_accepted
from clusterspace.apiserver.http.responses import (
    clean_event,
    clean_failure,
    clean_table,
    headers_to_pass,
    headers_to_return,
    is_watch,
    require_encoding,
    require_fit,
    wants_table,
)
from clusterspace.apiserver.http.stream_endings import Ending, ending_of
from clusterspace.client.connection import Connection
from clusterspace.client.requests import (
    Answer,
    AnswerStream,
    ApiRequest,
    Headers,
    Hold,
    failure_of,
    unreadable,
)
from clusterspace.client.upgrades import PROTOCOLS, Tunnel, open_tunnel
from clusterspace.client.watch import LineSplitter
from clusterspace.errors import (
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    CredentialsUnusable,
    Unauthorized,
)
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import UNREADABLE

UNKNOWN_THERE: Final = "does not accept the credentials that the hub holds for it"
"""What is wrong when a cluster answers 401."""

_HEAD_SECONDS: Final = 60.0
_LONG_SECONDS: Final = 24 * 3600.0
"""A log that is followed may say its first word tomorrow, and no header comes before that."""
_SHORT_BYTES: Final = 256 * 1024
_ERROR_BYTES: Final = 1024 * 1024
_TABLE_BYTES: Final = 16 * 1024 * 1024
"""A Table is read before it is passed on: 25,000 rows of 600 bytes, where clients ask for 500."""

_GRANTED: Final = (
    "upgrade",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
)
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REVIEW_BYTES: Final = 64 * 1024
_SWITCH_SECONDS: Final = 30.0
_LAST_WORDS_SECONDS: Final = 10.0
"""What a client sent before it left is still delivered, but not to a program that never reads."""
_CUT_SECONDS: Final = 0.5
"""How long a client has to take the news that its stream is cut."""
_READ_SIZE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Passage:
    """Where a request goes, and the headers that say as whom."""

    connection: Connection
    target: str
    """Path and query, encoded."""
    identity: Headers
    is_hub: bool = False
    """Whether the control plane is at the far end: what it says is said in our own name."""
    hold: Hold | None = None
    """What an answer is counted in that is read before it is passed on."""

    @property
    def cluster(self) -> str:
        """Who answers."""
        return self.connection.cluster

    @property
    def speaker(self) -> str:
        """Who warnings of the answer are said to be from; nobody, when it is the hub."""
        return "" if self.is_hub else self.cluster


async def relay(context: RequestContext, passage: Passage) -> Response | None:
    """Ask the target what the request asks and answer what it answers, as it comes."""
    body = await context.request.read_body(BODY_LIMIT)
    headers = headers_to_pass(context.request.headers.pairs)
    if is_watch(context) and not passage.is_hub:
        # Its events are looked into, line by line: as protobuf they have no lines.
        accept = text_accepted(context.header("accept"))
        headers = (*(pair for pair in headers if pair[0] != "accept"), ("accept", accept))
    if not any(name == "accept-encoding" for name, _ in headers):
        # Plain bytes, on behalf of a client that does not say it can unpack others.
        headers = (*headers, ("accept-encoding", "identity"))
    request = ApiRequest(
        context.info.method,
        passage.target,
        headers=(*headers, *passage.identity),
        body=body or None,
        seconds=_LONG_SECONDS if _may_take_long(context) else _HEAD_SECONDS,
    )
    async with AsyncExitStack() as stack:
        answer = await _open_in_time(stack, context, passage.connection, request)
        require_fit(context, passage.cluster, answer.status)
        if is_short(answer):
            return await _whole(context, passage, answer)
        is_whole = context.info.method != "HEAD" and not is_watch(context)
        if is_whole and wants_table(context) and not passage.is_hub:
            whole = await answer.read(_TABLE_BYTES, passage.hold)
            # A long one takes a second, cell by cell: beside the loop, which goes on meanwhile.
            context.weigh(whole.body)
            body = await context.run(lambda: clean_table(passage.cluster, whole.body))
            headers = headers_to_return(context, whole.headers, passage.speaker, is_unpacked=True)
            return Response(whole.status, headers, body)
        await pass_back(context, passage, answer)
        return None


def is_short(answer: AnswerStream) -> bool:
    """Whether an answer can be held in memory without a second thought."""
    if answer.status >= 400 or answer.status in BODILESS_STATUSES:
        return True
    length = answer.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= _SHORT_BYTES


async def pass_back(context: RequestContext, passage: Passage, answer: AnswerStream) -> None:
    """Send an answer on, bit by bit; one that breaks off is cut where it broke, not ended."""
    require_encoding(passage.cluster, answer.headers)
    headers = headers_to_return(context, answer.headers, passage.speaker)
    stream = context.request.start_stream(answer.status, headers)
    context.initialized()
    if _may_take_long(context):
        stream.be_patient()
    pieces = answer.chunks()
    if is_watch(context) and not passage.is_hub:
        pieces = _printable_lines(context, passage.cluster, answer)
    try:
        async for piece in pieces:
            stream.write(piece)
            await stream.drain()
    except ClusterError:
        await stream.cut()
        return
    stream.end()


async def _printable_lines(
    context: RequestContext, cluster: str, answer: AnswerStream
) -> AsyncIterator[bytes]:
    """Yield the events of a watch; packed ones cannot be looked into, and are refused."""
    if "content-encoding" in answer.headers:
        raise ClusterMisbehaved(cluster, "sent a watch in an encoding nobody asked for", code=200)
    splitter = LineSplitter()
    async for chunk in answer.chunks():
        try:
            lines = splitter.feed(chunk)
        except ValueError as error:
            raise ClusterMisbehaved(cluster, f"sent {error}") from error
        if lines:
            yield await _clean_lines(context, cluster, lines)
    if splitter.rest_bytes:
        raise ClusterMisbehaved(cluster, "the watch ended in the middle of an event")


async def _clean_lines(context: RequestContext, cluster: str, lines: Sequence[bytes]) -> bytes:
    has_rows = wants_table(context)

    def clean() -> bytes:
        cleaned = (clean_event(cluster, line, has_rows=has_rows) for line in lines if line.strip())
        return b"".join(line + b"\n" for line in cleaned)

    # Events are small; one that is not, or a thousand that came together, may take a while.
    is_long = sum(map(len, lines)) > _SHORT_BYTES
    return await off_loop(context.user.name, clean) if is_long else clean()


def _may_take_long(context: RequestContext) -> bool:
    """Whether it is for the two ends to say how long an answer takes: logs, and what is proxied."""
    return is_long_running(context) and not context.info.is_watch


async def _open_in_time(
    stack: AsyncExitStack, context: RequestContext, connection: Connection, request: ApiRequest
) -> AnswerStream:
    """Open an answer; one that may take long is in time for as long as the client waits for it."""
    if not _may_take_long(context):
        return await connection.open(stack, request)
    # There is no deadline, and still an end: the timeout is set to now when the client goes, which
    # cancels the opening and nothing else. The task that waits for that is cancelled as soon as
    # there is an answer; whoever streams it sees the client go by itself.
    outcome: AnswerStream | ClusterError
    try:
        async with asyncio.timeout(None) as waiting, asyncio.TaskGroup() as group:

            async def expire_when_gone() -> None:
                await context.request.wait_disconnected()
                waiting.reschedule(asyncio.get_running_loop().time())

            leaving = group.create_task(expire_when_gone(), name="client leaves")
            try:
                outcome = await connection.open(stack, request)
            except ClusterError as error:
                outcome = error  # a value: out of a group of tasks it would be a group of errors
            leaving.cancel()
    except TimeoutError as error:
        raise statuses.timed_out("the client did not wait for the answer") from error
    if isinstance(outcome, ClusterError):
        raise outcome
    return outcome


async def _whole(context: RequestContext, passage: Passage, answer: AnswerStream) -> Response:
    if context.info.method == "HEAD" or answer.status in BODILESS_STATUSES:
        headers = headers_to_return(context, answer.headers, passage.speaker)
        return Response(answer.status, headers)
    whole = await answer.read(max(_SHORT_BYTES, _ERROR_BYTES), passage.hold)
    refuse_stranger(passage.cluster, whole)
    body = whole.body
    context.weigh(body)
    if whole.status >= 400:
        media_type = whole.headers.get("content-type", "")
        body = await context.run(lambda: clean_failure(whole.body, media_type))
    elif is_watch(context) and not passage.is_hub:
        body = await _clean_lines(context, passage.cluster, body.split(b"\n"))
    elif wants_table(context) and not passage.is_hub:
        body = await context.run(lambda: clean_table(passage.cluster, whole.body))
    headers = headers_to_return(context, whole.headers, passage.speaker, is_unpacked=True)
    return Response(whole.status, headers, body)


def refuse_stranger(cluster: str, answer: Answer) -> None:
    """Raise when a cluster does not know us: its 401 is not about the client, who would think so.

    What runs in a cluster and is reached through it has a 401 of its own, which may pass.
    """
    if answer.status == 401 and isinstance(failure_of(cluster, answer), Unauthorized):
        raise CredentialsUnusable(cluster, UNKNOWN_THERE)


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus | None = None


async def tunnel(context: RequestContext, passage: Passage, inner: RequestInfo) -> None:
    """Have the target switch protocols, then carry bytes both ways until one end is done.

    `inner` is the request as the target will read it.
    """
    asked = context.header("upgrade").lower()
    protocol = next((each for each in PROTOCOLS if each.lower() == asked), None)
    if protocol is None:
        spoken = " and ".join(PROTOCOLS)
        raise BadRequest(f"unable to upgrade: {asked[:64]!r} is not supported, {spoken} are")
    await _require_create(context, passage, inner)
    request = ApiRequest(
        context.info.method,
        passage.target,
        headers=(*headers_to_pass(context.request.headers.pairs), *passage.identity),
        seconds=_SWITCH_SECONDS,
    )
    async with AsyncExitStack() as stack:
        try:
            opening = open_tunnel(passage.connection, request, protocol)
            far = await stack.enter_async_context(opening)
        except Unauthorized as error:
            # It is us that the cluster does not know, not the client.
            raise CredentialsUnusable(passage.cluster, UNKNOWN_THERE) from error
        head = _switching(passage.cluster, far.headers)
        # From here on there is no HTTP answer any more: whatever fails cuts the connection.
        version = far.headers.get(
            "x-stream-protocol-version", far.headers.get("sec-websocket-protocol", "")
        )
        is_command = inner.resource == "pods" and inner.subresource in ("exec", "attach")
        near = context.request.hijack()
        near.write(head)
        ending = ending_of(protocol, version, is_command=is_command)
        await _carry(context, near, far, ending, passage.cluster)


async def _require_create(context: RequestContext, passage: Passage, inner: RequestInfo) -> None:
    """Refuse a shell to whoever may only read.

    WebSockets begin with a GET, so to API servers before 1.35 the right to get `pods/exec` is all
    it takes. Later ones ask for the right to create it; here that holds for all of them.
    """
    if inner.resource != "pods" or inner.subresource not in STREAMS or inner.method == "POST":
        return
    attributes = {
        "verb": inner.verb,
        "group": inner.group,
        "version": inner.version,
        "resource": inner.resource,
        "subresource": inner.subresource,
        "namespace": inner.namespace,
        "name": inner.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    request = ApiRequest(
        "POST",
        _REVIEWS,
        headers=(("Content-Type", "application/json"), *passage.identity),
        body=msgspec.json.encode(review),
    )
    # Asked once: somebody waits for a shell, and would rather hear that there is nobody.
    async with passage.connection.stream(request) as reviewing:
        answer = await reviewing.read(_REVIEW_BYTES)
    refuse_stranger(passage.cluster, answer)
    if failure := failure_of(passage.cluster, answer):
        raise failure
    try:
        status = msgspec.json.decode(answer.body, type=_Review).status
    except UNREADABLE as error:
        raise unreadable(passage.cluster, "its review cannot be read", error) from error
    if status is None or not status.allowed:
        raise refusal(context.user, inner)


def _switching(cluster: str, granted: Mapping[str, str]) -> bytes:
    """Return the head that tells the client of the switch, in words that cannot end a line."""
    for name in _GRANTED:
        value = granted.get(name, "")
        if not (value.isascii() and value.isprintable()):
            raise ClusterMisbehaved(cluster, f"switched protocols with a broken {name}", code=101)
    lines = [f"{name}: {granted[name]}" for name in _GRANTED if name in granted]
    head = ("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", *lines, "", "")
    return "\r\n".join(head).encode("latin-1")


async def _carry(
    context: RequestContext, near: Hijacked, far: Tunnel, ending: Ending, cluster: str
) -> None:
    """Carry bytes until the cluster is done, or the client is gone and its last words are said.

        the cluster ends                        `down` ends; what the client still says is dropped
        the cluster breaks off                  the same, and the client is told: see `Ending`
        the client ends its half (stdin)        `up` ends and ends the cluster's; `down` goes on
        the client goes                         `up` delivers what it has read, while it is taken
        we end it: rights were taken away       the client is told that this was no end

    Over TLS a client that ends its half cannot be told from one that has gone: `gone` is first.
    """
    delivered = 0
    is_whole = False

    async def carry_up() -> None:
        nonlocal delivered
        with suppress(OSError):  # the cluster is gone; what it said before, `down` still reads
            while content := await near.reader.read(_READ_SIZE):
                ending.note_sent(content)
                await far.write(content)
                delivered += len(content)
            far.end()

    async def carry_down() -> None:
        nonlocal is_whole
        try:
            while content := await far.read(_READ_SIZE):
                near.write(ending.pass_on(content))
                await near.drain()
            is_whole = ending.is_complete
        except OSError:
            return  # one of the two broke off; if it is the client, there is nobody to tell

    try:
        async with asyncio.TaskGroup() as group:
            up = group.create_task(carry_up(), name="client to cluster")
            down = group.create_task(carry_down(), name="cluster to client")
            gone = group.create_task(context.request.wait_disconnected(), name="client leaves")
            await asyncio.wait((up, down, gone), return_when=asyncio.FIRST_COMPLETED)
            # A client that has said all it will may still listen.
            await asyncio.wait((down, gone), return_when=asyncio.FIRST_COMPLETED)
            if not down.done():
                before = -1
                while not up.done() and delivered != before:
                    before = delivered
                    await asyncio.wait((up,), timeout=_LAST_WORDS_SECONDS)
            for each in (up, down, gone):
                each.cancel()
    except asyncio.CancelledError:
        near.write(ending.last_words("the stream was ended here before the command ended"))
        with suppress(TimeoutError):
            async with asyncio.timeout(_CUT_SECONDS):
                await near.flush()
        raise
    if not near.is_connected:
        return
    if not is_whole:
        why = f"cluster {cluster} broke the stream off before it said how the command ended"
        near.write(ending.last_words(why))
    await near.flush()
    if not ending.is_complete:
        near.abort()
