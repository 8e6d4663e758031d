"""Single sign-on: tokens of issuers that an AuthenticationConfiguration names.

    token ─ whose issuer? ─ signed by one of its keys? ─ for us, and now? ─ the rules about claims
          ─ claims become a user ─ the rules about users

An issuer is asked for its keys when a token comes that none of the known ones signed, and not more
often than every ten seconds: its keys roll without anybody telling us, and tokens of strangers cost
it nothing. While it is away, tokens signed with keys that are known still count.

Names that begin with `system:` are made in the cluster and given by no issuer, whatever it claims.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit

import jwt
from cryptography import x509

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE, Login, RefusedToken
from clusterspace.client.issuers import Issuer, IssuerUnusable
from clusterspace.kube.cel.compiler import compile_expression
from clusterspace.kube.cel.requests import USER_TYPE as USER
from clusterspace.kube.cel.requests import Evaluation, EvaluationError, Expression, OutOfBudget
from clusterspace.kube.cel.syntax import CompileFailed
from clusterspace.kube.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from clusterspace.kube.configuration_files import Section, read_configuration

API_VERSIONS: Final = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")
KIND: Final = "AuthenticationConfiguration"

ALGORITHMS: Final = frozenset(
    f"{family}{size}" for family in ("RS", "ES", "PS") for size in (256, 384, 512)
)
ASK_AGAIN_SECONDS: Final = 10.0
REMEMBERED_SECONDS: Final = 10.0
"""How long a token that was found good is not looked at again, as in kube-apiserver."""

_REMEMBERED: Final = 4096
_NOT_YET_LEEWAY: Final = 300.0
"""An issuer's clock may be ahead of ours."""
_LARGEST_TOKEN: Final = 16 * 1024
_SYSTEM: Final = "system:"

