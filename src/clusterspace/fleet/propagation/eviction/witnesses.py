"""Whether a Push cluster that looks dead does so from more than one place.

    Leases of witnesses ──seen to be renewed──> reports ──┬──> Eviction: begins, or waits
                                                          ├──> NoExecute taints by policies
                                                          └──> Cluster: UnreachableConfirmed

A Pull cluster says itself that it is there, to every hub that it can reach. Of a Push cluster the
leader of the controllers says so alone, and a cable that it has lost looks like a dead cluster. So
others are asked, who agree or do not: nothing that they say begins an eviction by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import CLUSTERS, conditions_of, is_pull
from clusterspace.apis.witnesses import (
    CONFIRMED,
    FRESH_SECONDS,
    LEASE_NAMESPACE,
    WitnessReport,
    read_report,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
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
from clusterspace.controllers.leases import LEASES
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    find_condition,
    set_condition,
)
from clusterspace.kube.objects import (
    Object,
    is_being_deleted,
    name_of,
    resource_version_of,
    uid_of,
    with_value,
)

AGREED: Final = "NotReachedFromElsewhere"
REACHED: Final = "ReachedFromElsewhere"
DEAF: Final = "WitnessesHearNobody"
UNSEEN: Final = "NoWitness"

_LOOK_SECONDS: Final = 5.0


def judge(uid: str, reports: Sequence[WitnessReport], needed: int) -> Condition:
    """Return whether a cluster that the leader does not reach is not reached by others, either.

    One place that reaches it outweighs all others: what answers is not dead. A witness that hears
    hardly any of the clusters that are well has lost its own network, and counts for nothing.
    """
    reaching = [each for each in reports if uid in each.answering]
    silent = [each for each in reports if uid in each.away]
    agreeing = [each for each in silent if each.is_credible]
    if reaching:
        what = f"{_places(reaching)} reaches it: it is the leader of the controllers that does not"
        return Condition(CONFIRMED, FALSE, REACHED, what)
    if len(agreeing) >= needed:
        return Condition(CONFIRMED, TRUE, AGREED, f"not reached from {_places(agreeing)}, either")
    if agreeing:
        what = f"not reached from {_places(agreeing)}, either; {needed} other places have to say so"
        return Condition(CONFIRMED, UNKNOWN, UNSEEN, what)
    if silent:
        what = (
            f"{_places(silent)} does not reach it, and hardly any of the clusters that are ready: "
            "that proves nothing"
        )
        return Condition(CONFIRMED, UNKNOWN, DEAF, what)
    if reports:
        what = f"{_places(reports)} has no way to ask it, or has not looked twice yet"
        return Condition(CONFIRMED, UNKNOWN, UNSEEN, what)
    what = (
        "nobody but the leader of the controllers has looked whether it answers: run a fleet API "
        "server or a second process of the controllers, best on another machine "
        "(--eviction-witnesses)"
    )
    return Condition(CONFIRMED, UNKNOWN, UNSEEN, what)


def _places(reports: Iterable[WitnessReport]) -> str:
    return ", ".join(sorted(each.place or each.identity for each in reports))


@dataclass(frozen=True, slots=True)
class _Seen:
    version: str
    report: WitnessReport | None
    at: float | None
    """When this renewal was seen, by our own steady clock; None when we did not see it happen."""


class Witnesses:
    """What others say of clusters, as long as they are seen to say it; made by `caches.shared`."""

    def __init__(self, caches: HubCaches) -> None:
        self._clock = caches.hub.connection.clock
        self.leases = caches.informer(LEASES, LEASE_NAMESPACE)
        self._seen: dict[str, _Seen] = {}
        self.leases.add_handler(self._lease_changed)

    def judge(self, uid: str, needed: int) -> Condition:
        """Return whether as many other places as needed do not reach a cluster, just now."""
        return judge(uid, self.reports(), needed)

    def reports(self) -> list[WitnessReport]:
        """Return what witnesses said a moment ago; what they said before is no news."""
        since = self._clock.monotonic() - FRESH_SECONDS
        return [
            each.report
            for each in self._seen.values()
            if each.report is not None and each.at is not None and each.at >= since
        ]

    def _lease_changed(self, update: Update) -> None:
        lease = update.decode_after()
        if lease is None:
            self._seen.pop(update.key, None)
            return
        version, known = resource_version_of(lease), self._seen.get(update.key)
        if known is not None and known.version == version:
            return
        # Their clocks are not looked at. The first state that we see may be of any age, and may be
        # our own, from before we led: it counts when it is renewed.
        at = None if known is None else self._clock.monotonic()
        self._seen[update.key] = _Seen(version, read_report(lease), at)


class ClusterConfirmations(Reconciler):
    """Says on each Push cluster that is not ready whether others do not reach it, either."""

    name = "cluster-confirmations"

    def __init__(
        self, hub: Client, caches: HubCaches, events: EventRecorder, settings: EvictionSettings
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = caches.hub.connection.clock
        self._clusters = caches.informer(CLUSTERS)
        self._witnesses = caches.shared(Witnesses)
        self._settings = settings

    def watches(self) -> Iterable[Watch]:
        """Return Clusters whose conditions changed, and what witnesses say."""
        yield Watch(self._clusters, when=has_other_conditions)
        yield Watch(self._witnesses.leases, to=self.doubted_clusters)

    async def reconcile(self, request: Request) -> Result:
        """Bring the condition of one Cluster to what is known now."""
        cluster = self._clusters.cache.find(request.key)
        if cluster is None or is_being_deleted(cluster):
            return Done()
        before = conditions_of(cluster)
        present = find_condition(before, CONFIRMED)
        is_asked = self._settings.is_on and self._settings.witnesses > 0 and is_doubted(cluster)
        if not is_asked:
            if present is not None:
                await self._write(cluster, [each for each in before if each is not present])
            return Done()
        condition = self._witnesses.judge(uid_of(cluster), self._settings.witnesses)
        said = (condition.status, condition.reason, condition.message)
        if present is None or said != tuple(map(present.get, ("status", "reason", "message"))):
            changed = set_condition(before, condition, self._clock.now())
            # At the version in our cache: PushStatus writes the same list, and a Conflict has us
            # look at what it wrote.
            stored = await self._write(cluster, changed.conditions)
            self._events.record(
                stored, condition.reason, condition.message, is_warning=condition.status != TRUE
            )
        return RequeueAfter(_LOOK_SECONDS)

    async def _write(self, cluster: Object, conditions: Sequence[Object]) -> Object:
        desired = with_value(cluster, list(conditions), "status", "conditions")
        path = ResourcePath(CLUSTERS, name=name_of(cluster))
        return await commit(self._hub, path, cluster, desired)

    def doubted_clusters(self, update: Update) -> Iterable[Request]:
        """Map what a witness says to the clusters it may be about."""
        clusters = self._clusters.cache.objects()
        return [Request(name_of(each)) for each in clusters if is_doubted(each)]


def is_doubted(cluster: Object) -> bool:
    """Whether a Push cluster was heard of, and is not ready by the leader's word."""
    ready = find_condition(conditions_of(cluster), "Ready")
    return not is_pull(cluster) and ready is not None and ready.get("status") != TRUE


def has_other_conditions(update: Update) -> bool:
    """Whether the conditions of a Cluster are others than before."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return True
    return conditions_of(before) != conditions_of(after)
