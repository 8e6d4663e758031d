"""Logging in at an issuer, for browsers: OpenID Connect, an authorization code with PKCE.

    GET /ui/sign-on                  ──> 303 to the issuer, and a sealed cookie for the way back
    GET /ui/sign-on/done?code&state  ──> the issuer gives an ID token for the code
                                     ──> 303 /ui/#code=...  a code as `clusterspace ui` gets one

Nothing is kept here meanwhile. What has to be known on the way back is in the cookie, sealed with a
key of this process: strangers who begin logins fill no memory, and who comes back without the
cookie of the one who went has brought somebody else's login, which is refused.

An ID token is a bearer token like any other: the hub says whose it is, and has to trust the issuer.
No other token is asked for or kept, so a session ends with its ID token.
"""

import asyncio
import base64
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import jwt
import msgspec
import structlog
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.client.issuers import Issuer, IssuerUnusable
from clusterspace.errors import ClusterspaceError, Unauthorized
from clusterspace.fleet.page.browsers import PAGE, cookie_name, find_cookie

_BEGIN_PATH: Final = f"{PAGE}/sign-on"
_DONE_PATH: Final = f"{_BEGIN_PATH}/done"
SIGN_ON_PATHS: Final = (_BEGIN_PATH, _DONE_PATH)

_WAY_SECONDS: Final = 600
"""From here to the issuer and back, with a password and a second factor to be found."""
_DISCOVERED_SECONDS: Final = 300.0
_FAILED_SECONDS: Final = 10.0
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
_log = structlog.get_logger(__name__)

Take = Callable[[str], Awaitable[str]]
"""Keeps a token of somebody the hub knows, and returns a code for one login; Unauthorized."""


