"""Service-account tokens: what they say, and when they stop counting."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from tests.unit.apiserver.identity.subjects import MemoryHub, value_in

from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE, RefusedToken
from clusterspace.apiserver.identity.following import encoded
from clusterspace.apiserver.identity.service_account_tokens import (
    Reference,
    ServiceAccountTokens,
    SigningKey,
    TokenKeys,
    TokenSpec,
    UnreadableSigningKey,
    VerifyingKey,
    claims_for,
    read_claims,
    secret_claims,
)
from clusterspace.kube.objects import Object, uid_of

HERE = (API_AUDIENCE,)
KEY = SigningKey.create()
BOT = Reference("bot", "uid-of-bot")


class Issued:
    """A hub with one service account, and the tokens it issues."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.tokens = ServiceAccountTokens(self.hub.state, TokenKeys(KEY))
        self.account: Object = {}

    async def start(self) -> "Issued":
        await self.hub.create_namespace("apps")
        self.account = await self.hub.create_account("apps", "bot")
        return self

    def token(
        self, *, seconds: int = 600, audiences: tuple[str, ...] = HERE, **bound: Reference
    ) -> str:
        reference = Reference("bot", uid_of(self.account))
        return self.tokens.issue(TokenSpec("apps", reference, audiences, seconds, bound))


def test_a_token_says_what_kubernetes_tokens_say():
    grant = TokenSpec("apps", BOT, ("a",), 600, {"secret": Reference("s", "uid-of-s")})

    assert claims_for(grant, token_id="id", now=1000.5) == {
        "aud": ["a"],
        "exp": 1600,
        "iat": 1000,
        "iss": "https://kubernetes.default.svc",
        "jti": "id",
        "kubernetes.io": {
            "namespace": "apps",
            "secret": {"name": "s", "uid": "uid-of-s"},
            "serviceaccount": {"name": "bot", "uid": "uid-of-bot"},
        },
        "nbf": 1000,
        "sub": "system:serviceaccount:apps:bot",
    }


async def test_the_header_names_the_key_and_no_type():
    issued = await Issued().start()

    assert jwt.get_unverified_header(issued.token()) == {"alg": "ES256", "kid": KEY.key_id}


async def test_a_token_logs_its_account_in():
    issued = await Issued().start()

    login = await issued.tokens.check(issued.token(), HERE)

    assert login is not None
    assert login.user.name == "system:serviceaccount:apps:bot"
    assert login.user.uid == uid_of(issued.account)
    assert login.user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:apps",
        "system:authenticated",
    )
    assert login.user.extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


async def test_a_token_ends_with_its_time():
    issued = await Issued().start()
    token = issued.token(seconds=600)
    assert await issued.tokens.check(token, HERE) is not None

    await issued.hub.clock.advance(600)

    with pytest.raises(RefusedToken, match="expired"):
        await issued.tokens.check(token, HERE)


async def test_a_token_ends_with_its_account_even_when_another_takes_the_name():
    issued = await Issued().start()
    token = issued.token()
    assert await issued.tokens.check(token, HERE) is not None

    await issued.hub.delete("", "serviceaccounts", "apps", "bot")
    with pytest.raises(RefusedToken, match="deleted"):
        await issued.tokens.check(token, HERE)

    await issued.hub.create_account("apps", "bot")
    with pytest.raises(RefusedToken, match="deleted"):
        await issued.tokens.check(token, HERE)


async def test_a_bound_token_ends_with_the_object_it_is_bound_to():
    issued = await Issued().start()
    secret = await issued.hub.create_secret("apps", "lock", {})
    token = issued.token(secret=Reference("lock", uid_of(secret)))
    assert await issued.tokens.check(token, HERE) is not None

    await issued.hub.delete("", "secrets", "apps", "lock")

    with pytest.raises(RefusedToken, match="secret of the token has been deleted"):
        await issued.tokens.check(token, HERE)


async def test_a_token_for_others_does_not_log_in_here():
    issued = await Issued().start()
    token = issued.token(audiences=("vault",))

    with pytest.raises(RefusedToken, match=r'token audiences \["vault"\] is invalid'):
        await issued.tokens.check(token, HERE)
    login = await issued.tokens.check(token, ("vault", "other"))
    assert login is not None
    assert login.audiences == ("vault",)


async def test_a_token_in_a_secret_counts_for_as_long_as_it_lies_there():
    issued = await Issued().start()
    reference = Reference("bot", uid_of(issued.account))
    token = issued.tokens.issue_for_secret("apps", reference, "held")
    with pytest.raises(RefusedToken, match="secret"):
        await issued.tokens.check(token, HERE)

    secret = await issued.hub.create_secret("apps", "held", {"token": token})
    await issued.hub.clock.advance(10 * 365 * 24 * 3600)
    login = await issued.tokens.check(token, HERE)
    assert login is not None
    assert value_in(secret, "token") == token

    await issued.hub.edit("", "secrets", secret, data={"token": encoded(b"another")})
    with pytest.raises(RefusedToken, match="another token"):
        await issued.tokens.check(token, HERE)


