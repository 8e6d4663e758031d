"""`clusterspace init` and `webhook`: any kube-apiserver becomes the hub, and is told its rules."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.options import (
    PORT,
    Networks,
    hub_kubeconfig_option,
    log_format_option,
    member_cidrs_option,
)
from clusterspace.cli.output import Line, Listing, Output, document_text, show
from clusterspace.cli.running import run, serve

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings
    from clusterspace.roots.init import Plan


@click.command()
@click.option(
    "--hub-kubeconfig",
    required=True,
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Kubeconfig of an administrator of the API server.",
)
@click.option("--context", default="", help="Context in that kubeconfig.  [default: its current]")
@click.option(
    "--webhook-url",
    default="",
    help="Where the API server reaches `clusterspace webhook`, such as https://10.0.0.5:9443."
    "  [default: where it was, else Service clusterspace-webhook of clusterspace-system]",
)
@click.option(
    "--write-kubeconfigs",
    "kubeconfigs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write kubeconfigs for parts that run outside of the cluster to DIRECTORY/parts/PART.",
    metavar="DIRECTORY",
)
@click.option("--uninstall", is_flag=True, help="Take away what init made; kinds and objects stay.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json"]),
    default="table",
    show_default=True,
    help="How to show the plan; with yaml it can be given to `kubectl apply -f`.",
)
def init(
    *,
    hub_kubeconfig: Path,
    context: str,
    webhook_url: str,
    kubeconfigs: Path | None,
    uninstall: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Make a kube-apiserver the hub: our kinds, roles, and the rules that our own hub has built in.

    Kinds that Karmada or KubeFleet brought are used as they are, if their versions are known here.
    To run it again brings everything up to date, and renews certificates and tokens.

    \b
    Examples:
      clusterspace init --hub-kubeconfig admin.yaml --dry-run
      clusterspace init --hub-kubeconfig admin.yaml --webhook-url https://10.0.0.5:9443
      clusterspace init --hub-kubeconfig admin.yaml --dry-run -o yaml > hub.yaml
      clusterspace init --hub-kubeconfig admin.yaml --uninstall
    """
    from clusterspace.client.kubeconfig import read_kubeconfig
    from clusterspace.roots.init import InitRequest, initialize

    if webhook_url and not webhook_url.startswith("https://"):
        raise click.UsageError("--webhook-url must begin with https://: API servers call no other")
    settings = read_kubeconfig((hub_kubeconfig,)).settings(context, cluster="hub")
    request = InitRequest(webhook_url, kubeconfigs, uninstall, dry_run)

    def progress(line: str) -> None:
        click.echo(line, err=output != "table")

    plan = run(lambda: initialize(request, settings, progress))
    if dry_run or output != "table":
        _show(plan, output)
    words = "would be" if dry_run else "are"
    click.echo(f"{settings.server}, Kubernetes {plan.version}: {plan.counted()}.", err=True)
    if uninstall:
        click.echo(
            f"Definitions and namespaces {words} kept: to delete one deletes all objects in it.",
            err=True,
        )
    elif not dry_run:
        click.echo(
            "Next: run `clusterspace webhook`; until it answers, the API server refuses to write "
            "objects of the fleet. Then `clusterspace controllers` and `clusterspace fleet`; "
            "`clusterspace doctor` says which rules hold there.",
            err=True,
        )


def _show(plan: "Plan", output: str) -> None:
    """Show a plan: for people every step, for programs the objects that would be written."""
    from clusterspace.roots.init import Action

    if output != "table":
        written = [
            step.manifest for step in plan.steps if step.action in (Action.CREATE, Action.UPDATE)
        ]
        form = Output(output)
        document = {"apiVersion": "v1", "kind": "List", "items": written}
        click.echo(document_text(document, form), nl=False)
        return
    lines = tuple(
        Line(step.subject, (step.action.value, step.subject, step.note)) for step in plan.steps
    )
    show(Listing(("ACTION", "OBJECT", "NOTE"), lines, None), Output.TABLE.value)


@click.command()
@hub_kubeconfig_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=PORT, default=9443, show_default=True, help="Port; 0: a free one.")
@member_cidrs_option
@log_format_option
def webhook(
    *,
    hub_kubeconfig: Path | None,
    host: str,
    port: int,
    member_cidrs: Networks,
    log_format: str,
) -> None:
    """Run the rules of the hub for a kube-apiserver that `clusterspace init` made the hub.

    The API server asks before it writes objects of the fleet, and writes nothing without an answer.
    Several may run behind one address. The certificate is made and renewed by itself.

    \b
    Examples:
      clusterspace webhook --hub-kubeconfig parts/webhook/kubeconfig
      clusterspace webhook --host 0.0.0.0 --log-format json
    """
    from clusterspace.roots.clients import component_settings
    from clusterspace.roots.processes import read_when_there
    from clusterspace.roots.webhook import WebhookSettings, serve_until_stopped

    def read_hub() -> "ConnectionSettings":
        return component_settings("webhook", hub_kubeconfig)

    async def work() -> None:
        hub = await read_when_there(read_hub)
        await serve_until_stopped(WebhookSettings(hub, host, port, member_cidrs, read_hub))

    serve(work, log_format, port=port)
