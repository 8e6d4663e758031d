"""Tables of the reference pages."""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(each)} |".replace("|  |", "| |") for each in lines)


def cell(text: str) -> str:
    """Return a text that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")
