"""A setting is a flag, an environment variable and a key of a file, in this order."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clusterspace.cli.main import main
from clusterspace.cli.settings import CONFIG_VARIABLE

PORT = "CLUSTERSPACE_HUB_PORT"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, "")  # what a command sets is put back


def write(directory: Path, text: str) -> Path:
    file = directory / "config.yaml"
    file.write_text(text)
    return file


def call(*words: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(main, words)


def shown(*words: str, file: Path | str = "", **environment: str) -> dict[str, tuple[str, str]]:
    """Return value and origin of each setting that `config show` prints."""
    config = ("--config", str(file)) if file else ()
    told = call(*config, "config", "show", "-o", "json", *words, **environment)
    assert told.exit_code == 0, told.output
    return {each["setting"]: (each["value"], each["from"]) for each in json.loads(told.output)}


def test_the_first_that_is_given_counts(tmp_path: Path) -> None:
    file = write(tmp_path, "hub: {port: 3}")
    variable = {PORT: "2"}

    assert shown("hub")["hub.port"] == ("5443", "default")
    assert shown("hub", file=file)["hub.port"] == ("3", f"file {file}")
    assert shown("hub", file=file, **variable)["hub.port"] == ("2", f"environment {PORT}")
    assert shown("hub", "--port", "1", file=file, **variable)["hub.port"] == ("1", "flag")


def test_every_setting_of_every_command_is_shown(tmp_path: Path) -> None:
    file = write(tmp_path, "token: {create: {ttl: 600}}\nup: {federation: false, demo: true}")

    found = shown(file=file)

    assert found["token.create.ttl"][0] == "600"
    assert found["up.federation"][0] == "false"
    assert found["up.demo"][0] == "true"
    assert found["controllers.cluster-monitor-period"] == ("5.0", "default")


def test_the_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    file = write(tmp_path, "hub: {data-dir: elsewhere}")

    assert shown("hub", **{CONFIG_VARIABLE: str(file)})["hub.data-dir"][0] == "elsewhere"


def test_a_command_uses_what_the_file_says(tmp_path: Path) -> None:
    file = write(tmp_path, "clusters: {kubeconfig: /nowhere/hub}")

    told = call("--config", str(file), "clusters")

    assert told.output == "Error: /nowhere/hub: there is no such file\n"


def test_a_secret_is_not_shown() -> None:
    found = shown("register", CLUSTERSPACE_REGISTER_TOKEN="abcdef.0123")

    assert found["register.token"] == ("[hidden]", "environment CLUSTERSPACE_REGISTER_TOKEN")


def test_a_value_that_cannot_be_used_is_shown_all_the_same() -> None:
    assert shown("hub", **{PORT: "many"})["hub.port"] == ("many", f"environment {PORT}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hub: {prot: 1}", "hub.prot: there is no such option; did you mean port?"),
        ("hubb: {port: 1}", "hubb: there is no such command; did you mean hub?"),
        ("token: {creat: {ttl: 60}}", "token.creat: there is no such command"),
        ("hub: {port: many}", "hub.port: 'many' is not a valid port."),
        ("hub: {store: paper}", "hub.store: 'paper' is not one of 'sqlite', 'memory'."),
        ("hub: {port: [1, 2]}", "hub.port: it takes one value"),
        ("hub: {port: {a: 1}}", "hub.port: a text, a number, true or false is needed"),
        ("hub: 1", "hub must hold names and values"),
        ("- hub", "the file must hold names and values"),
        ("hub: {", "it is no YAML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = write(tmp_path, text)

    refused = call("--config", str(file), "config", "show")

    assert refused.exit_code == 2
    assert f"{file}: {told}" in refused.output


def test_a_file_that_is_not_there_is_named() -> None:
    refused = call("--config", "/nowhere.yaml", "config", "show")

    assert refused.exit_code == 2
    assert "/nowhere.yaml: no such file or directory" in refused.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hbu"], "there is no command 'hbu'"),
        (["hub", "--prot", "1"], "No such option of hub: --prot"),
        (["hub", "--port", "many"], "--port: this is not a value it takes"),
    ],
)
def test_a_mistake_in_the_question_is_named(words: list[str], told: str) -> None:
    refused = call("config", "show", *words)

    assert refused.exit_code == 2
    assert told in refused.output
