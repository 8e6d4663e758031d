"""A certificate request on its way: read into plain values, judged, and made a certificate.

An agent gets a certificate for its own name, in the agents' group, for logging in, for a day: by a
token made for that cluster, or by the certificate it has now. Whoever else asks waits for an
operator, and whoever asks for anything else is denied. This is the strictest decision in the hub,
and a pure one.

Where Karmada's own agents are accepted, a token of Karmada's is for any cluster that there is not
yet, an agent gets its first certificate for up to a year, as `karmadactl register` asks for it, and
`register` itself gets one before, for half an hour, to write the roles of that one cluster's agent.

A request's own words become a certificate only through `Issuer`: subject and key are taken over,
everything else is ours.
"""

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterspace.apis.identities import (
    AGENT_SIGNER,
    AGENTS,
    COMPONENT_USER_PREFIX,
    INSTALLER_USER,
)
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.agents import agent_user, cluster_of_agent
from clusterspace.apiserver.identity.authority import BACKDATED, KeyPair, UnreadableCertificate
from clusterspace.errors import ClusterspaceError
from clusterspace.kube.objects import Object, find_at

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
"""Kubernetes' signer for whoever logs in at the API server."""

SIGNERS: Final = frozenset({CLIENT_SIGNER, AGENT_SIGNER})

AGENT_SECONDS: Final = 24 * 3600
"""How long an agent's certificate lives at most."""

KARMADA_AGENT_SECONDS: Final = 365 * 24 * 3600
"""How long one of Karmada's own agents may have its first certificate: it need not renew it."""

INSTALLER_SECONDS: Final = 1800
"""How long `karmadactl register` can clean up after itself."""

_CLIENT_SECONDS: Final = 365 * 24 * 3600
"""As kube-controller-manager's default; what is asked for beyond it is shortened to it."""

CLIENT_AUTH: Final = "client auth"
CLIENT_USAGES: Final = frozenset({CLIENT_AUTH, "digital signature", "key encipherment"})
"""What a certificate for logging in may be used for."""

_RSA_BITS: Final = (2048, 8192)
"""Weaker is no protection; stronger only costs whoever has to check it."""

_CURVES: Final = frozenset({"secp256r1", "secp384r1", "secp521r1"})


class UnreadableRequest(ClusterspaceError):
    """A request that is no certificate request, or one we do not read; says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The content of a certificate request, unchecked."""

    signer: str
    usages: frozenset[str]
    seconds: int | None
    """How long the certificate is to live; None leaves it to the signer."""
    common_names: tuple[str, ...]
    organizations: tuple[str, ...]
    has_other_names: bool
    """Whether the subject says more than common names and organizations."""
    has_attributes: bool
    """Whether it asks for extensions, such as other host names, or carries anything else."""
    public_key: PublicKey


