"""A simulated member: an API server on the memory store, with nodes and controllers made up."""

import asyncio
import resource
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, Tasks, keep_all, report
from clusterspace.apiserver.access.authorizer import Access, build_access
from clusterspace.apiserver.access.default_roles import install_default_roles
from clusterspace.apiserver.access.reviews import Reviews
from clusterspace.apiserver.admission.unenforced import ON_SIMULATED_MEMBER
from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.health import Components
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.identity.authentication import Authentication, Keys
from clusterspace.apiserver.kubernetes_service import KubernetesService
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.verbs.read import computed_verbs
from clusterspace.client.endpoints import AddressRules
from clusterspace.roots.audit_logs import audit_into_nothing
from clusterspace.roots.chains import hub_handler
from clusterspace.roots.config_files import load_tokens
from clusterspace.roots.fairness import OwnFlows
from clusterspace.roots.hub_state import build_state, create_namespaces, housekeeping, own_tasks
from clusterspace.roots.installation import Installation, advertised_address
from clusterspace.roots.processes import stay_until, stop_event
from clusterspace.roots.settings import SimSettings
from clusterspace.roots.stores import store_tasks
from clusterspace.sim.api import CONFIG_MAP, FOLLOWED, Mirror
from clusterspace.sim.containers import Containers, Programs
from clusterspace.sim.controllers import Controllers
from clusterspace.sim.faults import FaultRulesReader, Faults
from clusterspace.sim.lifecycle import Lifecycle
from clusterspace.sim.local_api import LocalApi
from clusterspace.sim.metrics_api import metrics_resources, metrics_verbs
from clusterspace.sim.nodes import Heartbeats
from clusterspace.sim.pod_subresources import PodSubresources
from clusterspace.sim.scheduling import PodsByNode

_DRAIN_SECONDS: Final = 2.0


def build_member(
    settings: SimSettings, store: MemoryStore, clock: Clock, access: Access
) -> HubState:
    """Build what verbs work on: a hub's, with metrics, and with chance of its own."""
    random = SystemRandom() if settings.seed is None else Random(settings.seed)  # noqa: S311 - names, not secrets
    rules = AddressRules(settings.webhook_cidrs)
    hub = build_state(store, clock, access, rules, unenforced=ON_SIMULATED_MEMBER)
    return replace(
        hub,
        catalog=Catalog((*builtin_resources(), *metrics_resources())),
        random=random,
        new_uid=lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
        plugins=(*hub.plugins, FaultRulesReader()),
    )


