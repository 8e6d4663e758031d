"""The TLS of our API servers: certificates and authorities that change while they run.

A connection keeps the certificate it was opened with; a renewed one is for those that come. Keys
and authorities are files (`installation.py` lists them). Whoever replaces them, `certs rotate` or
an operator by hand, replaces files, and the servers that run take them over within seconds.
"""

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.http.listener import (
    HttpServer,
    reload_certificate,
    server_context,
)
from clusterspace.apiserver.identity.authority import (
    Authorities,
    key_id_of,
    read_bundle,
    renew_forever,
    signer_of,
)
from clusterspace.apiserver.identity.credentials_in_use import (
    NAME,
    NAMESPACE,
    WRITE_SECONDS,
    CredentialsInUse,
)
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, Reader
from clusterspace.errors import ApiError, ClusterError, ClusterspaceError, UnusableKubeconfig
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.installation import Installation, write_private

_log = structlog.get_logger(__name__)

_PUBLISHED: Final = ResourcePath(
    GroupVersionResource("", "v1", "configmaps"),
    "kube-system",
    "extension-apiserver-authentication",
)
_IN_USE: Final = ResourcePath(GroupVersionResource("", "v1", "configmaps"), NAMESPACE, NAME)
_PUBLISHED_SECONDS: Final = 5.0
"""Between two looks at whose client certificates count: `certs rotate` waits for much longer."""

FILES_SECONDS: Final = 1.0
"""Between two looks at our own files: a few calls to the system."""


class ServerTls:
    """A server's certificate and its authorities, kept current."""

    def __init__(
        self,
        installation: Installation,
        authorities: Authorities,
        client_authorities: Path | None = None,
    ) -> None:
        self.authorities = authorities
        self._installation = installation
        self._client_authorities = client_authorities or installation.authority_file
        self._known = installation.key_files()
        self._server: HttpServer | None = None
        self.context = self._new_context()

    def tasks(
        self,
        clock: Clock,
        server: HttpServer,
        on_renewal: Callable[[float], None],
        on_keys: Callable[[], None] = lambda: None,
    ) -> Tasks:
        """Return the tasks that keep it current.

        `on_renewal` renews, at this time, what else was made with the same authorities; `on_keys`
        hears that keys or authorities are others.
        """
        self._server = server

        def in_use() -> tuple[bytes, ...]:
            return (self._installation.server_files[0].read_bytes(),)

        def renew(now: float) -> None:
            self._installation.renew_server(self.authorities, now)
            reload_certificate(self.context, *self._installation.server_files)
            on_renewal(now)

        async def follow_files() -> None:
            while True:
                await clock.sleep(FILES_SECONDS)
                found = self._installation.key_files()
                if found == self._known:
                    continue
                try:
                    self.take(clock.now())
                    on_keys()
                    on_renewal(clock.now())
                except (OSError, ClusterspaceError) as error:
                    # Half written by hand, or a full disk. What is in use stays in use, and the
                    # next look begins with the same files: nothing is taken over for half.
                    _log.error("keys and authorities are as before", reason=str(error))
                    await clock.sleep(FILES_SECONDS)
                    continue
                self._known = found
                _log.info(
                    "keys and authorities are replaced", signing=self.authorities.signing.key_id
                )

        return {
            "certificate renewal": lambda: renew_forever(clock, in_use, renew),
            "keys and authorities": follow_files,
        }

    def take(self, now: float) -> None:
        """Take over the authorities that are in the files, with a certificate of who signs now."""
        authorities = self._installation.load_authorities()
        current = self._installation.server_files[0].read_bytes()
        if signer_of(current) != authorities.signing.key_id:
            self._installation.renew_server(authorities, now)
        self.authorities = authorities
        self._use_new_context()

    def _new_context(self) -> ssl.SSLContext:
        return server_context(
            *self._installation.server_files, client_authorities=(self._client_authorities,)
        )

    def _use_new_context(self) -> None:
        # A context cannot be made to trust less. Sessions of the old one are not resumed with the
        # new one, so that nobody comes back by a ticket from the time of a dropped authority.
        self.context = self._new_context()
        if self._server is not None:
            self._server.use_tls(self.context)


class FleetTls(ServerTls):
    """Our own certificate, and the hub's authorities for those of clients; both kept current."""

    def __init__(
        self, installation: Installation, authorities: Authorities, hub: ClusterClient, file: Path
    ) -> None:
        super().__init__(installation, authorities, file)
        self._hub = hub
        self._file = file
        self.client_key_ids = _key_ids(file.read_bytes())
        """Whose signatures on clients' certificates count now."""

    @classmethod
    async def open(
        cls, installation: Installation, authorities: Authorities, hub: ClusterClient
    ) -> "FleetTls":
        """Read what the hub publishes, and be ready for handshakes."""
        file = installation.pki / "client-ca.crt"
        write_private(file, (await _read_published(hub)).encode())
        return cls(installation, authorities, hub, file)

    def client_tasks(
        self, clock: Clock, in_use: CredentialsInUse, on_change: Callable[[], None]
    ) -> Tasks:
        """Return the tasks that follow whose client certificates count, and say who uses which.

        Nobody is shut out because the hub did not answer.
        """
        in_use.roll(is_rolling=len(self.client_key_ids) > 1)

        async def follow_authority() -> None:
            while True:
                await clock.sleep(_PUBLISHED_SECONDS)
                try:
                    published = (await _read_published(self._hub)).encode()
                    if published == self._file.read_bytes():
                        continue
                    key_ids = _key_ids(published)
                    write_private(self._file, published)
                except (ApiError, ClusterError, UnusableKubeconfig, OSError) as error:
                    _log.warning("the client authorities were not read", reason=str(error))
                    continue
                except ClusterspaceError as error:
                    _log.error("the client authorities cannot be read", reason=str(error))
                    continue
                self.client_key_ids = key_ids
                in_use.roll(is_rolling=len(key_ids) > 1)
                self._use_new_context()
                on_change()

        async def publish_uses() -> None:
            name = f"fleet-{hashlib.sha256(str(self._file).encode()).hexdigest()[:8]}"
            headers = (("Content-Type", "application/merge-patch+json"),)
            written = ""
            while True:
                text = in_use.as_text()
                if text != written:
                    body = msgspec.json.encode({"data": {name: text or None}})
                    ask = ApiRequest("PATCH", _IN_USE.path, headers=headers, body=body)
                    try:
                        await self._hub.connection.ask(ask)
                        written = text
                    except (ApiError, ClusterError) as error:
                        # The hub makes it, when an authority takes over from another there.
                        _log.debug("credentials in use are not written down", reason=str(error))
                await clock.sleep(WRITE_SECONDS)

        return {"client authority": follow_authority, "credentials in use": publish_uses}


def _key_ids(bundle: bytes) -> frozenset[str]:
    return frozenset(map(key_id_of, read_bundle(bundle)))


async def _read_published(hub: Reader) -> str:
    authority = find_at(await hub.get(_PUBLISHED), "data", "client-ca-file")
    if not isinstance(authority, str) or not authority:
        why = "does not say whose client certificates count"
        raise UnusableKubeconfig(why, place=f"ConfigMap {_PUBLISHED.key} on the hub")
    return authority
