"""How to reach one cluster: the server, whom we trust to be it, and who we are, kept fresh.

Tokens and certificates are read again, and renewed before they expire. A plug-in is a program that
prints credentials: never run through a shell, never waited for without an end.
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import base64
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit
from weakref import ref

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.client.endpoints import AddressRules
from clusterspace.errors import (
    ClusterspaceError,
    CredentialsUnusable,
    MalformedTimestamp,
    UnusableKubeconfig,
)
from clusterspace.kube import times

_log = structlog.get_logger(__name__)

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
    proxy_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """For the proxy alone, when it is asked to connect; they may hold a password."""
    namespace: str = DEFAULT_NAMESPACE
    compresses: bool = True
    address_rules: AddressRules | None = None
    """Where we may be led. None for what an operator wrote: a kubeconfig leads anywhere."""
    is_tunnelled: bool = False
    """Whether `server` is no address: what is sent goes through the tunnel its agent keeps."""

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


class _ResumingContext(ssl.SSLContext):
    """Goes on with an earlier session with a server, which is less than half of a handshake.

    A controller has a watch on a connection of its own for every kind it follows. A session comes
    from a handshake in which both sides proved who they are, under the trust and the identity of
    this context, and nobody who was not part of it can go on with it. A server that was started
    anew cannot either: then the handshake is a full one, and the next session comes from there.
    """

    def __init__(self, *_: object) -> None:
        # By the name the server has proved to have: a proxy before it is another server, and must
        # not be taken for it because the client still has a session with the proxy.
        #
        # A connection is not kept alive by being the newest: with it would be its buffers, half a
        # megabyte behind a large answer. It would even outlive this context, for what it has of
        # OpenSSL holds on to the context where the collector does not see it.
        self._newest: dict[str | bytes | None, ref[ssl.SSLObject]] = {}
        self._sessions: dict[str | bytes | None, ssl.SSLSession] = {}
        self.sslobject_class = _LeavingItsSession

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection, with the last session there was with this server."""
        # Looked at now, not after the handshake: the server sends its ticket some time later.
        # Connections that begin together all go on with the last session that has one.
        newest = self._newest.get(server_hostname)
        alive = None if newest is None else newest()
        if alive is not None:
            self.note_session(alive)
        session = session or self._sessions.get(server_hostname)
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        self._newest[server_hostname] = ref(made)
        return made

    def note_session(self, connection: ssl.SSLObject) -> None:
        """Remember the session of a connection, if it is the newest and has come so far."""
        name = connection.server_hostname
        newest = self._newest.get(name)
        if newest is None or newest() is not connection or connection.version() is None:
            return  # one that began before, or whose handshake is not done
        latest = connection.session
        if latest is not None and latest.has_ticket:
            self._sessions[name] = latest


class _LeavingItsSession(ssl.SSLObject):
    """A connection whose session is there for the next one when it has ended itself."""

    def __del__(self) -> None:
        # One that could not even be begun has nothing to leave.
        if hasattr(self, "_sslobj") and isinstance(self.context, _ResumingContext):
            self.context.note_session(self)


def client_context(trust: Trust, material: TlsMaterial) -> ssl.SSLContext:
    """Return a context that trusts this authority, or the system's when there is none."""
    context = _ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
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


# -- the credentials that settings stand for -------------------------------------------------------

PLUGIN_SECONDS: Final = 60.0
"""A plug-in may go round by the identity provider, but nobody waits for it much longer."""

