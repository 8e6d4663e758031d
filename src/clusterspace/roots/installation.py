"""The files of one installation: authority, server certificate, kubeconfigs.

D/pki/ca.crt                  the installation's own certificate authorities, all that are trusted
D/pki/ca.key                  the key of the one that signs
D/pki/ca-cross.crt            the authority before it vouches for the one that signs
D/pki/server.crt, server.key  what the hub shows its clients
D/pki/sa.key                  signs tokens of ServiceAccounts
D/pki/sa.pub                  checks them: public keys, where more than that of sa.key count
D/kubeconfig                  the administrator; written whenever the hub has become ready, and
                              left where it is meanwhile: others read it when they start
D/parts/NAME/kubeconfig       who a component of the control plane is at the hub, in a directory
                              that can be given to that component alone
D/store.db                    the objects
"""

import errno
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from clusterspace.apis.identities import COMPONENTS
from clusterspace.apiserver.http.listener import server_context
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.authority import (
    Authorities,
    Authority,
    KeyPair,
    expires_at,
    read_bundle,
    server_names,
    signer_of,
)
from clusterspace.apiserver.identity.service_account_tokens import (
    SigningKey,
    TokenKeys,
    VerifyingKey,
)
from clusterspace.apiserver.store import backups
from clusterspace.apiserver.store.backups import Inspection
from clusterspace.apiserver.store.files import STORE_FILE_NAME
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.settings import AuthInfo, Pem
from clusterspace.errors import StoreUnreadable, UnusableKubeconfig
from clusterspace.roots.kubeconfigs import ADMIN, kubeconfig_of

_log = structlog.get_logger(__name__)

_PRIVATE: Final = 0o600
_RENEW_SHARE: Final = 0.2
"""A certificate with less than this share of its life left is made anew."""

_YEAR: Final = 365 * 24 * 3600.0
PUBLIC_FILES: Final = ("ca.crt",)
IDENTITY_FILES: Final = (*PUBLIC_FILES, "ca.key", "sa.key")
"""What several hubs on one store have to have in common: who they are, and what they sign with."""
ROLLING_FILES: Final = ("ca-cross.crt", "sa.pub")
"""What they have besides once an authority or a key has taken over from another."""

SERVER_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "127.0.0.1",
    "::1",
)


_ELSEWHERE: Final = ("192.0.2.1", 9)
"""An address for examples, which is on no network (RFC 5737)."""

_ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


def server_url(host: str, port: int) -> str:
    """Return where a server that listens on this host is reached from this machine."""
    named = "127.0.0.1" if host in _ANYWHERE else host
    return f"https://[{named}]:{port}" if ":" in named else f"https://{named}:{port}"


def advertised_address(host: str) -> str:
    """Return the IP address by which other machines know a server that listens on this host.

    Where the host says nothing to them (every address, loopback, a name), it is the address from
    which this machine reaches others, as kube-apiserver chooses it; empty when it reaches nobody.
    """
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if not (address.is_unspecified or address.is_loopback):
            return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Nothing is sent: this only asks the system for its way there.
        probe.connect(_ELSEWHERE)
        own = str(probe.getsockname()[0])
        return "" if ipaddress.ip_address(own).is_loopback else own
    return ""


def worker_directory(data_dir: Path, number: int) -> Path:
    """Return where a worker of a fleet API server keeps its files."""
    return data_dir / f"worker-{number}"


