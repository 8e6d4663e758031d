"""Probe, version, nodes, resources, APIs of one member into Cluster.status.

The hub does this for each Push cluster, the agent for its own; both write only what changed.

    report = await collect(member, discovery)
    status = next_status(cluster, report, ...)
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, FINALIZER, conditions_of, is_pull
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import Client, ClusterClient, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import (
    AddressNotAllowed,
    ApiError,
    ClusterError,
    CredentialsUnclaimed,
    CredentialsUnusable,
    Forbidden,
    NotFound,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import MemberClients
from clusterspace.fleet.membership.health import (
    READY,
    Health,
    History,
    State,
    Thresholds,
    probe,
    ready_condition,
    why_of,
)
from clusterspace.fleet.membership.member_access import read_identity
from clusterspace.fleet.membership.room import (
    estimate_of,
    node_summary,
    resource_summary,
    usage_of,
)
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    Condition,
    find_condition,
    set_condition,
)
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
)
from clusterspace.kube.times import format_time, parse_time
from clusterspace.telemetry import fleet_metrics
from clusterspace.telemetry.fleet_metrics import ClusterFigures

_log = structlog.get_logger(__name__)

COMPLETE_APIS: Final = "CompleteAPIEnablements"

NOTHING_SERVED: Final = ServedResources(())

_PROBE_AGAIN_SECONDS: Final = 5.0

# Answered from the member's memory: a summary need not be exact to the last second.
_ANY_AGE: Final = ListOptions(resource_version="0")
_RUNNING: Final = ListOptions(
    resource_version="0", field_selector="status.phase!=Succeeded,status.phase!=Failed"
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The version, APIs, nodes, pods and properties of a member, as it reported them."""

    version: str = ""
    served: ServedResources = NOTHING_SERVED
    nodes: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    quotas: Sequence[Object] | None = None
    """Its ResourceQuotas; None when it did not tell them."""


@dataclass(frozen=True, slots=True)
class Report:
    """One look at a member; without an inventory when it did not tell what it has."""

    health: Health
    inventory: Inventory | None = None
    was_asked: bool = True
    """Whether it was asked for its inventory; else it has what it had when it was."""


async def collect(
    member: ClusterClient, discovery: Discovery, *, takes_inventory: bool = True
) -> Report:
    """Look at a member: how it is and, if it is well and that is wanted, what it has.

    What it has may take long to list. A member that falls silent meanwhile would be believed well
    for as long as all these requests may take, so how it is is looked at again in between.
    """
    health = await probe(member.connection)
    if not health.is_ready or not takes_inventory:
        return Report(health, was_asked=takes_inventory or not health.is_ready)
    # In a task of its own, and awaited below whatever happens.
    taking = asyncio.ensure_future(_take_inventory(member, discovery))  # noqa: TID251
    try:
        while not (await asyncio.wait((taking,), timeout=_PROBE_AGAIN_SECONDS))[0]:
            health = await probe(member.connection)
            if not health.is_ready:
                return Report(health)
        return Report(health, taking.result())
    except (ApiError, ClusterError) as error:
        # It is well, and has what it had when it last told: one slow list is no outage.
        _log.warning("inventory not taken", cluster=member.cluster, reason=str(error))
        return Report(health)
    finally:
        taking.cancel()
        await asyncio.wait((taking,))
        if not taking.cancelled():
            taking.exception()  # seen: nobody is to be told of it any more


async def _take_inventory(member: ClusterClient, discovery: Discovery) -> Inventory:
    version = await member.connection.ask(ApiRequest("GET", "/version"))
    info = msgspec.json.decode(version.body, type=dict[str, Any])
    quotas: Sequence[Object] | None = None
    # Somebody who may not read them is told of the rest all the same.
    with suppress(Forbidden, NotFound):
        quotas = await member.list_objects(ResourcePath(manifests.RESOURCE_QUOTAS), _ANY_AGE)
    return Inventory(
        version=str(info.get("gitVersion") or ""),
        served=await discovery.served(),
        nodes=await member.list_objects(ResourcePath(manifests.NODES), _ANY_AGE),
        pods=await member.list_objects(ResourcePath(manifests.PODS), _RUNNING),
        properties=(await read_identity(member)).properties,
        quotas=quotas,
    )


