import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.apiserver.http.hostile_requests import Hostile, hostile_requests

from clusterspace.apiserver.http.connections import Limits
from clusterspace.apiserver.http.request_reader import RequestParser, end_of_empty_line
from clusterspace.errors import HttpViolation

if TYPE_CHECKING:
    from clusterspace.apiserver.http.messages import RequestHead

GET = b"GET /a?b HTTP/1.1\r\nHost: hub\r\n\r\n"


def read_all(pieces: list[bytes], limits: Limits | None = None) -> list[tuple[str, bytes]]:
    """Every request a parser makes of some pieces, and the code of the violation it stopped at."""
    parser = RequestParser(limits or Limits())
    requests: list[tuple[str, bytes]] = []
    head: RequestHead | None = None
    body = b""
    try:
        for piece in pieces:
            parser.receive(piece)
            while True:
                if head is None:
                    head = parser.read_head()
                    if head is None:
                        break
                body += b"".join(parser.read_body())
                if not parser.is_complete:
                    break
                requests.append((f"{head.method} {head.target.decode()}", body))
                if head.is_upgrade or not head.keeps_alive:
                    return requests
                head, body = None, b""
                parser.start_next()
    except HttpViolation as violation:
        return [*requests, ("refused", str(violation.code).encode())]
    return requests


def in_bytes(raw: bytes) -> list[bytes]:
    return [raw[start : start + 1] for start in range(len(raw))]


def test_there_are_enough_hostile_requests_and_no_two_are_the_same() -> None:
    raw = [each.raw for each in hostile_requests()]

    assert len(raw) == len(set(raw))
    assert len(raw) >= 300


@pytest.mark.parametrize("hostile", hostile_requests(), ids=lambda each: each.name)
def test_an_ambiguous_request_is_refused_however_it_arrives(hostile: Hostile) -> None:
    whole = read_all([hostile.raw])
    split = read_all(in_bytes(hostile.raw))

    assert whole == split
    assert [name for name, _ in whole] in (["refused"], [])


def test_a_head_is_read_into_its_parts() -> None:
    parser = RequestParser(Limits())
    parser.receive(
        b"POST /x?y=z HTTP/1.1\r\nHost: hub:6443\r\nX-Two: 1\r\nx-two:\t2 \r\n"
        b"Content-Length: 5 \r\nExpect: 100-Continue\r\n\r\nhel"
    )

    head = parser.read_head()

    assert head is not None
    assert (head.method, head.target, head.version) == ("POST", b"/x?y=z", "1.1")
    assert head.headers.get_all("X-TWO") == ["1", "2"]
    assert (head.content_length, head.expects_continue, head.keeps_alive) == (5, True, True)
    assert parser.read_body() == [b"hel"]
    assert not parser.is_complete


def test_the_next_request_is_not_read_before_it_is_asked_for() -> None:
    parser = RequestParser(Limits())
    parser.receive(GET + b"NONSENSE")

    head = parser.read_head()

    assert head is not None
    assert parser.is_complete
    assert parser.take_unread() == b"NONSENSE"


@pytest.mark.parametrize("kept", [b"", b"Connection: keep-alive\r\n", b"Connection: close\r\n"])
def test_a_connection_is_kept_unless_the_client_says_otherwise(kept: bytes) -> None:
    parser = RequestParser(Limits())
    parser.receive(b"POST / HTTP/1.1\r\nHost: hub\r\n" + kept + b"Content-Length: 0\r\n\r\n")

    head = parser.read_head()

    assert head is not None
    assert head.keeps_alive == (b"close" not in kept)


def test_bytes_behind_an_upgrade_are_given_up_as_they_are() -> None:
    parser = RequestParser(Limits())
    parser.receive(
        b"GET / HTTP/1.1\r\nHost: hub\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
        b"\r\n\x81\x00" + GET
    )

    head = parser.read_head()

    assert head is not None
    assert head.is_upgrade
    assert parser.take_unread() == b"\x81\x00" + GET


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"GET /" + b"x" * 100 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"x" * 1000, 414),
        (b"GET /" + b"x" * 1000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5 + b"\r\n", 431),
    ],
)
def test_a_head_over_a_limit_is_refused_with_the_code_of_the_limit(raw: bytes, code: int) -> None:
    limits = Limits(target_bytes=64, header_bytes=256, header_count=5)

    assert read_all([raw], limits) == [("refused", str(code).encode())]
    assert read_all(in_bytes(raw), limits) == [("refused", str(code).encode())]


def test_a_head_at_its_limits_is_read() -> None:
    limits = Limits(target_bytes=64, header_bytes=64, header_count=2)
    target = b"/" + b"x" * 63
    value = b"x" * (64 - len(b"Host: a\r\nX: \r\n\r\n"))
    raw = b"GET %b HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (target, value)

    assert read_all([raw], limits) == [(f"GET {target.decode()}", b"")]


def test_one_byte_chunks_are_a_body_like_any_other() -> None:
    raw = (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000
    )

    assert read_all([raw + b"0\r\n\r\n"]) == [("POST /", b"x" * 50_000)]


@pytest.mark.parametrize(
    ("tail", "held", "end"),
    [
        (b"", b"abc\r\n\r\nrest", 7),
        (b"\r\n\r", b"\nrest", 1),
        (b"x\r\n", b"\r\nrest", 2),
        (b"xy\r", b"\n\r\nrest", 3),
        (b"\r\n\r", b"x\r\n\r\n", 5),
        (b"", b"nothing", 7),
        (b"\r\n", b"", 0),
    ],
)
def test_an_empty_line_is_found_across_pieces(tail: bytes, held: bytes, end: int) -> None:
    assert end_of_empty_line(tail, held) == end


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[tuple[str, bytes]], bytes]:
    """Good requests one after the other, with bodies full of what looks like framing."""
    fragments = st.sampled_from(
        [b"\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"abc", b"5\r\n", GET, b"\x00\xff"]
    )
    expected: list[tuple[str, bytes]] = []
    raw = b""
    for number in range(draw(st.integers(1, 4))):
        pieces = [each for each in draw(st.lists(fragments, max_size=5)) if each]
        body = b"".join(pieces)
        expected.append((f"POST /{number}", body))
        raw += b"POST /%d HTTP/1.1\r\nHost: hub\r\n" % number
        if draw(st.booleans()):
            raw += b"Transfer-Encoding: chunked\r\n\r\n"
            raw += b"".join(b"%X;note=1\r\n%b\r\n" % (len(each), each) for each in pieces)
            raw += b"0\r\n\r\n"
        else:
            raw += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    return expected, raw


@given(conversations(), st.randoms(use_true_random=False))
def test_requests_come_out_the_same_wherever_the_bytes_are_cut(
    conversation: tuple[list[tuple[str, bytes]], bytes], chance: random.Random
) -> None:
    expected, raw = conversation
    cuts = sorted(chance.randrange(len(raw)) for _ in range(chance.randrange(12)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert read_all([raw]) == expected
    assert read_all(pieces) == expected


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([GET, b"\r\n\r\n", b"POST / HTTP/1.1\r\n"]))
)
def test_any_bytes_are_a_request_or_a_violation(pieces: list[bytes]) -> None:
    whole = read_all([b"".join(pieces)])

    assert read_all(pieces) == whole
    assert all(name == "refused" for name, _ in whole[-1:]) or all(
        name.startswith(("GET /", "POST /")) for name, _ in whole
    )
