"""Every hub and gateway of `up --ha` is restarted, one after the other, with clients at work.

The clients are stock ones: kubectl as a process, and the Kubernetes client for Python, which keeps
its connections. What they retry by themselves is all the retrying there is. Writes of the Python
client are not repeated by it at all once they were sent.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.component.test_up import wait_for
from tests.component.test_up_ha import PATIENCE, HaFleet, require_etcd
from tests.flows.busy_clients import readers, start_all, until_all_went_on, watcher, writers

from clusterspace.roots.rotation import Site

ROTATE = (
    *(sys.executable, "-m", "clusterspace", "certs", "rotate"),
    *("--overlap", "15", "--unused-for", "10"),
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[HaFleet]:
    require_etcd()
    started = HaFleet(tmp_path / "fleet")
    try:
        started.wait_ready()
        yield started
    finally:
        if started.process.poll() is None:
            started.process.send_signal(signal.SIGTERM)
            started.process.wait(timeout=PATIENCE)


@pytest.mark.slow
def test_a_rolling_restart_costs_nobody_a_request(fleet: HaFleet) -> None:
    kubeconfig = fleet.files.kubeconfig
    follow, seen = watcher(kubeconfig)
    workers = start_all({**readers(kubeconfig), **writers(kubeconfig), "watcher": follow})

    for part in ("hub-1", "hub-2", "hub-3", "fleet-1", "fleet-2", "controllers-1", "etcd-1"):
        before = fleet.pid_of(part)
        assert before is not None
        os.kill(before, signal.SIGTERM)
        wait_for(lambda part=part, pid=before: fleet.pid_of(part) not in (None, pid), PATIENCE)
        wait_for(fleet.all_ready, PATIENCE)
        until_all_went_on(workers, rounds=1)
    for name, each in workers.items():
        if name != "watcher":
            each.stop()
    # What the watcher saw is what was written: nothing twice, nothing left out, whoever told it.
    written = workers["writer at hub"].done
    wait_for(lambda: f"DELETED hub-{written - 1}" in seen, PATIENCE)
    workers["watcher"].stop()

    assert {name: each.failures for name, each in workers.items()} == {each: [] for each in workers}
    own = [each for each in seen if each.split()[1].startswith("hub-")]
    assert own == [
        f"{change} hub-{number}"
        for number in range(written)
        for change in ("ADDED", "MODIFIED", "DELETED")
    ]


@pytest.mark.slow
def test_every_key_is_replaced_at_all_replicas_and_nobody_fails(fleet: HaFleet) -> None:
    directory, kubeconfig = fleet.directory, fleet.files.kubeconfig
    rolls = Site.find(directory).rolls()
    before = [each.installation.load_authorities().key_ids for each in rolls]
    pids = {each.name: each.pid for each in fleet.record().components}
    workers = start_all(readers(kubeconfig))

    rotated = subprocess.run(
        [*ROTATE, "--data-dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    until_all_went_on(workers)
    for each in workers.values():
        each.stop()

    assert rotated.returncode == 0, rotated.stdout + rotated.stderr
    assert {name: each.failures for name, each in workers.items()} == {each: [] for each in workers}
    after = [each.installation.load_authorities().key_ids for each in rolls]
    assert all(old.isdisjoint(new) for old, new in zip(before, after, strict=True))
    for server, numbers in (("hub", (2, 3)), ("fleet", (2,))):
        first = fleet.files.replica(server, 1) / "pki"
        for number in numbers:
            own = fleet.files.replica(server, number) / "pki"
            for name in ("ca.crt", "ca.key"):
                assert (own / name).read_bytes() == (first / name).read_bytes()
    # The processes are the same: nothing was started anew.
    assert {each.name: each.pid for each in fleet.record().components} == pids
