"""`clusterspace config` and `completion`: what every setting is, and what the Tab key offers."""

import os
from typing import Any, Final, cast

import click
from click.core import ParameterSource
from click.shell_completion import get_completion_class

from clusterspace.cli.completion import PROGRAM, VARIABLE
from clusterspace.cli.output import Line, Listing, output_option, show
from clusterspace.cli.settings import CommandPath

_HIDDEN: Final = "[hidden]"


@click.group()
def config() -> None:
    """Show what every setting is, and where it came from."""


@config.command(
    "show", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("words", metavar="[VERB [OPTION]...]", nargs=-1, type=click.UNPROCESSED)
@output_option()
@click.pass_context
def show_settings(context: click.Context, words: tuple[str, ...], output: str) -> None:
    """Show the settings of every command, or of VERB as if it were called with these options.

    Each comes from a flag, else from an environment variable, else from the file that --config
    names, else it is the default.

    \b
    Examples:
      clusterspace config show
      clusterspace config show hub --port 6443
      clusterspace --config fleet.yaml config show -o wide up
    """
    root = context.find_root()
    paths = list(CommandPath((), root.command).below())
    options: list[str] = []
    if words:
        paths, options = _choose(paths, words)
    lines = [line for each in paths for line in _settings_of(root, each, options)]
    show(
        Listing(
            columns=("SETTING", "VALUE", "FROM"),
            wide_columns=("FLAG", "VARIABLE"),
            lines=tuple(lines),
            document=[
                dict(zip(("setting", "value", "from"), each.cells, strict=True)) for each in lines
            ],
        ),
        output,
    )


def _choose(
    paths: list[CommandPath], words: tuple[str, ...]
) -> tuple[list[CommandPath], list[str]]:
    """Return the commands these words begin with, and the words that are left."""
    for count in range(len(words), 0, -1):
        found = [each for each in paths if each.verbs[:count] == words[:count]]
        if found:
            return found, list(words[count:])
    raise click.BadParameter(f"there is no command {words[0]!r}", param_hint="VERB")


def _settings_of(root: click.Context, path: CommandPath, words: list[str]) -> list[Line]:
    """Return the settings of a command as if it were called with these words."""
    options = {each for parameter in path.command.params for each in parameter.opts}
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in options:
            # Resilient parsing would pass over it in silence.
            raise click.UsageError(f"No such option of {' '.join(path.verbs)}: {word}")
    defaults: Any = root.default_map or {}
    for verb in path.verbs:
        defaults = defaults.get(verb, {})
    # Resilient, for what a command requires is not missing here.
    called = path.command.make_context(
        path.verbs[-1], list(words), parent=root, resilient_parsing=True, default_map=defaults
    )
    lines: list[Line] = []
    for setting in path.settings():
        value, origin = called.params.get(setting.name), "default"
        source = called.get_parameter_source(setting.name)
        if source is ParameterSource.COMMANDLINE:
            origin = "flag"
            if value is None:
                raise click.UsageError(f"{setting.flag}: this is not a value it takes.")
        elif source is ParameterSource.ENVIRONMENT:
            # As it was written: one that cannot be used is worth seeing above all.
            value, origin = os.environ[setting.variable], f"environment {setting.variable}"
        elif source is ParameterSource.DEFAULT_MAP:
            origin = f"file {root.params['config_file']}"
        shown = _HIDDEN if value and setting.option.hide_input else _text_of(value)
        wide = (setting.flag, setting.variable)
        lines.append(Line(setting.path, (setting.path, shown, origin), wide_cells=wide))
    return lines


def _text_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that teaches SHELL to complete our commands, clusters and kinds.

    With the plug-in on the PATH, kubectl completes `kubectl clusterspace` by itself.

    \b
    Examples:
      source <(clusterspace completion bash)
      clusterspace completion zsh > "${fpath[1]}/_clusterspace"
      clusterspace completion fish > ~/.config/fish/completions/clusterspace.fish
    """
    complete = get_completion_class(shell)
    if complete is None:
        raise click.UsageError(f"completion for {shell} is not known here.")
    root = context.find_root().command
    click.echo(complete(root, {}, PROGRAM, VARIABLE).source())
