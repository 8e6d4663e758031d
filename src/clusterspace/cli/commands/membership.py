"""`clusterspace join`, `unjoin`, `register` and `unregister`: a cluster comes and goes.

Push: the hub reaches the cluster (`join`). Pull: the cluster's agent dials the hub (`register`).
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from clusterspace import __version__
from clusterspace.cli.commands.controllers import serve_agent
from clusterspace.cli.completion import cluster_names
from clusterspace.cli.options import (
    HubOptions,
    MemberOptions,
    Networks,
    allow_view_option,
    hub_options,
    location_options,
    member_cidrs_option,
    member_options,
    webhook_cidrs_option,
)
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.fleet.membership.manifests import Location

_TOKEN_VARIABLE: Final = "CLUSTERSPACE_REGISTER_TOKEN"  # noqa: S105 - a name
_SEEN_BY_ALL: Final = (
    "Warning: everybody on this machine can read --token in the list of processes; "
    f"--token-file or the variable {_TOKEN_VARIABLE} keep it to yourself."
)


@click.command()
@click.argument("name")
@member_options(required=True)
@location_options
@click.option(
    "--create-clusterproperty-not-exist",
    "creation",
    type=click.Choice(["true", "false"]),
    help="For a cluster that does not say who it is: give it an ID (true), or refuse it (false).",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@hub_options
def join(
    *,
    name: str,
    member: MemberOptions,
    location: "Location",
    creation: str | None,
    dry_run: bool,
    hub: HubOptions,
) -> None:
    """Make a cluster a member called NAME, reached by the hub (Push).

    Joining again under the same name replaces the credentials.

    \b
    Examples:
      clusterspace join west --cluster-kubeconfig west.yaml
      clusterspace join west --cluster-kubeconfig west.yaml --cluster-region eu-1 --dry-run
    """
    from clusterspace.fleet.membership.member_access import Creation
    from clusterspace.fleet.membership.push_join import JoinRequest
    from clusterspace.roots.membership import join_cluster

    async def work() -> None:
        request = JoinRequest(
            name=name,
            member=member.required_settings(name),
            location=location,
            creation=Creation(creation or "unset"),
        )
        await join_cluster(request, hub.settings(), click.echo, is_dry_run=dry_run)

    run(work)


@click.command()
@click.argument("name", shell_complete=cluster_names)
@member_options(
    "Kubeconfig of an administrator of the cluster; without one the hub cleans up itself."
)
@click.option("--keep-resources", is_flag=True, help="Leave what was placed on the member there.")
@click.option(
    "--with-contents",
    is_flag=True,
    help="Remove namespaces with all that is in them; without it those that hold what the hub did "
    "not place stay.",
)
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
    *,
    name: str,
    member: MemberOptions,
    keep_resources: bool,
    with_contents: bool,
    force: bool,
    dry_run: bool,
    wait: float,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Take the member NAME out of the fleet.

    What was placed there is removed, unless --keep-resources says otherwise; it is listed first. A
    namespace that holds what somebody else made stays, and loses our marks.

    \b
    Examples:
      clusterspace unjoin west --dry-run
      clusterspace unjoin west
      clusterspace unjoin west --keep-resources
      clusterspace unjoin west --force
    """
    from clusterspace.roots.membership import UnjoinRequest, unjoin_cluster

    async def work() -> None:
        request = UnjoinRequest(
            name=name,
            member=member.settings(name),
            keeps_resources=keep_resources,
            takes_contents=with_contents,
            is_forced=force,
            wait_seconds=wait,
            member_cidrs=member_cidrs,
        )
        await unjoin_cluster(request, hub.settings(), click.echo, is_dry_run=dry_run)

    run(work)


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
@member_options(required=True)
@location_options
@click.option(
    "--agent-image",
    default=f"clusterspace:{__version__}",
    show_default=True,
    help="Image of the agent in the cluster.",
)
@allow_view_option
@webhook_cidrs_option
@click.option(
    "--report-secrets",
    "reported",
    default="None",
    show_default=True,
    metavar="NAMES",
    help="Credentials of the cluster that the hub is given, as Karmada's agents do: "
    "KubeCredentials (every right), KubeImpersonator, both with a comma, or None. What that "
    "weakens is in docs/guides/security-model.md.",
)
@click.option("--local", is_flag=True, help="Run the agent here, in this terminal, instead.")
@click.pass_context
def register(
    called: click.Context,
    *,
    hub: str,
    token: str,
    token_file: Path | None,
    pin: str,
    name: str,
    member: MemberOptions,
    location: "Location",
    agent_image: str,
    allows_view: bool,
    webhook_cidrs: Networks,
    reported: str,
    local: bool,
) -> None:
    """Register a cluster with the hub at HUB; its agent dials the hub (Pull).

    `clusterspace token create NAME --print-register-command` prints the command to run.

    \b
    Examples:
      clusterspace register 10.0.0.1:5443 --cluster-name west --cluster-kubeconfig west.yaml \\
        --token-file west.token --discovery-token-ca-cert-hash sha256:...
    """
    from clusterspace.fleet.membership.pull_join import REPORTABLE, RegisterRequest
    from clusterspace.roots.membership import register_cluster

    reports = {each.strip() for each in reported.split(",")}
    if not reports <= {*REPORTABLE, "None"} or (len(reports) > 1 and "None" in reports):
        names = ", ".join(REPORTABLE)
        raise click.UsageError(f"--report-secrets takes {names}, both with a comma, or None.")
    secret = _read_token(called, token, token_file)

    async def work() -> None:
        request = RegisterRequest(
            name=name,
            hub_address=hub,
            pin=pin,
            token=secret,
            location=location,
            image="" if local else agent_image,
            allows_view=allows_view,
            webhook_cidrs=webhook_cidrs,
            reported=frozenset(reports - {"None"}),
        )
        await register_cluster(request, member.required_settings(name), click.echo)

    run(work)
    if local:
        serve_agent(member, allows_view=allows_view, webhook_cidrs=webhook_cidrs)


