"""Patterns mean what they mean to RE2, and formats are those that Kubernetes checks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import MalformedSchema
from clusterspace.kube.schemas.strings import FORMATS, compile_pattern, find_format

# Patterns.


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^a$", "a", "a\n"),
        (r"^a\z", "a", "a\n"),
        (r"(?m)^a$", "b\na\nb", "ba"),
        (r"^\d+$", "42", "٤٢"),
        (r"^\w$", "a", "é"),
        (r"^\s$", "\t", "\v"),
        (r"^[\s]$", " ", "\v"),
        ("^[[:alpha:]_]+$", "ab_", "a1"),
        (r"^\pL$", "é", "1"),
        (r"^[\p{Lu}0]+$", "É0", "é"),
        (r"^\P{L}$", "1", "é"),
        (r"^\x{1F600}$", "😀", "a"),
        (r"^\Qa.b\E$", "a.b", "axb"),
        ("^[]a]$", "]", "b"),
        ("^[^]a]$", "b", "]"),
        ("^[a[]$", "[", "b"),
        ("^[+--]$", ",", "."),
        ("^[a-]$", "-", "b"),
        ("^[&&||~~]$", "~", "a"),
        ("^(?<name>a)(?P<other>b)$", "ab", "a"),
        ("(?i)^a$", "A", "b"),
        ("^(?i:a)b$", "Ab", "AB"),
        ("^a{2,3}?$", "aa", "a"),
        (r"^\$\.$", "$.", "a"),
    ],
)
def test_what_differs_between_the_dialects_is_rewritten(pattern, matching, other) -> None:
    compiled = compile_pattern(pattern)

    assert compiled.search(matching)
    assert not compiled.search(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "a(?=b)",
        "a(?!b)",
        "(?<=a)b",
        r"(a)\1",
        "a++",
        "a{2}+",
        r"a\Z",
        r"\u0041",
        r"\p{Greek}",
        "[[:nonsense:]]",
        "a(?i)b",
        "(?P=name)",
        "(",
        "[a",
        "a**",
        "\\",
        r"\x{110000}",
    ],
)
def test_what_re2_or_we_cannot_read_is_refused(pattern) -> None:
    with pytest.raises(MalformedSchema, match="cannot read the pattern"):
        compile_pattern(pattern)


@given(st.text(alphabet="ab01()[]{}^$.*+?|\\-&~:,dswpPLzQExi<>=!", max_size=12))
def test_any_text_is_a_pattern_or_refused(text) -> None:
    try:
        compiled = compile_pattern(text)
    except MalformedSchema as refused:
        assert "cannot read the pattern" in refused.message  # noqa: PT017
        return
    assert compiled.flags & re.ASCII


# Formats.

EXAMPLES = {
    "bsonobjectid": (["507f1f77bcf86cd799439011"], ["507f"]),
    "byte": (["", "YQ==", "YWJj"], ["YQ=", "a b="]),
    "cidr": (["10.0.0.0/8", "010.0.0.0/8", "fd00::/64"], ["10.0.0.0", "10.0.0.0/33", "x/8"]),
    "creditcard": (["4111 1111 1111 1111"], ["4111111111111112", "1"]),
    "date": (["2024-02-29"], ["2023-02-29", "20240229", "2024-2-1"]),
    "date-time": (
        ["2024-01-01T00:00:00Z", "2024-01-01t23:59:59.123+02:00"],
        ["2024-01-01", "2024-01-01T24:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01T00:00:00"],
    ),
    "duration": (["1h30m", "-1.5s", "0", "22 ns", "3 days"], ["", "soon", "5"]),
    "email": (["a@b.c", "Ann <a@b.c>"], ["a", "a@", "<a@b.c", "a@b.c>"]),
    "hexcolor": (["#fff", "AABBCC"], ["#ffff"]),
    "hostname": (["localhost", "a-b.example.com", "bücher.example"], ["-a", "a..b", "a.b1", ""]),
    "ipv4": (["10.0.0.1", "010.000.000.001"], ["10.0.0", "::1", "256.0.0.1"]),
    "ipv6": (["::1", "fe80::1", "::ffff:1.2.3.4"], ["10.0.0.1", "fe80::1%eth0", "::g"]),
    "isbn": (["0321751043", "978-0321751041"], ["0321751044"]),
    "isbn10": (["0-321-75104-3", "080442957X"], ["978-0321751041"]),
    "isbn13": (["978-0321751041"], ["978-0321751042"]),
    "k8s-long-name": (["a.b-c.d"], ["A", "a..b", "a" * 254]),
    "k8s-short-name": (["a-b"], ["a.b", "-a", "a" * 64]),
    "mac": (["01:02:03:04:05:ab", "01-02-03-04-05-06-07-08", "0102.0304.0506"], ["01:02-03"]),
    "password": (["anything"], []),
    "rgbcolor": (["rgb(1, 2,255)"], ["rgb(1,2,256)"]),
    "ssn": (["123-45-6789"], ["123-456-789"]),
    "uri": (["https://a/b?c=%20", "/path"], ["relative", "https://a b", "/%zz"]),
    "uuid": (["00000000-0000-0000-0000-000000000000", "A" * 32], ["0"]),
    "uuid3": (["00000000-0000-3000-0000-000000000000"], ["00000000-0000-4000-0000-000000000000"]),
    "uuid4": (["00000000-0000-4000-8000-000000000000"], ["00000000-0000-4000-0000-000000000000"]),
    "uuid5": (["00000000-0000-5000-b000-000000000000"], ["00000000-0000-3000-8000-000000000000"]),
}


def test_every_format_has_examples() -> None:
    assert {name.replace("-", "") for name in EXAMPLES} == set(FORMATS)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_format_takes_its_own_and_refuses_others(name) -> None:
    holds = find_format(name)
    good, bad = EXAMPLES[name]

    assert holds is not None
    assert [text for text in good if not holds(text)] == []
    assert [text for text in bad if holds(text)] == []


def test_a_format_nobody_checks_is_no_format() -> None:
    assert find_format("int-or-string") is None
    assert find_format("") is None


@given(st.sampled_from(sorted(FORMATS)), st.text(max_size=40))
def test_no_text_breaks_a_format(name, text) -> None:
    assert FORMATS[name](text) in {True, False}
