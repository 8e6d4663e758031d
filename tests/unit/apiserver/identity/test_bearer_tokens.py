"""Doors tried one after the other, for logging in and for reviews."""

from collections.abc import Sequence

import pytest

from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.identity.bearer_tokens import (
    API_AUDIENCE,
    BearerTokens,
    Login,
    RefusedToken,
    StaticTokens,
    TokenReviewVerb,
)

HERE = (API_AUDIENCE,)
ALICE = User("alice", ("dev",), "7", {"scopes": ("read",)})
STATIC = StaticTokens({"secret": ALICE, "spent": User("x"), "old": User("y")})


class Door:
    """A door that knows three tokens, and refuses one of them."""

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        if token in ("old", "ended"):
            raise RefusedToken("token has expired")
        if token == "spent":
            return Login(ALICE, HERE, only_path="/apis/x")
        return None


BOTH = BearerTokens((Door(), STATIC))


async def test_the_first_door_that_knows_a_token_answers():
    assert await BOTH.check("secret", HERE) == Login(ALICE, HERE)


async def test_a_refusal_at_one_door_does_not_close_the_next():
    login = await BOTH.check("old", HERE)

    assert login is not None
    assert login.user.name == "y"


async def test_a_refusal_stands_when_nobody_else_knows_the_token():
    with pytest.raises(RefusedToken):
        await BOTH.check("ended", HERE)


async def test_a_static_token_is_for_this_hub_only():
    assert await STATIC.check("secret", ("elsewhere",)) is None


async def test_a_review_tells_who():
    assert await TokenReviewVerb(BOTH).review("secret", HERE) == {
        "authenticated": True,
        "user": {
            "username": "alice",
            "uid": "7",
            "groups": ["dev"],
            "extra": {"scopes": ["read"]},
        },
        "audiences": [API_AUDIENCE],
    }


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("nobody's", "invalid bearer token"),
        ("spent", "invalid bearer token"),
        ("ended", "[invalid bearer token, token has expired]"),
    ],
)
async def test_a_review_tells_why_not(token: str, why: str):
    assert await TokenReviewVerb(BOTH).review(token, HERE) == {"user": {}, "error": why}
