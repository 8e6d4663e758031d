"""`clusterspace ui`: the page, opened in a browser by somebody who is logged in already."""

from pathlib import Path

import click

from clusterspace.cli.running import run


@click.command()
@click.option(
    "--kubeconfig",
    "fleet_kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the fleet API server.  [default: KUBECONFIG, else the local one]",
)
@click.option("--context", default="", help="Context in it.  [default: fleet, else the current]")
@click.option("--no-open", is_flag=True, help="Print the address, and open no browser.")
def ui(fleet_kubeconfig: Path | None, context: str, *, no_open: bool) -> None:
    """Open the page of the fleet: what is broken, where, and why.

    The page has the rights of your kubeconfig, and changes nothing unless you ask it to. The
    address logs in one browser, once, within a minute.

    \b
    Examples:
      clusterspace ui
      clusterspace ui --no-open
    """
    from clusterspace.roots.kubeconfigs import fleet_settings
    from clusterspace.roots.page import login_address

    address = run(lambda: login_address(fleet_settings(fleet_kubeconfig, context)))
    click.echo(address)
    if not no_open:
        # Says itself whether it could: without a browser the address is there to be copied.
        click.launch(address)
