"""The command table as people meet it."""

import click
import pytest
from click.testing import CliRunner, Result

from clusterspace.cli.main import SECTIONS, main


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_help_lists_every_verb_below_its_section() -> None:
    lines = call("--help").output.splitlines()

    for title, verbs in SECTIONS.items():
        start = lines.index(f"{title}:") + 1
        listed = [line.split()[0] for line in lines[start : start + len(verbs)]]
        assert listed == list(verbs)


def test_a_misspelt_verb_is_met_with_the_one_that_was_meant() -> None:
    told = call("clutsers")

    assert told.exit_code == 2
    assert told.output.endswith("Error: No such command 'clutsers'. Did you mean 'clusters'?\n")


def test_no_verb_is_invented_for_a_word_that_is_like_none() -> None:
    told = call("xyzzy")

    assert told.exit_code == 2
    assert "Did you mean" not in told.output


def test_what_we_raise_on_purpose_never_shows_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")

    told = call("clusters")

    assert told.exit_code == 1
    assert told.output == "Error: /nowhere/kubeconfig: there is no such file\n"


def endpoint(given: str) -> str:
    """Parse the option of a server; nothing is started."""
    root = click.Context(main, info_name="clusterspace")
    name, command, words = main.resolve_command(root, ["fleet", "--control-plane-endpoint", given])
    assert command is not None
    return command.make_context(name, words, parent=root).params["endpoint"]


@pytest.mark.parametrize("given", ["https://hub:5443", "hub:port", ":5443", "hub:5443/path", "a b"])
def test_an_endpoint_that_is_none_is_said_before_anything_starts(given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
        endpoint(given)


def test_an_endpoint_has_a_port() -> None:
    assert [endpoint(each) for each in ("hub.example.com", "hub:6443", "[::1]:6443")] == [
        "hub.example.com:443",
        "hub:6443",
        "[::1]:6443",
    ]
