"""`clusterspace store`: back up, restore and check the hub's data."""

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import ExitCode, people_console
from clusterspace.cli.running import run
from clusterspace.errors import StoreCorrupt, StoreError, StoreUnavailable
from clusterspace.roots import installation

if TYPE_CHECKING:
    from clusterspace.roots.settings import EtcdSettings

_FILE: Final = click.Path(path_type=Path)


@click.group()
def store() -> None:
    """Back up, restore and check the hub's data."""


def _etcd_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how etcd is reached, as those of `hub`; give the command `etcd`."""

    @functools.wraps(command)
    def with_settings(
        *,
        etcd_prefix: str,
        etcd_cafile: Path | None,
        etcd_certfile: Path | None,
        etcd_keyfile: Path | None,
        etcd_servers: str = "",
        **given: Any,
    ) -> None:
        from clusterspace.roots.settings import EtcdSettings

        servers = tuple(each for each in etcd_servers.split(",") if each)
        etcd = EtcdSettings(servers, etcd_prefix, etcd_cafile, etcd_certfile, etcd_keyfile)
        command(etcd=etcd, **given)

    for name in ("--etcd-keyfile", "--etcd-certfile", "--etcd-cafile"):
        with_settings = click.option(name, type=_FILE, metavar="FILE", help="As for `hub`.")(
            with_settings
        )
    return click.option(
        "--etcd-prefix",
        default="/registry",
        show_default=True,
        metavar="PATH",
        help="As for `hub`.",
    )(with_settings)


_etcd_servers_option = click.option(
    "--etcd-servers", default="", metavar="URLS", help="The etcd of the hubs, as for `hub`."
)


@store.command()
@click.argument("target", type=_FILE)
@click.option("--data-dir", type=_FILE, help="Data directory of the hub.")
@_etcd_servers_option
@_etcd_options
def backup(*, target: Path, data_dir: Path | None, etcd: "EtcdSettings") -> None:
    """Copy the store to the new file TARGET, while hubs run or not.

    From a data directory, or from the etcd that hubs share. The copy is what it was at one
    revision; values stay encrypted as they are.

    \b
    Examples:
      clusterspace store backup backup.db --data-dir .clusterspace/hub
      clusterspace store backup backup.db --etcd-servers https://10.0.0.1:2379
    """
    with _reported_errors():
        if _is_in_etcd(data_dir, etcd):
            from clusterspace.roots import migration

            copied = run(lambda: migration.back_up(etcd, target))
            click.echo(
                f"Backed up {_named(etcd)} at revision {copied.revision} to {target}:"
                f" {copied.objects:,} objects with the digest {copied.digest}."
            )
        elif data_dir is not None:
            revision = installation.back_up(data_dir, target)
            click.echo(f"Backed up {data_dir} at revision {revision} to {target}.")


@store.command()
@click.argument("source", type=_FILE)
@click.option("--data-dir", type=_FILE, help="Data directory without a store.")
@_etcd_servers_option
@_etcd_options
def restore(*, source: Path, data_dir: Path | None, etcd: "EtcdSettings") -> None:
    """Make a new store from the backup SOURCE: in a data directory, or in etcd.

    Wherever the backup was taken. The revision jumps far ahead, so every client that watches lists
    again. Refused where a hub has its objects.

    \b
    Examples:
      clusterspace store restore backup.db --data-dir restored
      clusterspace hub --data-dir restored
      clusterspace store restore backup.db --etcd-servers https://10.0.0.1:2379
    """
    with _reported_errors():
        if _is_in_etcd(data_dir, etcd):
            from rich.progress import Progress

            from clusterspace.roots import migration

            with Progress(console=people_console(), transient=True) as bars:
                task = bars.add_task("objects")
                moved = run(
                    lambda: migration.restore(
                        source,
                        etcd,
                        lambda done, total: bars.update(task, completed=done, total=total),
                    )
                )
            click.echo(
                f"Restored {moved.objects:,} objects of {source} to {_named(etcd)}; both have the"
                f" digest {moved.digest}."
            )
            click.echo(f"It goes on from revision {moved.revision}.")
        elif data_dir is not None:
            revision = installation.restore(source, data_dir)
            click.echo(f"Restored {source} to {data_dir}; it goes on from revision {revision}.")


@store.command()
@click.argument("place", type=_FILE, required=False)
@_etcd_servers_option
@_etcd_options
def check(*, place: Path | None, etcd: "EtcdSettings") -> None:
    """Verify every record of a data directory, a store file or a backup; or of etcd.

    Of etcd everything is read from each member and compared at one revision. Ends with 3 when the
    data is not as it was written, or members differ.

    \b
    Examples:
      clusterspace store check .clusterspace/hub
      clusterspace store check backup.db
      clusterspace store check --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379
    """
    with _reported_errors():
        if _is_in_etcd(place, etcd, place="PLACE"):
            _check_etcd(etcd)
        elif place is not None:
            _check_file(place)


def _check_file(place: Path) -> None:
    found = installation.check_store(place)
    _show_rows(
        {
            "file": f"{found.path} ({found.file_bytes:,} bytes)",
            "revision": str(found.revision),
            "oldest revision": str(found.oldest),
            "keys": f"{found.keys:,} ({found.value_bytes:,} bytes)",
            "records": f"{found.records:,}",
            "kept changes": f"{found.history_events:,}",
            "left by compaction": f"{found.leftover_records:,}",
        }
    )
    click.echo("Every record is as it was written.")


def _check_etcd(etcd: "EtcdSettings") -> None:
    from clusterspace.roots import migration

    found, digest = run(lambda: migration.check(etcd))
    snapshot, members = found.snapshot, found.members
    silent = {server: it for server, it in members.items() if isinstance(it, StoreError)}
    rows = {
        "prefix": etcd.prefix,
        "revision": str(snapshot.revision),
        "keys": f"{len(snapshot.items):,} ({sum(len(it.value) for it in snapshot.items):,} bytes)",
        "digest": digest,
    }
    for server, status in members.items():
        rows[server] = (
            f"did not answer: {status}"
            if isinstance(status, StoreError)
            else "; ".join(
                [f"version {status.version}, {status.size_bytes:,} bytes", *status.errors]
            )
        )
    _show_rows(rows)
    if silent:
        raise StoreUnavailable(
            f"{len(members) - len(silent)} of {len(members)} members have the same, and"
            f" {', '.join(silent)} did not answer: check again when it does",
            was_sent=False,
        )
    click.echo("Every member has the same.")


def _show_rows(rows: dict[str, str]) -> None:
    from rich.table import Table  # 40 ms that other commands need not pay

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(name, value)
    people_console().print(table, soft_wrap=True)


def _is_in_etcd(file: Path | None, etcd: "EtcdSettings", *, place: str = "--data-dir") -> bool:
    """Return whether etcd is meant; a usage error unless exactly one of the two is."""
    if (file is None) == (not etcd.servers):
        raise click.UsageError(f"Say where the objects are: either {place} or --etcd-servers.")
    return file is None


def _named(etcd: "EtcdSettings") -> str:
    return f"{etcd.prefix} of {','.join(etcd.servers)}"


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
@_etcd_options
def migrate(*, source: str, target: str, etcd: "EtcdSettings") -> None:
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

    with _reported_errors(), Progress(console=people_console(), transient=True) as bars:
        task = bars.add_task("objects")
        moved = run(
            lambda: migration.migrate(
                source,
                target,
                etcd,
                SystemClock().now(),
                lambda done, total: bars.update(task, completed=done, total=total),
            )
        )
    click.echo(f"Moved {moved.objects:,} objects from {source} to {target}.")
    click.echo(f"Both have the digest {moved.digest}; it goes on from revision {moved.revision}.")


@contextmanager
def _reported_errors() -> Generator[None]:
    """Say in one sentence why it was not done, and end with the right code."""
    try:
        yield
    except click.ClickException as error:
        if not isinstance(error.__cause__, StoreCorrupt):
            raise
        error.show()
        raise SystemExit(ExitCode.DAMAGED) from error
    except StoreError as error:
        click.echo(f"Error: {error}", err=True)
        is_damaged = isinstance(error, StoreCorrupt)
        raise SystemExit(ExitCode.DAMAGED if is_damaged else ExitCode.FAILED) from error
