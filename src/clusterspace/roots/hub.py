"""The hub API server as a process: what is built, in which order, and how it ends."""

import gc
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from clusterspace.aio.clocks import SystemClock
from clusterspace.aio.memory import give_back_freed
from clusterspace.aio.stalls import measure_stalls
from clusterspace.aio.tasks import Supervisor
from clusterspace.apiserver.access.audit_log import AuditLog
from clusterspace.apiserver.access.authorizer import build_access
from clusterspace.apiserver.access.reviews import Reviews
from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.http.limits import Limits
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.middleware.audit import AUDITED_READS
from clusterspace.apiserver.http.middleware.authenticate import FailedLogins
from clusterspace.apiserver.http.site import CountedConnections
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.identity.authentication import Authentication, Keys
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.apiserver.verbs.proxy import ClusterProxy
from clusterspace.client.endpoints import AddressRules, Network
from clusterspace.controllers.background import keep_all, report
from clusterspace.roots.chains import hub_handler, hub_recheck
from clusterspace.roots.connections import open_connections, user_settings
from clusterspace.roots.hub_state import bootstrap, build_state, housekeeping, read_tokens
from clusterspace.roots.installation import Installation, server_url
from clusterspace.roots.processes import stop_event
from clusterspace.roots.tls import ServerTls
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

_DRAIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class HubSettings:
    """What a hub is started with."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 5443
    store: str = "sqlite"
    token_auth_file: Path | None = None
    server_names: tuple[str, ...] = ()
    """What else clients call this server: the certificate has these names too."""
    member_cidrs: tuple[Network, ...] = ()
    """Where members may be besides where they may be anyway."""
    connections: Limits = field(default_factory=Limits)
    audited_reads: frozenset[str] = AUDITED_READS
    identities: MemberIdentities = field(default_factory=MemberIdentities)
    """Who users are at members that they reach through `clusters/proxy`."""


async def open_store(settings: HubSettings) -> MemoryStore | SqliteStore:
    """Open the store the settings name."""
    if settings.store == "memory":
        return MemoryStore()
    return await SqliteStore.open(Installation(settings.data_dir).store_file)


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that is up."""

    url: str
    state: HubState
    installation: Installation
    authority: Authority
    tls: ssl.SSLContext


@asynccontextmanager
async def running_hub(settings: HubSettings) -> AsyncGenerator[str]:
    """Run a hub for as long as the block lasts; yield the URL it is reached at."""
    async with run_hub(settings) as running:
        yield running.url


@asynccontextmanager
async def run_hub(settings: HubSettings) -> AsyncGenerator[RunningHub]:
    """Run a hub for as long as the block lasts."""
    clock = SystemClock()
    installation = Installation(settings.data_dir)
    installation.remove_kubeconfig()
    authority = installation.prepare(clock.now(), (settings.host, *settings.server_names))
    async with AsyncExitStack() as stack:
        store = await open_store(settings)
        stack.push_async_callback(store.close)
        access = build_access(store)
        rules = AddressRules(settings.member_cidrs)
        hub = build_state(store, clock, access, rules)
        controller = CustomResourceController(hub)
        await bootstrap(hub, access, controller)
        identity = Authentication(
            hub,
            Keys(authority.pair, installation.signing_key()),
            read_tokens(settings.token_auth_file),
        )
        members = open_connections(clock)
        stack.push_async_callback(members.close)
        proxy = ClusterProxy(members, partial(user_settings, rules), settings.identities)
        authorizer = access.authorizer
        reviews = Reviews(authorizer).verbs()
        app = HubApp(hub, {**reviews, **identity.verbs(authorizer), **proxy.verbs()})
        audit = AuditLog(installation.audit_file)
        stack.callback(audit.close)
        failed_logins = FailedLogins(clock, audit.write)
        stack.callback(failed_logins.close)
        authenticator = identity.authenticator()
        recheck = hub_recheck(authenticator, access.authorizer, clock)
        handler = hub_handler(
            app,
            hub.catalog,
            authenticator,
            access.authorizer,
            audit.write,
            failed_logins,
            clock,
            recheck,
            settings.audited_reads,
        )
        context = installation.server_tls()
        server = HttpServer(
            handler, tls=context, limits=settings.connections, observer=CountedConnections()
        )
        await server.listen(settings.host, settings.port)
        url = server_url(settings.host, server.addresses[0][1])

        def write_kubeconfigs(now: float) -> None:
            installation.write_part_kubeconfigs(authority, url, now)
            installation.write_kubeconfig(authority, url, now)

        tls = ServerTls(context, installation, authority, write_kubeconfigs)
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        keep_all(
            tasks,
            {
                **housekeeping(hub, controller, store),
                "roles in memory": access.role_cache.run,
                "open streams": recheck.run,
                **identity.tasks(url),
                "event loop": lambda: measure_stalls(clock, metrics.loop_stalled),
                **tls.tasks(clock),
                "freed memory": lambda: give_back_freed(clock),
            },
        )

        async def drain() -> None:
            app.is_ready = False
            await server.drain(_DRAIN_SECONDS, end_streams=hub.feeds.end_all)

        stack.push_async_callback(drain)
        # Before anybody is told that we are ready: the parts are started then, with these.
        installation.write_part_kubeconfigs(authority, url, clock.now())
        app.is_ready = True
        installation.write_kubeconfig(authority, url, clock.now())
        # What is alive now stays alive: the collector need not look at it again.
        gc.freeze()
        yield RunningHub(url, hub, installation, authority, context)


async def serve_until_stopped(settings: HubSettings) -> None:
    """Run a hub until told to stop."""
    stopped = stop_event()
    async with running_hub(settings) as url:
        command = f"kubectl --kubeconfig {Installation(settings.data_dir).kubeconfig}"
        _log.info("hub is ready", url=url, connect_with=command)
        await stopped.wait()
        _log.info("hub is stopping")
