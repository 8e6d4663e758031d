"""`clusterspace agent`: the agent of a cluster that registered itself."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.errors import ClusterspaceError

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings


@click.command()
@click.option(
    "--cluster-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the cluster; without one the agent runs in a pod of it.",
)
@click.option("--cluster-context", default="", help="Context in that kubeconfig.")
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="For people or for machines.",
)
def agent(cluster_kubeconfig: Path | None, cluster_context: str, log_format: str) -> None:
    """Run the agent of a registered cluster: it dials the hub, and nobody dials it.

    Where the hub is, and the agent's certificate, are in a Secret on the cluster.
    """
    serve_agent(cluster_kubeconfig, cluster_context, log_format)


def serve_agent(
    cluster_kubeconfig: Path | None, cluster_context: str, log_format: str = "console"
) -> None:
    """Run an agent in this process, until it is stopped or no longer registered."""
    import uvloop

    from clusterspace.processes.agent import AgentSettings, serve_until_stopped
    from clusterspace.telemetry.logs import Format, Level, configure

    configure(Format(log_format), Level.INFO, sys.stderr)
    try:
        settings = AgentSettings(_member(cluster_kubeconfig, cluster_context))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_until_stopped(settings))
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _member(cluster_kubeconfig: Path | None, context: str) -> "ConnectionSettings":
    from clusterspace.client.kubeconfig import in_cluster_settings
    from clusterspace.processes.clients import member_settings

    if cluster_kubeconfig is None:
        return in_cluster_settings(os.environ, cluster="member")
    return member_settings("member", cluster_kubeconfig, context)
