"""Backups of a store: taken while it runs, brought back, and by command."""

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.component.store_disk import damage_a_record

from clusterspace.apiserver.store.backups import RESTORE_JUMP, back_up, inspect, restore
from clusterspace.apiserver.store.files import StoreFile
from clusterspace.apiserver.store.interface import Revision
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.cli.commands.store import store as store_command
from clusterspace.cli.output import ExitCode
from clusterspace.errors import Compacted, StoreCorrupt, StoreUnreadable


async def fill(path: Path, count: int = 50) -> None:
    store = await SqliteStore.open(path)
    for number in range(count):
        await store.put(f"/{number:03}", b"x" * 1000)
    await store.close()


async def test_a_backup_taken_while_writing_is_the_store_at_one_revision(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")

    async def write() -> None:
        for number in range(2000):
            await store.put(f"/{number % 100}", str(number).encode())

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(write())
        copies = [
            await asyncio.to_thread(back_up, tmp_path / "store.db", tmp_path / f"{n}.bak")
            for n in range(5)
        ]
    for number, state in enumerate(copies):
        found = inspect(tmp_path / f"{number}.bak")
        assert found.revision == state.revision
        assert found.history_events == found.revision - 1
    assert copies[0].revision < store.current_revision == 8001
    await store.close()


async def test_a_restored_store_is_far_ahead_and_sends_every_watcher_to_list_again(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "store.db")
    back_up(tmp_path / "store.db", tmp_path / "store.bak")

    restore(tmp_path / "store.bak", tmp_path / "new" / "store.db")

    restored = await SqliteStore.open(tmp_path / "new" / "store.db")
    assert restored.current_revision == 51 + RESTORE_JUMP
    assert await restored.count("") == 50
    for after in (1, 51, 5_000, RESTORE_JUMP):
        with pytest.raises(Compacted):
            restored.watch("", after=Revision(after))
    old = await restored.get("/007")
    assert old is not None
    changed = await restored.put("/007", b"", expected=old.mod_revision)
    assert changed.mod_revision == restored.current_revision == 52 + RESTORE_JUMP
    await restored.close()


async def test_nothing_is_overwritten(tmp_path: Path) -> None:
    await fill(tmp_path / "store.db")
    back_up(tmp_path / "store.db", tmp_path / "store.bak")
    before = (tmp_path / "store.db").read_bytes()

    with pytest.raises(StoreUnreadable, match="not overwritten"):
        back_up(tmp_path / "store.db", tmp_path / "store.bak")
    with pytest.raises(StoreUnreadable, match="not overwritten"):
        restore(tmp_path / "store.bak", tmp_path / "store.db")

    assert (tmp_path / "store.db").read_bytes() == before


async def test_a_damaged_store_makes_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    damage_a_record(path)

    with pytest.raises(StoreCorrupt):
        back_up(path, tmp_path / "store.bak")

    assert not any("bak" in name for name in os.listdir(tmp_path))


async def test_the_commands_go_round(tmp_path: Path) -> None:
    await fill(tmp_path / "store.db")
    data, backup, new = str(tmp_path), str(tmp_path / "a.bak"), str(tmp_path / "new")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(store_command, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    assert "at revision 51" in run("backup", backup, "--data-dir", data)
    assert f"revision {51 + RESTORE_JUMP}" in run("restore", backup, "--data-dir", new)
    assert "50 (50,000 bytes)" in run("check", new)
    assert "Every record is as it was written." in run("check", backup)


def test_the_commands_say_in_one_sentence_why_not(tmp_path: Path) -> None:
    nothing, other = tmp_path / "nothing", tmp_path / "other"
    other.write_text("not a store at all, only a text that is long enough to be looked at")

    missing = CliRunner().invoke(store_command, ["check", str(nothing)])
    foreign = CliRunner().invoke(store_command, ["check", str(other)])

    assert (missing.exit_code, foreign.exit_code) == (ExitCode.FAILED, ExitCode.FAILED)
    assert missing.stderr == f"Error: there is no store at {nothing}\n"
    assert foreign.stderr == f"Error: {other} is not a store file\n"


async def test_check_has_its_own_code_for_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    damage_a_record(path)

    result = CliRunner().invoke(store_command, ["check", str(tmp_path)])

    assert result.exit_code == ExitCode.DAMAGED
    assert "fails its checksum" in result.stderr


def test_a_backup_to_a_directory_that_is_not_there_makes_none(tmp_path: Path) -> None:
    source = tmp_path / "store.db"
    StoreFile.open(source).close()
    target = tmp_path / "mistyped" / "backup.db"

    with pytest.raises(StoreUnreadable, match="mistyped: make it first"):
        back_up(source, target)

    assert not target.parent.exists()
