"""A simulated member: a hub on the memory store, with nodes and controllers that are made up."""

import gc
import ssl
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apiserver.access.aggregation import RoleAggregator
from clusterspace.apiserver.access.build import Access, build_access
from clusterspace.apiserver.access.default_roles import install_default_roles
from clusterspace.apiserver.admission.unenforced import ON_SIMULATED_MEMBER
from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.authenticators import TokenTable
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.custom_resources import CustomResourceController
from clusterspace.apiserver.housekeeping.expiry import expire_events
from clusterspace.apiserver.housekeeping.garbage import GarbageCollector
from clusterspace.apiserver.housekeeping.namespaces import NamespaceEnder
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.tls import server_context
from clusterspace.apiserver.identity.assembly import Identity, Keys
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.compaction import CompactionPolicy, compact_forever
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.writing import create_own
from clusterspace.controllers.background import Tasks, keep_all, report
from clusterspace.errors import Expired
from clusterspace.kube import statuses
from clusterspace.roots.hub import build_state
from clusterspace.roots.hub_chain import build_handler
from clusterspace.roots.installation import Installation
from clusterspace.roots.sim_doors import FaultRulesReader, metrics_resources
from clusterspace.roots.simulation import Simulation
from clusterspace.roots.stopping import stop_event
from clusterspace.sim.fault_rules import Rule
from clusterspace.sim.faults import Faults
from clusterspace.sim.nodes import NodeShape
from clusterspace.sim.pods import Pace

_log = structlog.get_logger(__name__)

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_DRAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class SimSettings:
    """What a simulated member is started with."""

    name: str
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 3
    shape: NodeShape = field(default_factory=NodeShape)
    pace: Pace = field(default_factory=Pace)
    seed: int | None = None
    """Makes names and UIDs repeatable; without one no two members are alike."""
    token_auth_file: Path | None = None


def build_member(
    settings: SimSettings, store: MemoryStore, clock: Clock, access: Access
) -> HubState:
    """Build what verbs work on: a hub's, with metrics, and with chance of its own."""
    random = SystemRandom() if settings.seed is None else Random(settings.seed)  # noqa: S311 - names, not secrets
    hub = build_state(store, clock, access, unenforced=ON_SIMULATED_MEMBER)
    return replace(
        hub,
        catalog=Catalog((*builtin_resources(), *metrics_resources())),
        random=random,
        new_uid=lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
        plugins=(*hub.plugins, FaultRulesReader()),
    )


@asynccontextmanager
async def running_sim(settings: SimSettings) -> AsyncGenerator[str]:
    """Run a simulated member for as long as the block lasts; yield the URL it is reached at."""
    clock = SystemClock()
    installation = Installation(settings.data_dir)
    installation.remove_kubeconfig()
    authority = installation.prepare(clock.now(), (settings.host,))
    async with AsyncExitStack() as stack:
        store = MemoryStore()
        stack.push_async_callback(store.close)
        access = build_access(store)
        hub = build_member(settings, store, clock, access)
        definitions = CustomResourceController(hub)
        await _bootstrap(hub, access, definitions)
        keys = Keys(authority.pair, installation.signing_key())
        identity = Identity(hub, keys, _tokens(settings))
        simulation = Simulation(hub, settings.name, settings.nodes, settings.shape, settings.pace)
        verbs = {**access.verbs, **identity.verbs(access.authorizer)}
        app = HubApp(hub, {**verbs, **simulation.verbs()})
        faults = Faults(clock, hub.random, lambda rule: _expire_watches(hub, rule))
        handler = build_handler(
            app,
            hub.catalog,
            identity.authenticator(),
            access.authorizer,
            _keep_no_audit,
            clock,
        )
        server = HttpServer(faults.around(handler), tls=_tls(installation))
        await server.listen(settings.host, settings.port)
        url = f"https://{settings.host}:{server.addresses[0][1]}"
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        keep_all(tasks, _housekeeping(hub, store, definitions))
        keep_all(tasks, identity.tasks(url))
        keep_all(tasks, simulation.tasks(app, faults))

        async def drain() -> None:
            app.is_ready = False
            await server.drain(_DRAIN_SECONDS, end_streams=hub.feeds.end_all)

        stack.push_async_callback(drain)
        app.is_ready = True
        installation.write_kubeconfig(authority, url, clock.now(), name=settings.name)
        gc.freeze()
        yield url


def _tokens(settings: SimSettings) -> TokenTable:
    if settings.token_auth_file is None:
        return TokenTable({})
    return TokenTable.parse(settings.token_auth_file.read_text())


def _tls(installation: Installation) -> ssl.SSLContext:
    return server_context(
        *installation.server_files, client_authorities=(installation.authority_file,)
    )


def _keep_no_audit(record: object) -> None:
    """Drop a record of the audit log: what happens in a simulation is nobody's evidence."""
    del record


def _expire_watches(hub: HubState, rule: Rule) -> None:
    """End the running watches of the resources a rule is about with 410."""
    for served in hub.catalog.all():
        named = {served.info.plural, str(served.info.group_resource)}
        if not rule.resources or rule.resources & named:
            hub.feeds.end_all(Expired(statuses.WATCH_TOO_OLD), prefix=served.prefix())


async def _bootstrap(hub: HubState, access: Access, definitions: CustomResourceController) -> None:
    """Make what every cluster has; the fleet's own kinds are no business of a member."""
    namespaces = hub.catalog.get_storage("", "namespaces")
    for name in _NAMESPACES:
        wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await create_own(hub, namespaces, wanted, "kube-apiserver")
    await definitions.load()
    await install_default_roles(hub)
    await access.role_cache.load()


def _housekeeping(
    hub: HubState, store: MemoryStore, definitions: CustomResourceController
) -> Tasks:
    policy = CompactionPolicy()
    return {
        "custom resources": definitions.run,
        "namespaces": NamespaceEnder(hub).run,
        "garbage collection": GarbageCollector(hub).run,
        "role aggregation": RoleAggregator(hub).run,
        "event expiry": lambda: expire_events(hub),
        "compaction": lambda: compact_forever(store, hub.clock, policy),
    }


async def serve_until_stopped(settings: SimSettings) -> None:
    """Run a simulated member until told to stop."""
    stopped = stop_event()
    async with running_sim(settings) as url:
        command = f"kubectl --kubeconfig {Installation(settings.data_dir).kubeconfig}"
        _log.info("member is ready", member=settings.name, url=url, connect_with=command)
        await stopped.wait()
        _log.info("member is stopping", member=settings.name)
