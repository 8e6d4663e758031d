"""A hub whose process is killed at random moments keeps what it promised its clients.

The seed decides everything but the scheduler; a failure prints it. Repeat one with
`CLUSTERSPACE_CRASH_SEED=<seed> pytest tests/robustness/test_hub_crashes.py`.
"""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.component.hub_wire import PATIENCE, ROOT, HubProcess, config_map
from tests.robustness.hub_checker import HubChecker, read_lines
from tests.robustness.hub_load import VIEWS

from clusterspace.apiserver import forms
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.store.backups import inspect, read_log
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.testing.hubs import free_port
from clusterspace.testing.programs import Program

KILLS = 10
MANY_KILLS = 100
OBJECTS = 10_000


@dataclass
class Journals:
    """What the load has written since we last looked."""

    directory: Path
    _read: dict[str, int] = field(default_factory=dict)

    def new_lines(self, name: str) -> list[list[object]]:
        path = self.directory / name
        if not path.exists():
            return []
        start = self._read.get(name, 0)
        lines, length = read_lines(path.read_bytes()[start:])
        self._read[name] = start + length
        return lines


def start_hub(directory: Path, port: int, *, is_forgetful: bool, plant: str | None) -> HubProcess:
    """Start the hub as users do, or, to plant a bug or forget quickly, through the launcher."""
    command = ["clusterspace", "hub"]
    if is_forgetful or plant:
        command = ["tests.robustness.hub_launcher", *(["--forgetful"] if is_forgetful else [])]
        command += ["--plant", plant] if plant else []
    return HubProcess(directory, [*command, "--store", "sqlite"], port=port)


@contextmanager
def running_load(directory: Path, port: int, seed: int) -> Generator[Program]:
    words = [str(directory), str(port), str(seed)]
    log = directory / "load.log"
    load = Program("tests.robustness.hub_load", words, log=log, directory=ROOT)
    try:
        yield load
    finally:
        load.kill()
        load.wait()


def look(checker: HubChecker, directory: Path, journals: Journals) -> None:
    """Check against a copy, so that the next hub, not we, recovers from the crash."""
    copy = directory / "copy"
    copy.mkdir()
    for path in directory.glob("store.db*"):
        shutil.copy(path, copy / path.name)
    found = inspect(copy / "store.db")
    records = list(read_log(copy / "store.db"))
    shutil.rmtree(copy)
    ledger, diary = journals.new_lines("ledger"), journals.new_lines("diary")
    checker.check_round(ledger, diary, records, found.revision)


@dataclass
class Crashing:
    """One run: the hub there is now, and what decides its fate."""

    directory: Path
    dice: random.Random
    plant: str | None
    port: int
    hub: HubProcess | None = None

    def start(self, *, is_forgetful: bool) -> HubProcess:
        hub = start_hub(self.directory, self.port, is_forgetful=is_forgetful, plant=self.plant)
        self.hub = hub
        return hub

    def restart(self, *, is_forgetful: bool) -> HubProcess:
        """Start the hub again; now and then kill it once more while it opens its store."""
        hub = self.start(is_forgetful=is_forgetful)
        if self.dice.random() < 0.2:
            time.sleep(self.dice.uniform(0.02, 0.3))
            hub.kill()
            # It may have served already, and nobody has looked at what it did: not to be forgotten.
            hub = self.start(is_forgetful=False)
        hub.wait_ready()
        return hub

    def end(self) -> None:
        if self.hub is not None and self.hub.is_running:
            self.hub.kill()


def crash_until_a_problem(directory: Path, *, kills: int, plant: str | None = None) -> HubChecker:
    seed = int(os.environ.get("CLUSTERSPACE_CRASH_SEED") or random.randrange(10**6))
    print(f"seed {seed}")
    run = Crashing(directory, random.Random(seed), plant, free_port())
    try:
        checker = crash(run, kills, seed)
    finally:
        run.end()
    print(
        f"{checker.acknowledged} writes acknowledged, {checker.delivered} events delivered, "
        f"{checker.expired} watches expired"
    )
    return checker


