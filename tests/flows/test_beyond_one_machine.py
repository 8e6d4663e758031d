"""docs/guides/beyond-one-machine.md: everything that it types is typed, on one machine.

What a page for three machines says of theirs is said of this one: addresses, and directories that
only root may write to. etcd is a real one, with one member and TLS; the Kubernetes cluster that
pods are started in is a simulated one.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.component.deployed_parts import wait_for
from tests.component.test_up_ha import require_etcd
from tests.flows.pages import DOCS, ROOT, Mode, Step, read_steps
from tests.flows.terminals import Terminal
from tests.flows.test_docs import environment

from clusterspace.aio.clocks import SystemClock
from clusterspace.roots.local.etcd import LocalEtcd, find_etcd
from clusterspace.testing.hubs import ASSETS, free_port
from clusterspace.testing.programs import Program

PAGE = DOCS / "guides" / "beyond-one-machine.md"
PATIENCE = 240.0
TRIED = 3
"""How many steps there are before the page leaves the one machine."""


@pytest.mark.slow
def test_trying_it_works_as_written(tmp_path: Path) -> None:
    require_etcd()
    steps = read_steps(PAGE)[:TRIED]
    assert "--ha" in steps[0].commands
    assert "clusterspace down" in steps[-1].commands
    terminal = Terminal(tmp_path, environment(tmp_path), PATIENCE)
    try:
        for step in steps:
            terminal.follow(step)
    finally:
        terminal.type("clusterspace down")
        terminal.close()


class Site:
    """The three machines of the page, all of them this one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.left = read_steps(PAGE)[TRIED:]
        self.hub_port = free_port()
        self.etcd = LocalEtcd(directory / "etcd", {"etcd-1": free_port()}, {"etcd-1": free_port()})
        client, peer = self.etcd.settings.servers[0], self.etcd.peer_ports["etcd-1"]
        self.places = {
            "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379": client,
            "https://10.0.0.1:2379": client,
            ",etcd-2=https://10.0.0.2:2380,etcd-3=https://10.0.0.3:2380": "",
            "https://10.0.0.1:2380": f"https://127.0.0.1:{peer}",
            "/etc/clusterspace": str(directory / "settings"),
            "/var/lib": str(directory / "data"),
            "hub.example.com:5443": f"127.0.0.1:{self.hub_port}",
            "--host 0.0.0.0": "--host 127.0.0.1",
            "--shutdown-delay-duration 10": "--shutdown-delay-duration 1",
        }
        own = environment(directory)
        own["PATH"] += f":{os.environ.get('KUBEBUILDER_ASSETS') or ASSETS}"
        own |= {"CLUSTERSPACE_HUB_PORT": str(self.hub_port)}
        self.terminal = Terminal(directory, own, PATIENCE)
        (directory / "deploy").symlink_to(ROOT / "deploy")
        (directory / "settings").mkdir()
        (directory / "data").mkdir()
        self.etcd.prepare(SystemClock().now())
        for name, file in (
            ("ca.crt", "etcd-ca.crt"),
            ("hub.crt", "etcd.crt"),
            ("hub.key", "etcd.key"),
        ):
            shutil.copy(self.etcd.directory / "pki" / name, directory / "settings" / file)

    @property
    def hub(self) -> Path:
        return self.directory / "data" / "clusterspace" / "hub"

    def step(self, words: str) -> Step:
        """Return the step of the page that has these words, as it is typed here."""
        found = next(each for each in self.left if words in each.commands)
        self.left.remove(found)
        commands = found.commands
        for there, here in self.places.items():
            commands = commands.replace(there, here)
        assert not re.search(r"10\.0\.0|example\.com", commands), commands
        return replace(found, commands=commands)

    def follow(self, *words: str) -> None:
        for each in words:
            self.terminal.follow(self.step(each))

    def kubectl(self, *words: str) -> str:
        return self.terminal.type(
            " ".join(("kubectl", "--kubeconfig", f"{self.hub}/kubeconfig", *words))
        )

    @contextmanager
    def running_hub(self, step: Step) -> Generator[None]:
        """Run the hub in a terminal of its own, as the page starts it."""
        (self.hub / "kubeconfig").unlink(missing_ok=True)
        ready = str((self.hub / "kubeconfig").relative_to(self.directory))
        self.terminal.follow(replace(step, mode=Mode.BACKGROUND, detail=ready))
        try:
            yield
        finally:
            self.terminal.follow(Step("", "", Mode.INTERRUPT))

    @contextmanager
    def running_etcd(self, data: Path | None = None) -> Generator[None]:
        command = list(self.etcd.command(find_etcd(), "etcd-1"))
        if data is not None:
            command = [f"--data-dir={data}" if "--data-dir" in each else each for each in command]
        with (self.directory / "etcd.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.slow
def test_what_is_typed_on_three_machines_works_on_one(tmp_path: Path) -> None:
    require_etcd()
    site = Site(tmp_path)
    for program in ("openssl", "etcdctl", "etcdutl"):
        site.terminal.type(f"command -v {program}")
    site.follow("encryption.yaml <<EOF", "openssl req", "clusterspace-fleet/pki")
    with ExitStack() as stack:
        stack.callback(site.terminal.close)

        # A hub on SQLite, whose objects are taken along.
        words = ["hub", "--data-dir", str(site.hub), "--port", "0"]
        alone = Program("clusterspace", words, log=tmp_path / "alone.log")
        wait_for((site.hub / "kubeconfig").exists, "the hub is ready")
        site.kubectl("create configmap first --namespace default")
        alone.terminate()
        assert alone.wait(PATIENCE) == 0

        start = site.step("clusterspace hub")
        with site.running_etcd():
            site.follow("store migrate")
            with site.running_hub(start):
                site.terminal.type(f"export KUBECONFIG={site.hub}/kubeconfig")
                site.kubectl("get configmap first --namespace default")
                assert f"127.0.0.1:{site.hub_port}" in site.kubectl("config view")
                site.follow("kubectl get lease", "/readyz?verbose")
                site.follow("store backup", "store restore", "etcdctl snapshot save")
                site.kubectl("create configmap later --namespace default")

        site.follow("etcdutl snapshot restore")
        restored = tmp_path / "data" / "etcd-restored"
        with site.running_etcd(restored), site.running_hub(start):
            told = site.kubectl("get configmaps --namespace default --output name")
            assert ("configmap/first" in told, "configmap/later" in told) == (True, False)

        # A cluster to run it in.
        cluster = tmp_path / "cluster"
        words = ["sim", "cluster", "--data-dir", str(cluster)]
        member = Program("clusterspace", words, log=tmp_path / "cluster.log")
        stack.callback(member.terminate)
        wait_for((cluster / "kubeconfig").exists, "the cluster is ready")
        site.terminal.type(f"export KUBECONFIG={cluster}/kubeconfig")
        site.follow("create secret generic", "rollout restart")
        pods = site.terminal.type("kubectl -n clusterspace get pods --output name")
        assert pods.split() == [f"pod/clusterspace-{number}" for number in range(3)]
    assert site.left == []
