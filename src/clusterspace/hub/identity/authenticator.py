"""Request to user: client certificate first, then bearer token; with neither, anonymous."""

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from clusterspace.errors import Unauthorized
from clusterspace.hub.certificates import UnreadableCertificate, read_identity
from clusterspace.hub.identity.agents import cluster_of_agent
from clusterspace.hub.identity.certificates.issuing import BACKDATED
from clusterspace.hub.identity.logins import API_AUDIENCE, BearerTokens, Login, RefusedToken
from clusterspace.hub.identity.revocations import Revocations
from clusterspace.hub.state import HubState
from clusterspace.kube import statuses
from clusterspace.serving.requests import Request
from clusterspace.serving.users import ANONYMOUS, AUTHENTICATED, User

_BEARER: Final = "bearer"
_MEMORY: Final = "certificate login"


@dataclass(frozen=True, slots=True)
class CertificateLogin:
    """Whom a client certificate names, and when it counts."""

    user: User
    issued: float
    expires: float


def read_login(certificate_der: bytes) -> CertificateLogin:
    """Read a certificate whose signature TLS has checked; Unauthorized when it names nobody."""
    try:
        identity = read_identity(certificate_der)
    except UnreadableCertificate as error:
        raise Unauthorized("Unauthorized") from error
    if not identity.user:
        raise statuses.unauthorized()
    certificate = x509.load_der_x509_certificate(certificate_der)
    return CertificateLogin(
        user=User(
            identity.user, (*identity.groups, AUTHENTICATED), extra=_fingerprint(certificate_der)
        ),
        issued=(certificate.not_valid_before_utc + BACKDATED).timestamp(),
        expires=certificate.not_valid_after_utc.timestamp(),
    )


def _fingerprint(certificate_der: bytes) -> dict[str, tuple[str, ...]]:
    """Name the certificate in use, so that audit can tell two of the same user apart."""
    digest = hashlib.sha256(certificate_der).hexdigest()
    return {"authentication.kubernetes.io/credential-id": (f"X509SHA256={digest}",)}


class HubAuthenticator:
    """Finds out who asks; a credential that is given and wrong is refused, never passed over."""

    def __init__(self, hub: HubState, tokens: BearerTokens, revocations: Revocations) -> None:
        self._hub = hub
        self._tokens = tokens
        self._revocations = revocations

    async def authenticate(self, request: Request) -> User:
        """Return who asks."""
        if request.peer_certificate is not None:
            return await self._by_certificate(request, request.peer_certificate)
        header = request.headers.get("authorization")
        if header:
            return await self._by_token(request, header)
        return ANONYMOUS

    async def _by_certificate(self, request: Request, certificate: bytes) -> User:
        held: CertificateLogin | None = request.connection_memory.get(_MEMORY)
        if held is None:
            held = request.connection_memory[_MEMORY] = read_login(certificate)
        # TLS looked when the connection was opened; a watch keeps one open for days.
        if self._hub.clock.now() >= held.expires:
            raise statuses.unauthorized()
        cluster = cluster_of_agent(held.user.name, held.user.groups)
        if cluster and await self._revocations.covers(cluster, held.issued):
            raise statuses.unauthorized()
        return held.user

    async def _by_token(self, request: Request, header: str) -> User:
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != _BEARER:
            raise statuses.unauthorized()
        try:
            login = await self._tokens.check(token.strip(), (API_AUDIENCE,))
        except RefusedToken as refusal:
            raise Unauthorized("Unauthorized") from refusal
        if login is None or not _allows(login, request):
            raise statuses.unauthorized()
        return login.user


def _allows(login: Login, request: Request) -> bool:
    """Whether a login is good for this request: a spent token reads one path and no more."""
    return not login.only_path or (request.method, request.path) == ("GET", login.only_path)
