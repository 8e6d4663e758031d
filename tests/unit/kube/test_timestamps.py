import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import MalformedTimestamp
from clusterspace.kube.timestamps import format_micro_time, format_time, parse_time

UNTIL_2242 = 2**33 - 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2006-01-02T15:04:05Z", 1136214245),
        ("2006-01-02T15:04:05.000000Z", 1136214245),
        ("2006-01-02T15:04:05.25Z", 1136214245.25),
        ("2006-01-02T15:04:05.123456789Z", 1136214245.123456),
        ("2006-01-02T17:04:05+02:00", 1136214245),
        ("2006-01-02T14:34:05-00:30", 1136214245),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_a_time_is_read_whatever_its_offset_and_decimals(text: str, seconds: float):
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2006-01-02",
        "2006-01-02 15:04:05Z",
        "2006-01-02T15:04:05",
        "2006-02-30T15:04:05Z",
        "2006-01-02T24:04:05Z",
        "2006-01-02T15:04:60Z",
        "0000-01-02T15:04:05Z",
        "2006-01-02T15:04:05+24:00",
        "2006-01-02T15:04:05+01:60",
        "2006-01-02T15:04:05Z\n",
        "\u0662\u0660\u0660\u0666-01-02T15:04:05Z",
    ],
)
def test_what_is_no_time_is_refused_by_name(text: str):
    with pytest.raises(MalformedTimestamp, match="is not an RFC 3339 time") as refusal:
        parse_time(text)

    assert refusal.value.place == text


def test_fractions_of_a_second_are_cut_not_rounded():
    assert format_time(1136214245.999) == "2006-01-02T15:04:05Z"
    assert format_time(-0.5) == "1969-12-31T23:59:59Z"


def test_early_years_keep_four_digits():
    text = "0001-01-01T00:00:00Z"

    assert format_time(parse_time(text)) == text
    assert format_micro_time(parse_time(text)) == "0001-01-01T00:00:00.000000Z"


@given(st.integers(0, UNTIL_2242))
def test_whole_seconds_survive_a_round_trip(seconds: int):
    assert parse_time(format_time(seconds)) == seconds


@given(st.integers(0, UNTIL_2242), st.integers(0, 999_999))
def test_microseconds_survive_a_round_trip(seconds: int, micros: int):
    text = f"{format_time(seconds)[:-1]}.{micros:06}Z"

    assert format_micro_time(parse_time(text)) == text


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z"))
def test_any_text_is_a_time_or_is_refused_as_one(text: str):
    try:
        seconds = parse_time(text)
    except MalformedTimestamp:
        return
    assert isinstance(seconds, float)
