"""Many streams over one connection: each with its own pace, none in the way of another.

    opener                                acceptor
      OPEN 7 ─────────────────────────────> a protocol is made for stream 7
      DATA 7 ─────────────────────────────> its `data_received`
      <───────────────────────────── DATA 7
      <─────────────────────────── CREDIT 7   so much more may be sent on 7
      END 7 ──────────────────────────────> its `eof_received`: one half has ended
      CLOSE 7 ────────────────────────────> behind all data: both halves have ended
      RESET 7 ────────────────────────────> at once: what was on its way is dropped
      PING ──> <── PONG                     somebody is there

A stream is an asyncio transport, so that whatever runs over a socket runs over it: an HTTP client
at one end, a server at the other. One side opens streams, the other accepts them; it can open none.

What a peer can cost is bounded, whoever it is:

    unread data of a stream     its window: a peer that sends more than it was granted is cut off
    windows beyond the first    a budget of the connection, given to streams that are read quickly
    streams                     a number; one more is refused, and the others go on
    a frame                     64 KiB; a longer one is no frame of ours
    waiting for the peer        it is cut off when nothing came, or was taken, for a while
    answers we owe it           one PONG, and one sum of credits for each stream
    what carries nothing        as much as the streams opened to it, and what was sent on them, give
                                it reason to say: reading it is work that others wait for
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar, cast

import structlog

from clusterspace.aio.byte_streams import ByteStream
from clusterspace.aio.clocks import Clock
from clusterspace.aio.websockets import (
    NORMAL,
    Control,
    FrameReader,
    Opcode,
    close_content,
    encode_frame,
    read_close,
)
from clusterspace.errors import StreamBroken

_log = structlog.get_logger(__name__)

_HEAD: Final = struct.Struct(">BII")
"""Kind, stream and length."""
_CREDIT: Final = struct.Struct(">I")
_MOST_FRAME: Final = 64 * 1024
_CHUNK: Final = 16 * 1024
"""What one stream sends before the next has its turn."""
_BATCH: Final = 64 * 1024
"""What is given to the connection at once."""
_MOST_CREDIT: Final = (1 << 31) - 1
_MOST_REASON: Final = 200
_HIGH_WATER: Final = 64 * 1024
_LOW_WATER: Final = 16 * 1024
_CLOSE_SECONDS: Final = 30.0
"""What was written before a stream was closed may take so long to leave."""
_GOODBYE_SECONDS: Final = 2.0
"""A peer that does not take the last word by then is left without it."""

# What carries nothing: frames of control, and data for streams that have ended. One for each chunk
# that was sent is a credit, a few for each stream are its ends, and data that was on its way when a
# stream ended is at most its window. Who says more than that says it to keep us busy.
_IDLE_AT_FIRST: Final = 256
_IDLE_PER_STREAM: Final = 16
_IDLE_PER_CHUNK: Final = 2
_IDLE_PER_PING: Final = 64
_MOST_IDLE: Final = 1024 * 1024


class _Kind(IntEnum):
    OPEN = 1
    DATA = 2
    CREDIT = 3
    END = 4
    CLOSE = 5
    RESET = 6
    PING = 7
    PONG = 8


@dataclass(frozen=True, slots=True)
class MultiplexerLimits:
    """How much one connection may carry, and how long its peer may be silent."""

    streams: int = 4096
    window: int = 64 * 1024
    """How much of a stream may be unread, to begin with."""
    largest_window: int = 1024 * 1024
    """The same for a stream that is read as fast as it comes: 20 MB/s over 50 ms of distance."""
    spare_bytes: int = 64 * 1024 * 1024
    """By how much all windows together may have grown."""
    ping_seconds: float = 15.0
    silent_seconds: float = 45.0
    """A peer of whom nothing is heard, or who takes nothing, for this long is gone."""


Accept = Callable[[], asyncio.Protocol]
"""Makes what serves a stream that the peer opened."""
ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


def _frame(kind: _Kind, stream: int, content: bytes = b"") -> bytes:
    return _HEAD.pack(kind, stream, len(content)) + content


# Callbacks and two tasks meet here, all in one loop. `_read` takes frames apart and calls the
# protocols of streams; protocols write into the buffers of their streams; `_write` empties these
# buffers, a chunk of each in turn. Nothing but `_write` waits for the connection, and nobody waits
# for a stream: what a stream's protocol does not take stays in that stream's window.
#
# A stream is in `_streams` from its OPEN until its end was sent or received, whichever is first.
# Frames for streams that are not there any more were on their way when they ended, and are dropped.
class Multiplexer:
    """One end of a connection that carries streams."""

    def __init__(
        self,
        carrier: ByteStream,
        clock: Clock,
        *,
        is_client: bool,
        accept: Accept | None = None,
        limits: MultiplexerLimits | None = None,
    ) -> None:
        self._carrier = carrier
        self._clock = clock
        self._is_client = is_client
        self._accept = accept
        self.limits = limits or MultiplexerLimits()
        self._streams: dict[int, StreamTransport] = {}
        self._latest = 0
        """The highest number of a stream so far."""
        self._spare = self.limits.spare_bytes
        self._ready: deque[StreamTransport] = deque()
        self._control: list[bytes] = []
        self._credits: dict[int, int] = {}
        self._pong: bytes | None = None
        self._socket_pong: bytes | None = None
        self._goodbye: bytes | None = None
        self._is_leaving = asyncio.Event()
        self._idle = _IDLE_AT_FIRST
        """How much more the peer may say that carries nothing."""
        self._wake = asyncio.Event()
        self._heard_at = clock.monotonic()
        self._writing_since: float | None = None
        self.ended_because: str | None = None
        """Why there are no streams any more; None while there are."""
        self.close_code = 0
        """What the peer closed the connection with, if it did."""

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, make_protocol: Callable[[], ProtocolT]) -> tuple["StreamTransport", ProtocolT]:
        """Open a stream; ConnectionError when there can be none."""
        if self.ended_because is not None:
            raise ConnectionResetError(self.ended_because)
        if len(self._streams) >= self.limits.streams:
            raise ConnectionRefusedError(f"{self.limits.streams} streams are open already")
        self._latest += 1
        self._allow_idle(_IDLE_PER_STREAM)
        protocol = make_protocol()
        stream = self._streams[self._latest] = StreamTransport(self, self._latest, protocol)
        self.send_control(_frame(_Kind.OPEN, self._latest))
        protocol.connection_made(stream)
        return stream, protocol

    async def run(self) -> str:
        """Carry streams until the connection ends; return why it did.

        Every stream has lost its connection then.
        """
        why = "the connection was closed here"
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._reading(), name="multiplexer reads"),
                    group.create_task(self._writing(), name="multiplexer writes"),
                    group.create_task(self._listening(), name="multiplexer listens"),
                    group.create_task(self._leaving(), name="multiplexer leaves"),
                ]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                why = next(iter(done)).result()
                for task in tasks:
                    task.cancel()
        finally:
            self.ended_because = why
            for stream in list(self._streams.values()):
                stream.lose(ConnectionResetError(why))
            self._streams.clear()
            await self._carrier.close()
        return why

    def close(self, code: int = NORMAL, why: str = "") -> None:
        """Say goodbye; `run` ends when that is sent, or soon if the peer does not take it."""
        self._goodbye = close_content(code, why)
        self._wake.set()
        self._is_leaving.set()

    # -- what streams use ----------------------------------------------------------------------

    def send_control(self, frame: bytes) -> None:
        """Send a frame before all data."""
        self._control.append(frame)
        self._wake.set()

    def grant(self, stream: int, count: int) -> None:
        """Let the peer send so much more on a stream."""
        self._credits[stream] = self._credits.get(stream, 0) + count
        self._wake.set()

    def make_ready(self, stream: "StreamTransport") -> None:
        """Have a stream asked what it has to send, when its turn comes."""
        self._ready.append(stream)
        self._wake.set()

    def borrow(self, count: int) -> bool:
        """Take so many bytes of what windows may grow by, if there are so many."""
        if count > self._spare:
            return False
        self._spare -= count
        return True

    def forget(self, stream: "StreamTransport") -> None:
        """Know a stream no more: its end is said."""
        if self._streams.pop(stream.number, None) is not None:
            self._spare += stream.borrowed
            self._credits.pop(stream.number, None)
            self._allow_idle(stream.granted)

    def _allow_idle(self, count: int) -> None:
        self._idle = min(self._idle + count, _MOST_IDLE)

    def _note_idle(self, count: int = 1) -> None:
        """Count what carries nothing; StreamBroken when it is more than there is reason for.

        Who opens streams is not counted: it has its reasons, and the other end trusts it.
        """
        self._idle -= count
        if self._idle < 0 and self._accept is None:
            raise StreamBroken("more is said than there is to say")

    # -- the four tasks; each returns why it ended --------------------------------------------

    async def _reading(self) -> str:
        frames, unread = FrameReader(from_client=not self._is_client), bytearray()
        try:
            while arrived := await self._carrier.read():
                self._heard_at = self._clock.monotonic()
                for each in frames.feed(arrived):
                    if isinstance(each, Control):
                        if each.opcode is Opcode.CLOSE:
                            self.close_code, why = read_close(each.content)
                            said = "".join(letter for letter in why if letter.isprintable())
                            return f"the peer closed the connection: {said or 'without a word'}"
                        self._note_idle()
                        if each.opcode is Opcode.PING:
                            # The latest alone: who asks faster than it reads gets fewer answers.
                            self._socket_pong = each.content
                            self._wake.set()
                        continue
                    if not each:
                        self._note_idle()
                    unread += each
                    self._take_frames(unread)
        except StreamBroken as error:
            # Whatever it is that speaks there, it is not heard any further.
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._say_goodbye(close_content(error.close_code, str(error)))
            return f"the peer broke the protocol: {error}"
        except OSError as error:
            return f"the connection broke: {error.strerror or error}"
        return "the connection was ended by the peer"

    def _take_frames(self, unread: bytearray) -> None:
        """Act on every frame that is there whole; StreamBroken when one is none of ours."""
        at = 0
        while len(unread) - at >= _HEAD.size:
            number, stream, size = _HEAD.unpack_from(unread, at)
            if size > _MOST_FRAME:
                raise StreamBroken(f"a frame of {size} bytes is too long")
            end = at + _HEAD.size + size
            if len(unread) < end:
                break
            try:
                kind = _Kind(number)
            except ValueError as error:
                raise StreamBroken(f"there are no frames of kind {number}") from error
            self._take(kind, stream, bytes(unread[at + _HEAD.size : end]))
            at = end
        del unread[:at]

    def _take(self, kind: _Kind, number: int, content: bytes) -> None:
        if kind is not _Kind.DATA or not content:
            self._note_idle()
        if kind is _Kind.PING:
            self._pong = content
            self._wake.set()
            return
        if kind is _Kind.PONG:
            return  # that something came is what counts
        if kind is _Kind.OPEN:
            self._take_open(number)
            return
        if number > self._latest or not number:
            raise StreamBroken(f"there has never been a stream {number}")
        stream = self._streams.get(number)
        if stream is None:
            self._note_idle(len(content))
            return
        if kind is _Kind.DATA:
            stream.receive(content)
        elif kind is _Kind.CREDIT:
            if len(content) != _CREDIT.size:
                raise StreamBroken("a credit is a number of 32 bits")
            stream.add_credit(_CREDIT.unpack(content)[0])
        elif kind is _Kind.RESET:
            self.forget(stream)
            why = content[:_MOST_REASON].decode(errors="replace")
            stream.lose(ConnectionResetError(why or "the peer reset the stream"))
        else:
            stream.receive_end(is_close=kind is _Kind.CLOSE)

    def _take_open(self, number: int) -> None:
        if self._accept is None:
            raise StreamBroken("streams are opened from here, and not from there")
        if number <= self._latest:
            raise StreamBroken(f"stream {number} is not a new one")
        self._latest = number
        if len(self._streams) >= self.limits.streams:
            self.send_control(_frame(_Kind.RESET, number, b"too many streams are open"))
            return
        protocol = self._accept()
        stream = self._streams[number] = StreamTransport(self, number, protocol)
        protocol.connection_made(stream)

    async def _writing(self) -> str:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while batch := self._next_batch():
                    await self._send(batch)
                if self._goodbye is not None:
                    await self._say_goodbye(self._goodbye)
                    return "the connection was closed here"
        except OSError as error:
            return f"the connection broke: {error.strerror or error}"

    async def _send(self, data: bytes) -> None:
        self._writing_since = self._clock.monotonic()
        await self._carrier.write(data)
        self._writing_since = None

    async def _say_goodbye(self, content: bytes) -> None:
        frame = encode_frame(Opcode.CLOSE, content, is_client=self._is_client)
        await self._carrier.write(frame)

    def _next_batch(self) -> bytes:
        """Return what to send next: what is owed, then a chunk of each stream in turn."""
        pieces, self._control = self._control, []
        if self._pong is not None:
            pieces.append(_frame(_Kind.PONG, 0, self._pong))
            self._pong = None
        for number, count in self._credits.items():
            pieces.append(_frame(_Kind.CREDIT, number, _CREDIT.pack(count)))
        self._credits.clear()
        size = 0
        while self._ready and size < _BATCH:
            stream = self._ready.popleft()
            chunk = stream.take(_CHUNK)
            size += len(chunk)
            if chunk:
                pieces.append(_frame(_Kind.DATA, stream.number, chunk))
                self._allow_idle(_IDLE_PER_CHUNK)
            pieces += stream.finish_turn()
        data = b"".join(pieces)
        sent = encode_frame(Opcode.BINARY, data, is_client=self._is_client) if data else b""
        if self._socket_pong is not None:
            pong = encode_frame(Opcode.PONG, self._socket_pong, is_client=self._is_client)
            sent, self._socket_pong = sent + pong, None
        return sent

    async def _listening(self) -> str:
        """Ask now and then whether the peer is there, and return when it is not."""
        limits = self.limits
        while True:
            await self._clock.sleep(limits.ping_seconds)
            now = self._clock.monotonic()
            if now - self._heard_at > limits.silent_seconds:
                return f"nothing was heard from the peer for {limits.silent_seconds:g}s"
            since = self._writing_since
            if since is not None and now - since > limits.silent_seconds:
                return f"the peer took nothing for {limits.silent_seconds:g}s"
            if since is None:
                self._allow_idle(_IDLE_PER_PING)
                self.send_control(_frame(_Kind.PING, 0))

    async def _leaving(self) -> str:
        """Wait until this end is to end, and then no longer than goodbyes take."""
        await self._is_leaving.wait()
        await self._clock.sleep(_GOODBYE_SECONDS)
        return "the connection was closed here"


class StreamTransport(asyncio.Transport):
    """One stream, as the protocol at this end of it sees it."""

    def __init__(self, multiplexer: Multiplexer, number: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.number = number
        self.borrowed = 0
        """By how much its window has grown."""
        self._multiplexer = multiplexer
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        # What comes in.
        window = multiplexer.limits.window
        self._window = window
        """How much the peer may still send."""
        self._window_size = window
        self._taken = 0
        """How much the protocol has taken since the peer was last granted more."""
        self._inbox: deque[bytes | bool] = deque()
        """What the protocol has not taken: data, or an end (True when it is that of both halves)"""
        self._peer_has_ended = False
        self._peer_has_closed = False
        self._is_paused = False
        self._is_handing_over = False
        # What goes out.
        self._outbox: deque[bytes] = deque()
        self._out_bytes = 0
        self._credit = window
        self._is_ready = False
        self._ends = False
        self._has_ended = False
        self._closes = False
        self._is_lost = False
        self._high, self._low = _HIGH_WATER, _LOW_WATER
        self._has_paused_writing = False
        self._closing: asyncio.TimerHandle | None = None

    # -- asyncio's transport -------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return nothing: there is no socket."""
        del name
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol take what comes."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who takes what comes."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closes or self._is_lost

    def is_reading(self) -> bool:
        """Whether the protocol takes what comes."""
        return not self._is_paused and not self.is_closing()

    def pause_reading(self) -> None:
        """Leave what comes in the window."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hand over what waits, soon: protocols call this in the middle of their own work."""
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._hand_over)

    def can_write_eof(self) -> bool:
        """Return True: each half has an end of its own."""
        return True

    def write_eof(self) -> None:
        """End our half, behind what was written."""
        if not self.is_closing() and not self._ends:
            self._ends = True
            self._make_ready()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes when the peer takes them; dropped when the stream has ended."""
        if not data or self.is_closing() or self._ends or self._peer_has_closed:
            return
        self._outbox.append(bytes(data))
        self._out_bytes += len(data)
        self._make_ready()
        if self._out_bytes > self._high and not self._has_paused_writing:
            self._has_paused_writing = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several pieces, in one."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return how much was written and has not left."""
        return self._out_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return below and above which size the protocol writes and waits."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have the protocol wait above one size, and write again below another."""
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def close(self) -> None:
        """End both halves, behind what was written; what still comes is dropped."""
        if self.is_closing():
            return
        self._closes = True
        self._inbox.clear()
        if self._peer_has_closed or self._multiplexer.ended_because is not None:
            self.lose(None)  # there is nobody to send the rest to
            return
        self._closing = self._loop.call_later(_CLOSE_SECONDS, self.abort)
        self._make_ready()

    def abort(self) -> None:
        """End both halves now."""
        self._reset("the stream was aborted")

    def _reset(self, why: str) -> None:
        if self._is_lost:
            return
        self._multiplexer.send_control(_frame(_Kind.RESET, self.number, why.encode()))
        self._multiplexer.forget(self)
        self.lose(None)

    # -- what the multiplexer calls ------------------------------------------------------------

    @property
    def granted(self) -> int:
        """How much the peer may still send, and may have on its way."""
        return self._window

    def receive(self, content: bytes) -> None:
        """Take data; StreamBroken when it is more than was granted."""
        if self._peer_has_ended:
            raise StreamBroken("data came on a stream behind its end")
        self._window -= len(content)
        if self._window < 0:
            raise StreamBroken("more was sent on a stream than was granted")
        if self._closes:
            return  # nobody listens; and nothing more is granted
        self._inbox.append(content)
        self._hand_over()

    def receive_end(self, *, is_close: bool) -> None:
        """Take the end of the peer's half, or of both, behind what came before."""
        if self._peer_has_ended and not is_close:
            raise StreamBroken("a stream ended twice")
        self._peer_has_ended = True
        if is_close:
            # The peer knows the stream no more: whatever we still say is said to nobody.
            self._multiplexer.forget(self)
            self._peer_has_closed = True
            self._outbox.clear()
            self._out_bytes = 0
        if not self._closes:
            self._inbox.append(is_close)
            self._hand_over()
        elif is_close:
            self.lose(None)

    def add_credit(self, count: int) -> None:
        """Take the peer's word that it takes so much more."""
        self._credit += count
        if self._credit > _MOST_CREDIT:
            raise StreamBroken("more was granted on a stream than any window has")
        if self._out_bytes:
            self._make_ready()

    def take(self, most: int) -> bytes:
        """Return what to send now: no more than this, and than the peer takes."""
        self._is_ready = False
        most = min(most, self._credit)
        if not self._out_bytes or most <= 0:
            return b""
        pieces: list[bytes] = []
        size = 0
        while self._outbox and size < most:
            piece = self._outbox.popleft()
            if len(piece) > most - size:
                self._outbox.appendleft(piece[most - size :])
                piece = piece[: most - size]
            pieces.append(piece)
            size += len(piece)
        self._out_bytes -= size
        self._credit -= size
        if self._has_paused_writing and self._out_bytes <= self._low:
            self._has_paused_writing = False
            self._loop.call_soon(self._protocol.resume_writing)
        return b"".join(pieces)

    def finish_turn(self) -> list[bytes]:
        """Return what follows the data, if that was all; else wait for the next turn."""
        if self._is_lost:
            return []
        if self._out_bytes:
            if self._credit > 0:
                self._make_ready()
            return []
        if self._closes:
            self._multiplexer.forget(self)
            self.lose(None)
            return [_frame(_Kind.CLOSE, self.number)]
        if self._ends and not self._has_ended:
            self._has_ended = True
            return [_frame(_Kind.END, self.number)]
        return []

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol, once, that there is no stream any more; cut, if there is an error."""
        if self._is_lost:
            return
        self._is_lost = True
        if self._closing is not None:
            self._closing.cancel()
        self._outbox.clear()
        self._out_bytes = 0
        # What came before a cut is the protocol's still, even if it does not read just now.
        waiting = [each for each in self._inbox if isinstance(each, bytes)]
        self._inbox.clear()
        self._loop.call_soon(self._say_lost, waiting if error is not None else [], error)

    # -- inside --------------------------------------------------------------------------------

    def _make_ready(self) -> None:
        if not self._is_ready and not self._is_lost:
            self._is_ready = True
            self._multiplexer.make_ready(self)

    def _hand_over(self) -> None:
        """Give the protocol what waits, for as long as it takes it."""
        if self._is_handing_over:
            return
        self._is_handing_over = True
        try:
            while self._inbox and not self._is_paused and not self._closes:
                each = self._inbox.popleft()
                if isinstance(each, bytes):
                    # Granted before it is handed over: a protocol that ends the stream meanwhile
                    # leaves nothing to be granted.
                    self._note_taken(len(each))
                    self._protocol.data_received(each)
                elif each:
                    self.lose(None)
                elif not self._protocol.eof_received():
                    self.close()
        except Exception as error:  # noqa: BLE001 - one stream's bug must not end all the others
            _log.error("a stream's protocol failed", exc_info=error)
            self._reset("the other end failed")
        finally:
            self._is_handing_over = False

    def _note_taken(self, count: int) -> None:
        self._taken += count
        if self._taken * 2 < self._window_size:
            return
        granted, grown = self._taken, self._window_size
        # Nothing waits: the peer is what this stream waits for, so it may send further ahead.
        is_fast = not self._inbox and 2 * grown <= self._multiplexer.limits.largest_window
        if is_fast and self._multiplexer.borrow(grown):
            self.borrowed += grown
            self._window_size += grown
            granted += grown
        self._taken = 0
        self._window += granted
        self._multiplexer.grant(self.number, granted)

    def _say_lost(self, waiting: list[bytes], error: Exception | None) -> None:
        try:
            for each in waiting:
                self._protocol.data_received(each)
            self._protocol.connection_lost(error)
        except Exception as failure:  # noqa: BLE001 - as above
            _log.error("a stream's protocol failed", exc_info=failure)


class TransportStream(asyncio.Protocol):
    """A transport as a ByteStream."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader(limit=_HIGH_WATER)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._error: Exception | None = None
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._reader.set_transport(transport)

    def data_received(self, data: bytes) -> None:
        """Keep what came until it is read; the reader stops the transport when it is much."""
        self._reader.feed_data(data)

    def eof_received(self) -> bool:
        """End what can be read, and nothing else."""
        self._reader.feed_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everybody know who waits."""
        # Not given to the reader: it would hold back what came before.
        self._error, self._is_lost = exc, True
        self._reader.feed_eof()
        self._writable.set()

    def pause_writing(self) -> None:
        """Have writers wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Have writers go on."""
        self._writable.set()

    async def read(self, most: int = 64 * 1024) -> bytes:
        """Return bytes that have arrived; empty at an orderly end, OSError when it was cut."""
        data = await self._reader.read(most)
        if not data and self._error is not None:
            raise self._error
        return data

    async def write(self, content: bytes) -> None:
        """Send bytes, waiting while the peer does not take them."""
        await self._writable.wait()
        if self._transport is None or self._is_lost:
            raise self._error or ConnectionResetError("the stream has ended")
        self._transport.write(content)
        await self._writable.wait()

    def end(self) -> None:
        """Say that nothing more will be sent."""
        if self._transport is not None:
            self._transport.write_eof()

    async def close(self) -> None:
        """Close."""
        if self._transport is not None:
            self._transport.close()
