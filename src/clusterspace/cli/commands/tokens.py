"""`clusterspace token`: what clusters need to register themselves, made, shown and taken back."""

import sys
from typing import Final

import click

from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import Line, Listing, output_option, show
from clusterspace.cli.running import run

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
def create(*, name: str, seconds: int, print_register_command: bool, hub: HubOptions) -> None:
    """Make a token with which the cluster NAME, and no other, can register once.

    \b
    Examples:
      clusterspace token create west --print-register-command
      clusterspace token create west --ttl 600
    """
    from clusterspace.roots.tokens import create_token

    async def work() -> None:
        made = await create_token(name, hub.settings(), seconds=seconds)
        if not print_register_command:
            click.echo(made.token)
        elif sys.stdout.isatty():
            click.echo(made.command)
        else:
            click.echo(made.command_for_programs)

    run(work)


@token.command("list")
@output_option()
@hub_options
def list_(*, output: str, hub: HubOptions) -> None:
    """Show the tokens the hub holds: for which cluster, whether used, until when.

    Of the token itself the hub keeps no more than the part before the dot.

    \b
    Examples:
      clusterspace token list
      clusterspace token list -o json
    """
    from clusterspace.roots.tokens import list_tokens

    found = run(lambda: list_tokens(hub.settings()))
    nothing = "no token is left: clusterspace token create NAME makes one"
    lines = tuple(
        Line(each.token_id, (each.token_id, each.cluster_name, each.state, each.expires))
        for each in found
    )
    show(Listing(_COLUMNS, lines, document=found, nothing=nothing), output)


@token.command()
@click.argument("tokens", metavar="TOKEN...", nargs=-1, required=True)
@hub_options
def delete(*, tokens: tuple[str, ...], hub: HubOptions) -> None:
    """Take tokens back, given whole or by the part before the dot: they let nobody in any more.

    \b
    Examples:
      clusterspace token delete abcdef
    """
    from clusterspace.roots.tokens import delete_token

    async def work() -> None:
        settings = hub.settings()
        for each in tokens:
            click.echo(f"token {await delete_token(each, settings)} deleted")

    run(work)
