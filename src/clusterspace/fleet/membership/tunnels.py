"""The tunnels of a Pull member, from its agent's side; and how servers say that they want one.

    server   TunnelAnnouncement    a Lease on the hub: who we are, where, and who vouches for us
    agent    ViewTunnels.run       a tunnel to every server that says so, each opened anew when it
                                   ends; of several servers at one address, until it is the one
    server   ──request──> stream ──> MemberView: the request as it came, with our credential

What comes through a tunnel is never asked in the agent's own name. Its account may do nearly
everything on the member; whoever is named in the request has the rights that the member gives them,
and a request that names nobody is asked in the name of somebody who has none.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.aio.multiplexer import Multiplexer
from clusterspace.aio.websockets import VERSION, accept_key, new_key
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.tunnels import (
    GATEWAY_USER,
    LABEL,
    LEASE_NAMESPACE,
    LEASE_SECONDS,
    SUBRESOURCE,
    TunnelServer,
    lease_of,
    read_server,
)
from clusterspace.apiserver.http.agent_tunnels import PROTOCOL, REPLACED, SERVER_HEADER
from clusterspace.apiserver.http.chain import catch_errors, chain, handler_of
from clusterspace.apiserver.http.connections import Limits
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.relays import Passage, relay, tunnel
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.apiserver.http.users import User, is_of_family, read_impersonation
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.settings import (
    ConnectionSettings,
    Credential,
    CredentialSource,
    Pem,
    Trust,
)
from clusterspace.client.upgrades import open_tunnel
from clusterspace.controllers.leases import LEASES, LeaseClient, put_lease
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    Conflict,
    CredentialsUnusable,
    ServiceUnavailable,
    UnusableKubeconfig,
)
from clusterspace.kube.objects import find_at

_log = structlog.get_logger(__name__)

RENEW_SECONDS: Final = 15.0
_LISTENERS_SECONDS: Final = 1.0
"""How soon a server notices the first Pull member."""
LOOK_SECONDS: Final = 10.0
"""How often an agent looks which servers there are."""

_OPEN_SECONDS: Final = 15.0
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_REPLACED_SECONDS: Final = 30.0
"""How long an agent stays away that another one of its cluster replaced: two would take turns."""
_LEASES: Final = ResourcePath(LEASES, LEASE_NAMESPACE)


# -- the servers' side -----------------------------------------------------------------------------


class TunnelAnnouncement:
    """Says on the hub that a server takes tunnels, for as long as it runs and somebody has any.

    A fleet without Pull members has nobody to tell, and a hub at rest writes nothing.
    """

    def __init__(
        self,
        hub: LeaseClient,
        describe: Callable[[], TunnelServer],
        has_listeners: Callable[[], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._describe = describe
        self._has_listeners = has_listeners
        self._clock = clock

    async def run(self) -> None:
        """Renew the Lease until cancelled; a hub that does not answer is asked again."""
        while True:
            seconds = RENEW_SECONDS
            try:
                if await self._has_listeners():
                    await self._renew()
                else:
                    seconds = _LISTENERS_SECONDS
            except (AlreadyExists, Conflict):
                continue  # ours alone, but a write of ours may have come late
            except (ApiError, ClusterError) as error:
                _log.debug("the tunnel server is not announced", reason=str(error))
            await self._clock.sleep(seconds)

    async def _renew(self) -> None:
        await put_lease(self._hub, lease_of(self._describe(), self._clock.now()))


# -- what a server asks, asked of the member ------------------------------------------------------


class MemberView:
    """Answers requests that come through tunnels with what the member answers."""

    def __init__(self, member: Connection) -> None:
        self._member = member
        handler = handler_of(chain((catch_errors,), self._answer), _read_info)
        # A stream that nobody asks anything on is closed by the server, which opened it: later
        # than servers do, so that no request meets one that is just being closed.
        limits = Limits(idle_seconds=300.0)
        self._server = HttpServer(handler, limits=limits, clock=member.clock)

    def new_stream(self) -> asyncio.Protocol:
        """Return what serves a new stream."""
        return self._server.new_connection()

    async def close(self) -> None:
        """End all requests."""
        await self._server.drain(0.0)

    async def _answer(self, context: RequestContext) -> Response | None:
        request = context.request
        request.trust_connection()  # the server at the other end has let in whom it lets in
        impersonation = read_impersonation(request.headers)
        if impersonation is None:
            context.user = User(GATEWAY_USER)
            identity: tuple[tuple[str, str], ...] = (("Impersonate-User", GATEWAY_USER),)
        else:
            context.user = impersonation.become()
            identity = tuple(pair for pair in request.headers if is_of_family(pair[0]))
        target = request.path + (f"?{request.query}" if request.query else "")
        # As to a hub: what the member says is not looked into here, but by the server that asked.
        passage = Passage(self._member, target, identity, is_hub=True)
        try:
            if request.is_upgrade:
                return await tunnel(context, passage, context.info)
            return await relay(context, passage)
        except CredentialsUnusable as error:
            why = f"the agent's own credentials are of no use on its cluster: {error.why}"
            raise ServiceUnavailable(why) from error


def _read_info(request: Request) -> RequestInfo:
    return read_request(request.method, request.path, request.query)


# -- the agent's side ------------------------------------------------------------------------------


class _VouchedCredentials:
    """An agent's credentials, for a server that somebody else than the hub's authority vouches for.

    Without an authority of its own it is the hub's, whatever that is by then.
    """

    def __init__(self, source: CredentialSource, authority: bytes) -> None:
        self._source = source
        self._authority = authority

    async def get(self) -> Credential:
        """Return the credential to use now."""
        credential = await self._source.get()
        if not self._authority:
            return credential
        return replace(credential, material=replace(credential.material, authority=self._authority))

    def refused(self) -> bool:
        """Pass it on."""
        return self._source.refused()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A server, the last renewal of its Lease, and when that was seen, by our own clock."""

    server: TunnelServer
    renewal: object
    at: float


