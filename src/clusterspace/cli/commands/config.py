"""`clusterspace config`, `version`, `completion`: what is set, which version, what Tab offers."""

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final, cast

import click
from click.core import ParameterSource
from click.shell_completion import get_completion_class

from clusterspace import __version__
from clusterspace.cli.completion import PROGRAM, VARIABLE
from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import (
    Line,
    Listing,
    Output,
    document_text,
    output_option,
    show,
)
from clusterspace.cli.running import sentence_of
from clusterspace.cli.settings import CommandPath

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings

_HUB_SECONDS: Final = 3.0

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
@click.option("--client", is_flag=True, help="Do not ask the hub.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to show it.",
)
@hub_options
def version(*, client: bool, output: str, hub: HubOptions) -> None:
    """Say which version this is, and which the hub has.

    \b
    Examples:
      clusterspace version
      clusterspace version --client
      clusterspace version -o json
    """
    import platform

    from clusterspace.errors import ClusterspaceError

    document = {"clusterspace": __version__, "python": platform.python_version()}
    lines = [f"clusterspace {__version__} (Python {document['python']})"]
    if not client:
        try:
            settings = hub.settings()
            document["hub"] = asyncio.run(_hub_version(settings))
            lines.append(f"hub {document['hub']} at {settings.server}")
        except (ClusterspaceError, OSError) as error:
            lines.append(f"hub unknown: {sentence_of(error)}")
    if output == "text":
        click.echo("\n".join(lines))
    else:
        click.echo(document_text(document, Output(output)), nl=False)


async def _hub_version(settings: "ConnectionSettings") -> str:
    import msgspec

    from clusterspace.client.requests import ApiRequest
    from clusterspace.roots.clients import open_client

    async with open_client(settings) as hub:
        answer = await hub.connection.ask(ApiRequest("GET", "/version", seconds=_HUB_SECONDS))
    return str(msgspec.json.decode(answer.body, type=dict[str, Any]).get("gitVersion", "unknown"))


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
