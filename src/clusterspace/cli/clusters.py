"""`clusterspace clusters`, `cordon`, `uncordon`, `taint`: the fleet at a glance, who gets work."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.hub_option import hub_options, run
from clusterspace.cli.output import (
    Line,
    Listing,
    Output,
    output_option,
    people_console,
    show,
    table_of,
)

if TYPE_CHECKING:
    from clusterspace.client.resources import ClusterClient
    from clusterspace.fleet.membership.taints import TaintEdit
    from clusterspace.kube.objects import Object

_REFRESH_SECONDS: Final = 2.0
_WIDE_COLUMNS: Final = ("PROVIDER", "REGION", "ZONES", "ENDPOINT", "ID")
_COLOURS: Final = {"True": "green", "False": "red", "Unknown": "yellow", "Leaving": "yellow"}


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Stay, and show changes as they happen.")
@output_option()
@hub_options
def clusters(kubeconfig: Path | None, context: str, output: str, *, watch: bool) -> None:
    """Show the members: whether they are well, what they have, who may not get work.

    \b
    Examples:
      clusterspace clusters
      clusterspace clusters --watch
      clusterspace clusters -o wide
      clusterspace clusters -o name
    """
    from rich.live import Live

    from clusterspace.roots.clients import hub_settings, open_client

    is_wide = output == Output.WIDE.value
    if watch and not is_wide and output != Output.TABLE.value:
        raise click.UsageError("--watch shows a table: leave it out for other forms of output.")

    async def work() -> None:
        async with open_client(hub_settings(kubeconfig, context)) as hub:
            if not watch:
                show(await _listing(hub), output)
                return
            first = table_of(await _listing(hub), is_wide=is_wide)
            with Live(first, console=people_console(), auto_refresh=False) as screen:
                while True:
                    await asyncio.sleep(_REFRESH_SECONDS)
                    screen.update(table_of(await _listing(hub), is_wide=is_wide), refresh=True)

    try:
        run(work)
    except KeyboardInterrupt:
        return


@click.command()
@click.argument("name", shell_complete=cluster_names)
@hub_options
def cordon(name: str, kubeconfig: Path | None, context: str) -> None:
    """Place nothing new on the member NAME; what is there stays.

    \b
    Examples:
      clusterspace cordon west
    """
    from clusterspace.fleet.membership.taints import CORDON, TaintEdit

    changed = _edit_taints(name, TaintEdit(added=(CORDON,)), kubeconfig, context)
    click.echo(f"{name} cluster {'cordoned' if changed else 'already cordoned'}")


@click.command()
@click.argument("name", shell_complete=cluster_names)
@hub_options
def uncordon(name: str, kubeconfig: Path | None, context: str) -> None:
    """Let the member NAME get new work again.

    \b
    Examples:
      clusterspace uncordon west
    """
    from clusterspace.fleet.membership.taints import CORDON, TaintEdit

    changed = _edit_taints(name, TaintEdit(removed=(CORDON,)), kubeconfig, context)
    click.echo(f"{name} cluster {'uncordoned' if changed else 'already uncordoned'}")


@click.command()
@click.argument("name", shell_complete=cluster_names)
@click.argument("taints", nargs=-1, required=True)
@hub_options
def taint(name: str, taints: tuple[str, ...], kubeconfig: Path | None, context: str) -> None:
    """Set or remove taints of the member NAME: key=value:Effect, or key:Effect- to remove it.

    \b
    Examples:
      clusterspace taint west maintenance=today:NoSchedule
      clusterspace taint west maintenance-
    """
    from clusterspace.errors import ClusterspaceError
    from clusterspace.fleet.membership.taints import parse_edit

    try:
        edit = parse_edit(taints)
    except ClusterspaceError as error:
        raise click.BadParameter(str(error), param_hint="TAINTS") from error
    changed = _edit_taints(name, edit, kubeconfig, context)
    click.echo(f"cluster {name} {'tainted' if changed else 'not changed'}")


def _edit_taints(name: str, edit: "TaintEdit", kubeconfig: Path | None, context: str) -> bool:
    """Edit the taints of a Cluster; return whether that changed anything."""
    from clusterspace.apis.clusters import taints_of
    from clusterspace.controllers.commit import commit
    from clusterspace.fleet.membership.names import cluster_place
    from clusterspace.fleet.membership.taints import edited_taints, with_taints
    from clusterspace.roots.clients import hub_settings, open_client

    async def work() -> bool:
        async with open_client(hub_settings(kubeconfig, context)) as hub:
            cluster = await hub.get(cluster_place(name))
            wanted = edited_taints(taints_of(cluster), edit)
            if wanted == list(taints_of(cluster)):
                return False
            await commit(hub, cluster_place(name), cluster, with_taints(cluster, wanted))
            return True

    return run(work)


async def _listing(hub: "ClusterClient") -> Listing:
    from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS
    from clusterspace.client.places import Place
    from clusterspace.fleet.membership.names import LEASES
    from clusterspace.fleet.membership.overview import COLUMNS, row_of
    from clusterspace.kube.objects import name_of, without_value

    now = hub.connection.clock.now()
    leases = await hub.list_objects(Place(LEASES, CLUSTER_NAMESPACE))
    lease_of = {name_of(each): each for each in leases}
    found = await hub.list_objects(Place(CLUSTERS))
    return Listing(
        columns=COLUMNS,
        wide_columns=_WIDE_COLUMNS,
        lines=tuple(
            Line(
                f"cluster.{CLUSTERS.group}/{name_of(each)}",
                (row := row_of(each, lease_of.get(name_of(each)), now)).cells(),
                wide_cells=_wide_cells(each),
                style=_COLOURS.get(row.ready, ""),
            )
            for each in found
        ),
        # Without who owns which field, like kubectl.
        document={
            "apiVersion": "v1",
            "kind": "List",
            "items": [without_value(each, "metadata", "managedFields") for each in found],
        },
        nothing="no cluster has joined yet: clusterspace join --help says how",
    )


def _wide_cells(cluster: "Object") -> tuple[str, ...]:
    from clusterspace.kube.objects import find_at

    def said(field: str) -> str:
        return str(find_at(cluster, "spec", field) or "")

    zones = ",".join(find_at(cluster, "spec", "zones") or ())
    return said("provider"), said("region"), zones, said("apiEndpoint"), said("id")
