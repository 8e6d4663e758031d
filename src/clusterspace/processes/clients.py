"""Clients for commands and controllers: kubeconfigs found, connections opened and closed."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Final

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.kubeconfig import kubeconfig_files, read_kubeconfig
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings

HUB: Final = "hub"
_LOCAL: Final = Path(".clusterspace") / "kubeconfig"


def hub_settings(kubeconfig: Path | None, context: str = "") -> ConnectionSettings:
    """Return how to reach the hub: the file given, else KUBECONFIG, else the local installation."""
    if kubeconfig is not None:
        files: tuple[Path, ...] = (kubeconfig,)
    elif os.environ.get("KUBECONFIG"):
        files = kubeconfig_files(os.environ, Path.home())
    else:
        files = (_LOCAL,)
    return read_kubeconfig(files).settings(context, cluster=HUB)


def member_settings(name: str, kubeconfig: Path, context: str = "") -> ConnectionSettings:
    """Return how a kubeconfig reaches a cluster that we call by this name."""
    return read_kubeconfig((kubeconfig,)).settings(context, cluster=name)


def connect(settings: ConnectionSettings, clock: Clock | None = None) -> ClusterClient:
    """Return a client; whoever asked for it closes its connection."""
    connection = Connection(settings, clock=clock or SystemClock(), random=SystemRandom())
    return ClusterClient(connection)


@asynccontextmanager
async def open_client(settings: ConnectionSettings) -> AsyncGenerator[ClusterClient]:
    """Open a client for as long as the block lasts."""
    opened = connect(settings)
    try:
        yield opened
    finally:
        await opened.connection.close()
