"""The push join: accounts, roles and tokens on the member; the Cluster and its Secrets on the hub.

    look    who the cluster is, whether it may join, whether we have the rights   (changes nothing)
    member  namespace, accounts, roles, tokens
    hub     namespaces, secrets, Cluster

Joining again under the same name repairs what is missing and replaces the credentials. A failure
half-way takes back what this join made, and says what it could not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    FINALIZER,
    USED_WITH,
    cluster_name_causes,
    destination_of,
    execution_namespace,
)
from clusterspace.client.endpoints import endpoint_problem
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, WriteOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit, commit_change
from clusterspace.errors import CannotJoin, Invalid
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import settings_of
from clusterspace.fleet.membership.manifests import NOWHERE, Endpoint, Location
from clusterspace.fleet.membership.member_access import (
    HUB,
    ID_PROPERTY,
    MEMBER,
    ClusterIdentity,
    Creation,
    Journal,
    MemberAccess,
    Open,
    Progress,
    Tokens,
    needs_property,
    refuse_if_taken,
    refuse_leaving,
)
from clusterspace.kube.objects import Object, annotations_of, name_of, uid_of, with_metadata

_ADDRESS: Final = ("apiEndpoint", "insecureSkipTLSVerification", "proxyURL")
"""What joining again says anew; where the cluster runs is kept unless told."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The cluster that is to join, and the name and settings it gets."""

    name: str
    member: ConnectionSettings
    location: Location = NOWHERE
    creation: Creation = Creation.UNSET


@dataclass(frozen=True, slots=True)
class Preflight:
    """The findings of the checks before a join changes anything."""

    hub_id: str
    identity: ClusterIdentity
    needs_property: bool
    known: Object | None
    """The Cluster it joined as before, if it did."""


@dataclass(frozen=True, slots=True)
class Joined:
    """How a join ended."""

    cluster: Object
    is_new: bool


class PushJoin:
    """One cluster on its way into the fleet."""

    def __init__(
        self,
        request: JoinRequest,
        hub: Client,
        member: ClusterClient,
        open_client: Open,
        progress: Progress,
    ) -> None:
        self._request = request
        self._name = request.name
        self._hub = hub
        self._open_client = open_client
        self._progress = progress
        self._journal = Journal(request.name)
        self._access = MemberAccess(request.name, member, self._journal, member.connection.clock)

    async def preflight(self) -> Preflight:
        """Find out whether the cluster may join; changes nothing on either side."""
        refuse_request(self._request)
        self._progress(f"asking {MEMBER} who it is")
        found = await self._access.ask_identity()
        hub_id = uid_of(await self._hub.get(manifests.namespace_path("kube-system")))
        if found.kube_system_uid == hub_id:
            raise CannotJoin(self._name, "it is the hub itself")
        lacks_property = needs_property(self._name, found, self._request.creation)
        clusters = await self._hub.list_objects(ResourcePath(CLUSTERS))
        known = refuse_if_taken(self._name, found.id, clusters)
        await self._access.check_rights()
        if known is None:
            # The hub judges the Cluster before anything is made for it.
            desired = self._cluster(found, endpoint_of(self._request.member))
            try:
                await self._hub.create(
                    ResourcePath(CLUSTERS), desired, WriteOptions(is_dry_run=True)
                )
            except Invalid as error:
                raise CannotJoin(self._name, error.message) from error
        return Preflight(hub_id, found, lacks_property, known)

    async def join(self, found: Preflight) -> Joined:
        """Join; on failure take back what was made, and say what is left, if anything."""
        try:
            return await self._join(found)
        except BaseException as error:
            # Also when a person interrupts us. The latest first: nothing is left that needs what is
            # gone already.
            if self._journal.made:
                self._progress("it failed: taking back what this join has made")
                for each in await self._journal.take_back():
                    self._progress(f"could not remove {each}")
            if isinstance(error, Invalid):
                raise CannotJoin(self._name, error.message) from error
            raise

    async def _join(self, found: Preflight) -> Joined:
        if found.needs_property:
            self._progress(f"creating ClusterProperty {ID_PROPERTY} on {MEMBER}")
            await self._access.declare_identity(found.identity)
        self._progress(f"creating namespace {CLUSTER_NAMESPACE}, accounts and roles on {MEMBER}")
        await self._access.prepare(found.hub_id)
        self._progress("obtaining tokens of both accounts")
        tokens = await self._access.obtain_tokens()
        if tokens.own.expires:
            self._progress(f"{MEMBER} fills no token Secrets; its token ends {tokens.own.expires}")

        endpoint = endpoint_of(self._request.member)
        if endpoint.skips_verification:
            # Nobody checks by it, but the Secret is complete, and who wants to check later can.
            endpoint = replace(endpoint, authority=tokens.own.authority)
        desired = self._cluster(found.identity, endpoint)
        secrets = secrets_for(self._name, endpoint, tokens)
        self._progress(f"checking that {MEMBER} accepts both tokens")
        own, impersonator = secrets
        uid = found.identity.kube_system_uid
        await self._access.prove(settings_of(desired, own), self._open_client, uid)
        as_users = {**impersonator, "data": {**own["data"], **impersonator["data"]}}
        await self._access.prove_impersonator(settings_of(desired, as_users), self._open_client)

        self._progress(f"writing cluster {self._name} and its credentials on {HUB}")
        return await self._write(desired, secrets, found.known)

    async def _write(self, desired: Object, secrets: list[Object], known: Object | None) -> Joined:
        for name in (CLUSTER_NAMESPACE, execution_namespace(self._name)):
            path = manifests.namespace_path(name)
            await self._journal.ensure(HUB, self._hub, path, manifests.namespace(name))
        written: list[Object] = []
        for secret in secrets:
            path = manifests.secret_path(name_of(secret))
            present = await self._journal.ensure(HUB, self._hub, path, secret)
            after = {**present, "data": secret["data"]}
            written.append(await commit(self._hub, path, present, after))
        path = manifests.cluster_path(self._name)
        if known is None:
            # With its finalizer from the start: the controllers add it to Clusters without one,
            # and a Cluster deleted in between would go and leave all of this behind.
            created = with_metadata(desired, finalizers=[FINALIZER])
            stored = await self._journal.create(HUB, self._hub, path, created)
        else:
            stored = await commit_change(self._hub, path, self._rejoined(known, desired))
        # Last, because only now there is a UID. Until then nobody uses the tokens, and what a
        # crash in between leaves is a Cluster that says so: joining again goes on from there.
        for each in written:
            owner = manifests.owner_of_secrets(stored)
            tied = {**annotations_of(each), USED_WITH: destination_of(stored)}
            claimed = with_metadata(each, ownerReferences=[owner], annotations=tied)
            await commit(self._hub, manifests.secret_path(name_of(each)), each, claimed)
        return Joined(stored, is_new=known is None)

    def _rejoined(self, known: Object, desired: Object) -> Callable[[Object], Object]:
        """Return how the Cluster is changed as it is by then: it may have begun to leave."""

        def change(present: Object) -> Object:
            refuse_leaving(present)
            if uid_of(present) != uid_of(known):
                raise CannotJoin(self._name, "another cluster has taken the name just now")
            kept = {key: value for key, value in present["spec"].items() if key not in _ADDRESS}
            return {**present, "spec": {**kept, **desired["spec"]}}

        return change

    def _cluster(self, found: ClusterIdentity, endpoint: Endpoint) -> Object:
        return manifests.cluster(self._name, found.id, endpoint, self._request.location)


