"""What many clusters report of one object, summed up into the status its template shows.

Kinds that are not here keep the status they have: what to add up in a stranger's status, only its
author knows. A number that is none, from a cluster that reports nonsense, counts as zero: one
cluster must not hide what the others report.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.job_results import job_status
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.apis.works import Report
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.resources import GroupKind


@dataclass(frozen=True, slots=True)
class Reports:
    """What has been reported, and from how many clusters a report is due."""

    told: tuple[Report, ...]
    due: int

    @property
    def statuses(self) -> tuple[Object, ...]:
        """The statuses there are: of clusters that hold the object and have looked at it."""
        return tuple(each.status for each in self.told if each.status is not None)

    def are_all(self, count: int) -> bool:
        """Whether something that holds for so many clusters holds for all of them."""
        return 0 < count == max(self.due, len(self.told))


@dataclass(frozen=True, slots=True)
class Totals:
    """Which counters of a kind's status are added up; required ones are told even when zero."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    has_observed_generation: bool = True

    def of(self, template: Object, reports: Reports) -> Object:
        """Return the template's status with the sums in it."""
        status = status_of(template)
        sums = {field: total(reports.statuses, field) for field in (*self.required, *self.optional)}
        kept = {key: held for key, held in status.items() if key not in sums}
        told = {field: held for field, held in sums.items() if held or field in self.required}
        if not self.has_observed_generation:
            return {**kept, **told}
        return {**kept, **told, **_observed_generation(template, reports)}


Aggregate = Callable[[Object, Reports], Object]
"""Returns the template's whole new status."""


def is_aggregated(kind: GroupKind) -> bool:
    """Whether we know how to sum up the statuses of a kind."""
    return kind in _BY_KIND


def aggregated_status(template: Object, reports: Reports) -> Object:
    """Return the status the template should show; the one it has, for kinds we cannot sum up."""
    aggregate = _BY_KIND.get(kind_of(template))
    return status_of(template) if aggregate is None else aggregate(template, reports)


def status_of(template: Object) -> Object:
    """Return the status of an object, or an empty one."""
    return template.get("status") or {}


def total(statuses: Sequence[Object], field: str) -> int:
    """Return the sum of a counter over all clusters."""
    return sum(_number(each.get(field)) for each in statuses)


def _observed_generation(template: Object, reports: Reports) -> Object:
    """Return the generation that every cluster is known to work on.

    Deployment tools wait for this number. So it moves only when each cluster that is to have the
    object has this generation of it, and the controllers there have seen it.
    """
    generation = _number(metadata_of(template).get("generation"))
    seen = sum(_has_seen(each, generation) for each in reports.statuses)
    if reports.are_all(seen):
        return {"observedGeneration": generation}
    held = status_of(template).get("observedGeneration")
    return {} if held is None else {"observedGeneration": held}


def _has_seen(status: Object, generation: int) -> bool:
    is_latest = status.get("resourceTemplateGeneration") == generation
    return is_latest and _number(status.get("observedGeneration")) >= _number(
        status.get("generation")
    )


def _cron_job(template: Object, reports: Reports) -> Object:
    statuses = reports.statuses
    told = {
        "active": [each for status in statuses for each in status.get("active") or ()],
        "lastScheduleTime": _latest(statuses, "lastScheduleTime"),
        "lastSuccessfulTime": _latest(statuses, "lastSuccessfulTime"),
    }
    kept = {key: held for key, held in status_of(template).items() if key not in told}
    return {**kept, **{key: held for key, held in told.items() if held}}


def _pod(template: Object, reports: Reports) -> Object:
    """Return the worst phase, and what is known of each container in each cluster."""
    if not reports.told:
        return status_of(template)
    # A pod of which nothing was reported yet has not started, for all we know.
    phases = {_text(find_at(each.status, "phase")) or "Pending" for each in reports.told}
    told: Object = {"phase": _worst(phases, ("Failed", "Pending", "Running", "Succeeded"))}
    for field in ("initContainerStatuses", "containerStatuses"):
        listed = [each for status in reports.statuses for each in status.get(field) or ()]
        if listed:
            told[field] = [_container(each) for each in listed]
    kept = {key: held for key, held in status_of(template).items() if not key.endswith("Statuses")}
    return {**kept, **told}