def api_enablements(served: ServedResources) -> list[Object]:
    """Return `status.apiEnablements`: the served resources by group version, in a fixed order."""
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
    before = cast("Object", status.get("estimate") or {})
    inventory = report.inventory
    if inventory is None:
        # What it had is the best that is known, and it is told since when nothing was heard.
        if report.was_asked and before and "staleSince" not in before:
            status = {**status, "estimate": {**before, "staleSince": format_time(now)}}
    else:
        usage = usage_of(inventory.pods)
        models = cast("list[Object]", find_at(cluster, "spec", "resourceModels") or [])
        conditions = set_condition(status.get("conditions"), apis_condition(inventory.served), now)
        left = ("clusterProperty", "estimate")
        status = {key: value for key, value in status.items() if key not in left} | {
            "kubernetesVersion": inventory.version,
            "apiEnablements": api_enablements(inventory.served),
            "nodeSummary": node_summary(inventory.nodes),
            "resourceSummary": resource_summary(inventory.nodes, usage, models),
            "conditions": conditions.conditions,
        }
        estimate = estimate_of(inventory.nodes, usage, inventory.quotas, before)
        if estimate:
            status["estimate"] = estimate
        if inventory.properties:
            status["clusterProperty"] = dict(sorted(inventory.properties.items()))
    present = find_condition(status.get("conditions"), READY)
    if present is not None and history.is_ready != report.health.is_ready:
        return status
    conditions = set_condition(status.get("conditions"), ready_condition(report.health), now)
    return {**status, "conditions": conditions.conditions}


