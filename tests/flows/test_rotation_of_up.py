"""`certs rotate` beside `clusterspace up`: killed at every step, with people's clients at work.

kubectl and the Kubernetes client for Python ask hub and gateway all the time. They know nothing of
what is going on: what they retry by themselves is all the retrying there is.
"""

import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import kubernetes
import pytest
from tests.component.test_up import Fleet, wait_for

from clusterspace.roots.rotation import Site, Stage
from clusterspace.testing.quick_commands import quick_commands

KILLED_AFTER = ("made:", "trusted:", "waiting", "signing:", "looking")


class Worker(threading.Thread):
    """Does one thing again and again, until told to stop; keeps what went wrong."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._stopped = threading.Event()
        self.done = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._stopped.wait(0.2):
            try:
                self._work()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                self.failures.append(repr(error))
            self.done += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)


def kubectl(kubeconfig: Path, context: str) -> Callable[[], None]:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")

    def get() -> None:
        command = [program, "--kubeconfig", str(kubeconfig), "--context", context]
        command += ["get", "configmaps", "-n", "kube-system"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr

    return get


def stock_client(kubeconfig: Path, context: str) -> Callable[[], None]:
    """Lists and watches with one client of the library, made anew for each round as scripts do."""

    def use() -> None:
        client = kubernetes.config.new_client_from_config(str(kubeconfig), context=context)
        with client:
            api = kubernetes.client.CoreV1Api(client)
            version = ""
            for _ in range(5):
                listed = api.list_namespaced_config_map("kube-system")
                assert listed.metadata is not None
                version = listed.metadata.resource_version
            watch = kubernetes.watch.Watch()
            for _ in watch.stream(
                api.list_namespaced_config_map,
                "kube-system",
                resource_version=version,
                timeout_seconds=1,
            ):
                pass

    return use


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
    workers = {
        f"{name} at {context}": Worker(make(kubeconfig, context))
        for name, make in (("kubectl", kubectl), ("stock client", stock_client))
        for context in ("hub", "fleet")
    }
    for each in workers.values():
        each.start()
    wait_for(lambda: all(each.done > 1 for each in workers.values()))

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
    done = {name: each.done for name, each in workers.items()}
    wait_for(lambda: all(each.done > done[name] + 1 for name, each in workers.items()))
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
