"""`clusterspace register` and `clusterspace unregister`: a cluster whose agent dials the hub."""

import sys
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from clusterspace import __version__
from clusterspace.cli.completion import cluster_names
from clusterspace.cli.hub_option import hub_options, run
from clusterspace.cli.joining_options import joining_options, location_in

_kubeconfig = click.Path(dir_okay=False, path_type=Path)
_SEEN_BY_ALL: Final = (
    "Warning: everybody on this machine can read --token in the list of processes; "
    "--token-file or the variable CLUSTERSPACE_REGISTER_TOKEN keep it to yourself."
)


@click.command()
@click.argument("hub")
@click.option(
    "--token",
    default="",
    hide_input=True,
    help="What `clusterspace token create` printed. As a flag, everybody on this machine can read "
    "it in the list of processes: the variable and --token-file are for you alone.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File that holds the token instead; - is standard input.",
)
@click.option(
    "--discovery-token-ca-cert-hash",
    "pin",
    required=True,
    help="Fingerprint of the hub's authority: sha256:...",
)
@click.option("--cluster-name", "name", required=True, help="What the hub calls the cluster.")
@joining_options
@click.option(
    "--agent-image",
    default=f"clusterspace:{__version__}",
    show_default=True,
    help="Image of the agent in the cluster.",
)
@click.option("--local", is_flag=True, help="Run the agent here, in this terminal, instead.")
@click.pass_context
def register(
    called: click.Context,
    hub: str,
    token: str,
    token_file: Path | None,
    pin: str,
    name: str,
    cluster_kubeconfig: Path,
    cluster_context: str,
    cluster_provider: str,
    cluster_region: str,
    cluster_zones: str,
    agent_image: str,
    *,
    local: bool,
) -> None:
    """Register a cluster with the hub at HUB; its agent dials the hub (Pull).

    `clusterspace token create NAME --print-register-command` prints the command to run.

    \b
    Examples:
      clusterspace register 10.0.0.1:5443 --cluster-name west --cluster-kubeconfig west.yaml \\
        --token-file west.token --discovery-token-ca-cert-hash sha256:...
    """
    from clusterspace.cli.agent import serve_agent
    from clusterspace.fleet.membership.pull_join import RegisterRequest
    from clusterspace.roots.clients import member_settings
    from clusterspace.roots.registering import register_cluster

    secret = _read_token(called, token, token_file)

    async def work() -> None:
        request = RegisterRequest(
            name=name,
            hub_address=hub,
            pin=pin,
            token=secret,
            location=location_in(cluster_provider, cluster_region, cluster_zones),
            image="" if local else agent_image,
        )
        member = member_settings(name, cluster_kubeconfig, cluster_context)
        await register_cluster(request, member, click.echo)

    run(work)
    if local:
        serve_agent(cluster_kubeconfig, cluster_context)


def _read_token(called: click.Context, token: str, token_file: Path | None) -> str:
    """Return the token, wherever it was put; a terminal is asked when it was put nowhere."""
    if token and token_file is not None:
        raise click.UsageError("--token and --token-file exclude each other.")
    if token_file is not None:
        with click.open_file(str(token_file)) as file:
            token = file.read().strip()
    elif called.get_parameter_source("token") is ParameterSource.COMMANDLINE:
        click.echo(_SEEN_BY_ALL, err=True)
    elif not token and sys.stdin.isatty():
        token = click.prompt("Token", hide_input=True)
    if not token:
        variable = "CLUSTERSPACE_REGISTER_TOKEN"
        raise click.UsageError(f"A token is needed: --token-file, or the variable {variable}.")
    return token


@click.command()
@click.argument("name", shell_complete=cluster_names)
@click.option(
    "--cluster-kubeconfig",
    type=_kubeconfig,
    help="Kubeconfig of an administrator of the cluster; only --force does without.",
)
@click.option("--cluster-context", default="", help="Context in that kubeconfig.")
@click.option("--force", is_flag=True, help="Let a dead cluster go; what stays behind is recorded.")
@click.option(
    "--wait",
    "wait_seconds",
    default=60.0,
    show_default=True,
    help="Seconds to wait for the cluster to be gone from the hub.",
)
@hub_options
def unregister(
    name: str,
    cluster_kubeconfig: Path | None,
    cluster_context: str,
    wait_seconds: float,
    kubeconfig: Path | None,
    context: str,
    *,
    force: bool,
) -> None:
    """Take the member NAME, which registered itself, out of the fleet, and its agent down.

    \b
    Examples:
      clusterspace unregister west --cluster-kubeconfig west.yaml
      clusterspace unregister west --force
    """
    from clusterspace.roots.clients import hub_settings, member_settings
    from clusterspace.roots.registering import UnregisterRequest, unregister_cluster

    if cluster_kubeconfig is None and not force:
        raise click.UsageError("--cluster-kubeconfig is needed to take the agent down.")

    async def work() -> None:
        request = UnregisterRequest(
            name=name,
            member=cluster_kubeconfig
            and member_settings(name, cluster_kubeconfig, cluster_context),
            is_forced=force,
            wait_seconds=wait_seconds,
        )
        await unregister_cluster(request, hub_settings(kubeconfig, context), click.echo)

    run(work)
