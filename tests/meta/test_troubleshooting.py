"""What the page on troubleshooting quotes is what the code says, word for word."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
OF_OTHERS = {
    "cannot get resource ": "made of verb and resource, as Kubernetes does",
    "clusters not allowed": "made of a count and a heading",
}
"""Sentences that are put together from parts no longer than a word; flows read them whole."""


@cache
def sentences() -> str:
    """Return every text of the source, one a line; what is filled in stands as `\\0`."""
    found: list[str] = []
    for module in (ROOT / "src" / "clusterspace").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            match node:
                case ast.JoinedStr(values=values):
                    parts = (
                        str(each.value) if isinstance(each, ast.Constant) else "\0"
                        for each in values
                    )
                    found.append("".join(parts))
                case ast.Constant(value=str() as text):
                    found.append(text)
                case _:
                    pass
    return "\n".join(found)


def quoted() -> list[str]:
    """Return the sentences that people see, from the first column of the tables."""
    cells = re.findall(r"^\| `([^`]+)` \| ", PAGE.read_text(), re.MULTILINE)
    return [each for each in cells if not each.startswith(("clusterspace ", "kubectl "))]


def is_said(sentence: str) -> bool:
    pieces = [re.escape(each.strip()) for each in sentence.split("...") if each.strip()]
    return re.search(r"[^\n]*".join(pieces), sentences()) is not None


@pytest.mark.parametrize("sentence", quoted())
def test_a_sentence_on_the_page_is_one_that_the_code_says(sentence: str) -> None:
    known = any(sentence.startswith(each) for each in OF_OTHERS)

    assert known or is_said(sentence)


def test_the_page_has_sentences_and_a_made_up_one_is_found() -> None:
    assert len(quoted()) > 30
    assert not is_said("the fleet is on " + "holiday")
