"""`token create`, `list` and `delete` put together: what lets a cluster register itself."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from typing import Final

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, PARTS_NAMESPACE, execution_namespace
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
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
from clusterspace.apiserver.kubernetes_hub.agents import (
    agent_objects,
    note_path,
    token_note,
    token_secret,
)
from clusterspace.client.discovery import is_own_server
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import (
    ClusterClient,
    DeleteOptions,
    ListOptions,
    WriteOptions,
)
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.errors import AlreadyExists, CannotJoin, NotFound, Unauthorized
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.pull_join import pins_of
from clusterspace.fleet.membership.registration import refuse_name
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    uid_of,
)
from clusterspace.roots.clients import open_client, read_pem
from clusterspace.roots.init import place_of

TOKEN_VARIABLE: Final = "CLUSTERSPACE_REGISTER_TOKEN"  # noqa: S105 - a name
"""What the `--token` of `register` is called in the environment."""

_TOKENS: Final = ResourcePath(manifests.SECRETS, NAMESPACE)
_OF_OUR_TYPE: Final = ListOptions(field_selector=f"type={TYPE}")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH: Final = 6
_SECRET_LENGTH: Final = 26
"""A little more than 128 bits."""

_PLAIN_LENGTH: Final = 16
"""What Kubernetes' own tokens have, no more and no less: 82 bits, good for an hour."""

_KNOWN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1


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
        return f"{TOKEN_VARIABLE}={self.token} {self._register()}"

    @property
    def command_for_programs(self) -> str:
        """The command in Karmada's form: programs take it apart and look for `--token`.

        `register` takes the token out of the list of processes as soon as it runs.
        """
        return self._register(f"--token {self.token} ")

    def _register(self, token: str = "") -> str:
        return (
            f"clusterspace register {self.server} {token}"
            f"--discovery-token-ca-cert-hash {self.pin} --cluster-name {self.cluster_name}"
        )


def new_token(random: Random, length: int = _SECRET_LENGTH) -> str:
    """Return a new token: an id, a dot, and the secret."""
    token_id = "".join(random.choices(_LETTERS, k=_ID_LENGTH))
    return f"{token_id}.{''.join(random.choices(_LETTERS, k=length))}"


async def create_token(
    cluster_name: str, hub: ConnectionSettings, *, seconds: int = CLUSTER_TOKEN_SECONDS
) -> NewToken:
    """Make a token that lets one cluster register, once.

    Our own hub keeps no more than its digest. A kube-apiserver knows tokens of Kubernetes' own kind
    only; whom such a one is for is noted beside it, and the agent's roles are made along with it.
    """
    refuse_name(cluster_name)
    pins = authority_pins(hub)
    if not pins:
        why = "the hub's kubeconfig names no certificate authority, which a newcomer must check"
        raise CannotJoin(cluster_name, why)
    clock = SystemClock()
    async with open_client(hub) as hub_client:
        if not await is_own_server(hub_client.connection):
            token = await _create_elsewhere(cluster_name, hub_client, clock, seconds=seconds)
            return NewToken(hub.server, token, pins[0], cluster_name)
        token = new_token(SystemRandom())
        secret = cluster_token_secret(token, cluster_name, clock.now(), seconds=seconds)
        stored = await hub_client.create(_TOKENS, secret)
        try:
            # Used once, as nobody in particular: does it let anybody in?
            as_newcomer = replace(hub, identity=AuthInfo(token=token))
            async with open_client(as_newcomer) as newcomer:
                await newcomer.connection.ask(ApiRequest("GET", "/version"))
        except BaseException:
            path = _TOKENS.named(secret_name(token.partition(".")[0]))
            await hub_client.delete(path, DeleteOptions(uid_of(stored)))
            raise
        # The namespace of the heartbeats, which agents may not make.
        namespace = manifests.namespace_path(CLUSTER_NAMESPACE)
        if await hub_client.find(namespace) is None:
            with suppress(AlreadyExists):
                await hub_client.create(
                    namespace.collection, manifests.namespace(CLUSTER_NAMESPACE)
                )
    return NewToken(hub.server, token, pins[0], cluster_name)


async def _create_elsewhere(
    cluster_name: str, hub: ClusterClient, clock: Clock, *, seconds: int
) -> str:
    """Make a token at a hub that is a kube-apiserver, and what the cluster's agent may do there.

    The roles come first and the token last: whoever has it can use it.
    """
    if await hub.find(manifests.namespace_path(PARTS_NAMESPACE)) is None:
        why = f"{hub.connection.settings.server} is no hub yet: run `clusterspace init` first"
        raise CannotJoin(cluster_name, why)
    placed = manifests.namespace_path(execution_namespace(cluster_name))
    existing = await hub.find(placed)
    if existing is not None and is_being_deleted(existing):
        why = (
            f"namespace {placed.name} at the hub is still being deleted: try again once it is gone"
        )
        raise CannotJoin(cluster_name, why)
    options = WriteOptions(field_manager="clusterspace-token", force=True)
    for each in agent_objects(cluster_name):
        await hub.apply(place_of(each), each, options)
    token = new_token(SystemRandom(), length=_PLAIN_LENGTH)
    token_id = token.partition(".")[0]
    await hub.create(note_path(token_id).collection, token_note(token_id, cluster_name))
    secret = token_secret(token, cluster_name, clock.now(), seconds=seconds)
    stored = await hub.create(_TOKENS, secret)
    settings = replace(hub.connection.settings, identity=AuthInfo(token=token))
    try:
        async with asyncio.timeout(_KNOWN_SECONDS), open_client(settings) as newcomer:
            while True:
                try:
                    # Used once, as nobody in particular: does it let anybody in?
                    await newcomer.connection.ask(ApiRequest("GET", "/version"))
                except Unauthorized:
                    await clock.sleep(_LOOK_SECONDS)  # it hears of new tokens a moment later
                else:
                    return token
    except BaseException as error:
        await hub.delete(_TOKENS.named(secret_name(token_id)), DeleteOptions(uid_of(stored)))
        await _delete_note(hub, token_id)
        await _forget_unregistered(cluster_name, hub)
        if not isinstance(error, TimeoutError):
            raise
        why = (
            "the API server does not accept bootstrap tokens: start it with "
            "--enable-bootstrap-token-auth, or let the cluster join by a MemberCluster"
        )
        raise CannotJoin(cluster_name, why) from error


