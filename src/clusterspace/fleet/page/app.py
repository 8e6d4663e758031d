"""The files of the page, and the paths below it at which sessions begin and end.

Below `/ui` are:

    GET    ...        a file
    POST   session    log in: a bearer token, a client certificate or a code, for a cookie
    GET    session    who is logged in, for how long, and whether they may change things
    PUT    session    {"readOnly": false} lets the session change things for a while
    DELETE session    log out
    POST   simulation policies, and objects beside them, as YAML, for what they would do
    POST   code       a code for one login within a minute; for `clusterspace ui`
    GET    logins     which other ways to log in there are
    GET    sign-on    log in at an issuer, where one is configured

Files are for everybody. They hold nothing but the page.
"""

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace import __version__
from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.bodies import read_yaml
from clusterspace.apiserver.http.context import (
    RequestContext,
    RequestHandler,
    headers_for,
    off_loop,
)
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.users import (
    UNAUTHENTICATED,
    CertificateLogin,
    User,
    find_login,
    read_impersonation,
)
from clusterspace.errors import BadRequest
from clusterspace.fleet.page.browsers import (
    CODE_PATH,
    PAGE,
    SESSION_PATH,
    SIMULATION_PATH,
    BrowserLogins,
    BrowserRules,
    Logins,
    cookie_name,
    find_code,
    find_secret,
    is_page_path,
)
from clusterspace.fleet.page.sessions import (
    CODE_SECONDS,
    SESSION_SECONDS,
    Credential,
    Session,
    Sessions,
)
from clusterspace.fleet.page.sign_on import SIGN_ON_PATHS, SignOn, SignOnSettings
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing but our own files, and no text that becomes markup: the page builds nodes."""
GUARDS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
_BODY_LIMIT: Final = 1024
_SIMULATION_LIMIT: Final = 256 * 1024
_BETWEEN_DOCUMENTS: Final = re.compile(rb"^---[ \t]*$", re.MULTILINE)
_INDEX: Final = "index.html"
Simulate: TypeAlias = Callable[[User, Sequence[Object]], Awaitable[list[Any]]]
"""Says what would become of workloads if objects were applied by a user."""
Claim: TypeAlias = Callable[[str], Awaitable[bool]]
"""Says whether nobody has come with this code before, by way of whichever worker."""
_LOGINS_PATH: Final = f"{PAGE}/logins"


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is sent, compressed once."""

    content_type: str
    tag: str
    plain: bytes
    zipped: bytes

    def answer(self, context: RequestContext) -> Response:
        """Return the file, or that the browser has it already."""
        headers = [
            *GUARDS,
            ("Cache-Control", "no-cache"),
            ("ETag", self.tag),
            ("Vary", "Accept-Encoding"),
        ]
        if self.tag in context.header("if-none-match"):
            return Response(304, headers)
        headers.append(("Content-Type", self.content_type))
        if "gzip" not in context.header("accept-encoding"):
            return Response(200, headers, self.plain)
        return Response(200, [*headers, ("Content-Encoding", "gzip")], self.zipped)


def read_files() -> dict[str, _File]:
    """Read the files of the page, by their names."""
    found: dict[str, _File] = {}
    for each in files("clusterspace.fleet.page").joinpath("static").iterdir():
        content_type = _TYPES.get(each.name.rpartition(".")[2])
        if content_type is None:
            continue
        plain = each.read_bytes()
        tag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
        found[each.name] = _File(content_type, tag, plain, gzip.compress(plain, 9, mtime=0))
    return found


