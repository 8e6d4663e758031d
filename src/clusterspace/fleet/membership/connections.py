"""A Cluster and its Secrets to a connection: how the hub reaches each of its Push members.

A token is sent where its own Secret says it belongs, and nowhere else: see
`apis.clusters`. Gateway, controllers, the hub's relay and our commands all come by here.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, cast
from urllib.parse import urlsplit

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    impersonator_ref_of,
    is_claimed,
    is_pull,
    misuse_of,
    secret_ref_of,
)
from clusterspace.apis.tunnels import VIEW_ANNOTATION, is_view_forbidden
from clusterspace.client.endpoints import AddressRules, advice, endpoint_problem, problem_with_host
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, Reader
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.errors import (
    AddressNotAllowed,
    CredentialsUnclaimed,
    CredentialsUnusable,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership.manifests import SECRETS
from clusterspace.kube.objects import Object, find_at, name_of

Connect: TypeAlias = Callable[[ConnectionSettings], ClusterClient]
"""Opens a client; the process that runs us decides how."""

Reach: TypeAlias = Callable[[Object], Awaitable[ClusterClient]]
"""Returns the client of a Cluster; ClusterError when there can be none."""


def secret_value(secret: Object, key: str) -> bytes:
    """Return the value of a key of a Secret, decoded; empty when it has none."""
    encoded = find_at(secret, "data", key)
    return b64decode(encoded) if isinstance(encoded, str) else b""


def require_own(cluster: Object, secret: Object) -> None:
    """Refuse a Secret that is not this Cluster's, or was given for another address."""
    misuse = misuse_of(secret, cluster)
    if misuse and not is_claimed(secret):
        raise CredentialsUnclaimed(name_of(cluster), misuse)
    if misuse:
        raise CredentialsUnusable(name_of(cluster), misuse)


def proxy_headers_of(cluster: Object) -> tuple[tuple[str, str], ...]:
    """Return the headers that the proxy before a member is sent; of a list, one for each value."""
    listed = find_at(cluster, "spec", "proxyHeader")
    headers = cast("dict[str, object]", listed) if isinstance(listed, dict) else {}
    return tuple(
        (name, value.strip())
        for name, values in sorted(headers.items())
        for value in str(values).split(",")
    )


def settings_of(
    cluster: Object, secret: Object, rules: AddressRules | None = None
) -> ConnectionSettings:
    """Return how to reach a member with the credentials of this Secret, whosever it is.

    The rules say where members may be. Without any, who asks has chosen the address himself.
    """
    name = name_of(cluster)
    server = str(find_at(cluster, "spec", "apiEndpoint") or "")
    # What an earlier version of the hub, or a restored one, let in is no better for being stored.
    problem = endpoint_problem(server)
    if problem:
        raise CredentialsUnusable(name, f"its spec.apiEndpoint {problem}")
    host = urlsplit(server).hostname or ""
    refused = problem_with_host(rules, host) if rules is not None else ""
    if refused:
        raise AddressNotAllowed(name, advice(refused), address=host)
    token = secret_value(secret, "token").decode()
    if not token:
        raise CredentialsUnusable(name, f"Secret {name_of(secret)} on the hub holds no token")
    skips = bool(find_at(cluster, "spec", "insecureSkipTLSVerification"))
    authority = b"" if skips else secret_value(secret, "caBundle")
    return ConnectionSettings(
        cluster=name,
        server=server.rstrip("/"),
        trust=Trust(Pem(authority), skips_verification=skips),
        identity=AuthInfo(token=token),
        proxy_url=str(find_at(cluster, "spec", "proxyURL") or ""),
        proxy_headers=proxy_headers_of(cluster),
        address_rules=rules,
    )


async def read_settings(hub: Reader, cluster: Object, rules: AddressRules) -> ConnectionSettings:
    """Read the credentials of a member and return how to reach it."""
    ref = secret_ref_of(cluster)
    is_ours = ref is not None and ref.namespace == CLUSTER_NAMESPACE
    secret = (
        await hub.find(ResourcePath(SECRETS, ref.namespace, ref.name)) if ref and is_ours else None
    )
    if secret is None:
        raise CredentialsUnusable(name_of(cluster), "the hub holds no credentials for it")
    require_own(cluster, secret)
    return settings_of(cluster, secret, rules)


