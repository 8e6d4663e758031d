"""`clusterspace clusters`, `cordon`, `uncordon`, `taint`, `kubeconfig`: members of the fleet."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import (
    Line,
    Listing,
    Output,
    output_option,
    people_console,
    show,
    table_of,
)
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.client.resources import ClusterClient
    from clusterspace.fleet.membership.controller import TaintEdit
    from clusterspace.kube.objects import Object

_REFRESH_SECONDS: Final = 2.0
_WIDE_COLUMNS: Final = ("PROVIDER", "REGION", "ZONES", "ENDPOINT", "ID")
_WIDTH_FOR_BARS: Final = 110
"""A terminal that is narrower has no room for pictures."""
_COLOURS: Final = {"True": "green", "False": "red", "Unknown": "yellow", "Leaving": "yellow"}


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Stay, and show changes as they happen.")
@output_option()
@hub_options
def clusters(*, watch: bool, output: str, hub: HubOptions) -> None:
    """Show the members: whether they are well, what they have, who may not get work.

    \b
    Examples:
      clusterspace clusters
      clusterspace clusters --watch
      clusterspace clusters -o wide
      clusterspace clusters -o name
    """
    from clusterspace.roots.clients import open_client

    is_wide = output == Output.WIDE.value
    if watch and not is_wide and output != Output.TABLE.value:
        raise click.UsageError("--watch shows a table: leave it out for other forms of output.")

    async def work() -> None:
        async with open_client(hub.settings()) as client:
            if not watch:
                show(await _listing(client), output)
                return
            if not people_console().is_terminal:
                await _watch_in_pipe(client, output)
                return
            from rich.live import Live

            # Drawn over and over in its place.
            first = table_of(await _listing(client), is_wide=is_wide)
            with Live(first, console=people_console(), auto_refresh=False) as screen:
                while True:
                    await asyncio.sleep(_REFRESH_SECONDS)
                    screen.update(table_of(await _listing(client), is_wide=is_wide), refresh=True)

    try:
        run(work)
    except KeyboardInterrupt:
        return


async def _watch_in_pipe(client: "ClusterClient", output: str) -> None:
    """Print the table once, and then the lines that changed, as they change."""
    seen: dict[str, Line] = {}
    is_first = True
    while True:
        listing = await _listing(client)
        # How long ago an agent was heard changes all the time, and is no change.
        lines = {each.name: each for each in listing.lines}
        changed = [
            each
            for name, each in lines.items()
            if name not in seen or _without_heartbeat(seen[name]) != _without_heartbeat(each)
        ]
        gone = [
            replace(seen[name], cells=(*seen[name].cells[:2], "Gone", *seen[name].cells[3:]))
            for name in seen
            if name not in lines
        ]
        if changed or gone or is_first:
            show(replace(listing, lines=(*changed, *gone)), output, has_head=not seen)
            sys.stdout.flush()
        seen, is_first = lines, False
        await asyncio.sleep(_REFRESH_SECONDS)


def _without_heartbeat(line: Line) -> tuple[str, ...]:
    from clusterspace.fleet.membership.overview import COLUMNS

    place = COLUMNS.index("HEARTBEAT")
    return (*line.cells[:place], *line.cells[place + 1 :])


@click.command()
@click.argument("name", shell_complete=cluster_names)
@hub_options
def cordon(*, name: str, hub: HubOptions) -> None:
    """Place nothing new on the member NAME; what is there stays.

    \b
    Examples:
      clusterspace cordon west
    """
    from clusterspace.fleet.membership.controller import CORDON, TaintEdit

    changed = _edit_taints(name, TaintEdit(added=(CORDON,)), hub)
    click.echo(f"{name} cluster {'cordoned' if changed else 'already cordoned'}")


@click.command()
@click.argument("name", shell_complete=cluster_names)
@hub_options
def uncordon(*, name: str, hub: HubOptions) -> None:
    """Let the member NAME get new work again.

    \b
    Examples:
      clusterspace uncordon west
    """
    from clusterspace.fleet.membership.controller import CORDON, TaintEdit

    changed = _edit_taints(name, TaintEdit(removed=(CORDON,)), hub)
    click.echo(f"{name} cluster {'uncordoned' if changed else 'already uncordoned'}")


@click.command()
@click.argument("name", shell_complete=cluster_names)
@click.argument("taints", nargs=-1, required=True)
@hub_options
def taint(*, name: str, taints: tuple[str, ...], hub: HubOptions) -> None:
    """Set or remove taints of the member NAME: key=value:Effect, or key:Effect- to remove it.

    \b
    Examples:
      clusterspace taint west maintenance=today:NoSchedule
      clusterspace taint west maintenance-
    """
    from clusterspace.errors import ClusterspaceError
    from clusterspace.fleet.membership.controller import parse_edit

    try:
        edit = parse_edit(taints)
    except ClusterspaceError as error:
        raise click.BadParameter(str(error), param_hint="TAINTS") from error
    changed = _edit_taints(name, edit, hub)
    done = "tainted" if edit.added and not edit.removed else "untainted"
    if edit.added and edit.removed:
        done = "modified"
    click.echo(f"cluster {name} {done if changed else 'not changed'}")


def _edit_taints(name: str, edit: "TaintEdit", hub: HubOptions) -> bool:
    """Edit the taints of a Cluster; return whether that changed anything."""
    from clusterspace.apis.clusters import taints_of
    from clusterspace.controllers.commit import commit_change
    from clusterspace.fleet.membership.controller import edited_taints, with_taints
    from clusterspace.fleet.membership.manifests import cluster_path
    from clusterspace.roots.clients import open_client

    async def work() -> bool:
        async with open_client(hub.settings()) as client:
            is_changed = False

            def edited(cluster: "Object") -> "Object":
                nonlocal is_changed
                desired = edited_taints(taints_of(cluster), edit)
                is_changed = desired != list(taints_of(cluster))
                return with_taints(cluster, desired) if is_changed else cluster

            await commit_change(client, cluster_path(name), edited)
            return is_changed

    return run(work)


async def _listing(client: "ClusterClient", *, has_bars: bool | None = None) -> Listing:
    from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS
    from clusterspace.client.requests import ResourcePath
    from clusterspace.fleet.membership.manifests import LEASES
    from clusterspace.fleet.membership.overview import COLUMNS, row_of
    from clusterspace.kube.objects import find_at, name_of, without_value

    now, console = client.connection.clock.now(), people_console()
    if has_bars is None:
        has_bars = not console.is_terminal or console.width >= _WIDTH_FOR_BARS
    leases = await client.list_objects(ResourcePath(LEASES, CLUSTER_NAMESPACE))
    lease_of = {name_of(each): each for each in leases}
    found = await client.list_objects(ResourcePath(CLUSTERS))
    lines: list[Line] = []
    for each in found:
        row = row_of(each, lease_of.get(name_of(each)), now, has_bars=has_bars)
        provider, region, endpoint, identity = (
            str(find_at(each, "spec", field) or "")
            for field in ("provider", "region", "apiEndpoint", "id")
        )
        zones = ",".join(find_at(each, "spec", "zones") or ())
        line = Line(
            f"cluster.{CLUSTERS.group}/{name_of(each)}",
            row.cells(),
            wide_cells=(provider, region, zones, endpoint, identity),
            style=_COLOURS.get(row.ready, ""),
        )
        lines.append(line)
    return Listing(
        columns=COLUMNS,
        wide_columns=_WIDE_COLUMNS,
        lines=tuple(lines),
        # Without who owns which field, like kubectl.
        document={
            "apiVersion": "v1",
            "kind": "List",
            "items": [without_value(each, "metadata", "managedFields") for each in found],
        },
        nothing="no cluster has joined yet: clusterspace join --help says how",
    )


@click.command()
@click.option(
    "--kubeconfig",
    "fleet_kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the fleet API server.  [default: KUBECONFIG, else the local one]",
)
@click.option("--context", default="", help="Context in it.  [default: fleet, else the current]")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write to.  [default: standard output]",
)
def kubeconfig(fleet_kubeconfig: Path | None, context: str, output: Path | None) -> None:
    """Write a kubeconfig with a context for the fleet, the hub and each cluster.

    Every context goes through the fleet API server, with the identity you have there.

    \b
    Examples:
      clusterspace kubeconfig --output fleet.yaml
      kubectl --kubeconfig fleet.yaml --context member1 get pods
    """
    from clusterspace.roots.installation import write_private
    from clusterspace.roots.kubeconfigs import all_contexts, fleet_settings

    content = run(lambda: all_contexts(fleet_settings(fleet_kubeconfig, context)))
    if output is None:
        click.echo(content.decode(), nl=False)
    else:
        write_private(output, content)
