"""Connections that were made with one set of certificates, and what each request says of us."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import aiohttp
from yarl import URL

from clusterspace import __version__
from clusterspace.client.addresses import JudgingResolver, Resolve, SocketAddress, refuse
from clusterspace.client.credentials import Credential
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import ConnectionSettings, TlsMaterial, client_context
from clusterspace.telemetry import request_ids

_USER_AGENT: Final = f"clusterspace/{__version__}"
_LARGE_BODY: Final = 1 << 20
_READ_BUFFER: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much one cluster may cost us."""

    requests_at_once: int = 64
    streams_at_once: int = 512
    connect_seconds: float = 10.0
    keepalive_seconds: float = 60.0
    silent_peer_seconds: int = 60
    """A peer whose machine vanished is noticed after this time, however idle the connection."""


class Pool:
    """Connections that were made with one set of certificates."""

    def __init__(
        self,
        settings: ConnectionSettings,
        credential: Credential,
        limits: ConnectionLimits,
        resolve: Resolve,
    ) -> None:
        self.material: TlsMaterial = credential.material
        self.credential = credential
        self.users = 0
        self._settings = settings
        self._limits = limits
        context = client_context(settings.trust, credential.material) if settings.is_tls else True
        connector = aiohttp.TCPConnector(
            limit=0,  # the semaphores are the bound, one for requests and one for streams
            ssl=context,
            keepalive_timeout=limits.keepalive_seconds,
            resolver=JudgingResolver(settings.address_rules, resolve),
            socket_factory=self._make_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER,
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
        )
        # The library would repeat a PUT or DELETE by itself when a kept connection turns out to
        # be closed. It cannot know whether the first one was carried out; retries.py decides.
        self._session._retry_connection = False  # pyright: ignore[reportPrivateUsage]

    @asynccontextmanager
    async def request(self, ask: ApiRequest, url: URL) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send the request and wait for the head of the answer."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._limits.connect_seconds, sock_read=ask.quiet_seconds
        )
        async with self._session.request(
            ask.method,
            url,
            headers=self._headers(ask),
            data=_payload(ask.body),
            allow_redirects=False,
            proxy=self._settings.proxy_url or None,
            server_hostname=self._settings.trust.server_name or None,
            timeout=timeout,
        ) as response:
            yield response

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def _headers(self, ask: ApiRequest) -> list[tuple[str, str]]:
        given = {name.lower() for name, _ in ask.headers}
        defaults = (
            ("User-Agent", _USER_AGENT),
            ("Accept-Encoding", "gzip" if self._settings.compresses else "identity"),
        )
        return [
            *(pair for pair in defaults if pair[0].lower() not in given),
            *base_headers(self._settings, self.credential),
            *ask.headers,
        ]

    def _make_socket(self, address: SocketAddress) -> socket.socket:
        family, kind, protocol, _, peer = address
        # Hosts written as addresses are looked up by nobody, so each is judged here once more:
        # this is what the socket will be connected to, of the cluster or of a proxy before it.
        refuse(self._settings.address_rules, str(peer[0]))
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        keep_alive(made, self._limits.silent_peer_seconds)
        return made


def base_headers(settings: ConnectionSettings, credential: Credential) -> list[tuple[str, str]]:
    """Return the headers that say who asks, as whom, and for which request."""
    headers = [*settings.identity.impersonation.headers()]
    if credential.authorization:
        headers.append(("Authorization", credential.authorization))
    if request_id := request_ids.current_request_id():
        headers.append((request_ids.HEADER, request_id))
    return headers


def keep_alive(connected: socket.socket, seconds: int, *, may_stop_reading: bool = False) -> None:
    """Have the operating system notice within this time that the peer's machine is gone.

    A peer that stops reading is taken for gone too, unless it may.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(seconds // 2, 1))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 6, 1))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    if hasattr(socket, "TCP_USER_TIMEOUT") and not may_stop_reading:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    """Return a body as the library wants it: a large one piece by piece."""
    return BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body
