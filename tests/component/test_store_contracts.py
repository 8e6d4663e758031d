"""The stores of one process keep every promise of the interface."""

from pathlib import Path

from clusterspace.apiserver.store.interface import Store
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.testing.store_contract import (
    WAITING_EVENTS,
    DenseRevisions,
    DurableStoreContract,
    GuardedWrites,
    StoreContract,
)


class TestMemoryStore(DenseRevisions, GuardedWrites, StoreContract):
    async def open_store(self, directory: Path) -> Store:
        return MemoryStore(maximum_waiting_events=WAITING_EVENTS)


class TestSqliteStore(DenseRevisions, GuardedWrites, DurableStoreContract):
    async def open_store(self, directory: Path) -> Store:
        return await SqliteStore.open(directory / "store.db", maximum_waiting_events=WAITING_EVENTS)
