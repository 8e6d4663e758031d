"""RFC 6455, the server's half."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.upgrades import Opcode, WebSocket, accept_key, encode_frame, unmask

MASK = b"\x37\xfa\x21\x3d"


def from_client(opcode: Opcode, payload: bytes, *, is_final: bool = True) -> bytes:
    """Return a frame as clients send them: masked."""
    first = bytes(((0x80 if is_final else 0) | opcode,))
    size = len(payload)
    assert size < 1 << 16
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2)
    return first + length + MASK + unmask(payload, MASK)


class Wire:
    """A pipe: what the client sent, and what it was sent."""

    def __init__(self, *frames: bytes) -> None:
        self._arriving = [b"".join(frames)]
        self.sent = b""

    async def read(self) -> bytes:
        return self._arriving.pop() if self._arriving else b""

    async def write(self, data: bytes) -> None:
        self.sent += data


def test_the_handshake_answers_as_the_specification_shows() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(st.binary(max_size=300))
def test_a_mask_put_on_twice_is_off_again(payload: bytes) -> None:
    assert unmask(unmask(payload, MASK), MASK) == payload


async def test_fragments_are_one_message_whatever_comes_between_them() -> None:
    wire = Wire(
        from_client(Opcode.BINARY, b"hel", is_final=False),
        from_client(Opcode.PING, b"there?"),
        from_client(Opcode.CONTINUATION, b"lo"),
    )

    assert await WebSocket(wire).receive() == b"hello"
    assert wire.sent == encode_frame(Opcode.PONG, b"there?")


async def test_a_close_is_returned_and_ends_the_messages() -> None:
    wire = Wire(from_client(Opcode.CLOSE, (1000).to_bytes(2)))

    assert await WebSocket(wire).receive() is None
    assert wire.sent == encode_frame(Opcode.CLOSE, (1000).to_bytes(2))


@pytest.mark.parametrize(
    "raw",
    [
        encode_frame(Opcode.BINARY, b"not masked"),
        b"\xc2\x80" + MASK,
        b"\x83\x80" + MASK,
        from_client(Opcode.CONTINUATION, b"of nothing"),
        b"\x09\x80" + MASK,
    ],
    ids=["unmasked", "reserved-bit", "unknown-opcode", "no-beginning", "fragmented-ping"],
)
async def test_a_broken_frame_closes_with_1002(raw: bytes) -> None:
    wire = Wire(raw)

    with pytest.raises(StreamBroken):
        await WebSocket(wire).receive()

    assert wire.sent[2:4] == (1002).to_bytes(2)


@given(st.integers(0, 70_000))
def test_frames_of_every_size_say_their_size(size: int) -> None:
    frame = encode_frame(Opcode.BINARY, b"x" * size)

    assert len(frame) - size in (2, 4, 10)
    assert frame.endswith(b"x" * min(size, 10))
