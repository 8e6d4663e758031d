"""A real kube-apiserver on loopback to compare with, where its programs are installed."""

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from clusterspace.testing.hubs import free_port

TOKEN = "admin-token"
ASSETS = "/usr/local/kubebuilder/bin"
"""Where controller authors have these programs, unless KUBEBUILDER_ASSETS says otherwise."""
PATIENCE = 60.0


@dataclass(frozen=True)
class RealKubernetes:
    """A running kube-apiserver."""

    url: str

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def create(self, path: str, kube_object: dict[str, Any]) -> Any:
        return self._ask("POST", path, json.dumps(kube_object).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        asked = urllib.request.Request(self.url + path, body, headers, method=method)
        # Its certificate is its own; both ends are on this machine.
        trust = ssl._create_unverified_context()
        with urllib.request.urlopen(asked, context=trust, timeout=10) as answered:
            return json.loads(answered.read() or b"null")


@contextmanager
def running_kubernetes(directory: Path) -> Generator[RealKubernetes]:
    """Run etcd and kube-apiserver; skip the asking test, by name, where they are not installed."""
    etcd, apiserver = _program("etcd"), _program("kube-apiserver")
    client_port, peer_port, port = free_port(), free_port(), free_port()
    etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    key, tokens = directory / "sa.key", directory / "tokens.csv"
    key.write_bytes(_private_key())
    tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    with ExitStack() as stack:
        stack.enter_context(
            _running(
                directory / "etcd.log",
                [
                    etcd,
                    f"--data-dir={directory / 'etcd'}",
                    f"--listen-client-urls={etcd_url}",
                    f"--advertise-client-urls={etcd_url}",
                    f"--listen-peer-urls={peer_url}",
                    f"--initial-advertise-peer-urls={peer_url}",
                    f"--initial-cluster=default={peer_url}",
                    "--unsafe-no-fsync",
                ],
            )
        )
        stack.enter_context(
            _running(
                directory / "kube-apiserver.log",
                [
                    apiserver,
                    f"--etcd-servers={etcd_url}",
                    f"--secure-port={port}",
                    "--bind-address=127.0.0.1",
                    "--advertise-address=127.0.0.1",
                    "--endpoint-reconciler-type=none",  # from 1.37 on, loopback is not published
                    f"--cert-dir={directory / 'certs'}",
                    f"--service-account-key-file={key}",
                    f"--service-account-signing-key-file={key}",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--token-auth-file={tokens}",
                    "--authorization-mode=RBAC",
                    "--service-cluster-ip-range=10.0.0.0/24",
                    "--disable-admission-plugins=ServiceAccount",
                ],
            )
        )
        kubernetes = RealKubernetes(f"https://127.0.0.1:{port}")
        wait_until(lambda: kubernetes.get("/apis/apps/v1") and kubernetes.get("/api/v1"))
        yield kubernetes


def wait_until(is_done: Callable[[], Any]) -> None:
    """Ask again until the answer is yes; the last refusal is the failure."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if is_done():
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@contextmanager
def _running(log: Path, command: list[str]) -> Generator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _program(name: str) -> str:
    assets = os.environ.get("KUBEBUILDER_ASSETS", ASSETS)
    found = shutil.which(name, path=f"{assets}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"{name} not found: set KUBEBUILDER_ASSETS to the folder that holds it")
    return found


def _private_key() -> bytes:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
