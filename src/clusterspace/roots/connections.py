"""Connections that live as long as a process: to the hub as itself, to members as their users.

The hub renews the certificates of its components and writes them into the same files. Whoever lives
longer than a certificate must look there again, or is a stranger one day.
"""

from random import SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.authority import organizations
from clusterspace.client.connection import Connection, ConnectionLimits, Connections
from clusterspace.client.settings import ConnectionSettings
from clusterspace.roots.clients import read_pem

_log = structlog.get_logger(__name__)

LIMITS: Final = ConnectionLimits(streams_at_once=16_384)
"""Every client that watches holds a stream to each cluster, and lists must not wait for them."""


def warn_of_full_rights(component: str, settings: ConnectionSettings) -> None:
    """Say so when a component was given an administrator's kubeconfig, and which one would do."""
    certificate = read_pem(settings.identity.certificate)
    if certificate and MASTERS in organizations(certificate):
        _log.warning(
            "this part has an administrator's rights at the hub and needs few of them",
            part=component,
            instead=f"--hub-kubeconfig DATA_DIR_OF_THE_HUB/parts/{component}/kubeconfig",
        )


def open_connections(clock: Clock) -> Connections:
    """Return connections to members, none of them open yet."""

    def open_one(settings: ConnectionSettings) -> Connection:
        return Connection(settings, clock=clock, random=SystemRandom(), limits=LIMITS)

    return Connections(open_one)
