"""`clusterspace token create`: what a cluster needs to register itself."""

from pathlib import Path

import click

from clusterspace.cli.hub_option import hub_options, run


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
    """Make a token with which the cluster NAME, and no other, can register once."""
    from clusterspace.processes.clients import hub_settings
    from clusterspace.processes.registering import create_token

    async def work() -> None:
        made = await create_token(name, hub_settings(kubeconfig, context), seconds=seconds)
        click.echo(made.command if print_register_command else made.token)

    run(work)
