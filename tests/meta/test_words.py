"""One language: the words we gave up stay away, and names that pages mention exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "clusterspace"
ABOUT_OTHERS = ("comparison.md", "karmada-compatibility.md", "kubefleet-compatibility.md")
"""Pages that name what others have and we do not."""
GLOSSARY = ROOT / "docs" / "glossary.md"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_QUOTED = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_LOOKS_OURS = re.compile(r"[a-z]+_\w+|[A-Z][a-z]+(?:[A-Z][a-z]+)+|\w+\(\)")


def retired_words() -> dict[str, str]:
    """Return the words that the glossary retires, and what is said instead."""
    table = GLOSSARY.read_text().partition("## Retired words")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    return {
        word.strip(): instead.strip()
        for words, instead in rows
        for word in words.split(",")
        if word.strip() not in ("retired", "---")
    }


def names_in(module: Path) -> Iterator[tuple[int, str]]:
    """Yield every name that a module gives to something, with its line."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case _:
                pass


@pytest.mark.parametrize("room", sorted(p.name for p in SOURCE.iterdir() if p.is_dir()))
def test_words_we_gave_up_stay_away(room: str) -> None:
    retired = retired_words()
    assert retired
    found = [
        f"{module.relative_to(SOURCE)}:{line}: {name} (say {retired[word]})"
        for module in sorted((SOURCE / room).rglob("*.py"))
        for line, name in [(0, module.stem), *names_in(module)]
        for word in map(str.lower, _WORD.findall(name))
        if word in retired
    ]

    assert found == []


@cache
def known_names() -> frozenset[str]:
    """Return every word that the code, its tests and its settings say anywhere."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("tools/*.py")]
    files += [*ROOT.glob("src/**/*.yaml"), *ROOT.glob("deploy/**/*.yaml")]
    files += [ROOT / "Makefile", ROOT / "pyproject.toml"]
    words = (re.findall(r"[A-Za-z_]\w*", each.read_text()) for each in files)
    return frozenset([*chain.from_iterable(words), *(each.stem for each in files), "py"])


def pages() -> list[Path]:
    """Return the pages and package maps that speak of the tree; records tell how it was once."""
    docs = [
        each
        for each in ROOT.glob("docs/**/*.md")
        if each.parent.name != "decisions" and each.name not in ABOUT_OTHERS
    ]
    return sorted([*docs, ROOT / "README.md", *SOURCE.rglob("__init__.py")])


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_names_that_a_page_mentions_exist(page: Path) -> None:
    missing = [
        name
        for name in _QUOTED.findall(page.read_text())
        if _NAME.fullmatch(name) and _LOOKS_OURS.search(name)
        for part in re.findall(r"\w+", name)
        if part not in known_names()
    ]

    assert missing == []


def test_a_name_that_exists_nowhere_is_found() -> None:
    assert "reconcile" in known_names()
    assert "Surround" + "ings" * 2 not in known_names()
