"""`clusterspace hub`: run the hub in the foreground until Ctrl-C."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.foreground import (
    audit_reads_option,
    connection_options,
    impersonate_masters_option,
    log_format_option,
    plain_accounts_option,
    serve,
    tls_names_option,
)
from clusterspace.cli.member_cidrs import Networks, member_cidrs_option

if TYPE_CHECKING:
    from clusterspace.apiserver.http.limits import Limits


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
@impersonate_masters_option
@plain_accounts_option
@tls_names_option
@member_cidrs_option
@connection_options
@audit_reads_option
@log_format_option
def hub(
    data_dir: Path,
    host: str,
    port: int,
    store: str,
    token_auth_file: Path | None,
    impersonate_masters: bool,
    plain_service_accounts: tuple[str, ...],
    server_names: tuple[str, ...],
    member_cidrs: Networks,
    limits: "Limits",
    audited_reads: tuple[str, ...],
    log_format: str,
) -> None:
    """Run the hub: a Kubernetes API server for the control plane.

    The administrator's kubeconfig appears in the data directory once the hub is ready, and those
    that `fleet` and `controllers` work with below it, in parts/.

    \b
    Examples:
      clusterspace hub
      clusterspace hub --data-dir /var/lib/clusterspace --log-format json
      clusterspace hub --host 0.0.0.0 --tls-san hub.example.com
      kubectl --kubeconfig .clusterspace/kubeconfig get namespaces
    """
    from clusterspace.apiserver.http.travelling_users import MemberIdentities, read_members
    from clusterspace.roots.hub import HubSettings, serve_until_stopped

    settings = HubSettings(
        data_dir,
        host,
        port,
        store,
        token_auth_file,
        server_names,
        member_cidrs=member_cidrs,
        connections=limits,
        audited_reads=frozenset(audited_reads),
        identities=MemberIdentities(impersonate_masters, read_members(plain_service_accounts)),
    )
    serve(lambda: serve_until_stopped(settings), log_format, port=port)