async def _delete_note(hub: ClusterClient, token_id: str) -> None:
    note = await hub.find(note_path(token_id))
    if note is not None:
        with suppress(NotFound):
            await hub.delete(note_path(token_id), DeleteOptions(uid_of(note)))


async def forget_agent(cluster_name: str, hub: ClusterClient) -> None:
    """Take an agent's roles away at a hub that is a kube-apiserver: its certificate counts on.

    Its namespace goes, too, where no cluster has that name and nothing was ever placed; otherwise
    it is the leave's to end.
    """
    if await is_own_server(hub.connection):
        return
    for each in reversed(agent_objects(cluster_name)):
        if each["kind"] == "Namespace" and await _is_in_use(cluster_name, hub):
            continue
        existing = await hub.find(place_of(each))
        if existing is not None:
            with suppress(NotFound):
                await hub.delete(place_of(each), DeleteOptions(uid_of(existing)))


async def _is_in_use(cluster_name: str, hub: ClusterClient) -> bool:
    """Whether a cluster has this name, or something is in its namespace."""
    for place in (
        manifests.cluster_path(cluster_name),
        ResourcePath(MEMBER_CLUSTERS, name=cluster_name),
    ):
        if await hub.find(place) is not None:
            return True
    return bool(await hub.list_objects(manifests.works_path(cluster_name)))


async def _forget_unregistered(cluster_name: str, hub: ClusterClient) -> None:
    """Take back what was made for the agent of a cluster that nobody can register any more.

    Nothing happens while there is a cluster of that name, or another token for it.
    """
    notes = await hub.list_objects(note_path("").collection)
    has_token = any(find_at(each, "data", "cluster") == cluster_name for each in notes)
    if cluster_name and not has_token and not await _is_in_use(cluster_name, hub):
        await forget_agent(cluster_name, hub)


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token as the hub knows it: without its secret half."""

    token_id: str
    cluster_name: str
    """The one cluster it is for; empty for Kubernetes' own kind of token."""
    state: str
    expires: str


def known_token(secret: Object, now: float, *, is_spent: bool = False) -> KnownToken:
    """Return a token as its Secret on the hub describes it, and perhaps a note beside it."""
    state = "expired" if has_expired(secret, now) else "unused"
    return KnownToken(
        token_id=secret_text(secret, "token-id"),
        cluster_name=annotations_of(secret).get(CLUSTER, ""),
        state="used" if is_spent or SPENT_ON in annotations_of(secret) else state,
        expires=secret_text(secret, "expiration"),
    )


async def list_tokens(hub: ConnectionSettings) -> list[KnownToken]:
    """Return every token the hub holds, in the order of their ids."""
    now = SystemClock().now()
    async with open_client(hub) as hub_client:
        secrets = await hub_client.list_objects(_TOKENS, _OF_OUR_TYPE)
        spent = set[str]()
        if not await is_own_server(hub_client.connection):
            notes = await hub_client.list_objects(note_path("").collection)
            spent = {name_of(each) for each in notes if SPENT_ON in annotations_of(each)}
    known = [
        known_token(each, now, is_spent=note_path(secret_text(each, "token-id")).name in spent)
        for each in secrets
    ]
    return sorted(known, key=lambda each: each.token_id)


async def delete_token(token: str, hub: ConnectionSettings) -> str:
    """Delete a token, given whole or by its id, so that it lets nobody in; return the id.

    At a hub that is a kube-apiserver what was made along with it goes, too, if its cluster has not
    registered.
    """
    token_id = token.partition(".")[0]
    path = _TOKENS.named(secret_name(token_id))
    async with open_client(hub) as hub_client:
        secret = await hub_client.find(path)
        is_elsewhere = not await is_own_server(hub_client.connection)
        # Kubernetes removes a token that has ended; the note beside it says whose it was.
        note = await hub_client.find(note_path(token_id)) if is_elsewhere else None
        if secret is not None and secret.get("type") == TYPE:
            await hub_client.delete(path, DeleteOptions(uid_of(secret)))
        elif note is None:
            raise NotFound(f"there is no token {token_id}")
        if note is not None:
            await _delete_note(hub_client, token_id)
            await _forget_unregistered(str(find_at(note, "data", "cluster") or ""), hub_client)
    return token_id


def authority_pins(hub: ConnectionSettings) -> tuple[str, ...]:
    """Return the fingerprints of the authorities a hub's kubeconfig trusts."""
    authority = read_pem(hub.trust.authority)
    return pins_of(authority) if authority else ()
