"""The API servers a benchmark asks: our hub, and a real kube-apiserver where there is one."""

import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.component.hub_wire import ADMIN, TOKENS, HubClient, HubProcess, tls_of

from clusterspace.testing.hubs import free_port

ASSETS = "/usr/local/kubebuilder/bin"
"""Where controller authors have these programs, unless KUBEBUILDER_ASSETS says otherwise."""
PATIENCE = 60.0


@dataclass(frozen=True)
class ApiServer:
    """A running server, and what it costs."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext
    processes: tuple[int, ...]

    def client(self) -> HubClient:
        return HubClient(self.host, self.port, self.tls)

    @property
    def cpu_seconds(self) -> float:
        """How long its processes, a database among them, have kept a processor busy."""
        return usage_of(self.processes).cpu_seconds

    @property
    def resident_bytes(self) -> int:
        """How much memory its processes hold."""
        return usage_of(self.processes).resident_bytes


@dataclass(frozen=True)
class Usage:
    """What some processes have used so far, and hold."""

    cpu_seconds: float
    resident_bytes: int


def usage_of(processes: Iterable[int]) -> Usage:
    """Return what these processes cost together."""
    counted = tuple(processes)
    return Usage(sum(map(_cpu_seconds, counted)), sum(map(_resident_bytes, counted)))


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running_hub(directory: Path, name: str = "hub", *command: str) -> Generator[ApiServer]:
    """Run a hub on disk, as a user does."""
    # Members of benchmarks are on this machine, where a hub lets none be without being told.
    options = ("--store", "sqlite", "--allow-member-cidrs", "127.0.0.0/8")
    hub = HubProcess(directory, [*(command or ("clusterspace", "hub")), *options])
    try:
        hub.wait_ready()
        host, port = hub.address
        yield ApiServer(name, host, port, tls_of(directory), (hub.process_id,))
    except BaseException:
        print(f"running: {hub.is_running}; its last words:\n{hub.log.read_text()[-2000:]}")
        raise
    finally:
        hub.kill()


def find_kubernetes() -> Path | None:
    """Return the folder with etcd and kube-apiserver, or None."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", ASSETS)
    found = shutil.which("kube-apiserver", path=assets)
    return Path(assets) if found and shutil.which("etcd", path=assets) else None


@contextmanager
def running_kubernetes(directory: Path, assets: Path) -> Generator[ApiServer]:
    """Run kube-apiserver and etcd with every fsync, as the hub does."""
    client_port, peer_port, port = free_port(), free_port(), free_port()
    etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    etcd = [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    ]
    with ExitStack() as stack:
        database = stack.enter_context(running_program(assets / "etcd", etcd, directory))
        flags = apiserver_flags(directory, etcd_url, port)
        server = stack.enter_context(running_program(assets / "kube-apiserver", flags, directory))
        tls = ssl._create_unverified_context()  # its certificate is its own
        wait_ready(port, tls)
        yield ApiServer("kube-apiserver", "127.0.0.1", port, tls, (server.pid, database.pid))


def apiserver_flags(directory: Path, etcd_url: str, port: int) -> list[str]:
    """Return the flags of a kube-apiserver on this etcd, and make what they name."""
    key, tokens = directory / "sa.key", directory / "tokens.csv"
    key.write_bytes(_private_key())
    tokens.write_text(TOKENS)
    return [
        f"--etcd-servers={etcd_url}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",  # from 1.37 on, loopback is not published
        f"--cert-dir={directory / 'certificates'}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
    ]


@contextmanager
def running_program(
    program: Path, arguments: list[str], directory: Path
) -> Generator[subprocess.Popen[bytes]]:
    """Run a program; its output goes to a file beside its data."""
    with (directory / f"{program.name}.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, cwd=directory)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_ready(port: int, tls: ssl.SSLContext) -> None:
    """Wait until an API server says that it is ready."""
    deadline = time.monotonic() + PATIENCE
    headers = {"Authorization": f"Bearer {ADMIN}"}
    asked = urllib.request.Request(f"https://127.0.0.1:{port}/readyz", headers=headers)
    while True:
        try:
            with urllib.request.urlopen(asked, context=tls, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _private_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
