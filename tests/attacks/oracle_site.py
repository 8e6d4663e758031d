"""A hub, members and a gateway of the product's own parts, asked without a network in front.

Every request goes through the whole chain of its server, as it would from a socket. What it changed
is read from the log of the store and taken back, so that every case finds the same world. Nothing
goes on in the background: whatever changes was changed by the request.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.attacks import oracle
from tests.attacks.oracle import Change, Place
from tests.component.audit_lines import flat

from clusterspace.aio.clocks import SystemClock
from clusterspace.aio.tasks import Supervisor, keep_all, report
from clusterspace.apiserver.access.authorizer import build_access
from clusterspace.apiserver.access.reviews import Reviews
from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.apiserver.http.audit_events import failed_login_events
from clusterspace.apiserver.http.audit_policy import default_policy
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.guards import FailedLogins
from clusterspace.apiserver.http.listener import HttpServer, server_context
from clusterspace.apiserver.http.messages import (
    Handler,
    HeaderPairs,
    Headers,
    Hijacked,
    IncomingBody,
    Request,
    RequestHead,
    Response,
    Stream,
)
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.identity.authentication import Authentication, Keys
from clusterspace.apiserver.identity.bearer_tokens import StaticTokens
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Event
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.verbs.proxy import ClusterProxy
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK, AddressRules
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.errors import StoreError
from clusterspace.fleet.gateway.answers.documents import Documents
from clusterspace.fleet.gateway.app import FleetApp
from clusterspace.fleet.gateway.callers import FleetAuthenticator
from clusterspace.fleet.gateway.clusters import Directory
from clusterspace.fleet.membership.connections import user_settings
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.audit_logs import Auditing
from clusterspace.roots.chains import fleet_handler, hub_handler
from clusterspace.roots.clients import LIMITS, open_connections
from clusterspace.roots.fleet import build_fleet
from clusterspace.roots.hub_state import bootstrap, build_state
from clusterspace.roots.installation import Installation
from clusterspace.roots.membership import join_cluster
from clusterspace.roots.settings import FleetSettings

CLOCK = SystemClock()
RULES = AddressRules(LOOPBACK)
MASTERS_TRAVEL = MemberIdentities(passes_masters=True)
QUIET_TURNS = 6
"""Turns of the loop in which a stream that says nothing has said what it had."""
PATIENCE = 30.0
_CANARY = re.compile(rb"canary-[a-z]+-[0-9]+-")


# -- a request without a socket ------------------------------------------------------------------


@dataclass
class Shown:
    """An answer: its status, and every byte of it."""

    status: int
    body: bytes


class _Wire:
    """The outgoing half of a connection to nobody, who keeps what is said."""

    is_connected = True
    buffered = 0

    def __init__(self) -> None:
        self.said = bytearray()

    def write(self, data: bytes) -> None:
        self.said += data

    async def drain(self) -> None:
        await asyncio.sleep(0)

    async def flush(self) -> None:
        await asyncio.sleep(0)

    def be_patient(self) -> None: ...

    def half_close(self) -> None: ...

    def abort(self) -> None: ...

    async def wait_disconnected(self) -> None:
        await asyncio.get_running_loop().create_future()


class _Connection:
    """An Exchange whose peer is a test."""

    peer_address = "127.0.0.1"
    peer_certificate = None
    is_connected = True

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.wire = _Wire()
        self.status = 0
        self.has_begun = asyncio.Event()

    async def wait_disconnected(self) -> None:
        await self.wire.wait_disconnected()

    def trust(self) -> None: ...

    def cancel(self) -> None: ...

    async def next_slice(self, owner: str) -> None: ...

    def want_body(self) -> None: ...

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        del headers
        self.status = status
        self.has_begun.set()
        return Stream(self.wire, has_body=True)

    def hijack(self, *, is_patient: bool = True) -> Hijacked:
        self.status = 101
        self.has_begun.set()
        return Hijacked(self.wire, asyncio.StreamReader())


@dataclass(frozen=True)
class Case:
    """One request that somebody makes."""

    user: str
    """Whose token it carries; empty for nobody's."""
    method: str
    target: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def is_upgrade(self) -> bool:
        return any(name == "upgrade" for name, _ in self.headers)

    def __str__(self) -> str:
        said = " ".join(f"{name}: {value}" for name, value in self.headers)
        return f"{self.user or 'nobody'}: {self.method} {self.target} [{said}] {self.body[:400]!r}"

    def pairs(self) -> list[tuple[str, str]]:
        """Return all headers, those that say who asks among them."""
        pairs = list(self.headers)
        if self.user:
            pairs.append(("authorization", f"Bearer {self.user}-token"))
        if self.body and not any(name == "content-type" for name, _ in pairs):
            pairs.append(("content-type", "application/json"))
        return pairs

    def request(self, connection: _Connection) -> Request:
        head = RequestHead(
            method=self.method,
            target=self.target.encode(),
            version="1.1",
            headers=Headers(self.pairs()),
            content_length=len(self.body),
            expects_continue=False,
            is_upgrade=self.is_upgrade,
            keeps_alive=True,
        )
        body = IncomingBody(is_complete=not self.body)
        if self.body:
            body.add([self.body], is_complete=True)
        return Request(head, body, connection)