_CLAIMS_TYPE: Final = map_of(STRING, DYN)
_TEXTS: Final = (STRING, list_of(STRING), DYN)
_SIGNATURE_ONLY: Final[Any] = {
    f"verify_{each}": False for each in ("aud", "exp", "iat", "iss", "jti", "nbf", "sub")
}
"""Times and audiences are checked below, by the hub's own clock."""


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """A rule about claims: one has a value, or an expression holds."""

    claim: str = ""
    required: str = ""
    expression: Expression | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where something of a user comes from: a claim with a prefix before it, or an expression."""

    claim: str = ""
    prefix: str = ""
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """An entry of `jwt`: whose tokens count, and who is meant by them."""

    url: str
    audiences: tuple[str, ...]
    username: Mapped
    groups: Mapped = field(default_factory=Mapped)
    uid: Mapped = field(default_factory=Mapped)
    extra: tuple[tuple[str, Expression], ...] = ()
    claim_rules: tuple[ClaimRule, ...] = ()
    user_rules: tuple[ClaimRule, ...] = ()
    discovery_url: str = ""
    authority: bytes = b""

    def user_of(self, claims: Mapping[str, Any]) -> User:
        """Return whom a token means whose claims were verified; RefusedToken says why nobody."""
        evaluation = Evaluation({"claims": claims})
        for rule in self.claim_rules:
            if rule.expression is not None:
                _require(evaluation, rule.expression, rule.message)
            elif rule.claim not in claims:
                raise RefusedToken(f"oidc: required claim {rule.claim} not present in ID token")
            elif claims[rule.claim] != rule.required:
                raise RefusedToken(f"oidc: required claim {rule.claim} value does not match")
        name = self._username(claims, evaluation)
        groups = _texts(_mapped(self.groups, claims, evaluation), "groups")
        groups = tuple(f"{self.groups.prefix}{each}" for each in groups)
        uid = _mapped(self.uid, claims, evaluation)
        if uid is not None and not isinstance(uid, str):
            raise RefusedToken("oidc: the uid is not a text")
        extra = {
            key: values
            for key, expression in self.extra
            if (values := _texts(_evaluated(evaluation, expression), f"extra {key}"))
        }
        if name.startswith(_SYSTEM) or any(each.startswith(_SYSTEM) for each in groups):
            raise RefusedToken(f"oidc: names that begin with {_SYSTEM} are given by no issuer")
        user = User(name, (*groups, AUTHENTICATED), uid or "", extra)
        shown = {"username": name, "uid": user.uid, "groups": list(groups), "extra": extra}
        evaluation = Evaluation({"user": shown})
        for rule in self.user_rules:
            if rule.expression is not None:
                _require(evaluation, rule.expression, rule.message)
        return user

    def _username(self, claims: Mapping[str, Any], evaluation: Evaluation) -> str:
        name = _mapped(self.username, claims, evaluation)
        if not isinstance(name, str) or not name:
            raise RefusedToken("oidc: the token names no user")
        # An address that nobody has verified may be anybody's.
        if self.username.claim == "email" and claims.get("email_verified", True) is not True:
            raise RefusedToken("oidc: email not verified")
        return self.username.prefix + name


def _mapped(mapped: Mapped, claims: Mapping[str, Any], evaluation: Evaluation) -> Any:
    if mapped.expression is not None:
        return _evaluated(evaluation, mapped.expression)
    return claims.get(mapped.claim) if mapped.claim else None


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    values: Any = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple):
        raise RefusedToken(f"oidc: {what}: neither a text nor a list of texts")
    listed = cast("Sequence[Any]", values)
    if not all(isinstance(each, str) for each in listed):
        raise RefusedToken(f"oidc: {what}: neither a text nor a list of texts")
    return tuple(each for each in listed if each)


def _evaluated(evaluation: Evaluation, expression: Expression) -> Any:
    try:
        return evaluation.evaluate(expression)
    except (EvaluationError, OutOfBudget) as error:
        raise RefusedToken(f"oidc: {error}") from error


def _require(evaluation: Evaluation, expression: Expression, message: str) -> None:
    if _evaluated(evaluation, expression) is not True:
        said = message or f"expression {expression.text!r} does not hold"
        raise RefusedToken(f"oidc: {said}")


class IssuerKeys:
    """The keys of one issuer, asked for when a token needs one that is not known."""

    def __init__(self, settings: IssuerSettings, clock: Clock) -> None:
        self._issuer = Issuer(settings.url, clock, settings.authority, settings.discovery_url)
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, key_id: str, algorithm: str) -> jwt.PyJWK | None:
        """Return a key, or None when the issuer has no such; IssuerUnusable."""
        found = self._known(key_id, algorithm)
        if found is not None:
            return found
        # One question for all who wait: the first asks, and the others find what it brought.
        async with self._lock:
            found = self._known(key_id, algorithm)
            if found is not None or self._clock.monotonic() < self._asked_at + ASK_AGAIN_SECONDS:
                return found
            self._asked_at = self._clock.monotonic()
            self._keys = await self._ask()
        return self._known(key_id, algorithm)

    def _known(self, key_id: str, algorithm: str) -> jwt.PyJWK | None:
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id)
        return found if found is not None and _fits(found, algorithm) else None

    async def _ask(self) -> dict[str, jwt.PyJWK]:
        document = await self._issuer.discover()
        listed = (await self._issuer.ask(str(document.get("jwks_uri") or ""))).get("keys")
        keys: dict[str, jwt.PyJWK] = {}
        for each in cast("list[Any]", listed if isinstance(listed, list) else []):
            try:
                key = jwt.PyJWK(each)
            except (jwt.PyJWTError, TypeError, ValueError, AttributeError):
                continue  # of a kind that we do not know, and that no token can need
            keys[key.key_id or ""] = key
        return keys


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Whether a key is of the kind that the algorithm of a token signs with."""
    family = {"RS": "RSA", "PS": "RSA", "ES": "EC"}[algorithm[:2]]
    return key.key_type == family


