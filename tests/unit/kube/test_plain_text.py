"""Text of somebody else's, fit to be printed."""

from hypothesis import given
from hypothesis import strategies as st

from clusterspace.kube import plain_text

OBEYED = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u061c\u200e\u200f\u202e\u2066\ufeff"}


@given(st.text())
def test_nothing_that_terminals_obey_is_left(text: str):
    assert not OBEYED & set(plain_text.line(text))


@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"])))
def test_what_is_only_shown_stays_as_it_is(text: str):
    assert plain_text.line(text) == text


def test_scripts_that_join_their_letters_can_still_be_written():
    assert plain_text.line("नमस्\u200dते 👩\u200d🔧") == "नमस्\u200dते 👩\u200d🔧"


def test_lines_become_one_and_long_ones_are_cut():
    assert plain_text.line("a\r\n\tb") == "a b"
    assert plain_text.line("x" * 20, 10) == "xxxxxxx..."
    assert plain_text.line("x" * 10, 10) == "x" * 10


def test_cells_that_are_no_text_are_what_they_are():
    assert [plain_text.cell(each) for each in (3, None, 1.5, True, "a\tb")] == [
        3,
        None,
        1.5,
        True,
        "a b",
    ]


def test_keys_and_values_of_a_document_are_made_lines():
    assert plain_text.lines_of_json({"a\x1b": ["b\n", {"c": 1}]}) == {"a\ufffd": ["b ", {"c": 1}]}