def steps_of(name: str, found: Preflight) -> list[str]:
    """Return the steps a join will take, in words."""
    account, role = manifests.account_name(name), manifests.role_name(name)
    secrets = f"{name} and {manifests.impersonator_secret_name(name)}"
    cluster_id = found.identity.id
    steps = [
        (found.needs_property, f"create ClusterProperty {ID_PROPERTY} on {MEMBER}"),
        (True, f"create namespace {CLUSTER_NAMESPACE} on {MEMBER}"),
        (True, f"create account {manifests.IMPERSONATOR} with its rights on {MEMBER}"),
        (True, f"create account {account} with role {role} on {MEMBER}"),
        (True, f"obtain tokens of both accounts and check that {MEMBER} accepts them"),
        (True, f"create namespaces {CLUSTER_NAMESPACE}, {execution_namespace(name)} on {HUB}"),
        (True, f"write secrets {secrets} on {HUB}"),
        (found.known is None, f"create cluster {name} with the ID {cluster_id} on {HUB}"),
        (found.known is not None, f"refresh cluster {name}, which has joined before"),
    ]
    return [sentence for is_needed, sentence in steps if is_needed]


def refuse_request(request: JoinRequest) -> None:
    """Refuse a name no cluster can have, and a connection that a Cluster cannot describe."""
    found = cluster_name_causes(request.name)
    if found:
        raise CannotJoin(request.name, "; ".join(f"{each.field}: {each.message}" for each in found))
    problem = endpoint_problem(request.member.server)
    if problem:
        raise CannotJoin(request.name, f"the server in its kubeconfig {problem}")
    if request.member.trust.server_name:
        why = (
            "its kubeconfig needs tls-server-name, which the hub cannot use: "
            "give a server address that its certificate is for"
        )
        raise CannotJoin(request.name, why)


def endpoint_of(member: ConnectionSettings) -> Endpoint:
    """Return how the hub will reach the member: verified by what the join is verified by."""
    authority = member.trust.authority
    trusted = authority.data if authority.file is None else authority.file.read_bytes()
    return Endpoint(member.server, trusted, member.trust.skips_verification, member.proxy_url)


def secrets_for(name: str, endpoint: Endpoint, tokens: Tokens) -> list[Object]:
    """Return both Secrets of a member: the hub's own credentials, and the impersonator's."""
    own = {"caBundle": endpoint.authority, "token": tokens.own.token}
    return [
        manifests.credentials_secret(name, own),
        manifests.credentials_secret(
            manifests.impersonator_secret_name(name), {"token": tokens.impersonator.token}
        ),
    ]
