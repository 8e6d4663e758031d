"""`clusterspace fleet` and `clusterspace kubeconfig`: one address for every cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.foreground import (
    audit_reads_option,
    connection_options,
    hub_kubeconfig_option,
    impersonate_masters_option,
    log_format_option,
    plain_accounts_option,
    serve,
    tls_names_option,
)
from clusterspace.cli.hub_option import run
from clusterspace.cli.member_cidrs import Networks, member_cidrs_option

if TYPE_CHECKING:
    from clusterspace.apiserver.http.limits import Limits


@click.command()
@hub_kubeconfig_option
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".clusterspace") / "fleet",
    show_default=True,
    help="Where certificates, the kubeconfig and the audit log are kept.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=7443, show_default=True, help="Port to listen on; 0: a free one.")
@click.option(
    "--federation",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Show the hub's own objects too; a name without a cluster is then the hub's.",
)
@click.option(
    "--list-timeout",
    "list_seconds",
    default=8.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=30),
    help="Seconds each cluster has for its part of a list.",
)
@click.option(
    "--answer-mib",
    default=128,
    show_default=True,
    type=click.IntRange(min=1),
    help="MiB that one cluster's answer may have; a larger one is left out with a warning.",
)
@click.option(
    "--answers-mib",
    default=512,
    show_default=True,
    type=click.IntRange(min=1),
    help="MiB that all answers worked on at one time may have; the largest is left out first.",
)
@click.option(
    "--member-grace",
    "grace_seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds a cluster may answer wrongly before informers are served without it.",
)
@click.option(
    "--lost-member-grace",
    "lost_seconds",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds a cluster may be out of reach before informers are served without it.",
)
@impersonate_masters_option
@plain_accounts_option
@tls_names_option
@member_cidrs_option
@connection_options
@audit_reads_option
@log_format_option
def fleet(
    hub_kubeconfig: Path | None,
    data_dir: Path,
    host: str,
    port: int,
    federation: bool,
    list_seconds: float,
    answer_mib: int,
    answers_mib: int,
    grace_seconds: float,
    lost_seconds: float,
    impersonate_masters: bool,
    plain_service_accounts: tuple[str, ...],
    server_names: tuple[str, ...],
    member_cidrs: Networks,
    limits: "Limits",
    audited_reads: tuple[str, ...],
    log_format: str,
) -> None:
    """Run the fleet API server: a unified view of the hub and of every member.

    The hub writes a kubeconfig for it, with few rights of its own. Its address appears as a
    kubeconfig in the data directory once the server is ready; who you are is in the hub's.

    \b
    Examples:
      clusterspace fleet --hub-kubeconfig .clusterspace/parts/fleet/kubeconfig
      export KUBECONFIG=.clusterspace/fleet/kubeconfig:.clusterspace/kubeconfig
      kubectl get pods -A
    """
    from clusterspace.apiserver.http.travelling_users import MemberIdentities, read_members
    from clusterspace.fleet.gateway.answers.asking import FleetLimits
    from clusterspace.roots.clients import part_settings
    from clusterspace.roots.fleet import FleetSettings, serve_until_stopped

    async def work() -> None:
        settings = FleetSettings(
            hub=part_settings("fleet", hub_kubeconfig),
            read_hub=lambda: part_settings("fleet", hub_kubeconfig),
            data_dir=data_dir,
            host=host,
            port=port,
            federation=federation,
            limits=FleetLimits(
                list_seconds=list_seconds,
                answer_bytes=answer_mib << 20,
                answers_bytes=answers_mib << 20,
                grace_seconds=grace_seconds,
                lost_seconds=lost_seconds,
            ),
            server_names=server_names,
            member_cidrs=member_cidrs,
            connections=limits,
            audited_reads=frozenset(audited_reads),
            identities=MemberIdentities(impersonate_masters, read_members(plain_service_accounts)),
        )
        await serve_until_stopped(settings)

    serve(work, log_format, port=port)


@click.command()
@click.option(
    "--kubeconfig",
    "fleet_kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the fleet API server.  [default: KUBECONFIG, else the local one]",
)
@click.option("--context", default="", help="Context in it.  [default: fleet, else the current]")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write to.  [default: standard output]",
)
def kubeconfig(fleet_kubeconfig: Path | None, context: str, output: Path | None) -> None:
    """Write a kubeconfig with a context for the fleet, the hub and each cluster.

    Every context goes through the fleet API server, with the identity you have there.

    \b
    Examples:
      clusterspace kubeconfig --output fleet.yaml
      kubectl --kubeconfig fleet.yaml --context member1 get pods
    """
    from clusterspace.roots.fleet_contexts import all_contexts, fleet_settings
    from clusterspace.roots.installation import write_private

    content = run(lambda: all_contexts(fleet_settings(fleet_kubeconfig, context)))
    if output is None:
        click.echo(content.decode(), nl=False)
    else:
        write_private(output, content)
