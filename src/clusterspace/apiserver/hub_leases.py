"""Leases of this server's own store, for elections between the servers that share it."""

from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Revision
from clusterspace.apiserver.writing import create_own
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Conflict, RevisionMismatch, ServiceUnavailable, StoreError
from clusterspace.kube.objects import Object, resource_version_of

_MANAGER: Final = "kube-apiserver"


class HubLeases:
    """The Lease of an election, read and written in the store itself: no server asks itself."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    @property
    def _served(self) -> Served:
        return self._hub.catalog.get_storage("coordination.k8s.io", "leases")

    async def find(self, place: ResourcePath) -> Object | None:
        """Return the Lease as the quorum has it."""
        served = self._served
        try:
            await self._hub.store.sync()
            entry = await self._hub.store.get(served.key(place.namespace, place.name))
        except StoreError as error:
            raise ServiceUnavailable(str(error)) from error
        return None if entry is None else forms.decode_stored(entry, served.form)

    async def create(self, place: ResourcePath, kube_object: Object) -> Object:
        """Create the Lease; AlreadyExists when another was quicker."""
        served = self._served
        try:
            entry = await create_own(self._hub, served, kube_object, _MANAGER)
        except StoreError as error:
            raise ServiceUnavailable(str(error)) from error
        return forms.decode_stored(entry, served.form)

    async def update(self, place: ResourcePath, kube_object: Object) -> Object:
        """Replace the Lease as it was read; Conflict when another was quicker."""
        served = self._served
        expected = Revision(int(resource_version_of(kube_object)))
        stored = forms.encode_stored(kube_object, served.form)
        try:
            entry = await self._hub.store.put(
                served.key(place.namespace, place.name), stored, expected=expected
            )
        except RevisionMismatch as error:
            raise Conflict(f"{place} has changed meanwhile") from error
        except StoreError as error:
            raise ServiceUnavailable(str(error)) from error
        return forms.decode_stored(entry, served.form)
