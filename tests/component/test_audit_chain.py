"""An audit log shows what was done to it: every removed, changed, inserted and moved line."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from clusterspace.apiserver.access.audit_chain import Key, files_of, verify
from clusterspace.apiserver.access.audit_log import (
    MOST_UNWRITTEN,
    AuditLog,
    AuditWriter,
    Rotation,
)
from clusterspace.cli.main import main

Lines = list[bytes]
SMALL = Rotation(full_bytes=2000, kept=3)


def written(path: Path, count: int = 20, rotation: Rotation | None = None) -> Path:
    log = AuditLog(path, rotation)
    for number in range(count):
        log.write({"verb": "create", "name": f"web-{number}", "annotations": {"own": "words"}})
    log.close()
    return path


def found(log: Path) -> list[tuple[str, int, str]]:
    """Return the tampering that shows: file, line and kind."""
    findings = verify(log, files_of(log)).findings
    return [(e.place.file.name, e.place.line, e.what) for e in findings if e.is_tampering]


def edit(file: Path, change: Callable[[Lines], object]) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    change(lines)
    file.write_bytes(b"".join(lines))


def swap(lines: Lines) -> None:
    lines[4], lines[5] = lines[5], lines[4]


def far(lines: Lines) -> None:
    lines.insert(2, lines.pop(8))


def forge(lines: Lines) -> None:
    lines[4] = lines[4].replace(b"web-4", b"web-9")


def rename_hash(lines: Lines) -> None:
    lines[4] = lines[4][:-11] + b"0000000" + lines[4][-4:]


TAMPERED: dict[str, tuple[Callable[[Lines], object], list[tuple[int, str]]]] = {
    "changed": (forge, [(5, "changed")]),
    "hash changed": (rename_hash, [(5, "changed")]),
    "removed": (lambda lines: lines.pop(4), [(5, "removed")]),
    "two removed": (lambda lines: lines.__delitem__(slice(4, 6)), [(5, "removed")]),
    "first removed": (lambda lines: lines.pop(0), [(1, "removed")]),
    "last removed": (lambda lines: lines.pop(), [(0, "removed")]),
    "all removed": (lambda lines: lines.clear(), [(0, "removed")]),
    "repeated": (lambda lines: lines.insert(9, lines[4]), [(10, "inserted")]),
    "foreign": (lambda lines: lines.insert(4, b'{"verb":"get"}\n'), [(5, "inserted")]),
    "foreign at the end": (lambda lines: lines.append(b'{"verb":"get"}\n'), [(21, "inserted")]),
    "swapped": (swap, [(6, "moved")]),
    "moved to the front": (far, [(4, "moved")]),
}


def test_a_log_that_nobody_touched_is_intact_across_restarts_and_turns(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    for count in (1, 7, 0, 12):
        written(log, count, SMALL)

    assert len(files_of(log)) > 2
    verification = verify(log, files_of(log))
    assert [e for e in verification.findings if e.is_tampering] == []
    assert verification.last is not None
    assert verification.last.sequence == 20


@pytest.mark.parametrize("kind", TAMPERED)
def test_tampering_is_found_where_it_was_done(tmp_path: Path, kind: str) -> None:
    log = written(tmp_path / "audit.log")
    change, expected = TAMPERED[kind]
    edit(log, change)

    shown = found(log)
    assert {(line, what) for _, line, what in shown} >= set(expected)
    assert {file for file, _, _ in shown} == {"audit.log"}
    if kind in ("changed", "removed", "swapped", "repeated"):
        assert [(line, what) for _, line, what in shown] == expected


def test_a_file_of_the_middle_that_is_gone_is_found(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 40, SMALL)
    (tmp_path / "audit.log.2").unlink()

    assert [(file, what) for file, _, what in found(log)] == [("audit.log.1", "removed")]


def test_the_oldest_file_turned_out_is_no_gap_and_one_removed_is(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 60, SMALL)
    assert len(files_of(log)) == 4
    assert found(log) == []

    (tmp_path / "audit.log.3").unlink()
    assert [(file, line, what) for file, line, what in found(log)] == [
        ("audit.log.2", 1, "removed")
    ]


def test_files_older_than_their_days_go_and_leave_no_gap(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 30, SMALL)
    os.utime(tmp_path / "audit.log.2", (0, 0))
    os.utime(tmp_path / "audit.log.3", (0, 0))

    written(log, 0, Rotation(2000, kept=0, kept_days=7))

    assert [each.name for each in files_of(log)] == ["audit.log.1", "audit.log"]
    assert found(log) == []


@pytest.mark.parametrize("left", [1, 40, 200])
def test_what_a_crash_leaves_of_a_line_is_explained_by_the_next(tmp_path: Path, left: int) -> None:
    log = written(tmp_path / "audit.log", 5)
    whole = log.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    # As a process leaves it that is killed while it writes number 6: the head knows of 5.
    log.write_bytes(whole + last[:left])

    written(log, 2)

    assert found(log) == []
    torn = [e for e in verify(log, files_of(log)).findings if e.what == "torn"]
    assert [(e.place.line) for e in torn] == [6]
    # And what is torn is guarded too.
    edit(log, lambda lines: lines.__setitem__(5, b"#" + lines[5][1:]) if left > 1 else lines.pop(5))
    assert found(log)


def test_a_crash_between_a_line_and_the_head_is_no_gap(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 5)
    head = (tmp_path / "audit.log.head").read_bytes()
    written(log, 1)
    (tmp_path / "audit.log.head").write_bytes(head)

    assert found(log) == []
    written(log, 1)
    assert found(log) == []


@pytest.mark.usefixtures("logged_errors")
def test_a_full_disk_is_told_in_the_log_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    log.write({"verb": "create"})
    full, room = os.open("/dev/full", os.O_WRONLY), log._file
    log._file = full
    for _ in range(3):
        log.write({"verb": "delete"})
    log._file = room
    os.close(full)
    log.close()
    lost = [e.message for e in verify(path, files_of(path)).findings]
    assert lost == ["3 lines after number 1 found no room on the disk"]

    written(path, 1)

    assert found(path) == []
    lost = [e.message for e in verify(path, files_of(path)).findings]
    assert lost == ["3 lines before number 2 found no room on the disk"]


@pytest.mark.usefixtures("logged_errors")
def test_a_log_that_was_cut_while_nobody_looked_goes_on_and_keeps_its_gap(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 5)
    edit(log, lambda lines: lines.pop())

    with structlog.testing.capture_logs() as said:
        written(log, 2)

    assert any("does not end as it was left" in each["event"] for each in said)
    assert found(log) == [("audit.log", 5, "removed")]


def test_lines_of_an_earlier_version_are_told_as_unchecked(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(b'{"verb":"create"}\n' * 3)
    written(log, 2)

    findings = verify(log, files_of(log)).findings
    assert [(e.what, e.message) for e in findings] == [
        ("unchecked", "3 lines are from before the log was chained")
    ]


def test_a_log_that_was_written_anew_is_not_the_one_that_was_noted(tmp_path: Path) -> None:
    noted = verified(str(written(tmp_path / "audit.log"))).output
    noted = noted.partition("the last is ")[2].partition(";")[0]
    again = written(tmp_path / "other.log", 19)

    log = str(tmp_path / "audit.log")
    assert verified(log, "--contains", noted).exit_code == 0
    assert verified(str(again), "--contains", noted).exit_code == 1


def test_any_single_change_of_the_bytes_is_found(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 12, SMALL)
    chance = random.Random(7)
    files = files_of(log)
    for _ in range(200):
        file = chance.choice(files)
        whole = file.read_bytes()
        at = chance.randrange(len(whole))
        other = bytes((whole[at] ^ (1 << chance.randrange(8)),))
        file.write_bytes(whole[:at] + other + whole[at + 1 :])
        assert found(log), (file.name, at)
        file.write_bytes(whole)
    assert not found(log)


def verified(*words: str) -> Result:
    return CliRunner().invoke(main, ["audit", "verify", *words])


def test_the_command_names_file_and_line_and_ends_with_one(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    log = written(tmp_path / "hub" / "audit.log")

    result = verified("--data-dir", str(tmp_path))
    assert result.exit_code == 0
    assert "20 lines" in result.output
    assert "no sign of tampering" in result.output

    edit(log, swap)
    result = verified("--data-dir", str(tmp_path))
    assert result.exit_code == 1
    assert f"{log}:6" in result.output.replace("\n", "")
    told = json.loads(verified(str(log), "-o", "json").output)
    assert told["intact"] is False
    assert [(e["line"], e["what"]) for e in told["logs"][0]["findings"]] == [(6, "moved")]


@pytest.mark.parametrize(
    ("words", "code"),
    [((), 2), (("--data-dir", "nowhere"), 1), (("nowhere.log",), 1), (("x", "--contains", "7"), 2)],
)
def test_what_cannot_be_verified_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    result = verified(*words)
    assert result.exit_code == code
    assert result.output


def test_a_copy_of_one_older_file_can_be_verified_alone(tmp_path: Path) -> None:
    written(tmp_path / "audit.log", 40, SMALL)
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "audit.log.2"
    copy.write_bytes((tmp_path / "audit.log.2").read_bytes())

    assert verified(str(copy)).exit_code == 0
    edit(copy, lambda lines: lines.pop(3))
    assert verified(str(copy)).exit_code == 1


# -- with a key ------------------------------------------------------------------------------------

KEYS = ("f" * 64, "0" * 64)


def keyed(path: Path, secret: str, count: int = 6) -> Path:
    log = AuditLog(path, key=Key(secret.encode()))
    for number in range(count):
        log.write({"verb": "create", "name": f"web-{number}"})
    log.close()
    return path


def found_with(log: Path, *secrets: str) -> list[str]:
    verification = verify(log, files_of(log), keys=[Key(each.encode()) for each in secrets])
    return [each.what for each in verification.findings if each.is_tampering]


def test_whoever_has_no_key_cannot_write_the_log_anew(tmp_path: Path) -> None:
    log = keyed(tmp_path / "audit.log", KEYS[0])
    assert found_with(log, KEYS[0]) == []

    # Everything anew, with the head: without a key, and with another one.
    for forged in (written(tmp_path / "a.log", 5), keyed(tmp_path / "b.log", KEYS[1], 5)):
        log.write_bytes(forged.read_bytes())
        head = forged.with_name(f"{forged.name}.head").read_bytes()
        (tmp_path / "audit.log.head").write_bytes(head)
        assert found_with(log, KEYS[0])


def test_a_cut_tail_with_a_head_made_to_fit_is_found(tmp_path: Path) -> None:
    log = keyed(tmp_path / "audit.log", KEYS[0])
    head = tmp_path / "audit.log.head"
    edit(log, lambda lines: lines.pop())
    last = json.loads(log.read_bytes().splitlines()[-1])["annotations"]
    said = json.loads(head.read_bytes())
    said |= {"sequence": 5, "hash": last["audit.clusterspace.io/hash"]}
    head.write_text(json.dumps(said))

    assert verify(log, files_of(log)).findings[-1].what == "unchecked"
    assert found_with(log, KEYS[0]) == ["changed"]


def test_a_key_may_come_later_and_be_replaced(tmp_path: Path) -> None:
    log = written(tmp_path / "audit.log", 3)
    keyed(log, KEYS[1], 3)
    keyed(log, KEYS[0], 3)

    assert found_with(log, *KEYS) == []
    assert found_with(log, KEYS[0]) == ["changed"], "lines of a key that nobody knows"
    edit(log, lambda lines: lines.__setitem__(1, lines[1].replace(b"web-1", b"web-7")))
    assert found_with(log, *KEYS)


@pytest.mark.parametrize("lines", [0, 3])
def test_a_log_that_was_just_given_a_key_is_sealed_before_its_next_line(
    tmp_path: Path, lines: int
) -> None:
    log = written(tmp_path / "audit.log", lines)
    AuditLog(log, key=Key(KEYS[0].encode()))  # killed before anybody asked anything

    assert found_with(log, KEYS[0]) == []
    written(log, 1)  # by whoever has no key
    assert "changed" in found_with(log, KEYS[0])


def test_the_command_takes_a_file_of_keys_and_refuses_a_weak_one(tmp_path: Path) -> None:
    log, file = keyed(tmp_path / "audit.log", KEYS[0]), tmp_path / "keys"
    file.write_text("\n".join(KEYS))
    assert verified(str(log), "--key-file", str(file)).exit_code == 0
    assert "lines need the key" in verified(str(log)).output.replace("\n", "")

    file.write_text("hunter2\n")
    refused = verified(str(log), "--key-file", str(file))
    assert refused.exit_code != 0
    assert "hunter2" not in refused.output


# -- off the event loop ----------------------------------------------------------------------------


class HeldLog(AuditLog):
    """A log on a disk that hangs until the test lets it go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.disk = threading.Event()

    def write(self, event: dict[str, Any]) -> None:
        self.disk.wait(60)
        super().write(event)


