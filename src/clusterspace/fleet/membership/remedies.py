"""Remedies: what the conditions of a cluster say becomes actions in its status.

    Remedy ──matches the conditions of──> Cluster ──> status.remedyActions ──> (traffic)

A Remedy that asks for no condition acts at once and for as long as it is there. Of several
conditions one is enough, as in Karmada. What is written there is the union over all remedies, so a
remedy that is removed takes away what no other one asks for.
"""

from collections.abc import Iterable, Sequence
from typing import Final, cast

from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    Result,
    Watch,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    name_of,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupVersionResource

REMEDIES: Final = GroupVersionResource("remedy.karmada.io", "v1alpha1", "remedies")
CHANGED: Final = "RemedyActionsChanged"

_EQUAL: Final = "Equal"
_ACTIONS: Final = ("status", "remedyActions")


def targets(remedy: Object, cluster: str) -> bool:
    """Whether a remedy is for a cluster: for all, unless it names some."""
    affinity = find_at(remedy, "spec", "clusterAffinity")
    return affinity is None or cluster in (affinity.get("clusterNames") or ())


def is_called_for(remedy: Object, conditions: Sequence[Object]) -> bool:
    """Whether any condition that a remedy asks for is met; a cluster that lacks it says nothing."""
    matches = cast("list[Object] | None", find_at(remedy, "spec", "decisionMatches"))
    if not matches:
        return True
    for each in matches:
        asked = cast("Object", each.get("clusterConditionMatch") or {})
        found = find_condition(conditions, str(asked.get("conditionType")))
        if found is not None:
            is_equal = found.get("status") == asked.get("conditionStatus")
            if is_equal is (asked.get("operator") == _EQUAL):
                return True
    return False


def actions_for(cluster: Object, remedies: Iterable[Object]) -> list[str]:
    """Return what is to be done about a cluster, each action once and in order."""
    conditions = conditions_of(cluster)
    return sorted(
        {
            str(action)
            for remedy in remedies
            if not is_being_deleted(remedy) and targets(remedy, name_of(cluster))
            if is_called_for(remedy, conditions)
            for action in find_at(remedy, "spec", "actions") or ()
        }
    )


class RemedyController(Reconciler):
    """Keeps the actions that Remedies ask for in the status of every Cluster."""

    name = "remedies"

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder) -> None:
        self._hub = hub
        self._events = events
        self._clusters = caches.informer(CLUSTERS)
        self._remedies = caches.informer(REMEDIES)

    def watches(self) -> Iterable[Watch]:
        """Return Clusters whose conditions or actions changed, and the remedies."""
        yield Watch(self._clusters, when=says_something_else)
        yield Watch(self._remedies, to=self.all_clusters)

    async def reconcile(self, request: Request) -> Result:
        """Bring the actions of one Cluster to what the remedies say."""
        cached = self._clusters.cache.find(request.key)
        if cached is None:
            return Done()
        remedies = tuple(self._remedies.cache.objects())
        if actions_for(cached, remedies) == (find_at(cached, *_ACTIONS) or []):
            return Done()
        # Live: traffic that was held back is let in again only when nobody asks for it any more,
        # and a cache that is behind does not know.
        remedies = await self._hub.list_objects(ResourcePath(REMEDIES))
        path = ResourcePath(CLUSTERS, name=request.name)
        cluster = await self._hub.find(path)
        if cluster is None or is_being_deleted(cluster):
            return Done()
        actions = actions_for(cluster, remedies)
        if actions == (find_at(cluster, *_ACTIONS) or []):
            return Done()
        desired = (
            with_value(cluster, actions, *_ACTIONS)
            if actions
            else without_value(cluster, *_ACTIONS)
        )
        stored = await commit(self._hub, path, cluster, desired)
        listed = ", ".join(actions) or "none"
        self._events.record(stored, CHANGED, f"remedy actions are now: {listed}")
        return Done()

    def all_clusters(self, _: Update) -> Iterable[Request]:
        """Map a remedy to every Cluster: one it no longer targets may lose an action."""
        return [request_for(key) for key in self._clusters.cache]


def says_something_else(update: Update) -> bool:
    """Whether a Cluster is new, or other conditions or actions are in its status."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return after is not None
    return _said(before) != _said(after)


def _said(cluster: Object) -> tuple[object, ...]:
    conditions = {str(each.get("type")): each.get("status") for each in conditions_of(cluster)}
    return conditions, find_at(cluster, *_ACTIONS)
