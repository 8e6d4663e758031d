"""`certs rotate` beside `clusterspace up`: killed at every step, with people's clients at work.

kubectl and the Kubernetes client for Python ask hub and gateway all the time. They know nothing of
what is going on: what they retry by themselves is all the retrying there is.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.component.test_up import Fleet
from tests.flows.busy_clients import readers, start_all, until_all_went_on

from clusterspace.roots.rotation import Site, Stage
from clusterspace.testing.quick_commands import quick_commands

KILLED_AFTER = ("made:", "trusted:", "waiting", "signing:", "looking")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    started = Fleet(tmp_path / "fleet", "--members", "1")
    try:
        started.wait_ready()
        yield started
    finally:
        if started.process.poll() is None:
            started.process.send_signal(signal.SIGTERM)
            started.process.wait(timeout=60)


def rotate(directory: Path) -> list[str]:
    program = str(quick_commands() / "clusterspace")
    return [program, "certs", "rotate", "--overlap", "4", "--data-dir", str(directory)]


def run_and_kill(directory: Path, after: str) -> None:
    """Run the command, and kill it as soon as it has said that it has done this."""
    command = [*rotate(directory), "--unused-for", "3600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith(after):
                break
        running.kill()


@pytest.mark.slow
def test_every_key_is_replaced_with_kills_and_clients_and_nobody_fails(fleet: Fleet) -> None:
    directory, kubeconfig = fleet.directory, fleet.files.kubeconfig
    before = [each.installation.load_authorities().key_ids for each in rolls(directory)]
    pids = {each.name: each.pid for each in fleet.record().components}
    workers = start_all(readers(kubeconfig))

    for after in KILLED_AFTER:
        run_and_kill(directory, after)
    assert {each.stage() for each in rolls(directory)} == {Stage.SIGNING}
    last = subprocess.run(
        [*rotate(directory), "--unused-for", "5"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    until_all_went_on(workers)
    for each in workers.values():
        each.stop()

    assert last.returncode == 0, last.stdout + last.stderr
    assert {name: each.failures for name, each in workers.items()} == {each: [] for each in workers}
    assert all(each.done > 5 for each in workers.values())
    after = [each.installation.load_authorities().key_ids for each in rolls(directory)]
    assert all(old.isdisjoint(new) for old, new in zip(before, after, strict=True))
    # The processes are the same: nothing was started anew.
    assert {each.name: each.pid for each in fleet.record().components} == pids


def rolls(directory: Path):
    return Site.find(directory).rolls()
