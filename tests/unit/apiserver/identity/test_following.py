"""Keys that changed are looked at: all of them, and again after a failure."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.unit.apiserver.identity.subjects import MemoryHub

from clusterspace.apiserver.identity.following import follow
from clusterspace.errors import Conflict


class Looks:
    """Remembers what was looked at; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.seen: list[str] = []
        self.failures = failures

    async def __call__(self, key: str) -> None:
        if self.failures:
            self.failures -= 1
            raise Conflict("somebody else was quicker")
        self.seen.append(key)


@asynccontextmanager
async def following(hub: MemoryHub, looks: Looks) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(follow(hub.state, ("/a/", "/b/"), looks))
        await hub.clock.advance(0)
        yield
        running.cancel()


async def test_what_is_there_and_what_comes_is_looked_at():
    hub, looks = MemoryHub(), Looks()
    await hub.state.store.put("/a/1", b"{}")
    async with following(hub, looks):
        await hub.state.store.put("/b/2", b"{}")
        await hub.state.store.put("/c/3", b"{}")
        await hub.clock.advance(0)

    assert looks.seen == ["/a/1", "/b/2"]


async def test_a_key_that_went_is_looked_at_too():
    hub, looks = MemoryHub(), Looks()
    entry = await hub.state.store.put("/a/1", b"{}")
    async with following(hub, looks):
        await hub.state.store.delete("/a/1", expected=entry.mod_revision)
        await hub.clock.advance(0)

    assert looks.seen == ["/a/1", "/a/1"]


async def test_a_look_that_failed_is_repeated():
    hub, looks = MemoryHub(), Looks(failures=2)
    await hub.state.store.put("/a/1", b"{}")
    async with following(hub, looks):
        await hub.clock.advance(5)

    assert looks.seen == ["/a/1"]


async def test_a_bug_in_a_look_is_not_hidden():
    hub = MemoryHub()
    await hub.state.store.put("/a/1", b"{}")

    async def broken(key: str) -> None:
        raise KeyError(key)

    with pytest.raises(KeyError):
        await follow(hub.state, ("/a/",), broken)
