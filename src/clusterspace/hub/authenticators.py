"""Client certificates and static tokens to users."""

import csv
import hashlib
from collections.abc import Mapping
from typing import Final

from clusterspace.errors import ClusterspaceError, Unauthorized
from clusterspace.hub.certificates import UnreadableCertificate, read_identity
from clusterspace.kube import statuses
from clusterspace.serving.requests import Request
from clusterspace.serving.users import ANONYMOUS, AUTHENTICATED, User

_BEARER: Final = "bearer"
_MEMORY: Final = "certificate user"


class UnreadableTokenFile(ClusterspaceError):
    """A token file that is not in Kubernetes' CSV form; the message names the line."""


class TokenTable:
    """Static tokens, kept as digests: neither a dump nor the time a lookup takes gives one away."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in users.items()}

    @classmethod
    def parse(cls, text: str) -> "TokenTable":
        """Read lines of `token,user,uid,"group1,group2"`."""
        users: dict[str, User] = {}
        for number, row in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), 1):
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if len(row) < 3 or not row[0] or not row[1]:
                raise UnreadableTokenFile(
                    f"line {number} of the token file needs token,user,uid and perhaps groups"
                )
            token, name, uid, *groups = row
            listed = tuple(each.strip() for each in (groups or [""])[0].split(",") if each.strip())
            users[token] = User(name, (*listed, AUTHENTICATED), uid)
        return cls(users)

    def find(self, token: str) -> User | None:
        """Return the user of a token, or None."""
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class HubAuthenticator:
    """Bearer token first, then client certificate; neither is anonymous."""

    def __init__(self, tokens: TokenTable) -> None:
        self._tokens = tokens

    async def authenticate(self, request: Request) -> User:
        """Return who asks; a token that is given and wrong is refused, never passed over."""
        header = request.headers.get("authorization")
        if header:
            return self._by_token(header)
        return _by_certificate(request)

    def _by_token(self, header: str) -> User:
        scheme, _, token = header.strip().partition(" ")
        user = self._tokens.find(token.strip()) if scheme.lower() == _BEARER else None
        if user is None:
            raise statuses.unauthorized()
        return user


def _by_certificate(request: Request) -> User:
    held = request.connection_memory.get(_MEMORY)
    if held is None:
        held = request.connection_memory[_MEMORY] = _read_user(request.peer_certificate)
    return held


def _read_user(certificate: bytes | None) -> User:
    if certificate is None:
        return ANONYMOUS
    try:
        identity = read_identity(certificate)
    except UnreadableCertificate as error:
        raise Unauthorized("Unauthorized") from error
    if not identity.user:
        raise statuses.unauthorized()
    return User(identity.user, (*identity.groups, AUTHENTICATED))
