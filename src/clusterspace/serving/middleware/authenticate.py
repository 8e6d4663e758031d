"""Credentials to user."""

from typing import Protocol

from clusterspace.serving.calls import Call, CallHandler
from clusterspace.serving.messages import Response
from clusterspace.serving.requests import Request
from clusterspace.serving.users import ANONYMOUS, User


class Authenticator(Protocol):
    """Finds out who is asking."""

    async def authenticate(self, request: Request) -> User:
        """Return the user, anonymous without credentials; Unauthorized when they are wrong."""
        ...


class Authenticate:
    """The step that gives a call its user."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def __call__(self, call: Call, rest: CallHandler) -> Response | None:
        """Authenticate, then go on."""
        call.user = await self._authenticator.authenticate(call.request)
        if call.user is not ANONYMOUS:
            call.request.trust_connection()
        return await rest(call)
