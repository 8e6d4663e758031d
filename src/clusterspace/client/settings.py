"""What a connection is made of: the server, whom we trust to be it, and who we are."""

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from clusterspace.client.endpoints import AddressRules
from clusterspace.errors import UnusableKubeconfig

DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key, given as such or as a file that may be replaced while we run."""

    data: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.data) or self.file is not None


@dataclass(frozen=True, slots=True)
class Trust:
    """How we know that the server is the right one."""

    authority: Pem = Pem()
    server_name: str = ""
    """The name its certificate must have, when it is not the host of the URL."""
    skips_verification: bool = False


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials."""

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    wants_cluster: bool = False


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom to act as."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that say so; none when nobody is named."""
        if not self.user:
            return ()
        uid = (("Impersonate-Uid", self.uid),) if self.uid else ()
        groups = tuple(("Impersonate-Group", group) for group in self.groups)
        extra = tuple((f"Impersonate-Extra-{key}", value) for key, value in self.extra)
        return (("Impersonate-User", self.user), *uid, *groups, *extra)


@dataclass(frozen=True, slots=True)
class AuthInfo:
    """Who we are to the server; a token file wins over a token, which is then the fallback."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate: Pem = Pem()
    key: Pem = Pem()
    username: str = ""
    password: str = field(default="", repr=False)
    exec_plugin: ExecPlugin | None = None
    impersonation: Impersonation = Impersonation()


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to reach one cluster; `cluster` is the name errors, logs and metrics call it by."""

    cluster: str
    server: str
    trust: Trust = Trust()
    identity: AuthInfo = AuthInfo()
    proxy_url: str = ""
    namespace: str = DEFAULT_NAMESPACE
    compresses: bool = True
    address_rules: AddressRules | None = None
    """Where we may be led. None for what an operator wrote: a kubeconfig leads anywhere."""

    def __post_init__(self) -> None:
        place = f"cluster {self.cluster}"
        _check_url("server", self.server, ("http", "https"), place)
        if self.proxy_url:
            _check_url("proxy-url", self.proxy_url, ("http", "https"), place)

    @property
    def is_tls(self) -> bool:
        """Whether the server is spoken to over TLS."""
        return self.server.startswith("https:")


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The bytes a TLS context is made of; a new value means a new context."""

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def client_context(trust: Trust, material: TlsMaterial) -> ssl.SSLContext:
    """Return a context that trusts this authority, or the system's when there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if material.authority:
        context.load_verify_locations(cadata=material.authority.decode("ascii"))
    else:
        context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust.skips_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.certificate:
        # The standard library loads client certificates from files only; this one is ours alone
        # to read and gone as soon as it is loaded.
        with tempfile.NamedTemporaryFile(prefix="clusterspace-") as file:
            file.write(material.certificate + b"\n" + material.key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _check_url(what: str, url: str, schemes: tuple[str, ...], place: str) -> None:
    # Asked first: the parser drops line breaks, and a request line would not.
    if not url.isprintable() or " " in url:
        raise UnusableKubeconfig(f"{what} holds spaces or control characters", place=place)
    parts = urlsplit(url)
    if parts.scheme not in schemes:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        raise UnusableKubeconfig(f"{what} must start with {wanted}", place=place)
    if not parts.hostname:
        raise UnusableKubeconfig(f"{what} names no host", place=place)
    if parts.query or parts.fragment:
        raise UnusableKubeconfig(f"{what} must not have a query or fragment", place=place)
