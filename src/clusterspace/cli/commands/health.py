"""`clusterspace status` and `doctor`: how a fleet is, on this machine or elsewhere."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clusterspace.cli.options import HubOptions, hub_options, local_data_dir_option
from clusterspace.cli.output import (
    ExitCode,
    Line,
    Listing,
    Output,
    document_text,
    output_option,
    people_console,
    show,
)
from clusterspace.cli.running import run
from clusterspace.cli.settings import given_setting
from clusterspace.errors import UnusableKubeconfig

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings
    from clusterspace.roots.local.doctor import Finding
    from clusterspace.roots.local.files import LocalFiles
    from clusterspace.roots.local.parts import FleetReport, Whereabouts


@click.command()
@local_data_dir_option
@output_option()
@hub_options
def status(*, data_dir: Path, output: str, hub: HubOptions) -> None:
    """Show how the parts of a fleet are, each asked itself.

    They are those that `up` runs from the data directory, else those that KUBECONFIG and the
    settings name. Ends with 1 unless all of them are well.

    \b
    Examples:
      clusterspace status
      clusterspace status -o json
      clusterspace status --kubeconfig hub.yaml
    """
    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots.local.files import LocalFiles
    from clusterspace.roots.local.parts import DOWN, UNASKED, ask_parts

    files, where = LocalFiles(data_dir.absolute()), _whereabouts(hub)
    report = run(lambda: ask_parts(files, where, SystemClock()))
    if not report.parts:
        raise click.ClickException(
            f"no fleet runs from {data_dir}, and no kubeconfig names one: start one with"
            " `clusterspace up`, or set KUBECONFIG to that of a hub"
        )
    show(_listing(report), output)
    if all(part.state in (DOWN, UNASKED) for part in report.parts):
        raise click.ClickException(
            f"no fleet runs where {report.source} says: start one with `clusterspace up`"
        )
    if not report.is_well:
        if output in (Output.TABLE.value, Output.WIDE.value):
            click.echo("`clusterspace doctor` says more, and what to do.", err=True)
        raise SystemExit(ExitCode.FAILED)


def _listing(report: "FleetReport") -> Listing:
    import msgspec

    lines: list[Line] = []
    parts: list[dict[str, Any]] = []
    for part in report.parts:
        numbers = (str(part.pid or ""), str(part.restarts) if part.pid else "")
        cells = (part.name, part.state, part.address, *numbers, part.says)
        style = "" if part.is_well else "yellow"
        lines.append(Line(part.name, cells, wide_cells=(part.log,), style=style))
        parts.append({**msgspec.to_builtins(part), "isWell": part.is_well})
    return Listing(
        columns=("PART", "STATE", "ADDRESS", "PID", "RESTARTS", "SAYS"),
        wide_columns=("LOG",),
        lines=tuple(lines),
        document={"source": report.source, "isWell": report.is_well, "parts": parts},
    )


@click.command()
@local_data_dir_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to show it.",
)
@click.option(
    "--production",
    is_flag=True,
    help="Look at what a review for production would ask of hub and fleet address instead.",
)
@click.option(
    "--backups",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --production: where backups are put; without it, backups in the data directory.",
)
@hub_options
def doctor(
    *, data_dir: Path, output: str, production: bool, backups: Path | None, hub: HubOptions
) -> None:
    """Look for what is wrong with a fleet, and say what to do.

    Looks at this machine, asks every part that the data directory, KUBECONFIG or the settings
    name, and looks at every cluster. Ends with 1 when something is bad, or could not be asked.

    With --production it looks at how safe hub and fleet address are: each line says what is
    missing, and the command that mends it. It ends with 1 until nothing is.

    \b
    Examples:
      clusterspace doctor
      clusterspace doctor --production
      clusterspace doctor -o json
      clusterspace doctor --kubeconfig hub.yaml
    """
    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots.local.doctor import Severity, examine
    from clusterspace.roots.local.files import LocalFiles

    files, where = LocalFiles(data_dir.absolute()), _whereabouts(hub)
    if production:
        _show_production(files, hub, backups, output)
        return

    async def work() -> "list[Finding]":
        found: list[Finding] = []
        async for finding in examine(files, where, SystemClock()):
            found.append(finding)
            if output == "text":
                _print_finding(finding)
        return found

    findings = run(work)
    is_well = all(each.severity is not Severity.BAD for each in findings)
    if output != "text":
        click.echo(
            document_text({"isWell": is_well, "findings": findings}, Output(output)), nl=False
        )
    if not is_well:
        raise SystemExit(ExitCode.FAILED)


def _show_production(
    files: "LocalFiles", hub: HubOptions, backups: Path | None, output: str
) -> None:
    """Show what a review would ask for as a table; end with 1 when something is missing."""
    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots.clients import hub_settings, open_client
    from clusterspace.roots.installation import Installation
    from clusterspace.roots.local.doctor import Severity
    from clusterspace.roots.local.production import ProductionFiles, examine_production

    homes = (files.hub, files.directory)
    here = [each for each in homes if Installation(each).authority_file.exists()]
    kubeconfig = hub.kubeconfig
    if kubeconfig is None and here and not os.environ.get("KUBECONFIG"):
        kubeconfig = Installation(here[0]).kubeconfig
    settings = hub_settings(kubeconfig, hub.context)
    fleet = _fleet_beside(files, hub)
    looked_at = ProductionFiles(
        data_dir=here[0] if here else None, backups=backups or files.directory / "backups"
    )

    async def work() -> "list[Finding]":
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_client(settings))
            at_fleet = await stack.enter_async_context(open_client(fleet)) if fleet else None
            found = examine_production(client, looked_at, SystemClock(), at_fleet)
            return [each async for each in found]

    findings = run(work)
    missing = [each for each in findings if each.severity is Severity.BAD]
    styles = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.BAD: "red"}
    lines = tuple(
        Line(each.subject, (each.subject, each.severity.value, each.seen, each.advice),
             style=styles[each.severity])
        for each in findings
    )  # fmt: skip
    document = {"isWell": not missing, "findings": findings}
    shown = Output.TABLE.value if output == "text" else output
    show(Listing(("WHAT", "STATE", "SEEN", "DO"), lines, document), shown)
    if output == "text":
        click.echo(f"{len(missing)} of {len(findings)} are missing." if missing else "All is well.")
    if missing:
        raise SystemExit(ExitCode.FAILED)


def _fleet_beside(files: "LocalFiles", hub: HubOptions) -> "ConnectionSettings | None":
    """Return how the fleet address is reached, if a kubeconfig that is known names it."""
    from clusterspace.roots.clients import hub_settings
    from clusterspace.roots.kubeconfigs import FLEET_CONTEXT

    kubeconfig = hub.kubeconfig
    if kubeconfig is None and not os.environ.get("KUBECONFIG"):
        if not files.kubeconfig.exists():
            return None
        kubeconfig = files.kubeconfig
    try:
        return hub_settings(kubeconfig, FLEET_CONTEXT)
    except UnusableKubeconfig:
        return None


def _print_finding(finding: "Finding") -> None:
    from rich.markup import escape

    from clusterspace.roots.local.doctor import Severity

    marks = {
        Severity.OK: "[green]✓[/]",
        Severity.WARNING: "[yellow]![/]",
        Severity.BAD: "[red]✗[/]",
    }
    console = people_console()
    seen = f"{marks[finding.severity]} {finding.subject:17}{escape(finding.seen)}"
    console.print(seen, soft_wrap=True)
    if finding.advice:
        console.print(f"  {'':17}[dim]{escape(finding.advice)}[/]", soft_wrap=True)


def _whereabouts(hub: HubOptions) -> "Whereabouts":
    """Return where parts may be that `up` did not start, as far as settings say it."""
    from clusterspace.roots.local.parts import Whereabouts

    context = click.get_current_context()
    directories = (given_setting(context, verb, "data-dir") for verb in ("hub", "fleet"))
    port = given_setting(context, "controllers", "metrics-port") or ""
    return Whereabouts(
        kubeconfig=hub.kubeconfig,
        context=hub.context,
        directories=tuple(Path(each) for each in directories if each),
        metrics_port=int(port) if port.isdecimal() and int(port) else None,
    )
