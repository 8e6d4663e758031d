"""What a token door answers, and the doors tried one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from clusterspace.apiserver.authenticators import TokenTable
from clusterspace.apiserver.http.users import User
from clusterspace.errors import ClusterspaceError

API_AUDIENCE: Final = "https://kubernetes.default.svc"
"""Whom tokens for this hub are meant for; also the issuer of service-account tokens."""


class RefusedToken(ClusterspaceError):
    """A token that is one of ours and no longer, or not here, counts; says why."""


@dataclass(frozen=True, slots=True)
class Login:
    """Whose token it is, and whom it was meant for."""

    user: User
    audiences: tuple[str, ...]
    only_path: str = ""
    """When set, the one path the token may still read; it is good for nothing else."""


class TokenDoor(Protocol):
    """One kind of bearer token."""

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is; None for another kind; RefusedToken when it does not count."""
        ...


class StaticTokens:
    """The tokens of the token file; they are meant for this hub."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is, or None."""
        user = self._table.find(token)
        if user is None or API_AUDIENCE not in audiences:
            return None
        return Login(user, (API_AUDIENCE,))


class BearerTokens:
    """Every kind of bearer token, asked in order."""

    def __init__(self, doors: Sequence[TokenDoor]) -> None:
        self._doors = tuple(doors)

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return the first answer; the first refusal is raised only if nobody else knows it."""
        refusal: RefusedToken | None = None
        for door in self._doors:
            try:
                login = await door.check(token, audiences)
            except RefusedToken as error:
                refusal = refusal or error
                continue
            if login is not None:
                return login
        if refusal is not None:
            raise refusal
        return None
