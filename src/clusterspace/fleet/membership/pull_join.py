"""The pull join: a member registers itself, and its agent dials out.

    look     who the cluster is, whether another agent is there, whether we have the rights
    hub      found by its pin; a certificate for the token        (the token is used up)
    member   namespace, account, role, and the registration
    hub      the Cluster, created as the agent itself
    member   the agent, unless it runs elsewhere

The Cluster comes after everything that can be taken back, because agents may not delete any.

Whoever registers knows nothing of the hub but an address and the fingerprint of its authority,
which an administrator handed over.

Nobody but the agent reaches the member, unless `reported` says otherwise: then credentials for it
are made there and written to the hub as Karmada's agent writes them, for programs that look there.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from clusterspace.apis.clusters import PULL, USED_WITH, destination_of, id_of, is_pull
from clusterspace.client.endpoints import Network
from clusterspace.client.kubeconfig import parse_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.controllers.commit import commit
from clusterspace.errors import (
    AlreadyExists,
    CannotJoin,
    Invalid,
    Unauthorized,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.manifests import NOWHERE, Location
from clusterspace.fleet.membership.member_access import (
    HUB,
    MEMBER,
    Journal,
    MemberAccess,
    Open,
    Progress,
    foreign_hub,
    refuse_leaving,
)
from clusterspace.fleet.membership.push_join import endpoint_of, secrets_for
from clusterspace.fleet.membership.registration import (
    CLUSTER_INFO,
    KeyedCertificate,
    obtain_certificate,
    refuse_name,
    registration_secret,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    with_metadata,
)

_ALGORITHM: Final = "sha256:"
_PIN: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NO_IDENTITY: Final = AuthInfo()

CREDENTIALS: Final = "KubeCredentials"
IMPERSONATOR: Final = "KubeImpersonator"
REPORTABLE: Final = (CREDENTIALS, IMPERSONATOR)
"""What Karmada's agents report of their member, in the words of its `--report-secrets`."""
_REFERENCES: Final = {CREDENTIALS: "secretRef", IMPERSONATOR: "impersonatorSecretRef"}


@dataclass(frozen=True, slots=True)
class FoundHub:
    """A hub that proved to be the one that was meant."""

    server: str
    authority: bytes

    def settings(self, identity: AuthInfo = _NO_IDENTITY) -> ConnectionSettings:
        """Return how to reach it, as somebody."""
        return ConnectionSettings("hub", self.server, Trust(Pem(self.authority)), identity)


def pin_of(certificate: x509.Certificate) -> str:
    """Return the fingerprint of a certificate's public key, as kubeadm writes it."""
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _ALGORITHM + hashlib.sha256(key).hexdigest()


def pins_of(authority: bytes) -> tuple[str, ...]:
    """Return the fingerprint of every certificate of an authority."""
    return tuple(pin_of(each) for each in _certificates(authority, "certificate-authority"))


def server_of(address: str) -> str:
    """Return the URL of a hub from `host:port` or a URL."""
    return (address if "://" in address else f"https://{address}").rstrip("/")


def pinned_authority(kubeconfig: str, pin: str) -> bytes:
    """Return the certificates with the pinned key that a kubeconfig names; none when it does not.

    Certificates beside them are not trusted: the pin does not speak for them.
    """
    clusters = parse_kubeconfig(kubeconfig.encode(), place="cluster-info").clusters.values()
    bundles = [each.pem("certificate-authority").data for each in clusters]
    read = [each for bundle in bundles for each in _certificates(bundle, "cluster-info")]
    pinned = [each for each in read if pin_of(each) == pin]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in pinned)


