"""`kube-system/extension-apiserver-authentication`: whose client certificates count here.

Other API servers of the installation read it, as they do with a kube-apiserver, and so know the
same people.
"""

from typing import Final, cast

from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.identity.token_secrets import MANAGER
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.errors import AlreadyExists
from clusterspace.kube.objects import Object

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
_KEY: Final = "client-ca-file"


class ClientAuthority:
    """Keeps the ConfigMap there and right; what others put beside our key stays."""

    def __init__(self, hub: HubState, authority: bytes) -> None:
        self._hub = hub
        self._authority = authority.decode()
        self._maps = hub.catalog.get_storage("", "configmaps")

    async def run(self) -> None:
        """Work until cancelled."""
        await self.publish()
        await follow(self._hub, (self._key,), self._look)

    @property
    def _key(self) -> str:
        return self._maps.key(NAMESPACE, NAME)

    async def _look(self, key: str) -> None:
        if key == self._key:
            await self.publish()

    async def publish(self) -> None:
        """Write our authority, if anything else is there."""
        write = write_of(self._hub, self._maps, manager=MANAGER)
        entry = await edit_own(self._hub, self._maps, self._key, self._published, write=write)
        if entry is not None:
            return
        metadata = {"name": NAME, "namespace": NAMESPACE}
        whole: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        try:
            await create_own(self._hub, self._maps, self._published(whole), MANAGER)
        except AlreadyExists:
            await self.publish()

    def _published(self, held: Object) -> Object:
        data = cast("dict[str, str]", held.get("data") or {})
        return {**held, "data": {**data, _KEY: self._authority}}
