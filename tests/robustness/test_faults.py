"""Hubs and etcd on three machines, whatever happens to them: what was told is true, and stays.

Each round is a seed: which processes die or stand still, which links are cut and in which
direction, whose disk is slow or full, whose clock is wrong, and when etcd forgets. Clients,
watchers and leaders do not know of it; `fault_judge.py` holds what they noted against etcd's own
log.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from tempfile import mkdtemp

import msgspec
import pytest
from tests.component.hub_wire import ROOT
from tests.robustness.failover import WINDOW
from tests.robustness.fault_runner import Round, Verdict
from tests.robustness.fault_world import BLOCKS

from clusterspace.testing.etcd import find_etcd

SEED = int(os.environ.get("CLUSTERSPACE_FAULT_SEED") or SystemRandom().randrange(1 << 30))
ROUNDS = int(os.environ.get("CLUSTERSPACE_FAULT_ROUNDS") or 200)
SECONDS = 6.0
ROUNDS_OF_A_WORLD = 20
DEATHS = 10
PATIENCE = 180.0

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class Player:
    """A world in namespaces, and whoever plays rounds in it; all of it ends when he does."""

    def __init__(self, *options: str) -> None:
        is_root = os.geteuid() == 0
        words = [*NAMESPACES, *(() if is_root else ("--user", "--map-root-user")), sys.executable]
        self.directory = Path(mkdtemp(prefix="faults-"))
        self.rounds = 0
        self._process = subprocess.Popen(
            [*words, "-m", "tests.robustness.fault_runner", str(self.directory), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            text=True,
        )
        assert self._line() == "ready"

    def play(self, round_: Round) -> Verdict:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(round_).decode() + "\n")
        self._process.stdin.flush()
        self.rounds += 1
        return msgspec.json.decode(self._line(), type=Verdict)

    def _line(self) -> str:
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline().strip()
        finally:
            watchdog.cancel()
        assert line, f"the world has ended; what is left of it is in {self.directory}"
        return line

    def end(self, *, keep: bool = False) -> None:
        self._process.kill()
        self._process.communicate()
        # All else was in namespaces, which are gone; control groups are the machine's.
        for group in BLOCKS.glob(f"clusterspace-{self.directory.name}-*"):
            with suppress(OSError):
                group.rmdir()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def require_namespaces() -> None:
    words = [*NAMESPACES, *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    missing = [each for each in ("unshare", "ip", "iptables", "mount") if not shutil.which(each)]
    if find_etcd() is None:
        pytest.skip("no etcd: set KUBEBUILDER_ASSETS to where it is, or have it in PATH")
    if missing or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip(f"no namespaces of networks, processes and mounts ({missing or 'not allowed'})")


@pytest.fixture(scope="module")
def players() -> Iterator[list[Player]]:
    """The world that rounds are played in; now and then a new one."""
    require_namespaces()
    running: list[Player] = []
    yield running
    for each in running:
        each.end()


def play(players: list[Player], round_: Round) -> Verdict:
    if players and players[0].rounds >= ROUNDS_OF_A_WORLD:
        players.pop().end()
    if not players:
        players.append(Player())
    try:
        verdict = players[0].play(round_)
    except BaseException:
        players.pop().end(keep=True)
        raise
    print(f"seed {round_.seed}: {verdict}")
    if verdict.problems:
        players.pop().end(keep=True)
    return verdict


def again(seed: int) -> str:
    return (
        f"CLUSTERSPACE_FAULT_SEED={seed} CLUSTERSPACE_FAULT_ROUNDS=1"
        " make robustness ARGS='tests/robustness/test_faults.py -k survives'"
    )


def test_a_short_round_of_faults_is_survived(players: list[Player]) -> None:
    verdict = play(players, Round(SEED, 3.0))
    assert verdict.problems == [], again(SEED)
    assert verdict.events
    assert verdict.faults


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_what_was_told_survives_a_round_of_faults(players: list[Player], turn: int) -> None:
    verdict = play(players, Round(SEED + turn, SECONDS))
    assert verdict.problems == [], again(SEED + turn)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["silently", "with a refusal"])
def test_writes_go_on_when_a_machine_dies(players: list[Player], way: str) -> None:
    pauses = sorted(
        pause
        for turn in range(DEATHS)
        for pause in play(players, Round(SEED + turn, 0.0, dies=way)).pauses
    )
    p99 = pauses[len(pauses) * 99 // 100]
    print(f"{len(pauses)} clients: p50 {pauses[len(pauses) // 2]:.2f} s, p99 {p99:.2f} s")
    assert p99 < WINDOW, "some client was not answered for as long as it was looked at"


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    ["no-fence", "early-answer", "stale-read", "no-comparison", "resume-late", "drop-events"],
)
def test_a_planted_bug_is_found(bug: str) -> None:
    require_namespaces()
    player = Player("--plant", bug)
    try:
        verdicts = [player.play(Round(SEED + turn, 5.0, is_calm=True)) for turn in range(2)]
    finally:
        player.end()
    print(verdicts)
    assert any(each.problems for each in verdicts), f"{bug} passed unnoticed"
