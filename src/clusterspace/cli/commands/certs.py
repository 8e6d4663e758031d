"""`clusterspace certs`: authorities and keys that are replaced, credentials that are revoked."""

from pathlib import Path
from typing import Final

import click

from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import ExitCode, Line, Listing, output_option, show
from clusterspace.cli.running import run

_FILE: Final = click.Path(path_type=Path)
_COLUMNS: Final = ("KEY", "USER", "REVOKED", "UNTIL", "REASON")


@click.group()
def certs() -> None:
    """Rotate keys and authorities, revoke credentials."""


@certs.command()
@click.option(
    "--data-dir",
    type=_FILE,
    default=Path(".clusterspace"),
    show_default=True,
    help="Data directory of `up`, of a hub, or of a fleet API server.",
)
@click.option(
    "--overlap",
    "overlap_seconds",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds in which everybody gets to know the new ones before they sign.",
)
@click.option(
    "--unused-for",
    "unused_seconds",
    type=click.FloatRange(min=0),
    default=86400.0,
    show_default=True,
    help="Seconds without use after which the old ones are dropped.",
)
@click.option("--force", is_flag=True, help="Drop the old ones whoever uses them.")
@click.option("--dry-run", is_flag=True, help="Say how far it is, and change nothing.")
def rotate(
    *, data_dir: Path, overlap_seconds: float, unused_seconds: float, force: bool, dry_run: bool
) -> None:
    """Replace certificate authorities and the key of ServiceAccount tokens, without a restart.

    New ones are made and trusted beside the old; after the overlap they sign; once nobody has used
    what the old ones signed, those are dropped. Run it again to go on: after an interruption at any
    point, and until it says that all is done. It ends with 1 while the old ones are trusted.

    \b
    Examples:
      clusterspace certs rotate --dry-run
      clusterspace certs rotate
      clusterspace certs rotate --data-dir /var/lib/clusterspace/hub --overlap 3600
    """
    from clusterspace.roots.rotation import Pace, plan
    from clusterspace.roots.rotation import rotate as rotate_keys

    if dry_run:
        for what, stage in plan(data_dir):
            click.echo(f"{what}: {stage.value}")
        return
    pace = Pace(overlap_seconds, unused_seconds, is_forced=force)
    outcome = run(lambda: rotate_keys(data_dir, pace, click.echo))
    if outcome.is_done:
        click.echo("Done: the old ones are gone.")
        return
    for each in outcome.users:
        click.echo(f"{each.user} uses {each.what}" + (f", last at {each.at}" if each.at else ""))
    click.echo(
        "The old ones are still trusted. Give new certificates and tokens to whoever uses them, and"
        " run this again; --force drops the old ones at once."
    )
    raise SystemExit(ExitCode.FAILED)


@certs.command()
@click.option("--user", default="", help="Every certificate issued to this user until now.")
@click.option("--certificate", type=_FILE, help="The certificate in this PEM file.")
@click.option("--fingerprint", default="", help="The certificate with this SHA-256.")
@click.option("--serial", default="", help="The certificate with this serial number, in hex.")
@click.option(
    "--all-credentials",
    is_flag=True,
    help="With --user: tokens too, and those to come, until `reinstate`.",
)
@click.option("--reason", default="", help="Why; it is shown by `revoked`.")
@click.option("--including-me", is_flag=True, help="Also when it shuts out who does it.")
@hub_options
def revoke(
    *,
    user: str,
    certificate: Path | None,
    fingerprint: str,
    serial: str,
    all_credentials: bool,
    reason: str,
    including_me: bool,
    hub: HubOptions,
) -> None:
    """Refuse credentials from now on, and end what they have open within ten seconds.

    Of a user, certificates that are issued later count again. A ServiceAccount's tokens end with
    the ServiceAccount, or with the pod or Secret they are bound to.

    \b
    Examples:
      clusterspace certs revoke --user jane --reason "laptop stolen"
      clusterspace certs revoke --certificate jane.crt
      clusterspace certs revoke --user jane --all-credentials
    """
    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots.revocations import Revocation
    from clusterspace.roots.revocations import revoke as revoke_credential

    given = [each for each in (user, certificate, fingerprint, serial) if each]
    if len(given) != 1:
        raise click.UsageError(
            "say what to revoke by one of --user, --certificate, --fingerprint and --serial"
        )
    if all_credentials and not user:
        raise click.UsageError("--all-credentials goes with --user")
    if certificate is not None:
        revocation = Revocation.of_certificate(certificate.read_bytes(), reason)
    elif fingerprint:
        revocation = Revocation.of_fingerprint(fingerprint, reason)
    elif serial:
        revocation = Revocation.of_serial(serial, reason)
    elif all_credentials:
        revocation = Revocation.of_all(user, reason)
    else:
        revocation = Revocation.of_user(user, SystemClock().now(), reason)
    run(lambda: revoke_credential(hub.settings(), revocation, spares_caller=not including_me))
    click.echo(f"{revocation.key} revoked; open streams end within ten seconds")


@certs.command()
@output_option()
@hub_options
def revoked(*, output: str, hub: HubOptions) -> None:
    """Show which credentials are revoked.

    \b
    Examples:
      clusterspace certs revoked
      clusterspace certs revoked -o json
    """
    from clusterspace.roots.revocations import list_revoked

    found = run(lambda: list_revoked(hub.settings()))
    lines = tuple(
        Line(each.key, (each.key, each.user, each.what, each.since, each.reason)) for each in found
    )
    show(Listing(_COLUMNS, lines, document=found, nothing="nothing is revoked"), output)


@certs.command()
@click.argument("entry", metavar="KEY|USER")
@hub_options
def reinstate(*, entry: str, hub: HubOptions) -> None:
    """Take a revocation back, by its key or by the user it is about.

    \b
    Examples:
      clusterspace certs reinstate jane
    """
    from clusterspace.roots.revocations import reinstate as take_back

    run(lambda: take_back(hub.settings(), entry))
    click.echo(f"{entry} counts again, as far as it has not ended")