def read_asked(request: Object) -> Asked:
    """Read a CertificateSigningRequest; UnreadableRequest when its PEM is not sound."""
    spec = cast("Object", request.get("spec") or {})
    try:
        pem = base64.b64decode(str(spec.get("request") or ""), validate=True)
        read = x509.load_pem_x509_csr(pem)
    except (ValueError, binascii.Error, UnsupportedAlgorithm) as error:
        raise UnreadableRequest(f"the request is no PEM of a request: {error}") from error
    try:
        if not read.is_signature_valid:
            raise UnreadableRequest("the request is not signed by its own key")
        names = _texts(read.subject, NameOID.COMMON_NAME)
        organizations = _texts(read.subject, NameOID.ORGANIZATION_NAME)
        seconds = spec.get("expirationSeconds")
        return Asked(
            signer=str(spec.get("signerName") or ""),
            usages=frozenset(cast("list[str]", spec.get("usages") or [])),
            seconds=None if seconds is None else int(seconds),
            common_names=names,
            organizations=organizations,
            has_other_names=len(list(read.subject)) != len(names) + len(organizations),
            has_attributes=bool(list(read.attributes)),
            public_key=_strong(read.public_key()),
        )
    except (
        ValueError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise UnreadableRequest(f"the request cannot be read: {error}") from error


def _texts(subject: x509.Name, kind: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(each.value) for each in subject.get_attributes_for_oid(kind))


def _strong(key: object) -> PublicKey:
    """Return the key if it is of a kind and strength we sign; UnreadableRequest otherwise."""
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return key
    least, most = _RSA_BITS
    if isinstance(key, rsa.RSAPublicKey) and least <= key.key_size <= most:
        return key
    raise UnreadableRequest(
        "the key is not one we sign: "
        f"P-256, P-384, P-521, Ed25519, or RSA of {least} to {most} bits"
    )


def requester_of(request: Object) -> tuple[str, tuple[str, ...]]:
    """Return who made a request, as the server wrote it down: user and groups."""
    groups = cast("list[str]", find_at(request, "spec", "groups") or [])
    return str(find_at(request, "spec", "username") or ""), tuple(groups)


# -- may this agent have that certificate? -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Requester:
    """The maker of a certificate request, from the hub's own records."""

    cluster: str = ""
    """The cluster whose agent this is or is to become; empty for everybody else."""
    has_token: bool = False
    """Whether it came with a bootstrap token and not with an agent's certificate."""
    token_is_spent: bool = False
    """Whether the token was used on another request before."""
    token_predates_cluster: bool = False
    """Whether the cluster joined after the token was made: it has an agent already."""
    is_karmadas: bool = False
    """Whether it may be Karmada's own `register` or agent, and those are accepted here."""
    installs: str = ""
    """The cluster that the name of a request says `register` is to write roles for."""


@dataclass(frozen=True, slots=True)
class Approved:
    """The request is in order."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The request asks for what its maker may not have."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not ours to decide: somebody with the right to approve must look."""

    reason: str


ApprovalDecision: TypeAlias = Approved | Denied | Undecided


def judge_request(asked: Asked, requester: Requester) -> ApprovalDecision:
    """Decide about a request."""
    if not requester.cluster:
        return Undecided("the requester is not the agent of a cluster")
    if requester.is_karmadas and requester.has_token and is_installers(asked):
        reason = _problem(asked, INSTALLER_USER, None)
        if requester.installs != requester.cluster:
            reason = f"the name of the request does not say {requester.cluster}"
    else:
        most = None if requester.is_karmadas else AGENT_SECONDS
        reason = _problem(asked, agent_user(requester.cluster), most)
    if reason:
        return Denied(reason)
    if requester.has_token and requester.token_is_spent:
        return Denied("the bootstrap token was used before, and works once")
    if requester.has_token and requester.token_predates_cluster:
        return Undecided("the cluster is there already, and the token was not made for it since")
    return Approved()


def is_installers(asked: Asked) -> bool:
    """Whether a request is the first of `karmadactl register`."""
    return asked.common_names == (INSTALLER_USER,)


def _problem(asked: Asked, user: str, most_seconds: int | None) -> str:
    """Return why an agent of this name may not have such a certificate; empty if it may.

    Without `most_seconds` what is asked beyond what it gets is shortened to that.
    """
    if asked.signer not in (AGENT_SIGNER, CLIENT_SIGNER):
        return f"the signer {asked.signer} does not sign for agents"
    if asked.common_names != (user,):
        return f"the common name is not {user}"
    if asked.organizations != (AGENTS,):
        return f"the organization is not {AGENTS} alone"
    if asked.has_other_names:
        return "the subject says more than a common name and an organization"
    if asked.has_attributes:
        return "the request asks for extensions, and an agent needs none"
    problem = usage_problem(asked.usages)
    asks_too_much = most_seconds is not None and (asked.seconds or 0) > most_seconds
    if not problem and asks_too_much:
        return f"an agent's certificate lives {most_seconds} seconds at most"
    return problem


def usage_problem(usages: frozenset[str]) -> str:
    """Return the problem with the usages of a certificate for logging in; empty if none."""
    others = sorted(usages - CLIENT_USAGES)
    if others:
        return f"invalid usage for client certificate: {others[0]}"
    if CLIENT_AUTH not in usages:
        return f"usage {CLIENT_AUTH!r} is missing"
    return ""


# -- the certificate ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Terms:
    """The content of a certificate to issue."""

    common_name: str
    organizations: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Unfit:
    """An approved request that its signer still does not sign."""

    reason: str


def plan_certificate(
    asked: Asked, *, agent_seconds: int = AGENT_SECONDS, installer: str = ""
) -> Terms | Unfit:
    """Return the terms of the certificate for an approved request, or why none is issued.

    `installer` is the user that `karmadactl register` becomes for one cluster, in place of the one
    for all that it asked to be.
    """
    problem = usage_problem(asked.usages)
    if problem:
        return Unfit(problem)
    if len(asked.common_names) != 1 or not asked.common_names[0]:
        return Unfit("the subject needs exactly one common name: the user")
    name, organizations = asked.common_names[0], asked.organizations
    if MASTERS in organizations:
        return Unfit(f"the group {MASTERS} is not given away by certificate requests")
    if name.startswith(COMPONENT_USER_PREFIX):
        why = "are parts of the control plane, named by the hub alone"
        return Unfit(f"users {COMPONENT_USER_PREFIX}* {why}")
    is_agent = bool(cluster_of_agent(name, organizations))
    if asked.signer == AGENT_SIGNER and (not is_agent or organizations != (AGENTS,)):
        return Unfit(f"the signer {AGENT_SIGNER} signs for agents of clusters only")
    if installer and is_installers(asked) and organizations == (AGENTS,):
        return Terms(installer, organizations, INSTALLER_SECONDS)
    most = agent_seconds if AGENTS in organizations else _CLIENT_SECONDS
    seconds = most if asked.seconds is None else asked.seconds
    return Terms(name, organizations, min(seconds, most))


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
        # None outlives the authority: nobody could check it.
        end = min(start + timedelta(seconds=terms.seconds), self._certificate.not_valid_after_utc)
        # Not validated: X.520 has room for 64 characters, and names of users may be longer.
        names = [(NameOID.ORGANIZATION_NAME, each) for each in terms.organizations]
        names.append((NameOID.COMMON_NAME, terms.common_name))
        subject = x509.Name(
            [x509.NameAttribute(kind, text, _validate=False) for kind, text in names]
        )
        usage = x509.KeyUsage(
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
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .public_key(asked.public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start - BACKDATED)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)
