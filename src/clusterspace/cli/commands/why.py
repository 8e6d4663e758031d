"""`clusterspace why`: an object followed from the hub to its clusters, or back from one of them."""

from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import kinds_and_names
from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import Line, Listing, output_option, people_console, show
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
    from clusterspace.roots.why import MemberExplanation

_TREE: Final = "tree"
_GOOD: Final = "green"
_BAD: Final = "red"
_WAITING: Final = "yellow"
_QUIET: Final = "dim"
_MOST_WRITES: Final = 3


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
    or not, what was changed on the way, what each cluster says of it, and how old that is. Of an
    object of a member, NAME.clusterspace.CLUSTER, it says whose it is and what differs.

    \b
    Examples:
      clusterspace why deployment/web -n shop
      clusterspace why deployment/web -n shop -o wide
      clusterspace why deployment/web.clusterspace.member1 -n shop
      clusterspace why clusterrole reader -o json
    """
    from clusterspace.aio.clocks import SystemClock
    from clusterspace.roots.why import MemberExplanation, explain_object

    # KIND/NAME, or KIND and NAME.
    given = words[0].split("/") if len(words) == 1 else list(words)
    if len(given) != 2 or not all(given):
        raise click.BadParameter("write KIND/NAME, such as deployment/web", param_hint="KIND/NAME")
    kind, name = given
    settings = hub.settings()
    explanation = run(lambda: explain_object(kind, name, namespace, settings))
    now = SystemClock().now()
    if isinstance(explanation, MemberExplanation):
        if output == _TREE:
            people_console().print(member_tree_of(explanation, now))
        else:
            show(member_listing_of(explanation, now), output)
    elif output == _TREE:
        people_console().print(tree_of(explanation, now))
    else:
        show(listing_of(explanation, now), output)


def listing_of(explanation: "Explanation", now: float) -> Listing:
    """Return the explanation as a table with a line for each cluster."""
    lines: list[Line] = []
    for note in explanation.clusters:
        work = note.work
        state = "; ".join(each.plain for each in _state_texts(note, now))
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


def tree_of(explanation: "Explanation", now: float) -> "Tree":
    """Return the explanation as it is drawn: policies, then the binding and its clusters."""
    from rich.text import Text
    from rich.tree import Tree

    inside = f" in {explanation.namespace}" if explanation.namespace else ""
    title = (f"{explanation.kind} {explanation.name}", "bold")
    tree = Tree(Text.assemble(title, f"{inside}  {explanation.summary}"))
    binding = explanation.binding
    if explanation.policy is not None:
        branch = tree.add(Text.assemble("follows ", _policy_text(explanation.policy)))
    elif binding is None and explanation.clusters:
        branch = tree.add(Text("follows no policy, and needs none"))
    else:
        branch = tree.add(Text("follows no policy", _WAITING))
    for each in explanation.other_policies:
        branch.add(Text.assemble("not ", _policy_text(each), style=_QUIET))

    branch = tree
    if binding is not None:
        style = {"True": _GOOD, "False": _BAD}.get(binding.scheduled.status, _WAITING)
        outcome = (binding.scheduled.reason or "not scheduled yet", style)
        since = _ago(binding.scheduled.since, now)
        branch = tree.add(Text.assemble("binding ", (binding.name, "bold"), ": ", outcome, since))
        for move in binding.moves:
            branch.add(Text(move, _QUIET))
        for condition in (binding.scheduled, binding.works_written):
            if condition.status == "False":
                branch.add(Text(condition.message, _BAD))
        if binding.rolled_out.status == "False":
            reason = (binding.rolled_out.reason, _WAITING)
            since = _ago(binding.rolled_out.since, now)
            branch.add(Text.assemble("rollout: ", reason, since))
    for note in explanation.clusters:
        _add_cluster(branch, note, explanation, now)
    return tree


def _add_cluster(
    branch: "Tree", note: "ClusterNote", explanation: "Explanation", now: float
) -> None:
    """Draw one cluster: why it has the object or not, what was changed, and how it is there."""
    from rich.text import Text

    style = _style_of(note)
    plural = "" if note.replicas == 1 else "s"
    replicas = f" with {note.replicas} replica{plural}" if note.replicas else ""
    reason = f": {note.why}" if note.why else ""
    name = (f"{note.name} ", f"bold {style}")
    leaf = branch.add(Text.assemble(name, (note.standing.value, style), replicas, reason))
    if note.work is None:
        return
    for override in note.work.overrides:
        leaf.add(Text.assemble("changed by ", (override, "bold")))
    if note.work.is_suspended:
        leaf.add(Text("dispatching is suspended", _WAITING))
    for text in _state_texts(note, now):
        leaf.add(text)
    if note.is_conflict:
        where = f" -n {explanation.namespace}" if explanation.namespace else ""
        command = f"{explanation.kind.lower()} {explanation.name}{where} -C {note.name}"
        advice = (
            f"`clusterspace promote {command} --dry-run` looks at taking it over, as it is; "
            "`conflictResolution: Overwrite` in the policy replaces it"
        )
        leaf.add(Text(advice, _QUIET))


def member_tree_of(explanation: "MemberExplanation", now: float) -> "Tree":
    """Return whose an object of a member is, drawn from the object back to its template."""
    from rich.text import Text
    from rich.tree import Tree

    found = explanation.provenance
    where = f" in {explanation.namespace}" if explanation.namespace else ""
    title = (f"{explanation.kind} {explanation.name}", "bold")
    on = f"{where} on {explanation.cluster}  "
    if found is None:
        silent = f"{explanation.cluster} does not answer: {explanation.trouble}."
        tree = Tree(Text.assemble(title, on, (silent, _BAD)))
        tree.add(Text("what follows is what the hub knows of it", _WAITING))
    else:
        tree = Tree(Text.assemble(title, on, found.summary))
        for owner in found.made_by:
            tree.add(Text.assemble("made by ", (owner, "bold")))
        for each in found.differs:
            by = f", set by {', '.join(each.managers)}" if each.managers else ""
            tree.add(Text(f"{each.field} is not as the hub wants it{by}: put back soon", _WAITING))
        for each in found.writes[:_MOST_WRITES]:
            tree.add(Text(f"written by {each.manager}{_ago(each.time, now)}", _QUIET))
        if found.work and found.is_copy:
            tree.add(Text.assemble("kept by Work ", (found.work, "bold")))
        if not found.is_copy and not found.made_by:
            where = f" -n {explanation.namespace}" if explanation.namespace else ""
            command = f"{explanation.kind.lower()} {explanation.name}{where}"
            advice = f"`clusterspace promote {command} -C {explanation.cluster} --dry-run`"
            tree.add(Text(f"{advice} looks at making it the hub's", _QUIET))
    if explanation.template is not None:
        tree.children.append(tree_of(explanation.template, now))
    return tree


def member_listing_of(explanation: "MemberExplanation", now: float) -> Listing:
    """Return whose an object of a member is as a table with one line."""
    found = explanation.provenance
    summary = explanation.trouble if found is None else found.summary
    differs = "" if found is None else ", ".join(each.field for each in found.differs)
    work = "" if found is None else found.work
    written = ""
    if found is not None and found.writes:
        written = f"{found.writes[0].manager}{_ago(found.writes[0].time, now)}"
    line = Line(explanation.name, (explanation.cluster, work, differs, written, summary))
    return Listing(
        columns=("CLUSTER", "WORK", "DIFFERS", "WRITTEN", "WHOSE"),
        lines=(line,),
        document=explanation,
    )


def _ago(time: str, now: float) -> str:
    """Return how old a fact is, to stand behind it; nothing when nobody knows."""
    from clusterspace.errors import Malformed
    from clusterspace.kube.times import age, parse_time

    try:
        return f" {age(max(now - parse_time(time), 0.0))} ago" if time else ""
    except Malformed:
        return ""


def _policy_text(note: "PolicyNote") -> "Text":
    from rich.text import Text

    priority = f", priority {note.priority}" if note.priority else ""
    return Text.assemble(f"{note.kind} ", (note.name, "bold"), f": {note.why}{priority}")


def _style_of(note: "ClusterNote") -> str:
    if not note.standing.is_target:
        return _WAITING if note.work is not None else _QUIET
    if note.work is None or note.work.is_suspended or note.is_silent:
        return _WAITING
    return _GOOD if note.is_well else _BAD


def _state_texts(note: "ClusterNote", now: float) -> list["Text"]:
    """Return how the object is on a cluster, in sentences: the cluster first, then the object."""
    from rich.text import Text

    texts: list[Text] = []
    work, live = note.work, note.live
    if work is None:
        return texts
    if note.is_silent:
        trouble = live.trouble if live is not None else note.ready.reason
        lasting = _ago(note.ready.since, now).removesuffix(" ago")
        known = f" (Ready={note.ready.status} for{lasting})" if lasting else ""
        texts.append(Text(f"{note.name} does not answer: {trouble}{known}", _BAD))
    elif note.heard:
        texts.append(Text(f"its agent was last heard{_ago(note.heard, now)}", _QUIET))
    if work.going_since:
        texts.append(Text(f"withdrawn{_ago(work.going_since, now)}, and still there", _WAITING))
        if note.pause:
            texts.append(Text(f"deletions are paused: {note.pause}", _BAD))
            texts.append(Text(f"`clusterspace resume {note.name}` lets them go on", _QUIET))
    texts.append(_work_text(note, work, now))
    if live is not None and not live.trouble and work.is_applied:
        if not live.is_there:
            texts.append(Text("it is not there now: the hub puts it back", _BAD))
        elif live.differs:
            texts.append(Text(f"not as the hub wants it: {', '.join(live.differs)}", _WAITING))
        if live.taken_over:
            texts.append(Text(live.taken_over))
    return texts


def _work_text(note: "ClusterNote", work: "WorkNote", now: float) -> "Text":
    from rich.text import Text

    since = _ago(work.since, now)
    if work.is_applied:
        live = note.live
        is_now = live is not None and not live.trouble and live.is_there
        reported = live.reported if live is not None and is_now else work.reported
        state = ", ".join(part for part in (work.health, reported) if part)
        style = _WAITING if work.health == "Unhealthy" or note.is_silent else _GOOD
        dated = f"{state}, {'now' if is_now else 'as last reported'}" if state else "no report yet"
        return Text(f"applied by Work {work.name}{since}: {dated}", style)
    if work.message:
        return Text(f"{work.message}{' (' + since.strip() + ')' if since else ''}", _BAD)
    return Text(f"Work {work.name} waits for the cluster", _WAITING)
