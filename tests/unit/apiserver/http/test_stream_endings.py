"""A relayed command ends with its status, or with an error; whatever the cluster does."""

import json
import struct
from collections.abc import Iterable

import pytest

from clusterspace.apiserver.http.spdy_frames import (
    FIN,
    HeaderWriter,
    Kind,
    encode_control,
    encode_data,
)
from clusterspace.apiserver.http.stream_endings import (
    BareEnding,
    Ending,
    SpdyEnding,
    WebSocketEnding,
    ending_of,
)

ERROR, STDOUT, STDIN = 1, 3, 5
SUCCESS = b'{"metadata":{},"status":"Success"}'
SIZES = (1, 3, 7, 4096)


def opened(ending: Ending, *, size: int = 4096) -> None:
    """Have a client open the streams of a command, with input in between."""
    headers = HeaderWriter()
    said = b""
    for number, kind in ((STDIN, "stdin"), (ERROR, "error"), (STDOUT, "stdout")):
        body = struct.pack(">IIH", number, 0, 0) + headers.write({"streamtype": kind})
        said += encode_control(Kind.SYN_STREAM, body) + encode_data(STDIN, b"typed" * 50)
    for piece in cut(said, size):
        ending.note_sent(piece)


def cut(content: bytes, size: int) -> Iterable[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def frames(content: bytes) -> tuple[dict[int, bytes], set[int]]:
    """Return what a client reads: bytes by stream, and the streams that ended."""
    said: dict[int, bytes] = {}
    ended: set[int] = set()
    while content:
        first, second = struct.unpack_from(">II", content)
        size = second & 0xFFFFFF
        assert len(content) >= 8 + size, "a frame is cut"
        if not first & 0x80000000:
            said[first] = said.get(first, b"") + content[8 : 8 + size]
            if second >> 24 & FIN:
                ended.add(first)
        elif first & 0xFFFF == Kind.RST_STREAM:
            ended.add(int.from_bytes(content[8:12]))
        content = content[8 + size :]
    return said, ended


def relayed(ending: Ending, content: bytes, size: int) -> bytes:
    return b"".join(ending.pass_on(piece) for piece in cut(content, size))


@pytest.mark.parametrize("size", SIZES)
def test_what_a_cluster_says_arrives_however_it_is_cut(size: int) -> None:
    ending = SpdyEnding(has_status=True)
    opened(ending, size=size)
    said = (
        encode_control(Kind.SYN_REPLY, struct.pack(">I", ERROR) + b"x" * 20)
        + encode_data(STDOUT, b"0123456789" * 700)
        + encode_data(STDOUT, b"", is_last=True)
        + encode_data(ERROR, SUCCESS, is_last=True)
        + encode_control(Kind.GOAWAY, bytes(8))
    )

    passed = relayed(ending, said, size)

    assert frames(passed) == frames(said)
    assert ending.is_complete
    assert ending.last_words("nobody hears this") == b""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("missing", [1, 5, 30, 100, 150])
def test_a_stream_that_breaks_off_anywhere_ends_with_an_error(size: int, missing: int) -> None:
    ending = SpdyEnding(has_status=True)
    opened(ending)
    said = encode_data(STDOUT, b"0123456789" * 20) + encode_data(ERROR, SUCCESS, is_last=True)

    passed = relayed(ending, said[:-missing], size)
    was_complete = ending.is_complete
    by_stream, ended = frames(passed + ending.last_words("it broke"))

    assert not was_complete
    assert ended == {ERROR}
    assert (b"0123456789" * 20).startswith(by_stream[STDOUT])
    assert len(by_stream[STDOUT]) == min(200, max(0, len(said) - missing - 8))
    if by_stream[ERROR].startswith(b'{"metadata":{},"status":"F'):
        assert json.loads(by_stream[ERROR])["message"] == "it broke"
    else:  # a part of the real one: no client can read it, and each says so
        assert SUCCESS.startswith(by_stream[ERROR])
        assert len(by_stream[ERROR]) < len(SUCCESS)


@pytest.mark.parametrize(
    "end",
    [
        encode_data(ERROR, b"", is_last=True),
        encode_control(Kind.RST_STREAM, struct.pack(">II", ERROR, 5)),
    ],
    ids=["ended", "reset"],
)
def test_an_error_stream_that_ends_in_silence_says_that_it_did(end: bytes) -> None:
    ending = SpdyEnding(has_status=True)
    opened(ending)

    by_stream, ended = frames(ending.pass_on(encode_data(STDOUT, b"hello") + end))

    assert json.loads(by_stream[ERROR])["status"] == "Failure"
    assert ended == {ERROR}
    assert ending.is_complete


def test_silence_is_success_in_the_oldest_protocols_but_a_break_is_not() -> None:
    quiet, broken = SpdyEnding(has_status=False), SpdyEnding(has_status=False)
    opened(quiet)
    opened(broken)
    end = encode_control(Kind.RST_STREAM, struct.pack(">II", ERROR, 5))

    assert quiet.pass_on(end) == end
    assert quiet.is_complete
    assert frames(broken.last_words("it broke"))[0] == {ERROR: b"it broke"}


def test_what_cannot_be_followed_passes_as_it_is_and_never_counts_as_an_end() -> None:
    for nonsense in (b"\x80\x03\x00\x01\x00\xff\xff\xff" + b"x" * 100, b"\x00"):
        ending = SpdyEnding(has_status=True)
        ending.note_sent(b"\x80\x03\x00\x01\x00\x00\x00\x14" + b"\xff" * 20)

        passed = ending.pass_on(nonsense)

        assert passed + ending.last_words("it broke") == nonsense
        assert not ending.is_complete


def frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    size = len(payload)
    length = bytes((size,)) if size < 126 else b"\x7e" + size.to_bytes(2)
    return bytes((opcode | 0x80 * is_final,)) + length + payload


@pytest.mark.parametrize("size", SIZES)
def test_a_websocket_with_a_status_passes_as_it_is(size: int) -> None:
    ending = WebSocketEnding()
    said = (
        frame(2, b"\x03")  # how servers say that the channel is there
        + frame(2, b"\x01" + b"x" * 700)
        + frame(9, b"ping")
        + frame(2, b"\x03" + SUCCESS)
        + frame(8, b"\x03\xe8")
    )

    assert relayed(ending, said, size) == said
    assert ending.is_complete


@pytest.mark.parametrize("size", SIZES)
def test_a_websocket_that_is_closed_without_a_status_says_so_first(size: int) -> None:
    ending = WebSocketEnding()
    said, close = frame(2, b"\x03") + frame(2, b"\x01hello"), frame(8, b"\x03\xe8")

    passed = relayed(ending, said + close, size)

    assert passed.startswith(said)
    assert passed.endswith(close)
    status = passed[len(said) + 4 : -len(close)]
    assert (status[0], json.loads(status[1:])["status"]) == (3, "Failure")


def test_a_websocket_that_breaks_off_is_not_closed_for_the_cluster() -> None:
    ending = WebSocketEnding()
    said = frame(2, b"\x01hello") + frame(2, b"\x03" + SUCCESS)[:-3]

    passed = relayed(ending, said, 4) + ending.last_words("it broke")

    assert passed == said
    assert not ending.is_complete


def test_only_commands_have_a_status() -> None:
    v4, v5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
    assert isinstance(ending_of("SPDY/3.1", v4, is_command=True), SpdyEnding)
    assert isinstance(ending_of("websocket", v5, is_command=True), WebSocketEnding)
    for protocol, version, is_command in (
        ("SPDY/3.1", "portforward.k8s.io", False),
        ("websocket", "base64.channel.k8s.io", True),
    ):
        assert isinstance(ending_of(protocol, version, is_command=is_command), BareEnding)
