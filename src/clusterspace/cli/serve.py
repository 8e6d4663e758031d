"""`clusterspace hub`: run a part in the foreground until Ctrl-C."""

import asyncio
import sys
from pathlib import Path

import click

from clusterspace.errors import ClusterspaceError


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".clusterspace"),
    show_default=True,
    help="Where certificates, the kubeconfig and the objects are kept.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=5443, show_default=True, help="Port to listen on; 0: a free one.")
@click.option(
    "--store",
    type=click.Choice(["sqlite", "memory"]),
    default="sqlite",
    show_default=True,
    help="Keep objects on disk, or only as long as the process lives.",
)
@click.option(
    "--token-auth-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help='Static tokens, one line each: token,user,uid,"group1,group2".',
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="For people or for machines.",
)
def hub(
    data_dir: Path,
    host: str,
    port: int,
    store: str,
    token_auth_file: Path | None,
    log_format: str,
) -> None:
    """Run the hub: a Kubernetes API server for the control plane.

    The kubeconfig appears in the data directory once the hub is ready:

        clusterspace hub --data-dir .clusterspace
        kubectl --kubeconfig .clusterspace/kubeconfig get namespaces
    """
    import uvloop

    from clusterspace.processes.hub import HubSettings, serve_until_stopped
    from clusterspace.telemetry.logs import Format, Level, configure

    configure(Format(log_format), Level.INFO, sys.stderr)
    settings = HubSettings(data_dir, host, port, store, token_auth_file)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_until_stopped(settings))
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(_sentence(error, port)) from error


def _sentence(error: Exception, port: int) -> str:
    if isinstance(error, OSError) and error.errno == 98:
        return f"port {port} is in use: stop what listens there, or choose another with --port"
    return str(error)