class OidcTokens:
    """The tokens of all issuers that are configured."""

    def __init__(self, issuers: Sequence[IssuerSettings], clock: Clock) -> None:
        self._clock = clock
        self._issuers: dict[str, tuple[IssuerSettings, IssuerKeys]] = {}
        self._good: OrderedDict[bytes, tuple[float, User]] = OrderedDict()
        self.replace(issuers)

    def replace(self, issuers: Sequence[IssuerSettings]) -> None:
        """Take these issuers from now on; keys of those that are as before stay known."""
        before = self._issuers
        self._issuers = {
            each.url: before[each.url]
            if each.url in before and before[each.url][0] == each
            else (each, IssuerKeys(each, self._clock))
            for each in issuers
        }
        self._good.clear()

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is; None when it is none of these issuers'; RefusedToken."""
        if not self._issuers or len(token) > _LARGEST_TOKEN or API_AUDIENCE not in audiences:
            return None
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock.monotonic()
        known = self._good.get(digest)
        if known is not None and now < known[0] + REMEMBERED_SECONDS:
            return Login(known[1], (API_AUDIENCE,))
        try:
            header = jwt.get_unverified_header(token)
            unverified = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            return None
        found = self._issuers.get(str(unverified.get("iss")))
        if found is None:
            return None
        settings, keys = found
        user = settings.user_of(await self._verified(token, header, settings, keys))
        self._good[digest] = (now, user)
        self._good.move_to_end(digest)
        if len(self._good) > _REMEMBERED:
            self._good.popitem(last=False)
        return Login(user, (API_AUDIENCE,))

    async def _verified(
        self, token: str, header: Mapping[str, Any], settings: IssuerSettings, keys: IssuerKeys
    ) -> dict[str, Any]:
        algorithm = str(header.get("alg"))
        if algorithm not in ALGORITHMS:
            raise RefusedToken(
                f"oidc: verify token: signing algorithm {algorithm!r} is not allowed"
            )
        try:
            key = await keys.find(str(header.get("kid") or ""), algorithm)
        except IssuerUnusable as error:
            raise RefusedToken(f"oidc: verify token: fetching keys: {error}") from error
        if key is None:
            raise RefusedToken("oidc: verify token: the issuer has no such key")
        try:
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=[algorithm], options=_SIGNATURE_ONLY
            )
        except jwt.PyJWTError as error:
            raise RefusedToken("oidc: verify token: the signature does not fit") from error
        now, given = self._clock.now(), claims.get("aud")
        named = cast("list[Any]", given if isinstance(given, list) else [given])
        if not any(each in settings.audiences for each in named):
            raise RefusedToken("oidc: verify token: it is not meant for this audience")
        expires, starts = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, int | float) or now >= expires:
            raise RefusedToken("oidc: verify token: it has expired")
        if not isinstance(starts, int | float) or now + _NOT_YET_LEEWAY < starts:
            raise RefusedToken("oidc: verify token: it does not count yet")
        return claims


# -- the configuration -------------------------------------------------------------------------


def read_issuers(document: Any) -> tuple[IssuerSettings, ...]:
    """Read an AuthenticationConfiguration; UnusableConfiguration names the place."""
    config = read_configuration(document, KIND, API_VERSIONS)
    config.require_only("apiVersion", "kind", "jwt")
    issuers = tuple(_issuer(each) for each in config.sections("jwt"))
    urls = [each.url for each in issuers]
    for url in urls:
        if urls.count(url) > 1:
            raise config.refusal("jwt", f"the issuer {url} is there more than once")
    return issuers


def _issuer(entry: Section) -> IssuerSettings:
    entry.require_only("issuer", "claimValidationRules", "claimMappings", "userValidationRules")
    issuer = entry.section("issuer")
    issuer.require_only(
        "url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy"
    )
    url = _https(issuer, "url")
    discovery = _https(issuer, "discoveryURL") if issuer.get("discoveryURL") else ""
    audiences = issuer.texts("audiences")
    if not audiences or not all(audiences):
        raise issuer.refusal("audiences", "at least one has to be there")
    if len(audiences) > 1 and issuer.get("audienceMatchPolicy") != "MatchAny":
        why = "it has to be MatchAny where there are several audiences"
        raise issuer.refusal("audienceMatchPolicy", why)
    authority = issuer.text("certificateAuthority").encode()
    if authority:
        try:
            x509.load_pem_x509_certificates(authority)
        except ValueError as error:
            raise issuer.refusal("certificateAuthority", "it is no PEM") from error
    mappings = entry.section("claimMappings")
    mappings.require_only("username", "groups", "uid", "extra")
    username = _mapped_by(mappings, "username", (STRING, DYN), has_prefix=True)
    if username == Mapped():
        raise mappings.refusal("username", "a claim or an expression has to be there")
    claim_rules = _rules(entry, "claimValidationRules", {"claims": _CLAIMS_TYPE})
    extra = _extra(mappings)
    # A name that is made of an address, when nothing looks whether that was verified, is anybody's.
    name = "" if username.expression is None else username.expression.text
    looked_at = [name, *(each.text for _, each in extra)]
    looked_at += [each.expression.text for each in claim_rules if each.expression is not None]
    if "claims.email" in name.replace("claims.email_verified", "") and not any(
        "claims.email_verified" in each for each in looked_at
    ):
        why = "claims.email_verified has to be looked at where claims.email names the user"
        raise mappings.refusal("username.expression", why)
    return IssuerSettings(
        url=url,
        audiences=audiences,
        username=username,
        groups=_mapped_by(mappings, "groups", _TEXTS, has_prefix=True),
        uid=_mapped_by(mappings, "uid", (STRING, DYN), has_prefix=False),
        extra=extra,
        claim_rules=claim_rules,
        user_rules=_rules(entry, "userValidationRules", {"user": USER}),
        discovery_url=discovery,
        authority=authority,
    )


