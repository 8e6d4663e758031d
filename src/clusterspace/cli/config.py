"""`clusterspace config`: what every setting is, and where it came from."""

import os
from typing import Any, Final, cast

import click
from click.core import ParameterSource

from clusterspace.cli.output import Line, Listing, output_option, show
from clusterspace.cli.settings import CommandPath, Setting

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
    rest: list[str] = []
    if words:
        paths, rest = _chosen(paths, words)
    lines = [line for each in paths for line in _lines(root, each, rest)]
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


def _chosen(
    paths: list[CommandPath], words: tuple[str, ...]
) -> tuple[list[CommandPath], list[str]]:
    """Return the commands these words begin with, and the words that are left."""
    for count in range(len(words), 0, -1):
        found = [each for each in paths if each.verbs[:count] == words[:count]]
        if found:
            return found, list(words[count:])
    raise click.BadParameter(f"there is no command {words[0]!r}", param_hint="VERB")


def _lines(root: click.Context, path: CommandPath, words: list[str]) -> list[Line]:
    _refuse_unknown(path, words)
    held: Any = root.default_map or {}
    for verb in path.verbs:
        held = held.get(verb, {})
    # Resilient, for what a command requires is not missing here.
    called = path.command.make_context(
        path.verbs[-1], list(words), parent=root, resilient_parsing=True, default_map=held
    )
    return [_line(called, setting) for setting in path.settings()]


def _refuse_unknown(path: CommandPath, words: list[str]) -> None:
    """Refuse options the command has not: resilient parsing would pass over them in silence."""
    options = {each for parameter in path.command.params for each in parameter.opts}
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in options:
            raise click.UsageError(f"No such option of {' '.join(path.verbs)}: {word}")


def _line(called: click.Context, setting: Setting) -> Line:
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
        origin = f"file {called.find_root().params['config_file']}"
    shown = _HIDDEN if value and setting.option.hide_input else _text(value)
    wide = (setting.flag, setting.variable)
    return Line(setting.path, (setting.path, shown, origin), wide_cells=wide)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)
