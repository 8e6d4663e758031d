"""Every verb is what the table says, explains itself, and shows examples that work as written."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from clusterspace.cli.main import SECTIONS, main
from clusterspace.cli.settings import CommandPath

PATHS = list(CommandPath((), main).below())
KARMADACTL = {
    "cordon", "uncordon", "taint", "join", "unjoin", "token", "register", "unregister", "promote",
}  # fmt: skip


def name_of(path: CommandPath) -> str:
    return " ".join(path.verbs)


def examples_in(help_text: str) -> Iterator[list[str]]:
    """Yield the words of each of our own commands in the Examples, as a shell would read them."""
    _, _, block = help_text.partition("\b\nExamples:\n")
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        command, _, _ = line.strip().partition(" > ")
        if command.startswith("clusterspace "):
            yield shlex.split(command)[1:]


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_command_says_what_it_does_and_how_it_is_called(path: CommandPath) -> None:
    help_text = path.command.help or ""

    assert help_text.splitlines()[0].endswith(".")
    assert list(examples_in(help_text)) or "clusterspace" in help_text.partition("Examples:")[2]


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_the_examples_in_a_help_text_can_be_parsed(path: CommandPath) -> None:
    for words in examples_in(path.command.help or ""):
        group: click.Command = main
        context = main.make_context("clusterspace", words, resilient_parsing=True)
        rest = [*context._protected_args, *context.args]
        while isinstance(group, click.Group):
            name, found, rest = group.resolve_command(context, rest)
            assert found is not None
            group = found
            if not isinstance(found, click.Group):
                found.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_every_option_says_what_it_is_for(path: CommandPath) -> None:
    silent = [each.flag for each in path.settings() if not each.option.help]

    assert silent == []


def test_no_two_settings_have_the_same_variable() -> None:
    variables = [setting.variable for path in PATHS for setting in path.settings()]

    assert len(set(variables)) == len(variables)


def test_sentences_of_the_table_fit_a_line() -> None:
    verbs = {verb: line.sentence for section in SECTIONS.values() for verb, line in section.items()}

    assert all(each.endswith(".") and len(each) <= 62 for each in verbs.values())


def test_verbs_of_karmadactl_keep_their_names() -> None:
    verbs = {verb for section in SECTIONS.values() for verb in section}

    assert verbs >= KARMADACTL
