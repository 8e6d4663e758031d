"""Connections that live as long as a process: to the hub as itself, to members as their users.

The hub renews the certificates of its components and writes them into the same files. Whoever lives
longer than a certificate must look there again, or is a stranger one day.
"""

import asyncio
from random import SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.authority import organizations
from clusterspace.client.connection import Connection, ConnectionLimits, Connections
from clusterspace.client.settings import REREAD_SECONDS, ConnectionSettings, Credential, Credentials
from clusterspace.errors import ClusterspaceError
from clusterspace.roots.clients import read_pem
from clusterspace.roots.settings import ReadSettings

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


class HubCredentials:
    """The credentials in a kubeconfig of the hub, at most a minute old; a CredentialSource."""

    def __init__(
        self, read_settings: ReadSettings, first: ConnectionSettings, clock: Clock
    ) -> None:
        self._read_settings = read_settings
        self._settings = first
        self._clock = clock
        self._credentials = Credentials(first, clock)
        self._stale_at = clock.monotonic() + REREAD_SECONDS

    async def get(self) -> Credential:
        """Return the credential to use now."""
        if self._clock.monotonic() < self._stale_at:
            return await self._credentials.get()
        # Set before the file is read: others who ask meanwhile use what is known, and do not all
        # read the same file.
        self._stale_at = self._clock.monotonic() + REREAD_SECONDS
        try:
            found = await asyncio.to_thread(self._read_settings)
        except (OSError, ClusterspaceError) as error:
            # A hub that starts takes its file away for a moment; what was there is still good.
            _log.debug("the kubeconfig of the hub was not read", reason=str(error))
        else:
            if (found.identity, found.trust) != (self._settings.identity, self._settings.trust):
                self._settings = found
                self._credentials = Credentials(found, self._clock)
        return await self._credentials.get()

    def refused(self) -> bool:
        """Read the file again next time: perhaps it says something else by now."""
        self._stale_at = 0.0
        self._credentials.refused()
        return True


def open_connections(clock: Clock) -> Connections:
    """Return connections to members, none of them open yet."""

    def open_one(settings: ConnectionSettings) -> Connection:
        return Connection(settings, clock=clock, random=SystemRandom(), limits=LIMITS)

    return Connections(open_one)
