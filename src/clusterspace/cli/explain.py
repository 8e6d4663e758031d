"""`clusterspace why`: follow one object from the hub to its clusters, on one screen."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import kinds_and_names
from clusterspace.cli.hub_option import hub_options, run
from clusterspace.cli.output import Line, Listing, output_option, people_console, show

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from clusterspace.fleet.propagation.explanation.notes import (
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
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND/NAME", shell_complete=kinds_and_names
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@output_option(_TREE, default=_TREE)
@hub_options
def why(
    words: tuple[str, ...], namespace: str, output: str, kubeconfig: Path | None, context: str
) -> None:
    """Say why an object is where it is.

    Shows the policy it follows and those that lost, every cluster with the reason it was chosen
    or not, what was changed on the way, and what each cluster says of it.

    \b
    Examples:
      clusterspace why deployment/web -n shop
      clusterspace why deployment/web -n shop -o wide
      clusterspace why clusterrole reader -o json
    """
    kind, name = _read_words(words)

    async def work() -> "Explanation":
        from clusterspace.client.discovery import Discovery
        from clusterspace.client.places import Place
        from clusterspace.fleet.propagation.explanation.evidence import find_named, gather
        from clusterspace.fleet.propagation.explanation.explain import explain
        from clusterspace.roots.clients import hub_settings, open_client

        async with open_client(hub_settings(kubeconfig, context)) as hub:
            resource = find_named(await Discovery(hub.connection).served(), kind)
            inside = namespace if resource.namespaced else ""
            return explain(await gather(hub, Place(resource.group_version_resource, inside, name)))

    _show(run(work), output)


def _read_words(words: tuple[str, ...]) -> tuple[str, str]:
    """Read KIND/NAME, or KIND and NAME."""
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts):
        raise click.BadParameter("write KIND/NAME, such as deployment/web", param_hint="KIND/NAME")
    return parts[0], parts[1]


def _show(told: "Explanation", output: str) -> None:
    if output == _TREE:
        people_console().print(tree_of(told))
    else:
        show(listing_of(told), output)


def listing_of(told: "Explanation") -> Listing:
    """Return the explanation as a table with a line for each cluster."""
    return Listing(
        columns=("CLUSTER", "STANDING", "REPLICAS", "STATE", "WHY"),
        wide_columns=("WORK", "MESSAGE"),
        lines=tuple(map(_cluster_line, told.clusters)),
        document=told,
        nothing=told.summary,
    )


def _cluster_line(note: "ClusterNote") -> Line:
    work = note.work
    state = _state_text(work).plain if work is not None else ""
    cells = (note.name, note.standing.value, str(note.replicas or ""), state, note.why)
    wide = (work.name, work.message) if work is not None else ("", "")
    return Line(note.name, cells, wide_cells=wide, style=_style_of(note))


def tree_of(told: "Explanation") -> "Tree":
    """Return the explanation as it is drawn."""
    from rich.text import Text
    from rich.tree import Tree

    inside = f" in {told.namespace}" if told.namespace else ""
    tree = Tree(Text.assemble((f"{told.kind} {told.name}", "bold"), f"{inside}  {told.summary}"))
    _add_policies(tree, told)
    _add_binding(tree, told)
    return tree


def _add_policies(tree: "Tree", told: "Explanation") -> None:
    from rich.text import Text

    if told.policy is None:
        branch = tree.add(Text("follows no policy", _WAITING))
    else:
        branch = tree.add(Text.assemble("follows ", _policy_text(told.policy)))
    for each in told.other_policies:
        branch.add(Text.assemble("not ", _policy_text(each), style=_QUIET))


def _policy_text(note: "PolicyNote") -> "Text":
    from rich.text import Text

    priority = f", priority {note.priority}" if note.priority else ""
    return Text.assemble(f"{note.kind} ", (note.name, "bold"), f": {note.why}{priority}")


def _add_binding(tree: "Tree", told: "Explanation") -> None:
    from rich.text import Text

    if told.binding is None:
        return
    scheduled = told.binding.scheduled
    style = {"True": _GOOD, "False": _BAD}.get(scheduled.status, _WAITING)
    said = scheduled.reason or "not scheduled yet"
    branch = tree.add(Text.assemble("binding ", (told.binding.name, "bold"), ": ", (said, style)))
    for condition in (scheduled, told.binding.works_written):
        if condition.status == "False":
            branch.add(Text(condition.message, _BAD))
    for each in told.clusters:
        leaf = branch.add(_cluster_text(each))
        for line in _work_lines(each.work):
            leaf.add(line)


def _cluster_text(note: "ClusterNote") -> "Text":
    from rich.text import Text

    style = _style_of(note)
    plural = "" if note.replicas == 1 else "s"
    replicas = f" with {note.replicas} replica{plural}" if note.replicas else ""
    why = f": {note.why}" if note.why else ""
    standing = (note.standing.value, style)
    return Text.assemble((f"{note.name} ", f"bold {style}"), standing, replicas, why)


def _style_of(note: "ClusterNote") -> str:
    if not note.standing.is_target:
        return _WAITING if note.work is not None else _QUIET
    if note.work is None or note.work.is_suspended:
        return _WAITING
    return _GOOD if note.work.is_applied else _BAD


def _work_lines(work: "WorkNote | None") -> "list[Text]":
    """Return what was sent to a cluster and what came back, a line for each."""
    from rich.text import Text

    if work is None:
        return []
    lines = [Text.assemble("changed by ", (each, "bold")) for each in work.overrides]
    if work.is_suspended:
        lines.append(Text("dispatching is suspended", _WAITING))
    return [*lines, _state_text(work)]


def _state_text(work: "WorkNote") -> "Text":
    from rich.text import Text

    if work.is_applied:
        state = ", ".join(part for part in (work.health, work.reported) if part)
        style = _WAITING if work.health == "Unhealthy" else _GOOD
        return Text(f"applied by Work {work.name}: {state or 'no report yet'}", style)
    if work.message:
        return Text(work.message, _BAD)
    return Text(f"Work {work.name} waits for the cluster", _WAITING)
