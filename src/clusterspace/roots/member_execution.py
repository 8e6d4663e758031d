"""Execution for one cluster alone, as its agent runs it: with the agent's rights on the hub."""

from random import SystemRandom

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apis.clusters import CLUSTERS, WORKS, execution_namespace
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.controllers.background import report
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer, Update
from clusterspace.fleet.execution.controller import Executor, Office

_log = structlog.get_logger(__name__)


async def run_member_execution(
    hub: ClusterClient,
    cluster_name: str,
    member: ClusterClient,
    events: EventRecorder,
    clock: Clock,
) -> None:
    """Keep a member as its Works say, until cancelled."""
    works = Informer(hub, ResourcePath(WORKS, execution_namespace(cluster_name)))
    own = ListOptions(field_selector=f"metadata.name={cluster_name}")
    clusters = Informer(hub, ResourcePath(CLUSTERS), selection=own)
    office = Office(
        hub=hub,
        works=works.cache,
        find_cluster=lambda: clusters.cache.find(cluster_name),
        events=events,
        clock=clock,
        random=SystemRandom(),
        tells_templates=False,
    )
    executor = Executor(cluster_name, member, office)
    works.add_handler(executor.work_changed)
    clusters.add_handler(lambda update: _tell_cluster(executor, update))
    async with Supervisor(clock, report) as tasks:
        tasks.keep("works", works.run)
        tasks.keep("cluster", clusters.run)
        await works.wait_synced()
        await clusters.wait_synced()
        await executor.run()


def _tell_cluster(executor: Executor, update: Update) -> None:
    after = update.decode_after()
    if after is not None:
        executor.cluster_changed(update.decode_before(), after)
