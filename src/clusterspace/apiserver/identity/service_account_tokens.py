"""Service-account tokens: signed, read, and checked against what is there now.

Two kinds, as in Kubernetes. Tokens from TokenRequest name their audience, expire, and may be bound
to a Pod, Secret or Node. Tokens in Secrets never expire and are bound to the Secret they lie in.
"""

import base64
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import jwt
import msgspec
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clusterspace.apiserver.builtin_resources import BuiltinRules
from clusterspace.apiserver.http.context import RequestContext, headers_for
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE, Login, RefusedToken
from clusterspace.apiserver.identity.credentials_in_use import CredentialsInUse
from clusterspace.apiserver.identity.following import find_object, secret_text
from clusterspace.apiserver.identity.nodes import token_refusal
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.apiserver.writing import edit_own
from clusterspace.errors import ApiError, BadRequest, Cause, ClusterspaceError, StoreError
from clusterspace.kube import causes, statuses
from clusterspace.kube.managed_fields.managers import Write, track_update
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupKind, GroupResource, GroupVersionKind
from clusterspace.kube.times import format_time, parse_time

_log = structlog.get_logger(__name__)

_UNENDING_ISSUER: Final = "kubernetes/serviceaccount"
_UNENDING_CLAIM: Final = "kubernetes.io/serviceaccount/"
_ALGORITHM: Final = "ES256"
_DOTS: Final = 2
"""In every token: header, claims and signature. Others are not looked at any closer."""
_JWKS: Final = "/openid/v1/jwks"
_PEM_END: Final = b"-----END PUBLIC KEY-----"
_EXTRA: Final = "authentication.kubernetes.io/"

_LEEWAY_SECONDS: Final = 60.0
"""Work that is being shut down may still need its credential; as kube-apiserver."""

_REMEMBERED: Final = 4096
"""Signatures found good are remembered: checking one costs as much as serving a small list."""

_LAST_USED: Final = "kubernetes.io/legacy-token-last-used"
_INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"

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


class UnreadableSigningKey(ClusterspaceError):
    """A PEM that does not hold an EC P-256 private key."""


class VerifyingKey:
    """The public half of an EC P-256 key: it tells that a token was signed with the other half."""

    def __init__(self, public: ec.EllipticCurvePublicKey) -> None:
        self.public = public
        # Verifiers know a key by the digest of its public half, as Kubernetes' do.
        der = self.public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_id = _base64url(hashlib.sha256(der).digest())

    @classmethod
    def load_all(cls, pem: bytes) -> "tuple[VerifyingKey, ...]":
        """Read the public keys of a PEM file."""
        keys: list[VerifyingKey] = []
        for part in pem.split(_PEM_END)[:-1]:
            try:
                key = serialization.load_pem_public_key(part.strip() + _PEM_END)
            except (ValueError, TypeError) as error:
                raise UnreadableSigningKey(f"a public key cannot be read: {error}") from error
            if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
                raise UnreadableSigningKey("a public key is not an EC P-256 key")
            keys.append(cls(key))
        return tuple(keys)

    @property
    def public_pem(self) -> bytes:
        """The public key, for whoever checks tokens."""
        return self.public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def as_jwk(self) -> Object:
        """Return the key as a JSON Web Key."""
        point = self.public.public_numbers()
        return {
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": "P-256",
            "alg": _ALGORITHM,
            "x": _base64url(point.x.to_bytes(32)),
            "y": _base64url(point.y.to_bytes(32)),
        }


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class SigningKey(VerifyingKey):
    """An EC P-256 key that signs tokens, and the public half that checks them."""

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        super().__init__(private.public_key())
        self.private = private

    @classmethod
    def create(cls) -> "SigningKey":
        """Make a new key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def load(cls, pem: bytes) -> "SigningKey":
        """Read a key from PEM."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise UnreadableSigningKey(f"the signing key's PEM cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise UnreadableSigningKey("the signing key is not an EC P-256 key")
        return cls(key)

    @property
    def pem(self) -> bytes:
        """The private key, to be kept where only the hub can read it."""
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


