"""`clusterspace up`, `down` and `logs`: a fleet on this machine."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.options import PORT, Networks, local_data_dir_option, member_cidrs_option
from clusterspace.cli.running import sentence_of
from clusterspace.errors import AlreadyRunning, ClusterspaceError, TaskFailed

if TYPE_CHECKING:
    from clusterspace.roots.local.commands import UpSettings
    from clusterspace.roots.local.files import ComponentRecord, LocalFiles

_STOP_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 0.1

_COMMANDS: Final = (
    ("kubectl get namespaces", "the hub and every member, in one list"),
    ("clusterspace clusters", "who is in the fleet"),
    ("clusterspace join west --cluster-kubeconfig west.yaml", "let a cluster of yours join"),
)
_DEMO_COMMANDS: Final = (
    ("kubectl get pods -A", "every pod of every cluster"),
    ("kubectl logs -n shop deploy/web.clusterspace.member1", "a log in one of them"),
    ("kubectl get deployments -n shop", "templates on the hub, copies on the members"),
    ("clusterspace clusters", "who is in the fleet"),
    ("clusterspace why deployment/web -n shop", "from template to members, on one screen"),
    ("clusterspace promote deployment legacy -n shop -C member1", "take over what already runs"),
)


@click.command()
@local_data_dir_option
@click.option(
    "--hub-port",
    type=PORT,
    help="Port of the hub; 0: a free one.  [default: as last time, at first 5443]",
)
@click.option(
    "--fleet-port",
    type=PORT,
    help="Port of the unified view; 0: a free one.  [default: as last time, at first 7443]",
)
@click.option(
    "--federation",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Propagate workloads, and show the hub's own objects in the unified view.",
)
@click.option(
    "--members",
    default=0,
    show_default=True,
    type=click.IntRange(0, 50),
    help="Simulated members to run and join.",
)
@member_cidrs_option
@click.option(
    "--ha",
    is_flag=True,
    help="Three hubs on three members of etcd, two gateways and two controllers, one address.",
)
@click.option(
    "--etcd-unsafe-version",
    is_flag=True,
    help="With --ha: put up with an etcd older than 3.5.13, which may lose what it acknowledged.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 32),
    help="Processes of the unified view, a core each; several show nothing of members away.",
)
@click.option("--demo", is_flag=True, help="Two simulated members and a sample shop on them.")
@click.option("--detach", "-d", is_flag=True, help="Return when everything is ready.")
def up(
    data_dir: Path,
    hub_port: int | None,
    fleet_port: int | None,
    members: int,
    member_cidrs: Networks,
    *,
    federation: bool,
    ha: bool,
    etcd_unsafe_version: bool,
    workers: int,
    demo: bool,
    detach: bool,
) -> None:
    """Run a fleet on this machine: hub, unified view and controllers, until Ctrl-C.

    Everything is in one directory and is there again at the next start.

    \b
    Examples:
      clusterspace up --demo
      clusterspace up --members 3 --detach
      clusterspace up --ha --demo
      kubectl --kubeconfig .clusterspace/kubeconfig get pods -A
    """
    from clusterspace.roots.local.commands import UpSettings
    from clusterspace.roots.local.files import LocalFiles

    files = LocalFiles(data_dir.absolute())
    settings = UpSettings(
        data_dir,
        hub_port,
        fleet_port,
        max(members, 2) if demo else members,
        federation=federation,
        member_cidrs=member_cidrs,
        is_ha=ha,
        etcd_unsafe_version=etcd_unsafe_version,
        workers=workers,
    )
    try:
        if detach:
            words = sys.argv[sys.argv.index("up") + 1 :]
            _detach(files, [each for each in words if each not in ("-d", "--detach")])
            _show_what_to_try(files, demo=demo, stop_with="`clusterspace down`")
        else:
            _run(settings, demo=demo)
    except AlreadyRunning:
        click.echo(f"the fleet in {data_dir} is running already", err=True)
        _show_what_to_try(files, demo=demo, stop_with="`clusterspace down`")
    except TaskFailed as failure:
        # What it began with: a task failed because a part failed because of this.
        cause: Exception = failure
        while isinstance(cause, TaskFailed) and isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        raise click.ClickException(sentence_of(cause)) from failure
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(sentence_of(error)) from error


def _run(settings: "UpSettings", *, demo: bool) -> None:
    from rich.console import Console

    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots.local.demo import place_shop
    from clusterspace.roots.local.up import run_until_stopped
    from clusterspace.telemetry.logs import Format, Level, configure

    configure(Format("console"), Level.WARNING, sys.stderr)
    console = Console(stderr=True)

    async def when_ready(files: "LocalFiles") -> None:
        if demo:
            await place_shop(files, SystemClock())
            done = "[green]✓[/] shop          a sample application on both members"
            console.print(done, highlight=False)
        _show_what_to_try(files, demo=demo, stop_with="Ctrl-C")

    def report(record: "ComponentRecord") -> None:
        if record.state == "ready":
            console.print(f"[green]✓[/] {record.name:13} 127.0.0.1:{record.port}", highlight=False)
        elif record.restarts and record.state == "starting":
            console.print(f"[yellow]↻[/] {record.name:13} starts again", highlight=False)

    asyncio.run(run_until_stopped(settings, when_ready, report))
    console.print("stopped")


def _detach(files: "LocalFiles", arguments: list[str]) -> None:
    """Start ourselves once more, in the background, and wait until everything is ready."""
    import subprocess
    import time

    files.prepare()
    if files.is_running():
        click.echo(f"the fleet in {files.directory} is running already", err=True)
        return
    log = files.log("up")
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            [sys.executable, "-m", "clusterspace", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    click.echo(f"starting in the background; the log is {log}", err=True)
    shown: set[str] = set()
    while not files.is_ready_for_people():
        record = files.read_record()
        for part in record.components if record is not None else ():
            if part.state == "ready" and part.name not in shown:
                shown.add(part.name)
                click.echo(f"✓ {part.name:13} 127.0.0.1:{part.port}", err=True)
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            raise click.ClickException((said or ["nothing was said"])[-1].removeprefix("Error: "))
        time.sleep(_STEP_SECONDS)


def _show_what_to_try(files: "LocalFiles", *, demo: bool, stop_with: str) -> None:
    """End with commands that work as they stand here."""
    import shutil

    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    try:
        kubeconfig: Path = files.kubeconfig.relative_to(Path.cwd())
    except ValueError:
        kubeconfig = files.kubeconfig
    console.print("\n[bold]Now try[/], in another terminal:\n")
    console.print(f"  [cyan]export KUBECONFIG={kubeconfig}[/]")
    if shutil.which("clusterspace") is None:
        console.print(f'  [cyan]export PATH="{Path(sys.executable).parent}:$PATH"[/]')
    for command, meaning in _DEMO_COMMANDS if demo else _COMMANDS:
        console.print(f"  [cyan]{command:62}[/][dim]{meaning}[/]")
    if shutil.which("kubectl") is None:
        console.print(
            "\n[yellow]kubectl is not on your PATH[/]: see https://kubernetes.io/docs/tasks/tools/"
        )
    console.print(f"\n{stop_with} stops it; everything is there again at the next start.")


@click.command()
@local_data_dir_option
def down(data_dir: Path) -> None:
    """Stop the fleet that runs from this directory; its data stays.

    \b
    Examples:
      clusterspace down
    """
    import os
    import signal
    import time

    from clusterspace.roots.local.files import LocalFiles

    files = LocalFiles(data_dir.absolute())
    record = files.read_record()
    if record is None:
        click.echo(f"no fleet runs from {data_dir}")
        return
    os.kill(record.pid, signal.SIGTERM)
    for _ in range(int(_STOP_SECONDS / _STEP_SECONDS)):
        if not files.is_running():
            click.echo("stopped")
            return
        time.sleep(_STEP_SECONDS)
    raise click.ClickException(f"process {record.pid} has not stopped within {_STOP_SECONDS:g}s")


@click.command()
@click.argument("component", metavar="PART")
@local_data_dir_option
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("--tail", default=100, show_default=True, help="Lines from the end to begin with.")
def logs(component: str, data_dir: Path, tail: int, *, follow: bool) -> None:
    """Show the log of PART: hub, fleet, controllers, or a simulated member.

    \b
    Examples:
      clusterspace logs hub -f
      clusterspace logs member1 --tail 20
    """
    import time

    from clusterspace.roots.local.files import LocalFiles

    log = LocalFiles(data_dir.absolute()).log(component)
    if not log.exists():
        known = ", ".join(sorted(each.stem for each in log.parent.glob("*.log"))) or "none yet"
        raise click.ClickException(
            f"there is no log of {component!r} in {data_dir} (there are: {known})"
        )
    with log.open(errors="replace") as file:
        click.echo("".join(file.readlines()[-tail:]), nl=False)
        while follow:
            click.echo(file.read(), nl=False)
            time.sleep(0.2)
