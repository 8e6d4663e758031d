"""Numbers and lengths survive the wire."""

import hypothesis.strategies as st
from hypothesis import given

from clusterspace.kube.protobuf.wire import (
    MAX_FIELD_NUMBER,
    WireField,
    WireType,
    read_fields,
    read_packed,
    write_bytes_field,
    write_field,
    write_fixed64_field,
    write_varint_field,
)

NUMBERS = st.integers(1, MAX_FIELD_NUMBER)


@given(NUMBERS, st.integers(-(2**63), 2**64 - 1))
def test_a_number_is_read_as_it_was_written(number: int, value: int) -> None:
    fields = list(read_fields(write_varint_field(number, value), "here"))

    assert fields == [WireField(number, WireType.VARINT, value % 2**64)]


@given(NUMBERS, st.binary(max_size=300), st.binary(min_size=8, max_size=8))
def test_fields_are_read_in_the_order_written(number: int, text: bytes, fixed: bytes) -> None:
    data = write_bytes_field(number, text) + write_fixed64_field(number, fixed)

    assert list(read_fields(data, "here")) == [
        WireField(number, WireType.BYTES, text),
        WireField(number, WireType.FIXED64, fixed),
    ]


@given(
    NUMBERS,
    st.integers(0, 2**64 - 1) | st.binary(max_size=300),
    st.sampled_from([(WireType.FIXED32, 4), (WireType.FIXED64, 8)]),
)
def test_any_field_is_written_as_it_was_read(
    number: int, value: int | bytes, fixed: tuple[WireType, int]
) -> None:
    own = WireType.VARINT if isinstance(value, int) else WireType.BYTES
    fields = [WireField(number, own, value), WireField(number, fixed[0], bytes(fixed[1]))]

    assert list(read_fields(b"".join(map(write_field, fields)), "here")) == fields


def test_numbers_stand_packed_one_after_the_other() -> None:
    assert read_packed(b"\x00\x7f\x80\x01", "here") == [0, 127, 128]
