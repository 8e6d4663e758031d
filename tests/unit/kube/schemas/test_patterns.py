"""A pattern means here what it means to Kubernetes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import MalformedSchema
from clusterspace.kube.schemas.patterns import compile_pattern


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
