"""`clusterspace migrate`: a whole live cluster planned, taken in, and given back."""

import functools
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from clusterspace.cli.commands.migrating import MOST_LINES, at_once_option, quiet, say, words
from clusterspace.cli.commands.proofs import prove, snapshot
from clusterspace.cli.commands.spreads import move, spread
from clusterspace.cli.completion import cluster_names
from clusterspace.cli.options import (
    Command,
    HubOptions,
    MemberOptions,
    Networks,
    hub_options,
    member_cidrs_option,
    member_options,
)
from clusterspace.cli.output import (
    Line,
    Listing,
    Output,
    document_text,
    people_console,
    show,
    table_of,
)
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from clusterspace.client.settings import ConnectionSettings
    from clusterspace.fleet.migration.plan import MigrationPlan
    from clusterspace.fleet.migration.progress import Item, Record, State

_STYLES: Final = {"Refused": "red", "WouldRestart": "red", "Changes": "yellow"}
_REACH: Final = "Kubeconfig of the member; without it the hub's own way in is used."
_output: Final = click.option(
    "-o",
    "--output",
    type=click.Choice([Output.TABLE.value, Output.JSON.value, Output.YAML.value]),
    default=Output.TABLE.value,
    show_default=True,
    help="How to show it.",
)
_patience: Final = click.option(
    "--timeout",
    "patience",
    type=click.IntRange(1, 86_400),
    default=120,
    show_default=True,
    help="Seconds that one object may take.",
)


def _other_hub(command: Command) -> Command:
    """Add the options that say where the other hub is; the command gets them as one `other`."""

    @functools.wraps(command)
    def with_other(*, hub_kubeconfig: Path | None, hub_context: str, **others: Any) -> None:
        command(**others, other=HubOptions(hub_kubeconfig, hub_context))

    decorated: Command = click.option("--hub-context", default="", help="Context in that one.")(
        with_other
    )
    return click.option(
        "--hub-kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Kubeconfig of the hub that has the objects today, for --from.",
    )(decorated)


def _settings_of(other: HubOptions) -> "ConnectionSettings | None":
    """Return how to reach the other hub; None when nobody said where it is."""
    from clusterspace.roots.clients import member_settings

    if other.kubeconfig is None:
        return None
    return member_settings("the other hub", other.kubeconfig, other.context)


@click.group()
def migrate() -> None:
    """Take a whole live cluster in, and be able to give it back.

    \b
    Examples:
      clusterspace migrate plan -C west -f west.yaml
      clusterspace migrate apply west.yaml
      clusterspace migrate status
      clusterspace migrate prove west-20260102-030405
      clusterspace migrate undo west-20260102-030405
    """


migrate.add_command(prove)
migrate.add_command(snapshot)
migrate.add_command(spread)
migrate.add_command(move)


