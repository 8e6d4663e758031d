"""A member's end of a join: who it is, what is made there, and tokens for the hub.

A cluster may say who it is with a ClusterProperty (KEP-2149). One that says nothing is known by the
UID of its kube-system namespace, which lives as long as the cluster does.

Whatever a join makes, on either side, it makes through a Journal, so that a failure half-way can
take it back. Each entry names the object by its UID: what somebody else made meanwhile under the
same name is left alone. What members of several hubs share goes only when nobody else uses it.

A crash takes the journal along. What it leaves is found by the next join under the same name,
which repairs what is missing, or removed by a leave.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from cryptography import x509

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    FINALIZER,
    find_same_id,
    id_of,
    is_pull,
)
from clusterspace.apis.crds import definition
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, DeleteOptions, Reader
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    CannotJoin,
    ClusterError,
    ClusterTimeout,
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
    Unauthorized,
)
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import secret_value
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
    without_finalizer,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time

# -- who a cluster is; the same cluster twice is refused ---------------------------------------


PROPERTIES: Final = GroupVersionResource("about.k8s.io", "v1beta1", "clusterproperties")
_OLDER: Final = (GroupVersionResource("about.k8s.io", "v1alpha1", "clusterproperties"),)
_DEFINITIONS: Final = GroupVersionResource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions"
)

ID_PROPERTY: Final = "id.k8s.io"
_ID_PROPERTIES: Final = (ID_PROPERTY, "cluster.clusterset.k8s.io")
"""Where a cluster may say who it is; the first that is there counts."""

_ESTABLISH_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1


class PropertyApi(Enum):
    """Whether a cluster can hold ClusterProperties."""

    MISSING = "missing"
    OLDER = "older"
    CURRENT = "current"


class Creation(Enum):
    """What to do about a cluster that does not say who it is: `--create-clusterproperty-...`."""

    UNSET = "unset"
    CREATE = "true"
    REFUSE = "false"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster's own statements about who it is."""

    kube_system_uid: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    api: PropertyApi = PropertyApi.MISSING

    @property
    def declared(self) -> str:
        """The ID the cluster declares, or an empty text."""
        return next((self.properties[key] for key in _ID_PROPERTIES if key in self.properties), "")

    @property
    def id(self) -> str:
        """The ID the cluster is known by."""
        return self.declared or self.kube_system_uid


def needs_property(cluster: str, identity: ClusterIdentity, creation: Creation) -> bool:
    """Whether the cluster must be given a ClusterProperty first; refuse when it cannot join."""
    if identity.declared or creation is Creation.UNSET:
        return False
    if creation is Creation.REFUSE:
        why = (
            f"it has no ClusterProperty {ID_PROPERTY}: create one, "
            "or join with --create-clusterproperty-not-exist=true"
        )
        raise CannotJoin(cluster, why)
    if identity.api is PropertyApi.OLDER:
        served = ", ".join(each.version for each in _OLDER)
        why = (
            f"its ClusterProperty API is of an older version ({served}): "
            f"upgrade it to {PROPERTIES.version}, then join again"
        )
        raise CannotJoin(cluster, why)
    return True


def refuse_if_taken(name: str, cluster_id: str, present: Iterable[Object]) -> Object | None:
    """Return the Cluster this one joined as before, if it did; refuse what would be a mix-up."""
    clusters = list(present)
    holder = find_same_id(clusters, cluster_id, name)
    if holder is not None:
        why = (
            f"the cluster with the ID {cluster_id} has joined as {holder}: unjoin {holder} first, "
            f"or if this is a clone of it, give it a ClusterProperty {ID_PROPERTY} of its own"
        )
        raise CannotJoin(name, why)
    known = next((each for each in clusters if name_of(each) == name), None)
    if known is not None and id_of(known) not in ("", cluster_id):
        why = f"the name belongs to another cluster, with the ID {id_of(known)}"
        raise CannotJoin(name, why)
    if known is not None:
        refuse_leaving(known)
    return known


