"""A namespace that was deleted ends: its content first, itself last."""

from contextlib import closing
from typing import Final, cast

import structlog

from clusterspace.apiserver import forms
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
"""How often a namespace is looked at whose content waits for finalizers."""


class NamespaceController:
    """Follows namespaces and ends those that are marked for deletion."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Work until cancelled."""
        hub, prefix = self._hub, forms.collection_key("", "namespaces")
        while True:
            try:
                waiting = [name for name in await self._marked() if not await self.end(name)]
                if waiting:
                    await hub.clock.sleep(RETRY_SECONDS)
                    continue
                with closing(hub.store.watch(prefix, after=hub.store.current_revision)) as watch:
                    # Looked at once more behind the beginning of the watch: a mark that was set
                    # since the last look is seen here, and one that is set from now on is an event.
                    if not await self._marked():
                        async for _events in watch:
                            break
                await hub.clock.sleep(SETTLE_SECONDS)
            except StoreClosed:
                raise
            except (Conflict, StoreError) as error:
                _log.warning("namespaces are listed again", reason=str(error))
                await hub.clock.sleep(RETRY_SECONDS)

    async def _marked(self) -> list[str]:
        served = self._hub.catalog.get_storage("", "namespaces")
        page = await self._hub.store.range(served.prefix())
        objects = (forms.decode_stored(entry, served.form) for entry in page.items)
        return [name_of(each) for each in objects if find_at(each, "metadata", "deletionTimestamp")]

    async def end(self, namespace: str) -> bool:
        """Delete what is in a namespace; when nothing is left, let it go. Say whether it went.

        Admission lets nothing new in once the mark is stored. A crash anywhere in here leaves a
        marked namespace with less in it, and the next look goes on from there.
        """
        hub, left = self._hub, 0
        # One served version for each storage: the same objects must not be counted twice.
        resources = {served.prefix(): served for served in hub.catalog.all()}.values()
        for served in resources:
            if not served.info.namespaced:
                continue
            page = await hub.store.range(served.prefix(namespace))
            for entry in page.items:
                try:
                    removed = await remove(hub, served, entry.key, DeleteOptions())
                except NotFound:
                    continue
                left += not removed.is_gone
        if left:
            return False

        def released(live: Object) -> Object:
            finalizers = cast("list[str]", find_at(live, "spec", "finalizers") or [])
            kept = [each for each in finalizers if each != FINALIZER]
            return with_value(live, kept, "spec", "finalizers")

        served = hub.catalog.get_storage("", "namespaces")
        await edit_own(hub, served, served.key("", namespace), released)
        return True
