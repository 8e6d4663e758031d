"""A hub in memory with its controllers' clock in the test's hand, and objects to put into it."""

import base64
import itertools
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from clusterspace.apiserver import forms
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import Author, HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.writing import begin_new, edit_own, finish_new, remove, write_new
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.testing.clocks import ManualClock

OPERATOR = User("operator", (MASTERS,))
AUTHORITY = b"-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"


class MemoryHub:
    """A hub's state, and short ways to say what is in it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store, uids = MemoryStore(), itertools.count(1)
        self.state = HubState(
            store=store,
            catalog=Catalog(builtin_resources()),
            feeds=Feeds(store),
            clock=self.clock,
            random=Random(7),
            new_uid=lambda: f"uid-{next(uids)}",
        )

    async def create(
        self, group: str, plural: str, wanted: Object, user: User = OPERATOR
    ) -> Object:
        served = self.state.catalog.get_storage(group, plural)
        newborn = begin_new(self.state, served, served.rules.read(wanted).kube_object, user)
        new = await finish_new(self.state, served, newborn, Author(user), None)
        return forms.decode_stored(await write_new(self.state, served, new), served.form)

    async def find(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        return await find_object(self.state, group, plural, namespace, name)

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Object:
        found = await self.find(group, plural, namespace, name)
        assert found is not None, f"{plural} {name} is not there"
        return found

    async def edit(self, group: str, plural: str, there: Object, **parts: Any) -> None:
        served = self.state.catalog.get_storage(group, plural)
        key = served.key(namespace_of(there), name_of(there))
        await edit_own(self.state, served, key, lambda held: {**held, **parts})

    async def delete(self, group: str, plural: str, namespace: str, name: str) -> None:
        served = self.state.catalog.get_storage(group, plural)
        await remove(self.state, served, served.key(namespace, name), DeleteOptions(), None)

    async def create_namespace(self, name: str) -> Object:
        wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        return await self.create("", "namespaces", wanted)

    async def create_account(self, namespace: str, name: str) -> Object:
        metadata = {"name": name, "namespace": namespace}
        wanted = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        return await self.create("", "serviceaccounts", wanted)

    async def create_secret(
        self,
        namespace: str,
        name: str,
        data: Mapping[str, str],
        *,
        secret_type: str = "Opaque",
        annotations: Mapping[str, str] | None = None,
    ) -> Object:
        metadata = {"name": name, "namespace": namespace, "annotations": dict(annotations or {})}
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        wanted = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": secret_type,
            "data": encoded,
        }
        return await self.create("", "secrets", wanted)


def value_in(secret: Object, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def names(objects: Sequence[Object]) -> list[str]:
    return [name_of(each) for each in objects]