@asynccontextmanager
async def within(seconds: float, case: Case) -> AsyncGenerator[None]:
    """Give up on a case that takes too long, and say which it is."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise AssertionError(f"no answer within {seconds} s: {case}") from error


async def ask(handler: Handler, case: Case, *, pause: float = 0) -> Shown:
    """Have a request answered; of an answer without an end, return its beginning.

    The beginning is over when nothing came for some turns of the loop, each `pause` seconds long.
    """
    connection = _Connection()
    answering = asyncio.ensure_future(handler(case.request(connection)))
    begun = asyncio.ensure_future(connection.has_begun.wait())
    try:
        async with within(PATIENCE, case):
            await asyncio.wait((answering, begun), return_when=asyncio.FIRST_COMPLETED)
            turns, heard = 0, -1
            while not answering.done() and turns < QUIET_TURNS:
                turns = turns + 1 if heard == len(connection.wire.said) else 0
                heard = len(connection.wire.said)
                await asyncio.sleep(pause)
        if not answering.done():
            return Shown(connection.status, bytes(connection.wire.said))
        response = answering.result()
    finally:
        begun.cancel()
        if not answering.done():
            answering.cancel()
            await asyncio.wait((answering,))
    if response is None:
        return Shown(connection.status, bytes(connection.wire.said))
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    headers = json.dumps([list(pair) for pair in response.headers]).encode()
    return Shown(response.status, body + headers)


# -- servers -------------------------------------------------------------------------------------


async def ask_by_wire(server: "Server", case: Case) -> Shown:
    """Have a request answered over TLS, on a connection of its own."""
    place = urlsplit(server.settings.server)
    trust = ssl.create_default_context(cadata=server.authority)
    lines = [
        f"{case.method} {case.target} HTTP/1.1",
        "host: hub",
        *(f"{name}: {value}" for name, value in case.pairs()),
        f"content-length: {len(case.body)}",
    ]
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=trust)
    try:
        async with within(PATIENCE, case):
            writer.write("\r\n".join([*lines, "", ""]).encode() + case.body)
            head = await reader.readuntil(b"\r\n\r\n")
            said = head.decode().lower()
            if "content-length: " in said and case.method != "HEAD":
                length = int(said.partition("content-length: ")[2].split("\r\n")[0])
                body = await reader.readexactly(length)
            else:
                body = b"" if case.method == "HEAD" else await reader.read(65_536)
    finally:
        writer.close()
    return Shown(int(head.split()[1]), body + head)


def place_of(key: str) -> Place:
    """Read the key of a stored object: /registry/GROUP/RESOURCE[/NAMESPACE]/NAME."""
    group, resource, *inside = key.removeprefix("/registry/").split("/")
    namespace, name = inside if len(inside) == 2 else ("", inside[0])
    return Place("" if group == "core" else group, resource, namespace, name)


@dataclass(frozen=True)
class Heard:
    """A request that got past authorization."""

    user: str
    method: str
    target: str
    groups: tuple[str, ...]


@dataclass
class Server:
    """One API server: its chain, its store, what reached it and what that changed."""

    name: str
    state: HubState
    store: MemoryStore
    handler: Handler
    settings: ConnectionSettings
    authority: str
    """The certificate that its own is signed by."""
    model: oracle.Cluster
    witness: "_Witness"
    events: list[Event] = field(default_factory=list[Event])
    is_undoing: bool = False
    canaries: dict[bytes, Place] = field(default_factory=dict[bytes, Place])
    credentials: dict[bytes, Place] = field(default_factory=dict[bytes, Place])
    """The UIDs of the hub's own Secrets, which are canaries by nature."""

    def canaries_in(self, said: bytes) -> list[Place]:
        """Return the objects of which something is said."""
        marked = {self.canaries.get(each) for each in _CANARY.findall(said)}
        leaked = {place for uid, place in self.credentials.items() if uid in said}
        return [place for place in marked | leaked if place is not None]

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take what changed, as a Sink of the store."""
        if not self.is_undoing:
            self.events += events

    def end(self, reason: StoreError) -> None:
        """Nothing more will come."""

    def forget(self) -> None:
        self.events.clear()
        self.witness.heard.clear()

    def changes(self) -> list[Change]:
        """Return what was changed since, each object once."""
        first: dict[str, Event] = {}
        last: dict[str, Event] = {}
        for event in self.events:
            first.setdefault(event.key, event)
            last[event.key] = event
        found: list[Change] = []
        for key, event in last.items():
            held = first[key].previous
            before = None if held is None else json.loads(held.value)
            after = None if event.is_delete else json.loads(event.value)
            found.append(Change(place_of(key), before, after))
        return found

    async def undo(self) -> None:
        """Put everything back as it was."""
        self.is_undoing = True
        for event in reversed(self.events):
            if event.previous is not None:
                await self.store.put(event.key, event.previous.value)
            else:
                held = await self.store.get(event.key)
                if held is not None:
                    await self.store.delete(event.key, expected=held.mod_revision)
        self.is_undoing = False
        self.forget()

    async def make(self, path: str, kube_object: dict[str, Any], *, is_marked: bool = True) -> None:
        """Create an object as the administrator, with a canary that says which one it is."""
        canary = f"canary-{self.name}-{len(self.canaries)}-".encode()
        metadata = dict(kube_object["metadata"])
        if is_marked:
            metadata["annotations"] = {**metadata.get("annotations", {}), "c": canary.decode()}
        body = json.dumps({**kube_object, "metadata": metadata}).encode()
        made = await ask(self.handler, Case("root", "POST", path, body))
        if made.status != 201:
            raise AssertionError(f"{path}: {made.status} {made.body[:500]!r}")
        if is_marked:
            reading = oracle.read("POST", path)
            self.canaries[canary] = Place(
                reading.place.group,
                reading.place.resource,
                reading.place.namespace,
                metadata["name"],
            )


class _Witness:
    """Stands before the app: whatever comes here was let in."""

    def __init__(self, app: RequestHandler) -> None:
        self._app = app
        self.heard: list[Heard] = []

    async def __call__(self, context: RequestContext) -> Response | None:
        request, user = context.request, context.user
        target = request.path + (f"?{request.query}" if request.query else "")
        self.heard.append(Heard(user.name, request.method, target, user.groups))
        return await self._app(context)


async def start_server(
    stack: AsyncExitStack, busy: AsyncExitStack, directory: Path, world: "World"
) -> Server:
    """Start an API server with everything a hub has; its background ends with `busy`."""
    name = directory.name
    installation = Installation(directory)
    authorities = installation.prepare(CLOCK.now(), ("127.0.0.1",))
    store = MemoryStore()
    access = build_access(store)
    state = build_state(store, CLOCK, access, RULES)
    controller = CustomResourceController(state)
    await bootstrap(state, access, controller)
    keys = Keys(authorities, installation.token_keys())
    identity = Authentication(state, keys, StaticTokens.parse(world.tokens))
    tunnels = AgentTunnels("oracle", CLOCK)
    members = open_connections(CLOCK, tunnels)
    stack.push_async_callback(members.close)
    proxy = ClusterProxy(members, partial(user_settings, RULES), MASTERS_TRAVEL, tunnels)
    authorizer = access.authorizer
    reviews = Reviews(authorizer).verbs()
    app = HubApp(state, {**reviews, **identity.verbs(authorizer), **proxy.verbs()})
    app.health.is_ready = True
    witness = _Witness(app)
    failed_logins = FailedLogins(CLOCK, lambda line: None, lambda *_: None)
    stack.callback(failed_logins.close)
    handler = hub_handler(
        witness,
        state.catalog,
        identity.authenticator(),
        access.authorizer,
        Auditing(lambda line: None, failed_logins),
        CLOCK,
    )
    authorities = (installation.authority_file,)
    tls = server_context(*installation.server_files, client_authorities=authorities)
    http = HttpServer(handler, tls=tls)
    await http.listen("127.0.0.1", 0)
    stack.push_async_callback(http.drain, 0.1, end_streams=state.feeds.end_all)
    url = f"https://127.0.0.1:{http.addresses[0][1]}"
    trusted = installation.authority_file.read_bytes()
    settings = ConnectionSettings(name, url, Trust(Pem(trusted)), AuthInfo(token="root-token"))
    model = oracle.Cluster(())
    server = Server(name, state, store, handler, settings, trusted.decode(), model, witness)
    for kind in world.kinds:
        await server.make(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind, is_marked=False
        )
    await controller.load()
    served = (each.info for each in state.catalog.all())
    server.model.served = frozenset((each.group, each.version, each.plural) for each in served)
    background = await busy.enter_async_context(Supervisor(CLOCK, report))
    keep_all(background, identity.tasks(url))
    return server


@dataclass(frozen=True)
class World:
    """What a site is made of."""

    members: tuple[str, ...]
    tokens: str
    """The table of users, as a hub reads it."""
    kinds: tuple[dict[str, Any], ...]
    """Definitions of custom resources that every server has."""
    furnish: Callable[[Server], Awaitable[None]]
    """Puts objects and rights into a server."""


@dataclass
class Site:
    """A fleet: servers by name, the hub among them, and the gateway's chain before them."""

    servers: dict[str, Server]
    gateway: Handler
    model: oracle.Fleet
    audited: list[dict[str, Any]]

    @property
    def hub(self) -> Server:
        return self.servers[oracle.HUB]

    def forget(self) -> None:
        self.audited.clear()
        for server in self.servers.values():
            server.forget()

    async def undo(self) -> None:
        for server in self.servers.values():
            await server.undo()


