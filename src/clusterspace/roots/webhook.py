"""The webhook as a process: the rules of our hub, for a kube-apiserver that is the hub.

It also approves the certificates of agents, which our own hub signs itself. Any number of these may
run. Its certificate comes from the authority that `init` put into a Secret
on the hub; it is made when the process starts, and again in time or when the authority changed.
"""

import asyncio
import ssl
import tempfile
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import Final, cast
from urllib.parse import urlsplit

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, keep_all, report
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.listener import HttpServer, reload_certificate, server_context
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.identity.authority import Authority, KeyPair, needs_renewal
from clusterspace.apiserver.kubernetes_hub import manifests
from clusterspace.apiserver.kubernetes_hub.agents import AgentApprovals, forget_notes
from clusterspace.apiserver.kubernetes_hub.manifests import WebhookAddress
from clusterspace.apiserver.kubernetes_hub.reading import ServedKinds, build_state
from clusterspace.apiserver.kubernetes_hub.reviews import answer_review
from clusterspace.apiserver.kubernetes_hub.rules import forget_claims, webhook_plugins
from clusterspace.apiserver.state import HubState
from clusterspace.client.endpoints import Network
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings, KubeconfigCredentials
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.controller import ControllerManager
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ApiError, ClusterError
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import connect, member_rules
from clusterspace.roots.installation import server_url, write_pair
from clusterspace.roots.processes import answer_of, cancelled_by, process_tasks, stop_event
from clusterspace.roots.settings import ReadSettings

_log = structlog.get_logger(__name__)

PATH: Final = "/admit"
_MOST_BYTES: Final = 8 * 1024 * 1024
"""A review has an object twice, before and after; etcd takes none of more than 1.5 MiB."""

_SECONDS: Final = 9.0
"""The API server waits for ten: then it says itself that nobody answered."""

_LOOK_SECONDS: Final = 60.0
_FORGET_SECONDS: Final = 3600.0
_DRAIN_SECONDS: Final = 5.0
_JSON: Final = (("Content-Type", "application/json"),)