@dataclass(frozen=True, slots=True)
class SignOnSettings:
    """Which issuer people log in at, and as which client of it."""

    issuer: str
    client_id: str
    client_secret_file: Path | None = None
    """Has what the issuer knows this client by; a public client has none, and PKCE alone."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    authority: bytes = b""


class _Way(msgspec.Struct):
    """What one login is known by when it comes back."""

    state: str
    nonce: str
    verifier: str
    until: float


class _Failed(ClusterspaceError):
    """A login that came to nothing; `reason` is a word that the page has a sentence for."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SignOn:
    """Sends browsers to an issuer and takes what they come back with."""

    def __init__(self, settings: SignOnSettings, clock: Clock, sealing_key: bytes = b"") -> None:
        """Several workers have one `sealing_key`: a browser may come back to another one."""
        self.name = urlsplit(settings.issuer).netloc
        """What people know the issuer by."""
        self._settings = settings
        self._clock = clock
        self._issuer = Issuer(settings.issuer, clock, settings.authority)
        self._box = SecretBox(sealing_key or secrets.token_bytes(SecretBox.KEY_SIZE))
        self._discovery = asyncio.Lock()
        self._asked_again_at = -math.inf
        self._discovered: dict[str, Any] | None = None

    async def answer(self, context: RequestContext, take: Take) -> Response:
        """Send a browser to the issuer, or with what it came back with to the page."""
        is_back = context.request.path == _DONE_PATH
        return await (self._finish(context, take) if is_back else self._begin(context))

    async def _begin(self, context: RequestContext) -> Response:
        way = _Way(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            self._clock.now() + _WAY_SECONDS,
        )
        challenge = hashlib.sha256(way.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": _back(context),
            "scope": " ".join(self._settings.scopes),
            "state": way.state,
            "nonce": way.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        try:
            address = await self._address("authorization_endpoint")
        except IssuerUnusable as error:
            _log.warning("nobody can log in at the issuer", issuer=self.name, reason=str(error))
            return _away(context, f"{PAGE}/#sign-on=failed")
        joint = "&" if urlsplit(address).query else "?"
        sealed = base64.urlsafe_b64encode(self._box.encrypt(msgspec.json.encode(way))).decode()
        return _away(context, f"{address}{joint}{urlencode(asked)}", sealed, _WAY_SECONDS)

    async def _finish(self, context: RequestContext, take: Take) -> Response:
        try:
            code = await take(await self._id_token(context))
        except _Failed as error:
            reason, why = error.reason, str(error)
        except Unauthorized:
            reason, why = "unknown", "the hub does not take the ID token"
        except ClusterspaceError as error:
            reason, why = "failed", str(error)
        else:
            return _away(context, f"{PAGE}/#code={quote(code)}")
        _log.info("a login at the issuer failed", issuer=self.name, reason=why)
        return _away(context, f"{PAGE}/#sign-on={reason}")

    async def _id_token(self, context: RequestContext) -> str:
        given = context.info.query
        way = self._way(find_cookie(context.request, _cookie_name(context)))
        if way is None or not hmac.compare_digest(way.state.encode(), given.get("state").encode()):
            raise _Failed("late", "it is older than ten minutes, or was begun in another browser")
        if not given.get("code"):
            code = given.get("error")
            said = code if _ERROR_CODE.fullmatch(code) else "neither a code nor an error"
            raise _Failed("denied" if code == "access_denied" else "failed", f"it said {said}")
        form = {
            "grant_type": "authorization_code",
            "code": given.get("code"),
            "redirect_uri": _back(context),
            "code_verifier": way.verifier,
            "client_id": self._settings.client_id,
        }
        where, headers = await self._address("token_endpoint"), list[tuple[str, str]]()
        if secret := self._client_secret():
            # In the header unless it names other ways only: that is what it has to know.
            if "client_secret_basic" in await self._authentications():
                pair = f"{quote(self._settings.client_id)}:{quote(secret)}".encode()
                headers.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
            else:
                form["client_secret"] = secret
        token = (await self._issuer.ask(where, form, tuple(headers))).get("id_token")
        try:
            claims = jwt.decode(str(token), options={"verify_signature": False})
        except jwt.PyJWTError as error:
            raise _Failed("failed", "it gave no ID token: is `openid` among the scopes?") from error
        # Whether it is signed, for us and still good says the hub, with every request. That it was
        # made for this login is known here alone.
        if not hmac.compare_digest(way.nonce.encode(), str(claims.get("nonce")).encode()):
            raise _Failed("failed", "it gave the ID token of another login")
        return str(token)

    def _way(self, sealed: str) -> _Way | None:
        try:
            opened = self._box.decrypt(base64.urlsafe_b64decode(sealed.encode()))
            way = msgspec.json.decode(opened, type=_Way)
        except (CryptoError, ValueError, TypeError):
            return None
        return way if self._clock.now() < way.until else None

    def _client_secret(self) -> str:
        file = self._settings.client_secret_file
        try:
            return "" if file is None else file.read_text().strip()
        except OSError as error:
            raise _Failed("failed", f"{file}: {error.strerror}") from error

    async def _discover(self) -> dict[str, Any]:
        """Return what the issuer says of itself, asked for every five minutes.

        Strangers have it asked: so one of them at a time, and for a while after it failed nobody.
        """
        async with self._discovery:
            now = self._clock.monotonic()
            if now < self._asked_again_at:
                if self._discovered is None:
                    raise IssuerUnusable("it could not be asked a moment ago")
                return self._discovered
            self._asked_again_at = now + _FAILED_SECONDS
            try:
                self._discovered = await self._issuer.discover()
            except IssuerUnusable:
                if self._discovered is None:
                    raise
                # What it said before is more than nothing: addresses seldom change.
                return self._discovered
            self._asked_again_at = now + _DISCOVERED_SECONDS
            return self._discovered

    async def _authentications(self) -> Any:
        named = (await self._discover()).get("token_endpoint_auth_methods_supported")
        return named or ("client_secret_basic",)

    async def _address(self, name: str) -> str:
        address = (await self._discover()).get(name)
        if not isinstance(address, str) or urlsplit(address).scheme != "https":
            raise IssuerUnusable(f"{self._issuer.url} names no https address as its {name}")
        return address


def _back(context: RequestContext) -> str:
    """Return where the issuer sends browsers back to: it has a list of what that may be."""
    return f"https://{context.header('host')}{_DONE_PATH}"


def _cookie_name(context: RequestContext) -> str:
    return f"{cookie_name(context.request)}-sign-on"


def _away(context: RequestContext, where: str, sealed: str = "", seconds: int = 0) -> Response:
    # Lax: the way back begins at another site, which a strict cookie would not come along from.
    scope = f"Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax"
    cookie = ("Set-Cookie", f"{_cookie_name(context)}={sealed}; {scope}")
    return Response(303, [("Location", where), ("Cache-Control", "no-store"), cookie])
