"""One HTTP/1.1 connection: reads a request, runs its handler, writes the answer, and again.

    AWAITING ──head──> SERVING ──answered──> AWAITING
        │                 ├──answered, and nothing may follow──> CLOSING
        └──refused────────┴──answered, with input on its way───> LINGERING ──> CLOSING

While serving, a handler may start a stream (chunks until it ends, then as above) or hijack the
connection (no HTTP any more, then CLOSING).

What happens when the client goes away: a stream's handler is cancelled, since only the client
wanted it. A handler that works on an ordinary answer goes on, because half a write helps nobody,
and its answer is dropped. A handler that hijacked goes on too, to deliver what it holds; it sees
the end of its reader.
"""

import asyncio
import enum
import math
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import structlog

from clusterspace.aio.slices import SLICE_BYTES, Slices
from clusterspace.apiserver.http.connections import Site
from clusterspace.apiserver.http.messages import (
    HeaderPairs,
    Hijacked,
    Request,
    RequestHead,
    Response,
    Stream,
    answer_failure,
    encode_head,
    encode_response,
    refusal,
)
from clusterspace.apiserver.http.request_reader import RequestReader
from clusterspace.errors import ApiError, HttpViolation

_log = structlog.get_logger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"Connection: close\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_HIJACK_BUFFER = 64 * 1024
_HUNG_UP = frozenset({7, 8})
"""States of a connection whose peer has closed: CLOSE, CLOSE_WAIT in <netinet/tcp.h>."""


# -- the outgoing half -----------------------------------------------------------------------------

UNTAKEN_MILLISECONDS: Final = 60_000
"""How long the kernel keeps trying to get rid of bytes; a peer that takes none counts as gone."""

_FLUSH_SECONDS: Final = (0.001, 0.05)
"""Between two looks whether a buffer is empty, at first and at most."""


# Nothing here waits for a peer unless it says so (`drain`, `send`). The transport buffers without
# bound, so whoever writes without waiting looks at `buffered`: a watch ends its stream when too
# much is unread. Who neither waits nor looks is cut by `is_stalled`, when not one byte has left a
# full buffer for `stall_seconds`. A peer that is allowed to stop reading (`be_patient`: a pager
# with an hour of log on the screen) is not cut, and its writer must wait.
class ResponseWriter:
    """Counts what goes into a transport, so that a peer which takes nothing can be noticed."""

    __slots__ = (
        "_clock",
        "_flushed",
        "_is_lost",
        "_is_patient",
        "_stall_seconds",
        "_stalls_at",
        "_transport",
        "_writable",
        "_written",
    )

    def __init__(self, transport: asyncio.Transport, site: Site) -> None:
        self._transport = transport
        self._clock = site.clock
        self._stall_seconds = site.limits.write_stall_seconds
        self._stalls_at = math.inf
        self._written = 0
        self._flushed = 0
        self._is_lost = False
        self._is_patient = False
        self._writable: asyncio.Event | None = None

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        return 0 if self._is_lost else self._transport.get_write_buffer_size()

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes, or buffer them; nothing happens when the peer has gone."""
        if not self._transport.is_closing():
            self._written += len(data)
            self._transport.write(data)

    async def send(self, pieces: Sequence[bytes], slices: Slices, owner: str) -> None:
        """Send pieces in order, as fast as the peer takes them; stop when it has gone."""
        # TLS encrypts all it gets before it looks whether the peer keeps up: a large answer in one
        # write would be held twice, hidden from `buffered`, and everybody else would wait for it.
        is_first = True
        for batch in batches(pieces, SLICE_BYTES):
            if not is_first:
                await slices.next(owner)
            is_first = False
            if self._is_lost:
                return
            # `_writable` is there exactly while the transport says its buffer is full. It is a new
            # event each time: one that was set before would let everybody through at once.
            if self._writable is not None:
                await self._writable.wait()
            self.write(batch)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        if self._writable is not None:
            await self._writable.wait()
        if self._is_lost:
            raise ConnectionResetError("the peer has gone")

    async def flush(self) -> None:
        """Wait until the kernel has taken everything; return as well when the peer has gone.

        Whoever closes TLS gives the peer a few seconds to say goodbye, after which what is left in
        our buffers is dropped: nothing may be left in them.
        """
        wait = _FLUSH_SECONDS[0]
        while self.buffered:
            # No loop tells when the last byte has left, only when there is room for more.
            if self._stalls_at == math.inf and not self._is_patient:
                self.expect_progress()
            await asyncio.sleep(wait)
            wait = min(wait * 2, _FLUSH_SECONDS[1])

    def pause(self) -> None:
        """Take the transport's word that its buffer is full."""
        if self._writable is None:
            self._writable = asyncio.Event()
        if not self._is_patient:
            self.expect_progress()

    def set_patience(self, *, is_patient: bool) -> None:
        """Wait, or no longer wait, for a peer that has stopped reading but is still there."""
        if is_patient is self._is_patient:
            return
        # The kernel has a limit of its own for bytes that nobody acknowledges. A peer that is
        # there but does not read acknowledges with a closed window, which counts against the
        # same limit; so being patient means to lift that one too. One that has gone without a
        # word is then found by the kernel's retries, which take a quarter of an hour.
        self._is_patient = is_patient
        connected = self._transport.get_extra_info("socket")
        if connected is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            limit = 0 if is_patient else UNTAKEN_MILLISECONDS
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)

    def resume(self) -> None:
        """Take the transport's word that there is room again."""
        self._stalls_at = math.inf
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def lose(self) -> None:
        """Take the transport's word that the connection has gone."""
        # Lost first: whoever waits in `drain` is woken by `resume` and must see why.
        self._is_lost = True
        self.resume()

    def expect_progress(self) -> None:
        """From now on bytes must leave the buffer, or the peer counts as stalled."""
        self._flushed = self._written - self.buffered
        self._stalls_at = self._clock.monotonic() + self._stall_seconds

    def is_stalled(self, now: float) -> bool:
        """Whether nothing has left the buffer for too long; asking again later is expected."""
        if now < self._stalls_at:
            return False
        # Bytes that left, not bytes that are left: a writer that fills the buffer as fast as the
        # peer empties it keeps it full, and that peer is fine.
        if self._written - self.buffered > self._flushed:
            self.expect_progress()
            return False
        return True