_SECRET: Final = ResourcePath(
    GroupVersionResource("", "v1", "secrets"), manifests.NAMESPACE, manifests.AUTHORITY_SECRET
)
_CONFIGURATION: Final = ResourcePath(
    GroupVersionResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    name=manifests.NAME,
)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The settings the webhook is started with; port 0 is a free one."""

    hub: ConnectionSettings
    host: str = "127.0.0.1"
    port: int = 9443
    member_cidrs: tuple[Network, ...] = ()
    """Where members may be besides where they may be anyway."""
    read_hub: ReadSettings | None = None
    """Reads `hub` again from where it came from, if it came from a file."""


class WebhookTls:
    """The webhook's certificate, kept current: of the hub's authority, for what the hub calls us.

    The key is made here and stays here, in a directory that ends with the process.
    """

    def __init__(self, hub: ClusterClient, directory: Path, clock: Clock) -> None:
        self._hub = hub
        self._files = directory / "server.crt", directory / "server.key"
        self._clock = clock
        self._issuer = b""
        self._names: tuple[str, ...] = ()

    async def issue(self) -> bool:
        """Have a certificate of the present authority; return whether it is a new one."""
        secret, configuration = await self._hub.get(_SECRET), await self._hub.get(_CONFIGURATION)
        data = cast("dict[str, str]", secret.get("data") or {})
        pair = KeyPair(*(b64decode(data.get(key, "")) for key in ("tls.crt", "tls.key")))
        names = tuple(dict.fromkeys((*_called(configuration), "localhost", "127.0.0.1")))
        now = self._clock.now()
        if (pair.certificate, names) == (self._issuer, self._names):
            current = await asyncio.to_thread(self._files[0].read_bytes)
            if not needs_renewal(current, now):
                return False
        write_pair(Authority.load(pair).issue_server(names, now), *self._files)
        self._issuer, self._names = pair.certificate, names
        return True

    def context(self) -> ssl.SSLContext:
        """Return the TLS side of a server."""
        return server_context(*self._files)

    async def follow(self, context: ssl.SSLContext) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            try:
                if await self.issue():
                    reload_certificate(context, *self._files)
                    _log.info("certificate renewed", names=list(self._names))
            except (ApiError, ClusterError) as error:
                # What we have is good for months: the next look may go better.
                _log.warning("certificate not looked after", reason=str(error))


def _called(configuration: Object) -> tuple[str, ...]:
    """Return the names by which an API server calls us, as its configuration says."""
    urls = [
        str(find_at(each, "clientConfig", "url") or "")
        for each in cast("list[Object]", configuration.get("webhooks") or [])
    ]
    named = tuple(host for url in urls if (host := urlsplit(url).hostname))
    return named or WebhookAddress().server_names


@dataclass(frozen=True, slots=True)
class RunningWebhook:
    """A webhook that is up."""

    url: str


@asynccontextmanager
async def running_webhook(settings: WebhookSettings) -> AsyncGenerator[RunningWebhook]:
    """Run the webhook for as long as the block lasts."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        known_as = KubeconfigCredentials(
            settings.read_hub or (lambda: settings.hub), settings.hub, clock
        )
        hub = connect(replace(settings.hub, cluster="hub"), clock, credentials=known_as)
        stack.push_async_callback(hub.connection.close)
        rules = await member_rules(settings.hub, settings.member_cidrs)
        webhooks = Webhooks(rules, clock)
        kinds = ServedKinds(hub, webhooks)
        state = build_state(
            hub, kinds, clock, webhooks, lambda store: webhook_plugins(hub, store, rules, clock)
        )
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="clusterspace-webhook-"))
        tls = WebhookTls(hub, Path(directory), clock)
        await answer_of(tls.issue, clock, "the hub", server=settings.hub.server)
        context = tls.context()

        async def forget() -> None:
            while True:
                try:
                    await forget_claims(hub, clock.now())
                    await forget_notes(hub, clock.now())
                except (ApiError, ClusterError) as error:
                    _log.warning("old claims and notes not removed", reason=str(error))
                await clock.sleep(_FORGET_SECONDS)

        caches = HubCaches(hub)
        events = EventRecorder(hub, component="clusterspace-webhook", clock=clock)
        approvals = (AgentApprovals(hub, caches),)
        manager = ControllerManager(caches, events, approvals, clock=clock, random=SystemRandom())
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        keep_all(
            tasks,
            {
                "served kinds": kinds.run,
                "connections to webhooks": webhooks.run,
                "certificate": lambda: tls.follow(context),
                "old claims and notes": forget,
                **manager.tasks(),
                **process_tasks(clock),
            },
        )
        await kinds.wait_synced()
        server = HttpServer(
            lambda request: _answer(request, state, kinds), tls=context, clock=clock
        )
        await server.listen(settings.host, settings.port)
        stack.push_async_callback(server.drain, _DRAIN_SECONDS)
        yield RunningWebhook(server_url(settings.host, server.addresses[0][1]))


async def _answer(request: Request, state: HubState, kinds: ServedKinds) -> Response:
    if request.path in ("/healthz", "/livez"):
        return Response(200, (("Content-Type", "text/plain"),), b"ok")
    if request.path == "/readyz":
        is_ready = not kinds.is_stale
        words = b"ok" if is_ready else b"the hub has not been heard of for a while"
        return Response(200 if is_ready else 503, (("Content-Type", "text/plain"),), words)
    if request.path != PATH or request.method != "POST":
        return _status(statuses.unknown_path())
    try:
        body = await request.read_body(_MOST_BYTES)
        kinds.current()
        async with asyncio.timeout(_SECONDS):
            answer = await answer_review(state, body)
    except TimeoutError:
        return _status(statuses.timed_out(f"the rules were not through within {_SECONDS:g}s"))
    except ClusterError as error:
        # A rule could not look: then the answer is no, and the API server says who said so.
        return _status(statuses.unavailable(f"a rule could not ask the hub: {error}"))
    except ApiError as error:
        return _status(error)
    return Response(200, _JSON, forms.encode(answer))


def _status(error: ApiError) -> Response:
    return Response(error.code, _JSON, forms.encode(statuses.status_of(error)))


async def serve_until_stopped(settings: WebhookSettings) -> None:
    """Run the webhook until told to stop."""
    stopped = stop_event()
    async with AsyncExitStack() as stack:
        async with cancelled_by(stopped):
            running = await stack.enter_async_context(running_webhook(settings))
            _log.info("webhook is ready", url=running.url)
        await stopped.wait()
        _log.info("webhook is stopping")
