"""Agents whose certificates no longer count."""

import asyncio

from tests.unit.apiserver.identity.subjects import MemoryHub

from clusterspace.apiserver.identity.agents import Revocations, with_revoked
from clusterspace.kube.times import format_time


async def new_hub() -> MemoryHub:
    hub = MemoryHub()
    await hub.create_namespace("kube-system")
    return hub


async def test_what_was_issued_before_is_revoked_and_what_comes_later_is_not():
    hub = await new_hub()
    revocations = Revocations(hub.state)
    now = hub.clock.now()
    assert not await revocations.covers("west", now - 60)

    await revocations.revoke("west")

    assert await revocations.covers("west", now - 60)
    assert await revocations.covers("west", now)
    assert not await revocations.covers("west", now + 1)
    assert not await revocations.covers("east", now - 60)


async def test_a_second_revocation_moves_the_moment():
    hub = await new_hub()
    revocations = Revocations(hub.state)
    await revocations.revoke("west")
    await hub.clock.advance(100)
    issued = hub.clock.now() - 50
    assert not await revocations.covers("west", issued)

    await revocations.revoke("west")

    assert await revocations.covers("west", issued)


async def test_an_agent_is_revoked_when_its_cluster_is_gone():
    hub = await new_hub()
    revocations = Revocations(hub.state)
    store, key = hub.state.store, "/registry/cluster.karmada.io/clusters/west"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(revocations.run())
        entry = await store.put(key, b"{}")
        await hub.clock.advance(1)
        issued = hub.clock.now()
        assert not await revocations.covers("west", issued)

        await store.delete(key, expected=entry.mod_revision)
        await hub.clock.advance(1)

        assert await revocations.covers("west", issued)
        running.cancel()


def test_entries_are_forgotten_when_every_certificate_they_are_about_has_expired():
    day = 24 * 3600.0
    held = {"old": format_time(0.0), "young": format_time(2 * day)}

    assert set(with_revoked(held, "new", 367 * day)) == {"young", "new"}


def test_an_entry_is_never_replaced_by_an_earlier_one():
    held = {"west": format_time(100.0)}

    assert with_revoked(held, "west", 200.0, until=50.0) == held


async def test_nobody_is_the_agent_of_a_pushed_cluster_by_what_is_older_than_it():
    hub = await new_hub()
    revocations = Revocations(hub.state)
    key, joined = "/registry/cluster.karmada.io/clusters/west", hub.clock.now()
    born = format_time(joined).encode()
    cluster = b'{"metadata":{"creationTimestamp":"%s"},"spec":{"syncMode":"Push"}}' % born
    await hub.state.store.put(key, cluster)

    assert await revocations.covers("west", joined - 1)
    assert not await revocations.covers("west", joined + 1)


def test_an_entry_that_cannot_be_read_is_kept():
    assert "odd" in with_revoked({"odd": "soon"}, "new", 1e9)
