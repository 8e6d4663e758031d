"""`clusterspace certs`: credentials that are revoked, and take their holders' streams along."""

from pathlib import Path
from typing import Final

import click

from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import Line, Listing, output_option, show
from clusterspace.cli.running import run

_FILE: Final = click.Path(path_type=Path)
_COLUMNS: Final = ("KEY", "USER", "REVOKED", "UNTIL", "REASON")


@click.group()
def certs() -> None:
    """Revoke credentials, and show which are."""


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
