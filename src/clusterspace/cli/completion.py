"""What the Tab key offers: verbs, clusters, kinds, objects.

A completion that needs the hub has a second; a hub that is not there offers nothing, silently.
"""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from clusterspace.errors import ClusterspaceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clusterspace.client.resources import ClusterClient

PROGRAM: Final = "clusterspace"
VARIABLE: Final = "_CLUSTERSPACE_COMPLETE"
_SECONDS: Final = 1.0
_NO_FILES: Final = ":4"
"""How kubectl is told not to offer files when there is nothing else to offer."""


def complete_for_kubectl() -> None:
    """Answer kubectl, which asks plug-ins what comes next: our words so far are the arguments."""
    from clusterspace.cli.main import main

    *words, incomplete = sys.argv[1:] or [""]
    offered = ShellComplete(main, {}, PROGRAM, VARIABLE).get_completions(words, incomplete)
    for each in offered:
        if each.type == "plain":
            click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(_NO_FILES)


def cluster_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the members of the fleet."""
    del parameter

    async def find(hub: "ClusterClient") -> list[str]:
        from clusterspace.apis.clusters import CLUSTERS
        from clusterspace.client.requests import ResourcePath
        from clusterspace.kube.objects import name_of

        return [name_of(each) for each in await hub.list_objects(ResourcePath(CLUSTERS))]

    return _offer(context, find, incomplete)


def kinds_and_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer KIND, and after a slash KIND/NAME."""
    del parameter
    kind, slash, _ = incomplete.partition("/")

    async def find(hub: "ClusterClient") -> list[str]:
        from clusterspace.client.discovery import Discovery
        from clusterspace.client.requests import ResourcePath
        from clusterspace.fleet.propagation.explanation import find_named
        from clusterspace.kube.objects import name_of

        served = await Discovery(hub.connection).served()
        if not slash:
            return list({each.singular for each in served.resources if "list" in each.verbs})
        resource = find_named(served, kind)
        namespace = str(context.params.get("namespace") or "default")
        place = ResourcePath(
            resource.group_version_resource, namespace if resource.namespaced else ""
        )
        return [f"{kind}/{name_of(each)}" for each in await hub.list_objects(place)]

    return _offer(context, find, incomplete)


def _offer(
    context: click.Context, find: "Callable[[ClusterClient], Awaitable[list[str]]]", incomplete: str
) -> list[CompletionItem]:
    from clusterspace.roots.clients import hub_settings, open_client

    kubeconfig = context.params.get("kubeconfig")

    async def work() -> list[str]:
        settings = hub_settings(
            Path(str(kubeconfig)) if kubeconfig else None, str(context.params.get("context") or "")
        )
        async with asyncio.timeout(_SECONDS), open_client(settings) as hub:
            return await find(hub)

    try:
        found = asyncio.run(work())
    except (ClusterspaceError, OSError):
        return []
    return [CompletionItem(each) for each in sorted(found) if each.startswith(incomplete)]
