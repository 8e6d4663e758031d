"""Tokens, certificates, plug-ins: re-read and renewed before they expire."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from clusterspace.aio.clocks import Clock
from clusterspace.client.exec_plugins import PluginAnswer, ask_plugin
from clusterspace.client.settings import ConnectionSettings, Identity, Pem, TlsMaterial
from clusterspace.errors import CredentialsUnusable

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
        self._held: PluginAnswer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def read(self) -> PluginAnswer:
        """Return an answer that is still good."""
        async with self._one_at_a_time:
            if self._held is None or self._is_old(self._held):
                self._held = await self._ask()
            return self._held

    def forget(self) -> None:
        """Ask the plug-in next time."""
        self._held = None

    def _is_old(self, held: PluginAnswer) -> bool:
        if held.expires_at is None:
            return False
        return self._clock.now() >= held.expires_at - RENEW_EARLY_SECONDS


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
        self._plugin = _plugin_cache(settings, clock, ask)

    async def get(self) -> Credential:
        """Return the credential to use now."""
        identity = self._identity
        answer = PluginAnswer() if self._plugin is None else await self._plugin.read()
        token = answer.token or await self._token(identity)
        return Credential(
            authorization=_authorization(token, identity),
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

    async def _token(self, identity: Identity) -> str:
        if identity.token_file is None:
            return identity.token
        try:
            return (await self._read(Pem(file=identity.token_file))).decode().strip()
        except CredentialsUnusable:
            if not identity.token:
                raise
            return identity.token

    async def _read(self, source: Pem) -> bytes:
        if source.file is None:
            return source.data
        file = self._files.setdefault(source.file, RereadFile(source.file, self._clock))
        try:
            return await file.read()
        except OSError as error:
            why = f"{source.file} cannot be read: {error.strerror}"
            raise CredentialsUnusable(self._cluster, why) from error


def _plugin_cache(
    settings: ConnectionSettings, clock: Clock, ask: AskPlugin | None
) -> PluginCache | None:
    plugin = settings.identity.exec_plugin
    if plugin is None:
        return None
    return PluginCache(ask or (lambda: ask_plugin(plugin, settings)), clock)


def _authorization(token: str, identity: Identity) -> str:
    if token:
        return f"Bearer {token}"
    if identity.username:
        pair = f"{identity.username}:{identity.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    return ""
