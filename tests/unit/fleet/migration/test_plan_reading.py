"""The YAML of a plan, read as it comes, says what PyYAML says; items are made one by one."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.fleet.migration.plan_reading import PlanReader

WORDS = st.text(max_size=12) | st.integers() | st.booleans() | st.none() | st.floats(0, 1)
VALUES = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner)
)


def read(text: str) -> Any:
    items: list[Any] = []
    document = PlanReader(text.encode(), lambda item, _index: items.append(item)).read()
    if items:
        document["spec"]["items"] = items
    return document


@given(VALUES)
def test_what_was_written_is_read(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)

    assert read(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: {b: [1, 'two', \"three\", 0x10, ~, yes, 1.5e3]}",
        "spec:\n  items:\n  - name: |\n      long\n      text\n  - {name: x}",
        "a: &x {b: 1}\nc: *x",
        "a: !!str 1",
        "? a\n: b",
    ],
)
def test_every_way_to_write_it_is_read(text: str) -> None:
    assert read(text) == yaml.safe_load(text)


def test_items_are_made_in_their_order_and_nothing_else_is() -> None:
    seen: list[tuple[int, Any]] = []

    def note(item: Any, index: int) -> None:
        seen.append((index, item))

    text = b"items: [1]\nspec:\n  items: [{items: [2]}, 3]\n  left: {items: [4]}\n"
    document = PlanReader(text, note).read()

    assert seen == [(0, {"items": [2]}), (1, 3)]
    assert document["spec"] == {"items": [], "left": {"items": [4]}}
    assert document["items"] == [1]


@pytest.mark.parametrize(
    "text",
    ["a: *nobody", "a: 1\n---\nb: 2", "[a: b", "? [a]\n: b", "a: 1\na: 2", "- {b: 1, 'b': 1}"],
)
def test_what_cannot_be_read_says_where(text: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as refused:
        read(text)

    assert refused.value.problem_mark is not None
