"""The list of revoked credentials as the store has it now, in memory for every request.

It is one ConfigMap (`http/revocations.py` reads it), so that every hub on the same store, and the
gateway, goes by the same one.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.revocations import (
    NAME,
    NAMESPACE,
    NOTHING_REVOKED,
    read_revocations,
)
from clusterspace.apiserver.identity.following import edit_config_map
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Event, KeyValue, Subscription
from clusterspace.errors import ApiError, StoreClosed, StoreError
from clusterspace.kube.objects import find_at

_log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0


class RevocationCache:
    """What is revoked, as of the last write that has returned. Load it before the first request."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._served = hub.catalog.get_storage("", "configmaps")
        self._key = self._served.key(NAMESPACE, NAME)
        self._data: dict[str, str] = {}
        self._subscription: Subscription | None = None
        self._woken = asyncio.Event()
        self._is_gone = False
        self._is_cut_off = False
        self.current = NOTHING_REVOKED

    async def load(self) -> None:
        """Read the list, and follow it from there on."""
        page = await self._hub.store.range(self._key)
        found = [entry for entry in page.items if entry.key == self._key]
        for entry in found:
            self._take(entry)
        # Deleted while nobody followed it: what is known of it is in force, and put back.
        self._is_gone = not found
        if self._subscription is not None:
            self._subscription.close()
        # After the revision that was read: nothing is lost in between.
        self._subscription = self._hub.store.subscribe(self._key, after=page.revision, sink=self)

    async def run(self) -> None:
        """Put the list back when it is deleted, and read it again when we are cut off.

        Entries are taken back one by one. A ConfigMap that is deleted whole, with all others of
        its namespace perhaps, was not meant to let everybody in again who was ever shut out.
        """
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                if self._is_cut_off:
                    self._is_cut_off = False
                    await self.load()
                if self._is_gone and self._data:
                    await edit_config_map(
                        self._hub, NAMESPACE, NAME, self._with_known, is_owned=False
                    )
                    _log.warning("the list of revoked credentials was deleted, and is put back")
                self._is_gone = False
            except StoreClosed:
                raise
            except (ApiError, StoreError) as error:
                # What is known stays in force; only a restart now would forget a deleted list.
                _log.warning("revoked credentials are looked at again", reason=str(error))
                await self._hub.clock.sleep(RETRY_SECONDS)
                self._woken.set()

    def _with_known(self, data: dict[str, str]) -> dict[str, str]:
        return {**self._data, **data}

    # -- called by the store, in the middle of its own work ------------------------------------

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take what changed: before the write that changed it is answered."""
        for event in events:
            if event.key != self._key:
                continue  # names that begin with this one are followed too
            if event.is_delete:
                self._is_gone = True
                self._woken.set()
            else:
                self._take(event.item)

    def end(self, reason: StoreError) -> None:
        """Learn that nothing more will come."""
        if not isinstance(reason, StoreClosed):
            self._is_cut_off = True
            self._woken.set()

    def _take(self, entry: KeyValue) -> None:
        try:
            stored = forms.decode_stored(entry, self._served.form)
        except msgspec.DecodeError as error:
            # Nobody is let in again because a list could not be read.
            _log.error("revoked credentials cannot be read", reason=str(error))
            return
        data: dict[str, str] = find_at(stored, "data") or {}
        self._data, self.current = data, read_revocations(data)
