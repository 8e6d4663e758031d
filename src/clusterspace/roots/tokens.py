"""`token create`, `list` and `delete` put together: what lets a cluster register itself."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from typing import Final

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE
from clusterspace.apiserver.identity.bootstrap_tokens import (
    CLUSTER,
    CLUSTER_TOKEN_SECONDS,
    NAMESPACE,
    SPENT_ON,
    TYPE,
    cluster_token_secret,
    has_expired,
    secret_name,
)
from clusterspace.apiserver.identity.following import secret_text
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import DeleteOptions, ListOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.errors import AlreadyExists, CannotJoin, NotFound, Unauthorized
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.pull_join import pins_of
from clusterspace.fleet.membership.registration import refuse_name
from clusterspace.kube.objects import Object, annotations_of, uid_of
from clusterspace.roots.clients import open_client, read_pem

TOKEN_VARIABLE: Final = "CLUSTERSPACE_REGISTER_TOKEN"  # noqa: S105 - a name
"""What the `--token` of `register` is called in the environment."""

_TOKENS: Final = ResourcePath(manifests.SECRETS, NAMESPACE)
_OF_OUR_TYPE: Final = ListOptions(field_selector=f"type={TYPE}")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH: Final = 6
_SECRET_LENGTH: Final = 26
"""A little more than 128 bits."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token, with all that a person needs to register a cluster."""

    server: str
    token: str = field(repr=False)
    pin: str
    cluster_name: str

    @property
    def command(self) -> str:
        """The command that registers the cluster, for a shell.

        The token is a variable of that one command: what a program is called with is shown to
        everybody on its machine, what it is given to know is not.
        """
        return (
            f"{TOKEN_VARIABLE}={self.token} clusterspace register {self.server} "
            f"--discovery-token-ca-cert-hash {self.pin} --cluster-name {self.cluster_name}"
        )


def new_token(random: Random) -> str:
    """Return a new token: an id, a dot, and the secret."""
    token_id = "".join(random.choices(_LETTERS, k=_ID_LENGTH))
    return f"{token_id}.{''.join(random.choices(_LETTERS, k=_SECRET_LENGTH))}"


async def create_token(
    cluster_name: str, hub: ConnectionSettings, *, seconds: int = CLUSTER_TOKEN_SECONDS
) -> NewToken:
    """Make a token that lets one cluster register, once; the hub keeps no more than its digest."""
    refuse_name(cluster_name)
    pins = authority_pins(hub)
    if not pins:
        why = "the hub's kubeconfig names no certificate authority, which a newcomer must check"
        raise CannotJoin(cluster_name, why)
    clock, token = SystemClock(), new_token(SystemRandom())
    secret = cluster_token_secret(token, cluster_name, clock.now(), seconds=seconds)
    async with open_client(hub) as hub_client:
        stored = await hub_client.create(_TOKENS, secret)
        try:
            # Used once, as nobody in particular: only our own API server knows such tokens.
            as_newcomer = replace(hub, identity=AuthInfo(token=token))
            async with open_client(as_newcomer) as newcomer:
                await newcomer.connection.ask(ApiRequest("GET", "/version"))
        except BaseException as error:
            path = _TOKENS.named(secret_name(token.partition(".")[0]))
            await hub_client.delete(path, DeleteOptions(uid_of(stored)))
            if not isinstance(error, Unauthorized):
                raise
            why = (
                "this hub does not let agents register: it is another API server than "
                "Clusterspace's own. Clusters that it can reach join by `clusterspace join`"
            )
            raise CannotJoin(cluster_name, why) from error
        # The namespace of the heartbeats, which agents may not make.
        namespace = manifests.namespace_path(CLUSTER_NAMESPACE)
        if await hub_client.find(namespace) is None:
            with suppress(AlreadyExists):
                await hub_client.create(
                    namespace.collection, manifests.namespace(CLUSTER_NAMESPACE)
                )
    return NewToken(hub.server, token, pins[0], cluster_name)


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token as the hub knows it: without its secret half."""

    token_id: str
    cluster_name: str
    """The one cluster it is for; empty for Kubernetes' own kind of token."""
    state: str
    expires: str


def known_token(secret: Object, now: float) -> KnownToken:
    """Return a token as its Secret on the hub describes it."""
    state = "expired" if has_expired(secret, now) else "unused"
    return KnownToken(
        token_id=secret_text(secret, "token-id"),
        cluster_name=annotations_of(secret).get(CLUSTER, ""),
        state="used" if SPENT_ON in annotations_of(secret) else state,
        expires=secret_text(secret, "expiration"),
    )


async def list_tokens(hub: ConnectionSettings) -> list[KnownToken]:
    """Return every token the hub holds, in the order of their ids."""
    now = SystemClock().now()
    async with open_client(hub) as hub_client:
        secrets = await hub_client.list_objects(_TOKENS, _OF_OUR_TYPE)
    return sorted((known_token(each, now) for each in secrets), key=lambda each: each.token_id)


async def delete_token(token: str, hub: ConnectionSettings) -> str:
    """Delete a token, given whole or by its id, so that it lets nobody in; return the id."""
    token_id = token.partition(".")[0]
    path = _TOKENS.named(secret_name(token_id))
    async with open_client(hub) as hub_client:
        secret = await hub_client.find(path)
        if secret is None or secret.get("type") != TYPE:
            raise NotFound(f"there is no token {token_id}")
        await hub_client.delete(path, DeleteOptions(uid_of(secret)))
    return token_id


def authority_pins(hub: ConnectionSettings) -> tuple[str, ...]:
    """Return the fingerprints of the authorities a hub's kubeconfig trusts."""
    authority = read_pem(hub.trust.authority)
    return pins_of(authority) if authority else ()
