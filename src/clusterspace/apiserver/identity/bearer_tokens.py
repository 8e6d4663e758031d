"""Bearer tokens: what checking one answers, every kind of them tried in order, and TokenReview.

`bootstrap_tokens.py` and `service_account_tokens.py` are two kinds; static tokens are the third.
"""

import csv
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from clusterspace.apiserver.access.reviews import user_object
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, read_incoming
from clusterspace.apiserver.writing import write_of
from clusterspace.errors import BadRequest, ClusterspaceError
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.objects import Object, find_at

API_AUDIENCE: Final = "https://kubernetes.default.svc"
"""Whom tokens for this hub are meant for; also the issuer of service-account tokens."""


class RefusedToken(ClusterspaceError):
    """A token that is one of ours and no longer, or not here, counts; says why."""


class UnreadableTokenFile(ClusterspaceError):
    """A token file that is not in Kubernetes' CSV form; the message names the line."""


@dataclass(frozen=True, slots=True)
class Login:
    """Whose token it is, and whom it was meant for."""

    user: User
    audiences: tuple[str, ...]
    only_path: str = ""
    """When set, the one path the token may still read; it is good for nothing else."""


class TokenAuthenticator(Protocol):
    """One kind of bearer token."""

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is; None for another kind; RefusedToken when it does not count."""
        ...


class BearerTokens:
    """Every kind of bearer token, asked in order."""

    def __init__(
        self,
        authenticators: Sequence[TokenAuthenticator],
        is_denied: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._authenticators = tuple(authenticators)
        self._is_denied = is_denied
        """Whether every credential of a user is refused, whoever issued it."""

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return the first answer; the first refusal is raised only if nobody else knows it."""
        refusal: RefusedToken | None = None
        for authenticator in self._authenticators:
            try:
                login = await authenticator.check(token, audiences)
            except RefusedToken as error:
                # Not the end yet: a static token may look like one of ours that has expired.
                refusal = refusal or error
                continue
            if login is not None:
                if self._is_denied(login.user.name):
                    raise RefusedToken("the credentials of this user have been revoked")
                return login
        if refusal is not None:
            raise refusal
        return None


class StaticTokens:
    """The tokens of the token file; they are meant for this hub.

    They are kept as digests: neither a dump nor the time a lookup takes gives one away.
    """

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in users.items()}

    @classmethod
    def parse(cls, text: str) -> "StaticTokens":
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

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is, or None."""
        user = self.find(token)
        if user is None or API_AUDIENCE not in audiences:
            return None
        return Login(user, (API_AUDIENCE,))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class TokenReviewVerb:
    """POST on `tokenreviews`: others ask us whose token it is. Nothing is stored."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens

    async def __call__(self, request: ResourceRequest) -> Response:
        """Answer with the review and what we know of the token."""
        options = read_write_options(
            request.info.query,
            kind="CreateOptions",
            user_agent=request.context.header("user-agent"),
        )
        review = await read_incoming(request, options.field_validation, is_kept=False)
        token: Any = find_at(review, "spec", "token")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        audiences = cast("list[str] | None", find_at(review, "spec", "audiences"))
        write = write_of(request.hub, request.served, manager=options.field_manager)
        owned = track_update(None, review, write)
        status = await self.review(str(token), tuple(audiences or (API_AUDIENCE,)))
        answered = {**owned, "status": status}
        return value_response(request.context, 201, answered, request.representation.media_type)

    async def review(self, token: str, audiences: tuple[str, ...]) -> Object:
        """Return the status of a review: who, or why not."""
        try:
            login = await self._tokens.check(token, audiences)
        except RefusedToken as refusal:
            return {"user": {}, "error": f"[invalid bearer token, {refusal}]"}
        # A spent token reads one path, and that is no login anybody else may go by.
        if login is None or login.only_path:
            return {"user": {}, "error": "invalid bearer token"}
        return {
            "authenticated": True,
            "user": user_object(login.user),
            "audiences": list(login.audiences),
        }
