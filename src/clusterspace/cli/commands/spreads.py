"""`clusterspace migrate spread` and `move`: from one cluster to several, or to another."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from clusterspace.cli.commands.migrating import MOST_LINES, at_once_option, quiet, say, words
from clusterspace.cli.options import (
    Command,
    HubOptions,
    MemberOptions,
    Networks,
    hub_options,
    member_cidrs_option,
    member_options,
)
from clusterspace.cli.output import Line, Listing, people_console, table_of
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.fleet.migration.groups import Group, Spread
    from clusterspace.fleet.migration.spreading import SpreadRequest


def _spread_options(command: Command) -> Command:
    """Add the options that `spread` and `move` share."""
    for option in reversed(
        (
            click.argument("name", metavar="MIGRATION"),
            click.option("--to", required=True, help="Clusters, separated by commas."),
            click.option("--dry-run", is_flag=True, help="Only say what would become of what."),
            at_once_option,
            click.option(
                "--timeout",
                "patience",
                type=click.IntRange(1, 86_400),
                default=600,
                show_default=True,
                help="Seconds that all of it may take to become healthy.",
            ),
            member_options("Kubeconfig of the cluster in --to; else the hub's own way in is used."),
            member_cidrs_option,
            hub_options,
        )
    ):
        command = option(command)
    return command


@click.command()
@_spread_options
def spread(
    *,
    name: str,
    to: str,
    dry_run: bool,
    at_once: int,
    patience: int,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Have what MIGRATION took on more clusters; where it is, it stays.

    What holds data is not spread: claims and their volumes, StatefulSets, Jobs, and what needs
    them. It is done when everything is healthy on all clusters.

    \b
    Examples:
      clusterspace migrate spread west-20260102-030405 --to east --dry-run
      clusterspace migrate spread west-20260102-030405 --to east,north
    """
    from clusterspace.fleet.migration.spreading import SpreadRequest

    request = SpreadRequest(words(to), at_once=at_once, patience=patience)
    _spread(name, request, member, member_cidrs, hub, dry_run=dry_run, is_sure=True)


@click.command()
@_spread_options
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
def move(
    *,
    name: str,
    to: str,
    dry_run: bool,
    is_sure: bool,
    at_once: int,
    patience: int,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Have what MIGRATION took on other clusters instead of where it is.

    It is added there first. A copy is removed from where it was only when all that replace it are
    healthy. What holds data stays, and so does what others may need. `--to` the cluster that it
    was taken from is the way back.

    \b
    Examples:
      clusterspace migrate move west-20260102-030405 --to east --dry-run
      clusterspace migrate move west-20260102-030405 --to east
      clusterspace migrate move west-20260102-030405 --to west --yes
    """
    from clusterspace.fleet.migration.spreading import SpreadRequest

    request = SpreadRequest(words(to), is_move=True, at_once=at_once, patience=patience)
    _spread(name, request, member, member_cidrs, hub, dry_run=dry_run, is_sure=is_sure)


def _spread(
    name: str,
    request: "SpreadRequest",
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
    *,
    dry_run: bool,
    is_sure: bool,
) -> None:
    """Show what would become of what, and have it done unless that is all that is asked for."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from clusterspace.fleet.migration.groups import Group
    from clusterspace.roots import cluster_migration as root

    if not request.to:
        raise click.BadParameter("it names no cluster", param_hint="--to")
    quiet()
    places = ", ".join(request.to)
    ways = {
        Group.GOES: f"to {places}" if request.is_move else f"also to {places}",
        Group.SHARED: f"also to {places}",
        Group.STAYS: "stays",
    }
    was_there = False
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=people_console(stderr=True), transient=True) as bars:
        task = bars.add_task("looking", total=None)

        def approve(planned: "list[Spread]") -> bool:
            nonlocal was_there
            notable = [each for each in planned if each.why or each.notes]
            lines = [
                Line(
                    each.planned.title,
                    (
                        each.planned.title,
                        "is there" if _is_done(each) else ways[each.group],
                        "; ".join((each.why, *each.notes)).strip("; "),
                    ),
                )
                for each in notable[:MOST_LINES]
            ]
            bars.stop()
            done = sum(map(_is_done, planned))
            counts = Counter(each.group for each in planned if not _is_done(each))
            if lines:
                columns = ("OBJECT", "GOES", "WHY")
                people_console().print(table_of(Listing(columns, tuple(lines), {})))
            if len(notable) > MOST_LINES:
                click.echo(f"and {len(notable) - MOST_LINES} more")
            there = f"{done} {'is' if done == 1 else 'are'} on {places} already"
            is_new = bool(counts[Group.GOES] or counts[Group.SHARED])
            was_there = bool(done) and not is_new
            if not was_there:
                more = f" {there[0].upper()}{there[1:]}." if done else ""
                click.echo(f"{_groups_text(counts, places, request.is_move)}{more}")
            else:
                stays = counts[Group.STAYS]
                click.echo(f"{there}{f', {stays} stay where they are' if stays else ''}.")
            if dry_run:
                click.echo("Nothing was written.")
                return False
            if is_new and not is_sure:
                click.confirm("Go on?", abort=True)
            bars.start()
            return True

        def progress(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        counts = run(
            lambda: root.spread(
                name,
                hub.settings(),
                root.Member(member.settings("member"), member_cidrs),
                request,
                approve,
                progress,
                say,
            )
        )
    if counts:
        verb = "moved" if request.is_move else "spread"
        # Somebody who was interrupted goes on with the same words, so it is waited for again.
        done = f"was on {places} already" if was_there else f"{verb} to {places}"
        click.echo(f"migration {name}: {done}, all of it healthy there")


def _is_done(spread: "Spread") -> bool:
    """Whether an object that is to go somewhere is to be there already."""
    from clusterspace.fleet.migration.groups import Group

    return spread.is_there and spread.group is not Group.STAYS


def _groups_text(counts: "Counter[Group]", places: str, is_move: bool) -> str:
    from clusterspace.fleet.migration.groups import Group

    goes = f"{counts[Group.GOES]} go {'' if is_move else 'also '}to {places}"
    shared = f", {counts[Group.SHARED]} go there and stay as well" if counts[Group.SHARED] else ""
    stays = f", {counts[Group.STAYS]} stay where they are" if counts[Group.STAYS] else ""
    return f"{goes}{shared}{stays}."