def _container(status: Object) -> Object:
    """Return readiness and state alone: across clusters, names and IDs mean nothing."""
    blank = {"name": "", "image": "", "imageID": "", "restartCount": 0}
    state = {"state": status["state"]} if status.get("state") else {}
    return {**blank, "ready": status.get("ready") is True, **state}


def _service(template: Object, reports: Reports) -> Object:
    if find_at(template, "spec", "type") != "LoadBalancer":
        return status_of(template)
    return _load_balancer(template, reports)


def _load_balancer(template: Object, reports: Reports) -> Object:
    """Return the entrances of all clusters, each once."""
    entrances: list[Object] = []
    for status in reports.statuses:
        listed: list[Object] = find_at(status, "loadBalancer", "ingress") or []
        entrances.extend(each for each in listed if each not in entrances)
    entrances.sort(key=lambda each: (_text(each.get("ip")), _text(each.get("hostname"))))
    return {
        **status_of(template),
        "loadBalancer": {"ingress": entrances} if entrances else {},
    }


def _claim(template: Object, reports: Reports) -> Object:
    phases = _phases(reports)
    if not phases:
        return status_of(template)
    unbound = [each for each in phases if each != "Bound"]
    phase = "Lost" if "Lost" in phases else (unbound or phases)[-1]
    return {**status_of(template), "phase": phase}


def _volume(template: Object, reports: Reports) -> Object:
    phases = _phases(reports)
    if not phases:
        return status_of(template)
    order = ("Failed", "Pending", "Available", "Bound", "Released")
    return {**status_of(template), "phase": _worst(set(phases), order)}


def _disruption_budget(template: Object, reports: Reports) -> Object:
    pods: Object = {}
    for report in reports.told:
        disrupted: Object = find_at(report.status, "disruptedPods") or {}
        pods |= {f"{report.cluster}/{pod}": moment for pod, moment in disrupted.items()}
    summed = _BUDGET_TOTALS.of(template, reports)
    kept = {key: held for key, held in summed.items() if key != "disruptedPods"}
    return {**kept, "disruptedPods": pods} if pods else kept


def _phases(reports: Reports) -> list[str]:
    return [_text(each["phase"]) for each in reports.statuses if each.get("phase")]


def _worst(phases: set[str], order: Sequence[str]) -> str:
    """Return the phase that comes first in the order; an unknown one when there is no other."""
    return next((each for each in order if each in phases), min(phases))


def _latest(statuses: Sequence[Object], field: str) -> str:
    # Times of one format in UTC: the later one is the greater text.
    return max((_text(each.get(field)) for each in statuses), default="")


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _job(template: Object, reports: Reports) -> Object:
    sums = Totals(optional=("active", "failed", "succeeded"), has_observed_generation=False)
    return job_status(
        sums.of(template, reports), status_of(template), reports.told, reports.are_all
    )


_BUDGET_TOTALS: Final = Totals(
    required=("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"),
    has_observed_generation=False,
)
_BY_KIND: Final[Mapping[GroupKind, Aggregate]] = {
    kinds.DEPLOYMENT: Totals(
        optional=(
            "availableReplicas",
            "readyReplicas",
            "replicas",
            "unavailableReplicas",
            "updatedReplicas",
        )
    ).of,
    kinds.REPLICA_SET: Totals(
        required=("replicas",),
        optional=("availableReplicas", "fullyLabeledReplicas", "readyReplicas"),
    ).of,
    kinds.STATEFUL_SET: Totals(
        required=("availableReplicas", "replicas"),
        optional=("currentReplicas", "readyReplicas", "updatedReplicas"),
    ).of,
    kinds.DAEMON_SET: Totals(
        required=(
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberMisscheduled",
            "numberReady",
        ),
        optional=("numberAvailable", "numberUnavailable", "updatedNumberScheduled"),
    ).of,
    kinds.JOB: _job,
    kinds.CRON_JOB: _cron_job,
    kinds.POD: _pod,
    kinds.SERVICE: _service,
    kinds.INGRESS: _load_balancer,
    kinds.CLAIM: _claim,
    kinds.VOLUME: _volume,
    kinds.DISRUPTION_BUDGET: _disruption_budget,
    kinds.AUTOSCALER: Totals(
        required=("desiredReplicas",),
        optional=("currentReplicas",),
        has_observed_generation=False,
    ).of,
}
