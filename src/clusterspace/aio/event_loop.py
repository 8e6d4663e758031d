"""The event loop our servers run on: uvloop's, with TLS that loses nothing when the peer closes.

uvloop's TLS keeps up to 256 KiB that it has read and not decrypted while its user does not read.
When the peer closes meanwhile, it closes too and drops them: the end of an answer, a program's exit
code. So our users never pause that layer. They pause the socket below it, and what has been read
from a socket is decrypted and delivered in the same step, before the end can be seen.

    peer ──> kernel ──> raw transport ──> uvloop's TLS ──> TlsTransport ──> protocol
                        paused here       never paused     pause_reading()

`tests/robustness/test_uvloop_tls_tail.py` shows the loss without us; when that is mended, this
module goes. docs/decisions has the alternatives and what each of them costs.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar, cast

import structlog
import uvloop

_log = structlog.get_logger(__name__)

Result = TypeVar("Result")

_CLOSED: Final = "the handler is closed"
"""How uvloop ends the sentence of its RuntimeError about a socket that is closed."""


SWITCH_SECONDS: Final = 0.0005
"""How long a thread may wait for the interpreter while another has work. Python's own figure is
5 ms, and a commit asks for the interpreter twice: when a write has come, and when the disk is done.
Beside a busy loop that was 10 ms of every write. At half a millisecond two busy threads do as much
as before, within what can be measured."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop for a process that serves or follows clusters."""
    loop = EventLoop()
    loop.set_exception_handler(log_unhandled)
    return loop


def log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody caught, but for a word to a peer that is gone.

    A process that was stopped for a while finds many connections closed at once. uvloop's TLS says
    goodbye on some whose socket is closed already, and takes the refusal for a bug of its own.
    """
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith(_CLOSED):
        _log.debug("the peer was gone", reason=str(error))
    else:
        loop.default_exception_handler(context)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something on such a loop, to its end, in a process that is there for it."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


class TlsTransport(asyncio.Transport):
    """A TLS connection of uvloop's whose reading is paused at its socket."""

    __slots__ = ("_raw", "_tls")

    def __init__(self, tls: asyncio.Transport, raw: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._raw = raw

    @property
    def layers(self) -> tuple[asyncio.Transport, asyncio.Transport]:
        """What encrypts, and the socket below: for another TLS connection inside this one."""
        return self._tls, self._raw

    def is_reading(self) -> bool:
        """Whether what arrives is delivered."""
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        """Leave in the kernel what has not been read yet, and with it the peer's goodbye."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._raw.resume_reading()

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: this layer holds back nothing while reading is paused."""

    def close(self) -> None:
        """Send what is buffered and a goodbye, and wait for the peer's."""
        # Its goodbye cannot be read from a socket that is paused; what comes before is dropped.
        self._raw.resume_reading()
        self._tls.close()

    def get_write_buffer_size(self) -> int:
        """Return how much was written and has not been taken by the kernel, on either layer."""
        return self._tls.get_write_buffer_size() + self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._tls.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._tls.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another protocol from now on."""
        self._tls.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who is delivered to."""
        return self._tls.get_protocol()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when the protocol is to pause writing."""
        self._tls.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return when the protocol is to pause writing."""
        return self._tls.get_write_buffer_limits()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send, or buffer."""
        self._tls.write(data)

    def writelines(self, list_of_data: Any) -> None:
        """Encrypt and send, or buffer."""
        self._tls.writelines(list_of_data)

    def can_write_eof(self) -> bool:
        """Return False: TLS here has no half-open connections."""
        return False

    def write_eof(self) -> None:
        """Refuse."""
        raise NotImplementedError("a TLS connection cannot be closed by halves")

    def abort(self) -> None:
        """Cut the connection and drop what is buffered."""
        self._tls.abort()


# From a socket to a protocol that speaks TLS, turn by turn of the loop:
#
#     uvloop       connects, and reads at once ──> _Unread pauses it, and keeps what came early
#     _encrypt     start_tls(raw)   schedules the beginning of TLS
#     next turn    TLS takes over the socket, which reads again; `pass_on` feeds it the early bytes
#     handshake    ends: the very step in which `set_protocol` is called; bytes come a turn later
#
# A server that speaks first, or a client whose hello arrives with the connection, is why there is
# anything early at all; lost, it would be a handshake that never ends.
class _Unread(asyncio.Protocol):
    """Holds a new socket until TLS takes over, with what may have been read of it by then."""

    def __init__(self) -> None:
        self.early = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        # uvloop reads from the moment a connection is made. A second time there is not.
        self.early = data
        if self._transport is not None:
            self._transport.pause_reading()

    def pass_on(self) -> None:
        """Give what was read to who has taken over: the first thing it gets to see."""
        if self.early and self._transport is not None:
            taker = cast("asyncio.BufferedProtocol", self._transport.get_protocol())
            taker.get_buffer(len(self.early))[: len(self.early)] = self.early  # pyright: ignore[reportIndexIssue]
            taker.buffer_updated(len(self.early))


_Made: TypeAlias = tuple[asyncio.Transport, _Unread]


class EventLoop(uvloop.Loop):
    """uvloop with `TlsTransport`s, wherever a connection is made, accepted or upgraded."""

    async def create_connection(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        ssl: ssl.SSLContext | bool | None = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        **where: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect; with TLS, once hands are shaken."""
        if not ssl:
            return cast(
                "tuple[asyncio.Transport, asyncio.BaseProtocol]",
                await super().create_connection(protocol_factory, host, port, **where),
            )
        name = host if server_hostname is None else server_hostname
        if name is None:
            raise ValueError("TLS without a host needs a server_hostname")
        made = cast("_Made", await super().create_connection(_Unread, host, port, **where))
        return await self._encrypt(
            made,
            protocol_factory,
            _default_context(name) if ssl is True else ssl,
            server_hostname=name or None,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )

    async def connect_accepted_socket(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: Any,
        *,
        ssl: ssl.SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Take over a socket that was accepted; with TLS, once hands are shaken."""
        if ssl is None:
            return cast(
                "tuple[asyncio.Transport, asyncio.BaseProtocol]",
                await super().connect_accepted_socket(protocol_factory, sock),
            )
        made = cast("_Made", await super().connect_accepted_socket(_Unread, sock))
        return await self._encrypt(
            made,
            protocol_factory,
            ssl,
            server_side=True,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        **options: Any,
    ) -> TlsTransport:
        """Shake hands on a connection, which may be a TLS connection itself: to a proxy."""
        if isinstance(transport, TlsTransport):
            below, raw = transport.layers
        else:
            below = raw = cast("asyncio.Transport", transport)
        tls = await super().start_tls(below, protocol, sslcontext, **options)
        return TlsTransport(cast("asyncio.Transport", tls), raw)

    async def _encrypt(
        self,
        made: _Made,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        raw, unread = made
        if raw.is_closing():
            raise ConnectionResetError("the peer closed the connection before the handshake")
        # `start_tls` has TLS begin in the next turn of the loop, by calls that stand behind this
        # one: what was read early is there when it looks for it.
        self.call_soon(unread.pass_on)
        tls = await self.start_tls(raw, unread, context, **options)
        # In the same step in which the handshake ended: uvloop delivers the first bytes in the next
        # one, and they are the protocol's.
        protocol = protocol_factory()
        tls.set_protocol(protocol)
        protocol.connection_made(tls)
        return tls, protocol


def _default_context(name: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = bool(name)
    return context
