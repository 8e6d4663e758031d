"""Who we are at the hub, read again from a kubeconfig that the hub writes anew.

The hub renews the certificates of its parts and writes them into the same files. Whoever lives
longer than a certificate must look there again, or is a stranger one day.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.authority import organizations
from clusterspace.client.credentials import REREAD_SECONDS, Credential, Credentials
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import ClusterspaceError
from clusterspace.roots.clients import read_pem

_log = structlog.get_logger(__name__)

ReadSettings: TypeAlias = Callable[[], ConnectionSettings]
"""Reads a kubeconfig; it may block, and it may fail while the file is being replaced."""


def warn_of_full_rights(part: str, settings: ConnectionSettings) -> None:
    """Say so when a part was given an administrator's kubeconfig, and which one would do."""
    certificate = read_pem(settings.identity.certificate)
    if certificate and MASTERS in organizations(certificate):
        _log.warning(
            "this part has an administrator's rights at the hub and needs few of them",
            part=part,
            instead=f"--hub-kubeconfig DATA_DIR_OF_THE_HUB/parts/{part}/kubeconfig",
        )


class HubIdentity:
    """The identity in a kubeconfig, at most a minute old."""

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
        if self._clock.monotonic() >= self._stale_at:
            await self._read()
        return await self._credentials.get()

    def refused(self) -> bool:
        """Read the file again next time: perhaps it says something else by now."""
        self._stale_at = 0.0
        self._credentials.refused()
        return True

    async def _read(self) -> None:
        self._stale_at = self._clock.monotonic() + REREAD_SECONDS
        try:
            found = await asyncio.to_thread(self._read_settings)
        except (OSError, ClusterspaceError) as error:
            # A hub that starts takes its file away for a moment; what was there is still good.
            _log.debug("the kubeconfig of the hub was not read", reason=str(error))
            return
        if (found.identity, found.trust) != (self._settings.identity, self._settings.trust):
            self._settings = found
            self._credentials = Credentials(found, self._clock)
