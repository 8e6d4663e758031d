"""Whom a client certificate names, and from when to when it counts."""

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from clusterspace.apiserver.http.requests import Request
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.errors import Unauthorized
from clusterspace.kube import statuses

_MEMORY: Final = "certificate login"


@dataclass(frozen=True, slots=True)
class CertificateLogin:
    """Whom a client certificate names, and the moments between which it counts."""

    user: User
    starts: float
    ends: float


def read_login(certificate_der: bytes) -> CertificateLogin:
    """Read a certificate whose signature TLS has checked; Unauthorized when it names nobody.

    The user is the common name, the groups are the organisations, as Kubernetes has it.
    """
    try:
        certificate = x509.load_der_x509_certificate(certificate_der)
    except ValueError as error:
        raise Unauthorized("Unauthorized") from error
    names = _texts(certificate.subject, NameOID.COMMON_NAME)
    if not names or not names[0]:
        raise statuses.unauthorized()
    groups = _texts(certificate.subject, NameOID.ORGANIZATION_NAME)
    extra = _fingerprint(certificate_der)
    return CertificateLogin(
        user=User(names[0], (*groups, AUTHENTICATED), extra=extra),
        starts=certificate.not_valid_before_utc.timestamp(),
        ends=certificate.not_valid_after_utc.timestamp(),
    )


def login_of(request: Request, certificate_der: bytes, now: float) -> CertificateLogin:
    """Return the login of a request's certificate, read once for each connection.

    TLS looked at its end when the connection was opened; a watch keeps one open for days.
    """
    held: CertificateLogin | None = request.connection_memory.get(_MEMORY)
    if held is None:
        held = request.connection_memory[_MEMORY] = read_login(certificate_der)
    if now >= held.ends:
        raise statuses.unauthorized()
    return held


def _texts(subject: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(each.value) for each in subject.get_attributes_for_oid(oid))


def _fingerprint(certificate_der: bytes) -> dict[str, tuple[str, ...]]:
    """Name the certificate in use, so that audit can tell two of the same user apart."""
    digest = hashlib.sha256(certificate_der).hexdigest()
    return {"authentication.kubernetes.io/credential-id": (f"X509SHA256={digest}",)}
