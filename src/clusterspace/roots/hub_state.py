"""What the verbs of an API server work on, and what is in it before anybody asks."""

import asyncio
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor, Tasks, Work, keep_all, report
from clusterspace.apis.crds import definitions
from clusterspace.apiserver.access.authorizer import Access
from clusterspace.apiserver.access.default_roles import (
    RoleAggregator,
    install_component_roles,
    install_default_roles,
)
from clusterspace.apiserver.admission.clusters import tie_all
from clusterspace.apiserver.admission.plugins import AdmissionSwitches, hub_plugins
from clusterspace.apiserver.admission.unenforced import UnenforcedKinds
from clusterspace.apiserver.admission.validating_policies import PolicyTypeChecks
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.housekeeping import (
    GarbageCollector,
    NamespaceController,
    expire_events,
)
from clusterspace.apiserver.hub_leases import HubLeases
from clusterspace.apiserver.protection import StorageProtection
from clusterspace.apiserver.quota_controller import QuotaController
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Store
from clusterspace.apiserver.writing import create_own, leading
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.requests import ResourcePath
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.leases import LEASES, Candidacy, Epoch, LeaderElection
from clusterspace.errors import AlreadyExists, LeadershipLost, StoreFull
from clusterspace.roots.processes import process_identity

_log = structlog.get_logger(__name__)

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_MANAGER: Final = "kube-apiserver"


def build_state(
    store: Store,
    clock: Clock,
    access: Access,
    members: AddressRules | None = None,
    *,
    unenforced: UnenforcedKinds | None = None,
    switches: AdmissionSwitches | None = None,
    optional_apis: Collection[str] = (),
) -> HubState:
    """Build what verbs work on; a server with warnings of its own (`unenforced`) is no hub."""
    rules, warnings = members or AddressRules(), unenforced or UnenforcedKinds()
    plugins = hub_plugins(access, rules, warnings, is_hub=unenforced is None)
    return HubState(
        store=store,
        catalog=Catalog(builtin_resources(optional_apis)),
        feeds=Feeds(store, clock),
        clock=clock,
        random=SystemRandom(),
        new_uid=lambda: str(uuid.uuid4()),
        webhooks=Webhooks(rules, clock),
        plugins=(switches or AdmissionSwitches()).applied_to(plugins),
    )


async def bootstrap(
    hub: HubState, access: Access, controller: CustomResourceController
) -> Work | None:
    """Make what every hub has: its namespaces, the default roles, our own kinds.

    A store without room is served as it is. What this version adds to it is made when there is
    room, before which nobody else can write either: the work that does so is returned.
    """

    async def make() -> None:
        await create_namespaces(hub)
        await controller.install(definitions())
        await controller.load()
        await install_default_roles(hub)
        await install_component_roles(hub)
        await tie_all(hub)
        await access.role_cache.load()

    async def make_when_there_is_room() -> None:
        for delay in clocks.exponential(1, 30):
            await hub.clock.sleep(delay)
            with suppress(StoreFull):
                await make()
                return

    try:
        await make()
    except StoreFull:
        await controller.load()
        await access.role_cache.load()
        return make_when_there_is_room
    return None


async def create_namespaces(hub: HubState, names: Iterable[str] = _NAMESPACES) -> None:
    """Make the namespaces every cluster has, or these, where they are missing."""
    namespaces = hub.catalog.get_storage("", "namespaces")
    for name in names:
        desired = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with suppress(AlreadyExists):
            await create_own(hub, namespaces, desired, _MANAGER)


def own_tasks(hub: HubState, definitions: CustomResourceController) -> Tasks:
    """Return the background tasks of every API server, however many share a store."""
    return {
        "custom resources": definitions.run,
        "resource quotas": QuotaController(hub).run,
        "connections to webhooks": hub.webhooks.run,
    }


def housekeeping(hub: HubState) -> Tasks:
    """Return the background tasks of which one API server on a store is enough."""
    return {
        "namespaces": NamespaceController(hub).run,
        "garbage collection": GarbageCollector(hub).run,
        "type checks of policies": PolicyTypeChecks(hub).run,
        "role aggregation": RoleAggregator(hub).run,
        "storage protection": StorageProtection(hub).run,
        "event expiry": lambda: expire_events(hub),
    }


HUB_LEASE: Final = ResourcePath(LEASES, "kube-system", "clusterspace-hub")
"""Whoever of the hubs on one store holds it does what is done for all of them."""


def by_one_hub(hub: HubState, tasks: Tasks) -> Tasks:
    """Return tasks that only one of the hubs on a store carries out; alone, it is this one.

    What they write carries the epoch of the Lease: a hub that was frozen while another took over
    writes nothing after it is thawed.
    """
    if not hub.store.is_shared:
        return tasks
    candidacy = Candidacy(HUB_LEASE, process_identity())
    leases = HubLeases(hub)

    async def work(election: LeaderElection, _: Epoch) -> None:
        leadership = election.leadership
        if leadership is None:
            return  # lost between two steps; the election begins again
        with leading(leadership):
            async with Supervisor(hub.clock, report) as running:
                keep_all(running, tasks)
                await asyncio.Event().wait()  # until the election cancels it

    async def stand_for_election() -> None:
        while True:
            election = LeaderElection(leases, candidacy, clock=hub.clock, random=hub.random)
            try:
                await election.lead(partial(work, election))
            except LeadershipLost as error:
                _log.warning("another hub looks after the store", reason=str(error))

    return {"housekeeping of all hubs": stand_for_election}