def _read_token(called: click.Context, token: str, token_file: Path | None) -> str:
    """Return the token, wherever it was put; a terminal is asked when it was put nowhere."""
    if token and token_file is not None:
        raise click.UsageError("--token and --token-file exclude each other.")
    if token_file is not None:
        with click.open_file(str(token_file)) as file:
            token = file.read().strip()
    elif called.get_parameter_source("token") is ParameterSource.COMMANDLINE:
        click.echo(_SEEN_BY_ALL, err=True)
        _hide_token(token)
    elif not token and sys.stdin.isatty():
        token = click.prompt("Token", hide_input=True)
    if not token:
        raise click.UsageError(
            f"A token is needed: --token-file, or the variable {_TOKEN_VARIABLE}."
        )
    return token


def _hide_token(token: str) -> None:
    """Begin this program anew without the token in its words: agents run for months.

    Nothing has been done yet; the same process, in the same place, reads it from its environment.
    """
    words = list(sys.orig_argv)
    flag = words.index("--token") if "--token" in words else len(words)
    if words[flag + 1 : flag + 2] == [token]:
        del words[flag : flag + 2]
    elif f"--token={token}" in words:
        words.remove(f"--token={token}")
    else:
        return  # called from within another program, whose words are its own
    os.execve(sys.executable, words, {**os.environ, _TOKEN_VARIABLE: token})  # noqa: S606 - our own


@click.command()
@click.argument("name", shell_complete=cluster_names)
@member_options("Kubeconfig of an administrator of the cluster; only --force does without.")
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
    *,
    name: str,
    member: MemberOptions,
    force: bool,
    wait_seconds: float,
    hub: HubOptions,
) -> None:
    """Take the member NAME, which registered itself, out of the fleet, and its agent down.

    \b
    Examples:
      clusterspace unregister west --cluster-kubeconfig west.yaml
      clusterspace unregister west --force
    """
    from clusterspace.roots.membership import UnregisterRequest, unregister_cluster

    if member.kubeconfig is None and not force:
        raise click.UsageError("--cluster-kubeconfig is needed to take the agent down.")

    async def work() -> None:
        request = UnregisterRequest(
            name=name,
            member=member.settings(name),
            is_forced=force,
            wait_seconds=wait_seconds,
        )
        await unregister_cluster(request, hub.settings(), click.echo)

    run(work)