@dataclass(frozen=True, slots=True)
class TokenKeys:
    """The key that signs tokens, and those whose tokens count besides."""

    signing: SigningKey
    others: tuple[VerifyingKey, ...] = ()

    @property
    def by_id(self) -> dict[str, VerifyingKey]:
        """Every key whose tokens count, by what tokens call it."""
        return {each.key_id: each for each in (self.signing, *self.others)}


@dataclass(frozen=True, slots=True)
class Reference:
    """An object by name and UID: another one of the same name is not it."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """The claims of a new token."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    seconds: int
    bound: Mapping[str, Reference]
    """`pod`, `secret` or `node` to the object whose end is the token's end."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token whose signature has been verified."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    not_before: float
    expires: float | None
    bound: Mapping[str, Reference]
    token_id: str = ""
    lies_in: str = ""
    """The Secret a token without expiry must lie in."""


def claims_for(spec: TokenSpec, *, token_id: str, now: float) -> Object:
    """Return the body of a token that expires."""
    references = {**spec.bound, "serviceaccount": spec.account}
    private = {
        "namespace": spec.namespace,
        **{kind: {"name": each.name, "uid": each.uid} for kind, each in references.items()},
    }
    return {
        "aud": list(spec.audiences),
        "exp": int(now) + spec.seconds,
        "iat": int(now),
        "iss": API_AUDIENCE,
        "jti": token_id,
        "kubernetes.io": private,
        "nbf": int(now),
        "sub": username_of(spec.namespace, spec.account.name),
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


def read_claims(body: Mapping[str, Any]) -> Claims:
    """Read what a token says; RefusedToken when it does not say who it is for."""
    if body.get("iss") == _UNENDING_ISSUER:
        said = {
            claim: str(body.get(_UNENDING_CLAIM + claim) or "")
            for claim in ("namespace", "secret.name", "service-account.name", "service-account.uid")
        }
        if not said["secret.name"]:
            raise RefusedToken("token claims name no secret")
        claims = Claims(
            namespace=said["namespace"],
            account=Reference(said["service-account.name"], said["service-account.uid"]),
            audiences=(API_AUDIENCE,),
            not_before=0.0,
            expires=None,
            bound={},
            lies_in=said["secret.name"],
        )
    else:
        audiences, expires = body.get("aud"), body.get("exp")
        if body.get("iss") != API_AUDIENCE or not isinstance(audiences, list):
            raise RefusedToken("token was not issued for anybody")
        if not isinstance(expires, int) or not isinstance(body.get("nbf"), int):
            raise RefusedToken("token has no expiry")
        kinds = [kind for kind in _BINDABLE if find_at(body, "kubernetes.io", kind)]
        claims = Claims(
            namespace=str(find_at(body, "kubernetes.io", "namespace") or ""),
            account=_read_reference(body, "serviceaccount"),
            audiences=tuple(str(each) for each in cast("list[Any]", audiences)),
            not_before=float(body["nbf"]),
            expires=float(expires),
            bound={kind: _read_reference(body, kind) for kind in kinds},
            token_id=str(body.get("jti") or ""),
        )
    if body.get("sub") != username_of(claims.namespace, claims.account.name):
        raise RefusedToken("token claims contradict each other")
    if not claims.account.uid:
        raise RefusedToken("token claims name no service account")
    return claims


def _read_reference(body: Mapping[str, Any], kind: str) -> Reference:
    reference: Any = find_at(body, "kubernetes.io", kind) or {}
    return Reference(str(reference.get("name") or ""), str(reference.get("uid") or ""))


def check_times(claims: Claims, now: float) -> None:
    """Refuse a token before and after its time."""
    if claims.expires is not None and now >= claims.expires:
        raise RefusedToken("token has expired")
    if now < claims.not_before - _LEEWAY_SECONDS:
        raise RefusedToken("token is not valid yet")


def shared_audiences(claims: Claims, requested: Sequence[str]) -> tuple[str, ...]:
    """Return those of the requested audiences the token is meant for; RefusedToken when none is."""
    shared = tuple(each for each in claims.audiences if each in requested)
    if not shared:
        meant = " ".join(f'"{each}"' for each in claims.audiences)
        asked = " ".join(f'"{each}"' for each in requested)
        raise RefusedToken(
            f"token audiences [{meant}] is invalid for the target audiences [{asked}]"
        )
    return shared


def user_of(claims: Claims) -> User:
    """Return the user a token logs in."""
    extra: dict[str, tuple[str, ...]] = {}
    if claims.token_id:
        extra[f"{_EXTRA}credential-id"] = (f"JTI={claims.token_id}",)
    for kind in ("node", "pod"):
        bound = claims.bound.get(kind)
        if bound is not None:
            extra |= {f"{_EXTRA}{kind}-name": (bound.name,), f"{_EXTRA}{kind}-uid": (bound.uid,)}
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{claims.namespace}",
        AUTHENTICATED,
    )
    name = username_of(claims.namespace, claims.account.name)
    return User(name, groups, claims.account.uid, extra)


class ServiceAccountTokens:
    """Issues tokens of service accounts, and finds out whose they are."""

    def __init__(
        self, hub: HubState, keys: TokenKeys, in_use: CredentialsInUse | None = None
    ) -> None:
        self._hub = hub
        self._signing = keys.signing
        self._verifying = keys.by_id
        self._in_use = in_use
        self._known: OrderedDict[bytes, tuple[Claims, str]] = OrderedDict()
        """Claims by the digest of their token, with the id of the key that signed it, least
        recently used first; no token is kept."""

    def use(self, keys: TokenKeys) -> None:
        """Sign with another key, and believe others, from now on."""
        self._signing, self._verifying = keys.signing, keys.by_id

    def jwks(self) -> Object:
        """Return the keys by which anybody can check tokens."""
        return {"keys": [each.as_jwk() for each in self._verifying.values()]}

    def issue(self, spec: TokenSpec) -> str:
        """Return a token that expires."""
        now = self._hub.clock.now()
        return self._sign(claims_for(spec, token_id=self._hub.new_uid(), now=now))

    def issue_for_secret(self, namespace: str, account: Reference, secret: str) -> str:
        """Return a token that counts for as long as it lies in the Secret."""
        return self._sign(secret_claims(namespace, account, secret))

    def _sign(self, body: Object) -> str:
        headers = {"typ": None, "kid": self._signing.key_id}
        return jwt.encode(body, self._signing.private, _ALGORITHM, headers)

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is; None for a token we did not sign."""
        found = self._read(token)
        if found is None:
            return None
        claims, key_id = found
        # That the signature is good is remembered. Whether the token still counts is looked up
        # with every use: its account, the objects it is bound to, the Secret it lies in.
        check_times(claims, self._hub.clock.now())
        shared = shared_audiences(claims, audiences)
        references = {"serviceaccount": claims.account, **claims.bound}
        for kind, reference in references.items():
            plural = _BINDABLE.get(kind, "serviceaccounts")
            found = await find_object(self._hub, "", plural, claims.namespace, reference.name)
            ended = metadata_of(found).get("deletionTimestamp") if found is not None else None
            is_over = ended and parse_time(ended) + _LEEWAY_SECONDS <= self._hub.clock.now()
            # One of the same name may be there by now; it is another one by its UID.
            if found is None or uid_of(found) != reference.uid or is_over:
                raise RefusedToken(f"the {kind} of the token has been deleted")
        if claims.lies_in:
            secret = await find_object(self._hub, "", "secrets", claims.namespace, claims.lies_in)
            stored = secret_text(secret, "token") if secret is not None else ""
            if secret is None or not hmac.compare_digest(stored.encode(), token.encode()):
                why = "the secret of the token has been deleted or holds another token"
                raise RefusedToken(why)
            await self._record_use(secret)
            if labels_of(secret).get(_INVALID_SINCE):
                raise RefusedToken("the secret of the token has been marked invalid")
        if self._in_use is not None:
            user = username_of(claims.namespace, claims.account.name)
            self._in_use.note(key_id, user, self._hub.clock.now())
        return Login(user_of(claims), shared)

    async def _record_use(self, secret: Object) -> None:
        """Label a Secret with the day on which its token was last used: one write a day.

        Whoever removes tokens that nobody uses goes by this label. Without it, a token in use
        would look like one that was never needed.
        """
        today = format_time(self._hub.clock.now())[: len("2006-01-02")]
        if labels_of(secret).get(_LAST_USED) == today:
            return

        def used(live: Object) -> Object:
            if uid_of(live) != uid_of(secret):
                return live
            return with_metadata(live, labels={**labels_of(live), _LAST_USED: today})

        served = self._hub.catalog.get_storage("", "secrets")
        key = served.key(namespace_of(secret), name_of(secret))
        try:
            await edit_own(self._hub, served, key, used)
        except (ApiError, StoreError) as error:
            # A full disk must not lock out who could mend it. The next use tries again.
            _log.warning("use of a token is not recorded", secret=key, reason=str(error))

    def _read(self, token: str) -> tuple[Claims, str] | None:
        """Return the claims of a token and who signed it; None when its signature is not ours."""
        if token.count(".") != _DOTS:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            if known[1] not in self._verifying:
                return None  # that its signature was good does not outlive the key
            self._known.move_to_end(digest)
            return known
        try:
            # By the name it gives; tokens that give none were signed by one of the keys, too.
            named = self._verifying.get(str(jwt.get_unverified_header(token).get("kid")))
        except jwt.PyJWTError:
            return None
        for key in self._verifying.values() if named is None else (named,):
            try:
                body = jwt.decode(
                    token,
                    key.public,
                    algorithms=[_ALGORITHM],
                    options=cast("Any", _SIGNATURE_ONLY),
                )
            except jwt.PyJWTError:
                continue
            found = self._known[digest] = (read_claims(body), key.key_id)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            return found
        return None