def user_settings(
    rules: AddressRules,
    cluster: Object,
    own_secret: Object | None,
    impersonator_secret: Object | None,
) -> ConnectionSettings:
    """Return how users reach a member; CredentialsUnusable says why they cannot.

    The impersonator's Secret holds a token alone, so the member's authority is taken from the
    Secret the hub itself works with. Both must be this Cluster's: an authority of somebody else's
    would vouch for somebody else.
    """
    name = name_of(cluster)
    if impersonator_secret is None:
        raise CredentialsUnusable(name, "the hub holds no impersonator credentials for it")
    for each in filter(None, (own_secret, impersonator_secret)):
        require_own(cluster, each)
    if own_secret is None and not find_at(cluster, "spec", "insecureSkipTLSVerification"):
        # Anybody's authority would do without one, and the token goes where its own vouches.
        raise CredentialsUnusable(name, "the hub holds no authority that vouches for it")
    authority = find_at(own_secret or {}, "data", "caBundle")
    data: Object = {"caBundle": authority, **(impersonator_secret.get("data") or {})}
    try:
        return settings_of(cluster, {**impersonator_secret, "data": data}, rules)
    except UnusableKubeconfig as error:
        raise CredentialsUnusable(name, f"its Cluster cannot be used: {error}") from error
    except ValueError as error:
        why = f"Secret {name_of(impersonator_secret)} on the hub cannot be read"
        raise CredentialsUnusable(name, why) from error


def view_settings(
    rules: AddressRules,
    cluster: Object,
    own_secret: Object | None,
    impersonator_secret: Object | None,
) -> ConnectionSettings:
    """Return how users reach a member at a server that its agent keeps a tunnel to.

    A Push member as `user_settings` has it. A Pull member that the hub was given no credentials for
    is reached through its agent, which has its own; CredentialsUnusable when the operator of the
    hub forbids that.
    """
    if not is_pull(cluster) or impersonator_secret is not None:
        return user_settings(rules, cluster, own_secret, impersonator_secret)
    name = name_of(cluster)
    if is_view_forbidden(cluster):
        why = f"the hub's operator forbids its view: annotation {VIEW_ANNOTATION} of the Cluster"
        raise CredentialsUnusable(name, why)
    return ConnectionSettings(name, f"http://{name}", is_tunnelled=True)


def proxied_settings(hub: ConnectionSettings, cluster: Object) -> ConnectionSettings:
    """Return how a part of the control plane reaches a member through `clusters/NAME/proxy`.

    With its own identity at the hub: who that is on the member is for the hub to say.
    """
    name = name_of(cluster)
    path = ResourcePath(CLUSTERS, name=name, subresource="proxy").path
    return replace(hub, cluster=name, server=hub.server.rstrip("/") + path)


async def read_user_settings(
    hub: Reader, cluster: Object, rules: AddressRules
) -> ConnectionSettings:
    """Read the credentials by which users reach a member, and return how."""
    refs = (secret_ref_of(cluster), impersonator_ref_of(cluster))
    own, impersonator = [
        ref and await hub.find(ResourcePath(SECRETS, ref.namespace, ref.name)) for ref in refs
    ]
    return user_settings(rules, cluster, own, impersonator)


ReadSettings: TypeAlias = Callable[[Reader, Object, AddressRules], Awaitable[ConnectionSettings]]
"""Reads from the hub how a member is reached; ClusterError when that cannot be."""


@dataclass(frozen=True, slots=True)
class _Open:
    settings: ConnectionSettings
    member: ClusterClient


class MemberClients:
    """One client for each member, replaced when its address or credentials change.

    They are the hub's own; read by `read_user_settings`, they are those of the impersonator.
    """

    def __init__(
        self,
        hub: Reader,
        connect: Connect,
        rules: AddressRules,
        read: ReadSettings = read_settings,
    ) -> None:
        self._hub = hub
        self._read = read
        self._connect = connect
        self._rules = rules
        self._open: dict[str, _Open] = {}

    async def reach(self, cluster: Object) -> ClusterClient:
        """Return the client of a member; a ClusterError when the hub has no way in."""
        name = name_of(cluster)
        # Read every time: a token that was taken back, or tied to another address, is not used
        # once more only because a connection is open.
        settings = await self._read(self._hub, cluster, self._rules)
        known = self._open.get(name)
        if known is not None and known.settings == settings:
            return known.member
        # Replaced before the old one is closed, with no await since it was looked up: two who come
        # here at once would both open a client, and one of them would never be closed.
        member = self._connect(settings)
        self._open[name] = _Open(settings, member)
        if known is not None:
            await known.member.connection.close()
        return member

    async def forget(self, cluster_name: str) -> None:
        """Close the connections to a member that left or moved."""
        known = self._open.pop(cluster_name, None)
        if known is not None:
            await known.member.connection.close()

    async def close(self) -> None:
        """Close all connections."""
        for name in list(self._open):
            await self.forget(name)
