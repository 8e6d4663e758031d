"""An agent's registration on its member: a certificate, where the hub is, and what it is called.

The key is made here and never leaves the member. The hub gives out certificates for a day; the
agent asks for the next one when half of that is over, so half a day without the hub is survived.

Somebody may register the cluster anew, and somebody may take the registration away. The agent
looks again and again: it takes over a new certificate, and ends when there is nothing.
"""

import asyncio
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from random import Random
from typing import Final, cast

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import cluster_name_causes
from clusterspace.apis.identities import AGENT_SIGNER, AGENT_USER_PREFIX, AGENTS, NOT_A_CLUSTER
from clusterspace.client.discovery import is_own_server
from clusterspace.client.kubeconfig import parse_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.client.settings import ConnectionSettings, Credential, TlsMaterial
from clusterspace.controllers.commit import commit
from clusterspace.errors import ApiError, CannotJoin, ClusterError, UnusableKubeconfig
from clusterspace.fleet.membership.connections import secret_value
from clusterspace.fleet.membership.manifests import (
    CLUSTER_MARK,
    REGISTRATION,
    REGISTRATION_PLACE,
    marked_object,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.kube.resources import GroupVersionResource

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0

REQUESTS: Final = GroupVersionResource("certificates.k8s.io", "v1", "certificatesigningrequests")

SIGN_SECONDS: Final = 30.0
"""A hub that approves by itself signs at once; one that wants a person asked will not in time."""

LONGEST_NAME: Final = 64 - len(AGENT_USER_PREFIX)
"""X.509 allows a common name 64 characters (RFC 5280, ub-common-name); a cluster gets the rest."""

_KUBERNETES_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
_CERTIFICATE_SECONDS: Final = 24 * 3600
"""What our own hub gives an agent at most, and what any other is asked for."""
CLUSTER_INFO: Final = ResourcePath(
    GroupVersionResource("", "v1", "configmaps"), "kube-public", "cluster-info"
)
TRUST_SECONDS: Final = 60.0
"""Between two questions whom to trust to be the hub."""

_POLL_SECONDS: Final = 0.2
_LIFE_USED: Final = 0.5
_SUFFIX_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_SUFFIX_LENGTH: Final = 5


@dataclass(frozen=True, slots=True)
class KeyedCertificate:
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class AgentCredentials:
    """What the agent shows the hub: always a certificate with its own key, never a mix."""

    def __init__(self, authority: bytes, keyed: KeyedCertificate) -> None:
        self.authority = authority
        """Whom to trust to be the hub."""
        self.current = keyed

    async def get(self) -> Credential:
        """Return the credential to use now."""
        # Read once: certificate and key are replaced together, by whoever renews them.
        keyed = self.current
        return Credential("", TlsMaterial(self.authority, keyed.certificate, keyed.key))

    def refused(self) -> bool:
        """Return False: asking again gives no other credential."""
        return False


def agent_user(cluster_name: str) -> str:
    """Return the user name the hub knows an agent by."""
    return AGENT_USER_PREFIX + cluster_name


def refuse_name(cluster_name: str) -> None:
    """Refuse a name that no cluster can have, or no agent's certificate can hold."""
    problems = [f"{each.field}: {each.message}" for each in cluster_name_causes(cluster_name)]
    if len(cluster_name) > LONGEST_NAME:
        problems.append(
            f"its agent's certificate has room for a name of {LONGEST_NAME} characters, "
            f"and this one has {len(cluster_name)}"
        )
    if cluster_name == NOT_A_CLUSTER:
        problems.append(f"{NOT_A_CLUSTER} is what Karmada's installer is called")
    if problems:
        raise CannotJoin(cluster_name, "; ".join(problems))


def is_readable(keyed: KeyedCertificate) -> bool:
    """Whether there is a certificate and a key, as far as can be told by reading them."""
    try:
        x509.load_pem_x509_certificate(keyed.certificate)
        serialization.load_pem_private_key(keyed.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def is_renewal_due(certificate: bytes, now: float) -> bool:
    """Whether half of a certificate's life is over."""
    read = x509.load_pem_x509_certificate(certificate)
    start, end = read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()
    return now >= start + (end - start) * _LIFE_USED


def is_signed_by_first(certificate: bytes, authority: bytes) -> bool:
    """Whether the authority signed a certificate that the hub names first: the one that signs now.

    True when that cannot be told: such a certificate is renewed in its time.
    """
    read = x509.load_pem_x509_certificate(certificate).extensions
    try:
        first = x509.load_pem_x509_certificates(authority)[0].extensions
        signer = read.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        key_id = first.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except (ValueError, IndexError, x509.ExtensionNotFound):
        return True
    return signer == key_id


def request_name(cluster_name: str, random: Random) -> str:
    """Return a new name for a request; agents may read those that begin with their cluster."""
    return f"{cluster_name}-{''.join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))}"


def request_object(
    name: str, cluster_name: str, key: ec.EllipticCurvePrivateKey, signer: str = AGENT_SIGNER
) -> Object:
    """Return the request for a certificate of a cluster's agent."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, AGENTS),
            x509.NameAttribute(NameOID.COMMON_NAME, agent_user(cluster_name)),
        ]
    )
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return {
        "apiVersion": REQUESTS.api_version,
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": signer,
            "request": b64encode(pem).decode(),
            "usages": ["client auth", "digital signature"],
            "expirationSeconds": _CERTIFICATE_SECONDS,
        },
    }


async def obtain_certificate(
    hub: ClusterClient, cluster_name: str, *, clock: Clock, random: Random
) -> KeyedCertificate:
    """Return a new certificate for a new key; CannotJoin when the hub gives none."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = request_name(cluster_name, random)
    # A kube-apiserver that is the hub has no signer of ours; its own signs for whom we approve.
    signer = AGENT_SIGNER if await is_own_server(hub.connection) else _KUBERNETES_SIGNER
    await hub.create(ResourcePath(REQUESTS), request_object(name, cluster_name, key, signer))
    try:
        async with asyncio.timeout(SIGN_SECONDS):
            while True:
                request = await hub.get(ResourcePath(REQUESTS, name=name))
                certificate = find_at(request, "status", "certificate")
                if certificate:
                    break
                refusal = refusal_of(request)
                if refusal:
                    raise CannotJoin(cluster_name, f"the hub gives it no certificate: {refusal}")
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        why = f"the hub has not signed certificate request {name}: an administrator must approve it"
        raise CannotJoin(cluster_name, why) from error
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyedCertificate(b64decode(str(certificate)), pem)


def refusal_of(request: Object) -> str:
    """Return why a request was turned down; empty when it was not."""
    conditions = cast("list[Object]", find_at(request, "status", "conditions") or [])
    found = find_condition(conditions, "Denied") or find_condition(conditions, "Failed") or {}
    return str(found.get("message") or found.get("reason") or "")


_SERVER: Final = "karmada-apiserver"


@dataclass(frozen=True, slots=True)
class Registration:
    """What an agent needs to know: what its cluster is called, where the hub is, who it is."""

    cluster_name: str
    hub: ConnectionSettings
    keyed: KeyedCertificate

    @property
    def authority(self) -> bytes:
        """The authority that vouches for the hub."""
        return self.hub.trust.authority.data


def registration_data(
    cluster_name: str, server: str, authority: bytes, keyed: KeyedCertificate
) -> Object:
    """Return the data of a registration's Secret: a kubeconfig for the hub."""
    user = {"client-certificate-data": keyed.certificate, "client-key-data": keyed.key}
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _SERVER,
        "clusters": [
            {
                "name": _SERVER,
                "cluster": {"server": server, "certificate-authority-data": _text(authority)},
            }
        ],
        "users": [
            {"name": cluster_name, "user": {key: _text(value) for key, value in user.items()}}
        ],
        "contexts": [{"name": _SERVER, "context": {"cluster": _SERVER, "user": cluster_name}}],
    }
    return {REGISTRATION: _text(msgspec.yaml.encode(config))}


def registration_secret(
    cluster_name: str, server: str, authority: bytes, keyed: KeyedCertificate, hub_mark: str
) -> Object:
    """Return the Secret of a new registration."""
    called = {CLUSTER_MARK: cluster_name}
    body = marked_object("v1", "Secret", REGISTRATION_PLACE, hub_mark, called)
    data = registration_data(cluster_name, server, authority, keyed)
    return {**body, "type": "Opaque", "data": data}


def read_registration(secret: Object) -> Registration:
    """Read what an agent is to know; UnusableKubeconfig when the Secret does not say."""
    place = str(REGISTRATION_PLACE)
    cluster_name = annotations_of(secret).get(CLUSTER_MARK, "")
    if not cluster_name:
        raise UnusableKubeconfig("it does not say which cluster this is", place=place)
    content = secret_value(secret, REGISTRATION)
    hub = parse_kubeconfig(content, place=place).settings(cluster="hub")
    keyed = KeyedCertificate(hub.identity.certificate.data, hub.identity.key.data)
    if not is_readable(keyed):
        raise UnusableKubeconfig("the agent's certificate cannot be read", place=place)
    return Registration(cluster_name, hub, keyed)


def _text(content: bytes) -> str:
    return b64encode(content).decode()


class RegistrationRenewal:
    """Keeps the agent's credentials current, for as long as it is registered."""

    def __init__(
        self,
        member: Client,
        hub: ClusterClient,
        credentials: AgentCredentials,
        *,
        look_seconds: float = LOOK_SECONDS,
        trust_seconds: float = TRUST_SECONDS,
    ) -> None:
        self._member = member
        self._hub = hub
        self._credentials = credentials
        self._clock = hub.connection.clock
        self._random = hub.connection.random
        self._look_seconds = look_seconds
        self._trust_seconds = trust_seconds
        # Agents that were started together do not all ask together.
        self._asked_at = self._clock.monotonic() - self._random.random() * trust_seconds

    async def run(self) -> None:
        """Look again and again; return when the registration is gone."""
        while True:
            await self._clock.sleep(self._look_seconds)
            try:
                if not await self.look():
                    return
            except (ApiError, ClusterError, CannotJoin, UnusableKubeconfig) as error:
                # What we have works until it expires: the next look may go better.
                _log.warning("registration not looked after", reason=str(error))

    async def look(self) -> bool:
        """Look once: take over what is new, renew what is half over; False when all is gone."""
        secret = await self._member.find(REGISTRATION_PLACE)
        if secret is None:
            return False
        registration = read_registration(secret)
        name, authority = registration.cluster_name, await self._current_authority(registration)
        self._credentials.current = registration.keyed
        self._credentials.authority = authority
        keyed = registration.keyed
        is_due = is_renewal_due(keyed.certificate, self._clock.now())
        if authority != registration.authority:
            is_due = is_due or not is_signed_by_first(keyed.certificate, authority)
        if is_due:
            keyed = await obtain_certificate(
                self._hub, name, clock=self._clock, random=self._random
            )
        if keyed is not registration.keyed or authority != registration.authority:
            data = registration_data(name, registration.hub.server, authority, keyed)
            # Written first, used then: an agent that is killed here starts with the new one, and
            # a registration that somebody replaced meanwhile refuses ours with a conflict. The old
            # certificate stays good for the other half of its life, so connections that are open
            # go on with it, and nothing has to happen at once.
            await commit(self._member, REGISTRATION_PLACE, secret, {**secret, "data": data})
            self._credentials.current = keyed
            _log.info("registration renewed", cluster=name)
        return True

    async def _current_authority(self, registration: Registration) -> bytes:
        """Return whom to trust to be the hub, as the hub says; every minute, it is asked anew.

        It is believed because who answers is the hub: by those we have trusted so far. One of
        those must be among the hub's own; otherwise it is reached through somebody else, whom to
        trust is not for the hub to say. What cannot be read changes nothing.
        """
        now, known = self._clock.monotonic(), registration.authority
        if now < self._asked_at + self._trust_seconds:
            return known
        self._asked_at = now
        try:
            info = await self._hub.get(CLUSTER_INFO)
            content = str(find_at(info, "data", "kubeconfig") or "")
            clusters = parse_kubeconfig(content.encode(), place="cluster-info").clusters.values()
            bundles = [each.pem("certificate-authority").data for each in clusters]
            published = b"".join(bundles)
            named = set(x509.load_pem_x509_certificates(published))
            is_own = not named.isdisjoint(x509.load_pem_x509_certificates(known))
        except (ApiError, ClusterError, UnusableKubeconfig, ValueError) as error:
            # Another API server than ours has no such thing; ours may be too old to let us read it.
            _log.debug("whom to trust was not read", reason=str(error))
            return known
        return published if is_own else known
