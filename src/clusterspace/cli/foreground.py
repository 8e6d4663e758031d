"""What commands that run a part share: how they log, their event loop, a port that is taken."""

import asyncio
import errno
import functools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from clusterspace.cli.sentences import sentence_of
from clusterspace.errors import ClusterspaceError

hub_kubeconfig_option: Final = click.option(
    "--hub-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What the hub wrote for this part.  [default: KUBECONFIG, else the local hub's]",
)
tls_names_option: Final = click.option(
    "--tls-san",
    "server_names",
    multiple=True,
    metavar="NAME",
    help="Name or address that clients use too; may be given several times.",
)
audit_reads_option: Final = click.option(
    "--audit-reads",
    "audited_reads",
    multiple=True,
    metavar="RESOURCE[.GROUP]",
    default=("secrets",),
    show_default=True,
    help="Reads of these go to the audit log as writes do; may be given several times.",
)
impersonate_masters_option: Final = click.option(
    "--impersonate-masters/--no-impersonate-masters",
    default=False,
    show_default=True,
    help="Let the hub's system:masters be system:masters on every member too.",
)
plain_accounts_option: Final = click.option(
    "--plain-service-accounts",
    multiple=True,
    metavar="MEMBER",
    help="Member at which a hub ServiceAccount is the ServiceAccount of the same name, as in"
    " Karmada; may be given several times.",
)
log_format_option: Final = click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="For people or for machines.",
)

_CONNECTION_OPTIONS: Final = (
    click.option(
        "--max-connections",
        default=10_000,
        show_default=True,
        type=click.IntRange(min=10),
        help="Open connections in all; beyond, new ones are closed as they come.",
    ),
    click.option(
        "--max-connections-per-address",
        default=5_000,
        show_default=True,
        type=click.IntRange(min=1),
        help="Of these, from one address (IPv6: a /64); behind a proxy that is everybody.",
    ),
    click.option(
        "--max-unauthenticated",
        default=500,
        show_default=True,
        type=click.IntRange(min=10),
        help="Connections served at once that have shown no credentials yet; others wait.",
    ),
    click.option(
        "--max-unauthenticated-per-address",
        default=100,
        show_default=True,
        type=click.IntRange(min=1),
        help="Of these, from one address.",
    ),
)

Run: TypeAlias = Callable[..., None]


def connection_options(command: Run) -> Run:
    """Add the options that bound connections; the command gets them as one `limits`."""

    @functools.wraps(command)
    def with_limits(
        *,
        max_connections: int,
        max_connections_per_address: int,
        max_unauthenticated: int,
        max_unauthenticated_per_address: int,
        **others: Any,
    ) -> None:
        from clusterspace.apiserver.http.limits import Limits

        limits = Limits(
            connections=max_connections,
            connections_per_address=max_connections_per_address,
            newcomers=max_unauthenticated,
            newcomers_per_address=max_unauthenticated_per_address,
        )
        command(**others, limits=limits)

    for option in reversed(_CONNECTION_OPTIONS):
        with_limits = option(with_limits)
    return with_limits


def serve(
    work: Callable[[], Coroutine[Any, Any, None]], log_format: str, *, port: int | None = None
) -> None:
    """Run a part in this process until it ends; its logs go to standard error."""
    import uvloop

    from clusterspace.telemetry.logs import Format, Level, configure

    configure(Format(log_format), Level.INFO, sys.stderr)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work())
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(_sentence(error, port)) from error


def _sentence(error: Exception, port: int | None) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: stop what listens there, or choose another with --port"
    return sentence_of(error)
