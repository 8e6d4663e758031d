"""Times, durations and ages are read and written as Kubernetes, Go and kubectl do."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusterspace.errors import MalformedDuration, MalformedTimestamp
from clusterspace.kube.schemas.strings import is_date_time
from clusterspace.kube.times import (
    age,
    format_duration,
    format_micro_time,
    format_time,
    parse_duration,
    parse_time,
    seconds_of,
)

# Times.

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


@given(
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt][0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,12})?"
        r"([Zz]|[+-][0-9]{2}:[0-9]{2})",
        fullmatch=True,
    ).filter(is_date_time)
)
@example("2006-01-02t15:04:05z")
@example("2006-01-02T15:04:05+99:99")
@example("9999-12-31T23:59:59-99:99")
@example("0001-01-01T00:00:00+99:99")
def test_what_a_schema_takes_for_a_time_is_read_and_can_be_written(text: str):
    """A member may write any of these into its status, which those read who serve all."""
    assert parse_time(format_time(parse_time(text))) == parse_time(text) // 1


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z"))
def test_any_text_is_a_time_or_is_refused_as_one(text: str):
    try:
        seconds = parse_time(text)
    except MalformedTimestamp:
        return
    assert isinstance(seconds, float)


# Durations and ages.

SECOND = 10**9
MINUTE = 60
HOUR = 3600
DAY = 24 * HOUR
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        ("+5s", 5 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("300ms", 3 * 10**8),
        ("1.5s", 1500 * 10**6),
        (".5s", 500 * 10**6),
        ("5.s", 5 * SECOND),
        ("10ns", 10),
        ("11us", 11_000),
        ("12\u00b5s", 12_000),
        ("12\u03bcs", 12_000),
        ("0.000000000000000000001h", 0),
        ("1s1s", 2 * SECOND),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
        ("0" * 5000 + "1s", SECOND),
        ("0." + "3" * 5000 + "s", 333_333_333),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, nanoseconds: int):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("3", 'time: missing unit in duration "3"'),
        ("1h2", 'time: missing unit in duration "1h2"'),
        ("3d", 'time: unknown unit "d" in duration "3d"'),
        ("1h-2m", 'time: unknown unit "h-" in duration "1h-2m"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("--1s", 'time: invalid duration "--1s"'),
    ],
)
def test_what_is_no_duration_is_refused_in_go_words(text: str, message: str):
    with pytest.raises(MalformedDuration) as refusal:
        parse_duration(text)

    assert refusal.value.message == message
    assert refusal.value.place == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1100, "1.1\u00b5s"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (300 * 10**6, "300ms"),
        (60 * SECOND, "1m0s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (5400 * SECOND, "1h30m0s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (-1500 * 10**6, "-1.5s"),
        (-(2**63), "-2562047h47m16.854775808s"),
    ],
)
def test_a_duration_prints_as_go_prints_it(nanoseconds: int, text: str):
    assert format_duration(nanoseconds) == text


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**10), 10**10))
def test_a_printed_duration_reads_back_as_itself(nanoseconds: int):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(st.text() | st.text(alphabet="0123456789.+-hmsnu\u00b5", max_size=12))
def test_any_text_is_a_duration_or_is_refused_as_one(text: str):
    try:
        nanoseconds = parse_duration(text)
    except MalformedDuration:
        return
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


def test_seconds_for_a_clock_keep_their_fraction():
    assert seconds_of("1m0.25s") == 60.25


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-2, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (150, "2m30s"),
        (10 * MINUTE + 5, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 20 * MINUTE, "3h20m"),
        (8 * HOUR + MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (5 * DAY + 3 * HOUR, "5d3h"),
        (8 * DAY + HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 20 * DAY, "3y20d"),
        (8 * YEAR + DAY, "8y"),
    ],
)
def test_an_age_is_shown_as_kubectl_shows_it(seconds: float, shown: str):
    assert age(seconds) == shown