class IssuerDocuments:
    """What others read who check our tokens by themselves: OIDC discovery, and the keys."""

    def __init__(self, tokens: ServiceAccountTokens) -> None:
        self._tokens = tokens
        self.server = ""
        """The URL at which this server is reached."""

    def answer(self, context: RequestContext) -> Response | None:
        """Answer one of the two paths; None for others."""
        if context.info.path == _JWKS:
            media_type, content = "application/jwk-set+json", self._tokens.jwks()
        elif context.info.path == "/.well-known/openid-configuration":
            media_type = "application/json"
            content = {
                "issuer": API_AUDIENCE,
                "jwks_uri": f"{self.server}{_JWKS}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [_ALGORITHM],
            }
        else:
            return None
        # Not for an hour, as Kubernetes has it: a new key is shown two minutes before it signs.
        headers = [each for each in headers_for(context, media_type) if each[0] != "Cache-Control"]
        headers.append(("Cache-Control", "public, max-age=60"))
        return Response(200, headers, msgspec.json.encode(content))


# -- TokenRequest: a token of an account, for an audience, for a while -------------------------


KIND: Final = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")

DEFAULT_SECONDS: Final = 3600
LEAST_SECONDS: Final = 600
MOST_SECONDS: Final = 365 * 24 * 3600
"""What is asked for beyond this is shortened to it, as a kube-apiserver with a maximum does."""