def _certificates(bundle: bytes, place: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError as error:
        why = "the authority holds no certificates that can be read"
        raise UnusableKubeconfig(why, place=place) from error


async def find_hub(cluster_name: str, address: str, pin: str, open_client: Open) -> FoundHub:
    """Return the hub at an address; CannotJoin when it is not the one the pin stands for."""
    if _PIN.fullmatch(pin) is None:
        why = "--discovery-token-ca-cert-hash must be sha256: and 64 hexadecimal digits"
        raise CannotJoin(cluster_name, why)
    server = server_of(address)
    if not server.startswith("https://"):
        raise CannotJoin(cluster_name, f"{server} is not reached over TLS, and must be")
    # Believed by nobody yet: it names an authority, and only one with the pinned key counts.
    unproven = ConnectionSettings("hub", server, Trust(skips_verification=True))
    claimed = await _read_cluster_info(unproven, open_client)
    found = FoundHub(server, pinned_authority(claimed, pin))
    if not found.authority:
        why = f"the hub at {server} has another authority than {pin}: is it the right hub?"
        raise CannotJoin(cluster_name, why)
    # Asked for once more, over a connection that this authority vouches for.
    if await _read_cluster_info(found.settings(), open_client) != claimed:
        raise CannotJoin(cluster_name, f"somebody between us and {server} changes its answers")
    return found


async def _read_cluster_info(settings: ConnectionSettings, open_client: Open) -> str:
    async with open_client(settings) as anonymous:
        info = await anonymous.get(CLUSTER_INFO)
    return str(find_at(info, "data", "kubeconfig") or "")


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
    allows_view: bool = True
    """Whether that agent lets users of the fleet reach the member."""
    webhook_cidrs: tuple[Network, ...] = ()
    """Where that agent may reach webhooks besides where every agent may."""
    reported: frozenset[str] = frozenset()
    """Which of `REPORTABLE` the hub is given; nothing unless the member's administrator says so."""


class PullJoin:
    """One cluster on its way into the fleet, from its own side."""

    def __init__(
        self,
        request: RegisterRequest,
        member: ClusterClient,
        open_client: Open,
        progress: Progress,
    ) -> None:
        self._request = request
        self._name = request.name
        self._member = member
        self._clock = member.connection.clock
        self._random = member.connection.random
        self._open_client = open_client
        self._progress = progress
        self._journal = Journal(request.name)
        self._access = MemberAccess(request.name, member, self._journal, self._clock)

    async def register(self) -> Object:
        """Register; on failure take back what was made on the member. Return the Cluster."""
        cluster_id = await self._look()
        request = self._request
        self._progress(f"finding {HUB} by its fingerprint")
        hub = await find_hub(self._name, request.hub_address, request.pin, self._open_client)
        self._progress("asking for the agent's certificate")
        async with self._open_client(hub.settings(AuthInfo(token=request.token))) as newcomer:
            try:
                keyed = await obtain_certificate(
                    newcomer, self._name, clock=self._clock, random=self._random
                )
            except Unauthorized as error:
                why = f"{HUB} does not accept the token: it works once, and for an hour"
                raise CannotJoin(self._name, why) from error
        try:
            return await self._join(hub, keyed, cluster_id)
        except BaseException:
            if self._journal.made:
                self._progress("it failed: taking back what this registration has made")
                for each in await self._journal.take_back():
                    self._progress(f"could not remove {each}")
            raise

    async def _look(self) -> str:
        """Return who the cluster is; refuse what cannot work before a token is used up."""
        refuse_name(self._name)
        self._progress(f"asking {MEMBER} who it is")
        identity = await self._access.ask_identity()
        await self._access.check_rights()
        registration = await self._member.find(manifests.REGISTRATION_PLACE)
        refuse_other_agent(self._request, registration)
        namespace = await self._member.find(manifests.AGENT_NAMESPACE_PLACE)
        if namespace is not None and is_being_deleted(namespace):
            why = f"{manifests.AGENT_NAMESPACE_PLACE} on {MEMBER} is still being deleted"
            raise CannotJoin(self._name, why)
        return identity.id

    async def _join(self, hub: FoundHub, keyed: KeyedCertificate, cluster_id: str) -> Object:
        request = self._request
        mark, image = request.pin, request.image
        self._progress(f"writing the registration on {MEMBER}")
        await self._ensure(manifests.AGENT_NAMESPACE_PLACE, manifests.agent_namespace(mark))
        place = manifests.REGISTRATION_PLACE
        desired = registration_secret(self._name, hub.server, hub.authority, keyed, mark)
        present = await self._ensure(place, desired)
        await commit(self._member, place, present, {**present, "data": desired["data"]})
        if image:
            self._progress(f"creating the agent's account and role on {MEMBER}")
            await self._ensure(manifests.AGENT_ACCOUNT_PLACE, manifests.agent_account(mark))
            await self._ensure(manifests.AGENT_ROLE_PLACE, manifests.agent_role(mark))
            binding = manifests.agent_role_binding(mark)
            await self._ensure(manifests.AGENT_ROLE_BINDING_PLACE, binding)

        endpoint, secrets = None, list[Object]()
        if request.reported:
            self._progress(f"making credentials on {MEMBER} to report: {self._reported}")
            endpoint = endpoint_of(self._member.connection.settings)
            await self._access.prepare(mark)
            tokens = await self._access.obtain_tokens()
            made = secrets_for(self._name, endpoint, tokens)
            secrets = [e for k, e in zip(REPORTABLE, made, strict=True) if k in request.reported]

        self._progress(f"creating cluster {self._name} on {HUB}")
        desired = manifests.cluster(self._name, cluster_id, endpoint, request.location)
        # Whoever carries out Works there is the agent, whatever else the hub is given.
        unreported = [_REFERENCES[each] for each in REPORTABLE if each not in request.reported]
        kept = {key: value for key, value in desired["spec"].items() if key not in unreported}
        desired = {**desired, "spec": {**kept, "syncMode": PULL}}
        place = manifests.cluster_path(self._name)
        as_agent = AuthInfo(certificate=Pem(keyed.certificate), key=Pem(keyed.key))
        async with self._open_client(hub.settings(as_agent)) as agent:
            try:
                cluster = await agent.create(place.collection, desired)
            except AlreadyExists:
                cluster = same_cluster(await agent.get(place), self._name, cluster_id)
                if secrets and not find_at(cluster, "spec", "apiEndpoint"):
                    why = "it is registered without credentials to report: unregister it first"
                    raise CannotJoin(self._name, why) from None
            except Invalid as error:
                raise CannotJoin(self._name, error.message) from error
            # Behind the Cluster that owns them: they go with it, and until they are there it is
            # reached through its agent alone.
            for secret in secrets:
                owner = manifests.owner_of_secrets(cluster)
                noted = {USED_WITH: destination_of(cluster)}
                owned = with_metadata(secret, ownerReferences=[owner], annotations=noted)
                at = manifests.secret_path(name_of(secret))
                present = await self._journal.ensure(HUB, agent, at, owned)
                await commit(agent, at, present, {**present, "data": secret["data"]})

        if image:
            self._progress(f"starting the agent on {MEMBER}")
            place = manifests.AGENT_DEPLOYMENT_PLACE
            desired = manifests.agent_deployment(
                image, mark, allows_view=request.allows_view, webhook_cidrs=request.webhook_cidrs
            )
            present = await self._ensure(place, desired)
            wanted, had = (
                each["spec"]["template"]["spec"]["containers"][0] for each in (desired, present)
            )
            if any(had.get(each) != wanted[each] for each in ("image", "command")):
                spec = {**present["spec"], "template": desired["spec"]["template"]}
                await commit(self._member, place, present, {**present, "spec": spec})
        return cluster

    @property
    def _reported(self) -> str:
        return ", ".join(each for each in REPORTABLE if each in self._request.reported)

    async def _ensure(self, place: ResourcePath, desired: Object) -> Object:
        return await self._journal.ensure(MEMBER, self._member, place, desired)


def refuse_other_agent(request: RegisterRequest, registration: Object | None) -> None:
    """Refuse a member on which the agent of another membership is at home."""
    if registration is None:
        return
    called = annotations_of(registration).get(manifests.CLUSTER_MARK, "")
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
    refuse_leaving(present)
    return present
