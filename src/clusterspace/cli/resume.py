"""`clusterspace resume`: let the deletions on a member go on after they were paused."""

from pathlib import Path

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.hub_option import hub_options, run


@click.command()
@click.argument("name", shell_complete=cluster_names)
@hub_options
def resume(name: str, kubeconfig: Path | None, context: str) -> None:
    """Let deletions on the member NAME go on.

    They pause when more than ten objects, and more than a fifth of what is placed there, are to go
    within ten minutes. Look first: `kubectl get wk -n karmada-es-NAME` shows what is going.

    \b
    Examples:
      clusterspace resume west
    """
    from clusterspace.roots.clients import hub_settings
    from clusterspace.roots.resuming import resume_deletions

    resumed = run(lambda: resume_deletions(name, hub_settings(kubeconfig, context)))
    if not resumed.was_paused:
        click.echo(f"deletions in {name} are not paused")
        return
    click.echo(f"deletions in {name} go on; {resumed.waiting} waited")