def refuse_leaving(cluster: Object) -> None:
    """Refuse to join a Cluster that is being deleted: whatever is written to it goes with it."""
    if not is_being_deleted(cluster):
        return
    name = name_of(cluster)
    leave, again = (
        ("unregister", "register it with a new token")
        if is_pull(cluster)
        else ("unjoin", "join it again")
    )
    why = (
        f"it is leaving the fleet, and what joins now leaves with it: when it is gone, {again}. "
        f"`clusterspace {leave} {name}` waits for that and says what it takes; "
        "with --force it is gone at once"
    )
    raise CannotJoin(name, why)


def property_object(cluster_id: str) -> Object:
    """Return the ClusterProperty by which a cluster says who it is."""
    return {
        "apiVersion": PROPERTIES.api_version,
        "kind": "ClusterProperty",
        "metadata": {"name": ID_PROPERTY},
        "spec": {"value": cluster_id},
    }


def property_definition() -> Object:
    """Return the definition of ClusterProperty, for clusters that have none."""
    return definition(PROPERTIES.resource, PROPERTIES.group)


async def read_identity(member: Reader) -> ClusterIdentity:
    """Ask a cluster who it is."""
    kube_system = await member.get(manifests.namespace_path("kube-system"))
    for resource in (PROPERTIES, *_OLDER):
        try:
            properties = await member.list_objects(ResourcePath(resource))
        except (NotServed, NotFound):
            continue
        api = PropertyApi.CURRENT if resource == PROPERTIES else PropertyApi.OLDER
        return ClusterIdentity(uid_of(kube_system), properties_in(properties), api)
    return ClusterIdentity(uid_of(kube_system))


def properties_in(properties: Iterable[Object]) -> dict[str, str]:
    """Return names and values of ClusterProperties."""
    return {name_of(each): str(find_at(each, "spec", "value") or "") for each in properties}


async def wait_served(member: Reader, cluster: str, clock: Clock) -> None:
    """Wait until a member serves ClusterProperty, after its definition was installed."""
    try:
        async with asyncio.timeout(_ESTABLISH_SECONDS):
            while True:
                definition = await member.get(definition_path())
                if is_true(find_at(definition, "status", "conditions"), "Established"):
                    # Said to be served, and by the server that was asked for the definition; the
                    # next one may take a moment longer.
                    with suppress(ApiError):
                        await member.list_objects(ResourcePath(PROPERTIES))
                        return
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        why = "does not serve ClusterProperty although it was installed"
        raise ClusterTimeout(cluster, why) from error


def definition_path() -> ResourcePath:
    """Return where the definition of ClusterProperty is."""
    return ResourcePath(_DEFINITIONS, name=name_of(property_definition()))


# -- what a join makes there, journaled --------------------------------------------------------


HUB: Final = "the hub"
MEMBER: Final = "the member"
_REVIEWS: Final = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_PROVE_SECONDS: Final = 10.0

Progress: TypeAlias = Callable[[str], object]
"""Called with each step in a sentence, as it begins."""

