"""JSON pointers are read and written by the letter of RFC 6901."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.kube.json_pointers import find_index, read_pointer, write_pointer


@given(st.lists(st.text(alphabet="ab~/01-"), max_size=5).map(tuple))
def test_steps_survive_being_written_and_read(steps: tuple[str, ...]) -> None:
    assert read_pointer(write_pointer(steps)) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", ()),
        ("/", ("",)),
        ("/a//b", ("a", "", "b")),
        (
            "/metadata/annotations/example.com~1owner",
            ("metadata", "annotations", "example.com/owner"),
        ),
        ("/~01", ("~1",)),
    ],
)
def test_pointers_name_the_steps_to_a_place(text: str, steps: tuple[str, ...]) -> None:
    assert read_pointer(text) == steps


@pytest.mark.parametrize("text", ["a", "a/b", "/~", "/~2", "/a~/b"])
def test_what_is_not_a_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON pointer"):
        read_pointer(text)


@pytest.mark.parametrize(("step", "index"), [("0", 0), ("7", 7), ("10", 10), ("-1", 4), ("-5", 0)])
def test_plain_numbers_are_indices(step: str, index: int) -> None:
    assert find_index(step, length=5) == index


@pytest.mark.parametrize(
    "step", ["", "-", "-6", "-0", "--1", "+1", "01", "1.0", "1 ", "²", "٣", "9" * 5000]
)
def test_nothing_else_is_an_index(step: str) -> None:
    assert find_index(step, length=5) is None
