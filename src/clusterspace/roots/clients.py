"""Clients for commands and controllers: kubeconfigs found, connections opened and closed.

And the rules for addresses that others wrote: where members may be.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Final
from urllib.parse import urlsplit

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.client.connection import (
    Connection,
    ConnectionLimits,
    Connections,
    Dialer,
    WriteGuard,
)
from clusterspace.client.endpoints import LOOPBACK, AddressRules, Network, look_up, read_address
from clusterspace.client.kubeconfig import (
    in_cluster_settings,
    kubeconfig_files,
    read_kubeconfig,
)
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import (
    ConnectionSettings,
    CredentialSource,
    Pem,
)

HUB: Final = "hub"
LIMITS: Final = ConnectionLimits(streams_at_once=16_384)
"""Every client that watches holds a stream to each cluster, and lists must not wait for them."""

_LOCAL: Final = Path(".clusterspace") / "kubeconfig"


def hub_settings(kubeconfig: Path | None, context: str = "") -> ConnectionSettings:
    """Return how to reach the hub: the file given, else KUBECONFIG, else the local installation.

    Unless a context is named, the one called `hub` is taken: next to it, the current one of a
    local fleet is the unified view, which is no hub.
    """
    if kubeconfig is not None:
        files: tuple[Path, ...] = (kubeconfig,)
    elif os.environ.get("KUBECONFIG"):
        files = kubeconfig_files(os.environ, Path.home())
    else:
        files = (_LOCAL,)
    found = read_kubeconfig(files)
    chosen = context or (HUB if HUB in found.contexts else "")
    return found.settings(chosen, cluster=HUB)


def component_settings(component: str, kubeconfig: Path | None) -> ConnectionSettings:
    """Return how a component of the control plane reaches the hub, as itself.

    The file given, else KUBECONFIG, else what a hub on this machine wrote for the component, else
    the account of the pod it runs in. Never the administrator's by default: what is not given
    cannot be stolen.
    """
    if kubeconfig is None and not os.environ.get("KUBECONFIG"):
        local = [_LOCAL.parent / each / "parts" / component / "kubeconfig" for each in ("", HUB)]
        kubeconfig = next((each for each in local if each.exists()), local[0])
        if not kubeconfig.exists() and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return in_cluster_settings(os.environ, cluster=HUB)
    return hub_settings(kubeconfig)


def member_settings(name: str, kubeconfig: Path, context: str = "") -> ConnectionSettings:
    """Return how a kubeconfig reaches a cluster that we call by this name."""
    return read_kubeconfig((kubeconfig,)).settings(context, cluster=name)


def read_pem(pem: Pem) -> bytes:
    """Return the bytes of a certificate or key, read from its file if it is in one."""
    return pem.data if pem.file is None else pem.file.read_bytes()


def connect(
    settings: ConnectionSettings,
    clock: Clock | None = None,
    limits: ConnectionLimits | None = None,
    credentials: CredentialSource | None = None,
    guard: WriteGuard | None = None,
) -> ClusterClient:
    """Return a client; whoever asked for it closes its connection. A leader's have a guard."""
    connection = Connection(
        settings,
        clock=clock or SystemClock(),
        random=SystemRandom(),
        limits=limits,
        credentials=credentials,
        guard=guard,
    )
    return ClusterClient(connection)


def open_connections(clock: Clock, tunnels: AgentTunnels | None = None) -> Connections:
    """Return connections to members, none of them open yet."""

    def open_one(settings: ConnectionSettings) -> Connection:
        dialer: Dialer | None = None
        if tunnels is not None and settings.is_tunnelled:
            dialer = tunnels.dialer(settings.cluster)
        return Connection(
            settings, clock=clock, random=SystemRandom(), limits=LIMITS, dialer=dialer
        )

    return Connections(open_one)


@asynccontextmanager
async def open_client(settings: ConnectionSettings) -> AsyncGenerator[ClusterClient]:
    """Open a client for as long as the block lasts."""
    opened = connect(settings)
    try:
        yield opened
    finally:
        await opened.connection.close()


async def member_rules(hub: ConnectionSettings, allowed: tuple[Network, ...] = ()) -> AddressRules:
    """Return where members may be, for a process that works with this hub.

    The hub's own addresses are none of theirs: what comes from our side is trusted there. A hub
    whose name cannot be looked up yet is no reason not to start.
    """
    host = urlsplit(hub.server).hostname or ""
    try:
        found = await look_up(host, 0)
    except OSError:
        found = ()
    addresses = (read_address(str(each[4][0]).partition("%")[0]) for each in found)
    return AddressRules(allowed, frozenset(each for each in addresses if each is not None))


def command_rules(hub: ConnectionSettings, allowed: tuple[Network, ...] = ()) -> AddressRules:
    """Return where a command may look for members, on the machine of whoever runs it.

    Next to a hub on this machine, members on this machine are a local fleet.
    """
    address = read_address(urlsplit(hub.server).hostname or "")
    is_local = address is not None and address.is_loopback
    return AddressRules((*allowed, *LOOPBACK) if is_local else allowed)
