"""SPDY/3.1 frames."""

import zlib

import pytest

from clusterspace.apiserver.http.spdy_frames import (
    DICTIONARY,
    Control,
    Data,
    HeaderReader,
    HeaderWriter,
    Kind,
    encode_control,
    encode_data,
)
from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.spdy import read_frame
from clusterspace.sim.streams.upgrades import PipeReader


class Pieces:
    """A pipe with bytes in it already, a few at a time."""

    def __init__(self, content: bytes, size: int = 3) -> None:
        self._pieces = [content[at : at + size] for at in range(0, len(content), size)]

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def write(self, data: bytes) -> None:
        raise AssertionError(data)


def test_the_dictionary_is_the_one_of_the_specification() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


def test_headers_survive_the_way_and_so_do_the_ones_after_them() -> None:
    writer, reader = HeaderWriter(), HeaderReader()
    for headers in ({"streamtype": "stdin"}, {}, {"streamtype": "error", "port": "80"}):
        assert reader.read(writer.write(headers)) == headers


async def test_frames_are_read_however_they_are_cut() -> None:
    sent = encode_control(Kind.PING, b"\0\0\0\1") + encode_data(3, b"hello", is_last=True)
    reader = PipeReader(Pieces(sent))

    assert await read_frame(reader) == Control(Kind.PING, 0, b"\0\0\0\1")
    assert await read_frame(reader) == Data(3, 1, b"hello")
    assert await read_frame(reader) is None


@pytest.mark.parametrize(
    "raw", [b"\x80\x02\x00\x06\x00\x00\x00\x00", b"\x00\x00\x00\x01\x00\xff\xff\xff"]
)
async def test_what_is_not_spdy_3_is_refused(raw: bytes) -> None:
    with pytest.raises(StreamBroken):
        await read_frame(PipeReader(Pieces(raw)))


def test_headers_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(StreamBroken):
        HeaderReader().read(b"not compressed at all")
