"""Who we are at the hub, read again from a kubeconfig that the hub writes anew.

The hub renews the certificate of its administrator and writes it into the same file. Whoever lives
longer than a certificate must look there again, or is a stranger one day.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.client.credentials import REREAD_SECONDS, Credential, Credentials
from clusterspace.client.settings import ConnectionSettings, Identity
from clusterspace.errors import ClusterspaceError

_log = structlog.get_logger(__name__)

ReadSettings: TypeAlias = Callable[[], ConnectionSettings]
"""Reads a kubeconfig; it may block, and it may fail while the file is being replaced."""


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

    async def tell_changes(self, tell: Callable[[Identity], None]) -> None:
        """Tell the identity whenever it is another one, until cancelled."""
        told = self._settings.identity
        while True:
            await self._clock.sleep(REREAD_SECONDS)
            await self._read()
            if self._settings.identity != told:
                told = self._settings.identity
                tell(told)

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