def names_in(log: Path) -> list[str]:
    return [json.loads(line)["name"] for line in log.read_bytes().splitlines()]


async def test_events_are_written_in_the_order_they_came_however_many_come(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    names = [f"web-{number}" for number in range(3000)]
    writer = AuditWriter(AuditLog(log, Rotation(full_bytes=200_000, kept=20)))
    for name in names:
        await writer.room()
        writer.write({"verb": "create", "name": name})
    writer.close()

    assert [name for file in files_of(log) for name in names_in(file)] == names
    verification = verify(log, files_of(log))
    assert verification.last is not None
    assert (verification.findings, verification.last.sequence) == ([], 3000)


async def test_a_disk_that_hangs_holds_up_who_is_audited_and_nobody_else(tmp_path: Path) -> None:
    held = HeldLog(tmp_path / "audit.log")
    writer = AuditWriter(held)
    for number in range(MOST_UNWRITTEN):
        await writer.room()
        writer.write({"verb": "create", "name": f"web-{number}"})

    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(writer.room()) for _ in range(3)]
        await asyncio.sleep(0)  # the loop goes on, and they do not
        assert not any(each.done() for each in waiting)
        waiting[0].cancel()  # its client has gone
        held.disk.set()
    writer.write({"verb": "create", "name": "last"})
    writer.close()

    assert names_in(tmp_path / "audit.log")[-2:] == [f"web-{MOST_UNWRITTEN - 1}", "last"]
    assert found(tmp_path / "audit.log") == []


