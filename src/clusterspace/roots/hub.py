"""The hub API server as a process: what is built, in which order, and how it ends."""

import gc
import ssl
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final

import structlog

from clusterspace import __version__
from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.memory import give_back_freed
from clusterspace.aio.stalls import measure_stalls
from clusterspace.aio.tasks import Supervisor
from clusterspace.apis.crds import definitions
from clusterspace.apiserver.access.aggregation import RoleAggregator
from clusterspace.apiserver.access.audit_log import AuditLog
from clusterspace.apiserver.access.authorizer import Access, build_access
from clusterspace.apiserver.access.default_roles import (
    install_component_roles,
    install_default_roles,
)
from clusterspace.apiserver.access.reviews import Reviews
from clusterspace.apiserver.admission.clusters import tie_all
from clusterspace.apiserver.admission.plugins import hub_plugins
from clusterspace.apiserver.admission.unenforced import UnenforcedKinds
from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.housekeeping.expiry import expire_events
from clusterspace.apiserver.housekeeping.garbage import GarbageCollector
from clusterspace.apiserver.housekeeping.namespaces import NamespaceController
from clusterspace.apiserver.http.limits import Limits
from clusterspace.apiserver.http.listener import HttpServer, reload_certificate
from clusterspace.apiserver.http.middleware.audit import AUDITED_READS
from clusterspace.apiserver.http.site import CountedConnections
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.identity.authentication import Authentication, Keys
from clusterspace.apiserver.identity.authority import Authority, renew_forever
from clusterspace.apiserver.identity.bearer_tokens import StaticTokens
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.compaction import CompactionPolicy, compact_forever
from clusterspace.apiserver.store.interface import Store
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.apiserver.verbs.proxy import ClusterProxy
from clusterspace.apiserver.writing import create_own
from clusterspace.client.endpoints import AddressRules, Network
from clusterspace.controllers.background import Tasks, keep_all, report
from clusterspace.errors import AlreadyExists
from clusterspace.roots.hub_chain import build_handler, build_recheck
from clusterspace.roots.installation import Installation, server_url
from clusterspace.roots.stopping import stop_event
from clusterspace.roots.user_access import open_connections, user_settings
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_OWN_MANAGER: Final = "kube-apiserver"
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


def build_state(
    store: Store,
    clock: Clock,
    access: Access,
    members: AddressRules | None = None,
    *,
    unenforced: UnenforcedKinds | None = None,
) -> HubState:
    """Build what verbs work on; `unenforced` words the warnings of a server that is no hub."""
    return HubState(
        store=store,
        catalog=Catalog(builtin_resources()),
        feeds=Feeds(store),
        clock=clock,
        random=SystemRandom(),
        new_uid=lambda: str(uuid.uuid4()),
        plugins=hub_plugins(access, members or AddressRules(), unenforced or UnenforcedKinds()),
    )


async def bootstrap(hub: HubState, access: Access, controller: CustomResourceController) -> None:
    """Make what every hub has: its namespaces, the default roles, our own kinds."""
    await create_namespaces(hub)
    await controller.install(definitions())
    await controller.load()
    await install_default_roles(hub)
    await install_component_roles(hub)
    await tie_all(hub)
    await access.role_cache.load()


async def create_namespaces(hub: HubState) -> None:
    """Make the namespaces every cluster has, where they are missing."""
    namespaces = hub.catalog.get_storage("", "namespaces")
    for name in _NAMESPACES:
        desired = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with suppress(AlreadyExists):
            await create_own(hub, namespaces, desired, _OWN_MANAGER)


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
    metrics.set_build_info(__version__)
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
        tls = installation.server_tls()
        authenticator = identity.authenticator()
        recheck = build_recheck(authenticator, access.authorizer, clock)
        handler = build_handler(
            app,
            hub.catalog,
            authenticator,
            access.authorizer,
            audit.write,
            clock,
            recheck,
            settings.audited_reads,
        )
        server = HttpServer(
            handler, tls=tls, limits=settings.connections, observer=CountedConnections()
        )
        await server.listen(settings.host, settings.port)
        url = server_url(settings.host, server.addresses[0][1])
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        keep_all(tasks, _housekeeping(hub, controller))
        keep_all(tasks, {"roles in memory": access.role_cache.run, "open streams": recheck.run})
        keep_all(tasks, identity.tasks(url))
        keep_all(tasks, _upkeep(store, clock, _Renewal(installation, authority, tls, url)))

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
        yield RunningHub(url, hub, installation, authority, tls)


def read_tokens(file: Path | None) -> StaticTokens:
    """Read static tokens from a file in Kubernetes' format; without a file there are none."""
    return StaticTokens({}) if file is None else StaticTokens.parse(file.read_text())


@dataclass(frozen=True, slots=True)
class _Renewal:
    """New certificates for a hub that goes on running."""

    installation: Installation
    authority: Authority
    tls: ssl.SSLContext
    url: str

    def held(self) -> tuple[bytes, ...]:
        """Return the certificates in use."""
        return (self.installation.server_files[0].read_bytes(),)

    def renew(self, now: float) -> None:
        """Make new ones and put them to use; connections that are open keep theirs."""
        self.installation.renew_server(self.authority, now)
        reload_certificate(self.tls, *self.installation.server_files)
        self.installation.write_part_kubeconfigs(self.authority, self.url, now)
        self.installation.write_kubeconfig(self.authority, self.url, now)


def _housekeeping(hub: HubState, controller: CustomResourceController) -> Tasks:
    return {
        "custom resources": controller.run,
        "namespaces": NamespaceController(hub).run,
        "garbage collection": GarbageCollector(hub).run,
        "role aggregation": RoleAggregator(hub).run,
        "event expiry": lambda: expire_events(hub),
    }


def _upkeep(store: MemoryStore | SqliteStore, clock: Clock, renewal: _Renewal) -> Tasks:
    policy = CompactionPolicy()
    return {
        "event loop": lambda: measure_stalls(clock, metrics.loop_stalled),
        "compaction": lambda: compact_forever(store, clock, policy),
        "certificate renewal": lambda: renew_forever(clock, renewal.held, renewal.renew),
        "freed memory": lambda: give_back_freed(clock),
    }


async def serve_until_stopped(settings: HubSettings) -> None:
    """Run a hub until told to stop."""
    stopped = stop_event()
    async with running_hub(settings) as url:
        command = f"kubectl --kubeconfig {Installation(settings.data_dir).kubeconfig}"
        _log.info("hub is ready", url=url, connect_with=command)
        await stopped.wait()
        _log.info("hub is stopping")
