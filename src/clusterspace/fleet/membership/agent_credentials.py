"""An agent's certificate: asked for, waited for, used, and replaced long before it ends.

The key is made here and never leaves the member. The hub gives out certificates for a day; the
agent asks for the next one when half of that is over, so half a day without the hub is survived.
"""

import asyncio
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from random import Random
from typing import Final, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterspace.aio.clocks import Clock
from clusterspace.apis.agents import AGENT_SIGNER, AGENT_USER_PREFIX, AGENTS, NOT_A_CLUSTER
from clusterspace.apis.clusters import cluster_name_causes
from clusterspace.client.credentials import Credential
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.settings import TlsMaterial
from clusterspace.errors import CannotJoin
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource

REQUESTS: Final = GroupVersionResource("certificates.k8s.io", "v1", "certificatesigningrequests")

SIGN_SECONDS: Final = 30.0
"""A hub that approves by itself signs at once; one that wants a person asked will not in time."""

LONGEST_NAME: Final = 64 - len(AGENT_USER_PREFIX)
"""X.509 allows a common name 64 characters (RFC 5280, ub-common-name); a cluster gets the rest."""

_LOOK_AGAIN_SECONDS: Final = 0.2
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

    def __init__(self, authority: bytes, held: KeyedCertificate) -> None:
        self._authority = authority
        self.held = held

    async def get(self) -> Credential:
        """Return the credential to use now."""
        held = self.held
        return Credential("", TlsMaterial(self._authority, held.certificate, held.key))

    def refused(self) -> bool:
        """Say that asking again gives no other answer."""
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


def is_readable(held: KeyedCertificate) -> bool:
    """Whether there is a certificate and a key, as far as can be told by reading them."""
    try:
        x509.load_pem_x509_certificate(held.certificate)
        serialization.load_pem_private_key(held.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def is_renewal_due(certificate: bytes, now: float) -> bool:
    """Whether half of a certificate's life is over."""
    read = x509.load_pem_x509_certificate(certificate)
    start, end = read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()
    return now >= start + (end - start) * _LIFE_USED


def request_name(cluster_name: str, random: Random) -> str:
    """Return a new name for a request; agents may read those that begin with their cluster."""
    return f"{cluster_name}-{''.join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))}"


def request_object(name: str, cluster_name: str, key: ec.EllipticCurvePrivateKey) -> Object:
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
            "signerName": AGENT_SIGNER,
            "request": b64encode(pem).decode(),
            "usages": ["client auth", "digital signature"],
        },
    }


async def obtain_certificate(
    hub: Client, cluster_name: str, *, clock: Clock, random: Random
) -> KeyedCertificate:
    """Return a new certificate for a new key; CannotJoin when the hub gives none."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = request_name(cluster_name, random)
    await hub.create(Place(REQUESTS), request_object(name, cluster_name, key))
    try:
        async with asyncio.timeout(SIGN_SECONDS):
            certificate = await _signed(hub, cluster_name, name, clock)
    except TimeoutError as error:
        why = f"the hub has not signed certificate request {name}: an administrator must approve it"
        raise CannotJoin(cluster_name, why) from error
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyedCertificate(certificate, pem)


async def _signed(hub: Client, cluster_name: str, name: str, clock: Clock) -> bytes:
    while True:
        request = await hub.get(Place(REQUESTS, name=name))
        certificate = find_at(request, "status", "certificate")
        if certificate:
            return b64decode(str(certificate))
        refusal = refusal_of(request)
        if refusal:
            raise CannotJoin(cluster_name, f"the hub gives it no certificate: {refusal}")
        await clock.sleep(_LOOK_AGAIN_SECONDS)


def refusal_of(request: Object) -> str:
    """Return why a request was turned down; empty when it was not."""
    conditions = cast("list[Object]", find_at(request, "status", "conditions") or [])
    found = find_condition(conditions, "Denied") or find_condition(conditions, "Failed") or {}
    return str(found.get("message") or found.get("reason") or "")
