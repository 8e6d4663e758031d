"""Nothing is documented that is not there: verbs, options and variables named in pages exist."""

import re
from pathlib import Path

import click
import pytest

from clusterspace.cli.main import main
from clusterspace.cli.settings import CommandPath

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(each for each in (ROOT / "docs").rglob("*.md") if "reference" not in each.parts),
    ROOT / "deploy" / "README.md",
]
COMMANDS = {path.verbs: path for path in CommandPath((), main).below()}
GROUPS = {verbs[:length] for verbs in COMMANDS for length in range(1, len(verbs))}
GLOBAL = {"--config", "--version", "--help"}
CALL = re.compile(r"(?<![\w./-])(?<!-n )clusterspace ([a-z][a-z-]*(?: [^`\n|<>;)]*)?)")


def options_of(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def find_unknown(call: str) -> str | None:
    """Return what is wrong with a call of ours, as a page writes it."""
    words = call.split()
    verbs = next((words[:n] for n in (2, 1) if tuple(words[:n]) in COMMANDS), None)
    if verbs is None:
        is_whole_group = tuple(words) in GROUPS
        return None if is_whole_group else f"no verb {' '.join(words[:2])!r}"
    known = options_of(COMMANDS[tuple(verbs)].command) | GLOBAL
    given = {each.partition("=")[0].rstrip(",.):") for each in words if each.startswith("--")}
    return f"{' '.join(verbs)} has no {sorted(given - known)}" if given - known else None


def calls_in(page: Path) -> list[str]:
    """Return our own commands in blocks of commands and between backticks."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", outside)
    return [call for piece in (*lines, *inline) for call in CALL.findall(piece)]


@pytest.mark.parametrize("page", PAGES, ids=lambda each: str(each.relative_to(ROOT)))
def test_commands_and_options_in_a_page_exist(page: Path) -> None:
    problems = {call: find_unknown(call) for call in calls_in(page)}

    assert {call: why for call, why in problems.items() if why} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda each: str(each.relative_to(ROOT)))
def test_variables_in_a_page_exist(page: Path) -> None:
    known = {each.variable for path in COMMANDS.values() for each in path.settings()}
    named = set(re.findall(r"CLUSTERSPACE_[A-Z]+_[A-Z_]+[A-Z]", page.read_text()))

    assert named - known <= {"CLUSTERSPACE_VERB_OPTION"}


def test_commands_are_looked_for_where_people_write_them() -> None:
    called = {call.split()[0] for page in PAGES for call in calls_in(page)}

    assert called >= {"join", "register", "promote", "why", "up", "down", "store", "agent"}


@pytest.mark.parametrize("call", ["jion west", "join west --cluster-kubconfig f", "store burn"])
def test_a_command_that_does_not_exist_is_found(call: str) -> None:
    assert find_unknown(call)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A proof that nobody can look up proves nothing: tests in backticks, and links to files."""
    text = page.read_text()
    tests = {ROOT / each for each in re.findall(r"`(tests/[\w./-]+)", text)}
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    files = tests | {(page.parent / each).resolve() for each in links}

    assert [str(each.relative_to(ROOT)) for each in sorted(files) if not each.exists()] == []
