"""`clusterspace drain`, `rebalance` and `simulate`: workloads elsewhere, for real or not yet."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import cluster_names, kinds_and_names
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
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from clusterspace.fleet.propagation.simulation import Preview
    from clusterspace.roots.moves import Progress

_LOOK_SECONDS: Final = 2.0
_FAILOVER: Final = "failover"
_STYLES: Final = {"moves": "green", "leaves": "green", "placed": "green", "stays": "yellow"}
_STEPS: Final = {
    "left": "green",
    "placed": "green",
    "moves": "cyan",
    "stops": "cyan",
    "waits": "yellow",
}
_DO: Final = {"moves": "to move", "leaves": "to leave", "stays": "to stay", "stops": "to stop"}
_ONE_BY_ONE: Final = ("WORKLOAD", "CLASS", "OUTCOME", "BEFORE", "AFTER", "WHY")


@click.command()
@click.argument("name", metavar="CLUSTER", shell_complete=cluster_names)
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and do nothing.")
@click.option("--undo", "is_undo", is_flag=True, help="End a drain: what is there may stay.")
@click.option("--no-wait", is_flag=True, help="Begin, and leave the rest to the controllers.")
@click.option(
    "--timeout",
    "patience",
    type=click.IntRange(1, 86_400),
    default=1800,
    show_default=True,
    help="Seconds to watch it; the controllers go on after that.",
)
@output_option()
@hub_options
def drain(
    *,
    name: str,
    is_sure: bool,
    dry_run: bool,
    is_undo: bool,
    no_wait: bool,
    patience: int,
    output: str,
    hub: HubOptions,
) -> None:
    """Move what may run elsewhere off CLUSTER, and place nothing new there.

    First the plan: what moves where, and what cannot, and why. Then, if you say yes, the Cluster
    gets the taint clusterspace.io/drain:NoExecute, and the controllers move one workload after the
    other: a replacement is healthy before the old copy goes, and an exclusive workload stops before
    the next copy starts. What has no other place stays. When this command ends, or is killed, the
    controllers go on; run it again to look, or with --undo to have what is left stay.

    -o json and -o yaml print the plan, and do nothing.

    \b
    Examples:
      clusterspace drain west --dry-run
      clusterspace drain west
      clusterspace drain west --yes --no-wait
      clusterspace drain west --undo
    """
    from clusterspace.roots import moves as root

    settings = hub.settings()
    if is_undo:
        was_on = run(lambda: root.set_drain(name, settings, is_on=False))
        if not was_on:
            click.echo(f"{name} is not being drained")
            return
        click.echo(f"{name} is not drained any more: what is there stays, and new work may come")
        click.echo(
            "what has left stays where it is; `clusterspace rebalance --all` places it anew",
            err=True,
        )
        return

    plan = run(lambda: root.plan_drain(name, settings))
    previews = plan.leaving.previews
    nothing = f"nothing is placed on {name} by a policy"
    listing = Listing(_ONE_BY_ONE, _preview_lines(previews), plan, ("ELSEWHERE",), nothing)
    show(listing, output)
    if output not in (Output.TABLE.value, Output.WIDE.value):
        return
    for note in plan.leaving.notes:
        click.echo(note, err=True)
    going = [each for each in previews if each.outcome.value in ("moves", "leaves")]
    click.echo(f"{name}: {_counted(previews)}", err=True)
    if dry_run:
        return
    if plan.since:
        click.echo(f"{name} is being drained since {plan.since}", err=True)
    else:
        _ask(f"Drain {name}?", is_sure=is_sure)
        run(lambda: root.set_drain(name, settings, is_on=True))
        click.echo(
            f"{name} is being drained: `clusterspace drain {name} --undo` ends that", err=True
        )
    if no_wait or not going:
        return

    async def look() -> "tuple[Progress, ...]":
        return await root.drain_progress(name, going, settings)

    left = _follow(look, patience)
    staying = len(previews) - len(going)
    if left:
        raise click.ClickException(
            f"{len(left)} of {len(going)} workloads have not left {name} yet; the controllers go "
            f"on, and `clusterspace drain {name}` looks again"
        )
    stay = f", and {staying} cannot" if staying else ""
    click.echo(f"{name} is drained: {len(going)} workloads have left{stay}")


@click.command()
@click.argument("words", nargs=-1, metavar="[KIND/NAME]...", shell_complete=kinds_and_names)
@click.option("-n", "--namespace", default="", help="Their namespace.  [default: default]")
@click.option("--all", "are_all", is_flag=True, help="All workloads, or all of --namespace.")
@click.option("--cluster", default="", shell_complete=cluster_names, help="Those on this cluster.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show before and after, and do nothing.")
@click.option("--no-wait", is_flag=True, help="Begin, and leave the rest to the controllers.")
@click.option(
    "--timeout",
    "patience",
    type=click.IntRange(1, 86_400),
    default=600,
    show_default=True,
    help="Seconds to watch it; the controllers go on after that.",
)
@output_option()
@hub_options
def rebalance(
    *,
    words: tuple[str, ...],
    namespace: str,
    are_all: bool,
    cluster: str,
    is_sure: bool,
    dry_run: bool,
    no_wait: bool,
    patience: int,
    output: str,
    hub: HubOptions,
) -> None:
    """Place workloads anew, as if they had just come.

    What is placed stays where it is, however full clusters become. This shows where each workload
    would be placed now; if you say yes, a WorkloadRebalancer has those moved that are elsewhere.
    With clusterAffinities it begins with the first group again.

    -o json and -o yaml print the plan, and do nothing.

    \b
    Examples:
      clusterspace rebalance deployment/web -n shop
      clusterspace rebalance --all --dry-run
      clusterspace rebalance --cluster west --yes
    """
    from clusterspace.roots import moves as root

    if bool(words) + are_all + bool(cluster) != 1:
        raise click.UsageError("Say which: KIND/NAME, --all, or --cluster.")
    named: list[tuple[str, str]] = []
    for word in words:
        kind, _, name = word.partition("/")
        if not kind or not name:
            hint = "write KIND/NAME, such as deployment/web"
            raise click.BadParameter(hint, param_hint="KIND/NAME")
        named.append((kind, name))
    settings, inside = hub.settings(), namespace or ("default" if words else "")
    plan = run(lambda: root.plan_rebalance(named, inside, cluster, settings))
    moving = [each for each in plan.previews if each.outcome.value == "moves"]
    listing = Listing(
        ("WORKLOAD", "OUTCOME", "BEFORE", "AFTER", "WHY"),
        tuple(
            Line(each.key, (*cells[:1], *cells[2:]), style=_STYLES.get(each.outcome.value, ""))
            for each in plan.previews
            for cells in (_preview_cells(each),)
        ),
        plan,
        nothing="nothing is placed by a policy",
    )
    show(listing, output)
    if output not in (Output.TABLE.value, Output.WIDE.value):
        return
    click.echo(_counted(plan.previews), err=True)
    if dry_run or not moving:
        return
    _ask(f"Move {len(moving)}?", is_sure=is_sure)
    name = run(lambda: root.begin_rebalance(plan.references, settings))
    click.echo(f"workloadrebalancer {name} created", err=True)
    if no_wait:
        return

    async def look() -> "tuple[Progress, ...]":
        return await root.rebalance_progress(plan.references, settings)

    if left := _follow(look, patience):
        raise click.ClickException(
            f"{len(left)} of {len(moving)} workloads are not healthy at their new places yet; "
            f"`kubectl get workloadrebalancer {name} -o yaml` and `clusterspace why` say more"
        )
    click.echo(f"{len(moving)} workloads are placed anew")


@click.command()
@click.argument("what", metavar="failover|FILE", type=click.Path(allow_dash=True))
@click.option(
    "--cluster",
    "names",
    multiple=True,
    shell_complete=cluster_names,
    help="Cluster that fails.  [repeatable]",
)
@output_option()
@hub_options
def simulate(*, what: str, names: tuple[str, ...], output: str, hub: HubOptions) -> None:
    """Say what would happen, on live data, and touch nothing.

    `failover --cluster west` tells what becomes of all that is on west if it falls silent now and
    stays so. FILE with a PropagationPolicy or ClusterPropagationPolicy, and objects beside it if
    they are not on the hub yet, tells which clusters would get what, and which filter keeps the
    others away. The decisions are those of the scheduler, made by its own code.

    \b
    Examples:
      clusterspace simulate failover --cluster west
      clusterspace simulate failover --cluster west --cluster east -o wide
      clusterspace simulate policy.yaml
      kubectl kustomize overlays/prod | clusterspace simulate -
    """
    from clusterspace.roots import simulation as root

    if what == _FAILOVER:
        if not names:
            raise click.UsageError("Say which cluster fails: --cluster NAME.")
        leaving = run(lambda: root.simulate_failover(names, hub.settings()))
        lines = _preview_lines(leaving.previews)
        nothing = f"nothing is placed on {', '.join(names)} by a policy"
        show(Listing(_ONE_BY_ONE, lines, leaving, ("ELSEWHERE",), nothing), output)
        if output in (Output.TABLE.value, Output.WIDE.value):
            for note in leaving.notes:
                click.echo(note, err=True)
            click.echo(_counted(leaving.previews), err=True)
        return
    if names:
        raise click.UsageError("--cluster goes with `simulate failover`.")
    from clusterspace.roots.interpretation import read_objects

    try:
        text = sys.stdin.read() if what == "-" else Path(what).read_text()
    except FileNotFoundError as error:
        hint = f"{what}: there is no such file; or write `simulate failover --cluster NAME`"
        raise click.UsageError(hint) from error
    objects = read_objects(text, what)
    previews = run(lambda: root.simulate_files(objects, hub.settings()))
    lines = tuple(line for each in previews for line in _placement_lines(each))
    nothing = "the policy selects nothing that is on the hub, or in the file"
    columns = ("WORKLOAD", "CLUSTER", "REPLICAS", "FILTER", "WHY")
    show(Listing(columns, lines, previews, nothing=nothing), output)


def _placement_lines(preview: "Preview") -> "Iterable[Line]":
    """Return a line for each cluster: what it would get, or which filter says that it does not."""
    workload = _workload(preview)
    for cluster, replicas in sorted(preview.after.items()):
        cells = (workload, cluster, str(replicas or "whole"), "", preview.why)
        yield Line(f"{preview.key}@{cluster}", cells, style="green")
    for each in preview.others:
        yield Line(
            f"{preview.key}@{each.cluster}", (workload, each.cluster, "", each.filter, each.reason)
        )
    if not preview.after and not preview.others:
        yield Line(preview.key, (workload, "", "", "", preview.why), style="yellow")


def _preview_lines(previews: "Iterable[Preview]") -> tuple[Line, ...]:
    return tuple(
        Line(
            each.key,
            _preview_cells(each),
            wide_cells=("; ".join(f"{one.cluster} {one.reason}" for one in each.others),),
            style=_STYLES.get(each.outcome.value, "red"),
        )
        for each in previews
    )


def _preview_cells(preview: "Preview") -> tuple[str, ...]:
    why = "; ".join(part for part in (preview.why, preview.kept_data) if part)
    return (
        _workload(preview),
        preview.workload_class,
        preview.outcome.value,
        _places(preview.before),
        _places(preview.after),
        why,
    )


def _workload(of: "Preview | Progress") -> str:
    where = f" -n {of.namespace}" if of.namespace else ""
    return f"{of.kind.lower()}/{of.name}{where}"


def _places(counts: "Mapping[str, int]") -> str:
    return ", ".join(f"{name}:{count}" if count else name for name, count in sorted(counts.items()))


def _counted(previews: "Iterable[Preview]") -> str:
    counts = Counter(each.outcome.value for each in previews)
    said = (f"{count} {_DO.get(outcome, outcome)}" for outcome, count in counts.items())
    return ", ".join(said) or "nothing to do"


def _ask(question: str, *, is_sure: bool) -> None:
    if is_sure:
        return
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as error:
        raise click.ClickException("nothing was done; --yes says yes beforehand") from error


def _follow(
    look: "Callable[[], Awaitable[tuple[Progress, ...]]]", patience: float
) -> "tuple[Progress, ...]":
    """Show how far workloads are until all have arrived; return those that have not in time."""

    async def work() -> "tuple[Progress, ...]":
        from rich.live import Live

        from clusterspace.aio.clocks import SystemClock

        clock, seen = SystemClock(), dict[str, tuple[str, ...]]()
        ends, console = clock.monotonic() + patience, people_console(stderr=True)
        with Live(console=console, auto_refresh=False, transient=True) as screen:
            while True:
                found = await look()
                lines = tuple(
                    Line(_workload(each), cells, style=_STEPS.get(each.step.value, ""))
                    for each in found
                    for cells in ((_workload(each), each.step.value, ", ".join(each.on), each.why),)
                )
                if console.is_terminal:
                    listing = Listing(("WORKLOAD", "STEP", "ON", "WHY"), lines, found)
                    screen.update(table_of(listing), refresh=True)
                else:
                    for line in lines:
                        # In a pipe, a line for each step of each workload.
                        if seen.get(line.name) != line.cells:
                            click.echo("  ".join(cell for cell in line.cells if cell), err=True)
                        seen[line.name] = line.cells
                left = tuple(each for each in found if not each.step.is_over)
                if not left or clock.monotonic() >= ends:
                    return left
                await clock.sleep(_LOOK_SECONDS)

    try:
        return run(work)
    except KeyboardInterrupt:
        click.echo("the controllers go on; the same command looks again", err=True)
        raise click.exceptions.Exit(1) from None