@migrate.command()
@click.option(
    "-C", "--cluster", default="", shell_complete=cluster_names, help="The member to plan for."
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["karmada", "kubefleet"]),
    help="Plan for what this hub of another kind places, instead of for a member.",
)
@_other_hub
@click.option("-n", "--namespaces", default="", help="Only these, separated by commas.")
@click.option("-l", "--selector", default="", help="Only objects with these labels.")
@click.option("--kinds", default="", help="Only these, separated by commas: deploy,configmaps.")
@click.option("--name", default="", help="Name of the migration; made from cluster and time.")
@click.option(
    "-f",
    "--file",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plan to this file, for review and for `migrate apply`.",
)
@at_once_option
@_output
@member_options(_REACH)
@member_cidrs_option
@hub_options
def plan(
    *,
    cluster: str,
    source: str | None,
    other: HubOptions,
    namespaces: str,
    selector: str,
    kinds: str,
    name: str,
    target: Path | None,
    at_once: int,
    output: str,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Say what taking a cluster in would do, object by object; touch nothing.

    The member is asked for each object by a dry run of just the write that taking it over would
    be. Objects that would stay the same are taken by `migrate apply`; others only when their entry
    in the file says so.

    \b
    Examples:
      clusterspace migrate plan -C west
      clusterspace migrate plan -C west -n shop,bank -f west.yaml
      clusterspace migrate plan -C west --kinds deploy,configmaps -o yaml
      clusterspace migrate plan --from karmada --hub-kubeconfig karmada.config -f karmada.yaml
      clusterspace migrate plan --from kubefleet --hub-kubeconfig fleet.config -f fleet.yaml
    """
    import time

    import msgspec

    from clusterspace.errors import CannotMigrate, MalformedSelector
    from clusterspace.fleet.migration.plan import write_plan
    from clusterspace.fleet.migration.planning import PlanRequest
    from clusterspace.kube.names import dns1123_label_problems
    from clusterspace.kube.selectors import parse_label_selector
    from clusterspace.roots import cluster_migration as root

    if bool(source) == bool(cluster):
        raise click.UsageError("Either -C CLUSTER or --from HUB says what to plan for.")
    if source and (selector or kinds):
        raise click.UsageError("-l and --kinds choose objects of a member, and not of a hub.")
    made_at = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    chosen = name or f"{cluster or source}-{made_at}"[-63:].lstrip("-")
    for problem in dns1123_label_problems(chosen):
        raise click.BadParameter(problem, param_hint="--name")
    try:
        parse_label_selector(selector)
    except MalformedSelector as error:
        raise click.BadParameter(str(error), param_hint="-l") from error
    if target is not None and not target.parent.is_dir():
        raise click.BadParameter(f"there is no directory {target.parent}", param_hint="-f")
    if target is not None and target.exists():
        raise CannotMigrate(f"{target} is there already and is not overwritten: move it away")
    request = PlanRequest(
        name=chosen,
        cluster=cluster,
        namespaces=frozenset(words(namespaces)),
        label_selector=selector,
        kinds=words(kinds),
        at_once=at_once,
    )
    reach = root.Member(member.settings(cluster or "member"), member_cidrs)
    from rich.progress import Progress

    with Progress(console=people_console(stderr=True), transient=True) as bars:
        task = bars.add_task("looking", total=None)

        def progress(count: int, resource: str) -> None:
            bars.update(task, completed=count, description=f"{count} objects, {resource}")

        if source:
            there = _settings_of(other)
            if there is None:
                raise click.UsageError("--hub-kubeconfig is needed with --from.")
            made = run(
                lambda: root.plan_hub(
                    request, source, hub.settings(), there, member_cidrs, progress
                )
            )
        else:
            made = run(lambda: root.plan(request, hub.settings(), reach, progress))
    if target is not None:
        with target.open("w") as file:
            file.writelines(write_plan(made))
    if output == Output.TABLE.value:
        _summarise(made, target)
    elif output == Output.YAML.value:
        for piece in write_plan(made):
            click.echo(piece, nl=False)
    else:
        spec = msgspec.structs.replace(made.spec, items=tuple(made.spec.items))
        whole = msgspec.structs.replace(made, spec=spec)
        click.echo(document_text(whole, Output(output)), nl=False)


@migrate.command()
@click.argument("plan", metavar="PLAN")
@click.option("--continue", "goes_on", is_flag=True, help="Go on after a surprise.")
@at_once_option
@_patience
@_other_hub
@member_options(_REACH)
@member_cidrs_option
@hub_options
def apply(
    *,
    plan: str,
    goes_on: bool,
    at_once: int,
    patience: int,
    other: HubOptions,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Take in what PLAN says: its file, or the name of a migration that was begun.

    Each object is taken exactly once or not at all. It stops at the first surprise: an object that
    is refused, or whose pods restart. Stopped, killed or paused, it goes on where it was, from
    wherever the command is run next.

    \b
    Examples:
      clusterspace migrate apply west.yaml
      clusterspace migrate apply west-20260102-030405
    """
    from clusterspace.fleet.migration.apply import ApplyOptions
    from clusterspace.fleet.migration.plan import MigrationPlan, read_plan
    from clusterspace.fleet.migration.progress import State
    from clusterspace.kube.names import dns1123_label_problems
    from clusterspace.roots import cluster_migration as root

    source: MigrationPlan | str = plan
    if Path(plan).is_file():
        with Path(plan).open("rb") as file:
            source = read_plan(file, plan)
    elif dns1123_label_problems(plan):  # no migration is called that
        raise click.BadParameter(f"there is no file {plan}", param_hint="PLAN")
    quiet()
    options = ApplyOptions(at_once=at_once, goes_on=goes_on, patience=patience)
    with _progress("taken", (State.TAKEN, State.SKIPPED, State.REFUSED)) as progress:
        counts = run(
            lambda: root.apply(
                source,
                hub.settings(),
                root.Member(member.settings("member"), member_cidrs, _settings_of(other)),
                options,
                progress,
                say,
            )
        )
    name = source if isinstance(source, str) else source.name
    click.echo(f"migration {name}: {_counts_text(counts)}")
    if counts[State.REFUSED] or counts[State.TAKING]:
        click.echo(f"`clusterspace migrate status {name}` says why")
        raise click.exceptions.Exit(1)


@migrate.command()
@click.argument("name", metavar="MIGRATION")
@click.argument("only", metavar="[KIND/[NAMESPACE/]NAME]", default="")
@click.option(
    "--restore", "restores", is_flag=True, help="Make objects again what they were when taken."
)
@at_once_option
@_patience
@_other_hub
@member_options(_REACH)
@member_cidrs_option
@hub_options
def undo(
    *,
    name: str,
    only: str,
    restores: bool,
    at_once: int,
    patience: int,
    other: HubOptions,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Give back what MIGRATION took, or one object of it.

    The member keeps its objects, as they are now and without our marks; nothing restarts. From the
    hub go templates, policies, bindings and Works, and namespaces that are empty then.

    \b
    Examples:
      clusterspace migrate undo west-20260102-030405
      clusterspace migrate undo west-20260102-030405 Deployment/shop/web
      clusterspace migrate undo west-20260102-030405 --restore
    """
    from clusterspace.fleet.migration.progress import State
    from clusterspace.fleet.migration.undo import UndoOptions
    from clusterspace.roots import cluster_migration as root

    quiet()
    options = UndoOptions(
        at_once=at_once, only=only.replace("/", " ", 1), restores=restores, patience=patience
    )
    with _progress("given back", (State.UNDONE,)) as progress:
        counts = run(
            lambda: root.take_back(
                name,
                hub.settings(),
                root.Member(member.settings("member"), member_cidrs, _settings_of(other)),
                options,
                progress,
                say,
            )
        )
    click.echo(f"migration {name}: {_counts_text(counts)}")


@migrate.command()
@click.argument("name", metavar="[MIGRATION]", default="")
@_output
@hub_options
def status(*, name: str, output: str, hub: HubOptions) -> None:
    """Show how far migrations are, or what became of every object of one.

    \b
    Examples:
      clusterspace migrate status
      clusterspace migrate status west-20260102-030405
      clusterspace migrate status west-20260102-030405 -o json
    """
    from clusterspace.roots import cluster_migration as root

    if not name:
        show(_listing_of(run(lambda: root.records(hub.settings()))), output)
        return
    record, items = run(lambda: root.details(name, hub.settings()))
    if output != Output.TABLE.value:
        click.echo(document_text(_document_of(record, items), Output(output)), nl=False)
        return
    counts = Counter(each.state for each in items)
    click.echo(f"{record.name}, cluster {record.cluster}: {record.phase}; {_counts_text(counts)}")
    if record.message:
        click.echo(record.message)
    notable = [each for each in items if each.reason]
    lines = [
        Line(each.plan.title, (each.plan.title, each.state.value, each.reason))
        for each in notable[:MOST_LINES]
    ]
    if lines:
        people_console().print(table_of(Listing(("OBJECT", "STATE", "REASON"), tuple(lines), {})))
    if len(notable) > MOST_LINES:
        click.echo(f"and {len(notable) - MOST_LINES} more; -o yaml shows all of them")


@migrate.command()
@click.argument("name", metavar="MIGRATION")
@hub_options
def pause(*, name: str, hub: HubOptions) -> None:
    """Have whoever applies MIGRATION stop; `migrate apply MIGRATION` goes on.

    \b
    Examples:
      clusterspace migrate pause west-20260102-030405
    """
    from clusterspace.roots import cluster_migration as root

    run(lambda: root.pause(name, hub.settings()))
    click.echo(f"migration {name} is paused; what is being taken now is taken to its end")


@migrate.command()
@click.argument("name", metavar="MIGRATION")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@hub_options
def forget(*, name: str, is_sure: bool, hub: HubOptions) -> None:
    """Delete what the hub keeps of MIGRATION: its items, and how objects were before.

    What it took stays taken, and cannot be given back by `migrate undo` any more.

    \b
    Examples:
      clusterspace migrate forget west-20260102-030405
    """
    from clusterspace.roots import cluster_migration as root

    if not is_sure:
        click.confirm(f"After this, {name} cannot be undone. Go on?", abort=True)
    run(lambda: root.forget(name, hub.settings()))
    click.echo(f"migration {name} is forgotten; what it took stays as it is")


@contextmanager
def _progress(
    what: str, over: "tuple[State, ...]"
) -> "Generator[Callable[[Counter[State], int], None]]":
    """Show a bar on a terminal; elsewhere nothing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=people_console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)

        def progress(counts: "Counter[State]", total: int) -> None:
            bars.update(task, completed=sum(counts[each] for each in over), total=total)

        yield progress


def _counts_text(counts: "Counter[State]") -> str:
    said = [f"{count} {state.value.lower()}" for state, count in counts.items() if count]
    return ", ".join(said) or "nothing to do"


def _summarise(made: "MigrationPlan", target: Path | None) -> None:
    """Show a plan on one screen: kinds with their verdicts, then what is not taken, and why."""
    console = people_console()
    by_kind: dict[str, Counter[str]] = {}
    shown: list[Line] = []
    for each in made.spec.items:
        found = by_kind.setdefault(each.kind, Counter())
        found[each.verdict.value] += 1
        found["take"] += each.take
        if not each.take and len(shown) < MOST_LINES:
            cells = (each.title, each.verdict.value, each.reason)
            shown.append(Line(each.title, cells, style=_STYLES.get(each.verdict.value, "")))
    verdicts = ("Same", "Changes", "WouldRestart", "Refused")
    lines = [
        Line(kind, (kind, str(found["take"]), *(str(found[each] or "") for each in verdicts)))
        for kind, found in sorted(by_kind.items())
    ]
    columns = ("KIND", "TAKE", "SAME", "CHANGES", "WOULD RESTART", "REFUSED")
    console.print(table_of(Listing(columns, tuple(lines), {})))
    total = len(made.spec.items)
    taken = sum(found["take"] for found in by_kind.values())
    if shown:
        console.print(f"\nNot taken, unless their entries are changed ({total - taken}):")
        console.print(table_of(Listing(("OBJECT", "VERDICT", "REASON"), tuple(shown), {})))
        if total - taken > MOST_LINES:
            console.print(f"and {total - taken - MOST_LINES} more")
    for each in made.spec.unread:
        console.print(f"{each.resource} could not be read: {each.reason}", style="red")
    count = sum(each.count for each in made.spec.left)
    click.echo(
        f"\n{taken} of {total} objects of {made.spec.cluster.name} would be taken; "
        f"{count} are left to the cluster."
    )
    if target is not None:
        click.echo(
            f"The plan is in {target}: `clusterspace migrate apply {target}` carries it out."
        )
    else:
        click.echo("Nothing was written: -f FILE keeps the plan.")


def _listing_of(records: "list[Record]") -> Listing:
    lines = [
        Line(
            each.name,
            (each.name, each.cluster, each.phase, f"{each.counts['Taken']}/{each.items}"),
        )
        for each in records
    ]
    return Listing(
        ("NAME", "CLUSTER", "PHASE", "TAKEN"),
        tuple(lines),
        [_document_of(each, []) for each in records],
        nothing="no migrations; `clusterspace migrate plan` begins one",
    )


def _document_of(record: "Record", items: "list[Item]") -> dict[str, object]:
    document: dict[str, object] = {
        "name": record.name,
        "cluster": record.cluster,
        "phase": record.phase,
        "message": record.message,
        "counts": dict(record.counts),
        "total": record.items,
    }
    if items:
        document["items"] = [
            {
                "kind": each.plan.kind,
                "namespace": each.plan.namespace,
                "name": each.plan.name,
                "state": each.state.value,
                "reason": each.reason,
            }
            for each in items
        ]
    return document
