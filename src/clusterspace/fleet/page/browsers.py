"""Requests of browsers: which they are, what they may, and whose session they come with.

A browser sends what it has without being asked, wherever the page is from that asks for it. So:

    a cookie, or a client certificate   counts for requests of our own page only, as the browser
                                        says in Sec-Fetch-Site or Origin; WebSockets alike
    an answer of the API                is for scripts to read, and never a document, a script or a
                                        picture: a member may put into it whatever it likes
    a session                           reads, until its user asks to change things

A request with an Authorization header needs none of this: no page of others can have it sent.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.apis.identities import AGENTS
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.apiserver.http.request_info import CONNECTS, RequestInfo
from clusterspace.apiserver.http.users import CertificateLogin, User
from clusterspace.errors import Forbidden
from clusterspace.fleet.page.sessions import Credential, Sessions
from clusterspace.kube import statuses

PAGE: Final = "/ui"
SESSION_PATH: Final = f"{PAGE}/session"
CODE_PATH: Final = f"{PAGE}/code"
SEVERAL_PATH: Final = f"{PAGE}/several"
SIMULATION_PATH: Final = f"{PAGE}/simulation"
CODE_SCHEME: Final = "Clusterspace-Code"
"""The scheme of an Authorization header that has a one-time code, at `SESSION_PATH` alone."""

_OF_SOMEBODY: Final = frozenset({SESSION_PATH, CODE_PATH, SIMULATION_PATH})
"""What is answered to whoever asks; all else below the page are files, which are for everybody."""
_HTTPS_PORT: Final = "443"
_READABLE: Final = frozenset({"", "empty", "websocket"})
"""What a browser wants an answer for (Sec-Fetch-Dest) when nothing but a script gets it."""
_MARKS: Final = ("cookie", "origin", "sec-fetch-site", "sec-fetch-dest")
_QUESTIONS: Final = frozenset({"authorization.k8s.io", "authentication.k8s.io"})


Several: TypeAlias = Callable[[Request, Handler], Awaitable[Response | None]]


def is_page_path(path: str) -> bool:
    """Whether a path, as it was sent, is the page's."""
    return path == PAGE or path.startswith(f"{PAGE}/")


def entrance(plain: Handler, browser: Handler, several: Several) -> Handler:
    """Return a handler that sends what a browser asks, and the page itself, another way.

    What neither looks like a browser's nor is for the page goes the way it always went. `several`
    has `browser` answer every one of several paths.
    """

    async def handle(request: Request) -> Response | None:
        if request.path == SEVERAL_PATH:
            return await several(request, browser)
        for name, _ in request.headers.pairs:
            if name in _MARKS:
                return await browser(request)
        return await (browser if is_page_path(request.path) else plain)(request)

    return handle


def cookie_name(request: Request) -> str:
    """Return what the session's cookie is called.

    Browsers keep cookies by host and not by port: the name has the port, so that two servers on one
    machine do not end each other's sessions. The prefix has browsers refuse one that another host
    or a page without TLS would set.
    """
    port = (request.headers.get("host") or "").rpartition("]")[2].rpartition(":")[2]
    return f"__Host-clusterspace-{port if port.isdecimal() else _HTTPS_PORT}"


def find_secret(request: Request) -> str:
    """Return the secret in a request's cookie, empty if there is none.

    With an Authorization header that one counts. Where sessions and codes begin it takes a
    credential: no session makes another.
    """
    begins = request.method == "POST" and request.path in (SESSION_PATH, CODE_PATH)
    if begins or "authorization" in request.headers:
        return ""
    return find_cookie(request, cookie_name(request))


def find_cookie(request: Request, name: str) -> str:
    """Return what a request has in a cookie, empty if there is none."""
    for header in request.headers.get_all("cookie"):
        for pair in header.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
    return ""


def is_read(info: RequestInfo) -> bool:
    """Whether a request changes nothing anywhere; asking what one may oneself does not, either."""
    if info.subresource in CONNECTS:
        return False
    is_question = info.group in _QUESTIONS and info.resource.startswith("selfsubject")
    return not info.is_write or (info.verb == "create" and is_question and not info.subresource)