def _rules(entry: Section, key: str, variables: Mapping[str, Type]) -> tuple[ClaimRule, ...]:
    rules: list[ClaimRule] = []
    is_about_claims = "claims" in variables
    known = ("claim", "requiredValue") if is_about_claims else ()
    for rule in entry.sections(key):
        rule.require_only(*known, "expression", "message")
        claim, text = rule.text("claim"), rule.text("expression")
        if bool(claim) == bool(text):
            what = "a claim or an expression" if is_about_claims else "an expression"
            raise rule.refusal("", f"{what} has to be there, and not both")
        expression = _compiled(rule, "expression", variables, (BOOL,)) if text else None
        required, message = rule.text("requiredValue"), rule.text("message")
        rules.append(ClaimRule(claim, required, expression, message))
    return tuple(rules)


def _mapped_by(
    mappings: Section, key: str, results: tuple[Type, ...], *, has_prefix: bool
) -> Mapped:
    if mappings.get(key) is None:
        return Mapped()
    mapping = mappings.section(key)
    mapping.require_only("claim", "expression", *(("prefix",) if has_prefix else ()))
    claim, text = mapping.text("claim"), mapping.text("expression")
    if claim and text:
        raise mapping.refusal("", "a claim or an expression, and not both")
    if claim and has_prefix and not isinstance(mapping.get("prefix"), str):
        raise mapping.refusal("prefix", "it has to be there with a claim; an empty one is one")
    if text:
        types = {"claims": _CLAIMS_TYPE}
        return Mapped(expression=_compiled(mapping, "expression", types, results))
    return Mapped(claim, mapping.text("prefix"))


def _extra(mappings: Section) -> tuple[tuple[str, Expression], ...]:
    found: dict[str, Expression] = {}
    for entry in mappings.sections("extra"):
        entry.require_only("key", "valueExpression")
        key = entry.text("key")
        domain, _, name = key.partition("/")
        if not name or key != key.lower() or key in found or "kubernetes.io" in domain:
            why = "it has to be a path below a domain of your own, in lower case, and there once"
            raise entry.refusal("key", why)
        found[key] = _compiled(entry, "valueExpression", {"claims": _CLAIMS_TYPE}, _TEXTS)
    return tuple(found.items())


def _compiled(
    section: Section, key: str, variables: Mapping[str, Type], results: tuple[Type, ...]
) -> Expression:
    text = section.text(key)
    try:
        program = compile_expression(text, variables)
    except CompileFailed as failed:
        raise section.refusal(key, f"compilation failed: {failed}") from failed
    if program.type not in results:
        wanted = " or ".join(str(each) for each in results if each != DYN)
        raise section.refusal(key, f"it has to give {wanted}, and gives {program.type}")
    return Expression(text, program)


def _https(section: Section, key: str) -> str:
    url = section.text(key)
    parts = urlsplit(url)
    has_more = parts.username or parts.query or parts.fragment
    if parts.scheme != "https" or not parts.hostname or has_more:
        raise section.refusal(key, "it has to be an https address and nothing more")
    return url