@asynccontextmanager
async def running_sim(
    settings: SimSettings, store: MemoryStore | None = None
) -> AsyncGenerator[str]:
    """Run a simulated member for as long as the block lasts; yield the URL it is reached at.

    It has what is in the store already, besides what every cluster has.
    """
    clock = SystemClock()
    installation = Installation(settings.data_dir)
    authorities = installation.prepare(clock.now(), (settings.host,))
    async with AsyncExitStack() as stack:
        store = MemoryStore() if store is None else store
        stack.push_async_callback(store.close)
        access = build_access(store)
        hub = build_member(settings, store, clock, access)
        # What every cluster has; the fleet's own kinds are no business of a member.
        definitions = CustomResourceController(hub)
        await create_namespaces(hub)
        await definitions.load()
        await install_default_roles(hub)
        await access.role_cache.load()
        flows = OwnFlows(settings.requests, hub)
        await flows.install()

        keys = Keys(authorities, installation.token_keys())
        identity = Authentication(hub, keys, load_tokens(settings.token_auth_file))
        await identity.revoked.load()
        mirror, containers = Mirror(), Containers(clock)
        programs = Programs(containers, clock)
        pods_by_node = PodsByNode(mirror)
        verbs = {
            **Reviews(access.authorizer).verbs(),
            **identity.verbs(access.authorizer),
            **PodSubresources(containers, programs, mirror, clock).verbs(),
            **metrics_verbs(mirror, pods_by_node),
            **computed_verbs("/componentstatuses", Components(("controller-manager", "scheduler"))),
        }
        app, faults = HubApp(hub, verbs, flows.documents()), Faults(hub)
        # What happens in a simulation is nobody's evidence.
        audit = stack.enter_context(audit_into_nothing(clock))
        authenticator = identity.authenticator()
        limits = await stack.enter_async_context(flows.limits())
        handler = hub_handler(
            app, hub.catalog, authenticator, access.authorizer, audit, clock, limits=limits
        )
        server = HttpServer(faults.around(handler), tls=installation.server_tls())
        await server.listen(settings.host, settings.port)
        port = server.addresses[0][1]
        url = f"https://{settings.host}:{port}"

        manager = LocalApi(hub, app, "kube-controller-manager")
        kubelet = LocalApi(hub, app, "kubelet")
        scheduler = LocalApi(hub, app, "kube-scheduler")
        lifecycle = Lifecycle(
            scheduler, kubelet, mirror, pods_by_node, programs, clock, settings.pace
        )
        lifecycle.on_removal(containers.forget)
        nodes = Heartbeats(kubelet, mirror, clock, settings.name, settings.nodes, settings.shape)
        simulation: Tasks = {
            "mirror": lambda: manager.follow(FOLLOWED, mirror),
            "fault rules": lambda: manager.follow((CONFIG_MAP,), faults),
            "controllers": Controllers(manager, mirror, clock).run,
            "pods": lifecycle.run,
            "programs": programs.run,
            "nodes": nodes.run,
        }
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        keep_all(tasks, {**own_tasks(hub, definitions), **housekeeping(hub), **flows.tasks()})
        keep_all(tasks, {**identity.own_tasks(url), **identity.tasks(url), **simulation})
        service = KubernetesService(hub, advertised_address(settings.host), port)
        keep_all(tasks, {"kubernetes service": service.run, **store_tasks(store, clock)})

        async def drain() -> None:
            app.health.is_ready = False
            await server.drain(_DRAIN_SECONDS, end_streams=hub.feeds.end_all)

        # In reverse: requests end first, then the tasks that write on their own, then the store.
        stack.push_async_callback(drain)
        app.health.is_ready = True
        installation.write_kubeconfig(authorities, url, clock.now(), name=settings.name)
        yield url


@dataclass(frozen=True, slots=True)
class RunningSim:
    """One of many simulated members in a process."""

    name: str
    url: str
    kubeconfig: Path


@asynccontextmanager
async def running_sims(
    settings: SimSettings, count: int, stopped: asyncio.Event | None = None
) -> AsyncGenerator[tuple[RunningSim, ...]]:
    """Run so many simulated members in this process for as long as the block lasts.

    They are called NAME-1, NAME-2 and so on, have a directory each of that name, and ports from the
    one given on, if one is. They share nothing but the process: each has its own authority, objects
    and chance. Once `stopped` is set no more are started.
    """
    async with AsyncExitStack() as stack:
        members: list[RunningSim] = []
        for number in range(1, count + 1):
            if stopped is not None and stopped.is_set():
                break
            name = f"{settings.name}-{number}"
            own = replace(
                settings,
                name=name,
                data_dir=settings.data_dir / name,
                port=settings.port + number - 1 if settings.port else 0,
                seed=None if settings.seed is None else settings.seed + number,
            )
            url = await stack.enter_async_context(running_sim(own))
            kubeconfig = Installation(own.data_dir).kubeconfig
            members.append(RunningSim(name, url, kubeconfig))
        yield tuple(members)


def resident_bytes() -> int:
    """Return how much memory this process takes, as the system counts it; 0 where it does not."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


async def serve_many_until_stopped(settings: SimSettings, count: int) -> None:
    """Run many simulated members until told to stop; say what each of them costs."""
    stopped = stop_event()
    before = resident_bytes()
    async with running_sims(settings, count, stopped) as members:
        taken = resident_bytes()
        await stay_until(
            stopped,
            "group of members",
            count=len(members),
            kubeconfigs=str(settings.data_dir / f"{settings.name}-*" / "kubeconfig"),
            memory_mib=taken >> 20,
            kib_per_member=(taken - before) // count >> 10,
        )


async def serve_until_stopped(settings: SimSettings) -> None:
    """Run a simulated member until told to stop."""
    stopped = stop_event()
    async with running_sim(settings) as url:
        command = f"kubectl --kubeconfig {Installation(settings.data_dir).kubeconfig}"
        await stay_until(stopped, "member", member=settings.name, url=url, connect_with=command)
