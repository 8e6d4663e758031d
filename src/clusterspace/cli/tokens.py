"""`clusterspace token`: what clusters need to register themselves, made, shown and taken back."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.hub_option import hub_options, run
from clusterspace.cli.output import Line, Listing, output_option, show

if TYPE_CHECKING:
    from clusterspace.roots.tokens import KnownToken

_COLUMNS: Final = ("TOKEN", "CLUSTER", "STATE", "EXPIRES")


@click.group()
def token() -> None:
    """Let clusters register themselves."""


@token.command()
@click.argument("name")
@click.option(
    "--ttl",
    "seconds",
    type=click.IntRange(min=60, max=24 * 3600),
    default=3600,
    show_default=True,
    help="Seconds until the token ends.",
)
@click.option("--print-register-command", is_flag=True, help="Print the whole command to run.")
@hub_options
def create(
    name: str,
    seconds: int,
    kubeconfig: Path | None,
    context: str,
    *,
    print_register_command: bool,
) -> None:
    """Make a token with which the cluster NAME, and no other, can register once.

    \b
    Examples:
      clusterspace token create west --print-register-command
      clusterspace token create west --ttl 600
    """
    from clusterspace.roots.clients import hub_settings
    from clusterspace.roots.tokens import create_token

    async def work() -> None:
        made = await create_token(name, hub_settings(kubeconfig, context), seconds=seconds)
        click.echo(made.command if print_register_command else made.token)

    run(work)


@token.command("list")
@output_option()
@hub_options
def list_(kubeconfig: Path | None, context: str, output: str) -> None:
    """Show the tokens the hub holds: for which cluster, whether used, until when.

    Of the token itself the hub keeps no more than the part before the dot.

    \b
    Examples:
      clusterspace token list
      clusterspace token list -o json
    """
    from clusterspace.roots.clients import hub_settings
    from clusterspace.roots.tokens import list_tokens

    found = run(lambda: list_tokens(hub_settings(kubeconfig, context)))
    nothing = "no token is left: clusterspace token create NAME makes one"
    lines = tuple(map(_line, found))
    show(Listing(_COLUMNS, lines, document=found, nothing=nothing), output)


def _line(known: "KnownToken") -> Line:
    cells = (known.token_id, known.cluster_name, known.state, known.expires)
    return Line(known.token_id, cells)


@token.command()
@click.argument("tokens", metavar="TOKEN...", nargs=-1, required=True)
@hub_options
def delete(tokens: tuple[str, ...], kubeconfig: Path | None, context: str) -> None:
    """Take tokens back, given whole or by the part before the dot: they let nobody in any more.

    \b
    Examples:
      clusterspace token delete abcdef
    """
    from clusterspace.roots.clients import hub_settings
    from clusterspace.roots.tokens import delete_token

    async def work() -> None:
        hub = hub_settings(kubeconfig, context)
        for each in tokens:
            click.echo(f"token {await delete_token(each, hub)} deleted")

    run(work)
