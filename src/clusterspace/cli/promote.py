"""`clusterspace promote`: take over an object that lives on a member, without a restart."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.hub_option import hub_options, run
from clusterspace.cli.member_cidrs import Networks, member_cidrs_option

if TYPE_CHECKING:
    from clusterspace.roots.promoting import Prospect


@click.command()
@click.argument("kind")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@click.option(
    "-C",
    "--cluster",
    required=True,
    shell_complete=cluster_names,
    help="The member it lives on.",
)
@click.option(
    "--cluster-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of that member; without it the hub looks with its own rights.",
)
@click.option("--cluster-context", default="", help="Context in that kubeconfig.")
@click.option("--policy-name", default="", help="Name of the policy; made from the object's.")
@click.option(
    "--auto-create-policy/--no-auto-create-policy",
    "creates_policy",
    default=True,
    help="Write a policy that places it on its cluster.",
)
@click.option("--dry-run", is_flag=True, help="Say what would change there, and do nothing.")
@click.option("--allow-restarts", is_flag=True, help="Go on even if pods restart or go.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    help="Print template and policy, and do nothing.",
)
@member_cidrs_option
@hub_options
def promote(
    kind: str,
    name: str,
    namespace: str,
    cluster: str,
    cluster_kubeconfig: Path | None,
    cluster_context: str,
    policy_name: str,
    output: str | None,
    member_cidrs: Networks,
    kubeconfig: Path | None,
    context: str,
    *,
    creates_policy: bool,
    dry_run: bool,
    allow_restarts: bool,
) -> None:
    """Make the object KIND NAME of a member a template of the hub, as it runs there.

    The member is asked first what that would change, by a dry run. When pods would restart or go,
    nothing is done unless --allow-restarts is given.

    \b
    Examples:
      clusterspace promote deployment web -n shop -C west --dry-run
      clusterspace promote deployment web -n shop -C west
    """
    from clusterspace.roots import promoting
    from clusterspace.roots.clients import hub_settings, member_settings

    hub = hub_settings(kubeconfig, context)
    member = (
        None
        if cluster_kubeconfig is None
        else member_settings(cluster, cluster_kubeconfig, cluster_context)
    )
    request = promoting.PromoteRequest(
        kind=kind,
        name=name,
        namespace=namespace,
        cluster=cluster,
        member=member,
        policy_name=policy_name,
        creates_policy=creates_policy,
        allows_restarts=allow_restarts,
        member_cidrs=member_cidrs,
    )
    prospect = run(lambda: promoting.look(request, hub))
    if output is not None:
        _print(prospect, output)
    elif dry_run:
        _tell(prospect, cluster)
    else:
        run(lambda: promoting.promote(request, prospect, hub, click.echo))


def _print(prospect: "Prospect", output: str) -> None:
    """Print what would be written, as documents kubectl can apply."""
    from clusterspace.cli.output import Output, document_text

    for document in (prospect.promotion.template, prospect.promotion.policy):
        if output == Output.YAML.value:
            click.echo("---")
        click.echo(document_text(document, Output(output)), nl=False)


def _tell(prospect: "Prospect", cluster: str) -> None:
    place, effect = prospect.place, prospect.effect
    click.echo(f"would take over {place} in {cluster}")
    for field in effect.fields:
        click.echo(f"  {field} would change")
    if not effect.fields:
        click.echo("  nothing would change but labels and annotations")
    click.echo(f"  {effect.on_pods or 'no pod would restart'}")
