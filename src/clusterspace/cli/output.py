"""What commands show: tables for people, JSON, YAML and names for programs; how they end."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])

_PIPE_WIDTH: Final = 250
NONE: Final = "-"


class ExitCode(IntEnum):
    """How a command ends; scripts may rely on it."""

    OK = 0, "It was done."
    FAILED = 1, "It was not done, or what was looked at is not well; one sentence says why."
    USAGE = 2, "The command line, a variable or the config file is wrong; nothing was tried."
    DAMAGED = 3, "`store` only: the data is not as it was written."
    INCOMPLETE = 4, "`search` only: it was done, but some cluster did not answer; it is named."

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        """Make a member of its number, with what it means beside it."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


class Output(Enum):
    """How a command shows what it found."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing shown: its name for programs, its cells for people."""

    name: str
    cells: tuple[str, ...]
    wide_cells: tuple[str, ...] = ()
    style: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a command shows, in every form it may be asked for."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    document: object
    """What JSON and YAML hold: whatever msgspec can write."""
    wide_columns: tuple[str, ...] = ()
    nothing: str = ""
    """The sentence for people when there are no lines."""


def output_option(*more: str, default: str = Output.TABLE.value) -> Callable[[Command], Command]:
    """Give a command `-o`; `more` are forms that only this command has."""
    choices = [*more, *(each.value for each in Output)]
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help="How to show it.",
    )


def show(listing: Listing, output: str, *, has_head: bool = True) -> None:
    """Show a listing in the form asked for; without a head, more lines of one shown before."""
    form = Output(output)
    if form in (Output.JSON, Output.YAML):
        click.echo(document_text(listing.document, form), nl=False)
    elif form is Output.NAME:
        for line in listing.lines:
            click.echo(line.name)
    elif not listing.lines and listing.nothing:
        click.echo(listing.nothing, err=True)
    else:
        people_console().print(table_of(listing, is_wide=form is Output.WIDE, has_head=has_head))


def document_text(document: object, form: Output) -> str:
    """Return a document as indented JSON or as YAML, with a line end."""
    import msgspec

    if form is Output.YAML:
        return msgspec.yaml.encode(document).decode()
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def table_of(listing: Listing, *, is_wide: bool = False, has_head: bool = True) -> "Table":
    """Return the listing as a table for people."""
    from rich.table import Table
    from rich.text import Text

    wide = listing.wide_columns if is_wide else ()
    table = Table(
        *listing.columns,
        *wide,
        box=None,
        pad_edge=False,
        header_style="bold",
        show_header=has_head,
    )
    for line in listing.lines:
        cells = (*line.cells, *line.wide_cells) if is_wide else line.cells
        # As texts, for what a cell says in brackets is no markup.
        table.add_row(*(Text(cell or NONE) for cell in cells), style=line.style or None)
    return table


def people_console(*, stderr: bool = False) -> "Console":
    """Return where people are shown things: in colour on a terminal, in whole words in a pipe."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if console.is_terminal:
        return console
    # Whoever reads a pipe wants whole words, not a table that fits a screen.
    return Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)
