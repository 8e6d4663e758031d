"""A kubeconfig for the fleet, the hub and each cluster, all by way of the fleet API server."""

import os
from pathlib import Path
from typing import Final

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.kubeconfig import kubeconfig_files, read_kubeconfig
from clusterspace.client.places import Place
from clusterspace.client.settings import ConnectionSettings
from clusterspace.kube.objects import name_of
from clusterspace.roots.clients import open_client, read_pem
from clusterspace.roots.fleet import CONTEXT
from clusterspace.roots.kubeconfigs import kubeconfig_of

_HUB: Final = "hub"
_LOCAL: Final = (
    Path(".clusterspace") / "kubeconfig",
    Path(".clusterspace") / "fleet" / "kubeconfig",
)


def fleet_settings(kubeconfig: Path | None, context: str = "") -> ConnectionSettings:
    """Return how to reach the fleet API server: the file given, else KUBECONFIG, else here."""
    if kubeconfig is not None:
        files: tuple[Path, ...] = (kubeconfig,)
    elif os.environ.get("KUBECONFIG"):
        files = kubeconfig_files(os.environ, Path.home())
    else:
        files = tuple(each for each in _LOCAL if each.exists()) or _LOCAL[:1]
    found = read_kubeconfig(files)
    chosen = context or (CONTEXT if CONTEXT in found.contexts else "")
    return found.settings(chosen, cluster=CONTEXT)


async def all_contexts(settings: ConnectionSettings) -> bytes:
    """Return the kubeconfig; clusters are asked for with the identity it will have."""
    hub = ConnectionSettings(
        cluster=_HUB,
        server=_server_of(settings.server, _HUB),
        trust=settings.trust,
        identity=settings.identity,
        proxy_url=settings.proxy_url,
    )
    async with open_client(hub) as hub_client:
        clusters = await hub_client.list_objects(Place(CLUSTERS))
    names = sorted(name_of(each) for each in clusters)
    servers = {name: _server_of(settings.server, name) for name in (_HUB, *names)}
    return kubeconfig_of(
        {CONTEXT: settings.server, **servers},
        read_pem(settings.trust.authority),
        settings.identity,
    )


def _server_of(fleet: str, cluster: str) -> str:
    return f"{fleet}/clusterspaces/{cluster}"
