"""Pages of the documentation as steps a test can follow: commands, and what they are said to print.

A block of commands is fenced as `sh`. The next block without a language is what it prints. A
comment above a block says what is special about it:

    <!-- not run: REASON -->              it cannot run in a test, because of REASON
    <!-- fails -->                        it ends with an error, which the page shows
    <!-- background until FILE exists --> it runs in a terminal of its own
    <!-- interrupt -->                    (alone) Ctrl-C in the terminal opened last
    <!-- interrupt once FILE says TEXT -->  the same, by a reader who waits for that
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_LANGUAGES = {"", "sh", "yaml", "json", "mermaid", "text"}
_FENCE = "```"
_COMMENT = re.compile(r"<!-- (.+) -->")
_BACKGROUND = re.compile(r"background until (\S+) exists")
_INTERRUPT = re.compile(r"interrupt(?: once (\S+) says (.+))?")
_NOT_RUN = re.compile(r"not run: (\S.*)")


class UnreadablePage(AssertionError):
    """A page has something that is neither text nor a step."""


class Mode(Enum):
    """How a step is carried out."""

    RUN = auto()
    FAILS = auto()
    NOT_RUN = auto()
    BACKGROUND = auto()
    INTERRUPT = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """One block of commands, and what the page says it prints."""

    where: str
    commands: str
    mode: Mode = Mode.RUN
    detail: str = ""
    """The reason why it is not run, or the file that says that the background is ready or done."""
    shown: str | None = None
    """What the page says it prints, or what the file of an interruption has to say."""


def read_steps(page: Path) -> list[Step]:
    """Return the steps of a page, in order."""
    name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
    steps: list[Step] = []
    comment = ""
    for piece in _pieces(page.read_text(), name):
        if piece.language is None:
            found = _COMMENT.fullmatch(piece.text)
            comment = found[1] if found else ("" if piece.text else comment)
            if found := _INTERRUPT.fullmatch(comment):
                file, text = found.groups("")
                steps.append(Step(piece.where, "", Mode.INTERRUPT, file, text))
                comment = ""
        elif piece.language == "sh":
            steps.append(_step(piece, comment))
            comment = ""
        elif piece.language == "" and steps and steps[-1].shown is None:
            steps[-1] = replace(steps[-1], shown=piece.text)
    return steps


@dataclass(frozen=True, slots=True)
class _Piece:
    where: str
    text: str
    language: str | None
    """None for a line outside of blocks."""


def _pieces(text: str, name: str) -> Iterator[_Piece]:
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        where = f"{name}:{number}"
        if not line.startswith(_FENCE):
            yield _Piece(where, line.strip(), None)
            continue
        language = line.removeprefix(_FENCE).strip()
        if language not in _LANGUAGES:
            raise UnreadablePage(f"{where}: a block of {language!r} would not be run")
        block: list[str] = []
        for _, inner in lines:
            if inner.startswith(_FENCE):
                break
            block.append(inner)
        yield _Piece(where, "\n".join(block), language)


def _step(piece: _Piece, comment: str) -> Step:
    step = Step(piece.where, piece.text)
    if not comment:
        return step
    if comment == "fails":
        return replace(step, mode=Mode.FAILS)
    if found := _NOT_RUN.fullmatch(comment):
        return replace(step, mode=Mode.NOT_RUN, detail=found[1])
    if found := _BACKGROUND.fullmatch(comment):
        return replace(step, mode=Mode.BACKGROUND, detail=found[1])
    raise UnreadablePage(f"{piece.where}: nobody knows what {comment!r} means")
