"""Service-account tokens: issued, read, and checked against what is there now.

Two kinds, as in Kubernetes. Tokens from TokenRequest name their audience, expire, and may be bound
to a Pod, Secret or Node. Tokens in Secrets never expire and are bound to the Secret they lie in.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import jwt

from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.identity.logins import API_AUDIENCE, Login, RefusedToken
from clusterspace.apiserver.identity.reading import find_object, secret_text
from clusterspace.apiserver.identity.signing_keys import SigningKey
from clusterspace.apiserver.state import HubState
from clusterspace.kube.objects import Object, find_at, metadata_of, uid_of
from clusterspace.kube.timestamps import parse_time

_UNENDING_ISSUER: Final = "kubernetes/serviceaccount"
_UNENDING_CLAIM: Final = "kubernetes.io/serviceaccount/"
_ALGORITHM: Final = "ES256"
_EXTRA: Final = "authentication.kubernetes.io/"

_LEEWAY_SECONDS: Final = 60.0
"""Work that is being shut down may still need its credential; as kube-apiserver."""

_REMEMBERED: Final = 4096
"""Signatures found good are remembered: checking one costs as much as serving a small list."""

_BINDABLE: Final = {"pod": "pods", "secret": "secrets", "node": "nodes"}

# Times and audiences are checked below, by the hub's own clock and with our own words.
_SIGNATURE_ONLY: Final[dict[str, Any]] = {
    "verify_aud": False,
    "verify_exp": False,
    "verify_iat": False,
    "verify_iss": False,
    "verify_jti": False,
    "verify_nbf": False,
    "verify_sub": False,
}


@dataclass(frozen=True, slots=True)
class Reference:
    """An object by name and UID: another one of the same name is not it."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new token is to say."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    seconds: int
    bound: Mapping[str, Reference]
    """`pod`, `secret` or `node` to the object whose end is the token's end."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says, once its signature is known to be ours."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    not_before: float
    expires: float | None
    bound: Mapping[str, Reference]
    token_id: str = ""
    lies_in: str = ""
    """The Secret a token without expiry must lie in."""


def claims_for(grant: Grant, *, token_id: str, now: float) -> Object:
    """Return the body of a token that expires."""
    bound = {kind: _reference_body(held) for kind, held in grant.bound.items()}
    private = {
        "namespace": grant.namespace,
        **bound,
        "serviceaccount": _reference_body(grant.account),
    }
    return {
        "aud": list(grant.audiences),
        "exp": int(now) + grant.seconds,
        "iat": int(now),
        "iss": API_AUDIENCE,
        "jti": token_id,
        "kubernetes.io": private,
        "nbf": int(now),
        "sub": username_of(grant.namespace, grant.account.name),
    }


def secret_claims(namespace: str, account: Reference, secret: str) -> Object:
    """Return the body of a token that lies in a Secret and does not expire."""
    return {
        "iss": _UNENDING_ISSUER,
        f"{_UNENDING_CLAIM}namespace": namespace,
        f"{_UNENDING_CLAIM}secret.name": secret,
        f"{_UNENDING_CLAIM}service-account.name": account.name,
        f"{_UNENDING_CLAIM}service-account.uid": account.uid,
        "sub": username_of(namespace, account.name),
    }


def username_of(namespace: str, name: str) -> str:
    """Return the user a service account is."""
    return f"system:serviceaccount:{namespace}:{name}"


def _reference_body(reference: Reference) -> Object:
    return {"name": reference.name, "uid": reference.uid}


def read_claims(body: Mapping[str, Any]) -> Claims:
    """Read what a token says; RefusedToken when it does not say who it is for."""
    claims = _read_secret_claims(body) if body.get("iss") == _UNENDING_ISSUER else _read_grant(body)
    if body.get("sub") != username_of(claims.namespace, claims.account.name):
        raise RefusedToken("token claims contradict each other")
    if not claims.account.uid:
        raise RefusedToken("token claims name no service account")
    return claims


def _read_secret_claims(body: Mapping[str, Any]) -> Claims:
    said = {
        part: str(body.get(_UNENDING_CLAIM + part) or "")
        for part in ("namespace", "secret.name", "service-account.name", "service-account.uid")
    }
    if not said["secret.name"]:
        raise RefusedToken("token claims name no secret")
    return Claims(
        namespace=said["namespace"],
        account=Reference(said["service-account.name"], said["service-account.uid"]),
        audiences=(API_AUDIENCE,),
        not_before=0.0,
        expires=None,
        bound={},
        lies_in=said["secret.name"],
    )


def _read_grant(body: Mapping[str, Any]) -> Claims:
    audiences, expires = body.get("aud"), body.get("exp")
    if body.get("iss") != API_AUDIENCE or not isinstance(audiences, list):
        raise RefusedToken("token was not issued for anybody")
    if not isinstance(expires, int) or not isinstance(body.get("nbf"), int):
        raise RefusedToken("token has no expiry")
    kinds = [kind for kind in _BINDABLE if find_at(body, "kubernetes.io", kind)]
    return Claims(
        namespace=str(find_at(body, "kubernetes.io", "namespace") or ""),
        account=_read_reference(body, "serviceaccount"),
        audiences=tuple(str(each) for each in cast("list[Any]", audiences)),
        not_before=float(body["nbf"]),
        expires=float(expires),
        bound={kind: _read_reference(body, kind) for kind in kinds},
        token_id=str(body.get("jti") or ""),
    )


def _read_reference(body: Mapping[str, Any], kind: str) -> Reference:
    held: Any = find_at(body, "kubernetes.io", kind) or {}
    return Reference(str(held.get("name") or ""), str(held.get("uid") or ""))


def check_times(claims: Claims, now: float) -> None:
    """Refuse a token before and after its time."""
    if claims.expires is not None and now >= claims.expires:
        raise RefusedToken("token has expired")
    if now < claims.not_before - _LEEWAY_SECONDS:
        raise RefusedToken("token is not valid yet")


def shared_audiences(claims: Claims, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return those of the wanted audiences the token is meant for; RefusedToken when none is."""
    shared = tuple(each for each in claims.audiences if each in wanted)
    if not shared:
        held = " ".join(f'"{each}"' for each in claims.audiences)
        asked = " ".join(f'"{each}"' for each in wanted)
        raise RefusedToken(
            f"token audiences [{held}] is invalid for the target audiences [{asked}]"
        )
    return shared


