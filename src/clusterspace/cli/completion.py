"""`clusterspace completion`, and what the Tab key offers: verbs, clusters, kinds, objects.

A completion that needs the hub has a second; a hub that is not there offers nothing, silently.
"""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from clusterspace.errors import ClusterspaceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clusterspace.client.resources import ClusterClient

_NAME: Final = "clusterspace"
_VARIABLE: Final = "_CLUSTERSPACE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")
_SECONDS: Final = 1.0
_NO_FILES: Final = ":4"
"""How kubectl is told not to offer files when there is nothing else to offer."""


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that teaches SHELL to complete our commands, clusters and kinds.

    With the plug-in on the PATH, kubectl completes `kubectl clusterspace` by itself.

    \b
    Examples:
      source <(clusterspace completion bash)
      clusterspace completion zsh > "${fpath[1]}/_clusterspace"
      clusterspace completion fish > ~/.config/fish/completions/clusterspace.fish
    """
    complete = get_completion_class(shell)
    if complete is None:
        raise click.UsageError(f"completion for {shell} is not known here.")
    root = context.find_root().command
    click.echo(complete(root, {}, _NAME, _VARIABLE).source())


def complete_for_kubectl() -> None:
    """Answer kubectl, which asks plug-ins what comes next: our words so far are the arguments."""
    from clusterspace.cli.main import main

    *words, incomplete = sys.argv[1:] or [""]
    offered = ShellComplete(main, {}, _NAME, _VARIABLE).get_completions(words, incomplete)
    for each in offered:
        if each.type == "plain":
            click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(_NO_FILES)


def cluster_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the members of the fleet."""
    del parameter
    return _offered(_ask_hub(context, _list_clusters), incomplete)


def kinds_and_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer KIND, and after a slash KIND/NAME."""
    del parameter
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return _offered(_ask_hub(context, _list_kinds), incomplete)
    namespace = str(context.params.get("namespace") or "default")
    found = _ask_hub(context, lambda hub: _list_named(hub, kind, namespace))
    return _offered([f"{kind}/{each}" for each in found], incomplete)


def _offered(words: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(each) for each in sorted(words) if each.startswith(incomplete)]


def _ask_hub(
    context: click.Context, ask: "Callable[[ClusterClient], Awaitable[list[str]]]"
) -> list[str]:
    from clusterspace.roots.clients import hub_settings, open_client

    kubeconfig = context.params.get("kubeconfig")

    async def work() -> list[str]:
        settings = hub_settings(
            Path(str(kubeconfig)) if kubeconfig else None, str(context.params.get("context") or "")
        )
        async with asyncio.timeout(_SECONDS), open_client(settings) as hub:
            return await ask(hub)

    try:
        return asyncio.run(work())
    except (ClusterspaceError, OSError):
        return []


async def _list_clusters(hub: "ClusterClient") -> list[str]:
    from clusterspace.apis.clusters import CLUSTERS
    from clusterspace.client.places import Place
    from clusterspace.kube.objects import name_of

    return [name_of(each) for each in await hub.list_objects(Place(CLUSTERS))]


async def _list_kinds(hub: "ClusterClient") -> list[str]:
    from clusterspace.client.discovery import Discovery

    served = await Discovery(hub.connection).served()
    return sorted({each.singular for each in served.resources if "list" in each.verbs})


async def _list_named(hub: "ClusterClient", kind: str, namespace: str) -> list[str]:
    from clusterspace.client.discovery import Discovery
    from clusterspace.client.places import Place
    from clusterspace.fleet.propagation.explanation.evidence import find_named
    from clusterspace.kube.objects import name_of

    resource = find_named(await Discovery(hub.connection).served(), kind)
    inside = namespace if resource.namespaced else ""
    place = Place(resource.group_version_resource, inside)
    return [name_of(each) for each in await hub.list_objects(place)]
