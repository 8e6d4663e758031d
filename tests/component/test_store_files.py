"""What the SQLite store makes of files: its own, damaged ones, and other people's."""

import asyncio
import contextlib
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import hypothesis
import pytest
from hypothesis import strategies
from tests.component.store_disk import damage_a_record

from clusterspace.apiserver.store.backups import inspect, read_log
from clusterspace.apiserver.store.files import FORMAT_VERSION, StoreFile
from clusterspace.apiserver.store.index import Delete, Put, decide
from clusterspace.apiserver.store.interface import Event, KeyValue, Revision
from clusterspace.apiserver.store.records import load, superseded
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.errors import StoreClosed, StoreCorrupt, StoreError, StoreUnreadable

ROOT = Path(__file__).resolve().parents[2]
FLIPS = 300


async def read_everything(path: Path) -> tuple[tuple[KeyValue, ...], list[Event]]:
    """Open a store and return all it would serve."""
    store = await SqliteStore.open(path)
    try:
        items = (await store.range("")).items
        size = store.history.events
        events: list[Event] = []
        watch = store.watch("", after=store.oldest_revision)
        while len(events) < size:
            events.extend(await anext(watch))
        return items, events
    finally:
        await store.close()


def flip_one_bit(path: Path, dice: random.Random) -> int:
    content = bytearray(path.read_bytes())
    place = dice.randrange(len(content))
    content[place] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    return place


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with deletes, a compacted past and a kept one, properly closed."""

    async def make(path: Path) -> None:
        store = await SqliteStore.open(path)
        for number in range(150):
            key = f"/{number % 20}"
            held = await store.get(key)
            if held is not None and number % 7 == 0:
                await store.delete(key, expected=held.mod_revision)
            else:
                await store.put(key, bytes([number]) * (number * 37 % 3000))
        await store.compact(Revision(60))
        await store.close()

    path = tmp_path_factory.mktemp("sound") / "store.db"
    asyncio.run(make(path))
    return path


async def test_a_flipped_bit_is_never_served_as_good(sound: Path, tmp_path: Path) -> None:
    expected = await read_everything(sound)
    dice = random.Random(13)
    found = 0
    for number in range(FLIPS):
        damaged = tmp_path / f"{number}.db"
        shutil.copy(sound, damaged)
        place = flip_one_bit(damaged, dice)
        try:
            served = await read_everything(damaged)
        except (StoreCorrupt, StoreUnreadable):
            found += 1
            continue
        assert served == expected, f"a flip at byte {place} was served"
    assert found > FLIPS / 2, "most of the file is data: most flips must be noticed"


async def test_damage_in_the_log_of_a_crashed_store_never_hides_an_acknowledged_write(
    tmp_path: Path,
) -> None:
    """Only damage to the very last commit looks like a commit that was cut short."""
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    command = ["-m", "tests.component.store_child", str(crashed / "store.db"), "60", "0"]
    await asyncio.to_thread(
        subprocess.run, [sys.executable, *command], cwd=ROOT, check=True, capture_output=True
    )
    dice = random.Random(13)
    refused = 0
    for number in range(60):
        copy = tmp_path / str(number)
        shutil.copytree(crashed, copy)
        flip_one_bit(copy / "store.db-wal", dice)
        try:
            store = await SqliteStore.open(copy / "store.db")
        except StoreCorrupt:
            refused += 1
            continue
        assert store.current_revision >= 61
        await store.close()
    assert refused > 50


def test_a_damaged_record_is_named(sound: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "store.db"
    shutil.copy(sound, damaged)
    revision, key = damage_a_record(damaged)

    with pytest.raises(StoreCorrupt, match=f"revision {revision}, key {key},"):
        inspect(damaged)


@pytest.mark.parametrize("statement", [
    "DELETE FROM log WHERE revision = (SELECT max(revision) FROM log)",
    "DELETE FROM log WHERE revision = (SELECT min(revision) FROM log)",
    "UPDATE log SET revision = revision + 1000 WHERE revision = (SELECT max(revision) FROM log)",
    "DELETE FROM state",
    "UPDATE state SET revision = revision + 1",
    "UPDATE state SET oldest = oldest - 1",
    "CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log; END",
])  # fmt: skip
def test_an_edited_store_is_refused(sound: Path, tmp_path: Path, statement: str) -> None:
    edited = tmp_path / "store.db"
    shutil.copy(sound, edited)
    connection = apsw.Connection(str(edited))
    connection.execute(statement)
    connection.close()

    with pytest.raises(StoreCorrupt):
        inspect(edited)


async def test_a_file_from_a_newer_version_is_refused_with_both_numbers(
    sound: Path, tmp_path: Path
) -> None:
    newer = tmp_path / "store.db"
    shutil.copy(sound, newer)
    connection = apsw.Connection(str(newer))
    connection.pragma("user_version", FORMAT_VERSION + 1)
    connection.close()

    with pytest.raises(StoreUnreadable, match=f"format {FORMAT_VERSION + 1}.* {FORMAT_VERSION};"):
        await SqliteStore.open(newer)


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE accounts (name TEXT)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnreadable, match="not a store file"):
        await SqliteStore.open(path)

    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/store.db", "."])
async def test_a_place_that_cannot_hold_a_store_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(StoreUnreadable, match="cannot be opened"):
        await SqliteStore.open(tmp_path / place)


async def test_a_second_process_cannot_open_a_store_in_use(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    command = ["-m", "tests.component.store_child", str(tmp_path / "store.db"), "1", "0"]

    second = await asyncio.to_thread(
        subprocess.run, [sys.executable, *command], cwd=ROOT, capture_output=True, text=True
    )

    assert second.returncode == 1
    assert "store.db is in use by another process" in second.stderr
    await store.put("/a", b"")
    await store.close()
    again = await SqliteStore.open(tmp_path / "store.db")
    await again.close()


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    await store.put("/secrets/a", b"")

    for name in ("store.db", "store.db-wal"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    await store.close()


@hypothesis.given(content=strategies.binary(max_size=300), keep=strategies.floats(0, 1))
@hypothesis.settings(
    max_examples=150, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_a_malformed_file_raises_only_store_errors(
    sound: Path, tmp_path: Path, content: bytes, keep: float
) -> None:
    """The content lands somewhere in a store that is cut off somewhere."""
    path = tmp_path / "store.db"
    original = sound.read_bytes()
    place = int(keep * len(original))
    path.write_bytes(original[:place] + content + original[place + len(content) :][: place * 2])
    with contextlib.suppress(StoreError):  # anything else that is raised fails the test
        assert inspect(path).revision == inspect(sound).revision


@pytest.mark.parametrize("interrupted_after", range(6))
def test_compaction_interrupted_anywhere_brings_nothing_back(
    tmp_path: Path, interrupted_after: int
) -> None:
    path = tmp_path / "store.db"
    file = StoreFile.open(path)
    first = decide(Put("/a", b"1", None), None, Revision(2))
    second = decide(Put("/a", b"2", None), first.item, Revision(3))
    gone = decide(Delete("/a", Revision(3)), second.item, Revision(4))
    other = decide(Put("/b", b"", None), None, Revision(5))
    file.append([first, second, gone, other])
    needless = superseded([first, second, gone])
    file.record_compaction(Revision(4))
    for revision in needless[:interrupted_after]:
        file.erase([revision])
    file.close()

    reopened = StoreFile.open(path)
    loaded = load(reopened.records(), reopened.state)

    assert loaded.index.get("/a") is None
    assert loaded.index.count("") == 1
    assert sorted(loaded.leftover) == sorted(needless[interrupted_after:])
    reopened.close()


async def test_what_an_interrupted_compaction_left_is_erased_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    for number in range(30):
        await store.put("/a", bytes([number]))
    await store.close()
    file = StoreFile.open(path)
    file.record_compaction(Revision(20))
    file.close()
    assert inspect(path).leftover_records == 18

    store = await SqliteStore.open(path)
    await store.compact(Revision(25))
    await store.close()

    assert inspect(path).leftover_records == 0
    assert [record.revision for record in read_log(path)] == list(range(25, 32))


async def test_checking_a_store_in_use_disturbs_nobody(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    await store.put("/a", b"")

    async def check_often() -> list[int]:
        return [(await asyncio.to_thread(inspect, path)).revision for _ in range(30)]

    async with asyncio.TaskGroup() as group:
        checking = group.create_task(check_often())
        for number in range(3000):
            await store.put(f"/{number % 10}", b"x" * 3000)

    assert checking.result() == sorted(checking.result())
    await store.close()
    assert inspect(path).revision == store.current_revision == 3002


async def test_a_compaction_that_waited_for_another_is_refused_by_a_closed_store(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    for number in range(20):
        await store.put("/key", b"%d" % number)
    first = asyncio.ensure_future(store.compact(Revision(10)))
    second = asyncio.ensure_future(store.compact(Revision(15)))
    await asyncio.sleep(0)

    await store.close()

    ended = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 10)
    assert isinstance(ended[1], StoreClosed)
