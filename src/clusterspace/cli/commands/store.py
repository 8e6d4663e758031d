"""`clusterspace store`: back up, restore and check the hub's data."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import ExitCode, people_console
from clusterspace.cli.running import run
from clusterspace.errors import StoreCorrupt, StoreError
from clusterspace.roots import installation

_FILE: Final = click.Path(path_type=Path)


@click.group()
def store() -> None:
    """Back up, restore and check the hub's data."""


@store.command()
@click.argument("target", type=_FILE)
@click.option("--data-dir", type=_FILE, required=True, help="Data directory of the hub.")
def backup(target: Path, data_dir: Path) -> None:
    """Copy the store to the new file TARGET, while the hub runs or not.

    The objects of a hub on etcd are etcd's: take them with `etcdctl snapshot save`.

    \b
    Examples:
      clusterspace store backup backup.db --data-dir .clusterspace/hub
    """
    with _reported_errors():
        revision = installation.back_up(data_dir, target)
    click.echo(f"Backed up {data_dir} at revision {revision} to {target}.")


@store.command()
@click.argument("source", type=_FILE)
@click.option("--data-dir", type=_FILE, required=True, help="Data directory without a store.")
def restore(source: Path, data_dir: Path) -> None:
    """Make a new store in a data directory from the backup SOURCE.

    The revision jumps far ahead, so every client that watches lists again.

    \b
    Examples:
      clusterspace store restore backup.db --data-dir restored
      clusterspace hub --data-dir restored
    """
    with _reported_errors():
        revision = installation.restore(source, data_dir)
    click.echo(f"Restored {source} to {data_dir}; it goes on from revision {revision}.")


@store.command()
@click.argument("place", type=_FILE)
def check(place: Path) -> None:
    """Verify every record of a data directory, a store file or a backup.

    Ends with 3 when the data is not as it was written. Hubs on etcd compare what they have with it
    by themselves, every five minutes.

    \b
    Examples:
      clusterspace store check .clusterspace/hub
      clusterspace store check backup.db
    """
    from rich.table import Table  # 40 ms that other commands need not pay

    with _reported_errors():
        found = installation.check_store(place)
    rows = {
        "file": f"{found.path} ({found.file_bytes:,} bytes)",
        "revision": str(found.revision),
        "oldest revision": str(found.oldest),
        "keys": f"{found.keys:,} ({found.value_bytes:,} bytes)",
        "records": f"{found.records:,}",
        "kept changes": f"{found.history_events:,}",
        "left by compaction": f"{found.leftover_records:,}",
    }
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(name, value)
    people_console().print(table, soft_wrap=True)
    click.echo("Every record is as it was written.")


@store.command()
@click.argument("resources", metavar="[RESOURCE]...", nargs=-1)
@hub_options
def rewrite(*, resources: tuple[str, ...], hub: HubOptions) -> None:
    """Write every Secret once more, or every object of RESOURCE: it is encrypted with today's key.

    After a new key was put first in the file of `hub --encryption-provider-config`; once this is
    done, the old key can leave it.

    \b
    Examples:
      clusterspace store rewrite
      clusterspace store rewrite secrets configmaps widgets.example.com
    """
    from rich.progress import Progress

    from clusterspace.roots.stores import rewrite as write_again

    written: dict[str, int] = {}
    with Progress(console=people_console(), transient=True) as bars:
        tasks = {name: bars.add_task(name) for name in resources or ("secrets",)}

        def progress(name: str, done: int, total: int) -> None:
            bars.update(tasks[name], completed=done, total=total)
            written[name] = done

        run(lambda: write_again(hub.settings(), tasks, progress))
    for name, count in written.items():
        click.echo(f"Wrote {count:,} {name} once more.")


@store.command()
@click.option("--from", "source", required=True, metavar="PLACE", help="sqlite:DIR or etcd:URLS.")
@click.option("--to", "target", required=True, metavar="PLACE", help="etcd:URLS or sqlite:DIR.")
@click.option(
    "--etcd-prefix", default="/registry", show_default=True, metavar="PATH", help="As for `hub`."
)
@click.option("--etcd-cafile", type=_FILE, metavar="FILE", help="As for `hub`.")
@click.option("--etcd-certfile", type=_FILE, metavar="FILE", help="As for `hub`.")
@click.option("--etcd-keyfile", type=_FILE, metavar="FILE", help="As for `hub`.")
def migrate(
    *,
    source: str,
    target: str,
    etcd_prefix: str,
    etcd_cafile: Path | None,
    etcd_certfile: Path | None,
    etcd_keyfile: Path | None,
) -> None:
    """Move the hub's objects from SQLite to etcd, or back, while no hub runs.

    Everything is read back and compared before the target can be used; the source stays as it is.
    Revisions go on far above, so every client that watches lists again.

    \b
    Examples:
      clusterspace store migrate --from sqlite:.clusterspace --to etcd:https://10.0.0.1:2379
      clusterspace store migrate --from etcd:http://127.0.0.1:2379 --to sqlite:back
    """
    from rich.progress import Progress

    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots import migration
    from clusterspace.roots.settings import EtcdSettings

    etcd = EtcdSettings((), etcd_prefix, etcd_cafile, etcd_certfile, etcd_keyfile)
    moved: list[migration.Moved] = []
    with _reported_errors(), Progress(console=people_console(), transient=True) as bars:
        task = bars.add_task("objects")

        async def move() -> None:
            moved.append(
                await migration.migrate(
                    source,
                    target,
                    etcd,
                    SystemClock().now(),
                    lambda done, total: bars.update(task, completed=done, total=total),
                )
            )

        run(move)
    for each in moved:
        click.echo(f"Moved {each.objects:,} objects from {source} to {target}.")
        click.echo(f"Both have the digest {each.digest}; it goes on from revision {each.revision}.")


@contextmanager
def _reported_errors() -> Generator[None]:
    """Say in one sentence why it was not done, and end with the right code."""
    try:
        yield
    except StoreError as error:
        click.echo(f"Error: {error}", err=True)
        is_damaged = isinstance(error, StoreCorrupt)
        raise SystemExit(ExitCode.DAMAGED if is_damaged else ExitCode.FAILED) from error
