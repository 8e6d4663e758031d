"""`clusterspace diff`: one object across all clusters, and which of them differ."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.completion import kinds_and_names
from clusterspace.cli.output import Line, Listing, output_option, show
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.roots.diff import RollUp

_ASPECTS: Final = ("image", "version", "content")
_SENTENCE: Final = "summary"


@click.command()
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND/NAME", shell_complete=kinds_and_names
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@click.option(
    "--by",
    type=click.Choice(_ASPECTS),
    default="image",
    show_default=True,
    help="What clusters are compared by; kinds without images by their content.",
)
@click.option("--field", default="", help="Compare by any field: a JSONPath like .spec.replicas.")
@click.option(
    "--kubeconfig",
    "fleet_kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the fleet API server.  [default: KUBECONFIG, else the local one]",
)
@click.option("--context", default="", help="Context in it.  [default: fleet, else the current]")
@output_option(_SENTENCE, default="table")
def diff(
    *,
    words: tuple[str, ...],
    namespace: str,
    by: str,
    field: str,
    fleet_kubeconfig: Path | None,
    context: str,
    output: str,
) -> None:
    """Say in which clusters an object is alike, and in which it differs.

    Every cluster that you may reach is asked for the object, with your rights there. Clusters that
    could not be asked are named with the reason, and never counted as being without it.

    \b
    Examples:
      clusterspace diff deployment/web -n shop
      clusterspace diff deployment/web -n shop --by version -o summary
      clusterspace diff deployment/web -n shop --field .spec.replicas
      clusterspace diff configmap settings -n shop -o json
    """
    from clusterspace.errors import MalformedPath
    from clusterspace.roots.diff import Aspect, read_field, roll_up
    from clusterspace.roots.kubeconfigs import fleet_settings

    # KIND/NAME, or KIND and NAME.
    given = words[0].split("/") if len(words) == 1 else list(words)
    if len(given) != 2 or not all(given):
        raise click.BadParameter("write KIND/NAME, such as deployment/web", param_hint="KIND/NAME")
    try:
        aspect = read_field(field) if field else Aspect(by)
    except MalformedPath as error:
        raise click.BadParameter(error.message, param_hint="--field") from error
    kind, name = given
    found = run(
        lambda: roll_up(kind, name, namespace, aspect, fleet_settings(fleet_kubeconfig, context))
    )
    if output == _SENTENCE:
        click.echo(found.summary)
    else:
        show(listing_of(found), output)
    if output in ("table", "wide", _SENTENCE):
        for cluster, why in found.unreached.items():
            click.echo(f"not asked: {cluster}: {why}", err=True)


def listing_of(found: "RollUp") -> Listing:
    """Return a line for each group of clusters that are alike, and one for those without it."""
    groups = [(each.value, each.clusters, "") for each in found.groups]
    groups += [("<not there>", found.absent, "yellow")] if found.absent else []
    groups += [("<not asked>", tuple(found.unreached), "red")] if found.unreached else []
    lines = tuple(
        Line(value, (str(len(clusters)), value, _shown(clusters)), (), style)
        for value, clusters, style in groups
    )
    document = {
        "kind": found.kind,
        "namespace": found.namespace,
        "name": found.name,
        "by": found.by,
        "template": found.template,
        "summary": found.summary,
        "groups": [{"value": each.value, "clusters": each.clusters} for each in found.groups],
        "absent": found.absent,
        "notAsked": [{"cluster": each, "why": why} for each, why in found.unreached.items()],
    }
    nothing = f"no cluster has joined, so none has {found.kind} {found.name}"
    return Listing(("COUNT", found.by.upper(), "CLUSTERS"), lines, document, nothing=nothing)


def _shown(clusters: tuple[str, ...]) -> str:
    more = len(clusters) - 10
    return ", ".join(clusters[:10]) + (f" and {more} more" if more > 0 else "")