def crash(run: Crashing, kills: int, seed: int) -> HubChecker:
    checker, journals = HubChecker(), Journals(run.directory)
    hub = run.start(is_forgetful=False)
    hub.wait_ready()
    with running_load(run.directory, run.port, seed) as load:
        for number in range(kills):
            time.sleep(run.dice.uniform(0.3, 1.2))
            hub.kill()
            time.sleep(0.1)  # what is on its way to the clients arrives
            assert load.poll() is None, (run.directory / "load.log").read_text()
            look(checker, run.directory, journals)
            if checker.problems:
                return checker
            hub = run.restart(is_forgetful=bool(number % 2))
        finish(load, hub, run.directory)
    look(checker, run.directory, journals)
    return checker


def finish(load: Program, hub: HubProcess, directory: Path) -> None:
    """Let the writers stop and every watcher see the last write; then stop the hub in peace."""
    time.sleep(0.3)
    load.terminate()
    try:
        code = load.wait(2 * PATIENCE)
    except subprocess.TimeoutExpired:
        code = None  # a watcher waits for an event that never comes: the checker says which
    assert code in (0, None), (directory / "load.log").read_text()
    assert hub.stop() == 0
    assert hub.bugs() == []


def assert_nothing_lost(checker: HubChecker, kills: int) -> None:
    assert checker.problems == []
    assert checker.unfinished(view.name for view in VIEWS) == []
    assert checker.truth.missing == 0, "some of the log was never seen: the run does not count"
    assert checker.acknowledged > 5 * kills, "too little happened for the run to count"
    assert checker.delivered > 5 * kills, "too little was watched for the run to count"
    assert checker.expired > 0, "no watch was told 410: the run does not count"


def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    assert_nothing_lost(crash_until_a_problem(tmp_path, kills=KILLS), KILLS)


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    assert_nothing_lost(crash_until_a_problem(tmp_path, kills=MANY_KILLS), MANY_KILLS)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        ("answer-before-commit", ("was acknowledged", "which is lost", "a read saw")),
        ("drop-events", ("was never told",)),
        pytest.param("drop-few-events", ("was never told",), marks=pytest.mark.slow),
        ("resume-late", ("was never told",)),
        ("tell-the-new-state", ("the log says", "got revision")),
    ],
)
def test_a_planted_bug_is_found_out(tmp_path: Path, plant: str, words: tuple[str, ...]) -> None:
    # It ends with the first problem; on a busy machine a few kills may all come too early for one.
    checker = crash_until_a_problem(tmp_path, kills=MANY_KILLS, plant=plant)

    assert any(word in problem for word in words for problem in checker.problems)


async def test_a_killed_hub_with_ten_thousand_objects_has_them_all_again(tmp_path: Path) -> None:
    await fill(tmp_path / "store.db", OBJECTS)

    for _ in range(2):
        print(f"ready after {await start_and_kill(tmp_path):.2f} s")


async def start_and_kill(directory: Path) -> float:
    """Start a hub, see that it has everything, kill it; return the seconds until it was ready."""
    hub = start_hub(directory, 0, is_forgetful=False, plant=None)
    try:
        seconds = hub.wait_ready()
        client = hub.client()
        found = await client.do("GET", "/api/v1/configmaps?limit=1")
        client.close()
    finally:
        hub.kill()
    assert found["metadata"]["remainingItemCount"] >= OBJECTS - 1
    return seconds


async def fill(path: Path, count: int) -> None:
    """Put ConfigMaps of about a kilobyte into a store, as a hub would have."""
    (served,) = (each for each in builtin_resources() if each.info.plural == "configmaps")
    store = await SqliteStore.open(path)
    writes = []
    for number in range(count):
        metadata = {"namespace": "default", "uid": f"uid-{number}"}
        made = config_map(f"map-{number:05}", **metadata, data={"v": "x" * 900})
        stored = forms.encode_stored(made, served.form)
        writes.append(store.put(served.key("default", f"map-{number:05}"), stored))
    for write in writes:
        await write
    await store.close()
