"""Processes that serve one address together, and what they tell each other.

    supervisor ── connections, introductions ──> worker
    worker     ── a socket ── worker              each two of them, made by the supervisor

A worker tells its siblings what every one of them has to know, and an answer that rests on it is
sent once all have heard it. Whoever asks next, by whichever worker, then finds it so:

    worker 1   tell(…) ── heard() ── answer ──> client ── the next request ──> worker 2

A sibling that has ended needs to hear nothing. One that runs and does not hear would go on serving
without knowing: it is reported to the supervisor, which ends it.

A packet is whole or not there, and may have an open file beside it: a connection to be served, one
end of a pipe, or a body too long for a packet.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog

from clusterspace.errors import SiblingGone

_log = structlog.get_logger(__name__)

_LONGEST_BODY: Final = 64 * 1024
"""What goes into a packet; a longer body is a file. The system's own bound is 200 KB."""
_RECEIVED: Final = 2 * _LONGEST_BODY
_MOST_UNSENT: Final = 10_000
"""Packets that wait for a process to read; one that leaves so many is as good as gone."""
_PACKETS_AT_ONCE: Final = 64
DEAF_SECONDS: Final = 10.0
"""How long a sibling may take to hear something: longer than any step of a loop under load."""

Answerer: TypeAlias = Callable[[bytes], Awaitable[bytes] | bytes]
Taker: TypeAlias = Callable[[bytes, int], None]
"""Takes a body and an open file, which is its own from then on."""


class Packet(msgspec.Struct, array_like=True):
    """What one process says to another."""

    kind: str
    number: int = 0
    """By which the reply to a question is known; 0 where none is wanted."""
    name: str = ""
    body: bytes = b""
    is_in_file: bool = False
    """Whether the file beside the packet is its body."""


_decoder: Final = msgspec.msgpack.Decoder(Packet)