class PageApp:
    """Answers what is asked below `/ui`, and has everything else answered as for kubectl."""

    def __init__(  # noqa: PLR0913 - what answers come from
        self,
        api: RequestHandler,
        sessions: Sessions,
        codes: Sessions,
        logins: Logins,
        sign_on: SignOn | None,
        on_close: Callable[[], None],
        simulate: Simulate,
        claim: Claim,
    ) -> None:
        self._api = api
        self._simulate = simulate
        self._claim = claim
        self._sessions = sessions
        self._codes = codes
        self._logins = logins
        self._sign_on = sign_on
        self._on_close = on_close
        """Told when a session has ended that may have streams."""
        self._files = read_files()

    async def __call__(self, context: RequestContext) -> Response | None:
        """Answer a request of a browser."""
        request = context.request
        if not is_page_path(request.path):
            return await self._api(context)
        if request.path == SESSION_PATH:
            return await self._answer_session(context)
        if request.path == CODE_PATH:
            if request.method != "POST":
                raise statuses.method_not_allowed()
            code = self._codes.open(context.user.name, _credential_of(context))
            return _json(context, {"code": code})
        if request.path == SIMULATION_PATH:
            return await self._answer_simulation(context)
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        if request.path == _LOGINS_PATH:
            return _json(context, {"signOn": self._sign_on.name if self._sign_on else None})
        if self._sign_on is not None and request.path in SIGN_ON_PATHS:
            sent = await self._sign_on.answer(context, self._keep)
            return Response(sent.status, [*sent.headers, *GUARDS])
        if request.path == PAGE:
            return Response(308, [*GUARDS, ("Location", f"{PAGE}/")])
        file = self._files.get(request.path.removeprefix(f"{PAGE}/") or _INDEX)
        if file is None:
            raise statuses.unknown_path()
        return file.answer(context)

    async def _keep(self, token: str) -> str:
        user = await self._logins.by_token(token)
        return self._codes.open(user.name, Credential(token))

    async def _answer_session(self, context: RequestContext) -> Response:
        request, sessions = context.request, self._sessions
        if request.method == "POST":
            if code := find_code(request):
                # Only one of two who come with the same code at once is told that it was there.
                kept = self._codes.find(code)
                is_first = kept is not None and self._codes.close(code)
                if kept is None or not is_first or not await self._claim(code):
                    raise statuses.unauthorized()
                credential = self._codes.credential_of(kept, code)
            else:
                credential = _credential_of(context)
            secret = sessions.open(context.user.name, credential)
            context.answer_headers = [_cookie(context, secret, int(SESSION_SECONDS))]
            return _json(context, self._describe(context, sessions.find(secret)))
        secret = find_secret(request)
        session = sessions.find(secret) if secret else None
        if session is None:
            # Who has a token or a certificate is told who they are, and has no session to change.
            if request.method == "GET" and UNAUTHENTICATED not in context.user.groups:
                return _json(context, self._describe(context, None))
            raise statuses.unauthorized()
        if request.method == "DELETE":
            sessions.close(secret)
            self._on_close()
            context.answer_headers = [_cookie(context, "", 0)]
            return _json(context, {})
        if request.method == "PUT":
            raw = await request.read_body(_BODY_LIMIT)
            try:
                asked = msgspec.json.decode(raw, type=_Asked)
            except msgspec.DecodeError as error:
                raise BadRequest('send {"readOnly": true} or {"readOnly": false}') from error
            sessions.allow_writes(secret, session, allowed=not asked.readOnly)
            self._on_close()  # a shell that was opened before is looked at again
        elif request.method != "GET":
            raise statuses.method_not_allowed()
        return _json(context, self._describe(context, session))

    async def _answer_simulation(self, context: RequestContext) -> Response:
        if context.request.method != "POST":
            raise statuses.method_not_allowed()
        if UNAUTHENTICATED in context.user.groups:
            raise statuses.unauthorized()
        raw = await context.request.read_body(_SIMULATION_LIMIT)

        def read() -> list[Object]:
            bodies = [read_yaml(each).value for each in _BETWEEN_DOCUMENTS.split(raw)]
            objects = [each for each in bodies if each is not None]
            if not all(isinstance(each, dict) for each in objects):
                raise BadRequest("send objects as YAML, with `---` between them")
            return cast("list[Object]", objects)

        objects = await off_loop(context.user.name, read)
        return _json(context, {"previews": await self._simulate(context.user, objects)})

    def _describe(self, context: RequestContext, session: Session | None) -> dict[str, Any]:
        return {
            "user": context.user.name,
            "groups": list(context.user.groups),
            "readOnly": session is not None and not self._sessions.may_write(session),
            "secondsLeft": None if session is None else int(self._sessions.seconds_left(session)),
            "writeSecondsLeft": 0 if session is None else int(self._sessions.writes_for(session)),
            "version": __version__,
        }


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    readOnly: bool  # noqa: N815 - as it is written in JSON


def _credential_of(context: RequestContext) -> Credential:
    """Return what a request has shown, which the chain has found to be good; 401 if nothing."""
    if UNAUTHENTICATED in context.user.groups:
        raise statuses.unauthorized()
    if read_impersonation(context.received) is not None:
        raise BadRequest("a session is its user's own: log in without impersonation headers")
    login = find_login(context.request)
    if login is not None:
        return Credential(certificate=login)
    return Credential(context.header("authorization").strip().partition(" ")[2].strip())


def _cookie(context: RequestContext, secret: str, seconds: int) -> tuple[str, str]:
    name = cookie_name(context.request)
    scope = f"Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"
    return "Set-Cookie", f"{name}={secret}; {scope}"


def _json(context: RequestContext, value: object) -> Response:
    headers = [*headers_for(context, "application/json"), *GUARDS]
    stored = [(name, text) for name, text in headers if name != "Cache-Control"]
    return Response(200, [*stored, ("Cache-Control", "no-store")], msgspec.json.encode(value))


class Page:
    """The page of one server: its sessions, and the steps that know of them."""

    def __init__(
        self, clock: Clock, sign_on: SignOnSettings | None = None, sealing_key: bytes = b""
    ) -> None:
        self._clock = clock
        self._sign_on = None if sign_on is None else SignOn(sign_on, clock, sealing_key)
        self.sessions = Sessions(clock)
        self.codes = Sessions(clock, seconds=CODE_SECONDS, idle_seconds=CODE_SECONDS)
        self.rules = BrowserRules(self.sessions)

    def logins(self, logins: Logins, check: Callable[[CertificateLogin], None]) -> BrowserLogins:
        """Return who finds out who asks, by session or as `logins` does."""
        return BrowserLogins(logins, self.sessions, self.codes, check, self._clock)

    def app(
        self,
        api: RequestHandler,
        logins: Logins,
        on_close: Callable[[], None],
        simulate: Simulate,
        claim: Claim,
    ) -> PageApp:
        """Return what answers requests of browsers, those for the API by way of `api`."""
        self.sessions.on_less = on_close
        sessions, codes, sign_on = self.sessions, self.codes, self._sign_on
        return PageApp(api, sessions, codes, logins, sign_on, on_close, simulate, claim)
