"""Request to user: client certificate first, then bearer token; with neither, anonymous."""

from typing import Final

from clusterspace.apiserver.http.certificate_logins import login_of
from clusterspace.apiserver.http.requests import Request
from clusterspace.apiserver.http.users import ANONYMOUS, User
from clusterspace.apiserver.identity.agents import cluster_of_agent
from clusterspace.apiserver.identity.certificates.issuing import BACKDATED
from clusterspace.apiserver.identity.logins import API_AUDIENCE, BearerTokens, Login, RefusedToken
from clusterspace.apiserver.identity.revocations import Revocations
from clusterspace.apiserver.state import HubState
from clusterspace.errors import Unauthorized
from clusterspace.kube import statuses

_BEARER: Final = "bearer"


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
        login = login_of(request, certificate, self._hub.clock.now())
        cluster = cluster_of_agent(login.user.name, login.user.groups)
        issued = login.starts + BACKDATED.total_seconds()
        if cluster and await self._revocations.covers(cluster, issued):
            raise statuses.unauthorized()
        return login.user

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
