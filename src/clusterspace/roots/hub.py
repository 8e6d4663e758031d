"""The hub API server as a process: what is built, in which order, and how it ends."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from clusterspace.aio.clocks import SystemClock
from clusterspace.aio.tasks import Supervisor, keep_all, report
from clusterspace.apis.clusters import SYSTEM_NAMESPACE
from clusterspace.apis.tunnels import TunnelServer
from clusterspace.apiserver.access.agents import scope_of
from clusterspace.apiserver.access.authorizer import build_access
from clusterspace.apiserver.access.changes import AccessChanges
from clusterspace.apiserver.access.karmada_agents import AnswerForItself, accepting_scope_of
from clusterspace.apiserver.access.reviews import Reviews
from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.flagz import Flagz
from clusterspace.apiserver.health import Components
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.apiserver.hub_leases import HubLeases
from clusterspace.apiserver.identity.agents import PullMembers
from clusterspace.apiserver.identity.authentication import Authentication, Keys
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.apiserver.identity.oidc import OidcTokens
from clusterspace.apiserver.kubernetes_service import KubernetesService
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.proxy import ClusterProxy
from clusterspace.apiserver.verbs.read import computed_verbs
from clusterspace.client.endpoints import AddressRules
from clusterspace.errors import StoreFull
from clusterspace.fleet.membership.connections import view_settings
from clusterspace.fleet.membership.tunnels import TunnelAnnouncement
from clusterspace.roots import hub_state
from clusterspace.roots.audit_logs import open_audit
from clusterspace.roots.chains import hub_handler, hub_recheck
from clusterspace.roots.clients import open_connections
from clusterspace.roots.config_files import issuer_tasks, load_issuers, load_tokens
from clusterspace.roots.fairness import OwnFlows
from clusterspace.roots.hub_state import bootstrap, build_state, by_one_hub, housekeeping, own_tasks
from clusterspace.roots.installation import Installation, advertised_address, server_url
from clusterspace.roots.processes import (
    api_server,
    process_tasks,
    server_identity,
    stay_until,
    stop_event,
)
from clusterspace.roots.settings import HubSettings
from clusterspace.roots.stores import hub_store_tasks, open_store, share_identity
from clusterspace.roots.tls import ServerTls

_DRAIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that is up."""

    url: str
    state: HubState
    installation: Installation
    authority: Authority
    tls: ssl.SSLContext


