r"""Text that somebody else's server wrote, made safe to print on a terminal.

Terminals obey what they print: an escape sequence in a name recolours the screen, moves the cursor
over the lines above, or sets the title; a tab in a cell of a table pushes the rest into the columns
of others; marks of writing direction show letters in another order than they are in. None of it
belongs into a name, a cell or a sentence, so it is replaced where text leaves a member.

>>> line("web\x1b[2K\x1b[1A\tready")
'web\ufffd[2K\ufffd[1A ready'
"""

import re
from typing import Any, Final, cast

_BLANKS: Final = re.compile(r"[\t\n\v\f\r\u0085\u2028\u2029]+")
_OBEYED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, marks of writing direction, and halves of characters.

Joiners stay: several scripts, and half of the emoji, cannot be written without them.
"""

REPLACEMENT: Final = "\ufffd"
_DEEPEST: Final = 64


def line(text: str, most: int = 0) -> str:
    """Return the text as one line that a terminal only shows; cut when it is longer than `most`."""
    if not text.isprintable():
        text = _OBEYED.sub(REPLACEMENT, _BLANKS.sub(" ", text))
    return f"{text[: most - 3]}..." if most and len(text) > most else text


def paragraph(text: str) -> str:
    """Return the text with its line breaks, each line made safe: some refusals are lists."""
    return "\n".join(map(line, text.split("\n")))


def cell(value: Any) -> Any:
    """Return the cell of a table as it may be printed; numbers and the like are what they are."""
    if isinstance(value, list | dict):
        return lines_of_json(value)
    return line(value) if isinstance(value, str) and not value.isprintable() else value


def lines_of_json(value: Any, deepest: int = _DEEPEST) -> Any:
    """Return a decoded JSON value with every string in it made one line, keys too.

    What is nested more deeply than anybody prints is replaced: JSON can be deeper than a stack.
    """
    if isinstance(value, str):
        return line(value)
    if not isinstance(value, list | dict):
        return value
    if deepest == 0:
        return REPLACEMENT
    if isinstance(value, list):
        return [lines_of_json(each, deepest - 1) for each in cast("list[Any]", value)]
    fields = cast("dict[str, Any]", value)
    return {line(key): lines_of_json(each, deepest - 1) for key, each in fields.items()}