@dataclass(frozen=True, slots=True)
class Installation:
    """A data directory with its certificates."""

    directory: Path

    @property
    def authority_file(self) -> Path:
        """The authority's certificate, for whoever must trust it."""
        return self.directory / "pki" / "ca.crt"

    @property
    def server_files(self) -> tuple[Path, Path]:
        """The server's certificate and key."""
        return self.directory / "pki" / "server.crt", self.directory / "pki" / "server.key"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    def component_kubeconfig(self, component: str) -> Path:
        """Return the kubeconfig a component of the control plane works with."""
        return self.directory / "parts" / component / "kubeconfig"

    @property
    def audit_file(self) -> Path:
        """Who wrote what, one JSON line each."""
        return self.directory / "audit.log"

    @property
    def cached_objects(self) -> Path:
        """Where a fleet API server keeps what it knows of members' objects."""
        return self.directory / "cache"

    @property
    def store_file(self) -> Path:
        """The objects."""
        return self.directory / STORE_FILE_NAME

    def refuse_emptied(self) -> None:
        """Refuse a store without a byte beside the certificates of a hub that had one.

        A disk that was repaired, or a backup that went wrong, leaves such a file; begun anew, the
        hub would let everybody in as before and have nothing of theirs. Ours does not leave it:
        the store is made before the certificates are.
        """
        log = self.store_file.with_name(f"{STORE_FILE_NAME}-wal")
        files = [each for each in (self.store_file, log) if each.exists()]
        if not files or not self.authority_file.exists() or any(f.stat().st_size for f in files):
            return
        aside = self.store_file.with_name(f"{STORE_FILE_NAME}.empty")
        pki = self.authority_file.parent
        raise StoreUnreadable(
            f"{self.store_file} is empty, and {pki} is of a hub that had data:"
            f" put it aside (mv {self.store_file} {aside}) and restore a backup (clusterspace"
            f" store restore BACKUP --data-dir {self.directory}), or choose another --data-dir"
        )

    @property
    def pki(self) -> Path:
        """Where keys and certificates are."""
        return self.directory / "pki"

    def prepare(self, now: float, hosts: tuple[str, ...]) -> Authorities:
        """Make what is missing, renew what is about to expire; return the authorities."""
        self.make_authority(now)
        authorities = self.load_authorities()
        certificate, key = self.server_files
        names = tuple(dict.fromkeys((*SERVER_NAMES, *hosts)))
        if certificate.exists() and key.exists():
            current = certificate.read_bytes()
            is_fresh = expires_at(current) - now >= _RENEW_SHARE * _YEAR
            is_ours = signer_of(current) == authorities.signing.key_id
            if is_fresh and is_ours and set(names) <= server_names(current):
                return authorities
        write_pair(authorities.issue_server(names, now), certificate, key)
        return authorities

    def make_authority(self, now: float) -> None:
        """Make the authority, unless there is one."""
        self.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (self.authority_file.exists() and (self.pki / "ca.key").exists()):
            made = Authority.create("clusterspace", now)
            write_pair(made.pair, self.authority_file, self.pki / "ca.key")

    def identity(self, now: float) -> dict[str, bytes]:
        """Return what hubs that are one have in common, by file name; made where it is missing."""
        self.make_authority(now)
        self.token_keys()
        found = (self.pki / name for name in (*IDENTITY_FILES, *ROLLING_FILES))
        return {each.name: each.read_bytes() for each in found if each.exists()}

    def take_identity(self, files: Mapping[str, bytes]) -> None:
        """Have what the other hubs have; StoreUnreadable when that cannot be.

        Another authority may have taken over there while this hub was down. It is the same
        installation as long as one authority is trusted here and there.
        """
        self.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
        missing = [name for name in IDENTITY_FILES if not (self.pki / name).exists()]
        if PUBLIC_FILES[0] not in missing:
            own = set(read_bundle(self.authority_file.read_bytes()))
            if own.isdisjoint(read_bundle(files[PUBLIC_FILES[0]])):
                raise StoreUnreadable(
                    f"{self.pki} has another authority than the hubs on this etcd: choose a new"
                    " --data-dir, or another --etcd-prefix"
                )
        unknown = [name for name in missing if name not in files]
        if unknown:
            raise StoreUnreadable(
                f"the hubs on this etcd share no private keys, for their Secrets are not encrypted:"
                f" copy {', '.join(unknown)} of one of them to {self.pki}, or start them all with"
                " an --encryption-provider-config that has secrets"
            )
        is_whole = all(name in files for name in IDENTITY_FILES)
        # What they trust before who signs: between any two of these files the key that signs is
        # that of a trusted authority, unless this hub was away for a whole rotation; then it is
        # once all are written, which the next start does again.
        for name in (*ROLLING_FILES, *IDENTITY_FILES):
            place = self.pki / name
            if name in files and (name in missing or is_whole):
                if not place.exists() or place.read_bytes() != files[name]:
                    write_private(place, files[name])
            elif is_whole and name in ROLLING_FILES:
                place.unlink(missing_ok=True)

    def copy_authority(self, source: "Installation") -> None:
        """Have the authority of another fleet API server: one kubeconfig leads to both.

        In the order of `take_identity`, and for the same reason.
        """
        self.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("ca-cross.crt", "ca.crt", "ca.key"):
            theirs, own = source.pki / name, self.pki / name
            if not theirs.exists():
                own.unlink(missing_ok=True)
            elif not own.exists() or own.read_bytes() != theirs.read_bytes():
                write_private(own, theirs.read_bytes())

    @property
    def _workers_file(self) -> Path:
        """Says how many workers a fleet API server has, where it has several."""
        return self.directory / "workers"

    def set_workers(self, count: int) -> None:
        """Write down how many workers serve from this directory; one is the server itself."""
        if count > 1:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(self._workers_file, f"{count}\n".encode())
        else:
            self._workers_file.unlink(missing_ok=True)

    def servers(self) -> "tuple[Installation, ...]":
        """Return who serves from this directory: the workers in it, or the server itself.

        Directories of workers that are no more stay: the audit log is there.
        """
        try:
            count = int(self._workers_file.read_text())
        except FileNotFoundError:
            return (self,)
        return tuple(
            Installation(worker_directory(self.directory, number)) for number in range(1, count + 1)
        )

    def carry_authority(self) -> None:
        """Have all workers have the authority of this directory."""
        for each in self.servers():
            each.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            each.copy_authority(self)

    def load_authorities(self) -> Authorities:
        """Read whom this installation trusts, and who signs; UnreadableCertificate says why not."""
        chain = self.pki / "ca-cross.crt"
        return Authorities.load(
            self.authority_file.read_bytes(),
            (self.pki / "ca.key").read_bytes(),
            chain.read_bytes() if chain.exists() else b"",
        )

    def renew_server(self, authorities: Authorities, now: float) -> None:
        """Make a new server certificate for the names the present one has."""
        certificate, key = self.server_files
        names = sorted(server_names(certificate.read_bytes()))
        write_pair(authorities.issue_server(names, now), certificate, key)

    def key_files(self) -> tuple[tuple[int, int], ...]:
        """Return what tells whether keys or authorities were replaced: time and inode of each."""
        names = ("ca.crt", "ca.key", "ca-cross.crt", "sa.key", "sa.pub")
        found: list[tuple[int, int]] = []
        for name in names:
            try:
                status = (self.pki / name).stat()
            except FileNotFoundError:
                found.append((0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_ino))
        return tuple(found)

    def server_tls(self) -> ssl.SSLContext:
        """Return the TLS side of the server; clients may show certificates of the authority."""
        return server_context(*self.server_files, client_authorities=(self.authority_file,))

    def token_keys(self) -> TokenKeys:
        """Return the keys behind service-account tokens; made when there are none yet."""
        path, public = self.pki / "sa.key", self.pki / "sa.pub"
        if not path.exists():
            write_private(path, SigningKey.create().pem)
        signing = SigningKey.load(path.read_bytes())
        listed = VerifyingKey.load_all(public.read_bytes()) if public.exists() else ()
        others = tuple(each for each in listed if each.key_id != signing.key_id)
        return TokenKeys(signing, others)

    def write_kubeconfig(
        self, authorities: Authorities, server: str, now: float, *, name: str = "hub"
    ) -> None:
        """Write the administrator's kubeconfig, whole or not at all; its context has the name."""
        pair = authorities.signing.issue_client("kubernetes-admin", (MASTERS,), now)
        write_private(self.kubeconfig, _kubeconfig(name, server, authorities, pair))

    def announce(
        self,
        authorities: Authorities,
        server: str,
        now: float,
        become_ready: Callable[[], None],
    ) -> None:
        """Write the kubeconfigs of the components, be ready, write the administrator's.

        In this order: when a hub is ready its parts are started, with theirs, and whoever waits for
        the administrator's finds a hub that is ready. A disk without room is no reason not to
        serve, if the kubeconfigs of an earlier start lead here.
        """
        try:
            self.write_component_kubeconfigs(authorities, server, now)
            become_ready()
            self.write_kubeconfig(authorities, server, now)
        except OSError as error:
            become_ready()
            if error.errno != errno.ENOSPC or not self.keep_kubeconfig(server):
                raise
            _log.warning("the kubeconfigs are those of an earlier start", reason=str(error))

    def keep_kubeconfig(self, server: str) -> bool:
        """Whether the kubeconfig of an earlier start leads here; it then counts as written now.

        For a disk without room: to say so takes none.
        """
        try:
            is_right = read_kubeconfig([self.kubeconfig]).settings().server == server
        except UnusableKubeconfig:
            return False
        if is_right:
            os.utime(self.kubeconfig)
        return is_right

    def write_component_kubeconfigs(
        self, authorities: Authorities, server: str, now: float
    ) -> None:
        """Write the kubeconfigs of the components, each with a certificate for its own name.

        They are in no group: what a component may do is said by the role of its name.
        """
        for component, user in COMPONENTS.items():
            path = self.component_kubeconfig(component)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            pair = authorities.signing.issue_client(user, (), now)
            write_private(path, _kubeconfig("hub", server, authorities, pair, user=component))


