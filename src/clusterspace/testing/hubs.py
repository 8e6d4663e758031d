"""API servers for tests: our hub in this event loop, a real kube-apiserver where there is one."""

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.errors import ClusterspaceError
from clusterspace.roots.hub import running_hub
from clusterspace.roots.init import InitRequest, initialize
from clusterspace.roots.installation import Installation, write_pair
from clusterspace.roots.settings import HubSettings
from clusterspace.roots.webhook import WebhookSettings, running_webhook

ASSETS: Final = Path("/usr/local/kubebuilder/bin")
"""Where controller authors have these programs, unless KUBEBUILDER_ASSETS says otherwise."""

_HUB_CONTROLLERS: Final = (
    "namespace-controller",
    "garbage-collector-controller",
    "certificatesigningrequest-signing-controller",
)
"""What runs beside a hub: no workloads, for they are templates there."""

_ABOUT_PODS: Final = (
    "DefaultTolerationSeconds",
    "Priority",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
)
"""What a hub does not ask of pods: they are templates, and run where their accounts are."""

_SIGNING: Final = (
    ("cert", "crt"),
    ("key", "key"),
)
_TOKEN: Final = "admin-token"  # noqa: S105 - of a server that lives as long as a test
_LOWEST_PORT: Final = 15_000
_EPHEMERAL_START: Final = 32_768
_PORT_TRIES: Final = 1_000
_given_ports: set[int] = set()
_START_SECONDS: Final = 150.0
"""A kube-apiserver is ready after three; on a machine with much else to do it took over 60."""

OURS, KUBERNETES, SEVERAL = "clusterspace", "kubernetes", "several"
"""Kinds of hubs: our own, a kube-apiserver that `clusterspace init` made one, and three of ours on
one etcd behind one address."""

MASTERS_TRAVEL: Final = MemberIdentities(passes_masters=True)
"""Administrators of the hub are administrators of its members."""


@dataclass(frozen=True, slots=True)
class RealServer:
    """A running kube-apiserver and its etcd."""

    settings: ConnectionSettings
    etcd_url: str
    assets: Path
    process_id: int
    """Of the kube-apiserver, for tests that stop it."""

    async def compact(self, revision: int) -> None:
        """Make etcd forget everything before a revision."""
        await _run(
            self.assets / "etcdctl", [f"--endpoints={self.etcd_url}", "compact", str(revision)]
        )


@asynccontextmanager
async def hub_for_test(
    directory: Path,
    *,
    name: str = "hub",
    tokens: str = "",
    identities: MemberIdentities = MASTERS_TRAVEL,
    optional_apis: frozenset[str] = frozenset(),
) -> AsyncGenerator[ConnectionSettings]:
    """Run a hub on the memory store in this event loop, over loopback TLS.

    Its members may be on this machine too, as in all tests, and its administrator is theirs, as in
    `clusterspace up`. `tokens` are lines of a file as kube-apiserver reads it.
    """
    token_file = directory / "tokens.csv" if tokens else None
    if token_file is not None:
        token_file.write_text(tokens)
    settings = HubSettings(
        data_dir=directory,
        port=0,
        store="memory",
        member_cidrs=LOOPBACK,
        token_auth_file=token_file,
        identities=identities,
        optional_apis=optional_apis,
    )
    async with running_hub(settings):
        yield read_kubeconfig([directory / "kubeconfig"]).settings(cluster=name)


def part_of_hub(directory: Path, part: str) -> ConnectionSettings:
    """Return how a part of the control plane reaches the hub in this directory, as itself."""
    return read_kubeconfig([Installation(directory).component_kubeconfig(part)]).settings(
        cluster="hub"
    )


@asynccontextmanager
async def client_for_test(settings: ConnectionSettings) -> AsyncGenerator[ClusterClient]:
    """Open a client for as long as the block lasts."""
    connection = Connection(settings, clock=SystemClock(), random=Random(1))  # noqa: S311 - jitter
    try:
        yield ClusterClient(connection)
    finally:
        await connection.close()


