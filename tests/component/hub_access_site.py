"""A hub in this process with access wired in, that remembers what was authorized and touched."""

import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from tests.component.audit_lines import flat
from tests.component.serving.wire import Answer, RawClient, Running, running

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.crds import definitions
from clusterspace.apiserver.access.authorizer import Access, build_access
from clusterspace.apiserver.access.default_roles import install_default_roles
from clusterspace.apiserver.access.reviews import Reviews
from clusterspace.apiserver.admission.builtin_kinds import NamespaceLifecycle
from clusterspace.apiserver.admission.plugins import access_plugins
from clusterspace.apiserver.app import HubApp, RequireScope
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.http.audit_events import Audit
from clusterspace.apiserver.http.audit_policy import default_policy
from clusterspace.apiserver.http.chain import catch_errors, chain, deadlines
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.guards import Authenticate, Authorize, Decision, Impersonate
from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.apiserver.http.responses import error_response
from clusterspace.apiserver.http.users import ANONYMOUS, User
from clusterspace.apiserver.identity.bearer_tokens import StaticTokens
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.writing import create_own
from clusterspace.errors import ApiError
from clusterspace.kube import statuses

ADMIN = "admin-token"
AGENTS = "system:karmada:agents"
TOKENS = f"""
{ADMIN},admin,admin-uid,"system:masters"
viewer-token,viewer,viewer-uid,"viewers"
editor-token,editor,editor-uid,"editors"
agent-west,system:karmada:agent:west,,"{AGENTS}"
agent-east,system:karmada:agent:east,,"{AGENTS}"
"""
NAMESPACES = (
    "default",
    "kube-public",
    "kube-system",
    "shop",
    "karmada-cluster",
    "karmada-es-west",
    "karmada-es-east",
)


class WitnessStore(MemoryStore):
    """Remembers every key that was read or written, and every prefix that was ranged over."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    async def get(self, key: str, **options: Any) -> Any:
        self.touched.append(key)
        return await super().get(key, **options)

    async def put(self, key: str, value: bytes, **options: Any) -> Any:
        self.touched.append(key)
        return await super().put(key, value, **options)

    async def delete(self, key: str, **options: Any) -> Any:
        self.touched.append(key)
        return await super().delete(key, **options)

    async def range(self, prefix: str, **options: Any) -> Any:
        self.touched.append(prefix)
        return await super().range(prefix, **options)

    def subscribe(self, prefix: str, **options: Any) -> Any:
        self.touched.append(prefix)
        return super().subscribe(prefix, **options)


@dataclass
class Witness:
    """What the last calls were authorized as, by whom, and what their handler was given."""

    authorized: list[tuple[User, RequestInfo]] = field(default_factory=list)
    handled: list[RequestContext] = field(default_factory=list)
    audited: list[dict[str, Any]] = field(default_factory=list)

    def clear(self) -> None:
        self.authorized.clear()
        self.handled.clear()
        self.audited.clear()

    def hear(self, event: dict[str, Any]) -> None:
        self.audited.append(flat(event))


class TokensOnly:
    """Knows the users of the token table; without a token it is nobody."""

    def __init__(self, tokens: StaticTokens) -> None:
        self._tokens = tokens

    async def authenticate(self, request: Request) -> User:
        header = request.headers.get("authorization")
        if not header:
            return ANONYMOUS
        user = self._tokens.find(header.removeprefix("Bearer "))
        if user is None:
            raise statuses.unauthorized()
        return user


class WitnessedAuthorizer:
    """Decides as the hub does, and tells what it was asked."""

    def __init__(self, access: Access, witness: Witness) -> None:
        self._access = access
        self._witness = witness

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        self._witness.authorized.append((user, info))
        return await self._access.authorizer.decide(user, info)


@dataclass
class HubSite:
    """A hub behind a plain socket."""

    state: HubState
    store: MemoryStore
    access: Access
    witness: Witness
    server: Running
    _client: RawClient | None = None

    @property
    def touched(self) -> list[str]:
        """The keys and prefixes that the last call touched."""
        return self.store.touched if isinstance(self.store, WitnessStore) else []

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = ADMIN,
        headers: tuple[str, ...] = (),
        content_type: str = "application/json",
    ) -> Answer:
        """Ask once over a connection that is kept; what the last call left behind is forgotten."""
        raw = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: hub", *headers]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if raw:
            lines += [f"Content-Type: {content_type}", f"Content-Length: {len(raw)}"]
        return await self.send("\r\n".join([*lines, "", ""]).encode() + raw)

    async def send(self, raw: bytes) -> Answer:
        """Send exactly these bytes; a connection that the hub has closed is opened anew."""
        self.witness.clear()
        self.touched.clear()
        if self._client is None or self._client.reader.at_eof():
            self._client = await self.server.client()
        await self._client.send(raw)
        status, headers = await self._client.head()
        if headers.get("transfer-encoding") == "chunked":
            # A watch goes on for ever; that it began is all there is to know.
            self._hang_up()
            return Answer(status, headers, b"")
        body = await self._client.reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self._hang_up()
        return Answer(status, headers, body)

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@asynccontextmanager
async def hub_site(
    *, is_guarded: bool = True, is_watched: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[HubSite]:
    """Run a hub with default roles, our own kinds and a few namespaces."""
    store = WitnessStore() if is_watched else MemoryStore()
    access = build_access(store)
    state = HubState(
        store=store,
        catalog=Catalog(builtin_resources()),
        feeds=Feeds(store),
        clock=SystemClock(),
        random=Random(1),
        new_uid=lambda: str(uuid4()),
        plugins=(*access_plugins(access), NamespaceLifecycle()),
    )
    await _prepare(state, access)
    witness = Witness()
    handler = build_handler(state, access, witness, is_guarded=is_guarded, is_watched=is_watched)
    async with running(handler, tls=tls) as server:
        yield HubSite(state, store, access, witness, server)
        state.feeds.end_all()
    await store.close()


async def _prepare(state: HubState, access: Access) -> None:
    served = state.catalog.get_storage("", "namespaces")
    for name in NAMESPACES:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await create_own(state, served, namespace, "test")
    controller = CustomResourceController(state)
    await controller.install(definitions())
    await controller.load()
    await install_default_roles(state)
    await access.role_cache.load()


def build_handler(
    state: HubState, access: Access, witness: Witness, *, is_guarded: bool, is_watched: bool
) -> Handler:
    app = HubApp(state, Reviews(access.authorizer).verbs())
    authorizer = WitnessedAuthorizer(access, witness) if is_watched else access.authorizer
    guards = (
        Authenticate(TokensOnly(StaticTokens.parse(TOKENS))),
        Audit(state.clock, witness.hear, default_policy()),
        Impersonate(authorizer),
        RequireScope(state.catalog, authorizer),
        Authorize(authorizer),
    )
    steps = (catch_errors, deadlines, *(guards if is_guarded else ()))

    async def handled(context: RequestContext) -> Response | None:
        if is_watched:
            witness.handled.append(context)
        return await app(context)

    answer = chain(steps, handled)

    async def handle(request: Request) -> Response | None:
        try:
            info = read_request(request.method, request.path, request.query)
        except ApiError as error:
            unread = RequestInfo(method=request.method, path="", verb="")
            return error_response(RequestContext(request, unread, "test"), error)
        return await answer(RequestContext(request, info, "test"))

    return handle