async def test_who_waits_for_a_line_goes_on_when_it_is_in_the_file(tmp_path: Path) -> None:
    held = HeldLog(tmp_path / "audit.log")
    writer = AuditWriter(held)

    async def ask(name: str) -> bool:
        writer.write({"verb": "create", "name": name})
        await writer.written()
        return name in names_in(tmp_path / "audit.log")

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(f"web-{number}")) for number in range(200)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in asked)
        asked.pop().cancel()  # its client has gone, and its line is written all the same
        held.disk.set()
    await writer.written()

    assert all(each.result() for each in asked)
    assert len(names_in(tmp_path / "audit.log")) == 200
    writer.close()


async def test_what_cannot_be_encoded_is_a_line_that_is_missed(
    tmp_path: Path, logged_errors: list[str]
) -> None:
    log = tmp_path / "audit.log"
    writer = AuditWriter(AuditLog(log))
    for name in ("a", object(), "b"):
        writer.write({"verb": "create", "name": name})
    writer.close()

    assert len(logged_errors) == 1
    assert names_in(log) == ["a", "b"]
    assert verify(log, files_of(log)).findings[0].what == "lost"


CRASHING = """
import asyncio, os, sys
from pathlib import Path
from clusterspace.apiserver.access.audit_log import AuditLog, AuditWriter

async def main():
    writer = AuditWriter(AuditLog(Path(sys.argv[1])))
    number = 0
    while True:
        await writer.room()
        writer.write({"verb": "create", "name": f"web-{number}"})
        number += 1
        if number % 50 == 0:
            await writer.written()
            print(number, flush=True)

asyncio.run(main())
"""


def test_what_a_killed_process_leaves_is_whole_and_the_next_one_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    for _ in range(2):
        before = len(names_in(log)) if log.exists() else 0
        with subprocess.Popen(
            [sys.executable, "-c", CRASHING, str(log)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert "2000\n" in iter(process.stdout.readline, "")
            process.kill()
            answered = int([2000, *process.stdout][-1])
        assert found(log) == []
        assert f"web-{answered - 1}" in names_in(log)[before:]
    written(log, 1)

    assert found(log) == []
    assert names_in(log)[-1] == "web-0"
