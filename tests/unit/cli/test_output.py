"""One listing, in every form a command may be asked for."""

import json

import click
import pytest
import yaml
from click.testing import CliRunner

from clusterspace.cli.output import Line, Listing, output_option, show

PARTS = Listing(
    columns=("PART", "STATE"),
    wide_columns=("LOG",),
    lines=(
        Line("hub", ("hub", "ready"), wide_cells=("hub.log",), style="green"),
        Line("fleet", ("fleet", ""), wide_cells=("[dim]fleet.log[/]",)),
    ),
    document={"parts": [{"name": "hub"}, {"name": "fleet"}]},
    nothing="nothing runs",
)


@click.command()
@output_option()
def parts(output: str) -> None:
    show(PARTS, output)


@click.command()
@output_option()
def nothing(output: str) -> None:
    show(Listing(("PART",), (), document=[], nothing="nothing runs"), output)


def shown(*words: str, command: click.Command = parts, **environment: str) -> str:
    result = CliRunner(env=environment).invoke(command, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_people_get_a_table_with_a_dash_where_there_is_nothing() -> None:
    assert [line.split() for line in shown().splitlines()] == [
        ["PART", "STATE"],
        ["hub", "ready"],
        ["fleet", "-"],
    ]


def test_wide_adds_columns_and_brackets_are_no_markup() -> None:
    assert [line.split()[-1] for line in shown("-o", "wide").splitlines()] == [
        "LOG",
        "hub.log",
        "[dim]fleet.log[/]",
    ]


def test_programs_get_the_document() -> None:
    assert json.loads(shown("-o", "json")) == PARTS.document
    assert yaml.safe_load(shown("-o", "yaml")) == PARTS.document


def test_names_are_one_a_line() -> None:
    assert shown("-o", "name") == "hub\nfleet\n"


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "name"])
def test_a_pipe_gets_no_colour(output: str) -> None:
    assert "\x1b" not in shown("-o", output)


def test_no_color_is_honoured_where_colours_would_be_shown() -> None:
    coloured = "\x1b[32m"

    assert coloured in shown(FORCE_COLOR="1", TERM="xterm")
    assert coloured not in shown(FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")


def test_an_empty_table_says_what_to_do_and_a_program_gets_an_empty_document() -> None:
    assert shown(command=nothing) == "nothing runs\n"
    assert shown("-o", "json", command=nothing) == "[]\n"
    assert shown("-o", "name", command=nothing) == ""
