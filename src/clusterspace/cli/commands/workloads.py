"""`clusterspace promote`, `resume` and `why`: workloads on their way to clusters."""

from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import cluster_names, kinds_and_names
from clusterspace.cli.options import (
    HubOptions,
    MemberOptions,
    Networks,
    hub_options,
    member_cidrs_option,
    member_options,
)
from clusterspace.cli.output import (
    Line,
    Listing,
    Output,
    document_text,
    output_option,
    people_console,
    show,
)
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from clusterspace.fleet.propagation.explanation import (
        ClusterNote,
        Explanation,
        PolicyNote,
        WorkNote,
    )

_TREE: Final = "tree"
_GOOD: Final = "green"
_BAD: Final = "red"
_WAITING: Final = "yellow"
_QUIET: Final = "dim"


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
    *,
    kind: str,
    name: str,
    namespace: str,
    cluster: str,
    member: MemberOptions,
    policy_name: str,
    creates_policy: bool,
    dry_run: bool,
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
        member_cidrs=member_cidrs,
    )
    settings = hub.settings()
    prospect = run(lambda: workloads.look(request, settings))
    if output is not None:
        # As documents that kubectl can apply.
        for document in (prospect.promotion.template, prospect.promotion.policy):
            if output == Output.YAML.value:
                click.echo("---")
            click.echo(document_text(document, Output(output)), nl=False)
    elif dry_run:
        click.echo(f"would take over {prospect.path} in {cluster}")
        for field in prospect.effect.fields:
            click.echo(f"  {field} would change")
        if not prospect.effect.fields:
            click.echo("  nothing would change but labels and annotations")
        click.echo(f"  {prospect.effect.on_pods or 'no pod would restart'}")
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


@click.command()
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND/NAME", shell_complete=kinds_and_names
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@output_option(_TREE, default=_TREE)
@hub_options
def why(*, words: tuple[str, ...], namespace: str, output: str, hub: HubOptions) -> None:
    """Say why an object is where it is.

    Shows the policy it follows and those that lost, every cluster with the reason it was chosen
    or not, what was changed on the way, and what each cluster says of it.

    \b
    Examples:
      clusterspace why deployment/web -n shop
      clusterspace why deployment/web -n shop -o wide
      clusterspace why clusterrole reader -o json
    """
    # KIND/NAME, or KIND and NAME.
    given = words[0].split("/") if len(words) == 1 else list(words)
    if len(given) != 2 or not all(given):
        raise click.BadParameter("write KIND/NAME, such as deployment/web", param_hint="KIND/NAME")
    kind, name = given

    async def work() -> "Explanation":
        from clusterspace.client.discovery import Discovery
        from clusterspace.client.requests import ResourcePath
        from clusterspace.fleet.propagation.explanation import explain, find_named, gather
        from clusterspace.roots.clients import open_client

        async with open_client(hub.settings()) as client:
            resource = find_named(await Discovery(client.connection).served(), kind)
            inside = namespace if resource.namespaced else ""
            place = ResourcePath(resource.group_version_resource, inside, name)
            return explain(await gather(client, place))

    explanation = run(work)
    if output == _TREE:
        people_console().print(tree_of(explanation))
    else:
        show(listing_of(explanation), output)


def listing_of(explanation: "Explanation") -> Listing:
    """Return the explanation as a table with a line for each cluster."""
    lines: list[Line] = []
    for note in explanation.clusters:
        work = note.work
        state = _state_text(work).plain if work is not None else ""
        cells = (note.name, note.standing.value, str(note.replicas or ""), state, note.why)
        wide = (work.name, work.message) if work is not None else ("", "")
        lines.append(Line(note.name, cells, wide_cells=wide, style=_style_of(note)))
    return Listing(
        columns=("CLUSTER", "STANDING", "REPLICAS", "STATE", "WHY"),
        wide_columns=("WORK", "MESSAGE"),
        lines=tuple(lines),
        document=explanation,
        nothing=explanation.summary,
    )


def tree_of(explanation: "Explanation") -> "Tree":
    """Return the explanation as it is drawn: policies, then the binding and its clusters."""
    from rich.text import Text
    from rich.tree import Tree

    inside = f" in {explanation.namespace}" if explanation.namespace else ""
    title = (f"{explanation.kind} {explanation.name}", "bold")
    tree = Tree(Text.assemble(title, f"{inside}  {explanation.summary}"))
    if explanation.policy is None:
        branch = tree.add(Text("follows no policy", _WAITING))
    else:
        branch = tree.add(Text.assemble("follows ", _policy_text(explanation.policy)))
    for each in explanation.other_policies:
        branch.add(Text.assemble("not ", _policy_text(each), style=_QUIET))

    binding = explanation.binding
    if binding is None:
        return tree
    style = {"True": _GOOD, "False": _BAD}.get(binding.scheduled.status, _WAITING)
    outcome = (binding.scheduled.reason or "not scheduled yet", style)
    branch = tree.add(Text.assemble("binding ", (binding.name, "bold"), ": ", outcome))
    for condition in (binding.scheduled, binding.works_written):
        if condition.status == "False":
            branch.add(Text(condition.message, _BAD))
    for note in explanation.clusters:
        style = _style_of(note)
        plural = "" if note.replicas == 1 else "s"
        replicas = f" with {note.replicas} replica{plural}" if note.replicas else ""
        reason = f": {note.why}" if note.why else ""
        standing = (note.standing.value, style)
        name = (f"{note.name} ", f"bold {style}")
        leaf = branch.add(Text.assemble(name, standing, replicas, reason))
        if note.work is None:
            continue
        for override in note.work.overrides:
            leaf.add(Text.assemble("changed by ", (override, "bold")))
        if note.work.is_suspended:
            leaf.add(Text("dispatching is suspended", _WAITING))
        leaf.add(_state_text(note.work))
    return tree


def _policy_text(note: "PolicyNote") -> "Text":
    from rich.text import Text

    priority = f", priority {note.priority}" if note.priority else ""
    return Text.assemble(f"{note.kind} ", (note.name, "bold"), f": {note.why}{priority}")


def _style_of(note: "ClusterNote") -> str:
    if not note.standing.is_target:
        return _WAITING if note.work is not None else _QUIET
    if note.work is None or note.work.is_suspended:
        return _WAITING
    return _GOOD if note.work.is_applied else _BAD


def _state_text(work: "WorkNote") -> "Text":
    from rich.text import Text

    if work.is_applied:
        state = ", ".join(part for part in (work.health, work.reported) if part)
        style = _WAITING if work.health == "Unhealthy" else _GOOD
        return Text(f"applied by Work {work.name}: {state or 'no report yet'}", style)
    if work.message:
        return Text(work.message, _BAD)
    return Text(f"Work {work.name} waits for the cluster", _WAITING)
