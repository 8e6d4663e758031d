"""Every hub and gateway of `up --ha` is restarted, one after the other, with clients at work.

The clients are stock ones: kubectl as a process, and the Kubernetes client for Python, which keeps
its connections. What they retry by themselves is all the retrying there is. Writes of the Python
client are not repeated by it at all once they were sent.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from tests.component.test_up import wait_for
from tests.component.test_up_ha import PATIENCE, HaFleet, require_etcd
from tests.flows.test_rotation_of_up import Worker, kubectl, stock_client

from clusterspace.roots.rotation import Site

ROTATE = (
    *(sys.executable, "-m", "clusterspace", "certs", "rotate"),
    *("--overlap", "15", "--unused-for", "10"),
)


def stock_writer(kubeconfig: Path, context: str) -> Callable[[], None]:
    """Creates, changes, reads and deletes, all on the connections of one client."""
    client = kubernetes.config.new_client_from_config(str(kubeconfig), context=context)
    api = kubernetes.client.CoreV1Api(client)
    numbers = itertools.count()

    def write() -> None:
        name = f"{context}-{next(numbers)}"
        body = kubernetes.client.V1ConfigMap(metadata=kubernetes.client.V1ObjectMeta(name=name))
        api.create_namespaced_config_map("default", body)
        api.patch_namespaced_config_map(name, "default", {"data": {"a": "b"}})
        assert api.read_namespaced_config_map(name, "default").data == {"a": "b"}
        api.delete_namespaced_config_map(name, "default")

    return write


def watcher(kubeconfig: Path) -> tuple[Callable[[], None], list[str]]:
    """Follows all ConfigMaps as informers do: from one version on, however often it is cut."""
    client = kubernetes.config.new_client_from_config(str(kubeconfig), context="hub")
    api = kubernetes.client.CoreV1Api(client)
    listed: Any = api.list_namespaced_config_map("default")
    state = {"version": listed.metadata.resource_version}
    seen: list[str] = []

    def follow() -> None:
        stream: Any = kubernetes.watch.Watch().stream(
            api.list_namespaced_config_map,
            "default",
            resource_version=state["version"],
            timeout_seconds=5,
        )
        for event in stream:
            metadata = event["object"].metadata
            state["version"] = metadata.resource_version
            seen.append(f"{event['type']} {metadata.name}")

    return follow, seen


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
    works = {
        f"{name} at {context}": make(kubeconfig, context)
        for name, make in (
            ("kubectl", kubectl),
            ("stock client", stock_client),
            ("writer", stock_writer),
        )
        for context in ("hub", "fleet")
    }
    workers = {name: Worker(work) for name, work in {**works, "watcher": follow}.items()}
    for each in workers.values():
        each.start()
    wait_for(lambda: all(each.done > 1 for each in workers.values()), PATIENCE)

    for part in ("hub-1", "hub-2", "hub-3", "fleet-1", "fleet-2", "controllers-1", "etcd-1"):
        before = fleet.pid_of(part)
        assert before is not None
        os.kill(before, signal.SIGTERM)
        wait_for(lambda part=part, pid=before: fleet.pid_of(part) not in (None, pid), PATIENCE)
        wait_for(fleet.all_ready, PATIENCE)
        done = {name: each.done for name, each in workers.items()}
        wait_for(
            lambda done=done: all(each.done > done[name] for name, each in workers.items()),
            PATIENCE,
        )
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
    workers = {
        f"{name} at {context}": Worker(make(kubeconfig, context))
        for name, make in (("kubectl", kubectl), ("stock client", stock_client))
        for context in ("hub", "fleet")
    }
    for each in workers.values():
        each.start()
    wait_for(lambda: all(each.done > 1 for each in workers.values()), PATIENCE)

    rotated = subprocess.run(
        [*ROTATE, "--data-dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    done = {name: each.done for name, each in workers.items()}
    wait_for(lambda: all(each.done > done[name] + 1 for name, each in workers.items()), PATIENCE)
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
