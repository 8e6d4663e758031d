"""`clusterspace join` and `clusterspace unjoin`: a cluster that the hub reaches comes and goes."""

from pathlib import Path

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.hub_option import hub_options, run
from clusterspace.cli.joining_options import joining_options, location_in
from clusterspace.cli.member_cidrs import Networks, member_cidrs_option

_member_kubeconfig = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("name")
@joining_options
@click.option(
    "--create-clusterproperty-not-exist",
    "creation",
    type=click.Choice(["true", "false"]),
    help="For a cluster that does not say who it is: give it an ID (true), or refuse it (false).",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@hub_options
def join(
    name: str,
    cluster_kubeconfig: Path,
    cluster_context: str,
    cluster_provider: str,
    cluster_region: str,
    cluster_zones: str,
    creation: str | None,
    kubeconfig: Path | None,
    context: str,
    *,
    dry_run: bool,
) -> None:
    """Make a cluster a member called NAME, reached by the hub (Push).

    Joining again under the same name replaces the credentials.

    \b
    Examples:
      clusterspace join west --cluster-kubeconfig west.yaml
      clusterspace join west --cluster-kubeconfig west.yaml --cluster-region eu-1 --dry-run
    """
    from clusterspace.fleet.membership.identity import Creation
    from clusterspace.fleet.membership.push_join import JoinRequest
    from clusterspace.roots.clients import hub_settings, member_settings
    from clusterspace.roots.joining import join_cluster

    async def work() -> None:
        request = JoinRequest(
            name=name,
            member=member_settings(name, cluster_kubeconfig, cluster_context),
            location=location_in(cluster_provider, cluster_region, cluster_zones),
            creation=Creation(creation or "unset"),
        )
        hub = hub_settings(kubeconfig, context)
        await join_cluster(request, hub, click.echo, is_dry_run=dry_run)

    run(work)


@click.command()
@click.argument("name", shell_complete=cluster_names)
@click.option(
    "--cluster-kubeconfig",
    type=_member_kubeconfig,
    help="Kubeconfig of an administrator of the cluster; without one the hub cleans up itself.",
)
@click.option("--cluster-context", default="", help="Context in that kubeconfig.")
@click.option("--keep-resources", is_flag=True, help="Leave what was placed on the member there.")
@click.option("--force", is_flag=True, help="Let a dead cluster go; what stays behind is recorded.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and do nothing.")
@click.option(
    "--wait",
    default=60.0,
    show_default=True,
    help="Seconds to wait for the cluster to be gone.",
)
@member_cidrs_option
@hub_options
def unjoin(
    name: str,
    cluster_kubeconfig: Path | None,
    cluster_context: str,
    wait: float,
    member_cidrs: Networks,
    kubeconfig: Path | None,
    context: str,
    *,
    keep_resources: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Take the member NAME out of the fleet.

    What was placed there is removed, unless --keep-resources says otherwise; it is listed first.

    \b
    Examples:
      clusterspace unjoin west
      clusterspace unjoin west --keep-resources
      clusterspace unjoin west --force
    """
    from clusterspace.roots.clients import hub_settings, member_settings
    from clusterspace.roots.joining import UnjoinRequest, unjoin_cluster

    async def work() -> None:
        request = UnjoinRequest(
            name=name,
            member=cluster_kubeconfig
            and member_settings(name, cluster_kubeconfig, cluster_context),
            keeps_resources=keep_resources,
            is_forced=force,
            wait_seconds=wait,
            member_cidrs=member_cidrs,
        )
        hub = hub_settings(kubeconfig, context)
        await unjoin_cluster(request, hub, click.echo, is_dry_run=dry_run)

    run(work)
