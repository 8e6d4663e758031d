"""The member's end of a push join: namespace, accounts and roles there, and tokens for the hub."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from cryptography import x509

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.errors import CannotJoin, Forbidden, NotServed, Unauthorized
from clusterspace.fleet.membership import identity, manifests, names
from clusterspace.fleet.membership.identity import Identity, PropertyApi
from clusterspace.fleet.membership.journal import Journal, foreign_hub
from clusterspace.fleet.membership.tokens import AccountToken, obtain_token
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.timestamps import format_time

MEMBER: Final = "the member"
_REVIEWS: Final = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_PROVE_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.2

Open: TypeAlias = Callable[[ConnectionSettings], AbstractAsyncContextManager[Client]]
"""Opens a client for as long as a block lasts."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the hub will identify itself with: as itself, and on behalf of its users."""

    own: AccountToken
    impersonator: AccountToken


def refuse_expired(cluster_name: str, certificate: bytes, now: float) -> None:
    """Refuse a kubeconfig whose certificate is over: servers close the door without a word."""
    try:
        read = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        return  # whoever makes the connection says what is wrong with it
    if read.not_valid_after_utc.timestamp() <= now:
        ended = format_time(read.not_valid_after_utc.timestamp())
        why = f"the certificate in its kubeconfig has expired, at {ended}: get a new kubeconfig"
        raise CannotJoin(cluster_name, why)


class MemberAccess:
    """Gives one hub access to one member, with the rights of the member's administrator."""

    def __init__(self, cluster_name: str, member: Client, journal: Journal, clock: Clock) -> None:
        self._name = cluster_name
        self._member = member
        self._journal = journal
        self._clock = clock

    async def ask_identity(self) -> Identity:
        """Ask the member who it is."""
        return await self._plainly(identity.read_identity(self._member))

    async def check_rights(self) -> None:
        """Refuse to begin without the rights that every step needs."""
        review = {
            "apiVersion": _REVIEWS.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}},
        }
        try:
            answer = await self._plainly(self._member.create(Place(_REVIEWS), review))
        except NotServed:
            return  # then the first step that is refused will say so
        if not find_at(answer, "status", "allowed"):
            why = "the kubeconfig's user is no administrator there, and only one can give rights"
            raise CannotJoin(self._name, why)

    async def install_property_api(self) -> None:
        """Let the member hold ClusterProperties."""
        place, wanted = identity.definition_place(), identity.property_definition()
        await self._journal.ensure(MEMBER, self._member, place, wanted)
        await identity.wait_served(self._member, self._name, self._clock)

    async def declare_identity(self, found: Identity) -> None:
        """Let the member say who it is from now on."""
        if found.api is PropertyApi.MISSING:
            await self.install_property_api()
        place = Place(identity.PROPERTIES, name=identity.ID_PROPERTY)
        wanted = identity.property_object(found.kube_system_uid)
        await self._journal.ensure(MEMBER, self._member, place, wanted)

    async def prepare(self, hub_id: str) -> None:
        """Make the role the hub works with, and all that it owns."""
        place = names.role_place(names.role(self._name))
        role = await self._ensure_own(place, manifests.full_role(self._name, hub_id), hub_id)
        place = names.namespace_place(CLUSTER_NAMESPACE)
        await self._ensure_shared(place, manifests.member_namespace(hub_id, role), role)
        await self._ensure_impersonator(hub_id, role)
        account = names.service_account(self._name)
        place = names.account_place(account)
        await self._ensure_own(place, manifests.service_account(account, hub_id, role), hub_id)
        place = names.role_binding_place(names.role(self._name))
        await self._ensure_own(place, manifests.role_binding(role, account, hub_id), hub_id)

    async def obtain_tokens(self) -> Tokens:
        """Obtain a token of each account, both at once."""
        try:
            async with asyncio.TaskGroup() as group:
                own, impersonator = (
                    group.create_task(self._obtain(account), name=f"token of {account}")
                    for account in (names.service_account(self._name), names.IMPERSONATOR)
                )
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # they are of one member, in one moment
        return Tokens(own.result(), impersonator.result())

    async def prove(self, settings: ConnectionSettings, open_client: Open, uid: str) -> None:
        """Reach the member as the hub will, and see that it is the same cluster."""
        async with open_client(settings) as as_hub:
            try:
                async with asyncio.timeout(_PROVE_SECONDS):
                    seen = await self._until_accepted(as_hub)
            except TimeoutError as error:
                why = "it does not accept the token that it gave out"
                raise CannotJoin(self._name, why) from error
        if uid_of(seen) != uid:
            why = f"{settings.server} leads to another cluster for the token than for the user"
            raise CannotJoin(self._name, why)

    async def _ensure_impersonator(self, hub_id: str, hub_role: Object) -> None:
        name = names.IMPERSONATOR
        place = names.role_place(name)
        wanted = manifests.impersonator_role(hub_id, hub_role)
        role = await self._ensure_shared(place, wanted, hub_role)
        place = names.account_place(name)
        await self._ensure_shared(place, manifests.service_account(name, hub_id, role), role)
        place = names.role_binding_place(name)
        await self._ensure_shared(place, manifests.role_binding(role, name, hub_id), role)

    async def _ensure_shared(self, place: Place, wanted: Object, owner: Object) -> Object:
        """Make what all memberships use, or share what another hub made; a user's stays his."""
        present = await self._journal.ensure(MEMBER, self._member, place, wanted, is_shared=True)
        if names.HUB_MARK not in annotations_of(present):
            return present
        shared = manifests.with_owner(present, owner)
        return await commit(self._member, place, present, shared)

    async def _ensure_own(self, place: Place, wanted: Object, hub_id: str) -> Object:
        """Make what this membership alone uses; repair its rights, refuse another hub's."""
        present = await self._journal.ensure(MEMBER, self._member, place, wanted)
        other = foreign_hub(present, hub_id)
        if other:
            why = f"the hub with the ID {other} uses {place} there: join under another name"
            raise CannotJoin(self._name, why)
        rights = {key: wanted[key] for key in ("rules", "subjects") if key in wanted}
        owners = metadata_of(wanted).get("ownerReferences")
        repaired = with_metadata({**present, **rights}, ownerReferences=owners)
        return await commit(self._member, place, present, repaired)

    async def _obtain(self, account: str) -> AccountToken:
        return await obtain_token(self._member, MEMBER, account, self._journal, self._clock)

    async def _until_accepted(self, as_hub: Client) -> Object:
        # Roles take a moment until every server of the member knows them.
        while True:
            try:
                return await as_hub.get(names.namespace_place("kube-system"))
            except (Forbidden, Unauthorized):
                await self._clock.sleep(_LOOK_AGAIN_SECONDS)

    async def _plainly(self, asked: Awaitable[_Value]) -> _Value:
        """Await an answer of the member, and say in plain words when it refuses us as such."""
        try:
            return await asked
        except Unauthorized as error:
            why = "it does not accept the kubeconfig's credentials: have they expired?"
            raise CannotJoin(self._name, why) from error
        except Forbidden as error:
            why = f"the kubeconfig's user is no administrator there: {error.message}"
            raise CannotJoin(self._name, why) from error
