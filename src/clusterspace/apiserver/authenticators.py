"""Static tokens to users."""

import csv
import hashlib
from collections.abc import Mapping

from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.errors import ClusterspaceError


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