Open: TypeAlias = Callable[[ConnectionSettings], AbstractAsyncContextManager[ClusterClient]]
"""Opens a client for as long as a block lasts."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Made:
    """An object that was not there before."""

    side: str
    owner: Client
    path: ResourcePath
    uid: str
    is_shared: bool = False

    def __str__(self) -> str:
        return f"{self.path} on {self.side}"


class Journal:
    """Creates objects and remembers which ones it made."""

    def __init__(self, cluster_name: str) -> None:
        self._cluster_name = cluster_name
        self._made: list[Made] = []

    @property
    def made(self) -> Sequence[Made]:
        """What was made, in order."""
        return tuple(self._made)

    async def ensure(
        self,
        side: str,
        owner: Client,
        path: ResourcePath,
        desired: Object,
        *,
        is_shared: bool = False,
    ) -> Object:
        """Return the object that is there, or make it; one that is going away is refused."""
        present = await owner.find(path)
        if present is None:
            try:
                return await self.create(side, owner, path, desired, is_shared=is_shared)
            except AlreadyExists:
                present = await owner.get(path)
        if is_being_deleted(present):
            why = f"{path} on {side} is being deleted: join again when it is gone"
            raise CannotJoin(self._cluster_name, why)
        return present

    async def create(
        self,
        side: str,
        owner: Client,
        path: ResourcePath,
        desired: Object,
        *,
        is_shared: bool = False,
    ) -> Object:
        """Make the object, and remember it."""
        # A crash, or an answer that is lost, between the two leaves an object that is in no
        # journal. The next join under the same name finds it, and knows it by the hub's mark.
        stored = await owner.create(path.collection, desired)
        self._made.append(Made(side, owner, path, uid_of(stored), is_shared))
        return stored

    async def take_back(self) -> list[str]:
        """Remove what was made, the latest first; return what could not be removed, and why."""
        left: list[str] = []
        unreachable: dict[str, ClusterError] = {}
        for each in reversed(self._made):
            try:
                if each.side in unreachable:
                    raise unreachable[each.side]
                await self._remove(each)
            except ClusterError as error:
                # Asking a dead cluster for every object in turn would take minutes.
                unreachable[each.side] = error
                left.append(f"{each} ({error})")
            except ApiError as error:
                left.append(f"{each} ({error})")
        self._made.clear()
        return left

    async def _remove(self, made: Made) -> None:
        if made.is_shared and await others_in(made.owner, self._cluster_name):
            return
        try:
            if made.path.resource == CLUSTERS:
                # A Cluster that never really joined is held by nothing but its finalizer.
                present = await made.owner.get(made.path)
                if uid_of(present) == made.uid:
                    freed = without_finalizer(present, FINALIZER)
                    await commit(made.owner, made.path, present, freed)
            await made.owner.delete(made.path, DeleteOptions(made.uid))
        except (NotFound, Conflict):
            return  # gone already, or another object has its name now


async def others_in(member: Reader, cluster_name: str) -> list[str]:
    """Return the accounts on a member through which other memberships than this one work."""
    ours = {manifests.account_name(cluster_name), manifests.IMPERSONATOR}
    accounts = await member.list_objects(manifests.account_path("").collection)
    return sorted(
        name_of(each)
        for each in accounts
        if name_of(each).startswith("karmada-") and name_of(each) not in ours
    )


def is_of_hub(kube_object: Object, hub_id: str) -> bool:
    """Whether our hub made an object on a member."""
    return annotations_of(kube_object).get(manifests.HUB_MARK) == hub_id


def foreign_hub(kube_object: Object, hub_id: str) -> str:
    """Return the ID of the other hub that made an object, or an empty text."""
    mark = annotations_of(kube_object).get(manifests.HUB_MARK, "")
    return "" if mark == hub_id else mark


FILL_SECONDS: Final = 4.0
"""Controllers fill a Secret within milliseconds; where there are none, waiting longer is no use."""

_TEN_YEARS: Final = 10 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class AccountToken:
    """A ServiceAccount token by which the hub logs in at a member."""

    token: bytes = field(repr=False)
    authority: bytes = b""
    """The authority the member names in its Secret, if it does."""
    expires: str = ""
    """When it ends; a token from a Secret lasts as long as the Secret does."""


async def obtain_token(
    member: Client, account: str, journal: Journal, clock: Clock
) -> AccountToken:
    """Return a token of the account, which must be there.

    Karmada makes a Secret and waits for it. Members whose controllers do not fill such Secrets any
    more, or run none, are asked for a token that lasts instead.
    """
    path = manifests.secret_path(account)
    await journal.ensure(MEMBER, member, path, manifests.token_secret(account))
    with suppress(TimeoutError):
        async with asyncio.timeout(FILL_SECONDS):
            while True:
                secret = await member.get(path)
                token = secret_value(secret, "token")
                if token:
                    return AccountToken(token, secret_value(secret, "ca.crt"))
                await clock.sleep(_POLL_SECONDS)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TEN_YEARS},
    }
    answer = await member.create(manifests.account_path(account).with_subresource("token"), request)
    requested = str(find_at(answer, "status", "token") or "")
    expires = str(find_at(answer, "status", "expirationTimestamp") or "")
    return AccountToken(requested.encode(), expires=expires)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The hub's tokens for a member: one as itself, one to act on behalf of its users."""

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


