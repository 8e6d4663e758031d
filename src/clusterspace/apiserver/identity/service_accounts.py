"""What every namespace has: the account `default`, and our authority in `kube-root-ca.crt`.

Neither is there at once. Whoever makes a namespace and fills it in one go sees only what they
made; an account is needed when something logs in, the authority when a pod starts.
"""

import asyncio
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.identity.reading import find_object, is_being_deleted
from clusterspace.apiserver.identity.token_secrets import MANAGER
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.errors import AlreadyExists
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.timestamps import parse_time

ACCOUNT: Final = "default"
AUTHORITY: Final = "kube-root-ca.crt"
_KEY: Final = "ca.crt"
_DESCRIPTION: Final = "kubernetes.io/description"
_ABOUT: Final = "The certificate authority of the API server that serves this namespace."

ACCOUNT_SECONDS: Final = 2.0
AUTHORITY_SECONDS: Final = 30.0
"""How old a namespace is when it gets each of them."""

_THERE_FROM_THE_START: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


class NamespaceAccounts:
    """Follows namespaces, and puts back what somebody deletes."""

    def __init__(
        self,
        hub: HubState,
        authority: bytes,
        *,
        account_seconds: float = ACCOUNT_SECONDS,
        authority_seconds: float = AUTHORITY_SECONDS,
    ) -> None:
        self._hub = hub
        self._account_seconds = account_seconds
        self._authority_seconds = authority_seconds
        self._authority = authority.decode()
        self._namespaces = hub.catalog.get_storage("", "namespaces")
        self._accounts = hub.catalog.get_storage("", "serviceaccounts")
        self._maps = hub.catalog.get_storage("", "configmaps")
        self._young: dict[str, float] = {}
        """Namespaces to look at again, and when."""
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        followed = (self._namespaces, self._accounts, self._maps)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_again(), name="young namespaces")
            await follow(self._hub, [each.prefix() for each in followed], self._look)

    async def _look_again(self) -> None:
        """Look at each young namespace when its time has come."""
        clock = self._hub.clock
        while True:
            await self._woken.wait()
            due = [name for name, at in self._young.items() if at <= clock.monotonic()]
            for name in due:
                del self._young[name]
                await self.complete(name)
            if not self._young:
                self._woken.clear()
                continue
            await clock.sleep(max(0.1, min(self._young.values()) - clock.monotonic()))

    async def _look(self, key: str) -> None:
        if key.startswith(self._namespaces.prefix()):
            await self.complete(forms.name_in(key))
        elif forms.name_in(key) in (ACCOUNT, AUTHORITY):
            await self.complete(key.rsplit("/", 2)[1])

    async def complete(self, namespace: str) -> None:
        """Make what a namespace lacks, unless it is ending."""
        found = await find_object(self._hub, "", "namespaces", "", namespace)
        if found is None or is_being_deleted(found):
            return
        age = self._hub.clock.now() - _created_at(found)
        if namespace in _THERE_FROM_THE_START:
            age = max(age, self._authority_seconds)
        if age < self._account_seconds:
            self._wait_for(namespace, self._account_seconds - age)
            return
        account: Object = {"apiVersion": "v1", "kind": "ServiceAccount"}
        await self._make(self._accounts, account, namespace, ACCOUNT)
        if age < self._authority_seconds:
            self._wait_for(namespace, self._authority_seconds - age)
            return
        await self._make(self._maps, self._authority_map(), namespace, AUTHORITY)
        await self._correct_authority(namespace)

    def _wait_for(self, namespace: str, seconds: float) -> None:
        self._young[namespace] = self._hub.clock.monotonic() + seconds
        self._woken.set()

    def _authority_map(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"annotations": {_DESCRIPTION: _ABOUT}},
            "data": {_KEY: self._authority},
        }

    async def _make(self, served: Served, wanted: Object, namespace: str, name: str) -> None:
        if await self._hub.store.get(served.key(namespace, name)) is not None:
            return
        metadata = {**wanted.get("metadata", {}), "name": name, "namespace": namespace}
        try:
            await create_own(self._hub, served, {**wanted, "metadata": metadata}, MANAGER)
        except AlreadyExists:
            return

    async def _correct_authority(self, namespace: str) -> None:
        def corrected(held: Object) -> Object:
            if find_at(held, "data") == {_KEY: self._authority}:
                return held
            return {**held, "data": {_KEY: self._authority}}

        write = write_of(self._hub, self._maps, manager=MANAGER)
        key = self._maps.key(namespace, AUTHORITY)
        await edit_own(self._hub, self._maps, key, corrected, write=write)


def _created_at(namespace: Object) -> float:
    return parse_time(str(find_at(namespace, "metadata", "creationTimestamp")))
