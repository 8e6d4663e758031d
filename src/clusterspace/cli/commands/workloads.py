"""`clusterspace promote` and `resume`: workloads on their way to clusters."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.options import (
    HubOptions,
    MemberOptions,
    Networks,
    hub_options,
    member_cidrs_option,
    member_options,
)
from clusterspace.cli.output import Output, document_text
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings
    from clusterspace.roots.workloads import PromoteRequest, Prospect


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
@member_options("Kubeconfig of that member; without it the hub looks with its own rights.")
@click.option("--policy-name", default="", help="Name of the policy; made from the object's.")
@click.option(
    "--auto-create-policy/--no-auto-create-policy",
    "creates_policy",
    default=True,
    help="Write a policy that places it on its cluster.",
)
@click.option(
    "-d",
    "--dependencies",
    "takes_dependencies",
    is_flag=True,
    help="Promote what it needs, too: ConfigMaps, Secrets, accounts and claims of the member.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would change there, or why it would fail, and do nothing.",
)
@click.option(
    "--undo",
    "is_undo",
    is_flag=True,
    help="Give a promoted object back: the member keeps it, the hub's template and policy go.",
)
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
    *,
    kind: str,
    name: str,
    namespace: str,
    cluster: str,
    member: MemberOptions,
    policy_name: str,
    creates_policy: bool,
    takes_dependencies: bool,
    dry_run: bool,
    is_undo: bool,
    allow_restarts: bool,
    output: str | None,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Make the object KIND NAME of a member a template of the hub, as it runs there.

    The member is asked first what that would change, by a dry run. When pods would restart or go,
    nothing is done unless --allow-restarts is given.

    \b
    Examples:
      clusterspace promote deployment web -n shop -C west --dry-run
      clusterspace promote deployment web -n shop -C west
      clusterspace promote deployment web -n shop -C west --dependencies
      clusterspace promote deployment web -n shop -C west --undo
    """
    from clusterspace.roots import workloads

    request = workloads.PromoteRequest(
        kind=kind,
        name=name,
        namespace=namespace,
        cluster=cluster,
        member=member.settings(cluster),
        policy_name=policy_name,
        creates_policy=creates_policy,
        allows_restarts=allow_restarts,
        takes_dependencies=takes_dependencies,
        member_cidrs=member_cidrs,
    )
    settings = hub.settings()
    if is_undo:
        if dry_run or output or takes_dependencies:
            raise click.UsageError("--undo gives back one object: leave out the other choices.")
        run(lambda: workloads.give_back(request, settings, click.echo))
        return
    prospect = run(lambda: workloads.look(request, settings))
    for needed in prospect.dependencies:
        beside = replace(request, kind=needed.kind, name=needed.name, policy_name="")
        _promote_one(beside, settings, dry_run=dry_run, output=output)
    _promote_one(request, settings, prospect, dry_run=dry_run, output=output)


def _promote_one(
    request: "PromoteRequest",
    settings: "ConnectionSettings",
    prospect: "Prospect | None" = None,
    *,
    dry_run: bool,
    output: str | None,
) -> None:
    """Promote one object, or say what that would do."""
    from clusterspace.roots import workloads

    if prospect is None:
        alone = replace(request, takes_dependencies=False)
        prospect = run(lambda: workloads.look(alone, settings))
    if output is not None:
        # As documents that kubectl can apply.
        for document in (prospect.promotion.template, prospect.promotion.policy):
            if output == Output.YAML.value:
                click.echo("---")
            click.echo(document_text(document, Output(output)), nl=False)
    elif dry_run:
        click.echo(f"would take over {prospect.path} in {request.cluster}")
        for field in prospect.effect.fields:
            click.echo(f"  {field} would change")
        if not prospect.effect.fields:
            click.echo("  nothing would change but labels and annotations")
        click.echo(f"  {prospect.effect.on_pods or 'no pod would restart'}")
        run(lambda: workloads.rehearse(request, prospect, settings))
    else:
        run(lambda: workloads.promote(request, prospect, settings, click.echo))


@click.command()
@click.argument("name", shell_complete=cluster_names)
@hub_options
def resume(*, name: str, hub: HubOptions) -> None:
    """Let deletions on the member NAME go on.

    They pause when more than ten objects, and more than a fifth of what is placed there, are to go
    within ten minutes. Look first: `kubectl get wk -n karmada-es-NAME` shows what is going.

    \b
    Examples:
      clusterspace resume west
    """
    from clusterspace.roots.workloads import resume_deletions

    resumed = run(lambda: resume_deletions(name, hub.settings()))
    if not resumed.was_paused:
        click.echo(f"deletions in {name} are not paused")
        return
    click.echo(f"deletions in {name} go on; {resumed.waiting} waited")
