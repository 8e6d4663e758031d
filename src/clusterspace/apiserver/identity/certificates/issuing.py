"""What a signer issues: the terms it insists on, and the certificate itself."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterspace.apis.agents import AGENT_SIGNER, AGENTS
from clusterspace.apis.parts import PART_USER_PREFIX
from clusterspace.apiserver.certificates import KeyPair, UnreadableCertificate
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.agents import cluster_of_agent
from clusterspace.apiserver.identity.certificates.judgement import AGENT_SECONDS, usage_problem
from clusterspace.apiserver.identity.certificates.requests import CLIENT_SIGNER, Asked

SIGNERS: Final = frozenset({CLIENT_SIGNER, AGENT_SIGNER})

_CLIENT_SECONDS: Final = 365 * 24 * 3600
"""As kube-controller-manager's default; what is asked for beyond it is shortened to it."""

BACKDATED: Final = timedelta(minutes=5)
"""Clocks differ a little between machines; a new certificate must count everywhere at once."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a certificate will say."""

    common_name: str
    organizations: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Unfit:
    """An approved request that its signer still does not sign."""

    reason: str


def plan_certificate(asked: Asked) -> Terms | Unfit:
    """Return what the signer will issue for an approved request, or why it will not."""
    problem = usage_problem(asked.usages) or _subject_problem(asked)
    if problem:
        return Unfit(problem)
    is_agent = AGENTS in asked.organizations
    most = AGENT_SECONDS if is_agent else _CLIENT_SECONDS
    wanted = most if asked.seconds is None else asked.seconds
    return Terms(asked.common_names[0], asked.organizations, min(wanted, most))


def _subject_problem(asked: Asked) -> str:
    if len(asked.common_names) != 1 or not asked.common_names[0]:
        return "the subject needs exactly one common name: the user"
    if MASTERS in asked.organizations:
        return f"the group {MASTERS} is not given away by certificate requests"
    if asked.common_names[0].startswith(PART_USER_PREFIX):
        return f"users {PART_USER_PREFIX}* are parts of the control plane, named by the hub alone"
    is_agent = bool(cluster_of_agent(asked.common_names[0], asked.organizations))
    if asked.signer == AGENT_SIGNER and (not is_agent or asked.organizations != (AGENTS,)):
        return f"the signer {AGENT_SIGNER} signs for agents of clusters only"
    return ""


class Issuer:
    """Signs what was asked for on the terms that were planned."""

    def __init__(self, authority: KeyPair) -> None:
        self._certificate = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UnreadableCertificate("the authority's key is not an EC key")
        self._key = key

    def issue(self, asked: Asked, terms: Terms, now: float) -> bytes:
        """Return the certificate in PEM: of the request, its key alone is taken over."""
        start = datetime.fromtimestamp(now, UTC)
        end = min(start + timedelta(seconds=terms.seconds), self._certificate.not_valid_after_utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(terms))
            .issuer_name(self._certificate.subject)
            .public_key(asked.public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start - BACKDATED)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def _subject(terms: Terms) -> x509.Name:
    attributes = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, each, _validate=False)
        for each in terms.organizations
    ]
    name = x509.NameAttribute(NameOID.COMMON_NAME, terms.common_name, _validate=False)
    return x509.Name([*attributes, name])


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=False,
        crl_sign=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