@asynccontextmanager
async def running_hub(settings: HubSettings) -> AsyncGenerator[RunningHub]:
    """Run a hub for as long as the block lasts."""
    clock = SystemClock()
    installation = Installation(settings.data_dir)
    async with AsyncExitStack() as stack:
        # The store before the certificates: certificates without one are then not our doing.
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = await open_store(settings)
        stack.push_async_callback(store.close)
        await share_identity(store, installation, clock.now())
        authorities = installation.prepare(clock.now(), settings.certified_names)
        accepts = settings.accepts_karmada_agents
        access = build_access(store, accepting_scope_of if accepts else scope_of)
        rules = AddressRules(settings.member_cidrs)
        hub = build_state(
            store,
            clock,
            access,
            rules,
            switches=settings.admission,
            optional_apis=settings.optional_apis,
        )
        controller = CustomResourceController(hub)
        unfinished = await bootstrap(hub, access, controller)
        flows = OwnFlows(settings.requests, hub)
        await flows.install()
        keys = Keys(authorities, installation.token_keys())
        issuers = OidcTokens(load_issuers(settings.authentication_file), clock)
        tokens = load_tokens(settings.token_auth_file)
        identity = Authentication(hub, keys, tokens, issuers, accepts_karmada_agents=accepts)
        await identity.revoked.load()
        tunnels = AgentTunnels(server_identity(settings.data_dir), clock)
        members = open_connections(clock, tunnels)
        stack.push_async_callback(members.close)
        reach = partial(view_settings, rules)
        proxy = ClusterProxy(members, reach, settings.identities, tunnels)
        authenticator, authorizer = identity.authenticator(), access.authorizer
        verbs = {**Reviews(authorizer).verbs(), **identity.verbs(authorizer), **proxy.verbs()}
        verbs |= computed_verbs("/componentstatuses", Components())
        documents = (Flagz(settings.flags()), identity.documents, *flows.documents())
        app = HubApp(hub, verbs, documents)
        audit = stack.enter_context(open_audit(settings, installation.audit_file, clock))
        recheck = hub_recheck(identity.authenticator(takes_notes=False), authorizer, clock)
        limits = await stack.enter_async_context(flows.limits())
        handler = hub_handler(
            app,
            hub.catalog,
            authenticator,
            authorizer,
            audit,
            clock,
            recheck,
            limits,
            AnswerForItself() if accepts else None,
        )
        tls = ServerTls(installation, authorities)
        server = api_server(handler, tls.context, settings, clock)
        await server.listen(settings.host, settings.port)
        port = server.addresses[0][1]
        own_url = server_url(settings.host, port)
        # Where it is reached, by itself or with the other replicas; who it is, is its own address.
        url = f"https://{settings.endpoint}" if settings.endpoint else own_url
        identity.documents.server = url

        def write_kubeconfigs(now: float) -> None:
            installation.write_component_kubeconfigs(tls.authorities, url, now)
            installation.write_kubeconfig(tls.authorities, url, now)

        def use_keys() -> None:
            identity.use(Keys(tls.authorities, installation.token_keys()))
            recheck.changed()

        tasks = await stack.enter_async_context(Supervisor(clock, report))
        service = KubernetesService(hub, advertised_address(settings.host), port)
        # Of several hubs on one store one does what is done for all; each does what is its own.
        shared = {**housekeeping(hub), **identity.tasks(url), "kubernetes service": service.run}
        keep_all(tasks, by_one_hub(hub, shared))
        keep_all(
            tasks, {**own_tasks(hub, controller), **identity.own_tasks(own_url), **flows.tasks()}
        )
        keep_all(tasks, hub_store_tasks(settings, store, installation, clock))
        keep_all(tasks, {"roles in memory": access.role_cache.run, **process_tasks(clock)})
        changes = AccessChanges(hub, recheck.changed)
        keep_all(tasks, {"open streams": recheck.run, "changes of rights": changes.run})
        keep_all(tasks, tls.tasks(clock, server, write_kubeconfigs, use_keys))
        keep_all(tasks, issuer_tasks(settings.authentication_file, issuers, clock, recheck.changed))
        # Without an address: agents know the hub by the one that they were registered with.
        own_tunnels = TunnelServer(tunnels.identity)
        announcement = TunnelAnnouncement(
            HubLeases(hub), lambda: own_tunnels, PullMembers(hub).exist, clock
        )
        keep_all(tasks, {"tunnel announcement": announcement.run})
        if unfinished is not None:
            tasks.spawn("bootstrap", unfinished)

        async def drain() -> None:
            app.health.is_ready = False
            await server.send_away(settings.shutdown_delay)

            def end_streams() -> None:
                hub.feeds.end_all()
                tunnels.end_all()

            await server.drain(_DRAIN_SECONDS, end_streams=end_streams)

        # Callbacks run in the reverse of this order: requests end first, then the tasks that
        # write on their own, then what both stand on.
        stack.push_async_callback(drain)
        installation.announce(tls.authorities, url, clock.now(), app.health.become_ready)
        yield RunningHub(url, hub, installation, authorities.signing, tls.context)


async def serve_until_stopped(settings: HubSettings) -> None:
    """Run a hub until told to stop."""
    stopped = stop_event()
    async with running_hub(settings) as running:
        # Karmada's own controllers, which may run here, keep their leases in it.
        with suppress(StoreFull):
            await hub_state.create_namespaces(running.state, (SYSTEM_NAMESPACE,))
        command = f"kubectl --kubeconfig {running.installation.kubeconfig}"
        await stay_until(stopped, "hub", url=running.url, connect_with=command)
