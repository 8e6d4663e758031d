"""What a CertificateSigningRequest asks for, read once into plain values."""

import base64
import binascii
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from clusterspace.errors import ClusterspaceError
from clusterspace.kube.objects import Object, find_at

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
"""Kubernetes' signer for whoever logs in at the API server."""

_RSA_BITS: Final = (2048, 8192)
"""Weaker is no protection; stronger only costs whoever has to check it."""

_CURVES: Final = frozenset({"secp256r1", "secp384r1", "secp521r1"})


class UnreadableRequest(ClusterspaceError):
    """A request that is no certificate request, or one we do not read; says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, in its own words."""

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
    certificate_request = _load(str(spec.get("request") or ""))
    try:
        return _asked(spec, certificate_request)
    except (
        ValueError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise UnreadableRequest(f"the request cannot be read: {error}") from error


def _load(encoded: str) -> x509.CertificateSigningRequest:
    try:
        return x509.load_pem_x509_csr(base64.b64decode(encoded, validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm) as error:
        raise UnreadableRequest(f"the request is no PEM of a request: {error}") from error


def _asked(spec: Object, read: x509.CertificateSigningRequest) -> Asked:
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


def groups_asked(request: Object) -> tuple[str, ...]:
    """Return the groups a request would give its bearer; none when it cannot be read."""
    try:
        return read_asked(request).organizations
    except UnreadableRequest:
        return ()


def names_asked(request: Object) -> tuple[str, ...]:
    """Return the users a request would make its bearer; none when it cannot be read."""
    try:
        return read_asked(request).common_names
    except UnreadableRequest:
        return ()


def requester_of(request: Object) -> tuple[str, tuple[str, ...]]:
    """Return who made a request, as the server wrote it down: user and groups."""
    groups = cast("list[str]", find_at(request, "spec", "groups") or [])
    return str(find_at(request, "spec", "username") or ""), tuple(groups)
