"""`drain` and `rebalance` put together: one write on the hub each, and then a look now and then.

Nothing is moved from here. `drain` sets a taint on the Cluster, `rebalance` creates a
WorkloadRebalancer; the controllers do the rest. Killed anywhere, either nothing was asked for, or
they go on without us, and the same command looks again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis.clusters import DRAIN_TAINT, execution_namespace, taints_of
from clusterspace.apis.works import binding_key_of, clusters_of, template_of
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import Client
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import NotFound
from clusterspace.fleet.membership.controller import with_taints
from clusterspace.fleet.membership.manifests import cluster_path
from clusterspace.fleet.propagation.eviction.decisions import NO_EXECUTE, tasks_of
from clusterspace.fleet.propagation.explanation import find_named
from clusterspace.fleet.propagation.rebalancer import WORKLOAD_REBALANCERS
from clusterspace.fleet.propagation.scheduler.decisions import SCHEDULED
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.simulation import (
    Leaving,
    LiveFleet,
    Preview,
    drained,
    placed_anew,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of, namespace_of
from clusterspace.kube.times import format_time, parse_time
from clusterspace.roots.clients import open_client
from clusterspace.roots.simulation import read_bindings, read_fleet, read_works

KEPT_SECONDS: Final = 3600
"""How long a rebalancer that has done its work stays, for people to look at."""


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What draining a cluster does, and since when it is under way, if it is."""

    cluster: str
    leaving: Leaving
    since: str = ""


class Step(Enum):
    """How far a workload is on its way."""

    WAITS = "waits"
    MOVES = "moves"
    STOPS = "stops"
    LEFT = "left"
    PLACED = "placed"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come."""
        return self in (Step.LEFT, Step.PLACED)


@dataclass(frozen=True, slots=True)
class Progress:
    """One workload on its way."""

    kind: str
    namespace: str
    name: str
    step: Step
    on: tuple[str, ...]
    """Where it is to be now."""
    why: str = ""
    """What it waits for."""


async def plan_drain(name: str, hub: ConnectionSettings) -> DrainPlan:
    """Return what draining a cluster would do; nothing is written."""
    async with open_client(hub) as hub_client:
        cluster = await hub_client.get(cluster_path(name))
        fleet = await read_fleet(hub_client, (name,))
    taint = next((each for each in taints_of(cluster) if each.get("key") == DRAIN_TAINT), None)
    since = "" if taint is None else str(taint.get("timeAdded") or "earlier")
    return DrainPlan(name, drained(fleet, name, SystemClock()), since)


async def set_drain(name: str, hub: ConnectionSettings, *, is_on: bool) -> bool:
    """Have everything leave a cluster that may, or end that; return whether it was otherwise."""
    async with open_client(hub) as hub_client:
        return await write_drain(hub_client, name, SystemClock(), is_on=is_on)


async def write_drain(hub: Client, name: str, clock: Clock, *, is_on: bool) -> bool:
    """Set or remove the taint, in one write; return whether that changed anything."""
    taint = {"key": DRAIN_TAINT, "effect": NO_EXECUTE, "timeAdded": format_time(clock.now())}
    was_on = False

    def changed(cluster: Object) -> Object:
        nonlocal was_on
        others = [each for each in taints_of(cluster) if each.get("key") != DRAIN_TAINT]
        was_on = len(others) < len(taints_of(cluster))
        if is_on is was_on:
            return cluster
        return with_taints(cluster, [*others, taint] if is_on else others)

    # Heartbeats and taints of others are written to the same object, all the time.
    await commit_change(hub, cluster_path(name), changed)
    return is_on is not was_on


async def drain_progress(
    name: str, workloads: Iterable[Preview], hub: ConnectionSettings
) -> tuple[Progress, ...]:
    """Return how far each workload is on its way off a cluster."""
    async with open_client(hub) as hub_client:
        fleet = LiveFleet(
            bindings=await read_bindings(hub_client), works=await read_works(hub_client, (name,))
        )
    return progress_of(name, workloads, fleet)


def progress_of(name: str, workloads: Iterable[Preview], fleet: LiveFleet) -> tuple[Progress, ...]:
    """Return how far each workload is on its way off a cluster, by what the hub has."""
    works = {
        binding_key_of(each): each
        for each in fleet.works
        if namespace_of(each) == execution_namespace(name)
    }
    bindings = {template_of(each).subject[1:]: each for each in fleet.bindings}
    found: list[Progress] = []
    for workload in workloads:
        subject = (workload.kind, workload.namespace, workload.name)
        binding = bindings.get(subject)
        if binding is None:
            found.append(Progress(*subject, Step.LEFT, (), "it was deleted meanwhile"))
            continue
        on = tuple(each.name for each in clusters_of(binding))
        work = works.get(key_of(namespace_of(binding), name_of(binding)))
        conditions = find_at(binding, "status", "conditions")
        is_task = any(each.get("fromCluster") == name for each in tasks_of(binding))
        if name in on:
            scheduled = find_condition(conditions, SCHEDULED) or {}
            why = "waits for its turn"
            if is_task:
                is_placed = scheduled.get("status") == "True"
                why = "waits for the scheduler" if is_placed else str(scheduled.get("message"))
            found.append(Progress(*subject, Step.WAITS, on, why))
        elif work is None:
            found.append(Progress(*subject, Step.LEFT, on))
        else:
            written = find_condition(conditions, "WorksWritten") or {}
            why = str(written.get("message") or "")
            if is_being_deleted(work):
                found.append(Progress(*subject, Step.STOPS, on, why or "its old copy goes"))
            else:
                waits = "waits for what replaces it to be healthy"
                found.append(Progress(*subject, Step.MOVES, on, why or waits))
    return tuple(found)


# -- rebalance -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What placing workloads anew would do."""

    previews: tuple[Preview, ...]
    references: tuple[Object, ...]
    """Those that would move, as a WorkloadRebalancer names them."""