def batches(pieces: Sequence[bytes], size: int) -> Iterator[bytes | memoryview]:
    """Join small pieces and cut large ones, so that each batch has about `size` bytes.

    >>> [bytes(each) for each in batches([b"ab", b"c", b"defghij"], 4)]
    [b'abc', b'defg', b'hij']
    """
    waiting: list[bytes] = []
    waiting_bytes = 0
    for piece in pieces:
        if waiting_bytes and waiting_bytes + len(piece) > size:
            yield b"".join(waiting)
            waiting, waiting_bytes = [], 0
        if len(piece) > size:
            whole = memoryview(piece)
            yield from (whole[start : start + size] for start in range(0, len(piece), size))
        else:
            waiting.append(piece)
            waiting_bytes += len(piece)
    if waiting_bytes:
        yield b"".join(waiting)


# -- both halves -----------------------------------------------------------------------------------


class Mode(enum.Enum):
    """Where a connection is in its life; the module's picture shows the ways between."""

    AWAITING = enum.auto()
    SERVING = enum.auto()
    LINGERING = enum.auto()
    CLOSING = enum.auto()


# Two things run on one connection: callbacks of the transport and the server (`data_received`,
# `connection_lost`, `sweep`), which never wait, and one task that serves the current request. They
# meet in `_mode`, and only one of them may leave a mode:
#
#     AWAITING    the callbacks: a head has arrived, the time is up, the server drains
#     SERVING     the task, in `_finish`; callbacks feed it, and cancel it if it carries a stream
#     LINGERING   the callbacks: the client closed, or the time is up
#     CLOSING     nobody: the transport calls `connection_lost`
#
# `abort` is the exception: whoever calls it, the connection is over, and the task finds out at its
# next write or wait. A request that is complete is read no further than its last byte, so the next
# one is begun only by the task that has answered this one: answers cannot overtake each other.
class Connection(asyncio.Protocol):
    """The state of one connection; `Request`, `Stream` and `Hijacked` are views of it."""

    __slots__ = (
        "_closes",
        "_deadline",
        "_disconnected",
        "_has_lingering_place",
        "_head",
        "_head_has_begun",
        "_loop",
        "_mode",
        "_owes_continue",
        "_reader",
        "_requests",
        "_site",
        "_stream",
        "_task",
        "_transport",
        "_writer",
        "is_connected",
        "memory",
        "peer_address",
        "peer_certificate",
    )

    _transport: asyncio.Transport
    _requests: RequestReader
    _writer: ResponseWriter
    _head: RequestHead

    def __init__(self, site: Site, loop: asyncio.AbstractEventLoop) -> None:
        self._site = site
        self._loop = loop
        self._mode = Mode.AWAITING
        self._head_has_begun = True
        self._owes_continue = False
        self._has_lingering_place = False
        self._closes = False
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._reader: asyncio.StreamReader | None = None
        self._disconnected: asyncio.Event | None = None
        self._deadline = math.inf
        self.is_connected = False
        self.memory: dict[str, Any] = {}
        self.peer_address = ""
        self.peer_certificate: bytes | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: from here on the first request must come in time."""
        self._transport = cast("asyncio.Transport", transport)
        self._requests = RequestReader(self._transport, self._site.limits)
        self._writer = ResponseWriter(self._transport, self._site)
        peer = transport.get_extra_info("peername")
        self.peer_address = str(peer[0]) if peer else ""
        tls = transport.get_extra_info("ssl_object")
        self.peer_certificate = tls.getpeercert(binary_form=True) if tls else None
        self.is_connected = True
        self._set_deadline(self._site.limits.header_seconds)
        self._site.arriving.discard(self)
        self._site.connections.add(self)
        if self.peer_certificate is not None:
            # TLS has checked who signed it. What it may do, and whether it still counts, is asked
            # for every request; a flood of strangers cannot have one.
            self.trust()
        self._site.observer.connection_opened()
        if self._site.is_draining:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: let everybody know who still works on it."""
        self._deadline = math.inf
        self._writer.lose()
        self._note_disconnected()
        self._requests.release()
        if self._reader is not None:
            self._reader.feed_eof()
        if self._task is not None:
            # The handler may be in the middle of a write to the store: it ends by itself, and a
            # drain of the server waits for it.
            self._site.adopt(self._task)
        self._stop_lingering()
        self._site.connections.discard(self)
        self._site.arrivals.leave(self, self._site.clock.monotonic())
        self._site.observer.connection_closed()
        self._site.changed.set()

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and go as far with it as possible."""
        mode = self._mode
        if mode is Mode.AWAITING:
            self._read_head(data)
        elif self._reader is not None:
            self._reader.feed_data(data)
        elif mode is Mode.SERVING:
            self._requests.receive(data)
            self._requests.read_body()

    def eof_received(self) -> bool:
        """Take the end of the client's half; a request that is complete still gets its answer."""
        if self._reader is not None:
            self._reader.feed_eof()
        elif self._mode is Mode.AWAITING and self._requests.has_unread:
            self._refuse(HttpViolation(400, "the request ended before its headers did"))
            self._close()
        elif self._mode is Mode.SERVING:
            # It may have closed both halves: TCP shows the difference only when we write.
            self._note_disconnected()
        else:
            return False
        # TLS has no half-open connections, and asyncio warns when asked for one.
        return self._transport.can_write_eof()

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""
        self._writer.pause()

    def resume_writing(self) -> None:
        """Note that the write buffer has room again."""
        self._writer.resume()

    def _note_disconnected(self) -> None:
        self.is_connected = False
        if self._disconnected is not None:
            self._disconnected.set()
        if self._requests.body.is_expected:
            left = HttpViolation(400, "the client left before its body was complete")
            self._requests.end_body(left)
        if self._stream is not None and self._task is not None:
            self._task.cancel()

    # The server's side

    @property
    def is_long_running(self) -> bool:
        """Whether it carries a stream or has been hijacked."""
        return self._stream is not None or self._reader is not None

    def sweep(self, now: float) -> None:
        """Act on what is overdue."""
        requests = self._requests
        if self._writer.is_stalled(now):
            self._site.observer.connection_stalled()
            self.abort()
            return
        if self._reader is not None and self.is_connected and self._has_hung_up():
            self._note_disconnected()
        if now < self._deadline:
            return
        # Every deadline acts once; whoever goes on sets the next.
        self._deadline = math.inf
        if self._mode is Mode.AWAITING and requests.has_unread:
            self._refuse(HttpViolation(408, "the request headers took too long to arrive"))
        elif self._mode is Mode.LINGERING and requests.is_paused:
            self.abort()  # closing in good order would read what we left unread
        elif self._mode is not Mode.SERVING:
            self._close()
        elif requests.body.is_expected and requests.body_is_slow():
            requests.body.fail(HttpViolation(408, "the request body took too long to arrive"))
        elif requests.body.is_expected:
            self._set_deadline(self._site.limits.body_window_seconds)

    def _has_hung_up(self) -> bool:
        """Whether the client of a hijacked connection left while nobody reads what it sent.

        Its end stands behind that, unread, and would be noticed only with it. Over plain TCP it
        may have ended its half and listen.
        """
        if self._transport.is_reading() or self._transport.can_write_eof():
            return False
        connected = self._transport.get_extra_info("socket")
        if connected is None or not hasattr(socket, "TCP_INFO"):
            return False
        with suppress(OSError):
            return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _HUNG_UP
        return True

    def trust(self) -> None:
        """Take the client for somebody we know; strangers cannot push it out any more."""
        if not self._requests.is_trusted:
            self._requests.is_trusted = True
            self._site.arrivals.trust(self, self._site.clock.monotonic())

    def start_draining(self) -> None:
        """Leave now if idle; otherwise the answer in progress is the last one."""
        if self._mode is Mode.AWAITING and not self._requests.has_unread:
            self._close()

    def cancel(self) -> None:
        """End the handler and cut the connection."""
        if self._task is not None:
            self._task.cancel()
        if self._task is None or self._reader is None:
            self.abort()
        # Who hijacked has a moment to tell the client that this is no end; `_serve` cuts then.

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self._site.clock.monotonic() + seconds

    # Reading requests

    def _read_head(self, arrived: bytes = b"") -> None:
        try:
            head = self._requests.read_head(arrived)
        except HttpViolation as violation:
            self._refuse(violation)
            return
        if head is None:
            if not self._head_has_begun:
                # The idle time ends with the first byte, and the time for the headers begins.
                self._head_has_begun = True
                self._set_deadline(self._site.limits.header_seconds)
            return
        self._mode = Mode.SERVING
        self._deadline = math.inf
        self._head = head
        self._owes_continue = head.expects_continue
        request = Request(head, self._requests.body, self)
        self._task = self._loop.create_task(self._serve(request), name="http request")

    # What requests, streams and hijacks use

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        return self._writer.buffered

    def write(self, data: bytes) -> None:
        """Send bytes, or buffer them; nothing happens when the peer has gone."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        await self._writer.drain()

    async def flush(self) -> None:
        """Wait until everything written has been taken, or the peer has gone."""
        await self._writer.flush()

    def be_patient(self) -> None:
        """Do not cut a peer that stops reading, for as long as it is there."""
        self._writer.set_patience(is_patient=True)

    def half_close(self) -> None:
        """Send the end of our half, where the transport can."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def abort(self) -> None:
        """Cut the connection and drop what is buffered."""
        self._stop_lingering()
        self._mode = Mode.CLOSING
        self._transport.abort()

    async def wait_disconnected(self) -> None:
        """Wait until the peer has gone."""
        if self.is_connected:
            if self._disconnected is None:
                self._disconnected = asyncio.Event()
            await self._disconnected.wait()

    async def next_slice(self, owner: str) -> None:
        """Wait for the next slice of the loop's time that is for this owner."""
        await self._site.slices.next(owner)

    def want_body(self) -> None:
        """Let the body come: a handler is waiting for it."""
        if self._owes_continue and not self._requests.body.arrived:
            self._writer.write(_CONTINUE)
        self._owes_continue = False
        self._set_deadline(self._site.limits.body_window_seconds)
        self._requests.regulate()

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Send the headers of a chunked answer."""
        self._check_unanswered()
        if self._head.version == "1.0":
            raise HttpViolation(505, "a stream needs HTTP/1.1")
        framing = self._site.date_line + self._connection_line() + _CHUNKED
        self._writer.write(encode_head(status, headers, framing))
        self._stream = Stream(self, has_body=self._head.method != "HEAD")
        self._site.changed.set()
        # A client that left before the stream began was no reason to cancel then; now it is.
        if not self.is_connected and self._task is not None:
            self._task.cancel()
        return self._stream

    def hijack(self, *, is_patient: bool = True) -> Hijacked:
        """Leave HTTP."""
        self._check_unanswered()
        if not self._head.is_upgrade:
            raise RuntimeError("only an upgrade request can be hijacked")
        reader = asyncio.StreamReader(limit=_HIJACK_BUFFER)
        reader.set_transport(self._transport)
        # What the client sent behind its request is the reader's now, and so is all that follows:
        # `data_received` looks at `_reader` first. No await in between, so no byte is lost.
        reader.feed_data(self._requests.take_unread())
        if not self.is_connected:
            reader.feed_eof()
        self._reader = reader
        self._closes = True
        if is_patient:
            self.be_patient()
        self._site.changed.set()
        return Hijacked(self, reader)

    def _check_unanswered(self) -> None:
        if self.is_long_running:
            raise RuntimeError("the request has already been answered")

    # Answering

    async def _serve(self, request: Request) -> None:
        try:
            try:
                handler = self._site.upgrades if request.is_upgrade else self._site.handler
                response = await handler(request)
                pieces = self._encode(response)
            except Exception as error:  # noqa: BLE001 - the edge: whatever it is, one answer, one log line
                # Logged is what is our fault: not a refusal, and not a client that hung up.
                hung_up = isinstance(error, ConnectionError) and not self.is_connected
                if not isinstance(error, ApiError) and not hung_up:
                    _log.error(
                        "handler failed", method=request.method, path=request.path, exc_info=error
                    )
                pieces = self._encode(answer_failure(error))
            await self._writer.send(pieces, self._site.slices, request.owner)
            await self._finish()
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception as error:  # noqa: BLE001 - the answer to a failure failed: cut, do not hang
            _log.error("answer failed", path=request.path, exc_info=error)
            self.abort()
        finally:
            # However it ended: sent and drained, cut, or cancelled on the way.
            request.end_answer()

    def _encode(self, response: Response | None) -> Sequence[bytes]:
        if self.is_long_running:
            # An error that comes too late to be an answer ends a stream visibly in the middle.
            if response is not None:
                self.abort()
            elif self._stream is not None:
                self._stream.end()
            return ()
        if response is None:
            raise RuntimeError("a handler neither answered nor streamed nor hijacked")
        own_lines = self._site.date_line + self._connection_line()
        return encode_response(response, own_lines, is_head=self._head.method == "HEAD")

    def _connection_line(self) -> bytes:
        """Decide whether the connection outlives this answer, and say so if it does not."""
        head = self._head
        keeps = head.keeps_alive and not head.is_upgrade and self._requests.body.is_complete
        self._closes = not keeps or self._site.is_leaving or self._site.is_draining
        return _CLOSE if self._closes else b""

    async def _finish(self) -> None:
        """Go on to the next request, or close; not before this answer has left our buffer."""
        with suppress(ConnectionResetError):
            await self._writer.drain()
        if self._closes or self._site.is_draining:
            await self._writer.flush()
        # No await from here on: the connection goes from this request to its next state in one
        # step, so that no callback finds it between the two.
        self._task = None
        self._stream = None
        requests = self._requests
        # What the client may still be sending and we shall never read as a request.
        input_may_follow = not requests.body.is_complete or (
            self._head.is_upgrade and self._reader is None
        )
        if self._transport.is_closing():
            return
        if self.is_connected and input_may_follow:
            self._linger()
        elif self._closes or self._site.is_draining or not self.is_connected:
            self._close()
        else:
            requests.start_next()
            self._writer.set_patience(is_patient=False)
            self._mode = Mode.AWAITING
            self._head_has_begun = False
            self._set_deadline(self._site.limits.idle_seconds)
            if requests.has_unread:
                self._read_head()

    def _refuse(self, violation: HttpViolation) -> None:
        """Answer a message that is no request, and hear no more."""
        self._site.observer.request_refused(violation.code)
        own_lines = self._site.date_line + _CLOSE
        self._writer.write(b"".join(encode_response(refusal(violation), own_lines)))
        self._linger()

    def _linger(self) -> None:
        """Close our half and drop what still comes, so that the answer is not lost to a reset."""
        site, is_stranger = self._site, not self._requests.is_trusted
        # Strangers are read out a few at a time, because reading is what costs memory. The others
        # get their answer and the same second to take it, but nothing more is read.
        has_place = site.lingering_newcomers < site.limits.lingering_newcomers
        self._has_lingering_place = is_stranger and has_place
        site.lingering_newcomers += self._has_lingering_place
        self._mode = Mode.LINGERING
        self._requests.set_paused(is_stranger and not has_place)
        self.half_close()
        self._set_deadline(self._site.limits.linger_seconds)

    def _stop_lingering(self) -> None:
        """Give up the place among the strangers that are read out, if this one has one."""
        self._site.lingering_newcomers -= self._has_lingering_place
        self._has_lingering_place = False

    def _close(self) -> None:
        """Close once the buffer is empty; a peer that does not empty it is cut."""
        self._stop_lingering()
        self._mode = Mode.CLOSING
        self._deadline = math.inf
        self._writer.expect_progress()
        self._transport.close()
