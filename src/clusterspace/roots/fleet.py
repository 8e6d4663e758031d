"""The fleet API server as a process: many clusters behind one address."""

import gc
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, keep_all, report
from clusterspace.apis.tunnels import TunnelServer
from clusterspace.apiserver.flagz import Flagz
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.apiserver.http.users import CertificateLogin
from clusterspace.apiserver.identity.credentials_in_use import CredentialsInUse
from clusterspace.client.connection import Connection
from clusterspace.client.requests import AnswerMemory
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, KubeconfigCredentials
from clusterspace.errors import AuthorityDropped
from clusterspace.fleet.gateway.answers.documents import Documents
from clusterspace.fleet.gateway.app import FleetApp
from clusterspace.fleet.gateway.callers import (
    FleetAuthenticator,
    Gatekeeper,
    HubReviews,
    Sessions,
    Writes,
)
from clusterspace.fleet.gateway.clusters import Directory, Lapses
from clusterspace.fleet.gateway.fanout import Fleet
from clusterspace.fleet.gateway.last_lists import LastLists
from clusterspace.fleet.gateway.object_cache import ObjectCache
from clusterspace.fleet.gateway.registries import Registries
from clusterspace.fleet.gateway.rights import HubRights
from clusterspace.fleet.gateway.routes import HUB
from clusterspace.fleet.gateway.shared_watches import SharedWatches
from clusterspace.fleet.gateway.warm_files import WarmFiles
from clusterspace.fleet.membership.connections import view_settings
from clusterspace.fleet.membership.tunnels import TunnelAnnouncement
from clusterspace.fleet.membership.witnesses import Witness
from clusterspace.fleet.page.app import Page
from clusterspace.fleet.page.browsers import entrance
from clusterspace.fleet.page.several import answer_several
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, name_of
from clusterspace.roots.audit_logs import open_audit
from clusterspace.roots.chains import fleet_handler, fleet_recheck
from clusterspace.roots.clients import LIMITS, connect, member_rules, open_connections
from clusterspace.roots.fairness import FollowedFlows
from clusterspace.roots.installation import (
    Installation,
    advertised_address,
    server_url,
    write_private,
)
from clusterspace.roots.kubeconfigs import FLEET_CONTEXT, kubeconfig_of
from clusterspace.roots.page import Simulations
from clusterspace.roots.processes import (
    answer_of,
    api_server,
    cancelled_by,
    process_tasks,
    server_identity,
    stop_event,
    warn_of_full_rights,
)
from clusterspace.roots.settings import FleetSettings
from clusterspace.roots.tls import FleetTls
from clusterspace.roots.workers import Coworkers, find_place, say_ready, supervise

_log = structlog.get_logger(__name__)

_DRAIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RunningFleet:
    """A fleet API server that is up."""

    url: str
    fleet: Fleet