_RULES: Final = BuiltinRules(KIND)
_BINDABLE_KINDS: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}

Bound: TypeAlias = Mapping[str, Reference]
"""`pod`, `secret` or `node` to the object a token is bound to."""


class TokenRequestVerb:
    """POST on `serviceaccounts/NAME/token`."""

    def __init__(self, tokens: ServiceAccountTokens) -> None:
        self._tokens = tokens

    async def __call__(self, request: ResourceRequest) -> Response:
        """Answer with the request, filled in, and the token in its status."""
        hub, namespace, now = request.hub, request.info.namespace, request.hub.timestamp()
        options = read_write_options(
            request.info.query,
            kind="CreateOptions",
            user_agent=request.context.header("user-agent"),
        )
        asked = await _read_request(request)
        if any(each.name == "NodeRestriction" for each in hub.plugins):
            user = request.context.user
            refusal = await token_refusal(hub, user, namespace, request.info.name, asked)
            if refusal is not None:
                raise refusal
        account = await find_object(hub, "", "serviceaccounts", namespace, request.info.name)
        if account is None:
            raise request.not_found()
        name, found = name_of(asked), request_causes(asked)
        if found:
            raise statuses.invalid(KIND.group_kind, name, found)
        if name and name != name_of(account):
            why = "must match the service account name if specified"
            mismatch = causes.invalid("metadata.name", name, why)
            raise statuses.invalid(KIND.group_kind, name_of(account), (mismatch,))
        bound = await find_binding(hub, asked, account)
        write = Write(
            manager=options.field_manager,
            api_version=KIND.api_version,
            now=now,
            schema=_RULES.schema,
            subresource="token",
            blank=_RULES.blank,
        )
        own = {
            "name": name_of(account),
            "namespace": namespace,
            "uid": uid_of(account),
            "creationTimestamp": now,
        }
        named = {**asked, "metadata": {**metadata_of(asked), **own}}
        # Nothing is stored, so a dry run is no different; kube-apiserver answers it with a token.
        spec = cast("Object", asked["spec"])
        audiences = tuple(cast("list[str]", spec.get("audiences") or [API_AUDIENCE]))
        seconds = min(int(spec["expirationSeconds"]), MOST_SECONDS)
        reference = Reference(name_of(account), uid_of(account))
        token = self._tokens.issue(TokenSpec(namespace, reference, audiences, seconds, bound))
        granted = {
            **track_update(None, named, write),
            "spec": {**spec, "audiences": list(audiences), "expirationSeconds": seconds},
            "status": {
                "token": token,
                "expirationTimestamp": format_time(hub.clock.now() + seconds),
            },
        }
        return value_response(request.context, 201, granted, request.representation.media_type)