def user_of(claims: Claims) -> User:
    """Return the user a token logs in."""
    extra: dict[str, tuple[str, ...]] = {}
    if claims.token_id:
        extra[f"{_EXTRA}credential-id"] = (f"JTI={claims.token_id}",)
    for kind in ("node", "pod"):
        held = claims.bound.get(kind)
        if held is not None:
            extra |= {f"{_EXTRA}{kind}-name": (held.name,), f"{_EXTRA}{kind}-uid": (held.uid,)}
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{claims.namespace}",
        AUTHENTICATED,
    )
    name = username_of(claims.namespace, claims.account.name)
    return User(name, groups, claims.account.uid, extra)


class ServiceAccountTokens:
    """The door for service accounts: issues tokens and tells whose they are."""

    def __init__(self, hub: HubState, key: SigningKey) -> None:
        self._hub = hub
        self._key = key
        self._known: OrderedDict[bytes, Claims] = OrderedDict()

    def issue(self, grant: Grant) -> str:
        """Return a token that expires."""
        now = self._hub.clock.now()
        return self._sign(claims_for(grant, token_id=self._hub.new_uid(), now=now))

    def issue_for_secret(self, namespace: str, account: Reference, secret: str) -> str:
        """Return a token that counts for as long as it lies in the Secret."""
        return self._sign(secret_claims(namespace, account, secret))

    def _sign(self, body: Object) -> str:
        headers = {"typ": None, "kid": self._key.key_id}
        return jwt.encode(body, self._key.private, _ALGORITHM, headers)

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is; None for a token we did not sign."""
        claims = self._read(token)
        if claims is None:
            return None
        check_times(claims, self._hub.clock.now())
        shared = shared_audiences(claims, audiences)
        await self._require_account(claims)
        for kind, reference in claims.bound.items():
            await self._require(kind, _BINDABLE[kind], claims.namespace, reference)
        if claims.lies_in:
            await self._require_secret(token, claims)
        return Login(user_of(claims), shared)

    def _read(self, token: str) -> Claims | None:
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            return known
        try:
            body = jwt.decode(
                token,
                self._key.public,
                algorithms=[_ALGORITHM],
                options=cast("Any", _SIGNATURE_ONLY),
            )
        except jwt.PyJWTError:
            return None
        claims = self._known[digest] = read_claims(body)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return claims

    async def _require_account(self, claims: Claims) -> None:
        await self._require("serviceaccount", "serviceaccounts", claims.namespace, claims.account)

    async def _require(self, kind: str, plural: str, namespace: str, held: Reference) -> None:
        """Refuse a token whose account or bound object is gone, or is another one by now."""
        found = await find_object(self._hub, "", plural, namespace, held.name)
        if found is None or uid_of(found) != held.uid:
            raise RefusedToken(f"the {kind} of the token has been deleted")
        ended = metadata_of(found).get("deletionTimestamp")
        if ended and parse_time(ended) + _LEEWAY_SECONDS <= self._hub.clock.now():
            raise RefusedToken(f"the {kind} of the token has been deleted")

    async def _require_secret(self, token: str, claims: Claims) -> None:
        secret = await find_object(self._hub, "", "secrets", claims.namespace, claims.lies_in)
        held = secret_text(secret, "token") if secret is not None else ""
        if not hmac.compare_digest(held.encode(), token.encode()):
            raise RefusedToken("the secret of the token has been deleted or holds another token")
