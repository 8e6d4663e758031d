"""Exec and attach: stdin, stdout, stderr and the exit code, whichever protocol carries them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import StreamBroken
from clusterspace.kube.objects import Object
from clusterspace.sim.streams.spdy import SpdySession, SpdyStream
from clusterspace.sim.streams.upgrades import NORMAL, UNNAMED, V4, V5, WebSocket, upgrade

_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_CLOSE_SIGNAL: Final = 255
"""Only v5 has it: the channel that says which other channel is at its end."""

_IGNORED: Final = frozenset({"resize"})
"""Streams that are granted and not read: how large a window is changes nothing written here."""

_BUFFERED_PIECES: Final = 16
_OPEN_SECONDS: Final = 30.0
_HANG_UP_SECONDS: Final = 3.0
"""How long a client has to close its end after the last word."""

_LAST_INPUT_SECONDS: Final = 10.0
"""How long a program may take for what was typed before its client left."""

_CUT_SECONDS: Final = 0.5
"""How long a client has to take the news that its command was cut."""

CUT: Final[Object] = {
    "metadata": {},
    "status": "Failure",
    "message": "the stream was ended before the command was",
    "reason": "InternalError",
    "code": 500,
}

_START_SECONDS: Final = 0.1
"""What a container runtime takes at least to start a process.

kubectl begins to read a WebSocket while it is still setting up its channels, and drops what comes
for one that is not there yet: a command that ends at once would fail for lack of its exit code.
"""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a client wants to be connected with: PodExecOptions, PodAttachOptions."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def read(cls, query: Query) -> "StreamOptions":
        """Read the flags of an exec or attach; a terminal has no stderr of its own."""
        tty = query.is_true("tty")
        return cls(
            stdin=query.is_true("stdin"),
            stdout=query.is_true("stdout"),
            stderr=query.is_true("stderr") and not tty,
            tty=tty,
        )


class Terminal(Protocol):
    """The far end of a command. `run` must be running for anything to arrive."""

    async def run(self) -> None:
        """Carry what is typed until the client has gone."""
        ...

    async def open(self) -> None:
        """Wait until the client is connected; ConnectionError when it never is."""
        ...

    async def read(self) -> bytes:
        """Return bytes of stdin, waiting for some; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to stdout."""
        ...

    async def write_error(self, data: bytes) -> None:
        """Write to stderr."""
        ...

    async def finish(self, status: Object) -> None:
        """Say how the command ended, and close."""
        ...


Program: TypeAlias = Callable[[Terminal, StreamOptions], Awaitable[int]]
"""What runs at the near end; returns its exit code."""


def exit_status(code: int) -> Object:
    """Return the Status that reports an exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class ChannelTerminal:
    """A terminal on WebSocket channels: the first byte of every message is its channel."""

    def __init__(self, socket: WebSocket, protocol: str, options: StreamOptions) -> None:
        self._socket = socket
        self._has_close_signal = protocol == V5
        self._is_silent_on_success = protocol == UNNAMED
        self._options = options
        self._typed: asyncio.Queue[bytes] = asyncio.Queue(_BUFFERED_PIECES)
        self._is_at_end = not options.stdin
        self._is_fed = False
        """Whether no more will come; what has come can still be read."""

    async def run(self) -> None:
        """Take messages until the client closes; what it sent before still counts."""
        try:
            while (message := await self._socket.receive()) is not None:
                if not message:
                    continue
                channel, payload = message[0], message[1:]
                if channel == _STDIN and payload and self._options.stdin:
                    await self._typed.put(payload)
                elif channel == _CLOSE_SIGNAL and self._has_close_signal and payload[:1] == b"\0":
                    await self._typed.put(b"")
        finally:
            self._is_fed = True
            with suppress(asyncio.QueueFull):  # then nobody waits for it either
                self._typed.put_nowait(b"")

    async def open(self) -> None:
        """Wait as long as any program takes to start: channels are not announced."""
        await asyncio.sleep(_START_SECONDS)

    async def read(self) -> bytes:
        """Return bytes of stdin."""
        if self._is_at_end or (self._is_fed and self._typed.empty()):
            return b""
        piece = await self._typed.get()
        self._is_at_end = not piece
        return piece

    async def write(self, data: bytes) -> None:
        """Write to stdout."""
        if self._options.stdout:
            await self._send(_STDOUT, data)

    async def write_error(self, data: bytes) -> None:
        """Write to stderr; on a tty both are one."""
        if self._options.stderr:
            await self._send(_STDERR, data)
        elif self._options.tty:
            await self.write(data)

    async def finish(self, status: Object) -> None:
        """Send the status on its channel, then close.

        Before channels had versions, success was silence and everything else a sentence.
        """
        if not self._is_silent_on_success:
            await self._send(_ERROR, msgspec.json.encode(status))
        elif status.get("status") != "Success":
            await self._send(_ERROR, str(status.get("message", "")).encode())
        await self._socket.close(NORMAL)

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send(bytes((channel,)) + data)


