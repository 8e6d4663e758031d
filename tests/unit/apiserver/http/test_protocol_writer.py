from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.http.messages import frame_chunk
from clusterspace.apiserver.http.protocol import batches


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 16))
def test_batches_carry_every_byte_in_order_and_none_is_too_large(
    pieces: list[bytes], size: int
) -> None:
    cut = [bytes(each) for each in batches(pieces, size)]

    assert b"".join(cut) == b"".join(pieces)
    assert all(0 < len(each) <= size for each in cut)


def test_small_pieces_are_joined_and_large_ones_cut() -> None:
    cut = [bytes(each) for each in batches([b"ab", b"c", b"defghij", b"k", b""], 4)]

    assert cut == [b"abc", b"defg", b"hij", b"k"]


def test_an_empty_event_is_not_the_end_of_the_stream() -> None:
    assert frame_chunk(b"") == b""
    assert frame_chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
