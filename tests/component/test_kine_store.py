"""The store keeps its promises on kine, with SQLite and with Postgres behind it."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.apiserver.store.etcd.compaction import Compactor
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.interface import Revision, Store
from clusterspace.errors import RevisionMismatch
from clusterspace.testing.etcd import EtcdCluster
from clusterspace.testing.kine import POSTGRES, SQLITE, kine_for_test
from clusterspace.testing.store_contract import WAITING_EVENTS, DurableStoreContract

pytestmark = pytest.mark.slow


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[SQLITE, POSTGRES])
async def kine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EtcdCluster]:
    async with kine_for_test(tmp_path_factory.mktemp("kine"), request.param) as running:
        yield running


class TestKine(DurableStoreContract):
    @pytest.fixture(autouse=True)
    def use(self, settings: EtcdSettings) -> None:
        self.settings = settings

    async def open_store(self, directory: Path) -> Store:
        return await EtcdStore.open(self.settings, root="", maximum_waiting_events=WAITING_EVENTS)


Two = tuple[EtcdStore, EtcdStore]


@pytest.fixture
def settings(kine: EtcdCluster) -> EtcdSettings:
    return kine.at(f"/{uuid.uuid4()}")


@pytest.fixture
async def stores(settings: EtcdSettings) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        opened = [await EtcdStore.open(settings, root="") for _ in range(2)]
        for each in opened:
            stack.push_async_callback(each.close)
        yield opened[0], opened[1]


async def test_two_hubs_on_kine_agree(stores: Two) -> None:
    """Whoever wins a race, both show it; and what each holds is what kine has."""
    written = await stores[0].put("/counter", b"0")
    for step in range(1, 20):

        async def race(store: EtcdStore, value: bytes, at: Revision) -> bool:
            try:
                await store.put("/counter", value, expected=at)
            except RevisionMismatch:
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tries = [
                group.create_task(race(each, f"{step} {place}".encode(), written.mod_revision))
                for place, each in enumerate(stores)
            ]
        assert sum(task.result() for task in tries) == 1
        for each in stores:
            await each.sync()
        found = await stores[0].get("/counter")
        assert found is not None
        assert await stores[1].get("/counter") == found
        written = found

    assert [await each.verify() for each in stores] == [[], []]
    assert not any(each.client.is_etcd for each in stores)


async def test_hubs_take_turns_at_compacting_kine(stores: Two, settings: EtcdSettings) -> None:
    turns = [Compactor(each.client) for each in stores]
    done: list[int] = []
    for step in range(6):
        await stores[0].put("/a", str(step).encode())
        done += [await each.step() for each in turns]

    assert any(done)
    late = await EtcdStore.open(settings, root="")
    try:
        assert await late.get("/a") == await stores[0].get("/a")
    finally:
        await late.close()
