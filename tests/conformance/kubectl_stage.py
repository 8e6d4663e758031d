"""Where a kubectl command is tried: a namespace of its own, with the objects it is about."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.conformance.hubs import PATIENCE, RunningHub

Object = Mapping[str, Any]

LABELS: Final = {"app": "web"}
PATHS: Final = {
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "configmaps": "/api/v1/namespaces/NS/configmaps",
    "cronjobs": "/apis/batch/v1/namespaces/NS/cronjobs",
    "deployments": "/apis/apps/v1/namespaces/NS/deployments",
    "horizontalpodautoscalers": "/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers",
    "ingresses": "/apis/networking.k8s.io/v1/namespaces/NS/ingresses",
    "jobs": "/apis/batch/v1/namespaces/NS/jobs",
    "namespaces": "/api/v1/namespaces",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/NS/poddisruptionbudgets",
    "pods": "/api/v1/namespaces/NS/pods",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "replicasets": "/apis/apps/v1/namespaces/NS/replicasets",
    "resourcequotas": "/api/v1/namespaces/NS/resourcequotas",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings",
    "roles": "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles",
    "secrets": "/api/v1/namespaces/NS/secrets",
    "serviceaccounts": "/api/v1/namespaces/NS/serviceaccounts",
    "services": "/api/v1/namespaces/NS/services",
}
"""Where each resource of the tests lives; NS stands for the stage's namespace."""


def deployment(replicas: int, name: str = "web") -> Object:
    """Return a Deployment of one container."""
    container = {"name": "web", "image": "nginx:1.27", "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template},
    }


def pod(name: str, app: str) -> Object:
    """Return a Pod of one container."""
    spec = {"containers": [{"name": "c", "image": "busybox"}]}
    metadata = {"name": name, "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config_map(name: str, value: str, **labels: str) -> Object:
    """Return a ConfigMap with one key, `a`."""
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}}


FILES: Final = {
    "d.yaml": deployment(2),
    "d2.yaml": deployment(3),
    "pod.yaml": pod("p", app="p"),
    "list.yaml": {
        "apiVersion": "v1",
        "kind": "List",
        "items": [deployment(2), config_map("x", "b")],
    },
    "unknown.yaml": {"apiVersion": "example.com/v1", "kind": "Riddle", "metadata": {"name": "r"}},
}
"""What `-f DIR/…` names."""

FURNITURE: Final = {
    "web": ("deployments", deployment(2)),
    "web1": ("deployments", deployment(1)),
    "web3": ("deployments", deployment(3)),
    "api": ("deployments", deployment(2, name="api")),
    "p": ("pods", pod("p", app="p")),
    "q": ("pods", pod("q", app="q")),
    "w": ("pods", pod("w", app="web")),
    "x": ("configmaps", config_map("x", "b")),
    "y": ("configmaps", config_map("y", "c", a="b")),
    "bot": ("serviceaccounts", {"metadata": {"name": "bot"}}),
    "s": ("secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
}
"""What a stage may hold before the command, by short name."""


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    exit_code: int
    output: str
    error: str


@dataclass(frozen=True)
class Stage:
    """A namespace on a hub, files, and a kubectl that points there."""

    hub: RunningHub
    namespace: str
    directory: Path
    environment: Mapping[str, str]

    def kubectl(self, command: str) -> Ran:
        """Run a command, written without the word `kubectl`, to its end."""
        with self.start(command) as process:
            try:
                output, error = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()  # else it is waited for, for ever, on the way out
                raise
        return Ran(process.returncode, output, error)

    def start(self, command: str) -> "subprocess.Popen[str]":
        """Start a command that the test wants to see at work; leave it with `with`."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [find_program("kubectl"), *self.place(command).split()],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=dict(self.environment),
        )

    def place(self, text: str) -> str:
        """Fill in this stage's namespace and folder."""
        return text.replace("NS", self.namespace).replace("DIR", str(self.directory))

    def path(self, resource: str, name: str = "") -> str:
        """Return the API path of a resource, or of one object."""
        return self.place(PATHS[resource]) + (f"/{name}" if name else "")

    def read(self, resource: str, name: str) -> Any:
        """Return an object as the API has it, not as kubectl shows it."""
        return self.hub.get(self.path(resource, self.place(name)))

    def exists(self, resource: str, name: str) -> bool:
        """Say whether the API has the object."""
        return self.hub.ask("GET", self.path(resource, self.place(name))).status == 200

    def create(self, resource: str, kube_object: Object) -> Any:
        """Create an object past kubectl."""
        return self.hub.create(self.path(resource), kube_object)

    def furnish(self, names: Iterable[str]) -> None:
        """Create the named objects past kubectl."""
        for name in names:
            self.create(*FURNITURE[name])


class Stages:
    """Stages on one hub, one after the other; kubectl's discovery cache is shared."""

    def __init__(self, hub: RunningHub, directory: Path, kubeconfig: Path | None = None) -> None:
        self._hub = hub
        self._directory = directory
        self._kubeconfig = kubeconfig or hub.kubeconfig
        self._numbers = itertools.count(1)

    def open(self, *, with_namespace: bool = True) -> Stage:
        """Return a stage in a namespace nobody used before."""
        namespace = f"stage-{next(self._numbers)}"
        directory = self._directory / namespace
        directory.mkdir()
        for name, kube_object in FILES.items():
            (directory / name).write_bytes(msgspec.yaml.encode(kube_object))
        if with_namespace:
            self._hub.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        return Stage(self._hub, namespace, directory, self._environment(directory))

    def _environment(self, directory: Path) -> dict[str, str]:
        quicker = {each: os.environ[each] for each in ("GOGC", "GOMEMLIMIT") if each in os.environ}
        return {
            **quicker,
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self._directory),
            "TMPDIR": str(directory),
            "KUBECACHEDIR": str(self._directory / "cache"),
            "KUBECONFIG": str(self._kubeconfig),
            "KUBE_EDITOR": str(write_editor(directory, "s/replicas: .*/replicas: 7/")),
        }


def write_editor(directory: Path, change: str) -> Path:
    """Write an editor that keeps what it is shown in `seen`, does one sed expression, and saves."""
    editor = directory / "editor"
    editor.write_text(f'#!/bin/sh\ncat "$1" >> {directory}/seen\nsed -i \'{change}\' "$1"\n')
    editor.chmod(0o755)
    return editor


def find_program(name: str) -> str:
    """Return the program's path; skip the asking test, by name, where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} not found on PATH")
    return found