class StatusWriter:
    """Writes the status of Clusters, and remembers of each how long it has looked otherwise."""

    def __init__(
        self, hub: Client, events: EventRecorder, clock: Clock, thresholds: Thresholds
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._thresholds = thresholds
        self._histories: dict[str, History] = {}

    async def write(self, cluster: Object, report: Report) -> Object:
        """Write what a look at a member changed, if anything; return the Cluster as it is now."""
        name = name_of(cluster)
        # After a restart nothing is remembered: what is seen first counts at once. It is remembered
        # before it is written: a write that is refused is tried again with a newer Cluster, and the
        # time for which a change must be seen runs on.
        seen = self._histories.get(name, History())
        history = seen.see(report.health.is_ready, self._clock.monotonic(), self._thresholds)
        self._histories[name] = history
        if not report.was_asked and report.health.is_ready and ready_status(cluster) == TRUE:
            return cluster  # it was well and is; a thousand members are as good as never otherwise
        status = next_status(cluster, report, history, self._clock.now())
        path = manifests.cluster_path(name)
        after = await commit(self._hub, path, cluster, {**cluster, "status": status})
        record_transition(self._events, cluster, after)
        return after

    def is_failing(self, cluster_name: str) -> bool:
        """Whether the last look found a cluster unwell that still counts as ready."""
        history = self._histories.get(cluster_name, History())
        return bool(history.is_ready) and history.otherwise_since is not None

    def forget(self, cluster_name: str) -> None:
        """Forget a cluster that left."""
        self._histories.pop(cluster_name, None)


def ready_status(cluster: Object) -> str:
    """Return True, False or Unknown as the Ready condition says; empty when there is none."""
    found = find_condition(conditions_of(cluster), READY)
    return "" if found is None else str(found.get("status") or "")


def record_transition(events: EventRecorder, before: Object, after: Object) -> None:
    """Record an Event, and count it, when the Ready condition changed."""
    if ready_status(before) == ready_status(after):
        return
    ready = find_condition(conditions_of(after), READY) or {}
    reason, message = str(ready.get("reason")), str(ready.get("message"))
    events.record(after, reason, message, is_warning=ready.get("status") != TRUE)
    fleet_metrics.cluster_changed(name_of(after), ready_status(after))


def figures_of(cluster: Object) -> ClusterFigures:
    """Return the figures of a cluster that are metrics."""
    return ClusterFigures(
        is_ready=ready_status(cluster) == TRUE,
        nodes=int(find_at(cluster, "status", "nodeSummary", "totalNum") or 0),
        ready_nodes=int(find_at(cluster, "status", "nodeSummary", "readyNum") or 0),
    )


FREQUENCY_SECONDS: Final = 10.0

_CLAIM_SECONDS: Final = 30.0
"""A join writes the Cluster, then whose its Secrets are. A look in between would find a cluster
that cannot be asked, and what is seen first counts at once. A join that ended there is told later.
"""
_CLAIM_LOOK_SECONDS: Final = 0.5


_INVENTORIES_PER_SECOND: Final = 10.0
"""How many members are asked what they have, in all: each of a hundred at every look, each of a
thousand at every tenth. Whether they are well is asked of all of them at every look."""


@dataclass(slots=True)
class _Member:
    client: ClusterClient
    discovery: Discovery
    reported_at: float = -math.inf
    """When the look began in which it last reported what it has."""


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """How often members are looked at, and for how long a change must be seen."""

    frequency_seconds: float = FREQUENCY_SECONDS
    thresholds: Thresholds = field(default_factory=Thresholds)


class PushStatus(Reconciler):
    """Writes the status of Push clusters, again and again."""

    name = "push-status"
    workers = 64  # a dead member takes seconds, and must not keep the others waiting

    def __init__(
        self,
        hub: ClusterClient,
        caches: HubCaches,
        events: EventRecorder,
        members: MemberClients,
        settings: StatusSettings,
    ) -> None:
        self._hub = hub
        self._clusters = caches.informer(CLUSTERS)
        self._members = members
        self._clock = hub.connection.clock
        self._writer = StatusWriter(hub, events, self._clock, settings.thresholds)
        self._frequency_seconds = settings.frequency_seconds
        self.longest_retry_seconds = settings.frequency_seconds
        self._known: dict[str, _Member] = {}

    def watches(self) -> Iterable[Watch]:
        """Return Clusters that are new, are leaving, or say another way to be reached."""
        yield Watch(self._clusters, when=is_reached_anew)

    async def reconcile(self, request: Request) -> Result:
        """Look at one member and write what changed."""
        # As it is known here: a thousand members would be ten Clusters of 20 KB every tenth of a
        # second. What the hub has meanwhile makes our write a conflict, and is known by the next.
        cluster = self._clusters.cache.find(request.name)
        if cluster is None:
            await self._members.forget(request.name)
        if cluster is None or is_being_deleted(cluster):
            self._known.pop(request.name, None)
            fleet_metrics.cluster_forgotten(request.name)
            self._writer.forget(request.name)
            return Done()
        if is_pull(cluster) or FINALIZER not in finalizers_of(cluster):
            return Done()
        # Read above, written below, with seconds in between while a dead member is waited for.
        # Whoever wrote the Cluster meanwhile, taints above all, makes our write a conflict: then
        # all of this is done again, and no sooner than anybody else's change was taken in.
        started = self._clock.monotonic()
        report = await self._look(cluster)
        if report is None:
            return RequeueAfter(_CLAIM_LOOK_SECONDS)
        after = await self._writer.write(cluster, report)
        seconds = self._clock.monotonic() - started
        fleet_metrics.cluster_seen(request.name, figures_of(after), seconds)
        # The next look begins a period after this one began, however long this one took.
        return RequeueAfter(max(self._frequency_seconds - seconds, 0.0))

    def is_failing(self, cluster_name: str) -> bool:
        """Whether a cluster did not look ready a moment ago, however ready its condition says."""
        return self._writer.is_failing(cluster_name)

    async def _look(self, cluster: Object) -> Report | None:
        """Look at a member; None while the join that made its Cluster is still under way."""
        try:
            member = await self._members.reach(cluster)
        except CredentialsUnclaimed as error:
            born = parse_time(str(metadata_of(cluster)["creationTimestamp"]))
            if self._clock.now() - born < _CLAIM_SECONDS:
                return None
            return Report(Health(State.UNPROBED, error.why))
        except AddressNotAllowed as error:
            return Report(Health(State.UNPROBED, why_of(error)))
        except (CredentialsUnusable, UnusableKubeconfig) as error:
            return Report(Health(State.UNPROBED, str(error)))
        known = self._known.get(name_of(cluster))
        if known is None or known.client is not member:
            known = _Member(member, Discovery(member.connection, fresh_seconds=0))
            self._known[name_of(cluster)] = known
        started = self._clock.monotonic()
        # One that is not believed to be well is asked at each look: what it has is news the moment
        # it is back.
        pause = inventory_pause(len(self._known), self._frequency_seconds)
        is_due = started - known.reported_at >= pause or ready_status(cluster) != TRUE
        report = await collect(member, known.discovery, takes_inventory=is_due)
        if report.inventory is not None:
            known.reported_at = started
        elif not report.health.is_ready:
            known.reported_at = -math.inf
        return report


def inventory_pause(members: int, look_seconds: float) -> float:
    """Return how long a member is not asked again what it has, when so many are looked at.

    Half a look less than is meant: looks come a little early or late.
    """
    return members / _INVENTORIES_PER_SECOND - look_seconds / 2


def is_reached_anew(update: Update) -> bool:
    """Whether a Cluster is new, is leaving, or says another way to reach its member."""
    before, after = update.decode_before(), update.decode_after()
    return before is None or after is None or _reached(before) != _reached(after)


def _reached(cluster: Object) -> tuple[object, ...]:
    """Return how a member is reached; without taints, which come and go with what was seen."""
    spec = {key: value for key, value in cluster["spec"].items() if key != "taints"}
    return spec, finalizers_of(cluster), is_being_deleted(cluster)


RETRY_SECONDS: Final = 2.0
"""How soon to try again when the hub was not there: it is to hear from us within ten seconds."""

ANSWER_SECONDS: Final = 5.0
"""How long the hub may take: a request that hangs in a cut network must not outlast the cut."""


class PullStatus:
    """Looks at the agent's own cluster, and writes what changed to the hub, again and again."""

    def __init__(
        self,
        hub: Client,
        cluster_name: str,
        member: ClusterClient,
        events: EventRecorder,
        settings: StatusSettings,
    ) -> None:
        self._hub = hub
        self._name = cluster_name
        self._member = member
        self._discovery = Discovery(member.connection, fresh_seconds=0)
        self._clock = member.connection.clock
        self._writer = StatusWriter(hub, events, self._clock, settings.thresholds)
        self._frequency_seconds = settings.frequency_seconds
        self._trouble = ""

    async def run(self) -> None:
        """Report how the cluster is, until cancelled."""
        while True:
            next_look = self._clock.monotonic() + self._frequency_seconds
            try:
                await self.look()
                self._trouble = ""
            except (ApiError, ClusterError, TimeoutError) as error:
                # Logged once: an agent may wait for days until its hub knows it.
                if repr(error) != self._trouble:
                    _log.warning("status not told", cluster=self._name, reason=repr(error))
                self._trouble = repr(error)
                next_look = self._clock.monotonic() + min(RETRY_SECONDS, self._frequency_seconds)
            await self._clock.sleep(max(next_look - self._clock.monotonic(), 0.0))

    async def look(self) -> Object:
        """Look once; return the Cluster as the hub holds it afterwards."""
        if is_being_deleted(cluster := await self._cluster()):
            return cluster
        report = await collect(self._member, self._discovery)
        # Looking takes a while, and meanwhile the hub's controllers write too. So the Cluster is
        # read anew, and what a conflict would cost, a whole look, is seldom paid.
        cluster = await self._cluster()
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._writer.write(cluster, report)

    async def _cluster(self) -> Object:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._hub.get(manifests.cluster_path(self._name))
