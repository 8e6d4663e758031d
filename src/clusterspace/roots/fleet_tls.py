"""The fleet API server's end of TLS: its certificate, and whose client certificates count."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.listener import reload_certificate, server_context
from clusterspace.apiserver.identity.authority import Authority, renew_forever
from clusterspace.client.places import Place
from clusterspace.client.resources import Reader
from clusterspace.errors import ApiError, ClusterError, UnusableKubeconfig
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.installation import Installation, write_private

_log = structlog.get_logger(__name__)

_PUBLISHED: Final = Place(
    GroupVersionResource("", "v1", "configmaps"),
    "kube-system",
    "extension-apiserver-authentication",
)
_LOOK_SECONDS: Final = 60.0


class FleetTls:
    """Our own certificate, and the hub's authority for those of clients; both kept current."""

    def __init__(
        self,
        context: ssl.SSLContext,
        trusted: str,
        installation: Installation,
        authority: Authority,
        hub: Reader,
    ) -> None:
        self.context = context
        self._trusted = trusted
        self._installation = installation
        self._authority = authority
        self._hub = hub

    @classmethod
    async def open(
        cls, installation: Installation, authority: Authority, hub: Reader
    ) -> "FleetTls":
        """Read what the hub publishes, and be ready for handshakes."""
        trusted = await _read_published(hub)
        file = installation.directory / "pki" / "client-ca.crt"
        write_private(file, trusted.encode())
        context = server_context(*installation.server_files, client_authorities=(file,))
        return cls(context, trusted, installation, authority, hub)

    def tasks(self, clock: Clock) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return what goes on in the background."""
        return {
            "client authority": lambda: self._follow_authority(clock),
            "certificate renewal": lambda: renew_forever(clock, self._held, self._renew),
        }

    async def _follow_authority(self, clock: Clock) -> None:
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

    def _held(self) -> tuple[bytes, ...]:
        return (self._installation.server_files[0].read_bytes(),)

    def _renew(self, now: float) -> None:
        self._installation.renew_server(self._authority, now)
        reload_certificate(self.context, *self._installation.server_files)


async def _read_published(hub: Reader) -> str:
    held = await hub.get(_PUBLISHED)
    authority = find_at(held, "data", "client-ca-file")
    if not isinstance(authority, str) or not authority:
        why = "does not say whose client certificates count"
        raise UnusableKubeconfig(why, place=f"ConfigMap {_PUBLISHED.key} on the hub")
    return authority
