"""A store whose process is killed at random moments keeps what it promised.

The seed decides everything but the scheduler; a failure prints it. Repeat one with
`CLUSTERSPACE_CRASH_SEED=<seed> pytest tests/robustness/test_store_crashes.py`.
"""

import os
import random
import shutil
import time
from pathlib import Path

import pytest
from tests.robustness.crash_checker import CrashChecker, read_aftermath, read_journal

from clusterspace.apiserver.store.backups import inspect, read_log
from clusterspace.testing.programs import Program

PATIENCE = 30.0
KILLS = 20
MANY_KILLS = 200
ROOT = Path(__file__).resolve().parents[2]


def run_and_kill(directory: Path, number: int, seed: int, plant: str | None) -> None:
    """Start the writer, let it work for a random while, kill it."""
    dice = random.Random(f"{seed} {number}")
    arguments = [str(directory), str(number), str(dice.randrange(10**6))]
    arguments += ["--compact"] if number % 2 else []
    arguments += ["--plant", plant] if plant else []
    log = directory / f"log-{number}"
    child = Program("tests.robustness.crash_writer", arguments, log=log, directory=ROOT)
    try:
        if number == 0 or dice.random() < 0.9:
            deadline = time.monotonic() + PATIENCE
            while log.read_bytes() != b"ready\n":
                is_late = time.monotonic() > deadline
                failure = f"the writer did not start, seed {seed}:\n{log.read_text()}"
                assert child.poll() is None, failure
                assert not is_late, failure
                time.sleep(0.005)
            time.sleep(dice.uniform(0.02, 0.5))
        else:
            time.sleep(dice.uniform(0, 0.1))  # perhaps while it opens the store
        assert child.poll() is None, f"the writer ended by itself, seed {seed}"
    finally:
        child.kill()
        child.wait()


def check_after_kill(checker: CrashChecker, directory: Path, number: int) -> None:
    """Look at a copy, so that the next writer, not we, recovers from the crash."""
    copy = directory / f"copy-{number}"
    copy.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(directory / name, copy / name)
    found = inspect(copy / "store.db")
    after = read_aftermath(read_log(copy / "store.db"), found.revision, found.oldest)
    shutil.rmtree(copy)
    ledger, diary = (directory / f"{name}-{number}" for name in ("ledger", "diary"))
    checker.check_round(
        list(read_journal(ledger.read_bytes() if ledger.exists() else b"")),
        list(read_journal(diary.read_bytes() if diary.exists() else b"")),
        after,
    )


def crash_until_a_problem(
    directory: Path, *, kills: int, enough: int = 0, plant: str | None = None
) -> CrashChecker:
    """Kill so many, and on a busy machine more of them until enough was acknowledged."""
    seed = int(os.environ.get("CLUSTERSPACE_CRASH_SEED") or random.randrange(10**6))
    print(f"seed {seed}")
    checker = CrashChecker()
    for number in range(10 * kills):
        if number >= kills and checker.acknowledged > enough:
            break
        run_and_kill(directory, number, seed, plant)
        check_after_kill(checker, directory, number)
        if checker.problems:
            break
    print(f"{checker.acknowledged} writes acknowledged, {checker.delivered} events delivered")
    return checker


def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    checker = crash_until_a_problem(tmp_path, kills=KILLS, enough=1_000)

    assert checker.problems == []
    assert checker.acknowledged > 1_000, "too little happened for the run to count"
    assert checker.delivered > 1_000, "too little was watched for the run to count"


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    checker = crash_until_a_problem(tmp_path, kills=MANY_KILLS, enough=10_000)

    assert checker.problems == []
    assert checker.acknowledged > 10_000, "too little happened for the run to count"


def test_an_answer_before_the_commit_is_found_out(tmp_path: Path) -> None:
    # It ends with the first problem; on a busy machine many kills come too early for one.
    checker = crash_until_a_problem(tmp_path, kills=MANY_KILLS, plant="answer-before-commit")

    # Whoever heard of it first: a writer by its answer, or a watcher by the event.
    lost = ("was acknowledged", "which is lost")
    assert any(word in problem for word in lost for problem in checker.problems)


def test_one_dropped_event_in_a_thousand_is_found_out(tmp_path: Path) -> None:
    checker = crash_until_a_problem(tmp_path, kills=MANY_KILLS, plant="drop-events")

    assert any("was never told" in problem for problem in checker.problems)