class ViewTunnels:
    """Keeps a tunnel to every server through which the member is to be reached."""

    def __init__(
        self,
        hub: ClusterClient,
        cluster_name: str,
        member: Connection,
        *,
        credentials: CredentialSource,
        random: Random,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._hub = hub
        self._name = cluster_name
        self._member = member
        self._credentials = credentials
        self._clock = hub.connection.clock
        self._random = random
        self._look_seconds = look_seconds
        self._seen: dict[str, _Seen] = {}
        self.open: set[str] = set()
        """Which servers the member can be reached through now."""

    async def run(self) -> None:
        """Keep tunnels until cancelled."""
        view = MemberView(self._member)
        tasks: dict[TunnelServer, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    with suppress(ApiError, ClusterError):  # then what is known stays so
                        await self._look()
                    wanted = {each.server for each in self._seen.values()}
                    for gone in tasks.keys() - wanted:
                        tasks.pop(gone).cancel()
                    for new in wanted - tasks.keys():
                        keeping = self._keep(new, view)
                        tasks[new] = group.create_task(keeping, name=f"tunnel {new.identity}")
                    await self._clock.sleep(self._look_seconds)
        finally:
            await view.close()

    async def _look(self) -> None:
        """Learn which servers there are; one whose Lease was renewed is one that runs."""
        options = ListOptions(label_selector=f"{LABEL}=true")
        found = await self._hub.list_objects(_LEASES, options)
        now, seen = self._clock.monotonic(), dict[str, _Seen]()
        for lease in found:
            server, renewal = read_server(lease), find_at(lease, "spec", "renewTime")
            if server is None:
                continue
            former = self._seen.get(server.identity)
            is_renewed = former is None or former.renewal != renewal
            at = now if is_renewed or former is None else former.at
            # One that has not been renewed is not dialled any more; a tunnel that is open to it
            # all the same shows that it runs, and stays.
            if now - at < 3 * LEASE_SECONDS or server.identity in self.open:
                seen[server.identity] = _Seen(server, renewal, at)
        self._seen = seen

    async def _keep(self, server: TunnelServer, view: MemberView) -> None:
        """Open a tunnel to a server, again and again."""
        delays = clocks.jittered(_FIRST_DELAY, _LONGEST_DELAY, self._random)
        reported = ""
        while True:
            began = self._clock.monotonic()
            delay, why = 0.0, ""
            try:
                code, why = await self._carry(server, view)
                delay = _REPLACED_SECONDS if code == REPLACED else 0.0
            except (ApiError, ClusterError, UnusableKubeconfig) as error:
                why = str(error)
            if why != reported:  # the same again is no news
                _log.info("no tunnel", cluster=self._name, server=server.url, reason=why)
                reported = why
            # One that lasted for a while is opened anew soon; one that is cut off again and again,
            # or cannot be opened, ever more seldom.
            if self._clock.monotonic() - began > self._look_seconds / 2:
                delays = clocks.jittered(_FIRST_DELAY, _LONGEST_DELAY, self._random)
            await self._clock.sleep(max(delay, next(delays)))

    async def _carry(self, server: TunnelServer, view: MemberView) -> tuple[int, str]:
        """Open a tunnel and answer what comes through it, until it ends; return how."""
        hub = self._hub.connection.settings
        settings = ConnectionSettings(
            "fleet" if server.url else hub.cluster,
            server.url or hub.server,
            Trust(Pem(server.authority)) if server.authority else hub.trust,
            hub.identity,
            proxy_url=hub.proxy_url,
        )
        connection = Connection(
            settings,
            clock=self._clock,
            random=self._random,
            credentials=_VouchedCredentials(self._credentials, server.authority),
        )
        key = new_key()
        headers = (
            ("Sec-WebSocket-Key", key),
            ("Sec-WebSocket-Version", VERSION),
            ("Sec-WebSocket-Protocol", PROTOCOL),
            (SERVER_HEADER, server.identity),
        )
        path = ResourcePath(CLUSTERS, name=self._name, subresource=SUBRESOURCE).path
        request = ApiRequest("GET", path, headers=headers, seconds=_OPEN_SECONDS)
        try:
            async with open_tunnel(connection, request, "websocket") as opened:
                said = opened.headers
                if said.get("sec-websocket-accept") != accept_key(key):
                    raise ClusterMisbehaved(settings.cluster, "did not shake hands", code=101)
                if said.get("sec-websocket-protocol") != PROTOCOL:
                    raise ClusterMisbehaved(settings.cluster, "speaks another protocol", code=101)
                carrying = Multiplexer(opened, self._clock, is_client=True, accept=view.new_stream)
                self.open.add(server.identity)
                _log.info("tunnel opened", cluster=self._name, server=settings.server)
                try:
                    why = await carrying.run()
                finally:
                    self.open.discard(server.identity)
                return carrying.close_code, why
        finally:
            await connection.close()