class BrowserRules:
    """The step before all others that refuses what a browser must not be made to ask."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Go on with what our own page asks, or somebody with a token; 403 for the rest."""
        request = context.request
        is_page = is_page_path(request.path)
        if not is_page and context.header("sec-fetch-dest") not in _READABLE:
            raise Forbidden(
                f"the API is not shown in a browser: open {PAGE}/ instead, or use kubectl"
            )
        is_file = is_page and request.path not in _OF_SOMEBODY
        if is_file or "authorization" in request.headers:
            return await rest(context)
        secret = find_secret(request)
        is_browser = context.header("sec-fetch-site") or context.header("origin")
        if secret or (is_browser and (is_page or request.peer_certificate is not None)):
            _require_own_page(context)
        if secret and not is_page:
            is_reading = is_read(context.info) and not request.is_upgrade
            if not is_reading:
                await self._require_writes(secret)
                # A shell that is open ends with the leave to change things.
                context.guards.append(partial(self._require_writes, secret))
        return await rest(context)

    async def _require_writes(self, secret: str) -> None:
        session = self._sessions.find(secret)
        if session is not None and not self._sessions.may_write(session):
            raise Forbidden(
                "this session of the page is read-only: "
                "allow changes in the page first, or use kubectl"
            )


def _require_own_page(context: RequestContext) -> None:
    """Refuse a request that another site's page, or nobody's, has had sent; 403."""
    site, origin = context.header("sec-fetch-site"), context.header("origin")
    own = f"https://{context.header('host')}"
    is_own = origin.lower() == own.lower()
    # Browsers say where a request is from in one of the two. What says neither came from none of
    # their pages, and whoever writes requests by hand has a token.
    if (site and site != "same-origin") or (origin and not is_own) or not (site or origin):
        raise Forbidden("sessions of the page count for requests of the page itself only")


class Logins(Protocol):
    """Finds out who is asking, by what the request shows or by a token alone."""

    async def authenticate(self, request: Request) -> User:
        """Return the user, anonymous without credentials; Unauthorized when they are wrong."""
        ...

    async def by_token(self, token: str) -> User:
        """Return whose a bearer token is; Unauthorized when it is nobody's."""
        ...


class BrowserLogins:
    """Finds out who asks by session, by one-time code, or as everywhere.

    A session's credential is asked about with every request, as if it came with the request.
    """

    def __init__(
        self,
        logins: Logins,
        sessions: Sessions,
        codes: Sessions,
        check: Callable[[CertificateLogin], None],
        clock: Clock,
    ) -> None:
        self._logins = logins
        self._sessions = sessions
        self._codes = codes
        self._check = check
        self._clock = clock

    async def authenticate(self, request: Request) -> User:
        """Return who asks; a session or code that is given and ended is refused."""
        if is_page_path(request.path) and request.path not in _OF_SOMEBODY:
            return await self._logins.authenticate(request)  # files are for everybody
        if code := find_code(request):
            return await self._user_of(self._codes, code)
        if secret := find_secret(request):
            return await self._user_of(self._sessions, secret)
        return await self._logins.authenticate(request)

    async def _user_of(self, kept: Sessions, secret: str) -> User:
        session = kept.find(secret)
        if session is None:
            raise statuses.unauthorized()
        user = await self._by_credential(kept.credential_of(session, secret))
        if user.name != session.user or AGENTS in user.groups:
            raise statuses.unauthorized()
        return user

    async def _by_credential(self, credential: Credential) -> User:
        if credential.certificate is None:
            return await self._logins.by_token(credential.token)
        if self._clock.now() >= credential.certificate.ends:
            raise statuses.unauthorized()
        self._check(credential.certificate)
        return credential.certificate.user


def find_code(request: Request) -> str:
    """Return the one-time code that a request logs in with; empty if it does not."""
    if request.method != "POST" or request.path != SESSION_PATH:
        return ""
    scheme, _, code = (request.headers.get("authorization") or "").strip().partition(" ")
    return code.strip() if scheme.lower() == CODE_SCHEME.lower() else ""
