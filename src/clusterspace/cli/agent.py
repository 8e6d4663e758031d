"""`clusterspace agent`: the agent of a cluster that registered itself, or was invited."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.foreground import log_format_option, serve

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
    "--cluster-status-update-frequency",
    "status_seconds",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds between two looks at the cluster.",
)
@click.option(
    "--hub-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the hub, for the identity of a MemberCluster; needs --name.",
)
@click.option("--name", default="", help="What the MemberCluster is called.")
@log_format_option
def agent(
    cluster_kubeconfig: Path | None,
    cluster_context: str,
    status_seconds: float,
    hub_kubeconfig: Path | None,
    name: str,
    log_format: str,
) -> None:
    """Run the agent of a registered cluster: it dials the hub, and nobody dials it.

    Where the hub is, and the agent's certificate, are in a Secret on the cluster, which
    `clusterspace register` puts there. An agent that a MemberCluster invites is told both instead.

    \b
    Examples:
      clusterspace agent
      clusterspace agent --cluster-kubeconfig west.yaml
      clusterspace agent --cluster-kubeconfig west.yaml --name west --hub-kubeconfig hub.yaml
    """
    if bool(name) != bool(hub_kubeconfig):
        raise click.UsageError("--name and --hub-kubeconfig go together")
    invited_by = (name, hub_kubeconfig) if hub_kubeconfig else None
    serve_agent(cluster_kubeconfig, cluster_context, status_seconds, log_format, invited_by)


def serve_agent(
    cluster_kubeconfig: Path | None,
    cluster_context: str,
    status_seconds: float = 10.0,
    log_format: str = "console",
    invited_by: tuple[str, Path] | None = None,
) -> None:
    """Run an agent in this process, until it is stopped or no longer registered.

    One that was invited is told the name of its MemberCluster and a kubeconfig of the hub.
    """
    from clusterspace.roots.agent import AgentSettings, Invitation, serve_until_stopped
    from clusterspace.roots.clients import hub_settings

    async def work() -> None:
        member = _member(cluster_kubeconfig, cluster_context)
        invitation = invited_by and Invitation(invited_by[0], hub_settings(invited_by[1]))
        await serve_until_stopped(AgentSettings(member, invitation, status_seconds=status_seconds))

    serve(work, log_format)


def _member(cluster_kubeconfig: Path | None, context: str) -> "ConnectionSettings":
    from clusterspace.client.kubeconfig import in_cluster_settings
    from clusterspace.roots.clients import member_settings

    if cluster_kubeconfig is None:
        return in_cluster_settings(os.environ, cluster="member")
    return member_settings("member", cluster_kubeconfig, context)