def find_real_kubernetes() -> Path | None:
    """Return the directory that holds kube-apiserver and etcd, or None."""
    directory = Path(os.environ.get("KUBEBUILDER_ASSETS") or ASSETS)
    needed = ("kube-apiserver", "etcd", "etcdctl")
    return directory if all((directory / each).exists() for each in needed) else None


@asynccontextmanager
async def real_server_for_test(
    directory: Path,
    *arguments: str,
    name: str = "real",
    without: str = "ServiceAccount",
    tokens: str = "",
) -> AsyncGenerator[RealServer]:
    """Run etcd and kube-apiserver; skip the asking test, by name, where they are not installed.

    `without` are the admission plug-ins it lacks: most tests have nobody who makes accounts.
    `tokens` are lines of its token file, beside the administrator's.
    """
    assets = find_real_kubernetes()
    if assets is None:
        pytest.skip("no kube-apiserver and etcd: set KUBEBUILDER_ASSETS to where they are")
    client_port, peer_port, port = (free_port() for _ in range(3))
    etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    etcd = [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
    ]
    settings = ConnectionSettings(
        cluster=name,
        server=f"https://127.0.0.1:{port}",
        trust=Trust(skips_verification=True),
        identity=AuthInfo(token=_TOKEN),
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_running(assets / "etcd", etcd, directory))
        flags = [*_apiserver_flags(directory, etcd_url, port, tokens), *arguments]
        flags += [f"--disable-admission-plugins={without}"] if without else []
        server = await stack.enter_async_context(
            _running(assets / "kube-apiserver", flags, directory)
        )
        await _wait_ready(settings)
        yield RealServer(settings, etcd_url, assets, server.pid)


@asynccontextmanager
async def kubernetes_hub_for_test(
    directory: Path,
    *,
    tokens: str = "",
    flags: Sequence[str] = (),
    beside: Callable[[RealServer], AbstractAsyncContextManager[None]] | None = None,
) -> AsyncGenerator[ConnectionSettings]:
    """Run a real kube-apiserver that `clusterspace init` made the hub, and our webhook beside it.

    Kubeconfigs of its parts are where those of our own hub are. `tokens` are lines of a file as
    kube-apiserver reads it, `flags` more of its flags; `beside` is what is there before `init`.
    """
    now = SystemClock().now()
    authority = Authority.create("kubernetes", now)
    write_pair(authority.pair, directory / "ca.crt", directory / "ca.key")
    shown = directory / "server.crt", directory / "server.key"
    write_pair(authority.issue_server(("127.0.0.1", "localhost"), now), *shown)
    real = real_server_for_test(
        directory,
        f"--client-ca-file={directory / 'ca.crt'}",
        f"--tls-cert-file={shown[0]}",
        f"--tls-private-key-file={shown[1]}",
        "--enable-bootstrap-token-auth",
        *flags,
        name="hub",
        without=",".join(_ABOUT_PODS),
        tokens=tokens,
    )
    signing = [f"--cluster-signing-{each}-file={directory}/ca.{end}" for each, end in _SIGNING]
    async with (
        real as server,
        real_controllers_for_test(server, directory, *_HUB_CONTROLLERS, flags=signing),
        nullcontext() if beside is None else beside(server),
    ):
        trust = Trust(Pem(file=directory / "ca.crt"))
        settings = replace(server.settings, trust=trust)
        port = free_port()
        asked = InitRequest(f"https://127.0.0.1:{port}", kubeconfigs=directory)
        await initialize(asked, settings, lambda _: None)
        webhook = WebhookSettings(
            part_of_hub(directory, "webhook"), port=port, member_cidrs=LOOPBACK
        )
        async with running_webhook(webhook):
            yield settings


