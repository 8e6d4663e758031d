"""Bytes over a socket, plain or encrypted, for a stream whose last byte matters as much as any.

The transports of event loops close a connection for both directions when one of them fails, and
what has arrived and was not read is gone. Here the two have nothing to do with each other: when
nothing can be written any more, what was received can still be read, to its end.

    read()   returns what has come      b"" after an orderly end      raises when it was cut

An end is orderly when the peer says so: by closing its half of a plain connection, by close_notify
over TLS. A TLS connection that ends without one has been cut, by the peer's death or by somebody on
the way, and says so.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Final, Protocol

_READ_SIZE: Final = 64 * 1024
_RECORD_OVERHEAD: Final = 256
_GOODBYE_SECONDS: Final = 2.0


class ByteStream(Protocol):
    """Bytes in both directions."""

    async def read(self, most: int = _READ_SIZE) -> bytes:
        """Return bytes that have arrived, waiting for some; empty at an orderly end.

        OSError when the stream was cut, after all that arrived before has been returned.
        """
        ...

    async def write(self, content: bytes) -> None:
        """Send bytes, waiting while the peer does not take them; OSError when it has gone."""
        ...

    def end(self) -> None:
        """Say that nothing more will be sent, where that can be said."""
        ...

    async def close(self) -> None:
        """Say goodbye, if the peer listens, and close."""
        ...


class SocketStream:
    """Bytes as they are, on a connected socket that does not block."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def read(self, most: int = _READ_SIZE) -> bytes:
        """Return bytes that have arrived."""
        return await self._loop.sock_recv(self._socket, most)

    async def write(self, content: bytes) -> None:
        """Send bytes."""
        await self._loop.sock_sendall(self._socket, content)

    def end(self) -> None:
        """Close our half."""
        with suppress(OSError):  # the peer may have gone
            self._socket.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        """Close; what was written is still sent by the kernel."""
        self._socket.close()


class TlsStream:
    """Bytes encrypted on their way over another stream."""

    def __init__(self, below: ByteStream, context: ssl.SSLContext, server_name: str) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._sending = asyncio.Lock()

    async def shake_hands(self) -> None:
        """Agree on keys and check the peer's certificate; ssl.SSLError when that fails."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send()
                await self._receive()
            except ssl.SSLError:
                with suppress(OSError):  # why we refuse, for the peer's log
                    await self._send()
                raise
            else:
                await self._send()
                return

    async def read(self, most: int = _READ_SIZE) -> bytes:
        """Return bytes that have arrived and are genuine."""
        while True:
            pieces: list[bytes] = []
            size = 0
            try:
                # A record is at most 16 KiB: as many as have come are returned together.
                while size < most:
                    piece = self._tls.read(most - size)
                    if not piece:
                        return b"".join(pieces)
                    pieces.append(piece)
                    size += len(piece)
                    if not (self._incoming.pending or self._tls.pending()):
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return b"".join(pieces)
            except ssl.SSLError:
                # Also the end without a goodbye. What was read before comes first; OpenSSL has the
                # error for us again next time.
                if not pieces:
                    raise
            if pieces:
                return b"".join(pieces)
            # The peer may have asked for new keys, and our answer waits. Whoever is sending just
            # now sends it along: waiting for them here, while the peer waits for us to read, could
            # be for ever.
            if self._outgoing.pending and not self._sending.locked():
                await self._send()
            await self._receive()

    async def write(self, content: bytes) -> None:
        """Encrypt and send bytes."""
        async with self._sending:
            # Not before our turn: records are numbered, and leave in the order they are made.
            self._tls.write(content)
            while self._outgoing.pending:
                await self._below.write(self._outgoing.read())

    def end(self) -> None:
        """Do nothing: whoever hears a goodbye over TLS closes both directions."""

    async def close(self) -> None:
        """Say goodbye, if the peer listens, and close."""
        with suppress(OSError):  # a peer that has gone, or does not take it in time
            if not self._sending.locked():
                with suppress(ssl.SSLWantReadError):  # its own goodbye is not waited for
                    self._tls.unwrap()
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._send()
        await self._below.close()

    async def _send(self) -> None:
        async with self._sending:
            while self._outgoing.pending:
                await self._below.write(self._outgoing.read())

    async def _receive(self) -> None:
        arrived = await self._below.read(_READ_SIZE + _RECORD_OVERHEAD)
        if arrived:
            self._incoming.write(arrived)
        else:
            self._incoming.write_eof()
