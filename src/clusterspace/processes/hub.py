"""The hub API server as a process: what is built, in which order, and how it ends."""

import asyncio
import gc
import signal
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Final

import structlog

from clusterspace import __version__
from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.api.crds import definitions
from clusterspace.errors import AlreadyExists, ApiError, TaskFailed
from clusterspace.hub.admission.namespaces import NamespaceLifecycle
from clusterspace.hub.admission.services import ServiceAddresses
from clusterspace.hub.app import HubApp
from clusterspace.hub.authenticators import HubAuthenticator, TokenTable
from clusterspace.hub.authorizers import GroupAuthorizer
from clusterspace.hub.builtin_resources import builtin_resources
from clusterspace.hub.catalog import Catalog
from clusterspace.hub.custom_resources import CustomResourceController
from clusterspace.hub.feeds import Feeds
from clusterspace.hub.housekeeping.expiry import expire_events
from clusterspace.hub.housekeeping.garbage import GarbageCollector
from clusterspace.hub.housekeeping.namespaces import NamespaceEnder
from clusterspace.hub.state import HubState
from clusterspace.hub.writing import create_own
from clusterspace.processes.installation import Installation
from clusterspace.serving.calls import Call, chain
from clusterspace.serving.listener import HttpServer
from clusterspace.serving.messages import Response
from clusterspace.serving.middleware.authenticate import Authenticate
from clusterspace.serving.middleware.authorize import Authorize
from clusterspace.serving.middleware.catch_errors import catch_errors
from clusterspace.serving.middleware.deadlines import deadlines
from clusterspace.serving.middleware.limits import InFlightLimits
from clusterspace.serving.middleware.measure import Measure
from clusterspace.serving.request_info import RequestInfo, read_request
from clusterspace.serving.requests import Handler, Request
from clusterspace.serving.responses import error_response
from clusterspace.serving.tls import server_context
from clusterspace.store.compaction import CompactionPolicy, compact_forever
from clusterspace.store.interface import Store
from clusterspace.store.memory import MemoryStore
from clusterspace.store.sqlite import SqliteStore
from clusterspace.telemetry import metrics
from clusterspace.telemetry.request_ids import accept_request_id, request_id_of

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


async def open_store(settings: HubSettings) -> MemoryStore | SqliteStore:
    """Open the store the settings name."""
    if settings.store == "memory":
        return MemoryStore()
    return await SqliteStore.open(Installation(settings.data_dir).store_file)


def build_state(store: Store, clock: Clock) -> HubState:
    """Build what verbs work on."""
    return HubState(
        store=store,
        catalog=Catalog(builtin_resources()),
        feeds=Feeds(store),
        clock=clock,
        random=SystemRandom(),
        new_uid=lambda: str(uuid.uuid4()),
        plugins=(NamespaceLifecycle(), ServiceAddresses()),
    )


def build_handler(app: HubApp, tokens: TokenTable, clock: Clock) -> Handler:
    """Put the chain around the app: from a request to its answer."""
    answer = chain(
        (
            Measure(clock),
            catch_errors,
            deadlines,
            Authenticate(HubAuthenticator(tokens)),
            InFlightLimits(),
            Authorize(GroupAuthorizer()),
        ),
        app,
    )

    async def handle(request: Request) -> Response | None:
        request_id = accept_request_id(request.headers.get("audit-id"))
        try:
            info = read_request(request.method, request.path, request.query)
        except ApiError as error:
            unread = RequestInfo(method=request.method, path="", verb="")
            return error_response(Call(request, unread, request_id), error)
        with request_id_of(request_id):
            return await answer(Call(request, info, request_id))

    return handle


async def bootstrap(hub: HubState, definitions_controller: CustomResourceController) -> None:
    """Make what every hub has: its namespaces and our own kinds."""
    namespaces = hub.catalog.get_storage("", "namespaces")
    for name in _NAMESPACES:
        wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await create_own(hub, namespaces, wanted, _OWN_MANAGER)
        except AlreadyExists:
            continue
    await definitions_controller.install(definitions())
    await definitions_controller.load()


@asynccontextmanager
async def running_hub(settings: HubSettings) -> AsyncGenerator[str]:
    """Run a hub for as long as the block lasts; yield the URL it is reached at."""
    clock = SystemClock()
    metrics.set_build_info(__version__)
    installation = Installation(settings.data_dir)
    installation.remove_kubeconfig()
    authority = installation.prepare(clock.now(), (settings.host,))
    tokens = TokenTable({})
    if settings.token_auth_file is not None:
        tokens = TokenTable.parse(settings.token_auth_file.read_text())
    async with AsyncExitStack() as stack:
        store = await open_store(settings)
        stack.push_async_callback(store.close)
        hub = build_state(store, clock)
        controller = CustomResourceController(hub)
        await bootstrap(hub, controller)
        app = HubApp(hub, {})
        tls = server_context(
            *installation.server_files, client_authorities=(installation.authority_file,)
        )
        server = HttpServer(build_handler(app, tokens, clock), tls=tls)
        await server.listen(settings.host, settings.port)
        tasks = await stack.enter_async_context(Supervisor(clock, _report))
        _start_housekeeping(tasks, hub, controller)
        policy = CompactionPolicy()
        tasks.keep("compaction", lambda: compact_forever(store, clock, policy), restart=_restarts)

        async def drain() -> None:
            app.is_ready = False
            await server.drain(_DRAIN_SECONDS, end_streams=hub.feeds.end_all)

        stack.push_async_callback(drain)
        url = f"https://{settings.host}:{server.addresses[0][1]}"
        app.is_ready = True
        installation.write_kubeconfig(authority, url, clock.now())
        # What is alive now stays alive: the collector need not look at it again.
        gc.freeze()
        yield url


def _start_housekeeping(
    tasks: Supervisor, hub: HubState, controller: CustomResourceController
) -> None:
    tasks.keep("custom resources", controller.run, restart=_restarts)
    tasks.keep("namespaces", NamespaceEnder(hub).run, restart=_restarts)
    tasks.keep("garbage collection", GarbageCollector(hub).run, restart=_restarts)
    tasks.keep("event expiry", lambda: expire_events(hub), restart=_restarts)


def _restarts() -> Iterator[float]:
    return backoff.exponential(0.5, 30)


def _report(failure: TaskFailed) -> None:
    _log.error("task failed", reason=str(failure), exc_info=failure.__cause__)


async def serve_until_stopped(settings: HubSettings) -> None:
    """Run a hub until SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    async with running_hub(settings) as url:
        command = f"kubectl --kubeconfig {Installation(settings.data_dir).kubeconfig}"
        _log.info("hub is ready", url=url, connect_with=command)
        await stopped.wait()
        _log.info("hub is stopping")
