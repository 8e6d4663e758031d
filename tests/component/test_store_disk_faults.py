"""What the SQLite store does when the disk is slow, full, or fails."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.component.store_disk import UnreliableDisk

from clusterspace.apiserver.store.backups import inspect
from clusterspace.apiserver.store.commits import STORE_FAILED
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.errors import StoreClosed, StoreFull
from clusterspace.testing.steps import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk() -> Iterator[UnreliableDisk]:
    with UnreliableDisk("unreliable") as disk:
        yield disk


@pytest.fixture
async def store(disk: UnreliableDisk, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "store.db", vfs=disk.name)
    yield opened
    disk.is_full = False
    await opened.close()


async def test_nothing_is_answered_or_shown_before_it_is_synced(
    store: SqliteStore, disk: UnreliableDisk
) -> None:
    watch = store.watch("", after=store.current_revision)
    disk.may_sync.clear()
    syncs = disk.syncs
    writing = asyncio.create_task(store.put("/a", b"body"))
    await until(lambda: disk.is_held)

    assert not writing.done()
    assert await store.get("/a") is None
    assert store.current_revision == watch.revision == 1

    disk.may_sync.set()
    written = await writing
    assert disk.syncs > syncs
    assert await store.get("/a") == written
    assert [event.item for event in await anext(watch)] == [written]


async def test_every_single_write_is_synced(store: SqliteStore, disk: UnreliableDisk) -> None:
    for number in range(10):
        syncs = disk.syncs
        await store.put(f"/{number}", b"")
        assert disk.syncs > syncs


async def test_writes_that_wait_share_one_sync(store: SqliteStore, disk: UnreliableDisk) -> None:
    await store.put("/warm", b"")  # the first commit into a new log also syncs the log's head
    disk.may_sync.clear()
    first = asyncio.create_task(store.put("/first", b""))
    await until(lambda: disk.is_held)
    others = [asyncio.create_task(store.put(f"/{number}", b"")) for number in range(100)]
    await asyncio.sleep(0)
    syncs = disk.syncs

    disk.may_sync.set()
    await first
    revisions = [(await write).mod_revision for write in others]

    assert revisions == list(range(4, 104))
    assert disk.syncs - syncs == 2


@pytest.mark.usefixtures("logged_errors")
async def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    store: SqliteStore, disk: UnreliableDisk
) -> None:
    held = await store.put("/a", b"1")
    disk.is_full = True

    async with asyncio.TaskGroup() as group:
        writing = [group.create_task(refused_when_full(store, number)) for number in range(20)]
    assert all(task.result() for task in writing)
    with pytest.raises(StoreFull):
        await store.delete("/a", expected=held.mod_revision)
    with pytest.raises(StoreFull):
        await store.compact(store.current_revision)
    assert (await store.range("")).items == (held,)
    assert store.current_revision == held.mod_revision

    disk.is_full = False
    recovered = await store.put("/a", b"2", expected=held.mod_revision)
    assert recovered.mod_revision == held.mod_revision + 1


async def refused_when_full(store: SqliteStore, number: int) -> bool:
    try:
        await store.put(f"/b/{number}", b"x" * 5000)
    except StoreFull:
        return True
    return False


@pytest.mark.usefixtures("logged_errors")
async def test_a_store_left_by_a_crash_opens_on_a_full_disk_and_goes_on_when_there_is_room(
    store: SqliteStore, disk: UnreliableDisk, tmp_path: Path
) -> None:
    written = [await store.put(f"/{number}", b"x" * 5000) for number in range(30)]
    left = tmp_path / "left"
    left.mkdir()
    for name in ("store.db", "store.db-wal"):  # as a process that is killed leaves them
        shutil.copy(tmp_path / name, left / name)

    disk.is_full = True
    opened = await SqliteStore.open(left / "store.db", vfs=disk.name)
    assert (await opened.range("/")).items == tuple(sorted(written, key=lambda each: each.key))
    assert "no room" in opened.refuses_writes
    assert await refused_when_full(opened, 1)
    assert await refused_when_full(opened, 2)

    disk.is_full = False
    after = await opened.put("/0", b"new")
    assert after.mod_revision == written[-1].mod_revision + 1
    assert opened.refuses_writes == ""
    await opened.close()
    assert inspect(left / "store.db").keys == 30


@pytest.mark.usefixtures("logged_errors")
async def test_a_new_store_is_not_begun_on_a_full_disk(
    disk: UnreliableDisk, tmp_path: Path
) -> None:
    disk.is_full = True

    with pytest.raises(StoreFull):
        await SqliteStore.open(tmp_path / "new.db", vfs=disk.name)


@pytest.mark.usefixtures("logged_errors")
async def test_a_full_disk_leaves_a_sound_file(
    store: SqliteStore, disk: UnreliableDisk, tmp_path: Path
) -> None:
    await store.put("/a", b"1")
    disk.is_full = True
    for number in range(10):
        assert await refused_when_full(store, number)
    disk.is_full = False
    await store.put("/c", b"2")
    await store.close()

    assert inspect(tmp_path / "store.db").keys == 2


async def test_after_a_failed_sync_nothing_is_written_any_more(
    disk: UnreliableDisk, tmp_path: Path
) -> None:
    reasons: list[str] = []
    store = await SqliteStore.open(tmp_path / "store.db", vfs=disk.name, end_process=reasons.append)
    held = await store.put("/a", b"1")
    disk.fail_at_sync = disk.syncs + 1

    for _ in range(3):
        with pytest.raises(StoreClosed):
            await store.put("/a", b"2")
    with pytest.raises(StoreClosed):
        await store.compact(held.mod_revision)

    assert len(reasons) == 1
    assert "store.db" in reasons[0]
    assert await store.get("/a") == held
    await store.close()


@pytest.mark.parametrize("fail_at", [1, 2, 7])
def test_a_failed_sync_ends_the_process_and_keeps_what_was_acknowledged(
    tmp_path: Path, fail_at: int
) -> None:
    path = tmp_path / "store.db"
    command = [sys.executable, "-m", "tests.component.store_child", str(path), "20", str(fail_at)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert ended.returncode == STORE_FAILED
    acknowledged = [int(line) for line in ended.stdout.split() if line.isdecimal()]
    assert acknowledged == list(range(3, fail_at + 2))
    assert "the store's disk failed" in (ended.stdout + ended.stderr).splitlines()[-1]
    assert inspect(path).revision >= fail_at + 1


async def test_no_watcher_hears_of_a_write_whose_sync_failed(
    disk: UnreliableDisk, tmp_path: Path
) -> None:
    reasons: list[str] = []
    store = await SqliteStore.open(tmp_path / "store.db", vfs=disk.name, end_process=reasons.append)
    watch = store.watch("", after=store.current_revision)
    disk.fail_at_sync = disk.syncs + 1
    with pytest.raises(StoreClosed):
        await store.put("/a", b"")

    await store.close()

    with pytest.raises(StoreClosed):
        await anext(watch)
