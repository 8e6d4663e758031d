"""A Cluster and its Secrets to a connection: how the hub reaches each of its Push members."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.client.places import Place
from clusterspace.client.resources import ClusterClient, Reader
from clusterspace.client.settings import ConnectionSettings, Identity, Pem, Trust
from clusterspace.errors import CredentialsUnusable
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.membership.names import SECRETS
from clusterspace.membership.tokens import secret_value

Connect: TypeAlias = Callable[[ConnectionSettings], ClusterClient]
"""Opens a client; the process that runs us decides how."""

Reach: TypeAlias = Callable[[Object], Awaitable[ClusterClient]]
"""Returns the client of a Cluster; ClusterError when there can be none."""


def settings_of(cluster: Object, secret: Object) -> ConnectionSettings:
    """Return how to reach a member with the credentials of this Secret."""
    name = name_of(cluster)
    token = secret_value(secret, "token").decode()
    if not token:
        raise CredentialsUnusable(name, f"Secret {name_of(secret)} on the hub holds no token")
    skips = bool(find_at(cluster, "spec", "insecureSkipTLSVerification"))
    authority = b"" if skips else secret_value(secret, "caBundle")
    return ConnectionSettings(
        cluster=name,
        server=str(find_at(cluster, "spec", "apiEndpoint") or "").rstrip("/"),
        trust=Trust(Pem(authority), skips_verification=skips),
        identity=Identity(token=token),
        proxy_url=str(find_at(cluster, "spec", "proxyURL") or ""),
    )


async def read_settings(hub: Reader, cluster: Object) -> ConnectionSettings:
    """Read the credentials of a member and return how to reach it."""
    namespace = str(find_at(cluster, "spec", "secretRef", "namespace") or "")
    name = str(find_at(cluster, "spec", "secretRef", "name") or "")
    secret = await hub.find(Place(SECRETS, namespace, name)) if name else None
    if secret is None:
        raise CredentialsUnusable(name_of(cluster), "the hub holds no credentials for it")
    return settings_of(cluster, secret)


@dataclass(frozen=True, slots=True)
class _Held:
    settings: ConnectionSettings
    member: ClusterClient


class MemberClients:
    """One client for each Push member, replaced when its address or credentials change."""

    def __init__(self, hub: Reader, connect: Connect) -> None:
        self._hub = hub
        self._connect = connect
        self._held: dict[str, _Held] = {}

    async def reach(self, cluster: Object) -> ClusterClient:
        """Return the client of a member; CredentialsUnusable when the hub has no way in."""
        name = name_of(cluster)
        settings = await read_settings(self._hub, cluster)
        held = self._held.get(name)
        if held is not None and held.settings == settings:
            return held.member
        await self.forget(name)
        member = self._connect(settings)
        self._held[name] = _Held(settings, member)
        return member

    async def forget(self, cluster_name: str) -> None:
        """Close the connections to a member that left or moved."""
        held = self._held.pop(cluster_name, None)
        if held is not None:
            await held.member.connection.close()

    async def close(self) -> None:
        """Close all connections."""
        for name in list(self._held):
            await self.forget(name)
