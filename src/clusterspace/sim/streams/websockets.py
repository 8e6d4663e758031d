"""RFC 6455, the server's half: messages in, messages out, pings answered, closes returned."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.upgrades import BytePipe, PipeReader

MESSAGE_LIMIT: Final = 4 * 1024 * 1024
_CONTROL_LIMIT: Final = 125

NORMAL: Final = 1000
TOO_BIG: Final = 1009


class Opcode(IntEnum):
    """The type of a frame."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, unmasked."""

    opcode: Opcode
    payload: bytes
    is_final: bool = True


def encode_frame(opcode: Opcode, payload: bytes) -> bytes:
    """Return a whole, unmasked frame, as servers send them."""
    size = len(payload)
    if size < 126:
        length = bytes((size,))
    elif size < 1 << 16:
        length = b"\x7e" + size.to_bytes(2)
    else:
        length = b"\x7f" + size.to_bytes(8)
    return bytes((0x80 | opcode,)) + length + payload


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Take a client's mask off, all bytes at once."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size) if size else b""


async def read_frame(reader: PipeReader) -> Frame | None:
    """Read one frame of a client; None when the connection ends first."""
    head = await reader.read_exactly(2)
    if head is None:
        return None
    if head[0] & 0x70:
        raise StreamBroken("a reserved bit is set and no extension was agreed on")
    if not head[1] & 0x80:
        raise StreamBroken("a frame from a client must be masked")
    try:
        opcode = Opcode(head[0] & 0x0F)
    except ValueError as error:
        raise StreamBroken(f"opcode {head[0] & 0x0F} is not known") from error
    is_final, size = bool(head[0] & 0x80), head[1] & 0x7F
    if opcode >= Opcode.CLOSE and (size > _CONTROL_LIMIT or not is_final):
        raise StreamBroken("a control frame must be short and whole")
    if size >= 126:
        more = await reader.read_exactly(2 if size == 126 else 8)
        if more is None:
            return None
        size = int.from_bytes(more)
    if size > MESSAGE_LIMIT:
        raise StreamBroken(f"a frame of {size} bytes is over the limit", close_code=TOO_BIG)
    mask = await reader.read_exactly(4)
    payload = None if mask is None else await reader.read_exactly(size)
    if mask is None or payload is None:
        return None
    return Frame(opcode, unmask(payload, mask), is_final)


class WebSocket:
    """Messages both ways on one connection."""

    def __init__(self, pipe: BytePipe) -> None:
        self._pipe = pipe
        self._reader = PipeReader(pipe)
        self._is_closed = False

    async def receive(self) -> bytes | None:
        """Return the next message, its fragments joined; None when there will be no more."""
        pieces: list[bytes] = []
        try:
            while True:
                frame = await read_frame(self._reader)
                if frame is None or frame.opcode is Opcode.CLOSE:
                    await self.close(NORMAL)
                    return None
                if frame.opcode is Opcode.PING:
                    await self._pipe.write(encode_frame(Opcode.PONG, frame.payload))
                if frame.opcode in (Opcode.PING, Opcode.PONG):
                    continue  # these may come between the fragments of a message
                if (frame.opcode is Opcode.CONTINUATION) != bool(pieces):
                    raise StreamBroken(
                        "a fragment without a beginning, or a beginning inside a message"
                    )
                pieces.append(frame.payload)  # an empty first fragment still is one
                if sum(map(len, pieces)) > MESSAGE_LIMIT:
                    raise StreamBroken("a message is over the limit", close_code=TOO_BIG)
                if frame.is_final:
                    return b"".join(pieces)
        except StreamBroken as error:
            await self.close(error.close_code, str(error))
            raise

    async def send(self, message: bytes) -> None:
        """Send a binary message."""
        if not self._is_closed:
            await self._pipe.write(encode_frame(Opcode.BINARY, message))

    async def close(self, code: int, reason: str = "") -> None:
        """Send the close frame, once; a peer that has gone needs none."""
        if self._is_closed:
            return
        self._is_closed = True
        payload = code.to_bytes(2) + reason.encode()[: _CONTROL_LIMIT - 2]
        try:
            await self._pipe.write(encode_frame(Opcode.CLOSE, payload))
        except ConnectionError:
            return

    # -- as a BytePipe, for protocols that travel inside messages ------------------------------

    async def read(self) -> bytes:
        """Return the next message that is not empty; nothing means the end."""
        while True:
            message = await self.receive()
            if message is None:
                return b""
            if message:
                return message

    async def write(self, data: bytes) -> None:
        """Send bytes as one message."""
        await self.send(data)