@asynccontextmanager
async def running_fleet(
    settings: FleetSettings, coworkers: Coworkers | None = None
) -> AsyncGenerator[RunningFleet]:
    """Run a fleet API server, or one worker of it, for as long as the block lasts."""
    clock, coworkers = SystemClock(), coworkers or Coworkers()
    installation = Installation(settings.data_dir)
    authorities = installation.prepare(clock.now(), settings.certified_names)
    async with AsyncExitStack() as stack:
        read_hub = settings.read_hub or (lambda: settings.hub)
        credentials = KubeconfigCredentials(read_hub, settings.hub, clock)
        hub = connect(replace(settings.hub, cluster=HUB), clock, LIMITS, credentials)
        stack.push_async_callback(hub.connection.close)
        tunnels = AgentTunnels(server_identity(settings.data_dir), clock)
        members = open_connections(clock, tunnels)
        stack.push_async_callback(members.close)
        rules = await member_rules(settings.hub, settings.member_cidrs)
        directory = Directory(hub, members, partial(view_settings, rules), tunnels)
        fleet = build_fleet(settings, hub, directory, clock, coworkers)
        await stack.enter_async_context(fleet.watches)
        documents = Documents(
            clock,
            seconds_each=settings.limits.document_seconds,
            flagz=Flagz(settings.flags()),
            read_metrics=coworkers.read_metrics,
        )
        audit = stack.enter_context(open_audit(settings, installation.audit_file, clock))
        rights = HubRights(hub)
        # Nobody can be let in before the hub has said whose certificates count.
        tls = await answer_of(
            lambda: FleetTls.open(installation, authorities, hub),
            clock,
            "the hub",
            server=settings.hub.server,
        )
        await answer_of(rights.load, clock, "the hub", server=settings.hub.server)

        in_use = CredentialsInUse()

        def check_open(login: CertificateLogin) -> None:
            if login.authority and login.authority not in tls.client_key_ids:
                raise AuthorityDropped
            if rights.revoked().covers(login):
                raise statuses.unauthorized()

        def check(login: CertificateLogin) -> None:
            check_open(login)
            in_use.note(login.authority, login.user.name, clock.now())

        # Open streams have an authenticator of their own: a user remembered for a new request must
        # not vouch for a stream that was opened long before.
        logins = FleetAuthenticator(hub, clock, check, rights.is_agent_revoked)
        open_logins = FleetAuthenticator(hub, clock, check_open, rights.is_agent_revoked)
        rights.on_change(logins.forget, open_logins.forget, fleet.reviews.forget)
        page = Page(clock, settings.sign_on, await coworkers.sealing_key())
        recheck = fleet_recheck(page.logins(open_logins, check_open), fleet.reviews, clock)
        flows = FollowedFlows(settings.requests, hub)
        limits = await stack.enter_async_context(flows.limits())
        app = FleetApp(fleet, documents)
        handler = fleet_handler(app, logins, fleet.reviews, audit, clock, recheck, limits)
        if settings.serves_page:
            browsers = fleet_handler(
                page.app(
                    app,
                    logins,
                    recheck.changed,
                    Simulations(read_hub),
                    coworkers.claim_code,
                ),
                page.logins(logins, check),
                fleet.reviews,
                audit,
                clock,
                recheck,
                limits,
                page.rules,
            )
            handler = entrance(handler, browsers, answer_several)
        server = api_server(coworkers.answer_when_heard(handler), tls.context, settings, clock)
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        keep_all(tasks, {**directory.tasks(), "open streams": recheck.run})
        keep_all(tasks, fleet.cache.tasks(directory.members))
        keep_all(tasks, fleet.last_lists.tasks(directory.members))
        if fleet.registries is not None:
            keep_all(tasks, fleet.registries.tasks())
        keep_all(tasks, {**rights.tasks(recheck), **flows.tasks(), **process_tasks(clock)})
        keep_all(tasks, tls.client_tasks(clock, in_use, recheck.changed))
        await directory.wait_synced()
        if settings.cache_on_disk:
            warm = WarmFiles(installation.cached_objects, fleet.cache, directory.identity, clock)
            await warm.open(directory.members())
            keep_all(tasks, warm.tasks())
            stack.push_async_callback(warm.write)  # once nobody asks for anything any more
        coworkers.share_tunnels(tunnels, settings.data_dir, tasks)
        shared = {
            "runs": fleet.sessions,
            "writes": fleet.writes,
            "refusals": fleet.last_lists,
            "sessions": page.sessions,
            "codes": page.codes,
        }
        port = await coworkers.listen(server, settings, shared)
        own_url = server_url(settings.host, port)
        url = f"https://{settings.endpoint}" if settings.endpoint else own_url

        async def drain() -> None:
            documents.is_ready = False
            await server.send_away(settings.shutdown_delay)
            await coworkers.leave()

            def end_streams() -> None:
                fleet.streams.end_all()
                tunnels.end_all()

            await server.drain(_DRAIN_SECONDS, end_streams=end_streams)

        stack.push_async_callback(drain)
        documents.is_ready = True

        # Where we are and whom to trust. Who people are is in the hub's kubeconfig, or theirs: what
        # we log in with at the hub is nobody else's.
        def write_kubeconfig(_now: float) -> None:
            content = kubeconfig_of({FLEET_CONTEXT: url}, tls.authorities.bundle, AuthInfo())
            write_private(installation.kubeconfig, content)

        def describe() -> TunnelServer:
            where = settings.advertised_url or advertised_url(settings, port)
            return TunnelServer(tunnels.identity, where, tls.authorities.bundle)

        announcement = TunnelAnnouncement(hub, describe, directory.has_pull_members, clock)
        keep_all(tasks, {"tunnel announcement": announcement.run})
        if coworkers.is_first:  # its workers are one place
            keep_all(tasks, {"witness": witness_of(hub, directory, tunnels.identity, clock).run})
        write_kubeconfig(clock.now())
        keep_all(tasks, tls.tasks(clock, server, write_kubeconfig))
        yield RunningFleet(url, fleet)