class _Lines:
    """An audit log that can be read back."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, event: dict[str, Any]) -> None:
        self.lines.append(flat(event))


@asynccontextmanager
async def oracle_site(directory: Path, world: World) -> AsyncGenerator[Site]:
    """Run a hub with its members, and a gateway before them."""
    async with AsyncExitStack() as stack:
        servers: dict[str, Server] = {}
        async with AsyncExitStack() as busy:
            for name in (oracle.HUB, *world.members):
                (directory / name).mkdir()
                servers[name] = await start_server(stack, busy, directory / name, world)
            for name in world.members:
                request = JoinRequest(name, servers[name].settings)
                await join_cluster(
                    request, servers[oracle.HUB].settings, lambda told: None, is_dry_run=False
                )
        for server in servers.values():
            await world.furnish(server)
            # Every case is taken back, so the roles stay what they are now.
            page = await server.store.range("/registry/")
            for entry in page.items:
                server.model.roles.learn(place_of(entry.key), json.loads(entry.value))
            server.store.subscribe("/registry/", after=page.revision, sink=server)
        site = await _with_gateway(stack, servers, directory)
        site.forget()
        yield site


async def _with_gateway(stack: AsyncExitStack, servers: dict[str, Server], directory: Path) -> Site:
    hub_settings = servers[oracle.HUB].settings
    settings = FleetSettings(hub_settings, directory / "fleet", identities=MASTERS_TRAVEL)
    connection = Connection(settings.hub, clock=CLOCK, random=Random(1), limits=LIMITS)
    stack.push_async_callback(connection.close)
    members = open_connections(CLOCK)
    stack.push_async_callback(members.close)
    hub = ClusterClient(connection)
    known = Directory(hub, members, partial(user_settings, RULES))
    lines = _Lines()
    fleet = build_fleet(settings, hub, known, CLOCK)
    documents = Documents(CLOCK, seconds_each=settings.limits.document_seconds)
    failed_logins = FailedLogins(CLOCK, lines.write, failed_login_events(default_policy(), CLOCK))
    stack.callback(failed_logins.close)
    handler = fleet_handler(
        FleetApp(fleet, documents),
        FleetAuthenticator(hub, CLOCK),
        fleet.reviews,
        Auditing(lines.write, failed_logins),
        CLOCK,
    )
    tasks = await stack.enter_async_context(Supervisor(CLOCK, report))
    keep_all(tasks, known.tasks())
    await known.wait_synced()
    model = oracle.Fleet({name: server.model for name, server in servers.items()})
    return Site(servers, handler, model, lines.lines)