async def test_the_use_of_a_token_in_a_secret_is_recorded_once_a_day():
    issued = await Issued().start()
    token = issued.tokens.issue_for_secret("apps", Reference("bot", uid_of(issued.account)), "held")
    await issued.hub.create_secret("apps", "held", {"token": token})

    async def used() -> tuple[str, str]:
        await issued.tokens.check(token, HERE)
        secret = await issued.hub.get("", "secrets", "apps", "held")
        return secret["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"], secret[
            "metadata"
        ]["resourceVersion"]

    day, version = await used()
    assert (day, version) == await used()
    await issued.hub.clock.advance(24 * 3600)
    assert (await used())[0] > day


async def test_a_token_that_was_marked_invalid_counts_no_more():
    issued = await Issued().start()
    token = issued.tokens.issue_for_secret("apps", Reference("bot", uid_of(issued.account)), "held")
    secret = await issued.hub.create_secret("apps", "held", {"token": token})
    labels = {"kubernetes.io/legacy-token-invalid-since": "2024-01-01"}
    await issued.hub.edit("", "secrets", secret, metadata={**secret["metadata"], "labels": labels})

    with pytest.raises(RefusedToken, match="marked invalid"):
        await issued.tokens.check(token, HERE)


async def test_what_we_did_not_sign_is_none_of_ours():
    issued = await Issued().start()
    elsewhere = ServiceAccountTokens(issued.hub.state, TokenKeys(SigningKey.create()))
    grant = TokenSpec("apps", Reference("bot", uid_of(issued.account)), HERE, 600, {})
    body = claims_for(grant, token_id="x", now=issued.hub.clock.now())
    public = KEY.public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head, middle, signature = issued.token().split(".")
    forged = [
        elsewhere.issue(grant),
        jwt.encode(body, "", algorithm="none"),
        jwt.api_jws.PyJWS().encode(b"{}", KEY.private, "ES256"),
        f"{head}.{middle}.",
        f"{head}.{middle}.{signature[:-4]}AAAA",
        f"{head}.{middle[:-2]}AA.{signature}",
        _signed_with_public_key(body, public),
        "a.b.c",
        "",
    ]

    answers = [await _answer(issued.tokens, token) for token in forged]

    assert answers == [None] * len(forged)


def _signed_with_public_key(body: Object, public: bytes) -> str:
    """Forge a token with the algorithm swapped: the public key as an HMAC secret."""

    def part(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    header = {"alg": "HS256", "typ": "JWT"}
    signed = ".".join(part(json.dumps(each).encode()) for each in (header, body))
    return f"{signed}.{part(hmac.new(public, signed.encode(), hashlib.sha256).digest())}"


async def _answer(tokens: ServiceAccountTokens, token: str) -> object:
    try:
        return await tokens.check(token, HERE)
    except RefusedToken:
        return None


@pytest.mark.parametrize(
    "damage",
    [
        {"sub": "system:serviceaccount:kube-system:admin"},
        {"aud": API_AUDIENCE},
        {"exp": None},
        {"exp": "never"},
        {"iss": "https://elsewhere"},
        {"kubernetes.io": {"namespace": "apps", "serviceaccount": {"name": "bot"}}},
        {"kubernetes.io": None},
    ],
)
def test_claims_that_do_not_fit_together_are_refused(damage: Object):
    body = claims_for(TokenSpec("apps", BOT, HERE, 600, {}), token_id="x", now=0.0)

    with pytest.raises(RefusedToken):
        read_claims({**body, **damage})


def test_a_token_without_expiry_must_name_its_secret():
    body = secret_claims("apps", BOT, "")

    with pytest.raises(RefusedToken, match="no secret"):
        read_claims(body)


async def test_a_pod_bound_token_says_where_the_pod_runs():
    issued = await Issued().start()
    pod = await issued.hub.create(
        "",
        "pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "apps"},
            "spec": {"containers": [{"name": "web", "image": "web"}]},
        },
    )

    login = await issued.tokens.check(issued.token(pod=Reference("web", uid_of(pod))), HERE)

    assert login is not None
    assert login.user.extra["authentication.kubernetes.io/pod-name"] == ("web",)
    assert login.user.extra["authentication.kubernetes.io/pod-uid"] == (uid_of(pod),)


async def test_tokens_of_an_earlier_key_count_until_it_is_dropped() -> None:
    issued = await Issued().start()
    token = issued.token()
    successor = SigningKey.create()

    issued.tokens.use(TokenKeys(successor, (VerifyingKey(KEY.public),)))
    assert (await issued.tokens.check(token, (API_AUDIENCE,))) is not None
    assert {each["kid"] for each in issued.tokens.jwks()["keys"]} == {
        KEY.key_id,
        successor.key_id,
    }
    later = issued.token()
    assert jwt.get_unverified_header(later)["kid"] == successor.key_id

    # Remembered as good, and no longer: the memory does not outlive the key.
    issued.tokens.use(TokenKeys(successor))
    assert await issued.tokens.check(token, (API_AUDIENCE,)) is None
    assert await issued.tokens.check(later, (API_AUDIENCE,)) is not None


def test_public_keys_are_read_as_they_were_written() -> None:
    keys = (SigningKey.create(), SigningKey.create())
    read = VerifyingKey.load_all(b"".join(each.public_pem for each in keys))
    assert [each.key_id for each in read] == [each.key_id for each in keys]
    with pytest.raises(UnreadableSigningKey):
        VerifyingKey.load_all(b"-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----\n")
