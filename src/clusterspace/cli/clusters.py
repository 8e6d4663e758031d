"""`clusterspace clusters`, `cordon`, `uncordon`, `taint`: the fleet at a glance, who gets work."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.hub_option import hub_options, run

if TYPE_CHECKING:
    from rich.table import Table

    from clusterspace.client.resources import ClusterClient
    from clusterspace.membership.taints import TaintEdit

_REFRESH_SECONDS: Final = 2.0
_PIPE_WIDTH: Final = 250
_COLOURS: Final = {"True": "green", "False": "red", "Unknown": "yellow", "Leaving": "yellow"}


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Stay, and show changes as they happen.")
@hub_options
def clusters(kubeconfig: Path | None, context: str, *, watch: bool) -> None:
    """Show the members: whether they are well, what they have, who may not get work."""
    from rich.console import Console
    from rich.live import Live

    from clusterspace.processes.clients import hub_settings, open_client

    async def work() -> None:
        console = Console()
        if not console.is_terminal:
            # Whoever reads a pipe wants whole words, not a table that fits a screen.
            console = Console(width=_PIPE_WIDTH)
        async with open_client(hub_settings(kubeconfig, context)) as hub:
            if not watch:
                console.print(await _table(hub))
                return
            with Live(await _table(hub), console=console, auto_refresh=False) as screen:
                while True:
                    await asyncio.sleep(_REFRESH_SECONDS)
                    screen.update(await _table(hub), refresh=True)

    try:
        run(work)
    except KeyboardInterrupt:
        return


@click.command()
@click.argument("name")
@hub_options
def cordon(name: str, kubeconfig: Path | None, context: str) -> None:
    """Place nothing new on the member NAME; what is there stays."""
    from clusterspace.membership.taints import CORDON, TaintEdit

    changed = _edit_taints(name, TaintEdit(added=(CORDON,)), kubeconfig, context)
    click.echo(f"{name} cluster {'cordoned' if changed else 'already cordoned'}")


@click.command()
@click.argument("name")
@hub_options
def uncordon(name: str, kubeconfig: Path | None, context: str) -> None:
    """Let the member NAME get new work again."""
    from clusterspace.membership.taints import CORDON, TaintEdit

    changed = _edit_taints(name, TaintEdit(removed=(CORDON,)), kubeconfig, context)
    click.echo(f"{name} cluster {'uncordoned' if changed else 'already uncordoned'}")


@click.command()
@click.argument("name")
@click.argument("taints", nargs=-1, required=True)
@hub_options
def taint(name: str, taints: tuple[str, ...], kubeconfig: Path | None, context: str) -> None:
    """Set or remove taints of the member NAME: key=value:Effect, or key:Effect- to remove it.

    \b
    clusterspace taint west maintenance=today:NoSchedule
    clusterspace taint west maintenance-
    """
    from clusterspace.errors import ClusterspaceError
    from clusterspace.membership.taints import parse_edit

    try:
        edit = parse_edit(taints)
    except ClusterspaceError as error:
        raise click.BadParameter(str(error), param_hint="TAINTS") from error
    changed = _edit_taints(name, edit, kubeconfig, context)
    click.echo(f"cluster {name} {'tainted' if changed else 'not changed'}")


def _edit_taints(name: str, edit: "TaintEdit", kubeconfig: Path | None, context: str) -> bool:
    """Edit the taints of a Cluster; return whether that changed anything."""
    from clusterspace.api.clusters import taints_of
    from clusterspace.membership.names import cluster_place
    from clusterspace.membership.taints import edited_taints, with_taints
    from clusterspace.processes.clients import hub_settings, open_client
    from clusterspace.runtime.commit import commit

    async def work() -> bool:
        async with open_client(hub_settings(kubeconfig, context)) as hub:
            cluster = await hub.get(cluster_place(name))
            wanted = edited_taints(taints_of(cluster), edit)
            if wanted == list(taints_of(cluster)):
                return False
            await commit(hub, cluster_place(name), cluster, with_taints(cluster, wanted))
            return True

    return run(work)


async def _table(hub: "ClusterClient") -> "Table":
    from rich.table import Table

    from clusterspace.api.clusters import CLUSTER_NAMESPACE, CLUSTERS
    from clusterspace.client.places import Place
    from clusterspace.kube.objects import name_of
    from clusterspace.membership.names import LEASES
    from clusterspace.membership.overview import COLUMNS, row_of

    leases = {
        name_of(each): each for each in await hub.list_objects(Place(LEASES, CLUSTER_NAMESPACE))
    }
    table = Table(*COLUMNS, box=None, header_style="bold")
    for cluster in await hub.list_objects(Place(CLUSTERS)):
        row = row_of(cluster, leases.get(name_of(cluster)), hub.connection.clock.now())
        table.add_row(*row.cells(), style=_COLOURS.get(row.ready))
    return table
