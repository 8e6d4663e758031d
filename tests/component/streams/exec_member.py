"""A member that runs commands over SPDY and WebSocket, and closes as it is told: well, or badly.

It is written with plain sockets in threads, so that it shares nothing with what it tests. A command
says what is to happen, in the query of its request:

    command=say&command=SIZE&command=CODE&command=CLOSE     SIZE bytes to stdout, exit with CODE
    command=hear&command=SIZE&command=CODE&command=CLOSE    the digest of stdin, exit with CODE
    command=break&command=SIZE&command=AFTER&command=CLOSE  as say, but it ends AFTER so many bytes

    command=tar&command=cf&command=-&command=SIZE.CLOSE     a file of SIZE bytes, as `kubectl cp`

and CLOSE is how the connection ends: one of CLOSES.
"""

import base64
import fcntl
import hashlib
import socket
import ssl
import struct
import tarfile
import termios
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from urllib.parse import parse_qs, urlsplit

from clusterspace.apiserver.http.spdy_frames import HeaderReader, HeaderWriter
from clusterspace.testing.certificates import loopback_tls

CLOSES = ("polite", "at once", "late", "without a goodbye", "reset")
"""Waits for the client's goodbye; does not; a moment later; only TCP's; not even that."""

PIECE = 32 * 1024
PATTERN = bytes(range(256)) * (PIECE // 256)
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
POD = (
    b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default"},'
    b'"spec":{"containers":[{"name":"web","image":"web"}]},"status":{"phase":"Running"}}'
)
REVIEW = b'{"kind":"SelfSubjectAccessReview","status":{"allowed":true}}'


def pieces(size: int) -> Iterator[bytes]:
    """Yield so many bytes, no two pieces alike."""
    for at in range(0, size, PIECE):
        piece = at.to_bytes(8) + PATTERN[8:]
        yield piece[: min(PIECE, size - at)]


@cache
def digest(size: int) -> str:
    found = hashlib.sha256()
    for piece in pieces(size):
        found.update(piece)
    return found.hexdigest()


def status_of(code: int) -> bytes:
    if code == 0:
        return b'{"metadata":{},"status":"Success"}'
    return (
        b'{"metadata":{},"status":"Failure","reason":"NonZeroExitCode","message":"exit code %d",'
        b'"details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}' % (code, code)
    )


@contextmanager
def exec_member() -> Generator[int]:
    """Serve until the block ends; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(accepted,), daemon=True)
            threads.append(thread)
            thread.start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(10)


def serve(accepted: socket.socket) -> None:
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.settimeout(120)
    with suppress(OSError, EOFError):
        connected = loopback_tls().context.wrap_socket(accepted, server_side=True)
        with connected:
            peer = Peer(connected)
            while peer.answer():
                pass
    accepted.close()


class Peer:
    """One connection."""

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self.connected = connected
        self._arrived = bytearray()

    def read(self, count: int) -> bytes:
        while len(self._arrived) < count:
            more = self.connected.recv(65536)
            if not more:
                raise EOFError
            self._arrived += more
        taken = bytes(self._arrived[:count])
        del self._arrived[:count]
        return taken

    def answer(self) -> bool:
        """Answer a request; return whether another may follow."""
        while b"\r\n\r\n" not in self._arrived:
            more = self.connected.recv(65536)
            if not more:
                self.connected.close()
                return False
            self._arrived += more
        head = self.read(self._arrived.index(b"\r\n\r\n") + 4).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        self.read(int(headers.get("content-length", "0")))
        target = urlsplit(first.split()[1])
        if "upgrade" not in headers:
            line, body = "404 Not Found", b"404 page not found"
            if target.path.endswith("selfsubjectaccessreviews"):
                line, body = "201 Created", REVIEW
            elif target.path.endswith("/pods/web"):
                line, body = "200 OK", POD
            self.connected.sendall(
                f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            return True
        query = parse_qs(target.query)
        words = query["command"]
        names = {name for name in ("stdin", "stdout", "stderr") if query.get(name) == ["true"]}
        run_command(open_streams(self, headers, names), words)
        close(self.connected, words[3].rpartition(".")[2])
        return False


def run_command(streams: "WebSocketStreams | SpdyStreams", words: list[str]) -> None:
    verb = words[0]
    if verb == "tar":
        size = int(words[3].lstrip("/").partition(".")[0])
        entry = tarfile.TarInfo(words[3].lstrip("/"))
        entry.size = size
        streams.stdout(entry.tobuf(tarfile.PAX_FORMAT))
        for piece in pieces(size):
            streams.stdout(piece)
        streams.stdout(bytes(-size % 512 + 1024))
        streams.finish(status_of(0))
        return
    size, number = int(words[1]), int(words[2])
    if verb == "hear":
        found, count = hashlib.sha256(), 0
        for piece in streams.stdin():
            found.update(piece)
            count += len(piece)
        streams.stdout(f"{count} {found.hexdigest()}".encode())
    else:
        left = number if verb == "break" else 1 << 62
        for piece in pieces(size):
            streams.stdout(piece[:left])
            left -= len(piece)
            if left <= 0:
                return  # neither a status nor the end of anything
    streams.finish(status_of(number))


def close(connected: ssl.SSLSocket, how: str) -> None:
    """End the connection; all that was written has been given to the kernel."""
    if how == "late":
        time.sleep(0.1)
    if how == "reset":
        # Not before the other kernel has everything: what a reset erases here was never sent.
        while struct.unpack("i", fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4)))[0]:
            time.sleep(0.001)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif how == "polite":
        connected.settimeout(5)
        with suppress(OSError):
            connected.unwrap()
    elif how != "without a goodbye":
        connected.setblocking(False)
        with suppress(OSError):
            connected.unwrap()
    connected.close()


def open_streams(
    peer: Peer, headers: dict[str, str], names: set[str]
) -> "WebSocketStreams | SpdyStreams":
    if headers["upgrade"].lower() == "websocket":
        return WebSocketStreams(peer, headers)
    return SpdyStreams(peer, {"error", *names})


class WebSocketStreams:
    """A command's streams as channels."""

    def __init__(self, peer: Peer, headers: dict[str, str]) -> None:
        self._peer = peer
        key = hashlib.sha1((headers["sec-websocket-key"] + GUID).encode()).digest()
        peer.connected.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: %b\r\n\r\n"
            % (base64.b64encode(key), headers["sec-websocket-protocol"].partition(",")[0].encode())
        )

    def stdin(self) -> Iterator[bytes]:
        while True:
            first, second = self._peer.read(2)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(self._peer.read(2 if size == 126 else 8))
            mask = self._peer.read(4)
            payload = self._peer.read(size)
            if mask != bytes(4):
                key = (mask * (size // 4 + 1))[:size]
                unmasked = int.from_bytes(payload) ^ int.from_bytes(key)
                payload = unmasked.to_bytes(size)
            if first & 0x0F == 8 or payload == b"\xff\x00":
                return
            if payload[:1] == b"\x00":
                yield payload[1:]

    def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes((size,)) if size < 126 else b"\x7e" + size.to_bytes(2)
        self._peer.connected.sendall(bytes((0x80 | opcode,)) + length + payload)

    def stdout(self, piece: bytes) -> None:
        self._send(2, b"\x01" + piece)

    def finish(self, status: bytes) -> None:
        self._send(2, b"\x03" + status)
        self._send(8, b"\x03\xe8")


class SpdyStreams:
    """A command's streams over SPDY."""

    def __init__(self, peer: Peer, names: set[str]) -> None:
        self._peer = peer
        self._streams: dict[str, int] = {}
        peer.connected.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
        )
        self._reader, self._writer = HeaderReader(), HeaderWriter()
        while not names <= self._streams.keys():
            self._frame()

    def _frame(self) -> tuple[int, int, bytes]:
        first, second = struct.unpack(">II", self._peer.read(8))
        body = self._peer.read(second & 0xFFFFFF)
        if first == 0x80030001:
            number = int.from_bytes(body[:4])
            self._streams[self._reader.read(body[10:])["streamtype"]] = number
            reply = number.to_bytes(4) + self._writer.write({})
            self._peer.connected.sendall(struct.pack(">II", 0x80030002, len(reply)) + reply)
        return first, second >> 24, body

    def stdin(self) -> Iterator[bytes]:
        while True:
            first, flags, body = self._frame()
            if first == self._streams["stdin"]:
                yield body
                if flags & 1:
                    return

    def _data(self, stream: str, piece: bytes, flags: int = 0) -> None:
        head = struct.pack(">II", self._streams[stream], flags << 24 | len(piece))
        self._peer.connected.sendall(head + piece)

    def stdout(self, piece: bytes) -> None:
        self._data("stdout", piece)

    def finish(self, status: bytes) -> None:
        # As kubelets do: nothing ends, all is reset.
        self._data("error", status)
        for number in self._streams.values():
            self._peer.connected.sendall(struct.pack(">IIII", 0x80030003, 8, number, 5))
        self._peer.connected.sendall(struct.pack(">IIII", 0x80030007, 8, 0, 0))
