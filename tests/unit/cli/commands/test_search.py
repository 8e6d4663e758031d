"""What `clusterspace search --watch` shows of rows that come and go."""

import json

import click
import pytest
from click.testing import CliRunner

from clusterspace.cli.commands.search import ChangePrinter
from clusterspace.roots.search import Found
from clusterspace.roots.sql import Result, Row

ROUNDS: tuple[tuple[Row, ...], ...] = (
    (("a", 1), ("b", 2)),
    (("b", 2), ("b", 2), ("c", None)),
    (),
)


def shown_as(form: str) -> list[str]:
    printer = ChangePrinter(form)

    @click.command()
    def steps() -> None:
        for rows in ROUNDS:
            printer.show(Found(Result(("name", "n"), rows), ("something",)))

    return CliRunner().invoke(steps).output.splitlines()


def test_a_row_that_comes_has_a_plus_and_one_that_goes_a_minus():
    assert shown_as("csv") == [
        "change,name,n",
        "+,a,1",
        "+,b,2",
        "Warning: something",
        "-,a,1",
        "+,b,2",
        "+,c,",
        "-,b,2",
        "-,b,2",
        "-,c,",
    ]


def test_a_table_has_one_head_for_all_its_changes():
    lines = [line.split() for line in shown_as("table")]

    assert lines[0] == ["NAME", "N"]
    assert lines.count(["NAME", "N"]) == 1
    assert ["-", "c", "-"] in lines


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_a_document_for_each_change(form: str):
    text = "\n".join(shown_as(form))

    assert text.count("removed") == 4
    if form == "json":
        first = json.loads(text.splitlines()[0])
        assert first == {"change": "added", "row": {"name": "a", "n": 1}}