async def plan_rebalance(
    words: Sequence[tuple[str, str]], namespace: str, cluster: str, hub: ConnectionSettings
) -> RebalancePlan:
    """Return what placing workloads anew would do: those named, or all, of a namespace or all.

    NotFound for one that is not placed.
    """
    async with open_client(hub) as hub_client:
        fleet = await read_fleet(hub_client)
        served = await Discovery(hub_client.connection).served() if words else None
    if cluster and all(name_of(each) != cluster for each in fleet.clusters):
        raise NotFound(f"clusters.cluster.karmada.io {cluster} not found")
    chosen: list[Object] = []
    for kind, name in words:
        resource = find_named(served, kind) if served is not None else None
        inside = namespace if resource is not None and resource.namespaced else ""
        subject = (resource.kind if resource is not None else kind, inside, name)
        binding = next((b for b in fleet.bindings if template_of(b).subject[1:] == subject), None)
        if binding is None:
            where = f" in {inside}" if inside else ""
            raise NotFound(f"{kind}/{name}{where} is not placed; `clusterspace why` says why")
        chosen.append(binding)
    if not words:
        chosen = [
            each
            for each in fleet.bindings
            if is_to_schedule(each)
            and (not namespace or namespace_of(each) == namespace)
            and (not cluster or any(one.name == cluster for one in clusters_of(each)))
        ]
    previews = placed_anew(fleet, chosen, SystemClock())
    moving = {
        (each.kind, each.namespace, each.name) for each in previews if each.before != each.after
    }
    references: list[Object] = []
    for each in map(template_of, chosen):
        if each.subject[1:] in moving:
            reference = {"apiVersion": each.api_version, "kind": each.kind, "name": each.name}
            references.append(
                {**reference, "namespace": each.namespace} if each.namespace else reference
            )
    return RebalancePlan(previews, tuple(references))


async def begin_rebalance(references: Sequence[Object], hub: ConnectionSettings) -> str:
    """Create the WorkloadRebalancer; return its name."""
    now = SystemClock().now()
    name = f"rebalance-{format_time(now).lower().translate(str.maketrans('', '', '-:'))}"
    rebalancer = {
        "apiVersion": "apps.karmada.io/v1alpha1",
        "kind": "WorkloadRebalancer",
        "metadata": {"name": name},
        "spec": {"workloads": list(references), "ttlSecondsAfterFinished": KEPT_SECONDS},
    }
    async with open_client(hub) as hub_client:
        await hub_client.create(ResourcePath(WORKLOAD_REBALANCERS), rebalancer)
    return name


async def rebalance_progress(
    references: Sequence[Object], hub: ConnectionSettings
) -> tuple[Progress, ...]:
    """Return how far each workload is that was asked to be placed anew."""
    async with open_client(hub) as hub_client:
        listed = await read_bindings(hub_client)
    bindings = {template_of(each).subject[1:]: each for each in listed}
    found: list[Progress] = []
    for each in references:
        subject = (str(each["kind"]), str(each.get("namespace") or ""), str(each["name"]))
        binding = bindings.get(subject)
        if binding is None:
            found.append(Progress(*subject, Step.LEFT, (), "it was deleted meanwhile"))
            continue
        on = tuple(
            f"{one.name}:{one.replicas}" if one.replicas else one.name
            for one in clusters_of(binding)
        )
        asked = find_at(binding, "spec", "rescheduleTriggeredAt")
        last = find_at(binding, "status", "lastScheduledTime")
        is_placed = asked and last and parse_time(str(last)) >= parse_time(str(asked))
        if not is_placed:
            found.append(Progress(*subject, Step.WAITS, on, "waits for the scheduler"))
            continue
        reports: list[Object] = find_at(binding, "status", "aggregatedStatus") or []
        healthy = {str(one.get("clusterName")) for one in reports if one.get("health") == "Healthy"}
        unwell = [one.name for one in clusters_of(binding) if one.name not in healthy]
        if unwell:
            why = f"waits for {', '.join(unwell)} to be healthy"
            found.append(Progress(*subject, Step.MOVES, on, why))
        else:
            found.append(Progress(*subject, Step.PLACED, on))
    return tuple(found)
