from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import MalformedQuantity
from clusterspace.kube.quantities import ZERO, Form, Quantity, parse_quantity

NANO = Fraction(1, 10**9)
FACTORS = {
    "": Fraction(1),
    "n": NANO,
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
    "e+1": Fraction(10),
}
NUMBERS = st.from_regex(r"[+-]?([0-9]{1,6}(\.[0-9]{0,4})?|\.[0-9]{1,4})", fullmatch=True)
TEXTS = st.builds(str.__add__, NUMBERS, st.sampled_from(sorted(FACTORS)))


def exact_value(text: str) -> Fraction:
    """Read the text the slow and plain way; finer than a billionth is rounded away from zero."""
    suffix = max((each for each in FACTORS if text.endswith(each)), key=len)
    number = text.removesuffix(suffix) if suffix else text
    value = Fraction(number.rstrip(".") if number[-1] == "." else number) * FACTORS[suffix]
    nanos = -(-abs(value) // NANO)
    if suffix.endswith("i"):
        nanos = min(nanos, (2**63 - 1) * 10**9)
    return (nanos if value > 0 else -nanos) * NANO


@given(TEXTS)
def test_a_quantity_is_worth_what_it_says(text: str):
    assert parse_quantity(text).nanos * NANO == exact_value(text)


@given(TEXTS)
def test_a_printed_quantity_reads_back_and_prints_the_same(text: str):
    printed = str(parse_quantity(text))

    assert parse_quantity(printed) == parse_quantity(text)
    assert str(parse_quantity(printed)) == printed


@given(TEXTS, TEXTS)
def test_order_and_arithmetic_agree_with_exact_fractions(left: str, right: str):
    first, second = parse_quantity(left), parse_quantity(right)

    assert (first < second) is (exact_value(left) < exact_value(right))
    assert (first == second) is (exact_value(left) == exact_value(right))
    assert (first + second).nanos * NANO == exact_value(left) + exact_value(right)
    assert (first - second).nanos * NANO == exact_value(left) - exact_value(right)
    assert (first * 3).nanos * NANO == 3 * exact_value(left)


@given(TEXTS, TEXTS)
def test_a_sum_prints_without_losing_anything(left: str, right: str):
    total = parse_quantity(left) + parse_quantity(right)

    assert parse_quantity(str(total)) == total or abs(total.nanos) > (2**63 - 1) * 10**9


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Ki", "0"),
        ("+", "0"),
        (".", "0"),
        ("Ki", "0"),
        (".745", "745m"),
        ("9e37", "90e36"),
        ("-0", "0"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("0.5Ki", "512"),
        ("0.5Mi", "512Ki"),
        ("1.1Ki", "1126400m"),
        ("1000k", "1M"),
        ("1000000", "1M"),
        ("1100", "1100"),
        ("-1000", "-1k"),
        ("100e3", "100e3"),
        ("1000e3", "1e6"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("10e2", "1e3"),
        ("1e-3", "1e-3"),
        ("1e0", "1e0"),
        ("0.9n", "1n"),
        ("-0.9n", "-1n"),
        ("1e-200", "1e-9"),
        ("0.0001Ki", "102400u"),
        ("8Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("1000E", "1e21"),
        # Kubernetes takes these for canonical and prints them as they came.
        ("1.500", "1.500"),
        ("0.500", "500m"),
        ("+1", "+1"),
        ("0001Ki", "0001Ki"),
        ("1Ki", "1Ki"),
        ("1025Ki", "1025Ki"),
    ],
)
def test_a_quantity_prints_as_kubernetes_prints_it(text: str, canonical: str):
    assert str(parse_quantity(text)) == canonical


SHAPE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX = "unable to parse quantity's suffix"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", SHAPE),
        ("aoeu", SHAPE),
        ("i", SUFFIX),
        ("1.1.M", SHAPE),
        ("1+1.0M", SHAPE),
        (" 1", SHAPE),
        ("1 ", SHAPE),
        ("1\n", SHAPE),
        ("\u0661", SHAPE),
        ("0.1mi", SUFFIX),
        ("1i", SUFFIX),
        ("1e", SUFFIX),
        ("1ee3", SUFFIX),
        ("-3.01e-", SUFFIX),
        ("1e999999999", SUFFIX),
        ("9" * 301, "unable to parse numeric part of quantity"),
    ],
)
def test_what_is_no_quantity_is_refused_in_kubernetes_words(text: str, message: str):
    with pytest.raises(MalformedQuantity) as refusal:
        parse_quantity(text)

    assert refusal.value.message == message


@given(st.text() | st.text(alphabet="0123456789.eEinumkKMGTP+-", max_size=12))
def test_any_text_is_a_quantity_or_is_refused_as_one(text: str):
    try:
        quantity = parse_quantity(text)
    except MalformedQuantity:
        return
    assert parse_quantity(str(quantity)) == quantity


def test_whole_and_thousandths_are_rounded_up():
    assert parse_quantity("1500m").whole == 2
    assert parse_quantity("-1500m").whole == -1
    assert parse_quantity("1500u").milli == 2
    assert parse_quantity("2").milli == 2000


def test_equal_amounts_are_equal_in_any_form():
    assert parse_quantity("1Ki") == parse_quantity("1024") == parse_quantity("1024e0")
    assert len({parse_quantity("1"), parse_quantity("1000m")}) == 1


def test_a_sum_keeps_the_form_of_the_first_that_is_something():
    assert str(ZERO + parse_quantity("1Mi") + parse_quantity("1Mi")) == "2Mi"
    assert str(parse_quantity("1Mi") + parse_quantity("1")) == "1048577"
    assert str(parse_quantity("1e3") + parse_quantity("1k")) == "2e3"


def test_a_sum_of_binary_quantities_may_outgrow_the_largest_suffix():
    assert str(Quantity(2**70 * 10**9, Form.BINARY)) == "1024Ei"


def test_nothing_is_falsy():
    assert not ZERO
    assert parse_quantity("1n")
