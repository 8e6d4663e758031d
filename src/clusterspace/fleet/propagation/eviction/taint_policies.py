"""ClusterTaintPolicies: what the conditions of a cluster say becomes taints, and goes again.

Policies are applied in the order in which they were made, each to the clusters it targets. A policy
that goes leaves its taints behind: nobody but its author knows whether they are still meant.
"""

from collections.abc import Iterable, Sequence
from typing import Final, cast

from clusterspace.aio.clocks import Clock
from clusterspace.apis.affinities import read_affinity, traits_of
from clusterspace.apis.clusters import CLUSTERS, conditions_of, taints_of
from clusterspace.apis.policies import CLUSTER_TAINT_POLICIES
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
    nothing,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.eviction.decisions import NO_EXECUTE
from clusterspace.fleet.propagation.eviction.witnesses import Witnesses, is_doubted
from clusterspace.fleet.propagation.scheduler.filters import taint_text
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
    with_value,
    without_value,
)
from clusterspace.kube.times import format_time

TAINTED: Final = "TaintClusterSucceed"
NOT_TAINTED: Final = "TaintClusterFailed"

_LOOK_SECONDS: Final = 5.0


def in_order(policies: Iterable[Object]) -> list[Object]:
    """Return policies as they are applied: the oldest first, so that two never take turns."""
    return sorted(
        policies, key=lambda each: (str(metadata_of(each).get("creationTimestamp")), name_of(each))
    )


def matches(conditions: Sequence[Object], asked: Sequence[Object]) -> bool:
    """Whether a cluster says everything that is asked for; nothing asked for is no match.

    A condition that the cluster does not have matches nothing, not even NotIn: it is not known.
    """
    for each in asked:
        found = find_condition(conditions, str(each.get("conditionType")))
        values, operator = each.get("statusValues") or (), each.get("operator")
        if found is None or operator not in ("In", "NotIn"):
            return False
        if (found.get("status") in values) is not (operator == "In"):
            return False
    return bool(asked)


def tainted(
    cluster: Object, policies: Iterable[Object], now: float, *, may_evict: bool
) -> list[Object]:
    """Return the taints a Cluster is to have by the policies; other taints stay."""
    traits, conditions = traits_of(cluster), conditions_of(cluster)
    taints = list(taints_of(cluster))
    for policy in policies:
        spec = cast("Object", policy.get("spec") or {})
        try:
            affinity = read_affinity(spec.get("targetClusters"), place="spec.targetClusters")
        except MalformedSelector:
            continue  # nobody can say which clusters are meant
        if not affinity.matches(traits):
            continue
        meant = cast("list[Object]", spec.get("taints") or [])
        if matches(conditions, spec.get("addOnConditions") or ()):
            present = {_identity(each) for each in taints}
            taints += [
                {**_plain(each), "timeAdded": format_time(now)}
                for each in meant
                if _identity(each) not in present
                and (may_evict or each.get("effect") != NO_EXECUTE)
            ]
        if matches(conditions, spec.get("removeOnConditions") or ()):
            gone = {_identity(each) for each in meant}
            taints = [each for each in taints if _identity(each) not in gone]
    return taints


def _identity(taint: Object) -> tuple[object, object]:
    return taint.get("key"), taint.get("effect")


def _plain(taint: Object) -> Object:
    return {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}


class ClusterTaintPolicies(Reconciler):
    """Keeps the taints that ClusterTaintPolicies ask for on every Cluster."""

    name = "cluster-taint-policies"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        *,
        may_evict: bool = False,
        witnesses: int = 0,
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._may_evict = may_evict
        self._needed = witnesses
        self._witnesses = caches.shared(Witnesses)
        self._clusters = caches.informer(CLUSTERS)
        self._policies = caches.informer(CLUSTER_TAINT_POLICIES)

    def watches(self) -> Iterable[Watch]:
        """Return Clusters whose conditions, labels or taints changed, and the policies."""
        yield Watch(self._clusters, when=is_another_state)
        yield Watch(self._policies, to=self.all_clusters)
        yield Watch(self._witnesses.leases, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Bring the taints of one Cluster to what the policies say."""
        path = ResourcePath(CLUSTERS, name=request.name)
        policies = in_order(self._policies.cache.objects())
        # Live: conditions and taints have other writers, and one of them may have just written.
        cluster = await self._hub.find(path) if policies else None
        if cluster is None or is_being_deleted(cluster):
            return Done()
        before = list(taints_of(cluster))
        is_confirmed = True
        if self._may_evict and self._needed > 0 and is_doubted(cluster):
            # Conditions of a cluster that one place alone takes for dead get no taint that evicts:
            # the taint may outlast them.
            agreed = self._witnesses.judge(uid_of(cluster), self._needed)
            is_confirmed = agreed.status == TRUE
        may_evict = self._may_evict and is_confirmed
        after = tainted(cluster, policies, self._clock.now(), may_evict=may_evict)
        # When others agree the condition UnreachableConfirmed changes, and wakes us; what they say
        # may have become too old just then.
        later = Done() if is_confirmed else RequeueAfter(_LOOK_SECONDS)
        if after == before:
            return later
        desired = (
            with_value(cluster, after, "spec", "taints")
            if after
            else without_value(cluster, "spec", "taints")
        )
        stored = await commit(self._hub, path, cluster, desired)
        listed = ", ".join(taint_text(each) for each in after) or "none"
        self._events.record(stored, TAINTED, f"taints are now: {listed}")
        return later

    def all_clusters(self, update: Update) -> Iterable[Request]:
        """Map a policy to every Cluster: one it no longer targets may be in reach of another."""
        policy = update.decode_after()
        if policy is not None and not self._may_evict and _evicts(policy):
            self._events.record(
                policy,
                NOT_TAINTED,
                "taints with effect NoExecute are not set: the controllers were not started with "
                "--enable-no-execute-taint-eviction",
                is_warning=True,
            )
        return [request_for(key) for key in self._clusters.cache]


def _evicts(policy: Object) -> bool:
    taints = cast("list[Object]", find_at(policy, "spec", "taints") or [])
    return any(each.get("effect") == NO_EXECUTE for each in taints)


def is_another_state(update: Update) -> bool:
    """Whether a Cluster is new, or says something else that policies may ask for."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return after is not None
    return _asked_for(before) != _asked_for(after)


def _asked_for(cluster: Object) -> tuple[object, ...]:
    conditions = {str(each.get("type")): each.get("status") for each in conditions_of(cluster)}
    return conditions, labels_of(cluster), cluster.get("spec")