@asynccontextmanager
async def real_controllers_for_test(
    real: RealServer, directory: Path, *controllers: str, flags: Sequence[str] = ()
) -> AsyncGenerator[None]:
    """Run these controllers of a kube-controller-manager beside a kube-apiserver.

    `directory` is the server's own; where the program is missing the asking test is skipped.
    """
    program = real.assets / "kube-controller-manager"
    if not program.exists():
        pytest.skip("no kube-controller-manager: set KUBEBUILDER_ASSETS to where it is")
    kubeconfig = directory / "controllers.kubeconfig"
    kubeconfig.write_bytes(_admin_kubeconfig(real.settings.server))
    arguments = [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={directory / 'sa.key'}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
        *flags,
    ]
    async with _running(program, arguments, directory):
        yield


@asynccontextmanager
async def real_component_for_test(
    name: str, directory: Path, *flags: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a component of Kubernetes beside any API server; skip, by name, where it is missing."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS") or ASSETS) / name
    if not program.exists():
        pytest.skip(f"no {name}: set KUBEBUILDER_ASSETS to where it is")
    async with _running(program, flags, directory) as process:
        yield process


@asynccontextmanager
async def karmada_component_for_test(
    name: str, real: RealServer, directory: Path, *flags: str
) -> AsyncGenerator[None]:
    """Run a program of Karmada beside a kube-apiserver, as its administrator; skip, by name."""
    program = Path(os.environ.get("KARMADA_ASSETS", "")) / name
    if "KARMADA_ASSETS" not in os.environ or not program.exists():
        pytest.skip(f"no {name}: set KARMADA_ASSETS to where Karmada's programs are")
    kubeconfig = directory / f"{name}.kubeconfig"
    kubeconfig.write_bytes(_admin_kubeconfig(real.settings.server))
    asked = [f"--kubeconfig={kubeconfig}", *(each.format(kubeconfig=kubeconfig) for each in flags)]
    async with _running(program, asked, directory):
        yield


@asynccontextmanager
async def real_program_for_test(
    name: str, directory: Path, *flags: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a program of this machine; skip, by name, where it is not installed."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} in PATH")
    async with _running(Path(program), flags, directory) as process:
        yield process


def _admin_kubeconfig(server: str) -> bytes:
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "real", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        }
    )


def _apiserver_flags(directory: Path, etcd_url: str, port: int, more: str) -> list[str]:
    key, tokens = directory / "sa.key", directory / "tokens.csv"
    key.write_bytes(_private_key())
    tokens.write_text(f'{_TOKEN},admin,admin,"system:masters"\n{more}')
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
    ]


@asynccontextmanager
async def _running(
    program: Path, arguments: Sequence[str], directory: Path
) -> AsyncGenerator[asyncio.subprocess.Process]:
    with (directory / f"{program.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _run(program: Path, arguments: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(_START_SECONDS):
        _, complaint = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{program.name}: {complaint.decode()}")


async def _wait_ready(settings: ConnectionSettings) -> None:
    async with asyncio.timeout(_START_SECONDS), client_for_test(settings) as member_client:
        while True:
            try:
                await member_client.connection.ask(ApiRequest("GET", "/readyz"))
            except ClusterspaceError:
                await asyncio.sleep(0.1)
            else:
                return


def _private_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def free_port() -> int:
    """Return a port for a program that is about to start; nobody else is given it meanwhile.

    Connections, and servers to which any port will do, get theirs from the ephemeral range, many
    in a second while tests run. One from there may be somebody else's by the time the program has
    started, so it is from below that range, and never the same again for this process.
    """
    for _ in range(_PORT_TRIES):
        port = _LOWEST_PORT + secrets.randbelow(_ephemeral_start() - _LOWEST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given_ports:
                _given_ports.add(port)
                return port
    raise RuntimeError(f"no free port after {_PORT_TRIES} tries from {_LOWEST_PORT} on")


@functools.cache
def _ephemeral_start() -> int:
    try:
        found = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except FileNotFoundError:  # not Linux: all others begin later than it does
        return _EPHEMERAL_START
    # A machine that gives out low ports leaves none to be sure of; these are as good as any.
    return max(int(found.split()[0]), _LOWEST_PORT + _PORT_TRIES)
