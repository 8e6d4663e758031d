"""How users reach members: by the impersonator's credentials, acting as themselves."""

from random import SystemRandom
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.client.connection import Connection
from clusterspace.client.connections import Connections
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.pools import ConnectionLimits
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import CredentialsUnusable, UnusableKubeconfig
from clusterspace.fleet.membership.connections import require_own, settings_of
from clusterspace.kube.objects import Object, find_at, name_of

LIMITS: Final = ConnectionLimits(streams_at_once=16_384)
"""Every client that watches holds a stream to each cluster, and lists must not wait for them."""


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


def open_connections(clock: Clock) -> Connections:
    """Return connections to members, none of them open yet."""

    def open_one(settings: ConnectionSettings) -> Connection:
        return Connection(settings, clock=clock, random=SystemRandom(), limits=LIMITS)

    return Connections(open_one)