_MOST_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """What a plug-in printed; without an expiry it is good until it is refused."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    expires_at: float | None = None


class _Status(msgspec.Struct):
    token: str = ""
    clientCertificateData: str = ""  # noqa: N815 - the names of the wire
    clientKeyData: str = ""  # noqa: N815
    expirationTimestamp: str | None = None  # noqa: N815


class _ExecCredential(msgspec.Struct):
    apiVersion: str  # noqa: N815
    kind: str
    status: _Status


async def ask_plugin(
    plugin: ExecPlugin, settings: ConnectionSettings, *, seconds: float = PLUGIN_SECONDS
) -> PluginAnswer:
    """Run the program and read what it prints."""
    info = exec_info(plugin, settings).decode()
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": info},
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        why = f"the plug-in {plugin.command} cannot be started: {error.strerror}{hint}"
        raise CredentialsUnusable(settings.cluster, why) from error
    try:
        async with asyncio.timeout(seconds):
            printed, complaint = await process.communicate()
    except TimeoutError as error:
        why = f"the plug-in {plugin.command} printed nothing within {seconds:g}s"
        raise CredentialsUnusable(settings.cluster, why) from error
    finally:
        # Cancelled, late or failed: a program that still runs is ended and waited for, so that
        # neither it nor a zombie stays behind with the credentials it was given.
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = complaint.decode(errors="replace").strip()[:_MOST_TEXT]
        why = f"the plug-in {plugin.command} failed with {process.returncode}: {said}"
        raise CredentialsUnusable(settings.cluster, why)
    try:
        return read_exec_credential(printed, plugin.api_version)
    except (ValueError, msgspec.DecodeError, MalformedTimestamp) as error:
        why = f"the plug-in {plugin.command} printed no ExecCredential we can read: {error}"
        raise CredentialsUnusable(settings.cluster, why) from error


def read_exec_credential(printed: bytes, api_version: str) -> PluginAnswer:
    """Read an ExecCredential of this version; a ValueError says what else is wrong with it."""
    credential = msgspec.json.decode(printed, type=_ExecCredential)
    if credential.kind != "ExecCredential" or credential.apiVersion != api_version:
        raise ValueError(f"it is {credential.apiVersion} {credential.kind}, not {api_version}")
    status = credential.status
    if bool(status.clientCertificateData) != bool(status.clientKeyData):
        raise ValueError("a certificate and its key come together or not at all")
    if not status.token and not status.clientCertificateData:
        raise ValueError("there is neither a token nor a certificate in it")
    expiry = status.expirationTimestamp
    return PluginAnswer(
        token=status.token,
        certificate=status.clientCertificateData.encode(),
        key=status.clientKeyData.encode(),
        expires_at=times.parse_time(expiry) if expiry else None,
    )


def exec_info(plugin: ExecPlugin, settings: ConnectionSettings) -> bytes:
    """Return the value of KUBERNETES_EXEC_INFO for the program."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.wants_cluster:
        authority = settings.trust.authority
        # Read here and now: plug-ins are asked rarely and the file is a few kilobytes.
        pem = authority.file.read_bytes() if authority.file is not None else authority.data
        cluster = {
            "server": settings.server,
            "tls-server-name": settings.trust.server_name,
            "insecure-skip-tls-verify": settings.trust.skips_verification,
            "certificate-authority-data": base64.b64encode(pem).decode(),
            "proxy-url": settings.proxy_url,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    return msgspec.json.encode(
        {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    )


REREAD_SECONDS: Final = 60.0
"""Kubelets replace a pod's token long before it expires; a minute late is in good time."""

RENEW_EARLY_SECONDS: Final = 30.0
"""So that no credential expires between being fetched here and being checked over there."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What to show the server: headers on every request, and material for TLS."""

    authorization: str = field(repr=False)
    material: TlsMaterial


class CredentialSource(Protocol):
    """Where a connection gets its credential from, before every request."""

    async def get(self) -> Credential:
        """Return the credential to use now."""
        ...

    def refused(self) -> bool:
        """Note that the server did not know us; whether asking again can give another answer."""
        ...


class RereadFile:
    """A file that others replace, read again when what was read is a minute old."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._content: bytes | None = None
        self._stale_at = 0.0

    async def read(self) -> bytes:
        """Return the content; the last one that could be read when it cannot be read now."""
        now = self._clock.monotonic()
        if self._content is not None and now < self._stale_at:
            return self._content
        try:
            self._content = await asyncio.to_thread(self._path.read_bytes)
        except OSError:
            if self._content is None:
                raise
        self._stale_at = now + REREAD_SECONDS
        return self._content

    def forget(self) -> None:
        """Read the file again next time, however fresh it is."""
        self._stale_at = 0.0


AskPlugin = Callable[[], Awaitable[PluginAnswer]]


class PluginCache:
    """The last answer of a plug-in, until shortly before it expires; one process at a time."""

    def __init__(self, ask: AskPlugin, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._cached: PluginAnswer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def read(self) -> PluginAnswer:
        """Return an answer that is still good."""
        # Whoever waits for the lock while the plug-in runs finds its answer afterwards: a hundred
        # requests that meet an expired token start one process, not a hundred.
        async with self._one_at_a_time:
            cached = self._cached
            expires_at = None if cached is None else cached.expires_at
            is_old = (
                expires_at is not None and self._clock.now() >= expires_at - RENEW_EARLY_SECONDS
            )
            if cached is None or is_old:
                cached = await self._ask()
                self._cached = cached
            return cached

    def forget(self) -> None:
        """Ask the plug-in next time."""
        self._cached = None


class Credentials:
    """The credential an identity stands for, kept fresh."""

    def __init__(
        self, settings: ConnectionSettings, clock: Clock, ask: AskPlugin | None = None
    ) -> None:
        self._cluster = settings.cluster
        self._identity = settings.identity
        self._clock = clock
        self._files: dict[Path, RereadFile] = {}
        self._authority = settings.trust.authority
        self._plugin: PluginCache | None = None
        if (plugin := settings.identity.exec_plugin) is not None:
            self._plugin = PluginCache(ask or (lambda: ask_plugin(plugin, settings)), clock)

    async def get(self) -> Credential:
        """Return the credential to use now."""
        identity = self._identity
        answer = PluginAnswer() if self._plugin is None else await self._plugin.read()
        token = answer.token or identity.token
        if not answer.token and identity.token_file is not None:
            try:
                token = (await self._read(Pem(file=identity.token_file))).decode().strip()
            except CredentialsUnusable:
                if not identity.token:
                    raise
        authorization = f"Bearer {token}" if token else ""
        if not token and identity.username:
            pair = f"{identity.username}:{identity.password}".encode()
            authorization = f"Basic {base64.b64encode(pair).decode()}"
        return Credential(
            authorization=authorization,
            material=TlsMaterial(
                authority=await self._read(self._authority),
                certificate=answer.certificate or await self._read(identity.certificate),
                key=answer.key or await self._read(identity.key),
            ),
        )

    def refused(self) -> bool:
        """Forget what can be had anew; False when nothing can."""
        for file in self._files.values():
            file.forget()
        if self._plugin is not None:
            self._plugin.forget()
        return self._plugin is not None or self._identity.token_file is not None

    async def _read(self, source: Pem) -> bytes:
        if source.file is None:
            return source.data
        file = self._files.setdefault(source.file, RereadFile(source.file, self._clock))
        try:
            return await file.read()
        except OSError as error:
            why = f"{source.file} cannot be read: {error.strerror}"
            raise CredentialsUnusable(self._cluster, why) from error


KUBECONFIG_SECONDS: Final = 10.0
"""A hub that replaces its authority writes new kubeconfigs for its parts, and goes on soon."""


class KubeconfigCredentials:
    """The credentials in a kubeconfig that others rewrite, at most ten seconds old."""

    def __init__(
        self,
        read_settings: Callable[[], ConnectionSettings],
        first: ConnectionSettings,
        clock: Clock,
    ) -> None:
        self._read_settings = read_settings
        self._settings = first
        self._clock = clock
        self._credentials = Credentials(first, clock)
        self._stale_at = clock.monotonic() + KUBECONFIG_SECONDS

    async def get(self) -> Credential:
        """Return the credential to use now."""
        if self._clock.monotonic() < self._stale_at:
            return await self._credentials.get()
        # Set before the file is read: others who ask meanwhile use what is known, and do not all
        # read the same file.
        self._stale_at = self._clock.monotonic() + KUBECONFIG_SECONDS
        try:
            found = await asyncio.to_thread(self._read_settings)
        except (OSError, ClusterspaceError) as error:
            # It is being replaced, or its disk is away; what was there is still good.
            _log.debug(
                "the kubeconfig was not read", cluster=self._settings.cluster, reason=str(error)
            )
        else:
            if (found.identity, found.trust) != (self._settings.identity, self._settings.trust):
                self._settings = found
                self._credentials = Credentials(found, self._clock)
        return await self._credentials.get()

    def refused(self) -> bool:
        """Read the file again next time: perhaps it says something else by now."""
        self._stale_at = 0.0
        self._credentials.refused()
        return True
