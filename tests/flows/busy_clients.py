"""Stock clients that are at work all the time, while something is done to the servers they ask.

    workers = start_all(readers(kubeconfig))
    ...                                             # restart, rotate, upgrade
    until_all_went_on(workers)
    assert all(each.failures == [] for each in workers.values())

They are kubectl as a process, and the Kubernetes client for Python. What they retry by themselves
is all the retrying there is.
"""

import itertools
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from tests.component.test_up import wait_for

CONTEXTS = ("hub", "fleet")
PATIENCE = 180.0


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


def readers(kubeconfig: Path) -> dict[str, Callable[[], None]]:
    """Return what people read all the time, with both clients, of the hub and of the fleet."""
    return {
        f"{name} at {context}": make(kubeconfig, context)
        for name, make in (("kubectl", kubectl), ("stock client", stock_client))
        for context in CONTEXTS
    }


def writers(kubeconfig: Path) -> dict[str, Callable[[], None]]:
    """Return what programs write all the time, at the hub and through the fleet."""
    return {f"writer at {context}": stock_writer(kubeconfig, context) for context in CONTEXTS}


def start_all(works: Mapping[str, Callable[[], None]]) -> dict[str, Worker]:
    """Start doing all of this at the same time, and wait until each was done twice."""
    workers = {name: Worker(work) for name, work in works.items()}
    for each in workers.values():
        each.start()
    until_all_went_on(workers)
    return workers


def until_all_went_on(workers: Mapping[str, Worker], rounds: int = 2) -> None:
    """Wait until everybody has done their work so many times more."""
    goals = {name: each.done + rounds for name, each in workers.items()}
    wait_for(lambda: all(each.done >= goals[name] for name, each in workers.items()), PATIENCE)