def witness_of(hub: ClusterClient, directory: Directory, identity: str, clock: Clock) -> Witness:
    """Return what says on the hub which clusters answer this server."""

    async def reach(cluster: Object) -> Connection | None:
        return await directory.find_connection(name_of(cluster))

    place = f"fleet API server on {socket.gethostname()}"
    return Witness(
        hub, identity, place, directory.objects, reach, clock=clock, random=SystemRandom()
    )


def advertised_url(settings: FleetSettings, port: int) -> str:
    """Return where agents reach a server, unless its operator says where.

    One address for several replicas will do: agents try until they are at the one they mean. A
    server that listens on every address is known to others by its first name, or else by its
    address in the network.
    """
    if settings.endpoint:
        return f"https://{settings.endpoint}"
    host = settings.host
    if not host or host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        host = next(iter(settings.server_names), "") or advertised_address(host) or host
    return server_url(host, port)


def build_fleet(
    settings: FleetSettings,
    hub: ClusterClient,
    directory: Directory,
    clock: Clock,
    coworkers: Coworkers | None = None,
) -> Fleet:
    """Build what answers work with."""
    limits, reviews = settings.limits, HubReviews(hub, clock)
    memory = AnswerMemory(limits.answers_bytes)
    return Fleet(
        directory,
        reviews,
        Gatekeeper(reviews),
        Sessions(clock),
        Writes(clock),
        memory,
        Lapses(clock, grace_seconds=limits.grace_seconds, lost_seconds=limits.lost_seconds),
        SharedWatches(clock, memory),
        settings.federation,
        limits,
        settings.bulk_delete_members,
        identities=settings.identities,
        registries=Registries(hub, directory),
        cache=ObjectCache(clock, limits.cached_bytes),
        last_lists=LastLists(clock, limits.cached_bytes // 4, limits.last_state_seconds),
        all_heard=(coworkers or Coworkers()).heard,
    )


async def serve_until_stopped(settings: FleetSettings) -> None:
    """Run a fleet API server until told to stop."""
    place = find_place()
    if place is None:
        warn_of_full_rights("fleet", settings.hub)
        Installation(settings.data_dir).set_workers(settings.workers)
        if settings.workers > 1:
            await supervise(settings)
            return
    else:
        settings = settings.of_worker(place.number, place.port)
    stopped = stop_event()
    async with AsyncExitStack() as stack:
        coworkers = Coworkers() if place is None else place.open(stopped.set)
        stack.callback(coworkers.close)
        async with cancelled_by(stopped):
            running = await stack.enter_async_context(running_fleet(settings, coworkers))
            gc.freeze()  # what is alive now stays alive: the collector need not look at it again
            if place is None:
                say_ready(running.url, settings.data_dir)
            else:
                coworkers.ready()
        await stopped.wait()
        _log.info("fleet is stopping")
