"""The pull join: a member registers itself, and its agent dials out.

    look     who the cluster is, whether another agent is there, whether we have the rights
    hub      found by its pin; a certificate for the token        (the token is used up)
    member   namespace, account, role, and the registration
    hub      the Cluster, created as the agent itself
    member   the agent, unless it runs elsewhere

The Cluster comes after everything that can be taken back, because agents may not delete any.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import id_of, is_pull
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.settings import Identity, Pem
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import AlreadyExists, CannotJoin, Invalid, Unauthorized
from clusterspace.fleet.membership import agent_manifests, names
from clusterspace.fleet.membership.agent_credentials import (
    KeyedCertificate,
    obtain_certificate,
    refuse_name,
)
from clusterspace.fleet.membership.hub_discovery import FoundHub, find_hub
from clusterspace.fleet.membership.journal import Journal, foreign_hub
from clusterspace.fleet.membership.manifests import NOWHERE, Location
from clusterspace.fleet.membership.member_access import MEMBER, MemberAccess, Open
from clusterspace.kube.objects import Object, annotations_of

HUB: Final = "the hub"

Tell: TypeAlias = Callable[[str], None]
"""Told each step in a sentence, as it begins."""


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """What is to register where, and as what."""

    name: str
    hub_address: str
    pin: str
    token: str = field(repr=False)
    location: Location = NOWHERE
    image: str = ""
    """The agent's image; without one the agent is not put into the member."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a registration works with."""

    member: Client
    clock: Clock
    random: Random
    open_client: Open
    tell: Tell


class PullJoin:
    """One cluster on its way into the fleet, from its own side."""

    def __init__(self, request: RegisterRequest, surroundings: Surroundings) -> None:
        self._request = request
        self._name = request.name
        self._around = surroundings
        self._member = surroundings.member
        self._tell = surroundings.tell
        self._journal = Journal(request.name)
        self._access = MemberAccess(
            request.name, surroundings.member, self._journal, surroundings.clock
        )

    async def register(self) -> Object:
        """Register; on failure take back what was made on the member. Return the Cluster."""
        cluster_id = await self._look()
        request, around = self._request, self._around
        self._tell(f"finding {HUB} by its fingerprint")
        hub = await find_hub(self._name, request.hub_address, request.pin, around.open_client)
        self._tell("asking for the agent's certificate")
        held = await self._obtain_certificate(hub)
        try:
            return await self._join(hub, held, cluster_id)
        except BaseException:
            await self._take_back()
            raise

    async def _look(self) -> str:
        """Return who the cluster is; refuse what cannot work before a token is used up."""
        refuse_name(self._name)
        self._tell(f"asking {MEMBER} who it is")
        identity = await self._access.ask_identity()
        await self._access.check_rights()
        registration = await self._member.find(agent_manifests.REGISTRATION_PLACE)
        refuse_other_agent(self._request, registration)
        namespace = await self._member.find(agent_manifests.NAMESPACE_PLACE)
        if namespace is not None and is_being_deleted(namespace):
            why = f"{agent_manifests.NAMESPACE_PLACE} on {MEMBER} is still being deleted"
            raise CannotJoin(self._name, why)
        return identity.id

    async def _obtain_certificate(self, hub: FoundHub) -> KeyedCertificate:
        settings = hub.settings(Identity(token=self._request.token))
        async with self._around.open_client(settings) as newcomer:
            try:
                return await obtain_certificate(
                    newcomer, self._name, clock=self._around.clock, random=self._around.random
                )
            except Unauthorized as error:
                why = f"{HUB} does not accept the token: it works once, and for an hour"
                raise CannotJoin(self._name, why) from error

    async def _join(self, hub: FoundHub, held: KeyedCertificate, cluster_id: str) -> Object:
        self._tell(f"writing the registration on {MEMBER}")
        await self._ensure(agent_manifests.NAMESPACE_PLACE, agent_manifests.namespace(self._mark))
        await self._write_registration(hub, held)
        if self._request.image:
            await self._give_rights()
        self._tell(f"creating cluster {self._name} on {HUB}")
        cluster = await self._create_cluster(hub, held, cluster_id)
        if self._request.image:
            self._tell(f"starting the agent on {MEMBER}")
            await self._start_agent(self._request.image)
        return cluster

    async def _write_registration(self, hub: FoundHub, held: KeyedCertificate) -> None:
        place = agent_manifests.REGISTRATION_PLACE
        wanted = agent_manifests.registration_secret(self._name, hub, held, self._mark)
        present = await self._ensure(place, wanted)
        await commit(self._member, place, present, {**present, "data": wanted["data"]})

    async def _give_rights(self) -> None:
        self._tell(f"creating the agent's account and role on {MEMBER}")
        mark = self._mark
        await self._ensure(agent_manifests.ACCOUNT_PLACE, agent_manifests.account(mark))
        await self._ensure(agent_manifests.ROLE_PLACE, agent_manifests.role(mark))
        await self._ensure(agent_manifests.ROLE_BINDING_PLACE, agent_manifests.role_binding(mark))

    async def _start_agent(self, image: str) -> None:
        place = agent_manifests.DEPLOYMENT_PLACE
        wanted = agent_manifests.deployment(image, self._mark)
        present = await self._ensure(place, wanted)
        spec = {**present["spec"], "template": wanted["spec"]["template"]}
        if present["spec"]["template"]["spec"]["containers"][0].get("image") != image:
            await commit(self._member, place, present, {**present, "spec": spec})

    async def _create_cluster(
        self, hub: FoundHub, held: KeyedCertificate, cluster_id: str
    ) -> Object:
        wanted = agent_manifests.cluster(self._name, cluster_id, self._request.location)
        place = names.cluster_place(self._name)
        settings = hub.settings(Identity(certificate=Pem(held.certificate), key=Pem(held.key)))
        async with self._around.open_client(settings) as as_agent:
            try:
                return await as_agent.create(place.collection, wanted)
            except AlreadyExists:
                return same_cluster(await as_agent.get(place), self._name, cluster_id)
            except Invalid as error:
                raise CannotJoin(self._name, error.message) from error

    @property
    def _mark(self) -> str:
        return self._request.pin

    async def _ensure(self, place: Place, wanted: Object) -> Object:
        return await self._journal.ensure(MEMBER, self._member, place, wanted)

    async def _take_back(self) -> None:
        if not self._journal.made:
            return
        self._tell("it failed: taking back what this registration has made")
        for each in await self._journal.take_back():
            self._tell(f"could not remove {each}")


def refuse_other_agent(request: RegisterRequest, registration: Object | None) -> None:
    """Refuse a member on which the agent of another membership is at home."""
    if registration is None:
        return
    called = annotations_of(registration).get(agent_manifests.CLUSTER_MARK, "")
    if foreign_hub(registration, request.pin) or called != request.name:
        known = f"as {called} " if called else ""
        why = f"the member is registered {known}already: unregister it there first"
        raise CannotJoin(request.name, why)


def same_cluster(present: Object, name: str, cluster_id: str) -> Object:
    """Return the Cluster that is there if this is the one; refuse another's name."""
    if not is_pull(present):
        raise CannotJoin(name, "it has joined already, reached by the hub (Push): unjoin it first")
    if id_of(present) not in ("", cluster_id):
        why = f"the name belongs to another cluster, with the ID {id_of(present)}"
        raise CannotJoin(name, why)
    return present
