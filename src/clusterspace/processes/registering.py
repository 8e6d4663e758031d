"""`token create`, `register` and `unregister` put together: clients opened, progress told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.api.clusters import CLUSTER_NAMESPACE, is_pull
from clusterspace.client.places import Place
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import AlreadyExists, CannotJoin, CannotLeave
from clusterspace.hub.identity.bootstrap_tokens import (
    CLUSTER_TOKEN_SECONDS,
    NAMESPACE,
    cluster_token_secret,
)
from clusterspace.membership import leave, manifests, names
from clusterspace.membership.agent_credentials import refuse_name
from clusterspace.membership.hub_discovery import pins_of
from clusterspace.membership.pull_join import PullJoin, RegisterRequest, Surroundings
from clusterspace.membership.pull_leave import refuse_other_registration, remove_agent
from clusterspace.processes.clients import open_client

Tell: TypeAlias = Callable[[str], object]

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH: Final = 6
_SECRET_LENGTH: Final = 26
"""A little more than 128 bits."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """What whoever registers a cluster has to be told."""

    server: str
    token: str = field(repr=False)
    pin: str
    cluster_name: str

    @property
    def command(self) -> str:
        """The command that registers the cluster."""
        return (
            f"clusterspace register {self.server} --token {self.token} "
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
    pins = _pins(hub)
    if not pins:
        why = "the hub's kubeconfig names no certificate authority, which a newcomer must check"
        raise CannotJoin(cluster_name, why)
    clock, token = SystemClock(), new_token(SystemRandom())
    secret = cluster_token_secret(token, cluster_name, clock.now(), seconds=seconds)
    async with open_client(hub) as hub_client:
        await _ensure_cluster_namespace(hub_client)
        await hub_client.create(Place(names.SECRETS, NAMESPACE), secret)
    return NewToken(hub.server, token, pins[0], cluster_name)


async def register_cluster(
    request: RegisterRequest, member: ConnectionSettings, tell: Tell
) -> None:
    """Register a cluster with a hub, from the cluster's side."""

    def progress(sentence: str) -> None:
        tell(sentence)

    async with open_client(member) as member_client:
        clock: Clock = SystemClock()
        around = Surroundings(member_client, clock, SystemRandom(), open_client, progress)
        await PullJoin(request, around).register()
    tell(f"cluster {request.name} is registered")


async def unregister_cluster(
    cluster_name: str,
    hub: ConnectionSettings,
    member: ConnectionSettings,
    tell: Tell,
    *,
    wait_seconds: float = 60.0,
) -> None:
    """Take a Pull cluster out of the fleet, and its agent down."""
    marks = set(_pins(hub))
    async with open_client(hub) as hub_client, open_client(member) as member_client:
        await refuse_other_registration(member_client, cluster_name, marks)
        await _leave_hub(hub_client, cluster_name, tell, wait_seconds)
        outcome = await remove_agent(member_client, marks)
    for each in outcome.removed:
        tell(f"removed from the member: {each}")
    for each in outcome.kept:
        tell(f"kept on the member, for this hub did not make it: {each}")
    tell(f"cluster {cluster_name} is unregistered")


async def _leave_hub(
    hub: ClusterClient, cluster_name: str, tell: Tell, wait_seconds: float
) -> None:
    cluster = await hub.find(names.cluster_place(cluster_name))
    if cluster is None:
        tell("the hub does not know the cluster any more")
        return
    if not is_pull(cluster):
        raise CannotLeave(cluster_name, "the hub reaches it by itself (Push): use unjoin")
    leaving = leave.Leave(hub, cluster_name, _nothing_to_clean)
    await leaving.begin()
    tell("withdrawing what was placed, and forgetting the cluster on the hub")
    await leaving.finish(SystemClock(), wait_seconds)


async def _nothing_to_clean(_hub_id: str, _before_removal: object) -> None:
    """Leave the member alone: its agent is taken down once the hub has forgotten it."""


async def _ensure_cluster_namespace(hub: ClusterClient) -> None:
    """Make the namespace of the heartbeats, which agents may not make."""
    place = names.namespace_place(CLUSTER_NAMESPACE)
    if await hub.find(place) is not None:
        return
    try:
        await hub.create(place.collection, manifests.namespace(CLUSTER_NAMESPACE))
    except AlreadyExists:
        return


def _pins(hub: ConnectionSettings) -> tuple[str, ...]:
    authority = hub.trust.authority
    held = authority.data if authority.file is None else authority.file.read_bytes()
    return pins_of(held) if held else ()
