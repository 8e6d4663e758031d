"""A namespace that was deleted ends: its content first, itself last."""

from typing import Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own, remove
from clusterspace.errors import Conflict, NotFound, StoreClosed, StoreError
from clusterspace.kube.objects import Object, find_at, name_of, with_value

_log = structlog.get_logger(__name__)

FINALIZER: Final = "kubernetes"
SETTLE_SECONDS: Final = 0.5
"""Time for writes that were let in just before the mark to arrive."""

RETRY_SECONDS: Final = 1.0
"""How often a namespace is looked at whose content is held by finalizers."""


class NamespaceEnder:
    """Follows namespaces and ends those that are marked."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreClosed:
                raise
            except (Conflict, StoreError) as error:
                _log.warning("namespaces are listed again", reason=str(error))
                await self._hub.clock.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        hub = self._hub
        prefix = forms.collection_key("", "namespaces")
        while True:
            ending = await self._ending()
            waits = [name for name in ending if not await self.end(name)]
            if waits:
                await hub.clock.sleep(RETRY_SECONDS)
                continue
            await self._next_change(prefix)
            await hub.clock.sleep(SETTLE_SECONDS)

    async def _next_change(self, prefix: str) -> None:
        watch = self._hub.store.watch(prefix, after=self._hub.store.current_revision)
        try:
            if await self._ending():
                return
            async for _events in watch:
                return
        finally:
            watch.close()

    async def _ending(self) -> list[str]:
        served = self._hub.catalog.get_storage("", "namespaces")
        page = await self._hub.store.range(served.prefix())
        objects = (forms.decode_stored(entry, served.form) for entry in page.items)
        return [name_of(each) for each in objects if find_at(each, "metadata", "deletionTimestamp")]

    async def end(self, namespace: str) -> bool:
        """Delete what is in a namespace; when nothing is left, let it go. Say whether it went."""
        left = 0
        for served in _stored_resources(self._hub):
            if served.info.namespaced:
                left += await self._empty(served, namespace)
        if left:
            return False
        served = self._hub.catalog.get_storage("", "namespaces")
        await edit_own(self._hub, served, served.key("", namespace), _released)
        return True

    async def _empty(self, served: Served, namespace: str) -> int:
        """Delete the objects of one resource; return how many are still there."""
        page = await self._hub.store.range(served.prefix(namespace))
        left = 0
        for entry in page.items:
            try:
                removed = await remove(self._hub, served, entry.key, DeleteOptions())
            except NotFound:
                continue
            left += not removed.is_gone
        return left


def _stored_resources(hub: HubState) -> list[Served]:
    """Return one served version per storage: the same objects must not be counted twice."""
    return list({served.prefix(): served for served in hub.catalog.all()}.values())


def _released(namespace: Object) -> Object:
    held = cast("list[str]", find_at(namespace, "spec", "finalizers") or [])
    kept = [each for each in held if each != FINALIZER]
    return with_value(namespace, kept, "spec", "finalizers")
