"""`clusterspace controllers`, `agent`, `watchdog`: run what works beside the servers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.options import (
    DELETION_BUDGET,
    PORT,
    MemberOptions,
    Networks,
    allow_view_option,
    deletion_budget_option,
    hub_kubeconfig_option,
    log_format_option,
    member_cidrs_option,
    member_options,
    unschedulable_option,
    webhook_cidrs_option,
)
from clusterspace.cli.running import serve

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings


def _checked_server(_context: click.Context, _option: click.Parameter, server: str) -> str:
    if server and not server.startswith("https://"):
        raise click.BadParameter("tokens go to https:// addresses alone")
    return server


@click.command()
@hub_kubeconfig_option
@click.option(
    "--cluster-status-update-frequency",
    "status_seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between two looks at a Push cluster.",
)
@click.option(
    "--cluster-success-threshold",
    "success_seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds a cluster must be well before it is Ready again.",
)
@click.option(
    "--cluster-failure-threshold",
    "failure_seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds a cluster must be unwell before it is not Ready.",
)
@click.option(
    "--cluster-monitor-period",
    "monitor_seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between two looks at heartbeats.",
)
@click.option(
    "--cluster-monitor-grace-period",
    "grace_seconds",
    default=40.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds a Pull cluster may be silent.",
)
@click.option(
    "--cluster-startup-grace-period",
    "startup_seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds a Pull cluster may take to be heard for the first time.",
)
@click.option(
    "--force-delete-wait-time",
    "force_seconds",
    default=900.0,
    show_default=True,
    type=click.FloatRange(min=30, max=3600),
    help="Seconds a leaving MemberCluster's silent agent is waited for.",
)
@click.option(
    "--federation",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Propagate workloads; without it the controllers only look after members.",
)
@click.option(
    "--metrics-port",
    type=PORT,
    help="Serve /metrics and /healthz on this port of this machine; 0: a free one.",
)
@click.option(
    "--enable-no-execute-taint-eviction",
    "evicts",
    is_flag=True,
    help="Have workloads leave clusters with NoExecute taints that they do not tolerate.",
)
@click.option(
    "--no-execute-taint-eviction-purge-mode",
    "purge_mode",
    type=click.Choice(["Gracefully", "Directly"]),
    default="Gracefully",
    show_default=True,
    help="Whether a copy goes after its replacement is healthy, or at once.",
)
@click.option(
    "--graceful-eviction-timeout",
    "grace_seconds_of_evictions",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds a replacement has to become healthy before the old copy goes all the same.",
)
@click.option(
    "--resource-eviction-rate",
    "eviction_rate",
    type=click.FloatRange(min=0),
    default=0.5,
    show_default=True,
    help="Workloads that begin to leave in a second, over all clusters; 0: none.",
)
@click.option(
    "--domain-eviction-rate",
    type=click.FloatRange(min=0),
    default=0.25,
    show_default=True,
    help="Workloads that begin to leave one region, or provider, in a second; 0: none.",
)
@click.option(
    "--domain-eviction-budget",
    type=click.FloatRange(min=0, max=100),
    default=50.0,
    show_default=True,
    help="Percent of a region's workloads that may begin to leave it in ten minutes.",
)
@click.option(
    "--eviction-settle-time",
    "settle_seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds without evictions after a start, or after most clusters looked dead.",
)
@click.option(
    "--eviction-witnesses",
    "witnesses",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Other places that must not reach a Push cluster before it counts as dead; 0: none.",
)
@click.option(
    "--exclusive-margin",
    "margin_seconds",
    type=click.FloatRange(min=5),
    default=60.0,
    show_default=True,
    help="Seconds an exclusive copy of a silent cluster is waited for after its lease is out.",
)
@click.option(
    "--watchdog-image",
    default="",
    help="Image that Push clusters with exclusive workloads run, to stop those when the hub is "
    "not heard; empty: none.",
)
@click.option(
    "--horizontal-pod-autoscaler-sync-period",
    "autoscaling_seconds",
    default=15.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between two looks at the load of what a FederatedHPA scales.",
)
@click.option(
    "--cluster-consumers",
    "consumers_server",
    default="",
    metavar="URL",
    callback=_checked_server,
    help="Write ClusterProfiles and credentials for ClusterConsumers, which reach the hub at URL, "
    "or clusters at one with {cluster} in it.",
)
@click.option(
    "--cluster-consumers-certificate-authority",
    "consumers_authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The authority of that URL, if it is another than the hub's.",
)
@unschedulable_option
@deletion_budget_option
@member_cidrs_option
@log_format_option
def controllers(
    hub_kubeconfig: Path | None,
    status_seconds: float,
    success_seconds: float,
    failure_seconds: float,
    monitor_seconds: float,
    grace_seconds: float,
    startup_seconds: float,
    force_seconds: float,
    *,
    federation: bool,
    metrics_port: int | None,
    evicts: bool,
    purge_mode: str,
    grace_seconds_of_evictions: float,
    eviction_rate: float,
    domain_eviction_rate: float,
    domain_eviction_budget: float,
    settle_seconds: float,
    witnesses: int,
    margin_seconds: float,
    watchdog_image: str,
    autoscaling_seconds: float,
    consumers_server: str,
    consumers_authority: Path | None,
    unschedulable_seconds: float,
    deletion_budget: str,
    member_cidrs: Networks,
    log_format: str,
) -> None:
    """Run the controllers: they watch over the members. Several may run; one works.

    \b
    Examples:
      clusterspace controllers
      clusterspace controllers --hub-kubeconfig .clusterspace/parts/controllers/kubeconfig
      clusterspace controllers --metrics-port 9090 --log-format json
    """
    from clusterspace.fleet.execution.prune import read_limits
    from clusterspace.fleet.membership.health import Thresholds
    from clusterspace.fleet.membership.leases import MonitorSettings
    from clusterspace.fleet.membership.member_clusters.controller import MemberClusterSettings
    from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
    from clusterspace.roots.clients import component_settings
    from clusterspace.roots.controllers import serve_until_stopped
    from clusterspace.roots.processes import read_when_there
    from clusterspace.roots.settings import ControllersSettings

    def read_hub() -> "ConnectionSettings":
        return component_settings("controllers", hub_kubeconfig)

    async def work() -> None:
        settings = ControllersSettings(
            hub=await read_when_there(read_hub),
            read_hub=read_hub,
            status_seconds=status_seconds,
            thresholds=Thresholds(success_seconds, failure_seconds),
            monitor=MonitorSettings(monitor_seconds, grace_seconds, startup_seconds),
            member_clusters=MemberClusterSettings(force_seconds=force_seconds),
            federation=federation,
            metrics_port=metrics_port,
            deletions=read_limits(deletion_budget),
            autoscaling_seconds=autoscaling_seconds,
            evictions=EvictionSettings(
                is_on=evicts,
                purge_mode=purge_mode,
                each_second=eviction_rate,
                domain_each_second=domain_eviction_rate,
                domain_percent=domain_eviction_budget,
                grace_seconds=grace_seconds_of_evictions,
                settle_seconds=settle_seconds,
                witnesses=witnesses,
                margin_seconds=margin_seconds,
            ),
            member_cidrs=member_cidrs,
            unschedulable_seconds=unschedulable_seconds,
            consumers_server=consumers_server,
            consumers_authority=consumers_authority,
            watchdog_image=watchdog_image,
        )
        await serve_until_stopped(settings)

    serve(work, log_format, port=metrics_port, port_flag="--metrics-port")


@click.command()
@member_options("Kubeconfig of the cluster; without one the agent runs in a pod of it.")
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
@click.option(
    "--exclusive-lease",
    "exclusive_seconds",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds that exclusive copies run without the hub before they are stopped; 0: for ever.",
)
@allow_view_option
@webhook_cidrs_option
@unschedulable_option
@deletion_budget_option
@log_format_option
def agent(
    *,
    member: MemberOptions,
    status_seconds: float,
    hub_kubeconfig: Path | None,
    name: str,
    exclusive_seconds: float,
    allows_view: bool,
    webhook_cidrs: Networks,
    unschedulable_seconds: float,
    deletion_budget: str,
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
    serve_agent(
        member,
        status_seconds,
        log_format,
        invited_by,
        deletion_budget,
        exclusive_seconds=exclusive_seconds,
        allows_view=allows_view,
        webhook_cidrs=webhook_cidrs,
        unschedulable_seconds=unschedulable_seconds,
    )


def serve_agent(
    member: MemberOptions,
    status_seconds: float = 10.0,
    log_format: str = "console",
    invited_by: tuple[str, Path] | None = None,
    deletion_budget: str = DELETION_BUDGET,
    *,
    exclusive_seconds: float = 120.0,
    allows_view: bool = True,
    webhook_cidrs: Networks = (),
    unschedulable_seconds: float = 300.0,
) -> None:
    """Run an agent in this process, until it is stopped or no longer registered.

    One that was invited is given the name of its MemberCluster and a kubeconfig of the hub.
    """
    from clusterspace.client.kubeconfig import in_cluster_settings
    from clusterspace.fleet.execution.prune import read_limits
    from clusterspace.roots.agent import serve_until_stopped
    from clusterspace.roots.clients import hub_settings
    from clusterspace.roots.processes import read_when_there
    from clusterspace.roots.settings import AgentSettings, Invitation

    async def work() -> None:
        cluster = member.settings("member") or in_cluster_settings(os.environ, cluster="member")
        invitation: Invitation | None = None
        if invited_by is not None:
            invited, file = invited_by

            def read_hub() -> "ConnectionSettings":
                return hub_settings(file)

            invitation = Invitation(invited, await read_when_there(read_hub), read_hub)
        settings = AgentSettings(
            cluster,
            invitation,
            status_seconds=status_seconds,
            deletions=read_limits(deletion_budget),
            exclusive_seconds=exclusive_seconds,
            allows_view=allows_view,
            webhook_cidrs=webhook_cidrs,
            unschedulable_seconds=unschedulable_seconds,
        )
        await serve_until_stopped(settings)

    serve(work, log_format)


@click.command()
@member_options("Kubeconfig of the cluster; without one the watchdog runs in a pod of it.")
@click.option(
    "--exclusive-lease",
    "exclusive_seconds",
    type=click.FloatRange(min=15),
    default=120.0,
    show_default=True,
    help="Seconds that exclusive copies run without the hub before they are stopped.",
)
@log_format_option
def watchdog(*, member: MemberOptions, exclusive_seconds: float, log_format: str) -> None:
    """Run the watchdog of a Push cluster: it stops exclusive copies when the hub is not heard.

    It talks to its own cluster alone. Controllers with --watchdog-image place it where it is
    needed; one for each cluster.

    \b
    Examples:
      clusterspace watchdog
      clusterspace watchdog --cluster-kubeconfig west.yaml
    """
    from clusterspace.client.kubeconfig import in_cluster_settings
    from clusterspace.roots.settings import WatchdogSettings
    from clusterspace.roots.watchdog import serve_until_stopped

    async def work() -> None:
        cluster = member.settings("member") or in_cluster_settings(os.environ, cluster="member")
        await serve_until_stopped(WatchdogSettings(cluster, exclusive_seconds))

    serve(work, log_format)