async def not_impersonated(as_impersonator: Client) -> tuple[str, ...]:
    """Return for what the member does not let the impersonator stand; nothing when all is well.

    The member itself is asked, by whatever it decides: roles, or a webhook.
    """
    missing: list[str] = []
    for resource in manifests.IMPERSONATED:
        review = {
            "apiVersion": _REVIEWS.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "impersonate", "resource": resource}},
        }
        answer = await as_impersonator.create(ResourcePath(_REVIEWS), review)
        if find_at(answer, "status", "allowed") is not True:
            missing.append(resource)
    return tuple(missing)


class MemberAccess:
    """Gives one hub access to one member, with the rights of the member's administrator."""

    def __init__(self, cluster_name: str, member: Client, journal: Journal, clock: Clock) -> None:
        self._name = cluster_name
        self._member = member
        self._journal = journal
        self._clock = clock

    async def ask_identity(self) -> ClusterIdentity:
        """Ask the member who it is."""
        return await self._plainly(read_identity(self._member))

    async def check_rights(self) -> None:
        """Refuse to begin without the rights that every step needs."""
        review = {
            "apiVersion": _REVIEWS.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}},
        }
        try:
            answer = await self._plainly(self._member.create(ResourcePath(_REVIEWS), review))
        except NotServed:
            return  # then the first step that is refused will say so
        if not find_at(answer, "status", "allowed"):
            why = "the kubeconfig's user is no administrator there, and only one can give rights"
            raise CannotJoin(self._name, why)

    async def install_property_api(self) -> None:
        """Let the member hold ClusterProperties."""
        path, desired = definition_path(), property_definition()
        await self._journal.ensure(MEMBER, self._member, path, desired)
        await wait_served(self._member, self._name, self._clock)

    async def declare_identity(self, found: ClusterIdentity) -> None:
        """Let the member say who it is from now on."""
        if found.api is PropertyApi.MISSING:
            await self.install_property_api()
        path = ResourcePath(PROPERTIES, name=ID_PROPERTY)
        desired = property_object(found.kube_system_uid)
        await self._journal.ensure(MEMBER, self._member, path, desired)

    async def prepare(self, hub_id: str) -> None:
        """Make the role the hub works with, and all that it owns."""
        path = manifests.role_path(manifests.role_name(self._name))
        role = await self._ensure_own(path, manifests.full_role(self._name, hub_id), hub_id)
        path = manifests.namespace_path(CLUSTER_NAMESPACE)
        await self._ensure_shared(path, manifests.member_namespace(hub_id, role), role)
        # The impersonator is shared by all hubs of a member, with an owner for each.
        name = manifests.IMPERSONATOR
        path = manifests.role_path(name)
        desired = manifests.impersonator_role(hub_id, role)
        shared_role = await self._ensure_shared(path, desired, role)
        # A role that others made goes when they like, and must not take our account along.
        owner = shared_role if manifests.HUB_MARK in annotations_of(shared_role) else role
        path = manifests.account_path(name)
        desired = manifests.service_account(name, hub_id, owner)
        await self._ensure_shared(path, desired, owner)
        path = manifests.role_binding_path(name)
        desired = manifests.role_binding(shared_role, name, hub_id)
        binding = await self._ensure_shared(path, desired, shared_role)
        if not manifests.lets_impersonate(shared_role, binding):
            await self.grant_impersonation(hub_id, role)
        account = manifests.account_name(self._name)
        path = manifests.account_path(account)
        await self._ensure_own(path, manifests.service_account(account, hub_id, role), hub_id)
        path = manifests.role_binding_path(manifests.role_name(self._name))
        await self._ensure_own(path, manifests.role_binding(role, account, hub_id), hub_id)

    async def grant_impersonation(self, hub_id: str, role: Object | None) -> None:
        """Let the impersonator act for whomever the hub says, beside what its own role grants.

        Karmada writes the role `karmada-impersonator` anew whenever subjects of its hub change,
        and names each of them in it. Rights add up, so ours are in a role of their own: what is
        added to Karmada's would be gone after its next write, and back after ours, for ever.
        `role` is the hub's own, which it goes with; there is none where others joined the member.
        """
        path = manifests.role_path(manifests.impersonation_role_name(self._name))
        desired = manifests.impersonation_role(self._name, hub_id, role)
        beside = await self._ensure_own(path, desired, hub_id)
        path = manifests.role_binding_path(manifests.impersonation_role_name(self._name))
        desired = manifests.role_binding(beside, manifests.IMPERSONATOR, hub_id)
        await self._ensure_own(path, desired, hub_id)

    async def obtain_tokens(self) -> Tokens:
        """Obtain a token of each account, both at once."""
        try:
            async with asyncio.TaskGroup() as group:
                own, impersonator = (
                    group.create_task(
                        obtain_token(self._member, account, self._journal, self._clock),
                        name=f"token of {account}",
                    )
                    for account in (manifests.account_name(self._name), manifests.IMPERSONATOR)
                )
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # they are of one member, in one moment
        return Tokens(own.result(), impersonator.result())

    async def prove(self, settings: ConnectionSettings, open_client: Open, uid: str) -> None:
        """Reach the member as the hub will, and see that it is the same cluster."""
        async with open_client(settings) as as_hub:
            try:
                async with asyncio.timeout(_PROVE_SECONDS):
                    while True:
                        # Roles take a moment until every server of the member knows them.
                        try:
                            seen = await as_hub.get(manifests.namespace_path("kube-system"))
                            break
                        except (Forbidden, Unauthorized):
                            await self._clock.sleep(_POLL_SECONDS)
            except TimeoutError as error:
                why = "it does not accept the token that it gave out"
                raise CannotJoin(self._name, why) from error
        if uid_of(seen) != uid:
            why = f"{settings.server} leads to another cluster for the token than for the user"
            raise CannotJoin(self._name, why)

    async def prove_impersonator(self, settings: ConnectionSettings, open_client: Open) -> None:
        """See that the member lets users in as the gateway will bring them; say what is missing."""
        missing: tuple[str, ...] = ()
        account = f"account {CLUSTER_NAMESPACE}/{manifests.IMPERSONATOR}"
        async with open_client(settings) as as_impersonator:
            try:
                async with asyncio.timeout(_PROVE_SECONDS):
                    while True:
                        try:
                            missing = await not_impersonated(as_impersonator)
                            if not missing:
                                return
                        except (Forbidden, Unauthorized):
                            missing = ()
                        await self._clock.sleep(_POLL_SECONDS)
            except TimeoutError as error:
                why = f"it does not accept the token that it gave out for {account}"
                if missing:
                    why = (
                        f"{account} may not impersonate {', '.join(missing)} there, so that "
                        "nobody would reach it through the hub: does anything but RBAC decide?"
                    )
                raise CannotJoin(self._name, why) from error

    async def _ensure_shared(self, path: ResourcePath, desired: Object, owner: Object) -> Object:
        """Make what all memberships use, or share what another hub made; a user's stays his."""
        present = await self._journal.ensure(MEMBER, self._member, path, desired, is_shared=True)
        if manifests.HUB_MARK not in annotations_of(present):
            return present
        shared = manifests.with_owner(present, owner)
        return await commit(self._member, path, present, shared)

    async def _ensure_own(self, path: ResourcePath, desired: Object, hub_id: str) -> Object:
        """Make what this membership alone uses; repair its rights, refuse another hub's."""
        present = await self._journal.ensure(MEMBER, self._member, path, desired)
        other = foreign_hub(present, hub_id)
        if other:
            why = f"the hub with the ID {other} uses {path} there: join under another name"
            raise CannotJoin(self._name, why)
        rights = {key: desired[key] for key in ("rules", "subjects") if key in desired}
        owners = metadata_of(desired).get("ownerReferences")
        repaired = with_metadata({**present, **rights}, ownerReferences=owners)
        try:
            return await commit(self._member, path, present, repaired)
        except NotFound:
            # It was of a membership that has ended, and went with it in this very moment.
            return await self._journal.ensure(MEMBER, self._member, path, desired)

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
