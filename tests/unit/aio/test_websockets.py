"""WebSocket frames: what goes in comes out, in whatever pieces; what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.aio.websockets import Control, FrameReader, Opcode, encode_frame, masked
from clusterspace.errors import StreamBroken


def read(reader: FrameReader, *pieces: bytes) -> tuple[bytes, list[Control]]:
    data, controls = b"", list[Control]()
    for piece in pieces:
        for each in reader.feed(piece):
            if isinstance(each, Control):
                controls.append(each)
            else:
                data += each
    return data, controls


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans(), st.integers(1, 97))
def test_data_comes_out_as_it_went_in_whatever_the_pieces(
    messages: list[bytes], is_client: bool, size: int
):
    wire = b"".join(encode_frame(Opcode.BINARY, each, is_client=is_client) for each in messages)
    wire += encode_frame(Opcode.PING, b"there?", is_client=is_client)
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]

    data, controls = read(FrameReader(from_client=is_client), *pieces)

    assert data == b"".join(messages)
    assert controls == [Control(Opcode.PING, b"there?")]


@pytest.mark.parametrize("size", [125, 126, 65535, 65536, 200_000])
def test_every_form_of_length_is_read(size: int):
    frame = encode_frame(Opcode.BINARY, b"x" * size, is_client=False)

    assert read(FrameReader(from_client=False), frame) == (b"x" * size, [])


def test_a_mask_taken_off_twice_is_as_before():
    assert masked(masked(b"hello", b"1234"), b"1234") == b"hello"


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(encode_frame(Opcode.BINARY, b"x", is_client=False), id="not masked"),
        pytest.param(b"\xc2\x81mask" + b"x", id="reserved bit"),
        pytest.param(b"\x81\x81mask" + b"x", id="text"),
        pytest.param(b"\x83\x81mask" + b"x", id="no such type"),
        pytest.param(b"\x09\x80mask", id="ping in pieces"),
        pytest.param(b"\x89\xfe\x00\x7emask", id="ping too long"),
    ],
)
def test_what_no_client_sends_is_refused(frame: bytes):
    with pytest.raises(StreamBroken):
        list(FrameReader(from_client=True).feed(frame))


def test_a_giant_frame_is_handed_on_as_it_comes():
    reader = FrameReader(from_client=False)
    head = b"\x82\x7f" + (1 << 40).to_bytes(8, "big")

    assert read(reader, head, b"x" * 1000, b"y" * 1000) == (b"x" * 1000 + b"y" * 1000, [])
