"""What every namespace has."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.unit.apiserver.identity.subjects import AUTHORITY, MemoryHub

from clusterspace.apiserver.identity.authority import TrustBundle
from clusterspace.apiserver.identity.service_accounts import NamespaceAccounts


@asynccontextmanager
async def followed(hub: MemoryHub) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(NamespaceAccounts(hub.state, TrustBundle(AUTHORITY)).run())
        await hub.clock.advance(0)
        yield
        running.cancel()


async def has_all(hub: MemoryHub, namespace: str) -> bool:
    account = await hub.find("", "serviceaccounts", namespace, "default")
    held = await hub.find("", "configmaps", namespace, "kube-root-ca.crt")
    return (
        account is not None and held is not None and held["data"] == {"ca.crt": AUTHORITY.decode()}
    )


async def test_namespaces_old_and_new_get_their_account_and_authority_at_once():
    hub = MemoryHub()
    await hub.create_namespace("old")
    async with followed(hub):
        await hub.create_namespace("new")
        await hub.clock.advance(0)

        assert await has_all(hub, "old")
        assert await has_all(hub, "new")


async def test_what_somebody_deletes_is_put_back():
    hub = MemoryHub()
    await hub.create_namespace("apps")
    async with followed(hub):
        await hub.delete("", "serviceaccounts", "apps", "default")
        await hub.delete("", "configmaps", "apps", "kube-root-ca.crt")
        await hub.clock.advance(1)

        assert await has_all(hub, "apps")


async def test_an_authority_that_was_changed_is_corrected():
    hub = MemoryHub()
    await hub.create_namespace("apps")
    async with followed(hub):
        there = await hub.get("", "configmaps", "apps", "kube-root-ca.crt")
        await hub.edit("", "configmaps", there, data={"ca.crt": "mallory's"})
        await hub.clock.advance(1)

        assert await has_all(hub, "apps")


async def test_a_namespace_that_ends_gets_nothing_more():
    hub = MemoryHub()
    await hub.create_namespace("apps")
    await hub.delete("", "namespaces", "", "apps")
    async with followed(hub):
        assert await hub.find("", "serviceaccounts", "apps", "default") is None