def _kubeconfig(
    name: str, server: str, authorities: Authorities, pair: KeyPair, *, user: str = ADMIN
) -> bytes:
    identity = AuthInfo(certificate=Pem(pair.certificate), key=Pem(pair.key))
    return kubeconfig_of({name: server}, authorities.bundle, identity, user=user)


def write_pair(pair: KeyPair, certificate: Path, key: Path) -> None:
    """Write a certificate and its key, the key first: a certificate without one is useless."""
    write_private(key, pair.key)
    write_private(certificate, pair.certificate, mode=0o644)


def write_private(path: Path, content: bytes, *, mode: int = _PRIVATE) -> None:
    """Write a file so that readers see all of it or the old one, and only its owner may read it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# -- the store file, for an operator -----------------------------------------------------------


def back_up(source: Path, target: Path) -> int:
    """Copy a store, in use or not, to a new file; return the revision it was copied at."""
    return backups.back_up(_store_path(source), target).revision


def restore(backup: Path, data_directory: Path) -> int:
    """Make a new store in a data directory from a backup; return the revision it starts at."""
    return backups.restore(backup, data_directory / STORE_FILE_NAME).revision


def check_store(source: Path) -> Inspection:
    """Verify everything in a store file or a backup."""
    return backups.inspect(_store_path(source))


def _store_path(path: Path) -> Path:
    """Return the store file meant by a data directory, or by the file itself."""
    return path / STORE_FILE_NAME if path.is_dir() else path
