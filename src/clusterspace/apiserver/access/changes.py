"""Hears of every write that may have taken a right away, and has open streams asked about again.

    roles and bindings, revoked credentials          everybody's
    accounts, Secrets with tokens, pods and nodes    of those who came with a token: it may have
      that tokens are bound to, when they go         ended with one of them

Nothing is decided here. A write that took nothing away costs a look, and one that is missed is
found by the next round.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.rbac import RBAC_GROUP
from clusterspace.apiserver.http import revocations
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Event
from clusterspace.errors import StoreClosed, StoreError

_log = structlog.get_logger(__name__)

_ROLES: Final = ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
_BOUND: Final = ("nodes", "pods", "serviceaccounts")
_TOKEN_TYPES: Final = (b"kubernetes.io/service-account-token", b"bootstrap.kubernetes.io/token")
_LISTS: Final = tuple(
    (revocations.NAMESPACE, name) for name in (revocations.NAME, revocations.AGENTS_NAME)
)
_RETRY_SECONDS: Final = 1.0


class AccessChanges:
    """Follows what rights are made of."""

    def __init__(self, hub: HubState, changed: Callable[..., None]) -> None:
        self._hub = hub
        self._changed = changed
        self._whole = (
            *(forms.collection_key(RBAC_GROUP, each) for each in _ROLES),
            *(forms.object_key("", "configmaps", *each) for each in _LISTS),
        )
        self._bound = tuple(forms.collection_key("", each) for each in _BOUND)
        self._secrets = forms.collection_key("", "secrets")

    async def run(self) -> None:
        """Follow until cancelled; whenever it begins anew, everything may have changed."""
        store = self._hub.store
        while True:
            sink = _Sink(self._receive)
            prefixes = (*self._whole, *self._bound, self._secrets)
            after = store.current_revision
            subscriptions = [store.subscribe(each, after=after, sink=sink) for each in prefixes]
            self._changed()
            try:
                reason = await sink.ended
            finally:
                for each in subscriptions:
                    each.close()
            if isinstance(reason, StoreClosed):
                raise reason
            _log.warning("changes of rights are followed anew", reason=str(reason))
            await self._hub.clock.sleep(_RETRY_SECONDS)

    def _receive(self, events: tuple[Event, ...]) -> None:
        for event in events:
            key = event.key
            if key.startswith(self._whole):
                self._changed()
            elif key.startswith(self._secrets):
                before = event.previous
                if before is not None and any(each in before.value for each in _TOKEN_TYPES):
                    self._changed(tokens_only=True)
            elif event.is_delete:
                self._changed(tokens_only=True)


class _Sink:
    """Passes events on, and lets somebody wait for the end."""

    def __init__(self, receive: Callable[[tuple[Event, ...]], None]) -> None:
        self._receive = receive
        self.ended: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()

    def receive(self, events: tuple[Event, ...]) -> None:
        self._receive(events)

    def end(self, reason: StoreError) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
