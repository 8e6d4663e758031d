"""What commands that run a part share: how they log, their event loop, a port that is taken."""

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

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
log_format_option: Final = click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="For people or for machines.",
)


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
