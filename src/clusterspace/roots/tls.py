"""The TLS of our API servers: certificates renewed while they run, and whose clients' count.

A connection keeps the certificate it was opened with; a renewed one is for those that come.
"""

import ssl
from collections.abc import Callable
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.http.listener import reload_certificate, server_context
from clusterspace.apiserver.identity.authority import Authority, renew_forever
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Reader
from clusterspace.errors import ApiError, ClusterError, UnusableKubeconfig
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.installation import Installation, write_private

_log = structlog.get_logger(__name__)

_PUBLISHED: Final = ResourcePath(
    GroupVersionResource("", "v1", "configmaps"),
    "kube-system",
    "extension-apiserver-authentication",
)
_LOOK_SECONDS: Final = 60.0


class ServerTls:
    """A server's certificate, kept current."""

    def __init__(
        self,
        context: ssl.SSLContext,
        installation: Installation,
        authority: Authority,
        on_renewal: Callable[[float], None] | None = None,
    ) -> None:
        self.context = context
        self._installation = installation
        self._authority = authority
        self._on_renewal = on_renewal
        """Renews, at this time, what else was made with the same authority."""

    def tasks(self, clock: Clock) -> Tasks:
        """Return the tasks that keep it current."""

        def in_use() -> tuple[bytes, ...]:
            return (self._installation.server_files[0].read_bytes(),)

        def renew(now: float) -> None:
            self._installation.renew_server(self._authority, now)
            reload_certificate(self.context, *self._installation.server_files)
            if self._on_renewal is not None:
                self._on_renewal(now)

        return {"certificate renewal": lambda: renew_forever(clock, in_use, renew)}


class FleetTls(ServerTls):
    """Our own certificate, and the hub's authority for those of clients; both kept current."""

    def __init__(
        self,
        context: ssl.SSLContext,
        installation: Installation,
        authority: Authority,
        hub: Reader,
        trusted: str,
    ) -> None:
        super().__init__(context, installation, authority)
        self._hub = hub
        self._trusted = trusted

    @classmethod
    async def open(
        cls, installation: Installation, authority: Authority, hub: Reader
    ) -> "FleetTls":
        """Read what the hub publishes, and be ready for handshakes."""
        trusted = await _read_published(hub)
        file = installation.directory / "pki" / "client-ca.crt"
        write_private(file, trusted.encode())
        context = server_context(*installation.server_files, client_authorities=(file,))
        return cls(context, installation, authority, hub, trusted)

    def tasks(self, clock: Clock) -> Tasks:
        """Return the tasks that keep it current."""

        async def follow_authority() -> None:
            while True:
                await clock.sleep(_LOOK_SECONDS)
                try:
                    published = await _read_published(self._hub)
                except (ApiError, ClusterError) as error:
                    _log.warning("the client authority was not read", reason=str(error))
                    continue
                if published != self._trusted:
                    self.context.load_verify_locations(cadata=published)
                    self._trusted = published

        return {"client authority": follow_authority, **super().tasks(clock)}


async def _read_published(hub: Reader) -> str:
    authority = find_at(await hub.get(_PUBLISHED), "data", "client-ca-file")
    if not isinstance(authority, str) or not authority:
        why = "does not say whose client certificates count"
        raise UnusableKubeconfig(why, place=f"ConfigMap {_PUBLISHED.key} on the hub")
    return authority