async def _read_request(request: ResourceRequest) -> Object:
    """Return the TokenRequest in the body, with the time it leaves to us; BadRequest otherwise."""
    body: Any = (await request.read_small_body(request.served.info.kind)).value
    if not isinstance(body, dict):
        raise BadRequest("the object provided is unrecognized (must be of type TokenRequest)")
    said = cast("Object", body)
    kind, version = said.get("kind") or KIND.kind, said.get("apiVersion") or KIND.api_version
    if (kind, version) != (KIND.kind, KIND.api_version):
        short = str(version).rpartition("/")[2]
        raise BadRequest(
            f'{kind} in version "{short}" cannot be handled as a TokenRequest: '
            f"converting ({short}.{kind}) to (authentication.TokenRequest): unknown conversion"
        )
    namespace = find_at(said, "metadata", "namespace")
    if namespace and namespace != request.info.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    named = {**said, "kind": KIND.kind, "apiVersion": KIND.api_version}
    asked = _RULES.read(named).kube_object
    spec = cast("Object", asked["spec"])
    if spec.get("expirationSeconds") is None:
        spec = {**spec, "expirationSeconds": DEFAULT_SECONDS}
    return {**asked, "spec": spec}


def request_causes(request: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse what a request asks for."""
    field, seconds = "spec.expirationSeconds", int(request["spec"]["expirationSeconds"])
    if seconds < LEAST_SECONDS:
        return (causes.invalid(field, seconds, "may not specify a duration less than 10 minutes"),)
    if seconds > 1 << 32:
        why = "may not specify a duration larger than 2^32 seconds"
        return (causes.invalid(field, seconds, why),)
    return ()


async def find_binding(hub: HubState, request: Object, account: Object) -> Bound:
    """Return the objects the token is bound to; refuse one that is not there or not bindable."""
    reference = cast("Object | None", find_at(request, "spec", "boundObjectRef"))
    if reference is None:
        return {}
    kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
    plural = _BINDABLE_KINDS.get(kind)
    if plural is None:
        group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
        raise BadRequest(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    namespace = str(metadata_of(account)["namespace"])
    found = await find_object(hub, "", plural, namespace, name)
    if found is None:
        raise statuses.not_found(GroupResource("", plural), name)
    uid = reference.get("uid")
    if uid and uid != uid_of(found):
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise statuses.conflict(GroupKind("", kind), name, why)
    bound = {kind.lower(): Reference(name, uid_of(found))}
    if kind == "Pod":
        if find_at(found, "spec", "serviceAccountName") != name_of(account):
            raise BadRequest(
                f'cannot bind token for serviceaccount "{name_of(account)}" '
                "to pod running with different serviceaccount name."
            )
        # The end of the node it runs on is the token's end too.
        node_name = find_at(found, "spec", "nodeName")
        node = await find_object(hub, "", "nodes", "", str(node_name)) if node_name else None
        if node is not None:
            bound["node"] = Reference(name_of(node), uid_of(node))
    return bound
