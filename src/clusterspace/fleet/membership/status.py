"""Probe, version, nodes, resources, APIs of one member into Cluster.status.

The hub runs this for each Push cluster, the agent for its own; both write only what changed.

    report = await collect(member, models)
    status = next_status(cluster, report, ...)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import conditions_of
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.places import Place
from clusterspace.client.requests import ApiRequest
from clusterspace.client.resources import Client, ClusterClient, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import names, summaries
from clusterspace.fleet.membership.health import (
    READY,
    Health,
    History,
    Thresholds,
    probe,
    ready_condition,
)
from clusterspace.fleet.membership.identity import read_identity
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.telemetry import fleet_metrics
from clusterspace.telemetry.fleet_metrics import ClusterFigures

_log = structlog.get_logger(__name__)

COMPLETE_APIS: Final = "CompleteAPIEnablements"

NOTHING_SERVED: Final = ServedResources(())

# Answered from the member's memory: a summary need not be exact to the last second.
_ANY_AGE: Final = ListOptions(resource_version="0")
_RUNNING: Final = ListOptions(
    resource_version="0", field_selector="status.phase!=Succeeded,status.phase!=Failed"
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a member that can be asked tells of itself."""

    version: str = ""
    served: ServedResources = NOTHING_SERVED
    nodes: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Report:
    """One look at a member; without an inventory when it did not tell what it has."""

    health: Health
    inventory: Inventory | None = None


async def collect(member: ClusterClient, discovery: Discovery) -> Report:
    """Look at a member: how it is and, if it is well, what it has."""
    health = await probe(member.connection)
    if not health.is_ready:
        return Report(health)
    try:
        return Report(health, await _take_inventory(member, discovery))
    except (ApiError, ClusterError) as error:
        # It is well, and has what it had when it last told: one slow list is no outage.
        _log.warning("inventory not taken", cluster=member.cluster, reason=str(error))
        return Report(health)


async def _take_inventory(member: ClusterClient, discovery: Discovery) -> Inventory:
    version = await member.connection.ask(ApiRequest("GET", "/version"))
    told = msgspec.json.decode(version.body, type=dict[str, Any])
    return Inventory(
        version=str(told.get("gitVersion") or ""),
        served=await discovery.served(),
        nodes=await member.list_objects(Place(names.NODES), _ANY_AGE),
        pods=await member.list_objects(Place(names.PODS), _RUNNING),
        properties=(await read_identity(member)).properties,
    )


def api_enablements(served: ServedResources) -> list[Object]:
    """Return what a member serves, group version by group version, in a fixed order."""
    groups: dict[str, dict[str, str]] = {}
    for each in served.resources:
        groups.setdefault(each.api_version, {})[each.plural] = each.kind
    return [
        {
            "groupVersion": version,
            "resources": [
                {"kind": groups[version][name], "name": name} for name in sorted(groups[version])
            ],
        }
        for version in sorted(groups)
    ]


def apis_condition(served: ServedResources) -> Condition:
    """Return whether all of what the member serves is known."""
    if not served.resources:
        message = "collected empty APIEnablements from the cluster"
        return Condition(COMPLETE_APIS, FALSE, "Empty", message)
    if served.failed:
        message = "might collect partial APIEnablements from the cluster"
        return Condition(COMPLETE_APIS, FALSE, "Partial", message)
    message = "collected complete APIEnablements from the cluster"
    return Condition(COMPLETE_APIS, TRUE, "Complete", message)


def next_status(cluster: Object, report: Report, history: History, now: float) -> Object:
    """Return the status a Cluster is to have after a look at it.

    `history` is what counts after this look. While a change has yet to last, and whenever the
    member cannot be asked, the rest of the status stays what it was.
    """
    status: Object = cluster.get("status") or {}
    if report.inventory is not None:
        status = _with_inventory(status, cluster, report.inventory, now)
    present = find_condition(status.get("conditions"), READY)
    if present is not None and history.is_ready != report.health.is_ready:
        return status
    conditions = set_condition(status.get("conditions"), ready_condition(report.health), now)
    return {**status, "conditions": conditions.conditions}


def _with_inventory(status: Object, cluster: Object, inventory: Inventory, now: float) -> Object:
    models = cast("list[Object]", find_at(cluster, "spec", "resourceModels") or [])
    conditions = set_condition(status.get("conditions"), apis_condition(inventory.served), now)
    collected: Object = {
        "kubernetesVersion": inventory.version,
        "apiEnablements": api_enablements(inventory.served),
        "clusterProperty": dict(sorted(inventory.properties.items())),
        "nodeSummary": summaries.node_summary(inventory.nodes),
        "resourceSummary": summaries.resource_summary(inventory.nodes, inventory.pods, models),
        "conditions": conditions.conditions,
    }
    if not inventory.properties:
        del collected["clusterProperty"]
    kept = {key: value for key, value in status.items() if key != "clusterProperty"}
    return {**kept, **collected}


class StatusKeeper:
    """Keeps the status of Clusters current, and remembers of each what counts."""

    def __init__(
        self, hub: Client, events: EventRecorder, *, clock: Clock, thresholds: Thresholds
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._thresholds = thresholds
        self._histories: dict[str, History] = {}

    async def write(self, cluster: Object, report: Report) -> Object:
        """Write what a look at a member changed, if anything; return the Cluster as it is now."""
        name = name_of(cluster)
        # After a restart nothing is remembered: what is seen first counts at once.
        seen = self._histories.get(name, History())
        history = seen.see(report.health.is_ready, self._clock.monotonic(), self._thresholds)
        self._histories[name] = history
        status = next_status(cluster, report, history, self._clock.now())
        place = names.cluster_place(name)
        after = await commit(self._hub, place, cluster, {**cluster, "status": status})
        tell_transition(self._events, cluster, after)
        return after

    def forget(self, cluster_name: str) -> None:
        """Forget a cluster that left."""
        self._histories.pop(cluster_name, None)


def ready_status(cluster: Object) -> str:
    """Return True, False or Unknown as the Ready condition says; empty when there is none."""
    found = find_condition(conditions_of(cluster), READY)
    return "" if found is None else str(found.get("status") or "")


def tell_transition(events: EventRecorder, before: Object, after: Object) -> None:
    """Record an Event, and count it, when the Ready condition changed."""
    if ready_status(before) == ready_status(after):
        return
    ready = find_condition(conditions_of(after), READY) or {}
    reason, message = str(ready.get("reason")), str(ready.get("message"))
    events.record(after, reason, message, is_warning=ready.get("status") != TRUE)
    fleet_metrics.cluster_changed(name_of(after), ready_status(after))


def figures_of(cluster: Object) -> ClusterFigures:
    """Return what is measured of a cluster."""
    return ClusterFigures(
        is_ready=ready_status(cluster) == TRUE,
        nodes=int(find_at(cluster, "status", "nodeSummary", "totalNum") or 0),
        ready_nodes=int(find_at(cluster, "status", "nodeSummary", "readyNum") or 0),
    )