class PacketSocket:
    """Packets over one socket, in order; what the other end has no room for is sent later."""

    def __init__(
        self,
        connected: socket.socket,
        take: Callable[[Packet, int], None],
        ended: Callable[[], None],
    ) -> None:
        """Begin to read; `take` is given packets, each with the file beside it or -1."""
        connected.setblocking(False)
        self._socket = connected
        self._take = take
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[bytes, int]] = deque()
        self._is_open = True
        self._loop.add_reader(connected, self._read)

    def send(self, packet: Packet, file: int = -1) -> None:
        """Send a packet, and a file that is closed here then."""
        if not self._is_open:
            _close(file)
            return
        if len(packet.body) > _LONGEST_BODY:
            file = os.memfd_create("packet")
            with open(file, "wb", closefd=False) as writing:
                writing.write(packet.body)
            packet = msgspec.structs.replace(packet, body=b"", is_in_file=True)
        self._unsent.append((msgspec.msgpack.encode(packet), file))
        if len(self._unsent) == 1:
            self._write()
        elif len(self._unsent) > _MOST_UNSENT:
            self._end()

    def close(self) -> None:
        """End the socket; the other end is told by its end."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            for _, file in self._unsent:
                _close(file)
            self._unsent.clear()

    def _write(self) -> None:
        while self._unsent:
            encoded, file = self._unsent[0]
            try:
                socket.send_fds(self._socket, [encoded], [] if file < 0 else [file])
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._socket, self._write)
                return
            except OSError:
                self._end()
                return
            self._unsent.popleft()
            _close(file)
        self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        for _ in range(_PACKETS_AT_ONCE):
            try:
                encoded, files, _, _ = socket.recv_fds(
                    self._socket, _RECEIVED, 1, socket.MSG_CMSG_CLOEXEC
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                encoded, files = b"", []
            if not encoded:
                self._end()
                return
            packet, file = _decoder.decode(encoded), files[0] if files else -1
            if packet.is_in_file:
                with open(file, "rb") as reading:
                    reading.seek(0)
                    packet.body, file = reading.read(), -1
            self._take(packet, file)
            if not self._is_open:
                return

    def _end(self) -> None:
        if self._is_open:
            self.close()
            self._ended()


class Shared(Protocol):
    """Something that every worker has to know alike."""

    tell: Callable[[bytes], None]
    """Called with each change that is made here; set by `Siblings.share`."""

    def hear(self, message: bytes) -> None:
        """Take over a change that a sibling has made; the same one twice changes nothing more."""
        ...

    def known(self) -> Iterable[bytes]:
        """Return all that a worker has to hear that is new."""
        ...


class Siblings:
    """The other workers, as one of them knows them."""

    def __init__(
        self, supervisor: socket.socket, own_number: int, on_orphaned: Callable[[], None]
    ) -> None:
        """`on_orphaned` hears that the supervisor has ended: so must we."""
        self.own_number = own_number
        self._on_orphaned = on_orphaned
        self._supervisor = PacketSocket(
            supervisor, self._receive_from_supervisor, self._supervisor_gone
        )
        self._sockets: dict[int, PacketSocket] = {}
        self._shared: dict[str, Shared] = {}
        self._answerers: dict[str, Answerer] = {"known": self._answer_known}
        self._takers: dict[str, Taker] = {}
        self._numbers = 0
        self._waiting: dict[int, tuple[int, asyncio.Future[bytes]]] = {}
        """Replies that are awaited: by number, from whom. The supervisor is 0."""
        self._unheard: dict[asyncio.Future[bytes], int] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._later: list[Packet] | None = []
        """What was told before we knew what was before it."""
        self._is_introduced = asyncio.Event()
        self._has_left = asyncio.Event()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the siblings that run."""
        return sorted(self._sockets)

    def share(self, name: str, shared: Shared) -> None:
        """Have all workers know the same; before `join`."""
        self._shared[name] = shared
        shared.tell = lambda message: self._tell(name, message)

    def answer(self, kind: str, answerer: Answerer) -> None:
        """Answer what siblings ask by `ask`."""
        self._answerers[kind] = answerer

    def take(self, kind: str, taker: Taker) -> None:
        """Take what siblings, or the supervisor, hand over."""
        self._takers[kind] = taker

    async def join(self) -> None:
        """Get to know the siblings, and what they know."""
        self._supervisor.send(Packet("join"))
        await self._is_introduced.wait()
        for number in self.numbers:
            with suppress(SiblingGone):
                messages = msgspec.msgpack.decode(
                    await self.ask(number, "known"), type=list[tuple[str, bytes]]
                )
                for name, each in messages:
                    self._shared[name].hear(each)
        later, self._later = self._later or [], None
        for packet in later:
            self._shared[packet.name].hear(packet.body)

    def ready(self) -> None:
        """Say that we serve: connections come from now on."""
        self._supervisor.send(Packet("ready"))

    async def leave(self) -> None:
        """Have no more connections come."""
        self._supervisor.send(Packet("leave"))
        await self._has_left.wait()

    async def heard(self) -> None:
        """Wait until all siblings have heard all that they were told so far."""
        unheard = set(self._unheard)
        while unheard:
            _, unheard = await asyncio.wait(unheard, timeout=DEAF_SECONDS)
            for number in {self._unheard[each] for each in unheard if each in self._unheard}:
                _log.warning("a worker does not hear", worker=number)
                self._supervisor.send(Packet("deaf", number))

    async def ask(self, number: int, kind: str, body: bytes = b"") -> bytes:
        """Ask a sibling; SiblingGone if it ends before it answers."""
        if number not in self._sockets:
            raise SiblingGone(f"worker {number} does not run")
        return await self._question(number, Packet("ask", 0, kind, body))

    async def secret(self) -> bytes:
        """Return 32 bytes that all workers know, and nobody else."""
        return await self._question(0, Packet("secret"))

    async def claim(self, name: bytes) -> bool:
        """Whether we are the first of all workers to say this name."""
        return bool(await self._question(0, Packet("claim", 0, "", name)))

    def hand_over(self, number: int, kind: str, body: bytes, file: int) -> bool:
        """Give a sibling an open file, which is closed here; return whether there is a sibling."""
        to = self._sockets.get(number)
        if to is None:
            _close(file)
            return False
        to.send(Packet("take", 0, kind, body), file)
        return True

    def close(self) -> None:
        """End all sockets."""
        for each in (self._supervisor, *self._sockets.values()):
            each.close()
        for task in self._answering:
            task.cancel()

    def _tell(self, name: str, message: bytes) -> None:
        for number, to in self._sockets.items():
            reply = self._await_reply(number)
            self._unheard[reply] = number
            reply.add_done_callback(lambda done: self._unheard.pop(done, None))
            to.send(Packet("tell", self._numbers, name, message))

    async def _question(self, number: int, packet: Packet) -> bytes:
        reply = self._await_reply(number)
        packet.number = self._numbers
        (self._sockets[number] if number else self._supervisor).send(packet)
        return await reply

    def _await_reply(self, number: int) -> "asyncio.Future[bytes]":
        self._numbers += 1
        reply = asyncio.get_running_loop().create_future()
        self._waiting[self._numbers] = (number, reply)
        # Nobody has to look at what became of a question: it is told, or has nobody to hear it.
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())
        return reply

    def _receive_from_supervisor(self, packet: Packet, file: int) -> None:
        match packet.kind:
            case "sibling":
                number = packet.number
                if former := self._sockets.pop(number, None):
                    former.close()
                    self._forget(number)
                self._sockets[number] = PacketSocket(
                    socket.socket(fileno=file),
                    lambda packet, file: self._receive(number, packet, file),
                    lambda: self._gone(number),
                )
            case "introduced":
                self._is_introduced.set()
            case "left":
                self._has_left.set()
            case "reply":
                self._replied(packet)
            case _:
                self._takers[packet.kind](packet.body, file)

    def _receive(self, sender: int, packet: Packet, file: int) -> None:
        match packet.kind:
            case "tell":
                if self._later is None:
                    self._shared[packet.name].hear(packet.body)
                else:
                    self._later.append(packet)
                self._sockets[sender].send(Packet("reply", packet.number))
            case "ask":
                task = asyncio.get_running_loop().create_task(
                    self._reply(sender, packet), name=f"answer to worker {sender}"
                )
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case "reply":
                self._replied(packet)
            case _:
                self._takers[packet.name](packet.body, file)

    async def _reply(self, sender: int, packet: Packet) -> None:
        found = self._answerers[packet.name](packet.body)
        body = found if isinstance(found, bytes) else await found
        if sender in self._sockets:
            self._sockets[sender].send(Packet("reply", packet.number, "", body))

    def _answer_known(self, _: bytes) -> bytes:
        messages = [
            (name, each) for name, shared in self._shared.items() for each in shared.known()
        ]
        return msgspec.msgpack.encode(messages)

    def _replied(self, packet: Packet) -> None:
        _, reply = self._waiting.pop(packet.number, (0, None))
        if reply is not None and not reply.done():
            reply.set_result(packet.body)

    def _gone(self, number: int) -> None:
        self._sockets.pop(number, None)
        self._forget(number)

    def _forget(self, number: int) -> None:
        for key in [key for key, (whose, _) in self._waiting.items() if whose == number]:
            _, reply = self._waiting.pop(key)
            if not reply.done():
                reply.set_exception(SiblingGone(f"worker {number} has ended"))

    def _supervisor_gone(self) -> None:
        self._has_left.set()
        self._on_orphaned()
        self._forget(0)


def _close(file: int) -> None:
    if file >= 0:
        os.close(file)
