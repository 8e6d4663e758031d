"""TokenReview: others ask us whose token it is."""

from typing import Any, cast

from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.identity.logins import API_AUDIENCE, BearerTokens, Login, RefusedToken
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, read_incoming
from clusterspace.apiserver.writing import write_of
from clusterspace.errors import BadRequest
from clusterspace.kube.managed_fields.update import track_update
from clusterspace.kube.objects import Object, find_at


class TokenReviewVerb:
    """POST on `tokenreviews`: nothing is stored."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens

    async def __call__(self, ask: ResourceRequest) -> Response:
        """Answer with the review and what we know of the token."""
        options = read_write_options(
            ask.info.query, kind="CreateOptions", user_agent=ask.context.header("user-agent")
        )
        review = await read_incoming(ask, options.field_validation, is_kept=False)
        token: Any = find_at(review, "spec", "token")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        audiences = cast("list[str] | None", find_at(review, "spec", "audiences"))
        owned = track_update(
            None, review, write_of(ask.hub, ask.served, manager=options.field_manager)
        )
        status = await self.review(str(token), tuple(audiences or (API_AUDIENCE,)))
        answered = {**owned, "status": status}
        return value_response(ask.context, 201, answered, ask.representation.media_type)

    async def review(self, token: str, audiences: tuple[str, ...]) -> Object:
        """Return the status of a review: who, or why not."""
        try:
            login = await self._tokens.check(token, audiences)
        except RefusedToken as refusal:
            return _unknown(f"[invalid bearer token, {refusal}]")
        if login is None or login.only_path:
            return _unknown("invalid bearer token")
        return _known(login)


def _unknown(why: str) -> Object:
    return {"user": {}, "error": why}


def _known(login: Login) -> Object:
    return {
        "authenticated": True,
        "user": user_info(login.user),
        "audiences": list(login.audiences),
    }


def user_info(user: User) -> Object:
    """Return a user as reviews show one; what is empty is left out."""
    info: Object = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(held) for key, held in user.extra.items()},
    }
    return {key: held for key, held in info.items() if held}
