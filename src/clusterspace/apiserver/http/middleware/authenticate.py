"""Credentials to user."""

from typing import Protocol

from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.failed_logins import FailedLogins
from clusterspace.apiserver.http.requests import Request
from clusterspace.apiserver.http.users import ANONYMOUS, User
from clusterspace.errors import Unauthorized


class Authenticator(Protocol):
    """Finds out who is asking."""

    async def authenticate(self, request: Request) -> User:
        """Return the user, anonymous without credentials; Unauthorized when they are wrong."""
        ...


class Authenticate:
    """The step that gives a call its user."""

    def __init__(self, authenticator: Authenticator, failures: FailedLogins | None = None) -> None:
        self._authenticator = authenticator
        self._failures = failures

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Authenticate, then go on."""
        failures = self._failures
        if failures is not None:
            failures.require_patience(context)
        try:
            context.user = await self._authenticator.authenticate(context.request)
        except Unauthorized:
            if failures is not None:
                failures.note(context)
            raise
        if context.user is not ANONYMOUS:
            context.request.trust_connection()
            if failures is not None:
                failures.note_success(context)
        return await rest(context)
