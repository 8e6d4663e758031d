"""Works for members whose agent is KubeFleet's: handed over in its shape, and its word taken back.

    Work in karmada-es-NAME ──> fleet Work in fleet-member-NAME ──agent──> member
                  status    <──            status              <──agent──

One for each, under the same name, with the manifests as they are. The agent holds a fleet Work by
its finalizer while it has something on the member, so a Work goes when its fleet Work is gone:

    deleted      the fleet Work is deleted, the agent removes what it placed and lets go
    to be kept   the finalizer is taken off and the fleet Work deleted, both at one version: the
                 agent is never asked to remove anything, and its AppliedWork stays with the objects

What an agent says counts for the manifests of its own Work alone, and no more than fits there.
"""

from typing import Any, Final, cast

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORK_FINALIZER, WORKS, keeps_on_leave
from clusterspace.apis.differences import MOST_DIFFERENCES, short_value
from clusterspace.apis.fleet_placements import (
    ALWAYS,
    API_VERSION,
    APPLY_TYPE,
    CO_OWNERSHIP,
    COMPARISON,
    NEVER,
    REPORT_DIFF,
    TAKE_OVER,
    WHEN_TO_APPLY,
    is_placed,
    parent_labels,
    parent_of,
)
from clusterspace.apis.interpreter.reports import reflect_status
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.member_clusters import FLEET_WORKS, member_namespace
from clusterspace.apis.works import (
    ALREADY_EXISTS,
    APPLIED,
    DELETION_ASKED,
    HEALTHY,
    NAMESPACE,
    UNHEALTHY,
    UNKNOWN,
    WORK,
    identifier_of,
    manifests_of,
    preserves_resources,
    suspends_dispatching,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.controllers.commit import commit, ensure_finalizer, release
from clusterspace.controllers.controller import Done, Request, RequeueAfter, Result
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Cache
from clusterspace.errors import NotFound
from clusterspace.fleet.execution.controller import WorkQueue
from clusterspace.fleet.execution.prune import DeletionLimits
from clusterspace.fleet.execution.report import Interpreted, ManifestResult, next_status
from clusterspace.kube.conditions import FALSE, TRUE, find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.times import parse_time

WORK_UID: Final = "clusterspace.io/work-uid"
"""Annotation of a fleet Work: which Work it hands over."""
WORK_GENERATION: Final = "clusterspace.io/work-generation"
"""Annotation of a fleet Work: which state of that Work it has."""

NAMESPACE_KEPT: Final = "NamespaceKept"

_AVAILABLE: Final = "Available"
_DIFF_REPORTED: Final = "DiffReported"
_NOT_TAKEN_OVER: Final = frozenset({"NotTakenOver", "FailedToTakeOver"})
_FOUND_DRIFTS: Final = frozenset({"FoundDrifts", "FoundDriftsInDegradedMode"})

_LONGEST_MESSAGE: Final = 1024
"""Of what an agent says of one object."""
_LARGEST_STATUS: Final = 64 * 1024
"""Of an object on the member: statuses of all clusters meet in one binding."""
_GOING_SECONDS: Final = 1.0


def fleet_work_of(work: Object, cluster_name: str) -> Object:
    """Return the fleet Work that hands a Work over."""
    labels = {stamps.WORK_ID: labels_of(work).get(stamps.WORK_ID, "")}
    if is_placed(work):
        labels |= parent_labels(parent_of(work))
    generation = str(metadata_of(work).get("generation") or 0)
    return {
        "apiVersion": API_VERSION,
        "kind": WORK,
        "metadata": {
            "name": name_of(work),
            "namespace": member_namespace(cluster_name),
            "labels": {key: value for key, value in labels.items() if value},
            "annotations": {WORK_UID: uid_of(work), WORK_GENERATION: generation},
        },
        "spec": {
            "workload": {"manifests": list(manifests_of(work))},
            "applyStrategy": apply_strategy(work),
            # Otherwise it says whether an object is available, and not how it is.
            "reportBackStrategy": {"type": "Mirror", "destination": "WorkAPI"},
        },
    }


def apply_strategy(work: Object) -> Object:
    """Return how KubeFleet's agent is to apply a Work, with all defaults: so it is stored.

    A policy's Work takes over what is there if its conflict resolution says so. A namespace that
    comes along by itself never is taken over: it would go with all that is in it.
    """
    asked = annotations_of(work)
    overwrites = asked.get(stamps.CONFLICT_RESOLUTION) == "overwrite"
    takes_over = asked.get(TAKE_OVER) or (ALWAYS if overwrites else NEVER)
    if _is_namespace(work) and not is_placed(work):
        takes_over = NEVER
    return {
        "type": REPORT_DIFF if asked.get(APPLY_TYPE) == REPORT_DIFF else "ClientSideApply",
        "comparisonOption": asked.get(COMPARISON) or "PartialComparison",
        "whenToApply": asked.get(WHEN_TO_APPLY) or ALWAYS,
        "whenToTakeOver": takes_over,
        "allowCoOwnership": asked.get(CO_OWNERSHIP) == "true",
    }


def _is_namespace(work: Object) -> bool:
    return any(kind_of(each) == NAMESPACE for each in manifests_of(work))


def keeps_objects(work: Object, cluster: Object | None) -> bool:
    """Whether what a Work placed stays on the member when the Work goes.

    A namespace goes with everything in it, and from here nobody can look what that is. So one goes
    when somebody deleted it on the hub, or when its placement lets go of it, as with KubeFleet's
    hub; and stays on a leave, and when it came along with what was placed in it.
    """
    is_leaving = cluster is not None and is_being_deleted(cluster)
    # The Works of a cluster that leaves and is to keep what it has may not say so yet.
    if preserves_resources(work) or (is_leaving and keeps_on_leave(cluster or {})):
        return True
    is_asked = annotations_of(work).get(DELETION_ASKED) == "true"
    return _is_namespace(work) and not is_asked and (is_leaving or not is_placed(work))


def results_of(work: Object, fleet_work: Object) -> list[ManifestResult] | None:
    """Return what the agent says became of a Work's manifests; None while that is of another state.

    An entry is about the manifest whose ordinal and whose name it has, and about no other.
    """
    of_generation = annotations_of(fleet_work).get(WORK_GENERATION)
    if of_generation != str(metadata_of(work).get("generation") or 0):
        return None
    conditions = find_at(fleet_work, "status", "conditions")
    is_compared = annotations_of(work).get(APPLY_TYPE) == REPORT_DIFF
    done = find_condition(conditions, _DIFF_REPORTED if is_compared else APPLIED) or {}
    if done.get("observedGeneration") != metadata_of(fleet_work).get("generation"):
        return None
    listed: Any = find_at(fleet_work, "status", "manifestConditions") or []
    entries = {
        int(each["identifier"]["ordinal"]): each
        for each in cast("list[Object]", listed)
        if isinstance(find_at(each, "identifier", "ordinal"), int)
    }
    manifests = manifests_of(work)
    return [
        _result(manifest, ordinal, entries.get(ordinal) or {}, is_compared=is_compared)
        for ordinal, manifest in enumerate(manifests)
    ]


def _result(manifest: Object, ordinal: int, entry: Object, *, is_compared: bool) -> ManifestResult:
    expected: Object = identifier_of(manifest, ordinal)
    said: Object = entry.get("identifier") or {}
    naming = ("group", "version", "kind", "namespace", "name")
    if any((said.get(key) or "") != (expected.get(key) or "") for key in naming):
        return ManifestResult(manifest, problem="its agent does not say what became of it")
    conditions = entry.get("conditions")
    applied = find_condition(conditions, APPLIED) or {}
    compared = find_condition(conditions, _DIFF_REPORTED) or {}
    reported = compared if is_compared else applied
    generation = int(reported.get("observedGeneration") or 0)
    differences = _details(entry, "diffDetails", "observedDiffs")
    drifts = _details(entry, "driftDetails", "observedDrifts")
    reason, message = str(reported.get("reason") or ""), str(reported.get("message") or "")
    seen = generation or None
    if is_compared:
        problem = (
            "" if reported.get("status") == TRUE else f"{reason}: {message}"[:_LONGEST_MESSAGE]
        )
        return ManifestResult(manifest, problem=problem, differences=differences, generation=seen)
    if reported.get("status") != TRUE:
        subject = f"{manifest.get('kind')} {name_of(manifest)}"
        if reason in _NOT_TAKEN_OVER and kind_of(manifest) == NAMESPACE:
            return ManifestResult(manifest)  # it is there, and stays whose it was
        if reason in _NOT_TAKEN_OVER:
            message = f"{subject} {ALREADY_EXISTS}: {message}"
        problem = f"{reason}: {message}"[:_LONGEST_MESSAGE]
        is_there = reason in _FOUND_DRIFTS
        return ManifestResult(
            manifest,
            live=manifest if is_there else None,
            interpreted=Interpreted(UNKNOWN, None) if is_there else None,
            problem=problem,
            differences=differences or None,
            drifts=drifts,
            generation=seen,
        )
    live = with_metadata(manifest, generation=seen) if seen else manifest
    status = _status_in(manifest, entry)
    if status is not None:
        live = {**live, "status": status}
    available = (find_condition(conditions, _AVAILABLE) or {}).get("status")
    health = HEALTHY if available == TRUE else UNHEALTHY if available == FALSE else UNKNOWN
    interpreted = Interpreted(health, None if status is None else reflect_status(live))
    return ManifestResult(
        manifest, live=live, interpreted=interpreted, drifts=drifts, generation=seen
    )


def _details(entry: Object, holder: str, field: str) -> tuple[Object, ...]:
    listed: Any = find_at(entry, holder, field) or []
    return tuple(
        {
            key: short_value(str(each[key]))
            for key in ("path", "valueInMember", "valueInHub")
            if each.get(key)
        }
        for each in cast("list[Object]", listed)[:MOST_DIFFERENCES]
    )


def _status_in(manifest: Object, entry: Object) -> Object | None:
    """Return the status of the object on the member, if it is told, is one, and has room."""
    observed: Any = find_at(entry, "backReportedStatus", "observedStatus")
    if not isinstance(observed, dict):
        return None
    reported = cast("Object", observed)
    status: Any = reported.get("status")
    same = all(reported.get(key) == manifest.get(key) for key in ("apiVersion", "kind"))
    if not same or not isinstance(status, dict):
        return None
    found = cast("Object", status)
    return found if len(msgspec.json.encode(found)) <= _LARGEST_STATUS else None


class FleetDelivery(WorkQueue):
    """Hands the Works of one cluster to KubeFleet's agent there."""

    # Two write a fleet Work: this one its spec and marks, the agent its finalizer and status. The
    # agent may also write whatever else is in its namespace. Whatever it changes there is put back
    # by the next look, and harms nobody but its own cluster.

    def __init__(
        self,
        cluster_name: str,
        hub: ClusterClient,
        events: EventRecorder,
        *,
        works: Cache,
        clusters: Cache,
        limits: DeletionLimits | None,
    ) -> None:
        super().__init__(cluster_name, hub, events, clusters=clusters, limits=limits)
        self._hub = hub
        self._events = events
        self._works = works

    async def reconcile(self, request: Request) -> Result:
        """Hand over one Work, and write what became of it; or withdraw it."""
        work = self._works.find(request.key)
        if work is None:
            # Gone by our own hand, or by somebody who took its finalizer off. What is left of it
            # stays: nothing is removed because we cannot see why it should be there.
            self._paused.discard(request)
            return Done()
        path = ResourcePath(FLEET_WORKS, member_namespace(self.cluster_name), request.name)
        present = await self._hub.find(path)
        if is_being_deleted(work):
            return await self._withdraw(request, work, path, present)
        if present is not None and is_being_deleted(present):
            # Of an earlier Work of this name. Its agent is at it, and the next one comes after.
            return RequeueAfter(_GOING_SECONDS)
        work_path = resource_path_of(WORKS, work)
        work = await ensure_finalizer(self._hub, work_path, work, WORK_FINALIZER)
        # One that is only compared is suspended, so that no agent of ours changes anything.
        is_compared = annotations_of(work).get(APPLY_TYPE) == REPORT_DIFF
        is_suspended = suspends_dispatching(work) and not is_compared
        if not is_suspended:
            desired = fleet_work_of(work, self.cluster_name)
            if present is None:
                present = await self._hub.create(path.collection, desired)
            else:
                present = await commit(self._hub, path, present, _handed_over(present, desired))
        results = None if present is None else results_of(work, present)
        if results is None and not is_suspended:
            return Done()  # its status is of an earlier state until the agent reports
        status = next_status(work, results or (), self._clock.now())
        if status != (work.get("status") or {}):
            await commit(self._hub, work_path, work, {**work, "status": status})
        return Done()

    async def _withdraw(
        self, request: Request, work: Object, path: ResourcePath, present: Object | None
    ) -> Result:
        """Let the fleet Work go, and the Work after it."""
        if present is None:
            self._paused.discard(request)
            await release(self._hub, resource_path_of(WORKS, work), work, WORK_FINALIZER)
            return Done()
        if is_being_deleted(present):
            return Done()  # we are woken when it is gone
        # Read live: what was placed must not go because a cache did not know yet that it stays.
        cluster = await self._hub.find(ResourcePath(CLUSTERS, name=self.cluster_name))
        work = await self._hub.find(resource_path_of(WORKS, work)) or work
        if keeps_objects(work, cluster):
            # In this order, and the second at the version of the first: an agent that takes hold of
            # it in between makes the deletion a conflict, and is not asked to remove anything.
            freed = await commit(self._hub, path, present, with_metadata(present, finalizers=None))
            options = DeleteOptions(uid_of(freed), resource_version_of(freed))
            if _is_namespace(work):
                message = f"{self.cluster_name} keeps the namespace: what is in it is not known"
                self._events.record(work, NAMESPACE_KEPT, message)
        else:
            goes_since = parse_time(str(metadata_of(work)["deletionTimestamp"]))
            is_asked = annotations_of(work).get(DELETION_ASKED) == "true"
            if not is_asked:
                await self._budget.wait_for_wave()
                is_permitted = await self._budget.permits(goes_since)
                self._note_pruned(request, is_pruned=is_permitted)
                if not is_permitted:
                    return Done()  # woken when deletions go on
                self._budget.note_deletion(goes_since, len(manifests_of(work)))
            options = DeleteOptions(uid_of(present))
        try:
            await self._hub.delete(path, options)
        except NotFound:
            return RequeueAfter(_GOING_SECONDS)
        return Done()  # the informer tells when it is gone, and that wakes us


def _handed_over(present: Object, desired: Object) -> Object:
    """Return a fleet Work as it is to be; what its agent and others put on it stays."""
    labels = {**labels_of(present), **labels_of(desired)}
    annotations = {**annotations_of(present), **annotations_of(desired)}
    marked = with_metadata(present, labels=labels, annotations=annotations)
    return {**marked, "spec": desired["spec"]}