class StreamTerminal:
    """A terminal on SPDY streams, one for each direction."""

    def __init__(self, session: SpdySession, options: StreamOptions) -> None:
        self._session = session
        self._options = options
        self._streams: dict[str, SpdyStream] = {}

    async def run(self) -> None:
        """Carry what is typed until the client has gone."""
        await self._session.run()

    async def open(self) -> None:
        """Wait for the streams the query announced; ConnectionError when they do not come."""
        flags = {
            "error": True,
            "stdin": self._options.stdin,
            "stdout": self._options.stdout,
            "stderr": self._options.stderr,
        }
        expected = {name for name, is_expected in flags.items() if is_expected}
        found: dict[str, SpdyStream] = {}
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                while not expected <= found.keys():
                    stream = await self._session.accept()
                    if stream is None:
                        raise ConnectionResetError("the client left before it was connected")
                    found[stream.headers.get("streamtype", "")] = stream
        except TimeoutError as error:
            raise ConnectionAbortedError("the client did not open its streams in time") from error
        self._streams = found

    async def read(self) -> bytes:
        """Return bytes of stdin."""
        stdin = self._streams.get("stdin")
        return b"" if stdin is None else await stdin.read()

    async def write(self, data: bytes) -> None:
        """Write to stdout."""
        await self._write("stdout", data)

    async def write_error(self, data: bytes) -> None:
        """Write to stderr; on a tty both are one."""
        await self._write("stdout" if self._options.tty else "stderr", data)

    async def finish(self, status: Object) -> None:
        """Send the status on its stream and end them all."""
        await self._write("error", msgspec.json.encode(status))
        for stream in self._streams.values():
            await stream.end()

    async def _write(self, name: str, data: bytes) -> None:
        stream = self._streams.get(name)
        if stream is not None:
            await stream.write(data)


# -- one exec or attach from its upgrade to its end --------------------------------------------


async def serve_command(context: RequestContext, program: Program) -> None:
    """Upgrade the connection and run a program on it until one of the two ends."""
    options = StreamOptions.read(context.info.query)
    granted = upgrade(context, websocket=(V5, V4, UNNAMED), spdy=(V4,))
    terminal: Terminal
    if granted.is_websocket:
        terminal = ChannelTerminal(WebSocket(granted), granted.protocol, options)
    else:
        terminal = StreamTerminal(SpdySession(granted, ignored=_IGNORED), options)

    async def carry() -> bool:
        """Return whether the client left in good order."""
        # A client that breaks the protocol ends the command.
        with suppress(StreamBroken, ConnectionError):
            await terminal.run()
            return True
        return False

    async def run() -> None:
        # When the client has gone there is nobody to tell.
        with suppress(ConnectionError):
            await terminal.open()
            code = await program(terminal, options)
            await terminal.finish(exit_status(code))

    try:
        async with asyncio.TaskGroup() as group:
            carrying = group.create_task(carry(), name="what is typed")
            running = group.create_task(run(), name="command")
            await asyncio.wait((carrying, running), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                # The exit code is on its way. Cutting the connection now could overtake it, so the
                # client is left the time to close its end first.
                await asyncio.wait((carrying,), timeout=_HANG_UP_SECONDS)
            elif options.stdin and carrying.result():
                # What was typed before the client left is the program's, to its end.
                await asyncio.wait((running,), timeout=_LAST_INPUT_SECONDS)
            carrying.cancel()
            running.cancel()
    except asyncio.CancelledError:
        # Not by us: the server stops, or the client lost its rights. A stream that just ends is a
        # command that went well, to kubectl.
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_CUT_SECONDS):
                await terminal.finish(CUT)
                await granted.connection.flush()
        raise
